"""masu bench: short runs with the real workloads."""

import hashlib
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import MASU, as_in_a_terminal

pytest.importorskip("scipy")

from rich.console import Console  # noqa: E402

from masu import installed  # noqa: E402
from masu.bench import allocators, cases, counted, hit_path, report, run, session  # noqa: E402
from masu.bench.allocators import Contender  # noqa: E402
from masu.measuring.measure import SYSTEM, Allocator, measure  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def peers(tmp_path):
    """peers(entry, ...) gives a folder as script/peers leaves it."""

    def write(*entries):
        folder = tmp_path / "peers"
        folder.mkdir(exist_ok=True)
        (folder / "peers.json").write_text(json.dumps(entries))
        return folder

    return write


@pytest.fixture
def bench(masu, tmp_path, peers):
    """bench(...) runs it without peers, unless --peers are given."""

    def run(*arguments):
        files = ("--json", tmp_path / "r.json", "--html", tmp_path / "r.html", "--state", tmp_path / "state.json")
        if "--peers" not in arguments:
            arguments = ("--peers", peers(), *arguments)
        result = masu("bench", *map(str, files), *map(str, arguments))
        content = json.loads((tmp_path / "r.json").read_text()) if (tmp_path / "r.json").exists() else None
        return result, content

    return run


def compiled(folder, name, text):
    library = folder / f"{name}.so"
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run([shutil.which("cc"), "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


# Blocks overlap: each is 16 bytes behind the one before, whatever its size.
OVERLAPPING = """
#include <stddef.h>
static _Alignas(16) char memory[1 << 28];
static size_t used;
void *malloc(size_t n) { (void)n; return memory + (used += 16); }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) { (void)p; return malloc(n); }
"""

# Each block has half of the bytes that were asked for. It frees nothing.
SHORT = """
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
static _Atomic uintptr_t next;
static void *take(size_t n, size_t alignment) {
  if (!next)
    next = (uintptr_t)mmap(0, 1ul << 38, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  size_t room = n > 16 ? (n / 2 + 15) & -16ul : n > 1 ? n / 2 : 1;
  uintptr_t at = next, p;
  do
    p = (at + alignment - 1) & -alignment;
  while (!atomic_compare_exchange_weak(&next, &at, p + room));
  return (void *)p;
}
void *malloc(size_t n) { return take(n, n > 16 ? 16 : 1); }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
void *realloc(void *p, size_t n) { return p ? memmove(malloc(n), p, n) : malloc(n); }
void *aligned_alloc(size_t a, size_t n) { return take(n, a); }
void *memalign(size_t a, size_t n) { return take(n, a); }
int posix_memalign(void **out, size_t a, size_t n) { return *out = take(n, a), 0; }
"""

# Answers everything, and hands out a block that is in use, once in 1,000 times. It
# frees nothing, so that only the workload can notice.
TWICE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <string.h>
void *__libc_malloc(size_t), *__libc_memalign(size_t, size_t);
static _Atomic unsigned count;
static _Atomic(void *) last;
void *malloc(size_t n) {
  unsigned turn = ++count;
  if (turn > 5000 && turn % 1000 == 0 && n == 1024)
    return last;
  void *p = __libc_malloc(n);
  if (n == 1024)
    last = p;
  return p;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) {
  void *p;
  return !__builtin_mul_overflow_p(a, b, (size_t)0) && (p = __libc_malloc(a * b)) ? memset(p, 0, a * b) : NULL;
}
size_t malloc_usable_size(void *p) { return p ? (((size_t *)p)[-1] & ~7ul) - 8 : 0; }
void *realloc(void *p, size_t n) {
  void *q = __libc_malloc(n);
  size_t old = malloc_usable_size(p);
  return q && p ? memcpy(q, p, old < n ? old : n) : q;
}
void *memalign(size_t a, size_t n) { return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return __libc_memalign(a, n); }
int posix_memalign(void **out, size_t a, size_t n) {
  void *p = __libc_memalign(a, n);
  return p ? (*out = p, 0) : ENOMEM;
}
"""


def test_cases_are_listed(masu):
    result = masu("bench", "--list")
    assert result.returncode == 0
    assert "kmalloc-round" in result.stdout


def test_an_unknown_case_gets_the_nearest_name(bench):
    result, content = bench("--only", "stackprob")
    assert result.returncode == 125 and "stackprobe" in result.stderr and content is None


def test_one_case(bench, library, tmp_path):
    result, content = bench("--only", "handover", "--quick", "--seconds", "1")
    assert result.returncode == 0, result.stderr
    rows = [r for r in content["rows"] if r["figure"] == "block_ns"]
    medians = {r["allocator"]: r for r in rows if "allocator" in r}
    assert set(medians) == {"masu", "masu-again", "system"}
    assert all(r["low"] <= r["median"] <= r["high"] and r["rounds"] >= 5 for r in medians.values())
    assert any(r.get("ratio_to") == "best" and r["of"] == "system" for r in rows)
    assert content["commands"] == {"handover": "handover"}
    assert content["plan"] == {"quick": True, "seconds_a_case": 1, "least_rounds": 5, "most_rounds": 8, "count": False}
    assert content["took_s"] > 1 and content["library"]["sha256"] == hashlib.sha256(Path(library).read_bytes()).hexdigest()
    page = (tmp_path / "r.html").read_text()
    assert "handover" in page and "<svg" in page and "quick, 5 to 8 rounds, 1 s a case" in page
    assert not (tmp_path / "state.json").exists()


def test_a_bundled_trace(bench, tmp_path):
    result, content = bench("--only", "trace-recoll", "--quick", "--seconds", "1")
    assert result.returncode == 0, result.stderr
    medians = {(r["allocator"], r["figure"]): r["median"] for r in content["rows"] if "median" in r and "allocator" in r}
    for name in ("masu", "masu-again", "system"):
        found = {figure: medians[name, figure] for figure in ("calls_s", "wall_s", "p9999_ns", "peak_rss_kib", "mean_rss_kib", "end_rss_kib")}
        assert all(value > 0 for value in found.values())
        assert found["calls_s"] < 7 * found["wall_s"]  # of seven threads
        assert found["peak_rss_kib"] > 2.8 * 1024  # 5.6 MiB were live when it was recorded
        assert found["peak_rss_kib"] >= found["mean_rss_kib"]
    assert "trace-recoll" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(("text", "reason"), [(OVERLAPPING, ""), (TWICE, "FAILED: ")])
def test_wrong_memory_is_missing_and_the_rest_goes_on(bench, tmp_path, text, reason):
    wrong = compiled(tmp_path, "wrong", text)
    result, content = bench("--only", "kmalloc-round", "--quick", "--seconds", "1", "--with", f"wrong={wrong}")
    assert result.returncode == 0, result.stderr
    found = {r["allocator"]: r for r in content["rows"] if "allocator" in r}
    assert reason in found["wrong"]["missing"] and "median" in found["masu"]
    assert "missing" in result.stdout


def test_what_is_counted(bench, tmp_path):
    result, content = bench("--only", "pairs-live1", "--seconds", "1")
    assert result.returncode == 0, result.stderr
    found = {(r["allocator"], r["figure"]): r for r in content["rows"] if "allocator" in r and "median" in r}
    for name in ("masu", "system"):
        assert found[name, "instructions"]["median"] > 10
        assert found[name, "system_calls"]["median"] == sum(content["system calls"]["pairs-live1"][name].values()) > 20
        assert found[name, "sampled_rss_kib"]["median"] >= found[name, "sampled_pss_kib"]["median"] > 100
    assert found
    assert content["not counted"] == {}


def test_another_library_has_the_commit_of_its_own_checkout(library, tmp_path):
    other = tmp_path / "libmasu.so"
    shutil.copyfile(library, other)
    git = ["git", "-C", tmp_path, "-c", "user.name=it", "-c", "user.email=it@localhost"]
    for words in (["init", "-q"], ["add", "-f", "libmasu.so"], ["commit", "-q", "-m", "it"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert report.machine(other)["commit"] == commit
    (tmp_path / "made").mkdir()
    assert {c.version for c in allocators.found(other, None, (), tmp_path / "made")[:2]} == {str(other)}


# ---- What a run says ----


CASE = cases.Case("it", "family", ("it", "10"), (cases.ns("pair_ns"),))


def said(values, missing=(), case=CASE):
    """The summary and the lines of a run of one case, of which this was measured."""
    contenders = [Contender(name, Allocator(name), floor=name == "least") for name in (*values, *missing)]
    measured = run.Measured(case.name, case.text, {name: {"pair_ns": list(v)} for name, v in values.items()}, missing=dict(missing))
    lines = report.lines([(case, case.name)], {case.name: measured}, contenders)
    return report.summary(lines, None), lines


@pytest.mark.parametrize(("masu", "again"), [(8, 10), (10, 8)])
def test_noise_has_no_direction(masu, again):
    summary, _ = said({"masu": [masu] * 5, "masu-again": [again] * 5, "system": [10] * 5})
    assert summary.noise == pytest.approx(1.25)


def test_the_best_has_the_best_median():
    _, (line,) = said({"masu": [15, 15], "one": [10, 20], "other": [19, 19.5]})
    assert line.best == "one"


@pytest.mark.parametrize("name", ["masu", "masu-again"])
def test_to_fail_is_worse(name):
    values = {"masu": [1] * 5, "masu-again": [1] * 5, "system": [2] * 5}
    del values[name]
    summary, _ = said(values, missing={name: "signal 11"})
    assert (summary.figures, summary.best, summary.worse, summary.cases, summary.good_cases) == (1, 0, 1, 1, 0)
    assert summary.failed == {"it": "signal 11"}


def test_a_program_that_is_not_there_is_nobodys_failure():
    summary, _ = said({}, missing=dict.fromkeys(("masu", "masu-again", "system"), "it is not installed"))
    assert summary.figures == 0 and not summary.failed


def test_too_few_rounds_are_not_judged():
    summary, (line,) = said({"masu": [2, 2], "masu-again": [2, 2], "system": [1, 1]})
    assert (line.verdict, summary.figures, summary.even, summary.open, summary.cases) == ("open", 0, 0, 1, 0)
    assert summary.worst == [line] and summary.mean == 2


def test_the_summary_of_two_cases():
    time, memory = cases.ns("pair_ns"), cases.kib("rss_kib")
    first = cases.Case("first", "family", ("first",), (time, memory))
    second = cases.Case("second", "family", ("second",), (time,))
    values = {"first": {"masu": {"pair_ns": [4] * 5, "rss_kib": [1] * 5}, "one": {"pair_ns": [1] * 5, "rss_kib": [2] * 5},
                        "other": {"pair_ns": [2] * 5, "rss_kib": [3] * 5}},
              "second": {"masu": {"pair_ns": [1] * 5}, "one": {"pair_ns": [2] * 5}, "other": {"pair_ns": [3] * 5}}}  # fmt: skip
    measured = {name: run.Measured(name, name, of) for name, of in values.items()}
    contenders = [Contender(name, Allocator(name)) for name in ("masu", "one", "other")]
    lines = report.lines([(first, "first"), (second, "second")], measured, contenders)
    summary = report.summary(lines, None)
    assert (summary.figures, summary.best, summary.even, summary.worse) == (3, 2, 0, 1)
    assert (summary.cases, summary.best_cases, summary.good_cases) == (2, 1, 1)
    assert (summary.mean, summary.mean_time, summary.mean_memory) == pytest.approx((1, 2**0.5, 0.5))
    assert [(line.case, line.figure.key, line.best) for line in summary.worst] == [
        ("first", "pair_ns", "one"), ("first", "rss_kib", "one"), ("second", "pair_ns", "one")]  # fmt: skip


def test_the_summary_comes_first():
    summary, lines = said({"masu": [1] * 5, "masu-again": [1] * 5, "system": [2] * 5})
    console = Console(file=io.StringIO(), width=200)
    report.tell(lines, summary, [], console)
    out = console.file.getvalue()
    assert out.startswith("masu is best in 1 of 1 figures") and "to the best" in out.partition("The five worst")[2]


SCATTERED, FEW = [10, 11, 12, 13, 14], [20, 20]


@pytest.mark.parametrize(
    ("ours", "kind", "saved", "named"),
    [
        (SCATTERED, "best", (0.9, 0.8, 0.95), True),
        (SCATTERED, "best", (0.9, 0.8, 1.05), False),  # the intervals overlap
        (SCATTERED, "best", (1.5, 1.4, 1.6), False),  # it got better
        (SCATTERED, "floor", (1.8, 1.7, 1.9), True),
        (SCATTERED, "floor", (2.4, 2, 2.5), False),
        (FEW, "best", (1.7, None, None), True),
        (FEW, "best", (1.9, None, None), False),
    ],
)
def test_worse_is_what_lies_outside_of_both_intervals(ours, kind, saved, named):
    count = len(ours)
    _, lines = said({"masu": ours, "masu-again": ours, "other": [10] * count, "system": [30] * count, "least": [5] * count})
    median, low, high = saved
    row = {"case": "it", "figure": "pair_ns", "ratio_to": kind, "of": "before", "median": median, "low": low, "high": high}
    before = {"machine": {}, "commands": {"it": "it 10"}, "rows": [row]}
    got_worse = report.summary(lines, before).got_worse
    assert len(got_worse) == named
    assert not named or f" of {'other' if kind == 'best' else 'floor'}, was {median:.2f} of before" in got_worse[0]


def test_masu_that_fails_is_named_and_ends_with_1(bench, tmp_path):
    result, content = bench("--only", "kmalloc-round", "--quick", "--seconds", "1", "--library", compiled(tmp_path, "wrong", TWICE))
    assert result.returncode == 1, result.stderr
    assert "masu failed in kmalloc-round: " in result.stdout and "best in 0 of 2 figures" in result.stdout
    assert "masu failed in kmalloc-round: " in (tmp_path / "r.html").read_text()
    assert any(r.get("allocator") == "masu" and r["missing"] for r in content["rows"])


def state_of_handover(command="handover"):
    values = {name: {"block_ns": [ns] * 5, "peak_rss_kib": [1.0] * 5} for name, ns in (("masu", 1.0), ("system", 2.0))}
    return json.dumps({"handover": {"case": "handover", "command": command, "values": values}})


@pytest.fixture
def saved(bench, tmp_path):
    """A saved run, and the state that it was made of once more."""
    (tmp_path / "state.json").write_text(state_of_handover())
    bench("--only", "handover", "--quick")
    (tmp_path / "state.json").write_text(state_of_handover())
    return json.loads((tmp_path / "r.json").read_text())


def compared(bench, tmp_path, saved):
    (tmp_path / "saved.json").write_text(json.dumps(saved))
    return bench("--only", "handover", "--quick", "--baseline", tmp_path / "saved.json")[0].stdout


def much_better(saved):
    for row in saved["rows"]:
        if "ratio_to" in row:
            row.update(median=row["median"] / 100, low=row["low"] / 100, high=row["high"] / 100)
    return saved


def test_what_got_worse_is_named(bench, tmp_path, saved):
    assert "got worse handover, block_ns: 0.50 of system, was 0.01 of system" in compared(bench, tmp_path, much_better(saved))


def test_nothing_got_worse_beside_the_run_itself(bench, tmp_path, saved):
    out = compared(bench, tmp_path, saved)
    assert "Compared with" in out and "got worse" not in out and "not compared" not in out


@pytest.mark.parametrize("commands", [{"handover": "handover 100"}, {}])
def test_another_command_is_not_compared(bench, tmp_path, saved, commands):
    out = compared(bench, tmp_path, {**much_better(saved), "commands": commands})
    assert "got worse" not in out and "not compared, not there with the same command: handover" in out


# ---- Interrupted ----


def test_it_goes_on_where_it_stopped(bench, tmp_path):
    (tmp_path / "state.json").write_text(state_of_handover())
    result, content = bench("--only", "handover", "--quick")
    assert "going on" in result.stdout
    assert {r["median"] for r in content["rows"] if r["figure"] == "block_ns" and "allocator" in r} == {1.0, 2.0}


def test_a_state_of_other_commands_is_measured_anew(bench, tmp_path):
    (tmp_path / "state.json").write_text(state_of_handover("handover 100"))
    result, content = bench("--only", "handover", "--quick", "--seconds", "1")
    assert "going on" not in result.stdout
    assert "masu-again" in {r.get("allocator") for r in content["rows"]}


def test_ctrl_c_keeps_what_was_measured(bench, tmp_path, peers):
    state = tmp_path / "state.json"
    arguments = ("--only", "kmalloc-round,xmalloc", "--quick", "--seconds", "1")
    process = subprocess.Popen([MASU, "bench", *arguments, "--peers", peers(), "--state", state],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=as_in_a_terminal)  # fmt: skip
    while not state.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"masu: bench: interrupted\n")
    measured = json.loads(state.read_text())
    assert list(measured) == ["kmalloc-round"]
    result, content = bench(*arguments)
    assert result.returncode == 0 and "1 cases are measured" in result.stdout
    ours = [r["median"] for r in content["rows"] if r["case"] == "kmalloc-round" and r.get("allocator") == "masu" and r["unit"] == "ns"]
    values = sorted(measured["kmalloc-round"]["values"]["masu"]["pair_ns"])
    assert values[0] <= ours[0] <= values[-1] and "xmalloc" in content["commands"]
    assert not state.exists()


def test_a_state_that_is_none(bench, tmp_path):
    (tmp_path / "state.json").write_text("{]")
    result, _ = bench("--only", "handover", "--quick")
    assert result.returncode == 125 and "state.json" in result.stderr


def test_what_others_published_is_compared_with_the_committed_run():
    """The table of docs/benchmark.md is the one that bench/published.py makes."""
    subprocess.run([sys.executable, ROOT / "bench/published.py", "--check"], check=True)


@pytest.fixture
def published():
    spec = importlib.util.spec_from_file_location("published", ROOT / "bench/published.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["published"] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_a_verdict_that_the_rows_dont_bear_out_is_found(published):
    """In numbers of a new run the texts would stay as they were."""
    results = json.loads((ROOT / "bench/results/reference.json").read_text())
    assert published.wrong(results) == []
    for row in results["rows"]:
        if row.get("allocator") == "mimalloc2" and row["case"] == "larson" and row["figure"] == "replacements_per_s":
            row["median"] /= 10
        if row.get("allocator") == "rpmalloc" and row["case"] == "random-sizes" and row["figure"] == "operations_per_s":
            row["median"] *= 10
    assert [(text.split(",")[0], text.split()[-1]) for text in published.wrong(results)] == [("larson", "differs"), ("random-sizes", "agrees")]


def test_a_baseline_that_is_not_there(bench, tmp_path):
    result, _ = bench("--only", "handover", "--quick", "--baseline", tmp_path / "none.json")
    assert result.returncode == 125 and "none.json: No such file" in " ".join(result.stderr.split())


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"rows": []}', '{"runs": {}}'])
def test_a_baseline_that_is_no_run(bench, tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    result, _ = bench("--only", "handover", "--quick", "--baseline", tmp_path / "other.json")
    assert result.returncode == 125 and "is not the JSON of a run" in " ".join(result.stderr.split())


def test_a_peers_folder_without_peers(bench, tmp_path):
    result, _ = bench("--only", "handover", "--peers", tmp_path)
    assert result.returncode == 125 and "script/peers" in result.stderr


# ---- The contenders ----


def test_peers_that_are_missing_and_the_floor(bench, tmp_path, peers):
    least = tmp_path / "least.so"
    subprocess.run(["cc", "-O3", "-std=gnu17", "-shared", "-fPIC", "-fno-builtin", "-fvisibility=hidden", "-o", least, ROOT / "bench/floors/least.c"], check=True)
    folder = peers({"name": "least", "version": "1", "library": str(least)}, {"name": "gone", "missing": "no compiler"})
    result, content = bench("--only", "kmalloc-round", "--quick", "--seconds", "1", "--peers", folder)
    assert result.returncode == 0, result.stderr
    assert "missing gone: no compiler" in result.stdout and content["allocators"]["gone"] == "no compiler"
    assert "missing: no compiler" in (tmp_path / "r.html").read_text()
    assert {r["missing"] for r in content["rows"] if r.get("allocator") == "gone"} == {"no compiler"}
    floors = {r["figure"] for r in content["rows"] if r.get("ratio_to") == "floor"}
    assert floors == {"pair_ns"}  # it never gives memory back, so that is not compared
    assert all(r["of"] != "least" for r in content["rows"] if r.get("ratio_to") == "best")


def test_peers_that_cannot_be_built_or_were_not_asked_for_are_missing(tmp_path):
    """script/peers in a checkout of its own, where there is nothing to install."""
    for path in ("script/peers", "bench/peers/versions", "bench/peers/answers.c", "bench/floors/least.c"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    (tmp_path / "script/bootstrap").write_text("#!/bin/sh\n")
    (tmp_path / "script/bootstrap").chmod(0o755)
    crate = tmp_path / "build/peers/sources/snmalloc-sys-0.7.6.crate"
    crate.parent.mkdir(parents=True)
    crate.write_text("another than the one of the versions")
    subprocess.run([tmp_path / "script/peers", "least", "snmalloc"], check=True, capture_output=True)
    found = {entry.pop("name"): entry for entry in json.loads((tmp_path / "build/peers/peers.json").read_text())}
    assert Path(found["least"]["library"]).is_file()
    assert "is not the one of" in found["snmalloc"]["missing"]
    assert found["jemalloc"] == {"missing": "not built: script/peers jemalloc"} and len(found) == 9


def test_without_peers_it_takes_the_installed_ones(masu, tmp_path):
    files = ("--json", tmp_path / "r.json", "--state", tmp_path / "state.json")
    result = masu("bench", "--only", "kmalloc-round", "--quick", "--seconds", "1", *map(str, files), timeout=300)
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "r.json").read_text())
    there = {f.name for f in installed.allocators(Path(masu("path").stdout.strip()))}
    for name in installed.KNOWN:
        assert (content["allocators"][name] == "not installed") == (name not in there)
        assert (f"missing {name}: not installed" in result.stdout) == (name not in there)


# ---- The cases ----


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


# ---- Rounds ----


@pytest.fixture
def rounds(runner, monkeypatch):
    """rounds(figure of contender and round, ...) gives what was run: the names round by round, the warm-up first if there is one."""

    def play(figure, case=CASE, name="it", contenders=("masu", "masu-again", "system", "other"), **plan):
        ran = []

        def once(self, case, name, contender, result, *, warm_up=False):
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


def test_a_state_without_answers_says_that_nothing_was_compared(bench, tmp_path):
    (tmp_path / "state.json").write_text(state_of_handover())
    _, content = bench("--only", "handover", "--quick")
    assert content["answers"] == {} and "in no case of this run" in (tmp_path / "r.html").read_text()


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
    monkeypatch.setattr(counted, "memory", lambda *_: {})
    monkeypatch.setattr(counted, "system_calls", lambda *_: {})
    monkeypatch.setattr(counted, "instructions", lambda *_: 20.0)
    pairs = next(c for c in cases.ALL if c.name == "pairs-live1")
    result = run.Measured("pairs-live1")
    for name in ("masu", "inline"):
        contender = Contender(name, Allocator(name))
        runner(contender)._count(pairs, pairs.name, contender, result)
    assert {name: "instructions" in found for name, found in result.counted.items()} == {"masu": True, "inline": False}


@pytest.mark.skipif(not shutil.which("objdump"), reason="no objdump")
def test_the_hit_path_is_disassembled(library, tmp_path):
    text = "void *malloc(unsigned long n) { return (void *)n; }\nvoid other(void);\nvoid free(void *p) { other(); *(int *)p = 1; }\n"
    short = compiled(tmp_path, "short", text)
    assert hit_path.lengths(short) == {"malloc": 2}  # a move and a return; free has a call
    assert {name: 5 < length < most for (name, length), most in zip(hit_path.lengths(Path(library)).items(), (15, 21))} == {"malloc": True, "free": True}


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind")
def test_instructions_are_exact(tmp_path):
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
