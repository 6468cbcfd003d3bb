"""masu bench: short runs with the real workloads."""

import hashlib
import importlib.util
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benching import CASE, OVERLAPPING, TWICE
from conftest import MASU, as_in_a_terminal, compiled
from rich.console import Console

from masu import installed
from masu.bench import allocators, cases, report, run
from masu.bench.allocators import Contender
from masu.measuring.measure import Allocator
from masu.messages import Problem

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
    ours = content["values"]["handover"]["masu"]["block_ns"]
    assert len(ours) == medians["masu"]["rounds"] and min(ours) <= medians["masu"]["median"] <= max(ours)
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
        found = {figure: medians[name, figure] for figure in ("calls_s", "wall_s", "p9999_ns", "whole_peak_kib", "whole_mean_kib", "whole_end_kib")}
        assert all(value > 0 for value in found.values())
        assert found["calls_s"] < 7 * found["wall_s"]  # of seven threads
        assert found["whole_peak_kib"] > 4.3 * 1024  # 5.6 MiB were live when it was recorded; a program begins with 1.5 MiB
        assert found["whole_peak_kib"] >= found["whole_mean_kib"]
    assert "trace-recoll" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(("text", "reason"), [(OVERLAPPING, ""), (TWICE, "FAILED: ")])
def test_wrong_memory_is_missing_and_the_rest_goes_on(bench, tmp_path, text, reason):
    wrong = compiled(tmp_path, "wrong", text)
    result, content = bench("--only", "kmalloc-round", "--quick", "--seconds", "1", "--with", f"wrong={wrong}")
    assert result.returncode == 0, result.stderr
    found = {r["allocator"]: r for r in content["rows"] if "allocator" in r}
    assert reason in found["wrong"]["missing"] and "median" in found["masu"]
    assert "missing" in result.stdout


def test_an_allocator_by_the_name_that_the_loader_knows(library, tmp_path):
    found = allocators.found(Path(library), None, ("it=libstdc++.so.6",), tmp_path)
    assert found[-1].name == "it" and found[-1].allocator.library.is_file()
    with pytest.raises(Problem, match="no-such.so: no such library"):
        allocators.found(Path(library), None, ("it=no-such.so",), tmp_path)


def test_what_is_counted(bench, tmp_path):
    result, content = bench("--only", "pairs-live1", "--seconds", "1")
    assert result.returncode == 0, result.stderr
    found = {(r["allocator"], r["figure"]): r for r in content["rows"] if "allocator" in r and "median" in r}
    for name in ("masu", "system"):
        assert found[name, "instructions"]["median"] > 10
        assert found[name, "system_calls"]["median"] == sum(content["system calls"]["pairs-live1"][name].values()) > 20
        assert found[name, "sampled_rss_kib"]["median"] >= found[name, "sampled_pss_kib"]["median"] > 100
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


@pytest.mark.parametrize("said, name", [
    ("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n", "AMD EPYC (family 25, model 1)"),
    ("processor\t: 0\nBogoMIPS\t: 50.00\nCPU part\t: 0xd0c\n", "unknown"),
])  # fmt: skip
def test_processors_of_one_name_are_told_apart(tmp_path, said, name):
    (tmp_path / "cpuinfo").write_text(said)
    assert report.processor(str(tmp_path / "cpuinfo")) == name


# ---- What a run says ----


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
    assert (summary.mean, summary.mean_time, summary.mean_memory) == pytest.approx((0.5**0.25, 2**0.5, 0.5))  # by cases
    assert [(line.case, line.figure.key, line.best) for line in summary.worst] == [("first", "pair_ns", "one"), ("second", "pair_ns", "one")]


@pytest.mark.parametrize(("took_s", "said_"), [(30, "0.5 min"), (3594, "1 h 0 min"), (7196, "2 h 0 min"), (9000, "2 h 30 min")])
def test_how_long_it_took(took_s, said_):
    plan = {"quick": False, "seconds_a_case": 8, "least_rounds": 5, "most_rounds": 30}
    assert report.facts({"machine": {}, "library": {}, "programs": {}, "plan": plan, "took_s": took_s})["took"] == said_


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


def state_of_handover(command="handover", of=""):
    values = {name: {"block_ns": [ns] * 5, "peak_rss_kib": [1.0] * 5} for name, ns in (("masu", 1.0), ("system", 2.0))}
    return json.dumps({"handover": {"case": "handover", "command": command, "values": values, "of": of}})


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


@pytest.mark.parametrize("cpu", ["Another Processor, 64 cores", "", None])
def test_a_saved_run_on_other_processors_is_told(bench, tmp_path, saved, cpu):
    ours = saved["machine"]["cpu"]
    saved["machine"].update({"cpu": cpu} if cpu else {})
    if cpu is None:
        del saved["machine"]["cpu"]  # not known
    line = f"Different processors: {cpu} then, {ours} now." if cpu else "Different processors"
    out = " ".join(compared(bench, tmp_path, saved).split())
    assert (line in out) == (line in (tmp_path / "r.html").read_text()) == bool(cpu)


@pytest.mark.parametrize("commands", [{"handover": "handover 100"}, {}])
def test_another_command_is_not_compared(bench, tmp_path, saved, commands):
    out = compared(bench, tmp_path, {**much_better(saved), "commands": commands})
    assert "got worse" not in out and "not compared, not there with the same command and the allocator that was best: handover" in " ".join(out.split())


def test_a_best_that_is_missing_now_is_named(bench, tmp_path, saved):
    for row in much_better(saved)["rows"]:
        if row.get("ratio_to") == "best":
            row["of"] = "gone"
    assert "the allocator that was best: handover" in " ".join(compared(bench, tmp_path, saved).split())


# ---- Interrupted ----


def test_it_goes_on_where_it_stopped(bench, tmp_path):
    (tmp_path / "state.json").write_text(state_of_handover())
    result, content = bench("--only", "handover", "--quick")
    assert "going on" in result.stdout
    assert {r["median"] for r in content["rows"] if r["figure"] == "block_ns" and "allocator" in r} == {1.0, 2.0}


@pytest.mark.parametrize("state", [state_of_handover("handover 100"), state_of_handover(of="another library"),
                                   state_of_handover().replace("block_ns", "another_ns")])  # fmt: skip
def test_a_state_of_what_is_not_the_same_is_measured_anew(bench, tmp_path, state):
    (tmp_path / "state.json").write_text(state)
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


def test_a_state_without_answers_says_that_nothing_was_compared(bench, tmp_path):
    (tmp_path / "state.json").write_text(state_of_handover())
    _, content = bench("--only", "handover", "--quick")
    assert content["answers"] == {} and "in no case of this run" in (tmp_path / "r.html").read_text()


def test_a_state_that_is_none(bench, tmp_path):
    (tmp_path / "state.json").write_text("{]")
    result, _ = bench("--only", "handover", "--quick")
    assert result.returncode == 125 and "state.json" in result.stderr


def test_what_others_published_is_compared_with_the_committed_run():
    """The table of docs/benchmark.md is the one that bench/published.py makes."""
    subprocess.run([sys.executable, ROOT / "bench/published.py", "--check"], check=True)


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"bench/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def published():
    return script("published")


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


def test_the_targets_are_compared_with_the_committed_run():
    """The table of docs/targets.md is the one that bench/targets.py makes."""
    subprocess.run([sys.executable, ROOT / "bench/targets.py", "--check"], check=True)


def test_which_targets_a_run_reaches():
    targets = script("targets")

    def rounds(median):
        return [median * part for part in (0.99, 0.995, 1, 1.005, 1.01)]

    def case(key, **medians):
        return {name.replace("_", "-"): {key: rounds(median)} for name, median in medians.items()}

    run = targets.Run({
        "rows": [],
        "values": {
            "pairs-live1": case("pair_ns", masu=3.0, masu_again=2.0, system=6.0, jemalloc=2.5, least=1.0),
            "pairs-lifo100": case("pair_ns", masu=3.0, system=6.0, jemalloc=3.01),
            "larson": {**case("replacements_per_s", system=50.0), "masu": {"replacements_per_s": rounds(100.0), "peak_rss_kib": rounds(1200)},
                       "jemalloc": {"replacements_per_s": rounds(80.0), "peak_rss_kib": rounds(1000)},
                       "tbb": {"replacements_per_s": rounds(50.0), "peak_rss_kib": rounds(500)}},
            "freed-whole": {"masu": {"rss_full_kib": rounds(1000), "rss_little_kib": rounds(40), "rss_none_kib": rounds(300)}},
        },
    })  # fmt: skip
    pairs = list(targets.best(1.0, "pairs-*")(run))
    assert [(f.case, f.of, f.reached) for f in pairs] == [("pairs-live1", "jemalloc", False), ("pairs-lifo100", "jemalloc", True)]
    assert pairs[0].value.median == pytest.approx(1.2)  # its own copy and the floor are no rivals
    (least,) = targets.to("least", 1.15, "pairs-*")(run)
    assert least.value.median == pytest.approx(3) and not least.reached
    (larson,) = targets.best(0.95, "larson")(run)
    assert larson.value.median == pytest.approx(0.8) and larson.reached  # more is better there
    (small,) = targets.smallest_of_the_fast(run)
    assert small.of == "jemalloc" and small.value.median == pytest.approx(1.2) and not small.reached  # tbb is small, and slow
    freed = list(targets.within(0.05, "rss_full_kib", "freed-whole", keys=targets.AFTER)(run))
    assert [(f.value.median, f.reached) for f in freed] == [(pytest.approx(0.04), True), (pytest.approx(0.3), False)]


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
