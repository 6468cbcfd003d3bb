"""masu record and masu replay, with real programs."""

import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from conftest import MASU, as_in_a_terminal
from rich.console import Console

from masu import replay
from masu import trace as traces
from masu.measuring.measure import SYSTEM, Allocator
from masu.messages import Problem

PYTHON = os.path.realpath(sys.executable)
HEADER, FRAME = 16, 24
MAPS = 3  # a kind of frame

CALLS = r"""
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
enum { N = 1000 };
static void *block[N];
static void *give(void *unused) {
  for (int i = 0; i < N; i++) free(block[i]);
  return unused;
}
int main(void) {
  void *volatile p;
  for (int i = 0; i < N; i++) block[i] = malloc(i + 1);
  pthread_t thread;
  if (pthread_create(&thread, NULL, give, NULL)) return 1;
  pthread_join(thread, NULL);
  for (int i = 0; i < N; i++) { p = calloc(3, i + 1); free(p); }
  for (int i = 0; i < N; i++) { p = realloc(NULL, 10); p = realloc(p, 5000); free(p); }
  for (int i = 0; i < N; i++) { p = memalign(256, 100); free(p); }
  _exit(7);
}
"""


@pytest.fixture(autouse=True)
def python_uses_malloc(monkeypatch):
    """Else it has a pool of its own for what is small."""
    monkeypatch.setenv("PYTHONMALLOC", "malloc")


@pytest.fixture(scope="session")
def calls(compile_program):
    return compile_program(CALLS, "-fno-builtin", "-pthread")


def summary(masu, trace, *arguments):
    """What a replay says that the trace holds."""
    file = trace.parent / "replay.json"
    result = masu("replay", "-n", "1", "--settle", "0", "--json", file, *arguments, trace)
    assert result.returncode == 0, result.stderr
    return json.loads(file.read_text())["summary"]


def recorded(masu, tmp_path, *command, **options):
    trace = tmp_path / "it.trace"
    result = masu("record", "-o", trace, "--", *command, **options)
    assert not Path(f"{trace}.spool").exists()
    return trace, result


# ---- What is recorded ----


def test_every_call_and_the_exit_status(masu, calls, tmp_path):
    trace, result = recorded(masu, tmp_path, calls)
    assert result.returncode == 7  # by _exit
    s = summary(masu, trace)
    kinds = s["by_kind"]
    assert 1000 <= kinds["malloc"] <= 1010
    assert 1000 <= kinds["calloc"] <= 1010
    assert 2000 <= kinds["realloc"] <= 2010
    assert kinds["aligned_alloc"] == 1000
    assert 4000 <= kinds["free"] <= 4010
    assert s["handed_over"] == 1000
    assert s["threads"] == 2
    assert not s["unknown_frees"] and not s["vanished"] and not s["dropped"] and not s["bad_blocks"]
    assert s["ended"] == 1


def test_a_program_without_reading_the_manual(masu, tmp_path):
    result = masu("record", "--", PYTHON, "-c", "x = [str(i) for i in range(100000)]", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    trace = tmp_path / f"{os.path.basename(PYTHON)}.trace"
    assert f"try: masu replay {trace.name}" in " ".join(result.stderr.split())
    result = masu("replay", "-n", "2", "--settle", "0.1", trace.name, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for word in ("malloc", "peak memory", "99.999 %", "0.1 s later", "The replay itself takes", "In the replay: "):
        assert word in result.stdout


def test_the_predicted_peak_holds_what_is_not_from_malloc(masu, compile_program, tmp_path):
    program = compile_program(
        r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
  char *map = mmap(NULL, 40 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), line[200];
  memset(map, 1, 40 << 20);
  for (int i = 0; i < 200000; i++) memset(malloc(96), 1, 96);
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status)) if (!strncmp(line, "VmHWM", 5)) fputs(line, stdout);
}
""",
        "-fno-builtin",
    )
    real = int(subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()[1])
    trace, result = recorded(masu, tmp_path, program)
    file = tmp_path / "it.json"
    result = masu("replay", "-n", "2", "--settle", "0", "--json", file, trace)
    assert "Predicted peak memory of the program" in " ".join(result.stdout.split())
    assert json.loads(file.read_text())["predicted_peak_kib"]["system"] == pytest.approx(real, rel=0.1)


def test_what_the_replay_does_itself_is_not_predicted(masu, compile_program, tmp_path):
    """The program does nothing but call; the replay writes its blocks besides."""
    program = compile_program("#include <stdlib.h>\nint main(void) { for (int i = 0; i < 30000; i++) free(malloc(100000)); }", "-fno-builtin")
    trace, _ = recorded(masu, tmp_path, program)
    file = tmp_path / "it.json"
    result = masu("replay", "-n", "3", "--settle", "0", "--touch", "full", "--json", file, trace)
    assert result.returncode == 0, result.stderr
    said = json.loads(file.read_text())
    wall = next(r for r in said["rows"] if (r["allocator"], r["figure"]) == ("masu", "time"))
    assert said["predicted_s"]["masu"] == pytest.approx(wall["median"] - said["own_s"])


@pytest.mark.parametrize("writes, touches", [("memset(p, 1, 1 << 20)", "full"), ("*p = 1", "first")])
def test_the_replay_touches_what_the_program_can_have_touched(masu, compile_program, tmp_path, writes, touches):
    program = compile_program(
        r"""
#include <stdlib.h>
#include <string.h>
#include <time.h>
static long long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }
int main(void) {
  for (int i = 0; i < 1000; i++) {
    volatile char *p = malloc(1 << 20);
    WRITES;
    free((void *)p);
  }
  if (MORE) for (long long end = now() + 500000000; now() < end;); /* the replay has time for as much */
  return malloc(1) == NULL;
}
""",
        "-fno-builtin", "-Wno-discarded-qualifiers", f"-DWRITES={writes.replace('(p', '((void *)p')}", f"-DMORE={int(touches == 'full')}",
    )  # fmt: skip
    trace, result = recorded(masu, tmp_path, program)
    file = tmp_path / "it.json"
    result = masu("replay", "-n", "1", "--settle", "0", "--json", file, trace)
    assert result.returncode == 0, result.stderr
    touch = json.loads(file.read_text())["touch"]
    assert touch == touches
    assert {"full": "all of it is", "first": "a byte of each page is"}[touch] + " written" in " ".join(result.stdout.split())
    result = masu("replay", "-n", "1", "--settle", "0", "--touch", "full", "--json", file, trace)
    assert json.loads(file.read_text())["touch"] == "full"


def test_output_and_input_are_the_programs(masu, tmp_path):
    trace, result = recorded(masu, tmp_path, "cat", input="through\n")
    assert result.stdout == "through\n"


def test_so_are_descriptors(masu, tmp_path):
    with (tmp_path / "it").open("w") as file:
        recorded(masu, tmp_path, PYTHON, "-c", f"import os; os.write({file.fileno()}, b'through')", pass_fds=[file.fileno()])
    assert (tmp_path / "it").read_text() == "through"


def test_children_by_fork_and_by_exec_are_processes_of_the_trace(masu, tmp_path):
    program = (
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'y = [str(i) for i in range(50000)]'])\n"
        "pid = os.fork()\n"
        "z = [str(i) for i in range(20000)]\n"
        "os.waitpid(pid, 0) if pid else os._exit(0)\n"
    )
    trace, result = recorded(masu, tmp_path, PYTHON, "-c", program)
    assert result.returncode == 0
    assert "from 3 processes" in " ".join(result.stderr.split())
    missing = masu("replay", "--process", "1", trace)
    assert missing.returncode == 125
    known = [int(word.split()[0]) for word in missing.stderr.split("there are")[1].split(",")]
    assert len(known) == 3
    for process in known:
        assert summary(masu, trace, "--process", str(process))["calls"] > 1000


def test_every_form_of_the_family(masu, compile_program, tmp_path):
    program = compile_program(
        r"""
#include <malloc.h>
#include <stdlib.h>
void *_Znwm(size_t), *_Znam(size_t), *_ZnwmSt11align_val_t(size_t, size_t);
void _ZdlPv(void *), _ZdaPv(void *), _ZdlPvm(void *, size_t), _ZdlPvSt11align_val_t(void *, size_t),
  _ZdlPvmSt11align_val_t(void *, size_t, size_t);
int main(void) {
  for (int i = 0; i < 1000; i++) {
    _ZdlPv(_Znwm(10));
    _ZdaPv(_Znam(20));
    _ZdlPvm(_Znwm(30), 30);
    _ZdlPvSt11align_val_t(_ZnwmSt11align_val_t(40, 64), 64);
    _ZdlPvmSt11align_val_t(_ZnwmSt11align_val_t(50, 64), 50, 64);
    free(valloc(60));
    free(reallocarray(malloc(1), 7, 10));
  }
  return 0;
}
""",
        "-fno-builtin", "-lstdc++",
    )  # fmt: skip
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 0, result.stderr
    s = summary(masu, trace)
    made = {"new": 3000, "new_aligned": 2000, "delete": 4000, "delete_sized": 1000, "aligned_alloc": 1000, "realloc": 1000}
    assert {kind: s["by_kind"][kind] for kind in made} == made
    assert not s["unknown_frees"] and not s["vanished"]


def test_short_threads_and_signal_handlers(masu, compile_program, tmp_path):
    program = compile_program(
        r"""
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
static volatile int seen;
static void handler(int number) { (void)number; void *volatile p = malloc(77); free(p); seen++; }
static void *body(void *unused) { for (int i = 0; i < 50; i++) { void *volatile p = malloc(33); free(p); } return unused; }
int main(void) {
  signal(SIGALRM, handler);
  struct itimerval t = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &t, NULL);
  for (int i = 0; i < 500 || seen < 20; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL)) return 1;
    pthread_join(thread, NULL);
  }
  return 0;
}
""",
        "-fno-builtin", "-pthread",
    )  # fmt: skip
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 0, result.stderr
    s = summary(masu, trace)
    assert s["threads"] >= 501
    assert s["by_kind"]["malloc"] >= 25000 + 20
    assert s["by_kind"]["waits"] >= 499  # each was joined before the next was created
    assert not s["vanished"] and not s["bad_blocks"] and not s["dropped"]


def test_stacks(masu, calls, tmp_path):
    trace = tmp_path / "it.trace"
    result = masu("record", "--stacks", "-o", trace, "--", calls)
    assert result.returncode == 7, result.stderr
    assert summary(masu, trace)["by_kind"]["aligned_alloc"] == 1000


def test_stacks_of_a_program_that_goes_on_without_its_initial_thread(masu, compile_program, tmp_path):
    program = compile_program(
        r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *goes_on(void *initial) {
  pthread_join((pthread_t)initial, NULL);
  for (int c = 0; c != EOF;) { /* it has its memory a moment longer */
    FILE *maps = fopen("/proc/self/maps", "r");
    c = maps ? getc(maps) : EOF;
    if (maps) fclose(maps);
  }
  exit(0);
}
int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, goes_on, (void *)pthread_self())) return 1;
  pthread_exit(NULL);
}
""",
        "-pthread",
    )
    trace = tmp_path / "it.trace"
    assert masu("record", "--stacks", "-o", trace, "--", program).returncode == 0
    data = trace.read_bytes()
    assert MAPS in [data[at + 4] for at in frames(data)]


# ---- Ends of all kinds ----


@pytest.mark.parametrize("ending", ["os.abort()", "os.kill(os.getpid(), 9)"])
def test_what_a_program_did_before_it_died_is_there(masu, tmp_path, ending):
    program = f"import os; x = [str(i) for i in range(100000)]; {ending}"
    trace, result = recorded(masu, tmp_path, PYTHON, "-c", program)
    assert result.returncode in (128 + signal.SIGABRT, 128 + signal.SIGKILL)
    s = summary(masu, trace)
    assert s["calls"] > 10000
    assert not s["ended"]


def test_ctrl_c_ends_the_program_and_the_trace_is_whole(tmp_path):
    trace = tmp_path / "it.trace"
    program = "import time; x = [str(i) for i in range(100000)]; print('ready', flush=True)\nwhile True: time.sleep(0.1)"
    process = subprocess.Popen(
        [MASU, "record", "-o", trace, "--", PYTHON, "-c", program],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=as_in_a_terminal,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (1, 130)  # python's own way with Ctrl-C
    assert "it.trace" in errors.replace("\n", "")
    assert not Path(f"{trace}.spool").exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_signals_are_the_programs(tmp_path, name):
    program = (
        "import signal, sys\n"
        f"signal.signal(signal.{name}, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    process = subprocess.Popen([MASU, "record", "-o", tmp_path / "it.trace", "--", PYTHON, "-c", program],
                               stdout=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=as_in_a_terminal)  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 5
    assert (tmp_path / "it.trace").exists() and not (tmp_path / "it.trace.spool").exists()


def test_when_both_are_killed_the_spool_files_are_replayed(masu, tmp_path):
    trace = tmp_path / "it.trace"
    program = "import time; x = [str(i) for i in range(100000)]; print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [MASU, "record", "-o", trace, "--", PYTHON, "-c", program],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 60
    while trace.stat().st_size <= traces.HEADER.size and time.monotonic() < deadline:
        time.sleep(0.01)  # until masu record has taken up something
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    assert Path(f"{trace}.spool").is_dir()
    for given in (trace, f"{trace}.spool"):
        result = masu("replay", "-n", "1", "--settle", "0", given)
        assert result.returncode == 0, result.stderr
        assert "masu record did not end" in " ".join(result.stderr.split())
    s = summary(masu, trace)
    assert s["calls"] > 200000
    assert s["unknown_frees"] < 100 and s["vanished"] == 0
    for file in Path(f"{trace}.spool").iterdir():  # as where all processes had been taken up whole
        file.unlink()
    assert "masu record did not end" in traces.read(trace).damage
    again = masu("record", "-o", trace, "--", "true")
    assert again.returncode == 125
    assert "is there already" in " ".join(again.stderr.split())


def test_a_full_disk_ends_the_recording_and_not_the_program(masu, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no right to mount")
    try:
        program = "x = [str(i) for i in range(3000000)]; print(len(x))"
        result = masu("record", "-o", disk / "it.trace", "--", PYTHON, "-c", program)
        assert result.stdout == "3000000\n"
        assert "No space left on device" in " ".join(result.stderr.split())
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_program_without_a_file_descriptor_left_is_told_that_its_recording_ends(masu, compile_program, tmp_path):
    program = compile_program(
        "#include <fcntl.h>\n#include <stdlib.h>\n#include <sys/resource.h>\nint main(void) {\n"
        "struct rlimit few = {20, 20}; setrlimit(RLIMIT_NOFILE, &few); while (open(\"/dev/null\", O_RDONLY) >= 0) ;\n"
        "for (int i = 0; i < 50000; i++) { void *volatile p = malloc(100); free(p); } return 3; }\n",
        "-fno-builtin",
    )
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 3
    assert result.stderr.count("ends here: Too many open files") == 1
    result = masu("replay", "-n", "1", "--settle", "0", trace)
    assert "recording ended before the program: Too many open files" in " ".join(result.stderr.split())


def test_processes_that_have_ended_are_taken_up_meanwhile(masu, tmp_path):
    """Else a build of thousands would have them looked at, all of them, again and again."""
    program = "for i in $(seq 100); do /bin/true; done; sleep 0.5; ls $MASU_RECORD/*.spool | wc -l"
    trace, result = recorded(masu, tmp_path, "sh", "-c", program)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 20
    found = traces.read(trace)
    assert not found.damage and len(found.processes) == found.summary["processes"] >= 101
    assert sum(p.name == "true" and p.head.ended and p.size > 0 for p in found.processes) == 100


def test_a_process_of_a_namespace_is_recorded_to_its_end(masu, compile_program, tmp_path):
    """Outside it has another number; by the one that it knows nothing may run there."""
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no right to make a namespace")
    program = compile_program(
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) {\n"
        "for (int i = 0; i < 2000; i++) { void *volatile p = malloc(77); free(p); if (i % 400 == 0) usleep(100000); } return 0; }\n",
        "-fno-builtin",
    )
    unused = next(n for n in range(30_000, 300, -10) if not any(Path(f"/proc/{n + k}").exists() for k in range(10)))
    start = f"echo {unused} >/proc/sys/kernel/ns_last_pid; {program} & wait"
    trace, result = recorded(masu, tmp_path, "unshare", "--pid", "--fork", "sh", "-c", start)
    assert result.returncode == 0, result.stderr
    found = traces.read(trace)
    ours = next(p for p in found.processes if p.name == program.name)
    assert unused < ours.head.process < unused + 10
    assert replay.plan(found, ours, tmp_path).summary["by_kind"]["malloc"] >= 2000


def test_what_a_program_leaves_behind_is_recorded_to_its_end(masu, compile_program, tmp_path):
    program = compile_program(
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) { if (fork()) _exit(0); setsid(); usleep(300000);\n"
        "for (int i = 0; i < 5000; i++) { void *volatile p = malloc(100); free(p); } return 0; }\n",
        "-fno-builtin",
    )
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 0
    assert summary(masu, trace)["by_kind"]["malloc"] >= 5000


def test_a_program_sees_what_it_left_end(masu, tmp_path):
    """It gives up after a while: nothing else would end it."""
    daemon = f"(true & echo $! >{tmp_path}/pid); i=0; while kill -0 $(cat {tmp_path}/pid) 2>/dev/null; do"
    trace, result = recorded(masu, tmp_path, "sh", "-c", f"{daemon} i=$((i + 1)); [ $i -lt 200 ] || exit 9; sleep 0.05; done; exit 3")
    assert result.returncode == 3


def test_a_program_that_cannot_be_executed_leaves_nothing(masu, script, tmp_path):
    program = script("#!/no/such/interpreter\n")
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 126
    assert "No such file" in result.stderr and result.stderr.count("\n") == 1
    assert not trace.exists()
    trace.write_bytes(b"of another run")
    recorded(masu, tmp_path, program)
    assert trace.read_bytes() == b"of another run"


def test_a_script_without_interpreter_is_the_shells(masu, script, tmp_path):
    trace, result = recorded(masu, tmp_path, script("echo $1\nexit 4\n"), "through")
    assert (result.returncode, result.stdout) == (4, "through\n")
    assert trace.exists()


def test_realloc_of_one_thread_freed_by_another(masu, compile_program, tmp_path):
    program = compile_program(
        r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
enum { N = 20000 };
static void *_Atomic shared;
static void *give(void *unused) {
  for (int i = 0; i < N; i++) {
    void *p;
    while (!(p = atomic_exchange(&shared, NULL))) ;
    free(p);
  }
  return unused;
}
int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, give, NULL)) return 1;
  for (int i = 0; i < N; i++) {
    void *p = realloc(malloc(100000), 200000 + i);
    while (shared) ;
    shared = p;
  }
  return pthread_join(thread, NULL);
}
""",
        "-fno-builtin", "-pthread",
    )  # fmt: skip
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 0
    s = summary(masu, trace)
    assert s["unknown_frees"] == 0 and s["vanished"] == 0
    assert s["handed_over"] >= 20000


# ---- Traces that are not whole ----


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A trace of some 100 KiB."""
    folder = tmp_path_factory.mktemp("trace")
    trace = folder / "it.trace"
    program = "x = [str(i) * (i % 50) for i in range(100000)]"
    subprocess.run(
        [MASU, "record", "-o", trace, "--", PYTHON, "-c", program],
        check=True, capture_output=True, env={**os.environ, "PYTHONMALLOC": "malloc"},
    )  # fmt: skip
    return trace


def frames(data):
    """Offsets of a trace's frames."""
    at = HEADER
    while at + FRAME <= len(data):
        yield at
        at += FRAME + struct.unpack_from("<I", data, at + 16)[0]


def one_line(result, *words):
    assert result.returncode == 125
    text = " ".join(result.stderr.split())
    assert result.stderr.count("masu: error") == 1
    assert all(word in text for word in words), text


@pytest.mark.parametrize("part", [0.3, 0.9])
def test_a_cut_trace(masu, whole, tmp_path, part):
    data = whole.read_bytes()
    trace = tmp_path / "cut.trace"
    trace.write_bytes(data[: int(len(data) * part)])
    result = masu("replay", "-n", "1", "--settle", "0", trace)
    assert result.returncode == 0, result.stderr
    assert "cut at byte" in " ".join(result.stderr.split())


def test_a_damaged_trace(masu, whole, tmp_path):
    data = bytearray(whole.read_bytes())
    middle = list(frames(data))[2]
    data[middle + FRAME + 5] ^= 0xFF
    trace = tmp_path / "damaged.trace"
    trace.write_bytes(data)
    result = masu("replay", "-n", "1", "--settle", "0", trace)
    assert result.returncode == 0, result.stderr
    assert "damaged at byte" in " ".join(result.stderr.split())


def test_blocks_stay_where_what_is_known_of_their_process_is_damaged(whole, tmp_path):
    data = bytearray(whole.read_bytes())
    data[next(frames(data)) + FRAME + 5] ^= 0xFF  # at the end it stands once more
    file = tmp_path / "damaged.trace"
    file.write_bytes(data)
    before, after = traces.read(whole).main(), traces.read(file)
    assert f"damaged at byte {HEADER}" in after.damage
    assert after.main().size == before.size and after.main().head == before.head


def content(trace):
    return [(p.head, p.maps, b"".join(trace.blocks(p))) for p in trace.processes], trace.summary


@pytest.fixture(scope="session")
def short(compile_program, tmp_path_factory):
    """A trace of some KiB with a frame of each kind."""
    trace = tmp_path_factory.mktemp("trace") / "short.trace"
    program = compile_program(CALLS, "-fno-builtin", "-pthread")
    subprocess.run([MASU, "record", "--stacks", "-o", trace, "--", program], check=False, capture_output=True)
    data = trace.read_bytes()
    assert {data[at + 4] for at in frames(data)} == {traces.PROCESS, traces.BLOCKS, traces.MAPS, traces.END}
    return trace


def test_a_damaged_head_of_a_frame_is_said(short, tmp_path):
    """The CRC doesn't cover it: each bit of each is changed in turn."""
    data, before = bytearray(short.read_bytes()), content(traces.read(short))
    file = tmp_path / "damaged.trace"
    for at in frames(data):
        for bit in range(8 * FRAME):
            data[at + bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            data[at + bit // 8] ^= 1 << bit % 8
            try:
                after = traces.read(file)
            except Problem:
                continue
            assert after.damage or content(after) == before, (at, bit)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_file_holds_reading_it_ends_or_says_why(short, tmp_path, seed):
    draw, whole_one, file = random.Random(seed), short.read_bytes(), tmp_path / "fuzzed.trace"
    starts = list(frames(whole_one))
    for _ in range(250):
        data = bytearray(whole_one)
        for _ in range(draw.randint(1, 6)):
            at = draw.choice((draw.randrange(len(data)), draw.choice(starts) + draw.randrange(FRAME)))
            data[at] = draw.randrange(256)
        for at in frames(bytes(data)) if draw.random() < 0.5 else ():  # as one that means it would
            stored = struct.unpack_from("<I", data, at + 16)[0]
            if at + FRAME <= len(data):
                struct.pack_into("<I", data, at + 20, zlib.crc32(data[at + FRAME : at + FRAME + stored]))
        file.write_bytes(data[: draw.randrange(len(data))] if draw.random() < 0.2 else data)
        try:
            trace = traces.read(file)
            for process in trace.processes:
                trace.extract(process, tmp_path / "blocks")
        except Problem:
            pass


def test_files_that_are_no_traces(masu, whole, tmp_path):
    trace = tmp_path / "no.trace"
    one_line(masu("replay", trace), "No such file")
    trace.write_bytes(b"")
    one_line(masu("replay", trace), "not a trace")
    trace.write_bytes(b"\x7fELF" * 100)
    one_line(masu("replay", trace), "not a trace")
    data = bytearray(whole.read_bytes())
    data[8] = 99
    trace.write_bytes(data)
    one_line(masu("replay", trace), "format 99")
    trace.write_bytes(whole.read_bytes()[:HEADER])
    one_line(masu("replay", trace), "nothing was recorded")
    one_line(masu("replay", tmp_path), "without a recording")


# ---- Programs that can't be recorded ----


def test_programs_that_cannot_be_recorded(masu, compile_program, tmp_path):
    result = masu("record", "-o", tmp_path / "t", "--", "no-such-program")
    assert result.returncode == 127
    static = compile_program("int main(void) { return 0; }", "-static")
    one_line(masu("record", "-o", tmp_path / "t", "--", static), "statically linked")
    one_line(masu("record", "-o", "/nowhere/t", "--", "true"), "No such file")
    cleared = masu("record", "-o", tmp_path / "t", "--", "env", "-i", "/bin/true")
    assert cleared.returncode == 0  # env itself was recorded


def test_a_program_that_no_preload_reaches_is_told_apart(masu, own_malloc, tmp_path):
    one_line(masu("record", "-o", tmp_path / "t", "--", own_malloc), "has its own malloc", "nothing would be recorded")
    assert not (tmp_path / "t").exists()


def test_so_is_a_setuid_program(masu, of_another_user, tmp_path):
    one_line(masu("record", "-o", tmp_path / "t", "--", of_another_user), "is setuid")


def test_the_replay_itself_allocates_nothing_and_thinks_as_long_as_the_program(masu, compile_program, tmp_path):
    program = compile_program(
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) {\n"
        "for (int i = 0; i < 20000; i++) { void *volatile p = malloc(1000); if (i == 10000) usleep(400000); } return 0; }\n",
        "-fno-builtin",
    )
    trace, _ = recorded(masu, tmp_path, program)
    found = traces.read(trace)
    made = replay.plan(found, found.main(), tmp_path)
    null, thought = (replay._once(made, [*replay._words(made, "none", think), "null"], SYSTEM).own for think in (False, True))
    assert null["peak_rss_kib"] < 200  # of 20 MB that the program has
    assert null["wall_s"] < 0.2 and 0.38 < thought["wall_s"] < 1


CLOCK = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
int main(void) {
  char text[99];
  void *volatile p = malloc(10);
  usleep(500000);
  long long before = now();
  free(p);
  long long after = now();
  _exit(write(1, text, snprintf(text, sizeof text, "%lld %lld", before, after)) < 0);
}
"""


def test_times_are_those_of_the_systems_clock(masu, compile_program, tmp_path):
    """Between the start that is told and the first record the file is made, which may take some milliseconds."""
    result = masu("record", "-o", tmp_path / "t", "--", compile_program(CLOCK, "-fno-builtin"))
    before, after = map(int, result.stdout.split())
    start = traces.read(tmp_path / "t").main().head.start_ns
    last = start + summary(masu, tmp_path / "t")["duration_ns"]
    assert before - 1e7 < last < after + 1e7


def test_a_folder_with_another_masu_in_it_is_no_hindrance(masu, whole, tmp_path):
    (tmp_path / "masu.py").write_text("raise SystemExit('another one')\n")
    result = masu("replay", "-n", "1", "--settle", "0", whole, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Predicted time of the program" in result.stdout


def test_without_a_prediction_the_replay_is_what_it_is(monkeypatch, whole, tmp_path):
    def recorded(*_):
        raise Problem("the disk is full")

    monkeypatch.setattr(replay, "_recorded", recorded)
    found = traces.read(whole)
    made = replay.plan(found, found.main(), tmp_path)
    said = replay.replay(made, [SYSTEM], Console(quiet=True), rounds=1, settle_s=0)
    assert said.touch == "first" and said.comparison.rounds == 1 and said.single
    (line,) = replay.prediction(said)
    assert line.endswith("the disk is full")


def test_a_replay_may_take_as_long_as_its_program_and_what_it_settles(monkeypatch):
    given = []

    def measure(command, allocator=None, *, timeout, **_):
        given.append(timeout)
        raise Problem("enough")

    monkeypatch.setattr(replay, "measure", measure)
    long = replay.Plan(Path("plan"), {"duration_ns": 10_000 * 10**9})
    for call in (lambda: replay._once(long, ["play"], None, settle_s=5000), lambda: replay._recorded(long, ["play"], 1)):
        with pytest.raises(Problem, match="enough"):
            call()
    assert given[0] > 15_000 and given[1] > 10_000


def test_an_allocator_that_fails_is_told_apart(masu, whole, tmp_path):
    library = tmp_path / "bad.so"
    source = tmp_path / "bad.c"
    # A malloc that gives the same block to everybody.
    source.write_text(
        "#include <stddef.h>\n#include <string.h>\nstatic char block[1 << 22];\n"
        "void *malloc(size_t n) { (void)n; return block; }\nvoid free(void *p) { (void)p; }\n"
        "void *calloc(size_t n, size_t m) { return memset(block, 0, n * m); }\n"
        "void *realloc(void *p, size_t n) { (void)p; (void)n; return block; }\n"
        "void *aligned_alloc(size_t a, size_t n) { (void)a; (void)n; return block; }\n"
    )
    subprocess.run([shutil.which("cc"), "-shared", "-fPIC", "-fno-builtin", "-o", library, source], check=True)
    result = masu("replay", "-n", "1", "--settle", "0", "--with", f"bad={library}", whole)
    assert result.returncode == 0, result.stderr
    assert "bad" in result.stderr
    assert "masu" in result.stdout


COUNTED = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void __libc_free(void *), *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
void free(void *p) { __libc_free(p); }
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t a, size_t b) { return __libc_calloc(a, b); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { return (*p = __libc_memalign(a, n)) ? 0 : ENOMEM; }
size_t malloc_usable_size(void *p) { return (((size_t *)p)[-1] & ~7ul) - 8; }
__attribute__((constructor)) static void count(void) {
  int file = strcmp(program_invocation_short_name, "trace_play") ? -1 : open(getenv("COUNT"), O_WRONLY | O_APPEND);
  if (file >= 0 && write(file, "x", 1) == 1) close(file);
}
"""


def test_ctrl_c_while_replaying_keeps_what_was_measured(compile_program, whole, tmp_path):
    """One of the allocators counts its runs: a warm-up, a round, and one more."""
    library, count = compile_program(COUNTED, "-shared", "-fPIC", "-fno-builtin"), tmp_path / "count"
    count.touch()
    process = subprocess.Popen(
        [MASU, "replay", "-n", "1000", "--touch", "none", "--json", tmp_path / "it.json", "--with", f"counted={library}", whole],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal,
        env={**os.environ, "COUNT": str(count)},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while count.stat().st_size < 3 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert "peak memory" in output
    assert "interrupted after" in errors
    assert "every call timed" not in output and "Predicted" not in output  # none of that was begun
    assert json.loads((tmp_path / "it.json").read_text())["rounds"] >= 1


def test_ctrl_c_in_the_single_calls_ends_it_there(monkeypatch, whole, tmp_path):
    once, calls = replay._once, []

    def interrupted(made, command, allocator, settle_s=0.0):
        if "latency" in command:
            calls.append(allocator.name)
            raise KeyboardInterrupt
        return once(made, command, allocator, settle_s)

    monkeypatch.setattr(replay, "_once", interrupted)
    monkeypatch.setattr(replay, "_predicted", pytest.fail)
    found = traces.read(whole)
    made = replay.plan(found, found.main(), tmp_path)
    said = replay.replay(made, [SYSTEM, Allocator("other")], Console(quiet=True), rounds=1, touch="none", settle_s=0)
    assert calls == ["system"] and not said.single
    assert said.comparison.interrupted and said.comparison.rounds == 1
