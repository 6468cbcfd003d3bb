"""masu run --profile heap and masu profile: what is planted in programs is found, and named."""

import gzip
import os
import re
import shutil
import subprocess
import sys

import pytest
from masu import pprof, profile
from conftest import tool
from profiling import APART, EXACT, JIT, PLANTED, first_row, folded, inside, one_error, one_usage_error, profiled, raw_profile

# ---- What is planted is found ------------------------------------------------------


def test_what_stays_is_found(masu, profiles):
    stacks = folded(masu, "--view", "in-use", profiles[4])
    assert inside(stacks, "leaks") == 4096
    assert inside(stacks, "works") == 400
    assert inside(stacks, "peaks") == inside(stacks, "churns") == 0
    assert [frames[-1] for frames in stacks if "main" in frames] == ["leaks"]
    assert re.match(r"4\.0 MiB .* 4,096 +4,096 +leaks", first_row(masu("profile", "--view", "in-use", profiles[4])))


def test_so_is_the_peak(masu, profiles):
    assert inside(folded(masu, "--view", "peak", profiles[4]), "peaks") == 32 * 1024
    assert "peaks" in first_row(masu("profile", "--view", "peak", profiles[4]))


def test_how_exact_it_is(masu, planted, tmp_path):
    """12 MiB in blocks of 1 KiB are some 192 samples, with which one knows to a seventh or so what is in use."""
    result = masu("run", "--profile", "heap", "--interval", "64K", "-o", "it", "--", planted, "12", cwd=tmp_path)
    assert re.search(r"in use \([\d.]+ MiB to [\d.]+ MiB\), ", result.stderr)
    shown = masu("profile", "--view", "in-use", tmp_path / "it", check=True)
    low, high = map(float, re.search(r"in use \(([\d.]+) MiB to ([\d.]+) MiB\)", shown.stdout).groups())
    assert 2 < high - low < 6 and low < 16 and high > 9
    blocks, samples = re.search(r" ([\d,]+) +([\d,]+) +leaks$", first_row(shown)).groups()
    assert 100 < int(samples) < 300 and int(blocks.replace(",", "")) == pytest.approx(64 * int(samples), rel=0.02)
    told = re.search(r"(\d+) +leaks < main", result.stderr)
    assert told[1] == samples


def test_samples_that_were_lost_are_said(masu, profiles, tmp_path):
    found = pprof.read(profiles[1])
    (at,) = [c for c in found.comment if found.string_table[c].endswith(b"lost 0 samples")]
    found.string_table[at] = b"in use 1000000 to 3000000 bytes, lost 1234 samples"
    pprof.write(tmp_path / "it", found)
    shown = masu("profile", tmp_path / "it", check=True).stdout
    assert "1,234 samples had no room" in shown and "in use (976.6 KiB to 2.9 MiB)" in shown
    assert "samples had" not in masu("profile", profiles[1], check=True).stdout


def test_what_the_profiler_took_is_said_if_it_is_much(masu, profiles, tmp_path):
    found = pprof.read(profiles[1])
    (at,) = [i for i, text in enumerate(found.string_table) if text.startswith(b"the profiler took ")]
    assert at in found.comment
    assert profile.heap(found).took == int(found.string_table[at].split()[3]) * 1e-9 > 0
    for part, is_much in ((0.01, False), (0.1, True)):
        found.string_table[at] = b"the profiler took %d ns" % (part * found.duration_nanos)
        pprof.write(tmp_path / "it", found)
        shown = masu("profile", tmp_path / "it", check=True).stdout
        assert ("of the time the profiler itself took" in shown) == is_much and "ns" not in shown


def test_without_a_view_it_is_the_peak_if_little_stays(masu, profiles):
    assert "in use:" in masu("profile", profiles[4]).stdout
    assert "in use at the peak:" in masu("profile", profiles[1]).stdout


def test_so_is_what_allocates_most(masu, profiles):
    result = masu("profile", "--view", "allocated", profiles[4])
    assert re.match(r"97\.7 MiB .* 50,000 +50,000 +churns", first_row(result))
    result = masu("profile", "--view", "allocated", "--cumulative", "-n", "3", profiles[4])
    assert "churns" not in first_row(result)
    assert "more" in result.stdout.splitlines()[-1]


def test_lifetimes_are_of_what_was_freed(masu, profiles):
    result = masu("profile", "--view", "lifetime", profiles[4])
    assert re.match(r" *50,000 .* 50,000 +churns", first_row(result))
    assert "leaks" not in result.stdout
    one_usage_error(masu("profile", "--view", "lifetime", "--folded", profiles[4]), "lifetime")


# A call site for each of 256 ways through eight calls.
MANY_SITES = r"""
#include <stdlib.h>
#define APART __attribute__((noinline)) void
static void *kept[256];
static int count;
static APART one(unsigned way, int calls);
static APART other(unsigned way, int calls);
static APART next(unsigned way, int calls) {
  if (!calls) kept[count++] = malloc(1024);
  else if (way & 1) one(way >> 1, calls - 1);
  else other(way >> 1, calls - 1);
  __asm__ volatile("");
}
static APART one(unsigned way, int calls) { next(way, calls); __asm__ volatile("# one"); }
static APART other(unsigned way, int calls) { next(way, calls); __asm__ volatile("# other"); }
int main(void) {
  for (unsigned way = 0; way < 256; way++) next(way, 8);
  return 0;
}
"""


def test_each_call_site_is_there_once(masu, compile_program, tmp_path):
    """They are copied some at a time."""
    profiled(masu, tmp_path, compile_program(MANY_SITES, *APART))
    stacks = {frames: kib for frames, kib in folded(masu, tmp_path / "it").items() if "next" in frames}
    ways = {tuple(name for name in frames if name in ("one", "other")) for frames in stacks}
    assert len(stacks) == len(ways) == 256
    assert set(stacks.values()) == {1}


def test_each_of_many_addresses_is_told_apart(masu, compile_program, tmp_path):
    """More than the table that numbers them has room for at first."""
    count = 5000
    functions = "".join(f"S void f{n}(void) {{ kept[{n}] = malloc(1024); }}\n" for n in range(count))
    calls = "".join(f"f{n}();" for n in range(count))
    text = f"#include <stdlib.h>\n#define S static __attribute__((noinline))\nstatic void *volatile kept[{count}];\n"
    program = compile_program(f"{text}{functions}int main(void) {{ {calls} return 0; }}\n", *APART)
    profiled(masu, tmp_path, program)
    stacks = folded(masu, tmp_path / "it")
    found = [frames[-1] for frames in stacks if "main" in frames]
    assert sorted(found) == sorted(f"f{n}" for n in range(count))
    addresses = [location.address for location in pprof.read(tmp_path / "it").location]
    assert len(addresses) > count and len(addresses) == len(set(addresses))


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
    assert re.search(r"400\.0 KiB +\d+\.\d % +100 +100 +thread worker", result.stdout)
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
    assert re.search(r"4\.0 MiB +\d+\.\d % +4,096 +leaks < main", result.stderr)
    assert sorted(os.listdir(tmp_path)) == ["it"]


def test_an_interval_of_usual_size_estimates(masu, planted, tmp_path):
    masu("run", "--profile", "heap", "--interval", "64K", "-o", "it", "--", planted, "40", cwd=tmp_path)
    stacks = folded(masu, "--view", "in-use", tmp_path / "it")
    # 640 samples: six of their standard deviations.
    assert inside(stacks, "leaks") == pytest.approx(40 * 1024, rel=6 / 640**0.5)


# ---- Names -----------------------------------------------------------------------


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
    subprocess.run([tool("g++"), "-O1", "it.cc", "-o", "program"], cwd=tmp_path, check=True)
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


def test_code_that_was_made_at_run_time(masu, compile_program, tmp_path):
    """It has no name, and no tables by which its caller could be found."""
    profiled(masu, tmp_path, compile_program(JIT, *APART), "1000", check=True)
    stacks = {frames: kib for frames, kib in folded(masu, "--view", "in-use", tmp_path / "it").items() if "main" in frames}
    assert list(stacks.values()) == [1000]
    (frames,) = stacks
    assert frames[-3:-1] == ("main", "runs_code") and frames[-1].startswith("0x")


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


def test_where_only_another_process_has_samples_its_sites_are_shown(masu, planted, tmp_path):
    result = masu("run", "--profile", "heap", "--", "sh", "-c", f"{planted} 40; exit 2", cwd=tmp_path)
    assert result.returncode == 2
    assert re.search(r"of program\.\d+\.heap\.pb\.gz:", result.stderr)
    assert "leaks < main" in result.stderr


def test_so_are_they_where_the_program_allocates_less(masu, planted, tmp_path):
    command = ["run", "--profile", "heap", *EXACT, "--", "sh", "-c", f"{planted} 4; exit 2"]
    result = masu(*command, cwd=tmp_path)
    assert "sh." in result.stderr and re.search(r"of program\.\d+\.heap\.pb\.gz:", result.stderr)
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
    raw = raw_profile(masu, planted, tmp_path)
    for kind, function in (("inuse_space", "leaks"), ("peak_space", "peaks"), ("alloc_space", "churns")):
        for file in (profiles[4], raw):
            top = subprocess.run([tool("go"), "tool", "pprof", "-top", f"-sample_index={kind}", file],
                                 cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()  # fmt: skip
            rows = top[next(i for i, line in enumerate(top) if "flat%" in line) + 1 :]
            # Without binutils go has no names for what the library wrote.
            assert function in rows[0] or (file is raw and "[program]" in rows[0]), rows[0]

