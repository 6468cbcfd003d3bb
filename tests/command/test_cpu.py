"""masu run --profile cpu and masu profile: where a program spends its time, and what of it malloc and free take.
Times are compared with the CPU time that the program itself saw; on a busy virtual machine the system's ticks, and so the samples,
are late by a tenth of a second, which is lost at the end of a thread."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest
from conftest import MASU, as_in_a_terminal, tool
from profiling import small_disk

# Work that counts its rounds: hot has three times as many as cold. Each piece is short beside a sample's period.
WORK = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <dirent.h>
#define APART __attribute__((noinline)) void
static __thread uint64_t sum;
static void *used(void *p) { __asm__ volatile("" : "+r"(p) : : "memory"); return p; }
static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
#define OWN seconds(CLOCK_THREAD_CPUTIME_ID)
APART hot(void) { uint64_t x = sum; for (int i = 0; i < 30000; i++) x = x * 6364136223846793005u + 3; sum = x; }
APART cold(void) { uint64_t x = sum; for (int i = 0; i < 10000; i++) x = x * 6364136223846793005u + 7; sum = x; }
APART warm(void) { uint64_t x = sum; for (int i = 0; i < 10000; i++) x = x * 6364136223846793005u + 9; sum = x; }
static int threads_now(void) {
  DIR *folder = opendir("/proc/self/task");
  int count = 0;
  for (struct dirent *e; (e = readdir(folder));) count += *e->d_name != '.';
  closedir(folder);
  return count;
}
"""
HOT = WORK + r"""
APART inner(void) { hot(); cold(); sum++; }
APART outer(void) { inner(); sum++; }
int main(void) {
  while (OWN < 1) outer();
  printf("%d %f\n", threads_now(), seconds(CLOCK_PROCESS_CPUTIME_ID));
  return 3;
}
"""
FLAGS = ("-fno-builtin", "-fno-ipa-icf", "-fno-optimize-sibling-calls", "-fomit-frame-pointer", "-pthread", "-Wl,--build-id")


@pytest.fixture(scope="session")
def hot(compile_program):
    return compile_program(HOT, *FLAGS)


@pytest.fixture(scope="session")
def profiled_hot(hot, tmp_path_factory):
    """The profile, and what the program said: threads and seconds."""
    file = tmp_path_factory.mktemp("cpu") / "it"
    result = subprocess.run([MASU, "run", "--profile", "cpu", "--hz", "1000", "-o", file, "--", hot],
                            capture_output=True, text=True, check=False)  # fmt: skip
    assert result.returncode == 3, result.stderr
    count, used = result.stdout.split()
    return file, int(count), float(used), result.stderr


def profiled(masu, tmp_path, *words, options=("--hz", "1000"), **more):
    """Runs it in tmp_path, with its profile in `it`."""
    return masu("run", "--profile", "cpu", *options, "-o", "it", "--", *words, cwd=tmp_path, **more)


def folded(masu, *words):
    """Stack -> seconds."""
    lines = masu("profile", "--folded", *words, check=True).stdout.splitlines()
    return {tuple(line.rsplit(" ", 1)[0].split(";")): int(line.rsplit(" ", 1)[1]) / 1000 for line in lines}


def inside(stacks, *functions):
    """Seconds of the stacks that have all of these."""
    return sum(s for frames, s in stacks.items() if set(functions) <= set(frames))


def total(stacks):
    return sum(stacks.values())


# ---- What is planted is found ------------------------------------------------------


def test_hot_functions_are_found(masu, profiled_hot):
    stacks = folded(masu, profiled_hot[0])
    here, there = inside(stacks, "hot"), inside(stacks, "cold")
    assert 0.6 < here / (here + there) < 0.9  # 3 : 1, of 250 samples or more
    assert inside(stacks, "main", "outer", "inner") > 0.9 * total(stacks)  # the rest reads the clock
    chains = {frames[-4:] for frames in stacks if frames[-1] == "hot"}
    assert ("main", "outer", "inner", "hot") in chains


def test_they_sum_up_to_what_was_used(masu, profiled_hot):
    file, _, used, _ = profiled_hot
    assert total(folded(masu, file)) == pytest.approx(used, rel=0.2)


def test_the_table_shows_seconds(masu, profiled_hot):
    result = masu("profile", profiled_hot[0], check=True)
    assert "CPU time in" in result.stdout and "a sample every 1 ms of a thread's CPU time" in result.stdout
    lines = result.stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.rstrip().endswith("function"))
    assert re.match(r"0\.\d\d s +\d\d\.\d % .* hot$", lines[heading + 1].strip())
    assert "little to gain" in result.stdout
    top = masu("profile", "--cumulative", "-n", "4", profiled_hot[0], check=True).stdout
    assert "main" in top and "more" in top


def test_the_run_tells_the_result(profiled_hot):
    told = profiled_hot[3]
    assert re.search(r"it: \d\.\d\d s of CPU time in [\d,]+ samples", told)
    assert re.search(r"\d\.\d\d s +\d\d\.\d % +hot < inner < outer < main", told)
    assert "malloc, free and the like take" in told
    assert "not sampled" not in told


def test_a_program_without_threads_stays_one(profiled_hot):
    assert profiled_hot[1] == 1


def test_without_hz_it_is_100(masu, hot, tmp_path):
    result = profiled(masu, tmp_path, hot, options=())
    assert result.returncode == 3
    assert "a sample every 10 ms" in masu("profile", tmp_path / "it").stdout
    # About 100 samples: more than four standard deviations.
    stacks = folded(masu, tmp_path / "it")
    assert 0.5 < inside(stacks, "hot") / total(stacks) < 0.95


def test_growth_between_two(masu, hot, profiled_hot, compile_program, tmp_path):
    longer = compile_program(HOT.replace("OWN < 1", "OWN < 2"), *FLAGS)
    profiled(masu, tmp_path, longer)
    result = masu("profile", profiled_hot[0], tmp_path / "it")
    assert "growth of CPU time" in result.stdout
    assert inside(folded(masu, profiled_hot[0], tmp_path / "it"), "inner") == pytest.approx(1, rel=0.3)


THREADS = WORK + r"""
static void *one(void *nothing) { pthread_setname_np(pthread_self(), "first"); while (OWN < 0.5) hot(); return nothing; }
static void *two(void *nothing) { pthread_setname_np(pthread_self(), "second"); while (OWN < 1) cold(); return nothing; }
static void *three(void *nothing) {
  pthread_setname_np(pthread_self(), "blocks");
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  while (OWN < 0.5) warm();
  return nothing;
}
int main(int count, char **arguments) {
  pthread_t t[3];
  int most = count > 1 ? 3 : 2;
  for (int i = 0; i < most; i++) if (pthread_create(&t[i], NULL, i == 0 ? one : i == 1 ? two : three, NULL)) return 1;
  for (int i = 0; i < most; i++) pthread_join(t[i], NULL);
  return 3;
}
"""


@pytest.fixture(scope="session")
def threads(compile_program):
    return compile_program(THREADS, *FLAGS)


def test_threads_that_never_allocate(masu, threads, tmp_path):
    assert profiled(masu, tmp_path, threads).returncode == 3
    stacks = folded(masu, "--by", "thread", tmp_path / "it")
    assert 0.3 < inside(stacks, "thread first", "hot") < 0.55
    assert 0.7 < inside(stacks, "thread second", "cold") < 1.05
    assert inside(stacks, "thread first", "cold") == inside(stacks, "thread second", "hot") == 0
    assert not any("start_run" in frame for stack in stacks for frame in stack)
    assert re.search(r"[01]\.\d\d s +\d+\.\d % +[\d,]+ +thread second", masu("profile", "--by", "thread", tmp_path / "it").stdout)


def test_what_is_not_sampled_is_said(masu, threads, tmp_path):
    result = profiled(masu, tmp_path, threads, "blocks")
    for told in (result.stderr, masu("profile", tmp_path / "it").stdout):
        missing = re.search(r"(\d\.\d\d) s of the \d\.\d\d s that the process used were not sampled", told)
        assert missing, told
        assert 0.4 < float(missing[1]) < 1.1


MANY = WORK + r"""
static pthread_barrier_t all_there;
static void *body(void *nothing) { while (OWN < 0.004) hot(); pthread_barrier_wait(&all_there); return nothing; }
int main(void) {
  static pthread_t t[500];
  pthread_barrier_init(&all_there, NULL, 500);
  for (int i = 0; i < 500; i++) if (pthread_create(&t[i], NULL, body, NULL)) return 1;
  for (int i = 0; i < 500; i++) pthread_join(t[i], NULL);
  return 3;
}
"""


def test_five_hundred_threads(masu, compile_program, tmp_path):
    assert profiled(masu, tmp_path, compile_program(MANY, *FLAGS)).returncode == 3
    # Of 2 seconds, by each thread a tick of the system.
    assert 0.2 < inside(folded(masu, tmp_path / "it"), "body", "hot") < 2.5


# ---- malloc and free ---------------------------------------------------------------

MALLOCS = WORK + r"""
enum { MANY = 20000 };
static void *all[MANY];
APART takes(void) { for (int i = 0; i < MANY; i++) all[i] = used(malloc(24 + i % 5 * 100)); sum++; }
APART gives(void) { for (int i = 0; i < MANY; i++) free(all[i]); sum++; }
APART both(void) {
  for (int i = 0; i < MANY / 20; i++) {
    void *few[20];
    for (int k = 0; k < 20; k++) few[k] = used(malloc(64 + k));
    for (int k = 0; k < 20; k++) free(few[k]);
  }
  sum++;
}
APART grows(void) { void *p = NULL; for (int i = 0; i < 300; i++) p = used(realloc(p, 5000 * i + 1)); free(p); sum++; }
int main(void) {
  while (OWN < 2) { takes(); gives(); both(); grows(); hot(); }
  return 3;
}
"""


@pytest.fixture(scope="session")
def mallocs(compile_program, tmp_path_factory):
    file = tmp_path_factory.mktemp("mallocs") / "it"
    run = [MASU, "run", "--profile", "cpu", "--hz", "1000", "-o", file, "--", compile_program(MALLOCS, *FLAGS)]
    assert subprocess.run(run, capture_output=True, check=False).returncode == 3
    return file


def allocating(masu, file):
    """Of the section: what is said, and caller -> its row."""
    section = masu("profile", file, check=True).stdout.split("time in malloc and free:")[1]
    rows = {}
    for line in section.splitlines():
        match = re.match(r"([\d.]+) s +([\d.]+) % +([\d.]+) s +([\d.]+) s +([\d.]+) s +(\w+)( < \w+)* *(.*)", line)
        if match:
            rows[match[6]] = (*map(float, match.groups()[:5]), match[8])
    return section, rows


def test_time_in_malloc_and_free_is_shown_by_caller(masu, mallocs):
    said, rows = allocating(masu, mallocs)
    assert re.search(r"malloc, free and the like take \d\.\d\d s, [1-9]\d\.\d % of CPU time", said)
    assert {"takes", "gives", "both", "grows"} <= set(rows)
    taking, freeing, resizing = ({f: row[i] / row[0] for f, row in rows.items() if row[0]} for i in (2, 3, 4))
    assert taking["takes"] > 0.9 and freeing["gives"] > 0.9
    assert taking["both"] > 0.1 and freeing["both"] > 0.1
    assert resizing["grows"] > 0.5
    assert "masu record --stacks" in said


def test_and_what_may_help(masu, mallocs):
    _, rows = allocating(masu, mallocs)
    assert rows["takes"][5].startswith("takes: a pool")
    assert rows["gives"][5].startswith("frees what was taken elsewhere")
    assert rows["both"][5].startswith("takes and frees: a scope")
    assert rows["grows"][5].startswith("grows its blocks")


def test_of_masu_a_stack_has_one_frame_under_its_public_name(masu, mallocs):
    stacks = folded(masu, mallocs)
    under_takes = {frames[frames.index("takes") + 1 :] for frames in stacks if "takes" in frames}
    # And the stub in the program by which it is called, which has no name.
    inner = {names for names in under_takes if not names[-1:] or not names[-1].startswith("program+0x")}
    assert inner == {(), ("malloc",)}


CPP = r"""
#include <ctime>
#include <map>
#include <string>
__attribute__((noinline)) size_t fills() { std::map<int, std::string> all; for (int i = 0; i < 5000; i++) all[i] = std::string(100, 'x'); return all.size(); }
int main() { size_t n = 0; while (clock() < CLOCKS_PER_SEC) n += fills(); return n == 0; }
"""


def test_callers_in_cpp_are_the_programs_functions(masu, tmp_path):
    (tmp_path / "it.cc").write_text(CPP)
    subprocess.run([tool("g++"), "-O1", "it.cc", "-o", "program"], cwd=tmp_path, check=True)
    profiled(masu, tmp_path, tmp_path / "program")
    said = masu("profile", tmp_path / "it").stdout.split("time in malloc and free:")[1]
    assert re.search(r"fills\(\)", said.splitlines()[3]), said


# ---- Programs of all kinds -----------------------------------------------------------


def test_interpreters(masu, tmp_path):
    loop = "import time, os\nwhile time.process_time() < 1: sum(range(1000))\nos._exit(4)"
    result = profiled(masu, tmp_path, sys.executable, "-c", loop)
    assert result.returncode == 4, result.stderr
    stacks = folded(masu, tmp_path / "it")
    assert inside(stacks, "Py_RunMain") > 0.8 * total(stacks) > 0.5


FORKS = WORK + r"""
APART of_parent(void) { while (OWN < 0.6) hot(); }
APART of_child(void) { while (OWN < 0.6) cold(); }
int main(void) {
  int status;
  of_parent();
  if (fork() == 0) {
    of_child();
    exit(0);
  }
  wait(&status);
  return status ? 1 : 3;
}
"""


def test_each_process_has_its_own(masu, compile_program, tmp_path):
    result = profiled(masu, tmp_path, compile_program(FORKS, *FLAGS))
    assert result.returncode == 3
    (child,) = tmp_path.glob("program.*.cpu.pb.gz")
    assert sorted(os.listdir(tmp_path)) == sorted(["it", child.name])
    parents, childs = folded(masu, tmp_path / "it"), folded(masu, child)
    assert inside(parents, "of_parent") > 0.2 and inside(parents, "of_child") == 0
    assert inside(childs, "of_child") > 0.2 and inside(childs, "of_parent") == 0


def test_a_program_that_becomes_another(masu, hot, tmp_path):
    result = masu("run", "--profile", "cpu", "--", "sh", "-c", f"exec env exec=1 sh -c 'exec {hot}'", cwd=tmp_path)
    assert result.returncode == 3
    (file,) = tmp_path.iterdir()
    assert re.fullmatch(r"program\.\d+\.cpu\.pb\.gz", file.name)
    assert inside(folded(masu, file), "hot") > 0.4


def test_a_child_of_vfork_that_fails_to_execute(masu, compile_program, tmp_path):
    source = WORK + r"""
    int main(void) {
      int status;
      while (OWN < 0.6) hot();
      if (vfork() == 0) {
        execl("/no/such/program", "it", NULL);
        _exit(7);
      }
      wait(&status);
      while (OWN < 1.2) cold();
      return WEXITSTATUS(status);
    }
    """
    result = profiled(masu, tmp_path, compile_program(source, *FLAGS, "-Wno-deprecated-declarations"))
    assert result.returncode == 7
    assert os.listdir(tmp_path) == ["it"]
    stacks = folded(masu, tmp_path / "it")
    assert inside(stacks, "hot") > 0.2 and inside(stacks, "cold") > 0.2


OWN_HANDLER = WORK + r"""
static volatile int calls;
static void urgent(int number) { calls += number == SIGURG; }
int main(void) {
  while (OWN < 0.6) hot();
  signal(SIGURG, urgent);
  while (OWN < 1.2) cold();
  int before = calls;
  raise(SIGURG);
  return before <= 1 && calls == before + 1 ? 3 : 4;
}
"""


def test_a_program_with_its_own_handler_of_the_signal(masu, compile_program, tmp_path):
    result = profiled(masu, tmp_path, compile_program(OWN_HANDLER, *FLAGS))
    assert result.returncode == 3
    assert "handles SIGURG itself" in result.stderr
    stacks = folded(masu, tmp_path / "it")
    assert inside(stacks, "hot") > 0.2 and inside(stacks, "cold") < 0.05
    assert "not sampled" in result.stderr


JIT = WORK + r"""
__attribute__((noinline, optimize("no-omit-frame-pointer"))) void runs_code(void (*code)(long)) {
  while (OWN < 0.8) code(100000);
  sum++;
}
int main(void) {
  /* push rbp; mov rbp, rsp; 1: dec rdi; jnz 1b; pop rbp; ret */
  static const unsigned char bytes[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3};
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, bytes, sizeof bytes);
  runs_code((void (*)(long))page);
  return 3;
}
"""


def test_code_that_was_made_at_run_time(masu, compile_program, tmp_path):
    assert profiled(masu, tmp_path, compile_program(JIT, *FLAGS)).returncode == 3
    stacks = folded(masu, tmp_path / "it")
    code = {frames: s for frames, s in stacks.items() if "runs_code" in frames and frames[-1] not in ("runs_code", "seconds")}
    assert total(code) > 0.3, stacks
    assert all(frames[-2] == "runs_code" for frames in code if frames[-1].startswith("0x"))


UNLOADS = WORK + r"""
#include <dlfcn.h>
APART calls(void (*in_library)(void)) { while (OWN < 0.6) in_library(); sum++; }
int main(int count, char **arguments) {
  void *library = dlopen(arguments[1], RTLD_NOW);
  calls((void (*)(void))dlsym(library, "in_library"));
  if (count > 2 && (dlclose(library) || dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD))) return 1;
  while (OWN < 1) cold();
  return 3;
}
"""
IN_LIBRARY = "void in_library(void) { for (volatile int i = 0; i < 10000; i++); }"


def test_code_that_is_gone(masu, compile_program, tmp_path):
    library, program = compile_program(IN_LIBRARY, *FLAGS, "-shared", "-fPIC"), compile_program(UNLOADS, *FLAGS)
    assert profiled(masu, tmp_path, program, library).returncode == 3
    assert inside(folded(masu, tmp_path / "it"), "calls", "in_library") > 0.2
    assert profiled(masu, tmp_path, program, library, "unload").returncode == 3
    stacks = folded(masu, tmp_path / "it")
    gone = {frames: s for frames, s in stacks.items() if frames[-1].startswith("0x")}
    assert total(gone) > 0.2 and inside(stacks, "cold") > 0.1
    assert all(frames[-2] == "calls" for frames in gone)


def test_a_stripped_program(masu, compile_program, tmp_path):
    """What is not exported has no name; libraries are stripped as well, as they are in distributions."""
    built = {"bare": compile_program(UNLOADS, *FLAGS), "it.so": compile_program(IN_LIBRARY, *FLAGS, "-shared", "-fPIC")}
    for name, file in built.items():
        subprocess.run(["strip", "-s", "-o", tmp_path / name, file], check=True)
    assert profiled(masu, tmp_path, tmp_path / "bare", tmp_path / "it.so").returncode == 3
    stacks = folded(masu, tmp_path / "it")
    assert inside(stacks, "in_library") > 0.2
    callers = {frames[frames.index("in_library") - 1] for frames in stacks if "in_library" in frames}
    own = {frames: s for frames, s in stacks.items() if re.fullmatch(r"bare\+0x[0-9a-f]+", frames[-1])}
    assert callers and all(re.fullmatch(r"bare\+0x[0-9a-f]+", caller) for caller in callers)
    assert total(own) > 0.1, "cold"
    table = masu("profile", tmp_path / "it", check=True)
    assert "in_library" in table.stdout and "bare+0x" in table.stdout and table.stderr == ""


OVERFLOWS = WORK + r"""
APART falls(int depth) { volatile char room[100]; room[0] = (char)depth; hot(); falls(depth + 1); room[1] = room[0]; }
static char alternate[65536];
static void on_fault(int number) { (void)number; _exit(7); }
int main(int count, char **arguments) {
  while (OWN < 0.4) cold();
  if (count > 1) {
    stack_t s = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction a = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    sigaltstack(&s, NULL);
    sigaction(SIGSEGV, &a, NULL);
  }
  falls(0);
  return 3;
}
"""


def test_a_stack_overflow_is_the_programs(masu, compile_program, tmp_path):
    program = compile_program(OVERFLOWS, *FLAGS)
    result = profiled(masu, tmp_path, program)
    assert result.returncode == 128 + signal.SIGSEGV
    assert "signal SIGSEGV ended it" in result.stderr
    assert profiled(masu, tmp_path, program, "handles").returncode == 7
    stacks = folded(masu, tmp_path / "it")
    assert inside(stacks, "cold") > 0.1 and inside(stacks, "falls") > 0.1
    assert "[deeper calls]" in {frames[0] for frames in stacks}


RECOVERS = WORK + r"""
#include <setjmp.h>
static sigjmp_buf back;
static void on_fault(int number) { (void)number; siglongjmp(back, 1); }
APART faults(void) { if (!sigsetjmp(back, 1)) *(volatile int *)16 = 1; }
int main(void) {
  int times = 0;
  signal(SIGSEGV, on_fault);
  for (; OWN < 0.6; times++) { faults(); hot(); }
  return times > 100 ? 3 : 4;
}
"""


def test_a_handler_that_recovers(masu, compile_program, tmp_path):
    result = profiled(masu, tmp_path, compile_program(RECOVERS, *FLAGS))
    assert result.returncode == 3, result.stderr
    stacks = folded(masu, tmp_path / "it")
    assert inside(stacks, "main", "hot") > 0.2 and inside(stacks, "hot") > 0.7 * total(stacks)


# ---- How it ends -----------------------------------------------------------------

ENDS = WORK + r"""
static int written(void) {
  DIR *folder = opendir(getenv("MASU_PROFILE"));
  int found = 0;
  for (struct dirent *e; (e = readdir(folder));) found |= strstr(e->d_name, ".cpu.pb") && !strstr(e->d_name, ".part");
  closedir(folder);
  return found;
}
int main(int count, char **arguments) {
  const char *how = arguments[1];
  while (OWN < 0.6) hot();
  if (count > 2) while (!written()) cold();
  if (!strcmp(how, "exit")) exit(3);
  if (!strcmp(how, "_exit")) _exit(3);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
  return 3;
}
"""


@pytest.fixture(scope="session")
def ends(compile_program):
    return compile_program(ENDS, *FLAGS)


@pytest.mark.parametrize("how", ["return", "exit", "_exit"])
def test_an_end_by_itself(masu, ends, tmp_path, how):
    assert profiled(masu, tmp_path, ends, how).returncode == 3
    assert inside(folded(masu, tmp_path / "it"), "hot") > 0.2


def test_an_end_by_a_signal_within_a_moment(masu, tmp_path):
    result = profiled(masu, tmp_path, "sh", "-c", "kill -KILL $$", options=())
    assert result.returncode == 128 + signal.SIGKILL
    assert "wrote no profile: signal SIGKILL ended it" in result.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("how", "number"), [("abort", signal.SIGABRT), ("kill", signal.SIGKILL)])
@pytest.mark.parametrize("every", [(), ("--every", "1")])
def test_what_was_written_before_is_taken(masu, ends, tmp_path, how, number, every):
    result = profiled(masu, tmp_path, ends, how, "later", options=("--hz", "1000", *every))
    assert result.returncode == 128 + number
    assert "its last one before is taken" in result.stderr
    assert inside(folded(masu, tmp_path / "it"), "hot") > 0.2
    before = [name for name in os.listdir(tmp_path) if name != "it"]
    assert all(every and re.fullmatch(r"program\.\d+-\d{4}\.cpu\.pb\.gz", name) for name in before)


@pytest.mark.parametrize("threads", [0, 2])
def test_ctrl_c(masu, tmp_path, threads):
    """Python ends itself by the signal."""
    loops = (
        "import glob, os, threading\n"
        "def spins():\n while not glob.glob(os.environ['MASU_PROFILE'] + '/*.cpu.pb'): sum(range(1000))\n"
        f"for i in range({threads}): threading.Thread(target=spins).start()\n"
        "spins()\n"
        "print('written', len(os.listdir('/proc/self/task')), flush=True)\n"
        "while True: sum(range(1000))\n"
    )
    command = [MASU, "run", "--profile", "cpu", "--hz", "1000", "-o", "it", "--", sys.executable, "-c", loops]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True, preexec_fn=as_in_a_terminal) as run:  # fmt: skip
        try:
            said, count = run.stdout.readline().split()
            assert said == "written" and (threads or count == "1")
            os.killpg(run.pid, signal.SIGINT)
            _, told = run.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 128 + signal.SIGINT, told
    assert "KeyboardInterrupt" in told and "its last one before is taken" in told
    assert inside(folded(masu, tmp_path / "it"), "Py_RunMain") > 0.2


def test_a_profile_of_the_library_alone(masu, ends, tmp_path):
    masu("run", "--options", "cpu:1000", "--", ends, "return", env={"MASU_PROFILE": str(tmp_path)})
    (raw,) = tmp_path.glob("program.*.cpu.pb")
    assert inside(folded(masu, raw), "hot") > 0.2


def test_a_full_disk(masu, hot, tmp_path):
    with small_disk(tmp_path / "disk", "4k") as disk:
        (disk / "filler").write_bytes(bytes(4096))
        result = profiled(masu, disk, hot)
        assert result.returncode == 3
        assert "No space left on device" in result.stderr  # as the library says
        assert "wrote no profile" in result.stderr
        assert os.listdir(disk) == ["filler"]


def test_a_program_that_may_not_write(masu, hot, tmp_path):
    limited = ["sh", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "sh", hot]
    result = profiled(masu, tmp_path, *limited)
    assert result.returncode == 3
    assert "File too large" in result.stderr and "wrote no profile" in result.stderr
    assert os.listdir(tmp_path) == []


# ---- Bad input -------------------------------------------------------------------


def test_options_that_are_of_the_other_profile(masu, profiled_hot):
    for words, said in (
        (["run", "--hz", "100", "--", "true"], "--hz is for --profile cpu"),
        (["run", "--profile", "heap", "--hz", "100", "--", "true"], "--hz is for --profile cpu"),
        (["run", "--profile", "cpu", "--interval", "64K", "--", "true"], "for --profile heap."),
        (["run", "--profile", "cpu", "--hz", "1001", "--", "true"], "1001"),
    ):
        result = masu(*words)
        assert result.returncode == 2 and said in result.stderr.splitlines()[-1]
    result = masu("profile", "--view", "in-use", profiled_hot[0])
    assert result.returncode == 125 and "has no view in-use, but cpu" in result.stderr


# ---- Other tools, and the page ---------------------------------------------------


def test_go_opens_it(profiled_hot, mallocs, tmp_path):
    for file, function in ((profiled_hot[0], "hot"), (mallocs, "malloc")):
        top = subprocess.run([tool("go"), "tool", "pprof", "-top", file], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "Type: cpu" in top.stdout and "Duration:" in top.stdout
        assert re.search(rf"\d+%.* {function}$", top.stdout, re.MULTILINE), top.stdout


def test_the_page(browser, masu, mallocs, tmp_path):
    masu("profile", "--html", "-o", tmp_path / "it.html", mallocs, check=True)
    browser.get_log("browser")
    browser.get((tmp_path / "it.html").as_uri())
    assert browser.get_log("browser") == []
    frames = {e.get_attribute("aria-label").split(":")[0]: e for e in browser.find_elements("css selector", "#graph [data-node]")}
    assert {"main", "takes", "malloc"} <= set(frames)
    assert re.search(r"\d\.\d\d s, \d+\.\d %, [\d,]+ samples", frames["main"].get_attribute("aria-label"))
    rows = [row.text for row in browser.find_elements("css selector", "#callers tbody tr")]
    assert any("takes < main" in row and "a pool" in row for row in rows)
    heads = [e.text for e in browser.find_elements("css selector", "#functions th") if e.is_displayed()]
    assert heads == ["flat ▾", "share", "cumulative", "share", "samples", "function"] or heads[4:] == ["samples", "function"]
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    )
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
