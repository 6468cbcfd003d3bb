"""masu profile --live: profiles of processes while they run, on request."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from conftest import MASU
from profiling import APART, EXACT, first_row, full_disk, inside, one_error, one_usage_error

from masu import live, profile, profile_live

HEAP = ("--live", "--profile", "heap", *EXACT)

# Takes its orders from lines on stdin.
WAITS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline)) void
static void *kept[1 << 16];
static int count;
static void *used(void *p) { __asm__ volatile("" : "+r"(p) : : "memory"); return p; }
APART starts(void) { for (int i = 0; i < 1000; i++) kept[count++] = used(malloc(1024)); }
APART leaks(void) { for (int i = 0; i < 1000; i++) kept[count++] = used(malloc(2048)); }
int main(void) {
  char line[64];
  starts();
  for (puts("ready"); fflush(stdout), fgets(line, sizeof line, stdin); puts("done"))
    if (!strcmp(line, "leak\n")) leaks();
  return 0;
}
"""


class Running:
    def __init__(self, process, pid):
        self.process, self.pid = process, pid

    def tell(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture(scope="module")
def program(compile_program):
    return compile_program(WAITS, *APART)


@pytest.fixture
def start(program, tmp_path):
    """start(options...) gives a running program that has allocated what it starts with. It ends with the test."""
    running = []

    def start_(*options):
        process = subprocess.Popen([MASU, "run", *options, "--", program], cwd=tmp_path, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        running.append(process)
        assert process.stdout.readline() == "ready\n"
        # With a profile masu run stays and waits for it.
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return Running(process, int(children[0]) if "--profile" in options else process.pid)

    yield start_
    for process in running:
        process.stdin.close()
        process.wait(timeout=60)
        process.stdout.close()
    live.sweep()


def folded(masu, *words):
    lines = masu("profile", "--folded", *words, check=True).stdout.splitlines()
    return {tuple(line.rsplit(" ", 1)[0].split(";")): int(line.rsplit(" ", 1)[1]) for line in lines}


def test_the_profile_is_of_now(masu, start):
    running = start(*HEAP)
    pid = str(running.pid)
    assert inside(folded(masu, "--live", pid), "starts") == 1000
    assert inside(folded(masu, "--live", pid), "leaks") == 0
    running.tell("leak")
    stacks = folded(masu, "--live", pid)
    assert (inside(stacks, "starts"), inside(stacks, "leaks")) == (1000, 2000)
    result = masu("profile", "--live", pid)
    assert result.returncode == 0 and result.stderr == ""
    assert result.stdout.startswith(f"program.{pid}\n")
    assert "leaks" in first_row(result)


def test_it_can_be_kept_and_compared_with(masu, start, tmp_path):
    running = start(*HEAP)
    kept, pid = tmp_path / "kept.gz", str(running.pid)
    assert "starts" in first_row(masu("profile", "--live", pid, "-o", kept))
    assert inside(folded(masu, kept), "starts") == 1000
    running.tell("leak")
    growth = folded(masu, "--live", pid, kept)
    assert (inside(growth, "starts"), inside(growth, "leaks")) == (0, 2000)
    assert re.match(r"\+2\.0 MiB .* leaks", first_row(masu("profile", "--live", pid, kept)))


def test_a_full_disk_keeps_what_was_kept(masu, start, tmp_path):
    running = start(*HEAP)
    with full_disk(tmp_path / "disk") as disk:
        one_error(masu("profile", "--live", str(running.pid), "-o", disk / "it"), f"{disk / 'it'}: No space left on device")


def test_as_a_page(masu, start, tmp_path):
    running = start(*HEAP)
    result = masu("profile", "--live", str(running.pid), "--html", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "starts" in (tmp_path / f"program.{running.pid}.html").read_text()


def test_nothing_stays_behind(masu, start, tmp_path):
    running, folder = start(*HEAP), tmp_path / "tmp"
    folder.mkdir()
    masu("profile", "--live", str(running.pid), env={"TMPDIR": str(folder)}, check=True)
    assert os.listdir(folder) == []


def test_two_at_once(masu, start):
    running = start(*HEAP)
    results = []

    def look():
        for _ in range(5):
            results.append(masu("profile", "--folded", "--live", str(running.pid)))

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for one in lookers:
        one.start()
    for one in lookers:
        one.join()
    assert [(r.returncode, r.stderr) for r in results] == [(0, "")] * 15
    assert all("starts 1000" in r.stdout for r in results)


def test_sampling_begins_and_ends_on_request(masu, start):
    running = start("--live")
    pid = str(running.pid)
    one_error(masu("profile", "--live", pid), "takes no samples", "masu run --live --profile heap", "--start")
    result = masu("profile", "--live", pid, "--start", "2")
    assert result.returncode == 0
    assert result.stderr == f"masu: program, process {pid}: a sample every 2 B from now on\n"
    running.tell("leak")
    # What was ready in the thread's hand when sampling began is not seen.
    seen = inside(folded(masu, "--live", pid, "--view", "in-use"), "leaks")
    assert 1900 <= seen <= 2000
    assert "no more samples" in masu("profile", "--live", pid, "--stop").stderr
    running.tell("leak")
    stacks = folded(masu, "--live", pid, "--view", "in-use")
    assert inside(stacks, "leaks") <= seen + 2, "but for what had been due"
    assert inside(stacks, "starts") == 0
    assert "512.0 KiB" in masu("profile", "--live", pid, "--start").stderr


def test_who_looks_for_leaks_goes_on_recording_all(masu, start):
    pid = str(start("--live", "--options", "leaks").pid)
    for word in ("--start", "--stop"):
        one_error(masu("profile", "--live", pid, word), "looks for leaks")


# ---- Where it is written ---------------------------------------------------------


def asked(pid, path):
    with live.Page(pid) as page:
        return page.request(live.PROFILE, str(path))


def why_refused(pid, path):
    with pytest.raises(live.Refused) as refused:
        asked(pid, path)
    return os.strerror(refused.value.why)


def test_the_file_is_new_and_the_users_alone(start, tmp_path):
    running = start(*HEAP)
    size = asked(running.pid, tmp_path / "it")
    assert (tmp_path / "it").stat().st_size == size > 0
    assert (tmp_path / "it").stat().st_mode & 0o7777 == 0o600
    found, others = profile.load(tmp_path / "it")
    assert not others
    assert profile.heap(found).total("inuse_space") >= 1000 * 1024


def test_it_takes_the_place_of_none(start, tmp_path):
    running = start(*HEAP)
    (tmp_path / "there").write_text("untouched")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    assert why_refused(running.pid, tmp_path / "there") == "File exists"
    assert why_refused(running.pid, tmp_path / "link") == "File exists"
    assert why_refused(running.pid, "relative") == "Invalid argument"
    assert why_refused(running.pid, "") == "Invalid argument"
    assert why_refused(running.pid, tmp_path / "no" / "folder") == "No such file or directory"
    assert (tmp_path / "there").read_text() == "untouched"
    assert not (tmp_path / "nothing").exists()


def test_a_path_that_is_too_long(start):
    running = start("--live")
    with live.Page(running.pid) as page:
        with pytest.raises(live.NotLive, match="longer than the 255"):
            page.request(live.PROFILE, "/" + 255 * "x")
        with pytest.raises(live.Refused, match="No data available"):
            page.request(live.PROFILE, "/" + 254 * "x")


@pytest.mark.parametrize("text", ["", "x", "-1"])
def test_an_interval_that_is_none(start, text):
    with live.Page(start("--live").pid) as page:
        with pytest.raises(live.Refused, match="Invalid argument"):
            page.request(live.SAMPLE, text)


def test_a_process_that_may_not_write_there(masu, start):
    running = start(*HEAP)
    subprocess.run(["prlimit", "--fsize=10:10", "--pid", str(running.pid)], check=True)
    one_error(masu("profile", "--live", str(running.pid)), "File too large")
    running.tell("leak")  # it lives


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
def test_root_asks_a_process_of_another_user(masu, program, library):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # which the other user can reach
        os.chmod(folder, 0o755)
        for name in (program, library):
            shutil.copy(name, folder)
        other = subprocess.Popen(
            [f"{folder}/program"], user=65534, group=65534, extra_groups=[], cwd="/", text=True,
            env={"LD_PRELOAD": f"{folder}/libmasu.so", "MASU_OPTIONS": "live,profile:2"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert other.stdout.readline() == "ready\n"
            assert re.search(r"Uid:\s*65534", Path(f"/proc/{other.pid}/status").read_text())
            assert inside(folded(masu, "--live", str(other.pid)), "starts") == 1000
        finally:
            other.kill()
            other.communicate()
            live.sweep()


# ---- What goes wrong -------------------------------------------------------------


def test_why_there_is_no_profile(masu, start):
    one_error(masu("profile", "--live", "4194304"), "there is no process 4194304")
    one_error(masu("profile", "--live", str(os.getpid())), "does not run on masu")
    one_error(masu("profile", "--live", str(start().pid)), "without the option live", "masu run --live --profile heap -- PROGRAM")


def test_of_words_that_do_not_go_together(masu):
    one_usage_error(masu("profile"), "FILE")
    one_usage_error(masu("profile", "--start", "--live"), "--live")
    one_usage_error(masu("profile", "--stop", "it"), "--live PID")
    one_usage_error(masu("profile", "--live", "1", "one", "two"), "one FILE")
    one_usage_error(masu("profile", "-o", "it", "one"), "--live")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
def test_another_users_process(start):
    running = start(*HEAP)
    reader = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable, "-c"]
    code = f"from masu import live, profile_live\ntry: profile_live.take({running.pid})\nexcept live.NotLive as why: print(why)"
    result = subprocess.run([*reader, code], capture_output=True, text=True, check=False)
    if "Permission denied" in result.stderr or "No module" in result.stderr:
        pytest.skip("the other user cannot reach Python")
    assert "belongs to another user" in result.stdout, result.stderr


def test_one_that_is_stopped(start, monkeypatch):
    monkeypatch.setattr(live, "PATIENCE_S", 0.3)
    running = start(*HEAP)
    os.kill(running.pid, signal.SIGSTOP)
    try:
        with pytest.raises(live.NotLive, match="does not answer"):
            profile_live.take(running.pid)
    finally:
        os.kill(running.pid, signal.SIGCONT)


def test_one_that_is_killed_meanwhile(start, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(profile_live.tempfile, "tempdir", None)
    running = start(*HEAP)

    def killed(page, *_):
        os.kill(running.pid, signal.SIGKILL)
        page._wait(lambda: False)

    monkeypatch.setattr(live.Page, "request", killed)
    with pytest.raises(live.NotLive, match="has ended"):
        profile_live.take(running.pid)
    assert not list(tmp_path.glob("masu.*"))
