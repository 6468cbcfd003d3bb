"""masu record, with real programs: what is recorded, however they end."""

import contextlib
import errno
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import MASU, as_in_a_terminal

from masu import record as recording
from masu import replay, report
from masu import trace as traces
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


def summary(trace, number=None):
    """What a replay says that the trace holds, of one of its processes."""
    found = traces.read(trace)
    return replay.plan(found, found.process(number), trace.parent).summary


def recorded(masu, tmp_path, *command, **options):
    trace = tmp_path / "it.trace"
    result = masu("record", "-o", trace, "--", *command, **options)
    assert not Path(f"{trace}.spool").exists()
    return trace, result


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


# ---- What is recorded ----


def test_every_call_and_the_exit_status(masu, calls, tmp_path):
    trace, result = recorded(masu, tmp_path, calls)
    assert result.returncode == 7  # by _exit
    s = summary(trace)
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


def test_the_trace_of_before_is_kept_under_a_number(masu, script, tmp_path):
    texts = []
    for exists in ({"true.trace"}, {"true.trace", "true.1.trace"}, {"true.trace", "true.1.trace", "true.2.trace"}):
        result = masu("record", "--", "true", cwd=tmp_path, check=True)
        texts.append(" ".join(result.stderr.split()))
        assert {path.name for path in tmp_path.iterdir()} == exists
    starts = [traces.read(tmp_path / name).main().head.start_ns for name in ("true.1.trace", "true.2.trace", "true.trace")]
    assert starts == sorted(starts)
    assert "of before" not in texts[0] and "true.trace of before is now true.2.trace" in texts[2]
    masu("record", "-o", "true.trace", "--", "true", cwd=tmp_path, check=True)  # as it was asked for
    masu("record", "--", script("#!/no/such/interpreter\n", "true"), cwd=tmp_path)
    assert len(list(tmp_path.glob("*.trace"))) == 3


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
        assert summary(trace, process)["calls"] > 1000


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
    s = summary(trace)
    made = {"new": 3000, "new_aligned": 2000, "delete": 4000, "delete_sized": 1000, "aligned_alloc": 1000, "realloc": 1000}
    assert {kind: s["by_kind"][kind] for kind in made} == made
    assert not s["unknown_frees"] and not s["vanished"]


def test_what_fails_is_recorded_and_alignments_are_those_given(masu, compile_program, tmp_path):
    program = compile_program(
        r"""
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
int main(void) {
  char *p = malloc(1);
  for (int i = 0; i < 100; i++) {
    errno = 0;
    if (reallocarray(p, SIZE_MAX / 2, 3) || errno != ENOMEM) return 1;
    free(memalign(48, 100));
  }
  free(p);
  return 0;
}
""",
        "-fno-builtin", "-Wno-alloc-size-larger-than",
    )  # fmt: skip
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 0, result.stderr
    found = traces.read(trace)
    plan = replay.plan(found, found.main(), tmp_path)
    assert plan.summary["failed"] == 100 and not plan.summary["unknown_frees"]
    data = plan.path.read_bytes()
    chunks = [data[at : at + 16384] for at in range(16384, len(data) - 16383, 16384)]  # replay/plan.h
    ops = [struct.unpack_from("<BB", c, 16 + 16 * i) for c in chunks for i in range(struct.unpack_from("<I", c, 4)[0])]
    assert [log2 for kind, log2 in ops if kind == 3] == [6] * 100


def test_a_call_takes_less_than_ten_bytes_where_all_is_random(masu, compile_program, tmp_path):
    program = compile_program(
        r"""
#include <stdint.h>
#include <stdlib.h>
static void *place[14000];
static uint64_t state = 88172645463325252;
static uint64_t some(void) { state ^= state << 13; state ^= state >> 7; return state ^= state << 17; }
int main(void) {
  for (int i = 0; i < 1000000; i++) {
    void **p = &place[some() % 14000];
    if (!*p) *p = malloc(1 + some() % 10000);
    else if (some() % 2) *p = realloc(*p, 1 + some() % 10000);
    else { free(*p); *p = NULL; }
  }
  return 0;
}
""",
        "-fno-builtin",
    )  # fmt: skip
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 0, result.stderr
    calls = summary(trace)["calls"]
    assert calls >= 1_000_000
    assert trace.stat().st_size < 10 * calls


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
    s = summary(trace)
    assert s["threads"] >= 501
    assert s["by_kind"]["malloc"] >= 25000 + 20
    assert s["by_kind"]["waits"] >= 499  # each was joined before the next was created
    assert not s["vanished"] and not s["bad_blocks"] and not s["dropped"]


def test_threads_of_c11(masu, compile_program, tmp_path):
    """They are threads of the trace, each created by the call; what one frees that another took is handed over."""
    program = compile_program(
        r"""
#include <stdlib.h>
#include <threads.h>
enum { THREADS = 5, N = 1000 };
static void *block[THREADS + 1][N];
static tss_t last;
static int body(void *argument) {
  void **mine = argument, **next = mine + N;
  for (int i = 0; i < N; i++) { free(mine[i]); next[i] = malloc(100 + i); }
  tss_set(last, malloc(55));
  if (mine == block[2]) thrd_exit(7);
  return 5;
}
int main(void) {
  int said, sum = 0;
  thrd_t thread;
  if (tss_create(&last, free)) return 1;
  for (int i = 0; i < N; i++) block[0][i] = malloc(i + 1);
  for (int t = 0; t < THREADS; t++) {
    if (thrd_create(&thread, body, block[t]) != thrd_success) return 1;
    if (thrd_join(thread, &said) != thrd_success) return 1;
    sum += said;
  }
  for (int i = 0; i < N; i++) free(block[THREADS][i]);
  return sum;
}
""",
        "-std=gnu11", "-fno-builtin", "-pthread",
    )  # fmt: skip
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 4 * 5 + 7, result.stderr
    s = summary(trace)
    assert s["threads"] == 6
    assert s["by_kind"]["creates"] == 5
    assert s["by_kind"]["malloc"] >= 6000 + 5 and s["by_kind"]["free"] >= 6000 + 5
    assert s["handed_over"] == 6000
    assert s["by_kind"]["waits"] == 6000 + 4  # for each block, and with each thread but the first for the end of the one before
    assert not s["vanished"] and not s["bad_blocks"] and not s["dropped"] and not s["unknown_frees"]
    result = masu("replay", "-n", "1", "--settle", "0", trace)
    assert result.returncode == 0, result.stderr
    assert "of 6 threads" in result.stderr and "6,000 blocks handed from thread to thread" in result.stderr


def test_stacks(masu, calls, tmp_path):
    trace = tmp_path / "it.trace"
    result = masu("record", "--stacks", "-o", trace, "--", calls)
    assert result.returncode == 7, result.stderr
    assert summary(trace)["by_kind"]["aligned_alloc"] == 1000


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


FOUR_THREADS = r"""
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
enum { THREADS = 4, N = 50000, LARGER = 7000 };
static pthread_barrier_t all;
static void *body(void *number) {
  for (size_t i = 0; i < N; i++) {
    void *volatile p = malloc(LARGER + (size_t)number);
    if (i % 2) free(p);
  }
  pthread_barrier_wait(&all);
  pause();
  return NULL;
}
int main(void) {
  pthread_t thread;
  pthread_barrier_init(&all, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; i++)
    if (pthread_create(&thread, NULL, body, (void *)i)) return 9;
  pthread_barrier_wait(&all);
  ENDING;
  return 9;
}
"""


@pytest.mark.parametrize(("ending", "status"), [("_exit(3)", 3), ("abort()", 128 + signal.SIGABRT), ("raise(SIGSEGV)", 128 + signal.SIGSEGV),
                                                ("kill(getpid(), SIGKILL)", 128 + signal.SIGKILL)])  # fmt: skip
def test_every_call_of_a_program_that_died_is_there(masu, compile_program, tmp_path, ending, status):
    program = compile_program(FOUR_THREADS, "-fno-builtin", "-pthread", f"-DENDING={ending}")
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == status
    found = traces.read(trace)
    s = summary(trace)
    assert s["by_kind"]["free"] == 4 * 25_000
    assert not s["unknown_frees"] and not s["vanished"] and not s["bad_blocks"]
    assert s["ended"] == ending.startswith("_exit")
    taken = {size: n for size, n, *_ in report.analyse(found, found.main(), tmp_path).data["sizes"]}
    assert [taken[7000 + thread] for thread in range(4)] == [50_000] * 4


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


def test_ctrl_c_before_the_program_leaves_no_folder(monkeypatch, tmp_path):
    """When the folder is made, it is the program's already."""
    handlers = []

    def mkdir(*_, **__):
        handlers.append(signal.getsignal(signal.SIGINT))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(recording, "_adopt", lambda: None)
    with pytest.raises(Problem, match="No space left"):
        recording.record("/bin/true", ["true"], tmp_path / "it.trace", tmp_path, environment={})
    assert handlers == [signal.SIG_IGN]


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
    s = summary(trace)
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
        (line,) = [line for line in result.stderr.splitlines() if "masu:" in line and "try: masu replay" not in line]
        assert "No space left on device" in line
        found = traces.read(disk / "it.trace")
        s = replay.plan(found, found.main(), tmp_path).summary
        assert s["calls"] > 10_000 and not s["unknown_frees"] and not s["vanished"] and not s["bad_blocks"]
        result = masu("replay", "-n", "1", "--settle", "0", disk / "it.trace")
        assert result.returncode == 0, result.stderr
        assert "recording ended before the program: No space left" in " ".join(result.stderr.split())
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
    assert summary(trace)["by_kind"]["malloc"] >= 5000


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
    s = summary(trace)
    assert s["unknown_frees"] == 0 and s["vanished"] == 0
    assert s["handed_over"] >= 20000


ROUND_TRIP = r"""
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
enum { PLACES = 512, N = 1000000, AHEAD = 100 };
typedef struct { _Alignas(64) void *_Atomic p; } place;
static place there[PLACES], back[PLACES];
static void *take(place *at) {
  void *p;
  for (int n = 0; !(p = atomic_load_explicit(&at->p, memory_order_acquire)); n++)
    if (n > 1000) sched_yield();
  atomic_store_explicit(&at->p, NULL, memory_order_release);
  return p;
}
static void put(place *at, void *p) {
  for (int n = 0; atomic_load_explicit(&at->p, memory_order_acquire); n++)
    if (n > 1000) sched_yield();
  atomic_store_explicit(&at->p, p, memory_order_release);
}
static void *other(void *unused) {
  for (int i = 0; i < N; i++) {
    void *p = take(&there[i % PLACES]);
    if (!RETURNED(i)) free(p);
    else put(&back[i % PLACES], realloc(p, 48)); /* it stays where it is */
  }
  return unused;
}
int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, other, NULL)) return 1;
  for (int i = 0; i < N + AHEAD; i++) {
    if (i < N) put(&there[i % PLACES], malloc(40));
    if (i >= AHEAD && RETURNED(i - AHEAD)) free(take(&back[(i - AHEAD) % PLACES]));
  }
  return pthread_join(thread, NULL);
}
"""


@pytest.mark.parametrize("returned", ["0", "1", "((i) % 2)"])
def test_small_blocks_that_go_to_another_thread_and_return_are_in_order(masu, compile_program, tmp_path, returned):
    """By the release of a block of another's heap, by what comes back of those, and by that of an own one which the other
    has resized."""
    program = compile_program(ROUND_TRIP, "-fno-builtin", "-pthread", f"-DRETURNED(i)={returned}")
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 0
    s = summary(trace)
    assert s["unknown_frees"] == 0 and s["vanished"] == 0
    assert s["handed_over"] >= 1_000_000


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
    last = start + summary(tmp_path / "t")["duration_ns"]
    assert before - 1e7 < last < after + 1e7


# ---- Programs that can't be recorded ----


def test_programs_that_cannot_be_recorded(masu, compile_program, tmp_path):
    result = masu("record", "-o", tmp_path / "t", "--", "no-such-program")
    assert result.returncode == 127
    assert result.stderr.count("\n") == 1 and "no-such-program: command not found" in result.stderr
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
