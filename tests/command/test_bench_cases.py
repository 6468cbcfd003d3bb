"""How masu bench measures: its cases, their rounds, what is compared and counted."""

import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from benching import CASE, SHORT
from conftest import compiled, tool
from rich.console import Console

from masu.bench import cases, counted, hit_path, run, session
from masu.bench.allocators import Contender
from masu.measuring.measure import SYSTEM, Allocator, measure


@pytest.fixture
def runner(tmp_path):
    def make(*contenders, **plan):
        console = Console(file=io.StringIO())
        return run.Runner(session.workloads(), tmp_path / "made", contenders, run.Plan(**{"seconds_a_case": 1, **plan}), console)

    return make


# The least that each can do, in place of its arguments; None: as they are.
SMALL = {
    "aligned": ["1000"], "batch": [None, None, "10", "10", None], "calloc_zero": ["20"], "false_sharing": [None, None, "10"],
    "fragmentation": [None, "8", "1", None], "free_only": ["1000"], "hakmem_memory": ["1000", None], "handover": ["1000"],
    "indexer": ["--threads", None, "--megabytes", "1"], "kmalloc_round": ["1"], "larson_like": [None, "2", "100"],
    "malloc_large": ["5"], "many_threads": [None, "10"], "mstress": [None, "2", "100"], "pairs": [None, None, "1000"],
    "random_sizes": [None, "1000", "1000", "100"], "realloc_growth": ["1", "4", "100"], "recycle": [None, "1000", "2"],
    "server_day": [None], "short_threads": ["20"], "single_size": [None, "10", None], "sized_delete": [None, None, "1000"],
    "sleeping_threads": ["4", "16", "1"], "solver": ["8", "1"], "stackprobe": [None, "100000"], "threadtest": [None, "2"],
    "xmalloc": [None, None, "10"],
}  # fmt: skip


# Its own tables break before it has an answer that could be compared with the system's, and it never ends.
NEVER_END = {"indexer"}


def small(case):
    given = [*case.command[1:], *[None] * 5]
    words = [was if word is None else word for word, was in zip(SMALL[case.command[0]], given)]
    return replace(case, command=(case.command[0], *filter(None, words)))


@pytest.mark.parametrize("case", [c for c in cases.ALL if not c.trace], ids=lambda c: c.name)
def test_every_case_prints_its_figures(runner, library, case):
    if missing := case.missing():
        pytest.skip(f"no {missing}")
    if not case.program:
        case = small(case)
    contender = Contender("masu", Allocator("masu", Path(library)))
    result = run.Measured(case.name)
    runner(contender)._once(case, case.name, contender, result)
    assert set(result.values["masu"]) == {figure.key for figure in case.figures}


# A block of more than 9,000 bytes has pages of its own, whose first one malloc writes to: a page fault in every such call.
FAULTING = r"""
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
void *__libc_malloc(size_t), __libc_free(void *);
void *malloc(size_t n) {
  size_t *p = n > 9000 ? mmap(0, n + 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : __libc_malloc(n + 16);
  *p = n;
  return p + 2;
}
void free(void *p) {
  size_t *q = (size_t *)p - 2;
  if (p && *q > 9000)
    munmap(q, *q + 16);
  else if (p)
    __libc_free(q);
}
void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
void *realloc(void *p, size_t n) {
  size_t *q = malloc(n), old = p ? ((size_t *)p)[-2] : 0;
  if (p)
    memcpy(q, p, old < n ? old : n);
  free(p);
  return q;
}
"""


def test_calls_that_take_a_page_fault_are_in_the_tail(tmp_path):
    """One block in ten is such a one here, so that `calls` leaves out a large part."""
    faulting = Allocator("faulting", compiled(tmp_path, "faulting", FAULTING))
    usage = measure([session.workloads() / "stackprobe", "latency", "100000"], faulting)
    found = run.own_figures(usage.output)
    assert found["fault_groups"] > 0 and usage.status == 0
    for call in ("malloc", "realloc", "free"):
        assert found[f"all_{call}"] == found[f"calls_{call}"] + found[f"apart_{call}"]
        assert found[f"all_{call}_worst_ns"] == max(found[f"calls_{call}_worst_ns"], found[f"apart_{call}_worst_ns"])
        for group in ("all", "calls", "apart"):
            parts = [found[f"{group}_{call}_{part}_ns"] for part in ("p50", "p90", "p99", "p999", "p9999", "p99999", "worst")]
            assert parts == sorted(parts)
    assert found["apart_malloc"] > found["all_malloc"] / 10 and found["calls_malloc"] > 0
    judged = {figure.key for case in cases.ALL if case.name == "stackprobe-tail" for figure in case.figures if figure.judged}
    assert judged == {f"{group}_{call}_p9999_ns" for group in ("all", "calls") for call in ("malloc", "realloc", "free")}


# One case of each.
WORKLOADS = {c.command[0]: c for c in cases.ALL if not c.trace and not c.program and c.command[0] not in NEVER_END}.values()


@pytest.mark.parametrize("case", WORKLOADS, ids=lambda c: c.name)
def test_blocks_that_are_too_short_fail_in_every_workload(runner, tmp_path, case):
    short = Contender("short", Allocator("short", compiled(tmp_path, "short", SHORT)))
    result = runner(Contender("system", SYSTEM), short, most_rounds=1)._case(small(case), case.name, lambda *_: None)
    assert set(result.values) == {"system"}


def huge_pages(case, name, runner):
    contender = Contender("system", SYSTEM)
    command = runner(contender)._command(case, contender, run._environment(name))
    return measure(command, environment=run._environment(name)).output.split()


@pytest.mark.skipif("THP_enabled" not in Path("/proc/self/status").read_text(), reason="the kernel doesn't say")
def test_huge_pages_are_off_when_they_are_said_to_be(runner):
    status = replace(CASE, command=("grep", "THP_enabled", "/proc/self/status"), program=True)
    assert huge_pages(status, "it", runner) == ["THP_enabled:", "1"]
    assert huge_pages(status, "it, huge pages off", runner) == ["THP_enabled:", "0"]


def test_what_uses_huge_pages_is_measured_without():
    """Whatever its figures are."""
    for kib, more in ((32 << 10, 1), (31 << 10, 0)):
        done = {"it": run.Measured("it", counted={"masu": {}, "peer": {"sampled_huge_kib": kib}})}
        assert len(list(run.variants([CASE], True, done))) == 1 + more
        assert len(list(run.variants([CASE], False, done))) == len(list(run.variants([CASE], True, {}))) == 1


SHORT_AND_LARGE = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
  char *all = malloc(16 << 20);
  memset(all, 1, 16 << 20);
  usleep(5000);
  return all[12345] - 1;
}
"""


def test_the_memory_of_short_programs_is_seen(compile_program):
    program = compile_program(SHORT_AND_LARGE)

    def seen():
        found = {}
        with counted.memory(found) as watch:
            measure([str(program)], started=watch)
        return found.get("sampled_rss_kib", 0)  # on a busy machine it ends before it is looked at

    assert any(seen() > 16 << 10 for _ in range(10))


# ---- Rounds ----


@pytest.fixture
def rounds(runner, monkeypatch):
    """rounds(figure of contender and round, ...) gives what was run: the names round by round, the warm-up first if there is one."""

    def play(figure, case=CASE, name="it", contenders=("masu", "masu-again", "system", "other"), **plan):
        ran = []

        def once(self, case, name, contender, result, *, warm_up, sampled):
            ran.append(contender.name)
            if not warm_up:
                values = result.values.setdefault(contender.name, {}).setdefault("pair_ns", [])
                values.append(figure(contender.name, len(values)))

        monkeypatch.setattr(run.Runner, "_once", once)
        made = runner(*(Contender(c, Allocator(c)) for c in contenders), **{"seconds_a_case": 600, **plan})
        made.order.seed(1)
        result = made._case(case, name, lambda *_: None)
        return [ran[i : i + len(contenders)] for i in range(0, len(ran), len(contenders))], result.rounds

    return play


def alike(name, number):
    return 10.0


def scattered(name, number):
    return 10.0 + (7 * number + len(name)) % 5


def test_each_round_has_every_allocator_in_an_order_of_its_own(rounds):
    ran, _ = rounds(scattered, most_rounds=20)
    assert {tuple(sorted(names)) for names in ran} == {("masu", "masu-again", "other", "system")}
    assert {names[0] for names in ran} == {"masu", "masu-again", "other", "system"}
    assert len({tuple(names) for names in ran}) > 10


@pytest.mark.parametrize(
    ("figure", "plan", "count"),
    [
        (alike, {}, 5),  # tight as soon as there is an interval
        (scattered, {"most_rounds": 9}, 9),
        (scattered, {"seconds_a_case": 1e-9}, 5),  # time is up, but fewer have no interval
    ],
)
def test_rounds_end_when_it_is_tight_or_time_is_up(rounds, figure, plan, count):
    ran, measured = rounds(figure, **plan)
    assert (len(ran), measured) == (1 + count, count)  # with the warm-up


def test_another_masu_is_a_rival_whose_ratio_has_to_be_tight(rounds):
    def figure(name, number):
        return {"masu": 10, "masu-again": 10, "system": 30}.get(name) or 5.0 + number % 3

    assert rounds(figure, contenders=("masu", "masu-again", "system", "masu-old"), most_rounds=8)[1] == 8


def test_a_quick_run_has_a_row_of_each_family():
    quick = session.chosen("", True)
    assert {c.family for c in quick} == {c.family for c in cases.ALL}
    freed = next(c for c in quick if c.family == "memory over time")
    assert freed.rounds == 2 and freed.command == freed.short and session.chosen(freed.name, False)[0].rounds == 5


def test_cases_that_wait_run_two_processes_for_each_core_at_once(rounds, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    together = threading.Barrier(4, timeout=60)  # broken when they come one by one

    def figure(name, number):
        together.wait()
        return alike(name, number)

    ran, measured = rounds(figure, case=replace(CASE, rounds=2, waits=True))
    assert measured == 2 and [len(set(names)) for names in ran] == [4, 4]


def test_cases_of_so_many_rounds_have_those_and_no_warm_up(rounds):
    assert [len(rounds(alike, case=replace(CASE, rounds=2))[0]), len(rounds(alike, name="it, huge pages off")[0])] == [2, 5]


PROGRAM = cases.Case("it", "real programs", ("sh", "-c", 'echo "$LD_PRELOAD"'), (cases.STEADY,), program=True)


@pytest.mark.parametrize(("script", "what"), [('echo "$LD_PRELOAD"', "output"), ('echo "$LD_PRELOAD" >/dev/null', "file"),
                                              ('test -z "$LD_PRELOAD" || exit 0; echo right', "output")])  # fmt: skip
def test_another_answer_than_on_the_systems_allocator_is_missing(runner, library, script, what):
    case = replace(PROGRAM, command=("sh", "-c", script))
    contenders = [Contender("system", SYSTEM), Contender("same", Allocator("same")), Contender("other", Allocator("other", Path(library)))]
    result = runner(*contenders, most_rounds=2)._case(case, "it", lambda *_: None)
    assert set(result.values) == {"system", "same"} and set(result.right) == {what}
    assert result.missing["other"].startswith(f"{what} differs: ")


def test_what_is_never_the_same_is_no_answer(runner, library):
    case = replace(PROGRAM, command=("date", "+%N"))
    contenders = [Contender("system", SYSTEM), Contender("other", Allocator("other", Path(library)))]
    result = runner(*contenders, most_rounds=3)._case(case, "it", lambda *_: None)
    assert set(result.values) == {"system", "other"} and not result.missing and not result.right


# A pair takes seven instructions.
SEVEN = r"""
static _Alignas(16) char memory[1 << 28];
__attribute__((visibility("hidden"))) char *next = memory;
__asm__(".globl malloc, free\n"
        "malloc: add $15, %rdi\n and $-16, %rdi\n mov next(%rip), %rax\n add %rax, %rdi\n mov %rdi, next(%rip)\n ret\n"
        "free: ret\n");
void *malloc(unsigned long);
void *calloc(unsigned long a, unsigned long b) { return malloc(a * b); }
void *realloc(void *p, unsigned long n) {
  char *new = malloc(n);
  for (unsigned long i = 0; p && i < n; i++)
    new[i] = ((char *)p)[i];
  return new;
}
"""


def test_what_is_inlined_has_no_instructions_outside_of_the_program(runner, monkeypatch):
    monkeypatch.setattr(counted, "system_calls", lambda *_: {})
    monkeypatch.setattr(counted, "instructions", lambda *_: 20.0)
    pairs = next(c for c in cases.ALL if c.name == "pairs-live1")
    result = run.Measured("pairs-live1")
    for name in ("masu", "inline"):
        contender = Contender(name, Allocator(name))
        runner(contender)._count(pairs, pairs.name, contender, result)
    assert {name: "instructions" in found for name, found in result.counted.items()} == {"masu": True, "inline": False}


def test_the_hit_path_is_disassembled(library, tmp_path):
    tool("objdump")
    text = "void *malloc(unsigned long n) { return (void *)n; }\nvoid other(void);\nvoid free(void *p) { other(); *(int *)p = 1; }\n"
    short = compiled(tmp_path, "short", text)
    assert hit_path.lengths(short) == {"malloc": 2}  # a move and a return; free has a call
    assert {name: 5 < length < most for (name, length), most in zip(hit_path.lengths(Path(library)).items(), (15, 21))} == {"malloc": True, "free": True}


def test_instructions_are_exact(tmp_path):
    tool("valgrind")
    command = [str(session.workloads() / "pairs"), "64", "live1", "1"]
    assert counted.instructions(command, Allocator("seven", compiled(tmp_path, "seven", SEVEN)), {}) == pytest.approx(7, abs=0.01)


@pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis-server")
def test_redis_says_what_it_reads_back():
    program = Path(session.__file__).parent / "programs/redis.py"
    spec = importlib.util.spec_from_file_location("redis_case", program)
    redis = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(redis)
    right = hashlib.sha256(b"+OK\r\n" * 1000 + b"".join(b"$200\r\n%s\r\n" % value for value in redis.values())).hexdigest()
    output = subprocess.run([sys.executable, program], check=True, capture_output=True, text=True).stdout
    assert run.own_figures(output)["digest"] == right[:16]


@pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis-server")
def test_redis_runs_on_the_systems_allocator(tmp_path):
    program = Path(session.__file__).parent / "programs/redis.py"
    environment = {**os.environ, "LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(tmp_path / "bindings")}
    environment.pop("LD_PRELOAD", None)
    subprocess.run([sys.executable, program], env=environment, check=True, stdout=subprocess.DEVNULL)
    found = {line.split(" to ")[1].split()[0] for path in tmp_path.glob("bindings.*") for line in path.read_text().splitlines()
             if "binding file redis-server " in line and "symbol `malloc'" in line}  # fmt: skip
    assert [Path(library).name for library in found] == ["libc.so.6"]
