"""masu record, with real programs: what is recorded, and what can't be."""

import errno
import os
import signal
import struct
import subprocess
import sys
import time

import pytest
from conftest import MASU
from recording import frames, one_line, recorded, summary

from masu import replay
from masu import trace as traces

pytestmark = pytest.mark.usefixtures("python_uses_malloc")

PYTHON = os.path.realpath(sys.executable)
MAPS = 3  # a kind of frame


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
    assert "from 3 processes" in " ".join(result.stderr.split()) and "not all is recorded" not in result.stderr
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


def test_a_child_that_no_preload_reaches_is_named_while_it_runs_and_once(compile_program, tmp_path):
    """It gives up after a minute: nothing else would end it."""
    child = compile_program(
        "#include <unistd.h>\nint main(int count, char **words) {\n"
        "for (int i = 0; i < 60000 && access(words[count - 1], F_OK); i++) usleep(1000); return 0; }\n",
        "-static",
    )
    command = f"{child} {tmp_path}/go & {child} {tmp_path}/go; wait"
    process = subprocess.Popen([MASU, "record", "-o", tmp_path / "t", "--", "sh", "-c", command], stderr=subprocess.PIPE, text=True)
    said = process.stderr.readline()
    (tmp_path / "go").touch()
    _, errors = process.communicate(timeout=30)
    assert said == f"masu: warning: not all is recorded: {child} is statically linked\n"
    assert process.returncode == 0 and "warning" not in errors, errors


def test_so_is_a_setuid_program(masu, of_another_user, tmp_path):
    one_line(masu("record", "-o", tmp_path / "t", "--", of_another_user), "is setuid")
