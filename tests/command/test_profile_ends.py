"""masu run --profile heap: however a program ends, what was written is kept and said."""

import contextlib
import os
import signal
import stat
import subprocess
import sys

import pytest
from conftest import MASU, as_in_a_terminal
from profiling import APART, EXACT, folded, full_disk, inside, one_error, profiled, profiled_at, small_disk

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


@pytest.mark.parametrize("form", ["--html", "--folded"])
def test_a_full_disk_for_a_page_keeps_the_old_one(masu, profiles, tmp_path, form):
    with full_disk(tmp_path / "disk") as disk:
        one_error(masu("profile", form, "-o", disk / "it", profiles[4]), f"{disk / 'it'}: No space left on device")
