"""masu run --leaks, however programs end, fail and are made; what was not checked has not succeeded."""

import os
import re
import signal
import subprocess
import sys

import pytest
from leaking import FLAGS, library, listed, planted, run_for_leaks  # noqa: F401
from masu.pprof import read
from profiling import JIT, full_disk


# ---- How programs end, and others that they start ---------------------------------------------


def test_an_end_by__exit(masu, planted, library):
    result = run_for_leaks(masu, planted, library, "simple", env={"ENDS_BY__EXIT": "0"})
    assert result.returncode == 23
    assert listed(result.stderr) == {(True, 101, 1): 1}


@pytest.mark.parametrize(
    ("ends", "number"),
    [
        ("abort()", signal.SIGABRT),
        ("kill(getpid(), SIGKILL)", signal.SIGKILL),
        ("kill(getpid(), SIGTERM)", signal.SIGTERM),
        ("*(volatile int *)16 = 1", signal.SIGSEGV),
    ],
)
@pytest.mark.parametrize("threads", [0, 3])
def test_an_end_by_a_signal_is_no_check(masu, compile_program, tmp_path, ends, number, threads):
    source = f"""
    #include <pthread.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <sys/resource.h>
    #include <unistd.h>
    static void *allocates(void *unused) {{ for (;;) free(malloc(100)); return unused; }}
    int main(void) {{
      pthread_t t;
      setrlimit(RLIMIT_CORE, &(struct rlimit){{0, 0}});
      malloc(7);
      for (int i = 0; i < {threads}; i++) if (pthread_create(&t, NULL, allocates, NULL)) return 1;
      {ends};
      pause();
    }}
    """
    result = run_for_leaks(masu, compile_program(source, *FLAGS, "-pthread"), options=("-o", "it"), cwd=tmp_path)
    assert result.returncode == 128 + number
    assert result.stderr.count("\n") == 1
    assert f"was not checked for leaks: signal {number.name} ended it" in result.stderr
    assert list(tmp_path.iterdir()) == []


FORKS = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile keeps;
__attribute__((noinline)) void of_parent(void) { memset(malloc(100), 0, 100); }
__attribute__((noinline)) void of_child(void) { memset(malloc(200), 0, 200); }
static void scrub(void) { char bytes[1 << 14]; memset(bytes, 0, sizeof bytes); __asm__ volatile("" : : "r"(bytes) : "memory"); }
int main(int count, char **arguments) {
  of_parent();
  keeps = malloc(300);
  scrub();
  pid_t child = !strcmp(arguments[1], "vfork") ? vfork() : fork();
  if (child == 0) {
    if (!strcmp(arguments[1], "vfork")) _exit(0);
    keeps = NULL; /* still the parent's */
    of_child();
    scrub();
    if (!strcmp(arguments[1], "exec")) { execlp("true", "true", NULL); _exit(1); }
    if (!strcmp(arguments[1], "exit")) exit(0);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  exit(status);
}
"""


@pytest.fixture(scope="session")
def forks(compile_program):
    return compile_program(FORKS, *FLAGS)


@pytest.mark.parametrize("how", ["exit", "_exit", "exec", "vfork"])
def test_children_have_their_own(masu, forks, how, tmp_path):
    result = run_for_leaks(masu, forks, how, options=("-o", "it"), cwd=tmp_path)
    assert result.returncode == 23
    expected = {(True, 100, 1): 1, (True, 200, 1): 1} if "exit" in how else {(True, 100, 1): 1}
    assert listed(result.stderr) == expected, result.stderr
    assert ("of_child" in result.stderr) == ("exit" in how)
    assert len(os.listdir(tmp_path)) == (2 if "exit" in how else 1)


def test_leaks_of_a_child_are_leaks(masu, planted, library):
    result = run_for_leaks(masu, "sh", "-c", f"{planted} {library} simple; exit 0")
    assert result.returncode == 23
    assert (True, 101, 1) in listed(result.stderr)


THREADS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int never[2];
static volatile int waiting;
static void *blocked(void *deaf) {
  sigset_t all;
  char c;
  void *volatile here = memset(malloc(500), 0, 500);
  sigfillset(&all);
  if (deaf) pthread_sigmask(SIG_SETMASK, &all, NULL);
  __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
  while (read(never[0], &c, 1) < 0);
  free(here);
  return NULL;
}
static void *waits_for_signals(void *unused) {
  sigset_t all;
  int number;
  void *volatile here = memset(malloc(600), 0, 600);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
  if (sigwait(&all, &number) == 0) _exit(99); /* nobody but the checker would send one */
  free(here);
  return unused;
}
static __attribute__((noinline)) void loses(void) { memset(malloc(700), 0, 700); }
static void scrub(void) { char bytes[1 << 14]; memset(bytes, 0, sizeof bytes); __asm__ volatile("" : : "r"(bytes) : "memory"); }
static void *ends(void *initial) { pthread_join(*(pthread_t *)initial, NULL); loses(); scrub(); exit(0); }
int main(int count, char **arguments) {
  pthread_t t;
  static pthread_t self;
  int n = atoi(arguments[2]);
  if (pipe(never)) return 9;
  for (int i = 0; i < n; i++)
    if (pthread_create(&t, NULL, *arguments[1] == 's' ? waits_for_signals : blocked, *arguments[1] == 'd' ? &t : NULL)) return 9;
  while (waiting < n) usleep(1000);
  if (*arguments[1] == 'i') {
    self = pthread_self();
    if (pthread_create(&t, NULL, ends, &self)) return 9;
    pthread_exit(NULL);
  }
  exit(0);
}
"""


@pytest.fixture(scope="session")
def threads(compile_program):
    return compile_program(THREADS, *FLAGS)


@pytest.mark.parametrize("count", [1, 500])
def test_threads_blocked_in_read(masu, threads, count):
    result = run_for_leaks(masu, threads, "blocked", str(count))
    assert (result.returncode, result.stderr) == (0, "masu: no leaks\n")


@pytest.mark.parametrize("how", ["deaf", "sigwait"])
def test_threads_that_take_no_signals(masu, threads, how):
    result = run_for_leaks(masu, threads, how, "3")
    assert result.returncode == 0, result.stderr
    assert "3 threads could not be stopped" in result.stderr
    assert "masu: no leaks\n" in result.stderr


def test_an_initial_thread_that_has_ended(masu, threads):
    result = run_for_leaks(masu, threads, "initial", "2")
    assert result.returncode == 23
    assert listed(result.stderr) == {(True, 700, 1): 1}


# ---- Faults ---------------------------------------------------------------------------------

FAULTS = r"""
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static sigjmp_buf back;
static char alternate[65536];
static void *volatile kept;
static void recovers(int number) { (void)number; siglongjmp(back, 1); }
static void ends(int number) { (void)number; _exit(0); }
static __attribute__((noinline)) void loses(void) { memset(malloc(700), 0, 700); }
static void scrub(void) { char bytes[1 << 14]; memset(bytes, 0, sizeof bytes); __asm__ volatile("" : : "r"(bytes) : "memory"); }
static __attribute__((noinline)) void falls(void *here) { volatile char room[100]; room[0] = *(char *)here; falls(here); room[1] = room[0]; }
int main(int count, char **arguments) {
  void *volatile here = memset(malloc(600), 0, 600);
  kept = memset(malloc(500), 0, 500);
  loses();
  scrub();
  if (*arguments[2] != 'n') {
    stack_t s = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction a = {.sa_handler = *arguments[2] == 'r' ? recovers : ends, .sa_flags = SA_ONSTACK};
    sigaltstack(&s, NULL);
    sigaction(SIGSEGV, &a, NULL);
  }
  for (int i = 0; i < 3; i++)
    if (!sigsetjmp(back, 1)) {
      if (*arguments[1] == 'o') falls(here);
      else *(volatile int *)16 = 1;
    }
  scrub();
  exit(here == NULL);
}
"""


@pytest.mark.parametrize("fault", ["overflows", "writes where nothing is"])
@pytest.mark.parametrize("handler", ["none", "recovers", "ends"])
def test_faults(masu, compile_program, fault, handler):
    result = run_for_leaks(masu, compile_program(FAULTS, *FLAGS), fault, handler)
    if handler == "none":
        not_checked(result, 128 + signal.SIGSEGV)
    else:
        assert result.returncode == 23, result.stderr
        assert listed(result.stderr) == {(True, 700, 1): 1}


# ---- Code without names ---------------------------------------------------------------------


def test_a_stripped_program(masu, planted, library, tmp_path):
    subprocess.run(["strip", "-s", "-o", tmp_path / "bare", planted], check=True)
    result = run_for_leaks(masu, tmp_path / "bare", library, "thrice", "chain")
    assert result.returncode == 23
    assert listed(result.stderr) == {(True, 609, 3): 1, (True, 907, 1): 1, (False, 3628, 4): 1}
    assert re.search(r"Direct leak of 609 bytes in 3 blocks allocated from\n(    #\d bare\+0x[0-9a-f]+\n){3}", result.stderr)


UNLOADS = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
static __attribute__((noinline)) void scrub(void) { char bytes[1 << 16]; memset(bytes, 0, sizeof bytes); __asm__ volatile("" : : "r"(bytes) : "memory"); }
int main(int count, char **arguments) {
  void *library = dlopen(arguments[1], RTLD_NOW);
  ((void (*)(void))dlsym(library, "loses"))();
  if (count > 2 && (dlclose(library) || dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD))) return 1;
  scrub();
  exit(0);
}
"""
LOSES = """
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) void loses(void) { memset(malloc(303), 0, 303); }
"""


def test_code_that_is_gone(masu, compile_program):
    lost = {(True, 303, 1): 1}
    plugin, program = compile_program(LOSES, *FLAGS, "-shared", "-fPIC"), compile_program(UNLOADS, *FLAGS)
    there = run_for_leaks(masu, program, plugin)
    assert there.returncode == 23 and listed(there.stderr) == lost and "#0 loses  program.c:4  (program)" in there.stderr
    gone = run_for_leaks(masu, program, plugin, "unload")
    assert gone.returncode == 23 and listed(gone.stderr) == lost
    assert re.search(r"#0 0x[0-9a-f]+\n    #1 main ", gone.stderr), "no name, and no wrong one"


def test_code_that_was_made_at_run_time(masu, compile_program):
    result = run_for_leaks(masu, compile_program(JIT, *FLAGS), "3", "loses")
    assert result.returncode == 23 and listed(result.stderr) == {(True, 3072, 3): 1}
    assert re.search(r"allocated from\n    #0 0x[0-9a-f]+\n    #1 runs_code .*\n    #2 main ", result.stderr), result.stderr


# ---- What was not checked has not succeeded -------------------------------------------------

NOT_CHECKED = "was not checked for leaks"


def not_checked(result, status=125):
    assert result.returncode == status, result.stderr
    assert result.stderr.count(NOT_CHECKED) == 1
    assert "no leaks" not in result.stderr


@pytest.mark.parametrize("status", [0, 4])
def test_a_program_for_which_preloading_fails(masu, compile_program, status):
    result = run_for_leaks(masu, compile_program(f"int main(void) {{ return {status}; }}", "-static"))
    not_checked(result, status or 125)
    assert "statically linked" in result.stderr and result.stderr.count("\n") == 2


def test_a_program_with_an_allocator_of_its_own(masu, own_malloc):
    not_checked(run_for_leaks(masu, own_malloc), 3)
    not_checked(run_for_leaks(masu, own_malloc, "succeeds"))


def test_a_program_with_a_cleared_environment(masu, planted, library):
    not_checked(run_for_leaks(masu, "env", "-i", planted, library, "simple"))


def test_a_program_that_may_not_write(masu, planted, library):
    """There is no room for its file, as on a full disk."""
    limited = ["sh", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "sh", planted, library, "simple"]
    not_checked(run_for_leaks(masu, *limited))


def test_a_full_disk(masu, planted, library, tmp_path):
    with full_disk(tmp_path / "disk") as disk:
        result = run_for_leaks(masu, planted, library, "simple", options=("-o", disk / "it"))
        not_checked(result)
        assert "No space left on device" in result.stderr  # as the library says


def test_what_can_not_be_kept(masu, planted, library, tmp_path):
    """Nobody was told of its leaks."""
    result = run_for_leaks(masu, planted, library, "simple", options=("-o", tmp_path))
    assert result.returncode == 125 and "Is a directory" in result.stderr and "no leaks" not in result.stderr
