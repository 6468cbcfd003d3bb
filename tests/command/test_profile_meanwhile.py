"""Profiles that a process writes while it runs: by signal, by growth; and what stays of them, however it ends."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import MASU
from profiling import APART, EXACT, folded, inside, one_usage_error, profiled, small_disk

# What it is told by its words: N MiB more, or less, a wait for a line on stdin, or an end.
TOLD = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define APART __attribute__((noinline)) void
static void *kept[1 << 12][16];
static int mib;
static void *used(void *p) { __asm__ volatile("" : "+r"(p) : : "memory"); return p; }
APART grows(int to) { for (; mib < to; mib++) for (int j = 0; j < 16; j++) kept[mib][j] = used(malloc(1 << 16)); }
APART shrinks(int to) { while (mib > to) { mib--; for (int j = 0; j < 16; j++) free(kept[mib][j]); } }
APART faults(void) { *(volatile int *)used(NULL) = 1; }
static void own(int n) { static const char said[] = "own handler\n"; write(1, said, sizeof said - 1); }
int main(int count, char **words) {
  char line[8];
  for (int i = 1; i < count; i++) {
    const char *word = words[i];
    int to = atoi(word + 1);
    if (*word == '+') grows(to);
    if (*word == '-') shrinks(to);
    if (!strcmp(word, "wait")) { write(1, "ready\n", 6); read(0, line, 1); }
    if (!strcmp(word, "catch")) signal(SIGUSR1, own);
    if (!strcmp(word, "abort")) abort();
    if (!strcmp(word, "fault")) faults();
    if (!strcmp(word, "kill")) kill(getpid(), SIGKILL);
  }
  return 3;
}
"""


@pytest.fixture(scope="session")
def told(compile_program):
    return compile_program(TOLD, *APART)


def until(condition):
    for _ in range(3000):
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("in vain")


def run(masu, tmp_path, *options_and_words, **options):
    return masu("run", "--profile", "heap", *EXACT, "-o", "it", *options_and_words, cwd=tmp_path, **options)


def numbered(tmp_path):
    return sorted(tmp_path.glob("program.*-[0-9]*.heap.pb.gz"))


# ---- By signal -------------------------------------------------------------------


class Waiting:
    """`masu run` and its program, which waits."""

    def __init__(self, tmp_path, *options_and_words, **options):
        self.folder = tmp_path
        self.run = subprocess.Popen([MASU, "run", "--profile", "heap", *EXACT, "-o", "it", *options_and_words], cwd=tmp_path, text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # fmt: skip
        assert self.run.stdout.readline() == "ready\n"
        self.pid = int(Path(f"/proc/{self.run.pid}/task/{self.run.pid}/children").read_text().split()[0])

    def written(self, number):
        return until(lambda: list(self.folder.glob(f"*.profile/*-{number:04}.heap.pb")))

    def end(self):
        """What masu run said."""
        _, told = self.run.communicate("x", timeout=60)
        return told


def test_by_signal_while_the_program_sleeps(masu, told, tmp_path):
    waiting = Waiting(tmp_path, "--signal", "USR2", "--", told, "+1", "wait", "+3")
    os.kill(waiting.pid, signal.SIGUSR2)
    (first,) = waiting.written(1)
    assert inside(folded(masu, "--view", "in-use", first), "grows") == 1024, "also what the folder has can be looked at"
    os.kill(waiting.run.pid, signal.SIGUSR2)  # is passed on
    waiting.written(2)
    assert "and 2 from before" in waiting.end()
    assert waiting.run.returncode == 3
    sizes = [inside(folded(masu, "--view", "in-use", file), "grows") for file in [*numbered(tmp_path), tmp_path / "it"]]
    assert sizes == [1024, 1024, 3072]
    assert not list(Path("/dev/shm").glob(f"masu-*-{waiting.pid}-*"))


def test_a_signal_that_interrupts_allocation(masu, compile_program, tmp_path):
    program = compile_program(
        "#include <signal.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
        "int main(void) { pid_t me = getpid(), child = fork(); int s;\n"
        "if (!child) { for (int i = 0; i < 500 && !kill(me, SIGUSR1); i++) usleep(200); _exit(0); }\n"
        "for (int i = 0; waitpid(child, &s, WNOHANG) == 0; i++) { void *volatile p = malloc(i % 3000); free(p); } return 3; }",
        *APART,
    )
    result = run(masu, tmp_path, "--signal", "USR1", "--interval", "64K", "--", program)
    assert result.returncode == 3, result.stderr
    files = numbered(tmp_path)
    folded(masu, "--view", "allocated", files[0])  # perhaps of before the first sample, but whole
    assert folded(masu, "--view", "allocated", files[-1])


def test_forked_children_write_their_own(masu, compile_program, tmp_path):
    program = compile_program(
        "#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
        "int main(void) { void *volatile p = malloc(5000); if (fork()) { int s; wait(&s); return s != 0; }\n"
        'write(1, "ready\\n", 6); char c; read(0, &c, 1); return p == NULL; }',
        *APART,
    )
    waiting = Waiting(tmp_path, "--signal", "USR1", "--", program)
    child = int(Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children").read_text().split()[0])
    os.kill(child, signal.SIGUSR1)
    assert f".{child}-0001." in waiting.written(1)[0].name
    waiting.end()
    assert waiting.run.returncode == 0


def test_the_programs_own_handler_wins(masu, told, tmp_path):
    waiting = Waiting(tmp_path, "--signal", "USR1", "--", told, "+1", "catch", "wait")
    os.kill(waiting.pid, signal.SIGUSR1)
    assert waiting.run.stdout.readline() == "own handler\n"
    waiting.end()
    assert waiting.run.returncode == 3
    assert numbered(tmp_path) == []


def test_a_signal_that_is_ignored_stays_so(masu, told, tmp_path):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    waiting = Waiting(tmp_path, "--signal", "HUP", "--", told, "+1", "wait", preexec_fn=ignore)
    os.kill(waiting.pid, signal.SIGHUP)
    said = waiting.end()
    assert waiting.run.returncode == 3
    assert "profile_signal: no profile by signal 1: it has a handler, or is ignored" in said
    assert numbered(tmp_path) == []


@pytest.mark.parametrize("number", [9, 11, 33])
def test_a_signal_that_can_not_be_used(masu, told, number):
    result = masu("run", "--options", f"profile,profile_signal:{number}", "--", told, env={"MASU_PROFILE": "/nowhere"})
    assert result.returncode == 3
    assert f"masu: profile_signal: no profile by signal {number}: Invalid argument" in result.stderr


# ---- By growth -------------------------------------------------------------------


def grown(masu, tmp_path):
    """MiB at each numbered file."""
    return [round(inside(folded(masu, "--view", "in-use", file), "grows") / 1024) for file in numbered(tmp_path)]


def test_each_time_it_has_grown(masu, told, tmp_path):
    result = run(masu, tmp_path, "--growth", "10M", "--", told, "+35")
    assert result.returncode == 3
    assert grown(masu, tmp_path) == [10, 20, 30]
    assert "and 3 from before" in result.stderr


def test_up_and_down_writes_nothing_twice(masu, told, tmp_path):
    run(masu, tmp_path, "--growth", "10M", "--", told, *["+35", "-1"] * 20, "+42")
    assert grown(masu, tmp_path) == [10, 20, 30, 40]


def test_growth_counts_from_the_last_file(masu, told, tmp_path):
    waiting = Waiting(tmp_path, "--growth", "10M", "--signal", "USR1", "--", told, "+35", "-15", "wait", "+28")
    os.kill(waiting.pid, signal.SIGUSR1)
    waiting.written(4)
    waiting.end()
    assert grown(masu, tmp_path) == [10, 20, 30, 15, 25]


def test_less_than_a_mib_is_one(masu, told, tmp_path):
    run(masu, tmp_path, "--growth", "100K", "--", told, "+3")
    assert grown(masu, tmp_path) == [1, 2, 3]


def test_they_are_for_profiles(masu):
    one_usage_error(masu("run", "--growth", "1M", "--", "true"), "--profile heap")
    one_usage_error(masu("run", "--signal", "USR1", "--", "true"), "--profile heap")
    one_usage_error(masu("run", "--profile", "heap", "--signal", "SEGV", "--", "true"), "USR1")


# ---- What stays ------------------------------------------------------------------


@pytest.mark.parametrize(("how", "number"), [("abort", signal.SIGABRT), ("fault", signal.SIGSEGV), ("kill", signal.SIGKILL)])
def test_what_was_written_stays(masu, told, tmp_path, how, number):
    result = run(masu, tmp_path, "--growth", "2M", "--", told, "+5", how)
    assert result.returncode == 128 + number
    assert f"signal {number.name} ended it" in result.stderr and "its last one before is taken" in result.stderr
    assert inside(folded(masu, "--view", "in-use", tmp_path / "it"), "grows") == 4 * 1024
    assert grown(masu, tmp_path) == [2]


def test_one_that_is_killed_while_it_writes(masu, compile_program, tmp_path):
    """However it comes: each file that is there is whole."""
    program = compile_program(
        "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        "int main(int n, char **words) { pid_t me = getpid();\n"
        "if (!fork()) { usleep(atoi(words[1])); kill(me, SIGKILL); _exit(0); }\n"
        "for (int i = 0; i < 20000; i++) { void *volatile p = malloc(1 << 16); (void)p; } pause(); }",
        *APART,
    )
    for microseconds in (2000, 7000, 20000, 50000):
        folder = tmp_path / str(microseconds)
        folder.mkdir()
        run(masu, folder, "--growth", "1M", "--", program, str(microseconds))
        for file in [*numbered(folder)[-3:], *folder.glob("it")]:
            assert masu("profile", file).returncode == 0, file


def test_a_disk_that_becomes_full(masu, told, tmp_path):
    """What was written before stays, whole, and the program goes on."""
    with small_disk(tmp_path / "disk", "64k") as disk:
        raw = {"MASU_PROFILE": str(disk)}
        process = subprocess.Popen([MASU, "run", "--options", "profile:2,profile_growth:2", "--", told, "+3", "wait", "+5"], text=True,
                                   env={**os.environ, **raw}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        with contextlib.suppress(OSError), open(disk / "filler", "wb") as filler:
            while True:
                filler.write(bytes(4096))
                filler.flush()
        _, said = process.communicate("x", timeout=60)
        assert process.returncode == 3
        assert said.count("No space left on device") == 2  # the second, and the last
        (first,) = disk.glob("*.heap.pb")
        assert first.name.endswith("-0001.heap.pb")
        assert inside(folded(masu, "--view", "in-use", first), "grows") == 2 * 1024
        assert not list(disk.glob("*.part"))


def test_a_limit_for_files_does_not_end_the_program(masu, told, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    # Not of masu run, which has files of its own to write.
    result = masu("run", "--options", "profile:2,profile_growth:2", "--", told, "+5", env={"MASU_PROFILE": str(tmp_path)}, preexec_fn=limit)
    assert result.returncode == 3
    lines = result.stderr.splitlines()
    assert len(lines) == 3 and all(re.fullmatch(r"masu: the profile was not written to \S+: File too large", line) for line in lines)
    assert os.listdir(tmp_path) == []


def test_a_program_that_gives_itself_another_title(masu, compile_program, tmp_path):
    """As servers do, over their arguments: its files keep its name."""
    program = compile_program(
        "#include <stdlib.h>\n#include <string.h>\n"
        'int main(int n, char **words) { memset(words[0], \'/\', strlen(words[0])); strcpy(words[0], "a/b"); return malloc(5000) ? 3 : 4; }',
        *APART,
    )
    result = masu("run", "--profile", "heap", *EXACT, "--", program, cwd=tmp_path)
    assert result.returncode == 3, result.stderr
    assert [re.sub(r"\d+", "N", path.name) for path in tmp_path.iterdir()] == ["program.N.heap.pb.gz"]


# ---- Under bad conditions --------------------------------------------------------

LIBRARY = r"""
#include <stdlib.h>
static void *all[1000];
__attribute__((noinline, visibility("default"))) void in_library(void) { for (int i = 0; i < 1000; i++) all[i] = malloc(1024); }
"""
UNLOADS = r"""
#include <dlfcn.h>
#include <stdlib.h>
static void *kept[1000];
__attribute__((noinline)) void stays(void) { for (int i = 0; i < 1000; i++) kept[i] = malloc(2048); }
int main(int count, char **words) {
  for (int i = 0; i < 3; i++) {
    void *library = dlopen(words[1], RTLD_NOW);
    ((void (*)(void))dlsym(library, "in_library"))();
    if (count > 2 && dlclose(library)) return 1;
  }
  stays();
  return 3;
}
"""


def test_code_that_is_gone(masu, compile_program, tmp_path):
    library = compile_program(LIBRARY, "-shared", "-fPIC", *APART)
    program = compile_program(UNLOADS, *APART, "-ldl")
    result = profiled(masu, tmp_path, program, library)
    assert result.returncode == 3 and inside(folded(masu, tmp_path / "it"), "in_library") == 3000
    result = profiled(masu, tmp_path, program, library, "unload")
    assert result.returncode == 3, result.stderr
    stacks = folded(masu, "--view", "in-use", tmp_path / "it")
    assert inside(stacks, "stays") == 2000
    gone = {frames: kib for frames, kib in stacks.items() if frames[-1].startswith("0x")}
    assert sum(gone.values()) == 3000, "no name, and no wrong one"
    assert all("main" in frames for frames in gone)


COMES_AND_GOES = r"""
#include <stdlib.h>
__attribute__((constructor)) static void comes(void) { free(malloc(100)); }
__attribute__((destructor)) static void goes(void) { free(malloc(100)); }
__attribute__((noinline, visibility("default"))) void in_library(void) { for (int i = 0; i < 10; i++) free(malloc(1000)); }
"""
OPENS = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
enum { THREADS = 3, TIMES = 1000 };
static _Atomic int ended;
static void *kept[THREADS][10];
static void *allocates(void *mine) {
  void **blocks = mine;
  while (!ended) for (int i = 0; i < 10; i++) { free(blocks[i]); blocks[i] = malloc(1024); }
  return NULL;
}
int main(int count, char **words) {
  pthread_t t[THREADS];
  for (int i = 0; i < THREADS; i++) if (pthread_create(&t[i], NULL, allocates, kept[i])) return 1;
  for (int i = 0; i < TIMES; i++) {
    void *library = dlopen(words[1 + i % 2], RTLD_NOW);
    if (!library) return 1;
    ((void (*)(void))dlsym(library, "in_library"))();
    if (dlclose(library)) return 1;
  }
  ended = 1;
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  return 3;
}
"""


def test_libraries_that_come_and_go_while_others_allocate(masu, compile_program, tmp_path):
    """The loader allocates with its lock held: who takes a sample with one of masu's must not wait for that."""
    libraries = [compile_program(COMES_AND_GOES, "-shared", "-fPIC", *APART) for _ in range(2)]
    result = profiled(masu, tmp_path, compile_program(OPENS, *APART, "-ldl"), *libraries)
    assert result.returncode == 3, result.stderr
    assert inside(folded(masu, "--view", "in-use", tmp_path / "it"), "allocates") == 30
    taken = folded(masu, "--view", "allocated", tmp_path / "it")
    assert sum(kib for frames, kib in taken.items() if "main" in frames) > 1000 * 10


MANY = r"""
#include <pthread.h>
#include <stdlib.h>
static pthread_barrier_t all;
static void *of_thread(void *unused) {
  void *kept[20];
  pthread_barrier_wait(&all);
  for (int i = 0; i < 500; i++) { void *volatile p = malloc(1000); free(p); }
  for (int i = 0; i < 20; i++) kept[i] = malloc(1024);
  pthread_barrier_wait(&all);
  for (int i = 0; i < 10; i++) free(kept[i]);
  return unused;
}
int main(void) {
  pthread_t t[500];
  pthread_attr_t small;
  pthread_barrier_init(&all, NULL, 500);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  for (int i = 0; i < 500; i++) if (pthread_create(&t[i], &small, of_thread, NULL)) return 1;
  for (int i = 0; i < 500; i++) pthread_join(t[i], NULL);
  return 3;
}
"""


def test_500_threads(masu, compile_program, tmp_path):
    result = run(masu, tmp_path, "--growth", "1M", "--", compile_program(MANY, *APART))
    assert result.returncode == 3, result.stderr
    assert inside(folded(masu, "--view", "in-use", tmp_path / "it"), "of_thread") == 500 * 10
    assert inside(folded(masu, "--view", "peak", tmp_path / "it"), "of_thread") == pytest.approx(500 * 20, rel=0.1)
    assert len(numbered(tmp_path)) >= 9
    for file in numbered(tmp_path):
        folded(masu, file)


OVERFLOWS = r"""
#include <stdlib.h>
__attribute__((noinline)) int deeper(int n) { char *volatile p = malloc(100); int more = deeper(n + 1); free(p); return more + 1; }
int main(void) { return deeper(0); }
"""


def test_a_stack_overflow_ends_as_without_masu(masu, compile_program, tmp_path):
    program = compile_program(OVERFLOWS, *APART)
    assert subprocess.run([program], check=False).returncode == -signal.SIGSEGV
    result = run(masu, tmp_path, "--interval", "64K", "--growth", "1M", "--", program)
    assert result.returncode == 128 + signal.SIGSEGV
    assert "signal SIGSEGV ended it" in result.stderr
    for file in [tmp_path / "it", *numbered(tmp_path)]:
        assert inside(folded(masu, file), "deeper") > 0
        assert any(frames[0] == "[deeper calls]" for frames in folded(masu, file))


RESCUED = r"""
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
static sigjmp_buf back;
static void *kept[1000];
static char other_stack[1 << 16];
__attribute__((noinline)) void in_handler(void) { for (int i = 0; i < 500; i++) kept[i] = malloc(1024); }
static void handler(int n) { in_handler(); siglongjmp(back, n); }
__attribute__((noinline)) void faults(void) { *(volatile int *)kept[999] = 1; }
__attribute__((noinline)) void afterwards(void) { for (int i = 500; i < 900; i++) kept[i] = malloc(1024); }
int main(void) {
  stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  sigaltstack(&stack, NULL);
  sigaction(SIGSEGV, &action, NULL);
  if (!sigsetjmp(back, 1)) faults();
  afterwards();
  return 3;
}
"""


def test_a_handler_of_faults_that_allocates(masu, compile_program, tmp_path):
    result = profiled(masu, tmp_path, compile_program(RESCUED, *APART))
    assert result.returncode == 3, result.stderr
    stacks = folded(masu, tmp_path / "it")
    assert inside(stacks, "in_handler") == 500
    assert inside(stacks, "afterwards") == 400
    assert any("faults" in frames and "in_handler" in frames for frames in stacks), "through the signal's frame"


def test_a_stripped_program(masu, told, compile_program, tmp_path):
    result = profiled(masu, tmp_path, compile_program(TOLD, *APART, "-s"), "+4")
    assert result.returncode == 3
    stacks = folded(masu, "--view", "in-use", tmp_path / "it")
    found = [frames for frames, kib in stacks.items() if kib == 4096]
    assert len(found) == 1 and re.fullmatch(r"program\+0x[0-9a-f]+", found[0][-1])


def test_no_profiler_no_handler(masu, told):
    """The option alone does nothing: the signal ends the program as always."""
    process = subprocess.Popen([MASU, "run", "--options", "profile_signal:10", "--", told, "wait"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGUSR1
