"""masu run --profile heap and masu profile: what is planted in programs is found, however they end."""

import base64
import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import MASU, as_in_a_terminal

# With `grows N` MiB that stay; `peaks` and `churns` leave nothing.
PLANTED = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline)) void
static void *kept[64][1024];
static void *used(void *p) { __asm__ volatile("" : "+r"(p) : : "memory"); return p; }
APART leaks(int mib) { for (int i = 0; i < mib; i++) for (int j = 0; j < 1024; j++) kept[i][j] = used(malloc(1024)); }
APART peaks(void) {
  void *all[32];
  for (int i = 0; i < 32; i++) all[i] = used(calloc(1, 1 << 20));
  for (int i = 0; i < 32; i++) free(all[i]);
}
APART churns(void) { for (int i = 0; i < 50000; i++) free(used(malloc(2048))); }
APART works(void) { for (int i = 0; i < 100; i++) kept[63][i] = used(malloc(4096)); }
static void *thread(void *nothing) { pthread_setname_np(pthread_self(), "worker"); works(); return nothing; }
int main(int count, char **arguments) {
  pthread_t t;
  peaks();
  churns();
  leaks(count > 1 ? atoi(arguments[1]) : 4);
  if (pthread_create(&t, NULL, thread, NULL)) return 1;
  pthread_join(t, NULL);
  return 3;
}
"""
APART = ("-fno-builtin", "-fno-ipa-icf", "-fno-optimize-sibling-calls", "-pthread", "-Wl,--build-id")
EXACT = ("--interval", "2")
"""So small that practically every block is a sample: estimates are truths."""


@pytest.fixture(scope="session")
def planted(compile_program):
    return compile_program(PLANTED, *APART)


@pytest.fixture(scope="session")
def profiles(planted, tmp_path_factory):
    """Of so many MiB that stay."""
    folder = tmp_path_factory.mktemp("profiles")
    for mib in (1, 4, 12):
        run = [MASU, "run", "--profile", "heap", *EXACT, "-o", folder / f"{mib}.gz", "--", planted, str(mib)]
        subprocess.run(run, capture_output=True, check=False)
    return {mib: folder / f"{mib}.gz" for mib in (1, 4, 12)}


def profiled(masu, tmp_path, *words, **options):
    """Runs it in tmp_path, with its profile in `it`."""
    return masu("run", "--profile", "heap", *EXACT, "-o", "it", "--", *words, cwd=tmp_path, **options)


def folded(masu, *words):
    """Stack -> KiB."""
    lines = masu("profile", "--folded", *words, check=True).stdout.splitlines()
    return {tuple(line.rsplit(" ", 1)[0].split(";")): int(line.rsplit(" ", 1)[1]) for line in lines}


def inside(stacks, function):
    """KiB of the stacks that have this function."""
    return sum(kib for frames, kib in stacks.items() if function in frames)


def first_row(result):
    lines = result.stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.rstrip().endswith(("function", "thread")))
    return lines[heading + 1].strip()


def one_error(result, *texts, status=125):
    assert result.returncode == status
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("masu: error: ")
    assert all(text in result.stderr for text in texts), result.stderr


def one_usage_error(result, text):
    assert result.returncode == 2
    assert text in result.stderr.splitlines()[-1]


# ---- What is planted is found ------------------------------------------------------


def test_what_stays_is_found(masu, profiles):
    stacks = folded(masu, "--view", "in-use", profiles[4])
    assert inside(stacks, "leaks") == 4096
    assert inside(stacks, "works") == 400
    assert inside(stacks, "peaks") == inside(stacks, "churns") == 0
    assert [frames[-1] for frames in stacks if "main" in frames] == ["leaks"]
    assert re.match(r"4\.0 MiB .* 4,096 +leaks", first_row(masu("profile", "--view", "in-use", profiles[4])))


def test_so_is_the_peak(masu, profiles):
    assert inside(folded(masu, "--view", "peak", profiles[4]), "peaks") == 32 * 1024
    assert "peaks" in first_row(masu("profile", "--view", "peak", profiles[4]))


def test_without_a_view_it_is_the_peak_if_little_stays(masu, profiles):
    assert "in use:" in masu("profile", profiles[4]).stdout
    assert "in use at the peak:" in masu("profile", profiles[1]).stdout


def test_so_is_what_allocates_most(masu, profiles):
    result = masu("profile", "--view", "allocated", profiles[4])
    assert re.match(r"97\.7 MiB .* 50,000 +churns", first_row(result))
    result = masu("profile", "--view", "allocated", "--cumulative", "-n", "3", profiles[4])
    assert "churns" not in first_row(result)
    assert "more" in result.stdout.splitlines()[-1]


def test_lifetimes_are_of_what_was_freed(masu, profiles):
    result = masu("profile", "--view", "lifetime", profiles[4])
    assert re.match(r" *50,000 .* churns", first_row(result))
    assert "leaks" not in result.stdout
    one_usage_error(masu("profile", "--view", "lifetime", "--folded", profiles[4]), "lifetime")


# Allocates under its first name and, some milliseconds of allocating later, under its second.
RENAMED = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
static void *volatile kept[4];
static long ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static void *thread(void *nothing) {
  pthread_setname_np(pthread_self(), "first");
  kept[0] = malloc(40000);
  pthread_setname_np(pthread_self(), "second");
  for (long start = ms(); ms() < start + 5;) free(kept[3] = malloc(10));
  kept[1] = malloc(80000);
  return nothing;
}
int main(void) {
  pthread_t t;
  for (int i = 0; i < 2; i++) /* the second thread has the memory of the first */
    if (pthread_create(&t, NULL, thread, NULL) || pthread_join(t, NULL)) return 1;
  return 0;
}
"""


def test_a_thread_is_renamed(masu, compile_program, tmp_path):
    profiled(masu, tmp_path, compile_program(RENAMED, *APART), check=True)
    stacks = folded(masu, "--view", "in-use", "--by", "thread", tmp_path / "it")
    assert inside(stacks, "thread first") == 2 * 40
    assert inside(stacks, "thread second") == 2 * 80


def test_a_name_that_is_no_text_is_shown(masu, compile_program, tmp_path):
    program = (
        "#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdlib.h>\n"
        'int main(void) { pthread_setname_np(pthread_self(), "\\377x"); void *volatile p = malloc(4096); return p == NULL; }'
    )
    profiled(masu, tmp_path, compile_program(program, *APART), check=True)
    for form in ([], ["--folded"], ["--folded", "-o", "page"], ["--html", "-o", "page"]):
        result = masu("profile", "--by", "thread", *form, "it", cwd=tmp_path, env={"LC_ALL": "C.UTF-8"})
        assert result.returncode == 0, result.stderr
        assert r"thread \xff" in (result.stdout or (tmp_path / "page").read_text().replace(r"\\", "\\"))


def test_by_thread(masu, profiles):
    result = masu("profile", "--view", "in-use", "--by", "thread", profiles[4])
    assert re.search(r"400\.0 KiB +\d+\.\d % +100 +thread worker", result.stdout)
    assert all(frames[0].startswith("thread ") for frames in folded(masu, "--by", "thread", profiles[4]))


def test_growth(masu, profiles):
    assert inside(folded(masu, profiles[4], profiles[12]), "leaks") == 8192
    assert inside(folded(masu, profiles[4], profiles[12]), "works") == 0
    assert re.match(r"\+8\.0 MiB .* \+8,192 +leaks", first_row(masu("profile", profiles[4], profiles[12])))
    shrunk = masu("profile", profiles[12], profiles[4]).stdout
    assert re.search(r"-8\.0 MiB .* -8,192 +leaks", shrunk)


def test_the_run_names_the_sites(masu, planted, tmp_path):
    result = profiled(masu, tmp_path, planted)
    assert result.returncode == 3
    assert result.stdout == ""
    assert "masu: it: 4." in result.stderr
    assert re.search(r"4\.0 MiB +\d+\.\d % +leaks < main", result.stderr)
    assert sorted(os.listdir(tmp_path)) == ["it"]


def test_an_interval_of_usual_size_estimates(masu, planted, tmp_path):
    masu("run", "--profile", "heap", "--interval", "64K", "-o", "it", "--", planted, "40", cwd=tmp_path)
    stacks = folded(masu, "--view", "in-use", tmp_path / "it")
    # 640 samples: six of their standard deviations.
    assert inside(stacks, "leaks") == pytest.approx(40 * 1024, rel=6 / 640**0.5)


# ---- Names -----------------------------------------------------------------------


def raw_profile(masu, program, folder, *words):
    """As the library writes it."""
    masu("run", "--options", "profile:2", "--", program, *words, env={"MASU_PROFILE": str(folder)})
    (path,) = folder.glob("*.heap.pb")
    return path


def test_a_profile_of_the_library_alone(masu, planted, tmp_path):
    raw = raw_profile(masu, planted, tmp_path)
    assert re.fullmatch(r"program\.\d+\.heap\.pb", raw.name)
    assert inside(folded(masu, "--view", "in-use", raw), "leaks") == 4096


def test_frames_of_masu_are_none(masu, profiles):
    frames = {name for stack in folded(masu, "--view", "allocated", profiles[4]) for name in stack}
    assert not [name for name in frames if "masu" in name or name in ("malloc", "calloc", "stack_capture")]


def test_another_build_of_the_program_gives_no_names(masu, planted, compile_program, tmp_path):
    program = tmp_path / "planted"
    shutil.copy(planted, program)
    raw = raw_profile(masu, program, tmp_path)
    shutil.copy(compile_program(PLANTED.replace("4096", "5000"), *APART), program)
    result = masu("profile", "--view", "in-use", raw)
    assert result.returncode == 0
    assert result.stderr.count("\n") == 1
    assert str(program) in result.stderr
    assert "leaks" not in result.stdout and "planted+0x" in result.stdout


def test_names_of_a_stripped_program_come_from_its_exports(masu, compile_program, tmp_path):
    program = compile_program(PLANTED, *APART, "-s", "-rdynamic")
    profiled(masu, tmp_path, program)
    assert inside(folded(masu, "--view", "in-use", tmp_path / "it"), "leaks") == 4096


def test_names_from_separate_debug_files(masu, profiles):
    if not shutil.which("dpkg") or subprocess.run(["dpkg", "-s", "libc6-dbg"], capture_output=True, check=False).returncode:
        pytest.skip("no libc6-dbg")
    frames = {name for stack in folded(masu, profiles[4]) for name in stack}
    assert "__libc_start_call_main" in frames  # which libc.so.6 itself has no name for


CPP = r"""
#include <map>
#include <string>
namespace space { struct Thing { std::map<int, std::string> all; void fills(); }; }
__attribute__((noinline)) void space::Thing::fills() { for (int i = 0; i < 5000; i++) all[i] = std::string(100, 'x'); }
int main() { auto *t = new space::Thing; t->fills(); return t->all.size() != 5000; }
"""


def test_names_of_cpp_are_readable(masu, tmp_path):
    (tmp_path / "it.cc").write_text(CPP)
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    subprocess.run(["g++", "-O1", "it.cc", "-o", "program"], cwd=tmp_path, check=True)
    profiled(masu, tmp_path, tmp_path / "program")
    assert inside(folded(masu, tmp_path / "it"), "space::Thing::fills()") > 500


# ---- Programs of all kinds -----------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "function"),
    [
        ([sys.executable, "-c", "x = [bytes(3000) for _ in range(1000)]; import os; os._exit(3)"], "Py_RunMain"),
        (["perl", "-e", "$x[$_] = 'x' x 3000 . $_ for 0..999; use POSIX; POSIX::_exit(3)"], "perl_run"),
        (["ruby", "-e", "X = (0..999).map { |i| 'x' * 3000 + i.to_s }; exit!(3)"], "ruby_run_node"),
    ],
    ids=["python", "perl", "ruby"],
)
def test_interpreters(masu, tmp_path, words, function):
    if not shutil.which(words[0]):
        pytest.skip(f"no {words[0]}")
    result = profiled(masu, tmp_path, *words, env={"PYTHONMALLOC": "malloc"})
    assert result.returncode == 3, result.stderr
    assert 2900 < inside(folded(masu, "--view", "in-use", tmp_path / "it"), function) < 9000


FORKS = r"""
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *kept[4000];
__attribute__((noinline)) void of_all(void) { for (int i = 0; i < 1000; i++) kept[i] = malloc(1024); }
__attribute__((noinline)) void of_child(void) { for (int i = 1000; i < 3000; i++) kept[i] = malloc(1024); }
int main(void) {
  int status;
  of_all();
  if (fork() == 0) {
    of_child();
    exit(0);
  }
  wait(&status);
  return WEXITSTATUS(status);
}
"""


def test_each_process_has_its_own(masu, compile_program, tmp_path):
    result = profiled(masu, tmp_path, compile_program(FORKS, *APART))
    assert result.returncode == 0
    (child,) = tmp_path.glob("program.*.heap.pb.gz")
    assert sorted(os.listdir(tmp_path)) == sorted(["it", child.name])
    assert child.name in result.stderr
    parents, childs = folded(masu, tmp_path / "it"), folded(masu, child)
    assert (inside(parents, "of_all"), inside(parents, "of_child")) == (1000, 0)
    assert (inside(childs, "of_all"), inside(childs, "of_child")) == (1000, 2000)


VFORKS = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void leaks(void) { static void *volatile kept; for (int i = 0; i < 1000; i++) kept = malloc(1024); }
int main(void) {
  int status;
  leaks();
  if (vfork() == 0) {
    execl("/no/such/program", "it", NULL);
    _exit(7);
  }
  wait(&status);
  return WEXITSTATUS(status);
}
"""


def test_a_child_of_vfork_that_fails_to_execute(masu, compile_program, tmp_path):
    assert profiled(masu, tmp_path, compile_program(VFORKS, *APART, "-w")).returncode == 7
    assert os.listdir(tmp_path) == ["it"]
    assert inside(folded(masu, tmp_path / "it"), "leaks") == 1000


def test_where_only_another_process_allocates_its_sites_are_shown(masu, planted, tmp_path):
    result = masu("run", "--profile", "heap", "--", "sh", "-c", f"{planted} 40; exit 2", cwd=tmp_path)
    assert result.returncode == 2
    assert re.search(r"of program\.\d+\.heap\.pb\.gz:", result.stderr)
    assert "leaks < main" in result.stderr


def test_a_program_that_becomes_another(masu, planted, tmp_path):
    result = masu("run", "--profile", "heap", *EXACT, "--", "sh", "-c", f"exec {planted}", cwd=tmp_path)
    assert result.returncode == 3
    (file,) = tmp_path.iterdir()
    assert re.fullmatch(r"program\.\d+\.heap\.pb\.gz", file.name)
    assert inside(folded(masu, "--view", "in-use", file), "leaks") == 4096


def test_processes_that_go_on_write_to_the_folder_that_stays(masu, tmp_path):
    os.mkfifo(tmp_path / "goes-on")
    until = os.open(tmp_path / "goes-on", os.O_RDWR)
    lives_on = "(read x <goes-on; python3 -c 'print(1)') >/dev/null 2>&1 & exit 4"
    result = masu("run", "--profile", "heap", "--", "sh", "-c", lives_on, cwd=tmp_path)
    try:
        assert result.returncode == 4
        (folder,) = tmp_path.glob("*.profile")
        assert str(folder) in result.stderr and "still running" in result.stderr
    finally:
        os.write(until, b"\n")
        os.close(until)


# ---- How it ends -----------------------------------------------------------------

# Allocates until a file of its profile is there, and ends as it is told.
ENDS = r"""
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int written(void) {
  DIR *folder = opendir(getenv("MASU_PROFILE"));
  int found = 0;
  for (struct dirent *e; (e = readdir(folder));) found |= strstr(e->d_name, ".heap.pb") && !strstr(e->d_name, ".part");
  closedir(folder);
  return found;
}
__attribute__((noinline)) void leaks(void) { static void *volatile kept; for (int i = 0; i < 1000; i++) kept = malloc(1024); }
int main(int count, char **arguments) {
  const char *how = arguments[1];
  leaks();
  if (count > 2) while (!written()) { void *volatile p = malloc(100); free(p); }
  if (!strcmp(how, "exit")) exit(3);
  if (!strcmp(how, "_exit")) _exit(3);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
  return 3;
}
"""


@pytest.fixture(scope="session")
def ends(compile_program):
    return compile_program(ENDS, *APART)


@pytest.mark.parametrize("how", ["return", "exit", "_exit"])
def test_an_end_by_itself(masu, ends, tmp_path, how):
    result = profiled(masu, tmp_path, ends, how)
    assert result.returncode == 3
    assert inside(folded(masu, tmp_path / "it"), "leaks") == 1000


@pytest.mark.parametrize(("how", "number"), [("abort", signal.SIGABRT), ("kill", signal.SIGKILL)])
def test_an_end_by_a_signal(masu, ends, tmp_path, how, number):
    result = profiled(masu, tmp_path, ends, how)
    assert result.returncode == 128 + number
    assert f"wrote no profile: signal {number.name} ended it" in result.stderr
    assert result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_an_end_by_a_signal_without_a_name(masu, tmp_path):
    result = masu("run", "--profile", "heap", "-o", tmp_path / "it", "--", "sh", "-c", "kill -40 $$")
    assert result.returncode == 128 + 40
    assert "signal 40 ended it" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(("how", "number"), [("abort", signal.SIGABRT), ("kill", signal.SIGKILL)])
def test_what_was_written_before_is_taken(masu, ends, tmp_path, how, number):
    result = masu("run", "--profile", "heap", *EXACT, "--every", "1", "-o", "it", "--", ends, how, "later", cwd=tmp_path)
    assert result.returncode == 128 + number
    assert "its last one before is taken" in result.stderr
    assert inside(folded(masu, tmp_path / "it"), "leaks") == 1000


def test_so_it_is_without_every(masu, ends, tmp_path):
    result = profiled(masu, tmp_path, ends, "kill", "later")
    assert result.returncode == 128 + signal.SIGKILL
    assert inside(folded(masu, tmp_path / "it"), "leaks") == 1000
    assert os.listdir(tmp_path) == ["it"]


def test_of_those_from_meanwhile_only_the_newest_of_a_process_is_kept(tmp_path):
    from masu import profile_run

    class AfterOneRound:
        rounds = 0

        def wait(self, _):
            self.rounds += 1
            return self.rounds > 1

    files = ["it.3.11-0001", "it.3.11-0002", "it.3.11-0010", "it.3.12-0001", "it.3.13-0001", "it.3.13"]
    for time, name in enumerate(files):
        (tmp_path / f"{name}.heap.pb").write_bytes(b"x")
        os.utime(tmp_path / f"{name}.heap.pb", (time, time))
    profile_run._forget_old(tmp_path, AfterOneRound())
    assert sorted(p.name[: -len(".heap.pb")] for p in tmp_path.iterdir()) == ["it.3.11-0010", "it.3.12-0001", "it.3.13"]


def test_profiles_meanwhile_are_kept_with_every(masu, ends, tmp_path):
    result = masu("run", "--profile", "heap", *EXACT, "--every", "1", "-o", "it", "--", ends, "exit", "later", cwd=tmp_path)
    assert result.returncode == 3
    (first,) = tmp_path.glob("program.*-0001.heap.pb.gz")
    assert inside(folded(masu, "--view", "in-use", first), "leaks") == 1000
    assert inside(folded(masu, first, tmp_path / "it"), "leaks") == 0
    assert not list(tmp_path.glob("*.profile"))


HANDLES = (
    "import signal, sys\n"
    "signal.signal(signal.{0}, lambda *_: sys.exit(5))\n"
    "x = [bytes(3000) for _ in range(1000)]\n"
    "print('ready', flush=True)\n"
    "while True: signal.pause()\n"
)


@pytest.mark.parametrize(("name", "whole_group"), [("SIGINT", True), ("SIGTERM", False), ("SIGUSR1", False)])
def test_signals_are_the_programs(tmp_path, name, whole_group):
    command = [MASU, "run", "--profile", "heap", *EXACT, "-o", "it", "--", sys.executable, "-c", HANDLES.format(name)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True, preexec_fn=as_in_a_terminal) as run:  # fmt: skip
        try:
            assert run.stdout.readline() == "ready\n"
            (os.killpg if whole_group else os.kill)(run.pid, getattr(signal, name))
            _, told = run.communicate(timeout=30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 5, told
    assert (tmp_path / "it").exists()
    assert "Traceback" not in told


def test_a_program_for_which_preloading_fails(masu, compile_program, tmp_path):
    program = compile_program("int main(void) { return 4; }", "-static")
    result = profiled(masu, tmp_path, program)
    assert result.returncode == 4
    assert "statically linked" in result.stderr and result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_a_program_that_cannot_be_executed(masu, script, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    one_error(profiled(masu, folder, "no-such-command"), "command not found", status=127)
    one_error(profiled(masu, folder, script("#!/no/such/interpreter\n")), "No such file", status=126)
    assert os.listdir(folder) == []


def test_a_script_without_interpreter(masu, script, tmp_path):
    result = profiled(masu, tmp_path, script("echo hello\nexit 6\n"))
    assert (result.returncode, result.stdout) == (6, "hello\n")


def test_a_folder_that_cannot_be_written_to(masu, planted, tmp_path):
    one_error(profiled_at(masu, tmp_path / "no" / "it", planted), str(tmp_path / "no"))


def test_a_link_stays_a_link(masu, planted, tmp_path):
    for name in ("it", "page"):
        (tmp_path / f"to-{name}").symlink_to(name)
    assert profiled_at(masu, tmp_path / "to-it", planted).returncode == 3
    assert masu("profile", "--html", "-o", tmp_path / "to-page", tmp_path / "it").returncode == 0
    assert profiled_at(masu, tmp_path / "to-it", planted).returncode == 3  # it is there already
    for name in ("it", "page"):
        assert (tmp_path / f"to-{name}").is_symlink() and (tmp_path / name).stat().st_size > 100


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
@pytest.mark.parametrize("how", [["--profile", "heap"], ["--leaks"]])
def test_a_device_stays_a_device(masu, planted, tmp_path, how):
    device = tmp_path / "devices" / "null"
    device.parent.mkdir()
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"x")
    except PermissionError:
        pytest.skip("no devices here")
    result = masu("run", *how, "-o", device, "--", planted, cwd=tmp_path)
    assert result.returncode == 3 and "warning" not in result.stderr
    assert device.is_char_device() and os.listdir(device.parent) == ["null"]


def profiled_at(masu, output, *words, **options):
    return masu("run", "--profile", "heap", *EXACT, "-o", output, "--", *words, **options)


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_for_the_program(masu, planted, tmp_path):
    with small_disk(tmp_path / "disk", "4k") as disk:
        (disk / "filler").write_bytes(bytes(4096))
        result = profiled_at(masu, disk / "it", planted)
        assert result.returncode == 3
        assert "No space left on device" in result.stderr  # as the library says
        assert "wrote no profile" in result.stderr
        assert os.listdir(disk) == ["filler"]


def test_a_full_disk_for_the_result_keeps_what_was_written(masu, ends, tmp_path):
    # Room for the file of the library, and not for the compressed one beside it.
    with small_disk(tmp_path / "disk", "48k") as disk:
        filler = disk / "filler"
        fill = f"{ends} return; s=$?; head -c 100000 /dev/zero >{filler} 2>/dev/null; exit $s"
        result = profiled_at(masu, disk / "it", "sh", "-c", fill)
        assert result.returncode == 3
        assert "No space left on device" in result.stderr
        (folder,) = disk.glob("*.profile")
        assert str(folder) in result.stderr
        raw = next(p for p in folder.iterdir() if p.name.startswith("program."))
        assert inside(folded(masu, raw), "leaks") == 1000


# ---- Bad input -------------------------------------------------------------------


def test_options_without_a_profile(masu):
    one_usage_error(masu("run", "--every", "1", "--", "true"), "--profile heap")
    one_usage_error(masu("run", "--profile", "heap", "--interval", "1", "--", "true"), "from 2 on")
    one_usage_error(masu("run", "--profile", "heap", "--interval", "much", "--", "true"), "64K")


@pytest.mark.parametrize("how", ["empty", "text", "cut", "cut gzip", "noise", "cpu", "folder", "missing"])
def test_a_file_that_is_no_profile(masu, profiles, tmp_path, how):
    path, whole = tmp_path / "it", profiles[4].read_bytes()
    plain = gzip.decompress(whole)
    contents = {
        "empty": b"", "text": b"nothing of the kind\n", "cut": plain[: len(plain) // 2], "cut gzip": whole[: len(whole) // 2],
        "noise": bytes(range(256)) * 9, "cpu": plain.replace(b"_space", b"_spice").replace(b"_objects", b"_obzects"),
    }  # fmt: skip
    if how == "folder":
        path.mkdir()
    elif how != "missing":
        path.write_bytes(contents[how])
    one_error(masu("profile", path), str(path))
    one_error(masu("profile", profiles[4], path), str(path))
    assert not list(tmp_path.glob("*.html"))


# ---- Other tools -----------------------------------------------------------------


def test_go_opens_it(profiles, masu, planted, tmp_path):
    if not shutil.which("go"):
        pytest.skip("no go")
    raw = raw_profile(masu, planted, tmp_path)
    for kind, function in (("inuse_space", "leaks"), ("peak_space", "peaks"), ("alloc_space", "churns")):
        for file in (profiles[4], raw):
            top = subprocess.run(["go", "tool", "pprof", "-top", f"-sample_index={kind}", file],
                                 cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()  # fmt: skip
            rows = top[next(i for i, line in enumerate(top) if "flat%" in line) + 1 :]
            # Without binutils go has no names for what the library wrote.
            assert function in rows[0] or (file is raw and "[program]" in rows[0]), rows[0]


FLAMEGRAPH = Path("/usr/share/perl5/Devel/NYTProf/flamegraph.pl")
"""As Debian's libdevel-nytprof-perl brings it."""


def test_flamegraph_draws_the_folded_stacks(masu, profiles, tmp_path):
    if not FLAMEGRAPH.exists():
        pytest.skip("no flamegraph.pl")
    masu("profile", "--folded", "-o", tmp_path / "it", "--view", "in-use", profiles[4])
    drawn = subprocess.run(["perl", FLAMEGRAPH, tmp_path / "it"], capture_output=True, text=True, check=True).stdout
    assert "<title>leaks (4,096 samples" in drawn


@pytest.mark.parametrize("form", ["pprof", "folded"])
def test_speedscope_opens_it(browser, masu, profiles, tmp_path, form):
    command = shutil.which("speedscope")
    if not command:
        pytest.skip("no speedscope")
    from selenium.webdriver.support.ui import WebDriverWait

    page = Path(command).resolve().parent.parent / "dist" / "release" / "index.html"
    if form == "folded":
        masu("profile", "--folded", "-o", tmp_path / "it", "--view", "in-use", profiles[4])
    else:
        shutil.copy(profiles[4], tmp_path / "it")
    data = json.dumps(base64.b64encode((tmp_path / "it").read_bytes()).decode())
    (tmp_path / "it.js").write_text(f'speedscope.loadFileFromBase64("it", {data})')
    browser.get_log("browser")
    browser.get(f"{page.as_uri()}#localProfilePath={tmp_path / 'it.js'}")
    WebDriverWait(browser, 30).until(lambda b: b.title.startswith("it"))
    log = [entry for entry in browser.get_log("browser")]
    assert not [entry for entry in log if entry["level"] == "SEVERE"]
    if form == "pprof":
        assert any("Importing as protobuf encoded pprof file" in entry["message"] for entry in log)


# ---- The page --------------------------------------------------------------------


@pytest.fixture(scope="session")
def pages(profiles):
    """Of one profile, and of the growth between two."""
    folder = profiles[4].parent
    for name, files in {"one": [profiles[4]], "growth": [profiles[4], profiles[12]]}.items():
        subprocess.run([MASU, "profile", "--html", "-o", folder / f"{name}.html", *files], check=True, capture_output=True)
    return {name: folder / f"{name}.html" for name in ("one", "growth")}


@pytest.fixture
def opened(browser, pages):
    def open_(name, width=1400):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        )
        browser.get(pages[name].as_uri())
        return browser

    return open_


WIDTHS = """
const whole = document.getElementById("graph").clientWidth;
return Object.fromEntries([...document.querySelectorAll("#graph [data-node]")]
  .map(e => [e.getAttribute("aria-label").split(":")[0], e.getBoundingClientRect().width / whole]));
"""


def widths(browser):
    """Of the frames, as parts of the whole."""
    return browser.execute_script(WIDTHS)


def choose(browser, view):
    browser.find_element("css selector", f"input[value='{view}']").click()


def frame(browser, name):
    return browser.find_element("css selector", f"#graph [aria-label^='{name}:']")


def pressed(browser, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()
    return browser.switch_to.active_element


def test_the_page_needs_no_network(browser, opened, pages):
    browser.get_log("performance")
    opened("one")
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [pages["one"].as_uri()]
    assert [entry for entry in browser.get_log("browser") if pages["one"].name in entry["message"]] == []


def test_a_frame_is_as_wide_as_its_bytes(opened):
    page = opened("one")
    drawn = widths(page)
    assert drawn["all"] == pytest.approx(1, abs=0.01)
    # 4 MiB of leaks, 400 KiB of works, and little else.
    assert drawn["leaks"] / drawn["works"] == pytest.approx(4096 / 400, rel=0.05)
    assert "peaks" not in drawn and "churns" not in drawn
    choose(page, "peak")
    assert widths(page)["peaks"] > 0.95
    choose(page, "allocated")
    drawn = widths(page)
    assert drawn["churns"] / drawn["peaks"] == pytest.approx(50000 * 2 / 32768, rel=0.05)


def test_growth_is_a_view_of_the_page_of_two(opened):
    page = opened("growth")
    assert page.find_element("css selector", "input[value='growth']").is_selected()
    assert "+8.0 MiB" in frame(page, "leaks").get_attribute("aria-label")
    assert widths(page)["leaks"] > 0.95
    assert not opened("one").find_elements("css selector", "input[value='growth']")


def test_a_frame_can_be_zoomed_into_and_left(opened):
    page = opened("one")
    before = widths(page)["works"]
    frame(page, "works").click()
    assert widths(page)["works"] == pytest.approx(1, abs=0.01) and before < 0.2
    assert "leaks" not in widths(page)
    page.find_element("id", "reset").click()
    assert widths(page)["works"] == pytest.approx(before)


def test_what_is_searched_is_marked_and_summed_up(opened):
    page = opened("one")
    page.find_element("id", "search").send_keys("LEAK")
    marked = [e.get_attribute("aria-label").split(":")[0] for e in page.find_elements("css selector", "#graph .hit")]
    assert marked == ["leaks"]
    assert "4.0 MiB" in page.find_element("id", "found").text
    assert [row.text.split()[-1] for row in page.find_elements("css selector", "#functions tbody tr")] == ["leaks"]


def test_keys_do_it_all(opened):
    from selenium.webdriver.common.keys import Keys

    page = opened("one")
    page.execute_script("document.querySelector('#graph [tabindex=\"0\"]').focus()")
    names = [page.switch_to.active_element.text]
    while names[-1] not in ("leaks", ""):
        names.append(pressed(page, Keys.ARROW_DOWN).text)
    assert names[0] == "all" and names[-2:] == ["main", "leaks"]
    assert "4.0 MiB" in page.find_element("id", "detail").text
    pressed(page, Keys.ENTER)
    assert widths(page)["leaks"] == pytest.approx(1, abs=0.01) and "works" not in widths(page)
    for _ in names[1:]:
        pressed(page, Keys.ESCAPE)
    assert "works" in widths(page)
    assert pressed(page, "/").get_attribute("id") == "search"


def test_the_table_can_be_sorted(opened):
    page = opened("one")
    choose(page, "allocated")

    def first():
        return page.find_element("css selector", "#functions tbody tr").text.split()[-1]

    assert first() == "churns"
    page.find_element("css selector", "[data-sort=cum]").click()
    assert first() in ("main", "_start", "__libc_start_main", "__libc_start_call_main")


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", ["one", "growth"])
def test_it_can_be_read_without_scrolling_sideways(opened, name, width):
    assert opened(name, width).execute_script("return document.documentElement.scrollWidth") <= width


COLOURS = """
const all = {};
for (const element of [document.body, ...document.querySelectorAll("#graph div"), document.querySelector(".facts")]) {
  let behind = element;
  while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentNode;
  all[getComputedStyle(element).color + " on " + getComputedStyle(behind).backgroundColor] = 1;
}
return Object.keys(all);
"""


def contrast(pair):
    """As WCAG 2 has it."""

    def luminance(colour):
        parts = [float(n) / 255 for n in re.findall(r"[\d.]+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear))

    light, dark = sorted(map(luminance, pair.split(" on ")), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_the_light_and_in_the_dark(opened, scheme):
    page = opened("one")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    page.find_element("id", "search").send_keys("leaks")
    pairs = page.execute_script(COLOURS)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(pairs) > 3
    assert min(map(contrast, pairs)) >= 4.5, pairs
