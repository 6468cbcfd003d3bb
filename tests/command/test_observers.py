"""script/bench-observers and script/soak-observers: short runs, and what they make of what others write."""

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("scipy")

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from masu import live, profile, profile_live  # noqa: E402
from observers import calls, compare, contenders, published, results, running, sites, soak, tables  # noqa: E402
from observers.contenders import Contender  # noqa: E402
from observers.programs import Program, cases_of_the_benchmark  # noqa: E402
from observers.results import Measured  # noqa: E402

COMPARE, SOAK = ROOT / "bench/observers/compare.py", ROOT / "bench/observers/soak.py"


@pytest.fixture
def bench(tmp_path):
    def run(*arguments):
        words = [sys.executable, COMPARE, "--json", tmp_path / "o.json", "--peers", tmp_path, *arguments]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=300)
        content = json.loads((tmp_path / "o.json").read_text()) if (tmp_path / "o.json").exists() else None
        return done, content

    return run


# ---- Real runs ----


def test_a_sampler_beside_a_second_copy(bench, tmp_path):
    done, content = bench("--quick", "--seconds", "1", "--only", "kmalloc-round", "--observers", "masu heap,masu again,masu live,jemalloc heap")
    assert done.returncode == 0, done.stderr
    rows = {row["observer"]: row for row in content["rows"]}
    for name in ("masu heap", "masu again", "masu live"):
        middle, low, high = rows[name]["time"]
        assert 0.2 < middle < 5 and rows[name]["rounds"] >= 3
        assert low <= middle <= high if rows[name]["rounds"] >= 5 else low is high is None
        assert rows[name]["seconds"] / rows[name]["seconds_without"] == pytest.approx(middle)
        assert rows[name]["kib"] > 10_000  # 10,000 blocks of 1,024 bytes
    assert rows["masu heap"]["limit"] == 1.03 and rows["masu heap"]["verdict"] in (results.HELD, results.OPEN, results.BROKEN)
    assert "not built" in rows["jemalloc heap"]["missing"]
    assert content["sites"]["named"]["masu heap"]["same"] >= 4  # all five in 93 of 100 runs: docs/decisions/0017
    for text in ("kmalloc-round", "masu again", "keeps_pages", "missing: jemalloc heap"):
        assert text in done.stdout
    assert not list(tmp_path.glob("*.state"))


def test_cases_of_the_benchmark(bench):
    done, content = bench("--cases", "--seconds", "1", "--only", "single-16,resident-100K-x-16,cache-scratch")
    assert done.returncode == 0, done.stderr
    rows = {(row["program"], row["observer"]): row for row in content["rows"]}
    assert {program for program, _ in rows} == {"single-16", "resident-100K-x-16", "cache-scratch"} and len(rows) == 6
    for program, limit in ("single-16", 1.03), ("resident-100K-x-16", 1.03), ("cache-scratch", 1.01):
        assert rows[program, "masu heap"]["limit"] == limit and rows[program, "masu heap"]["cpu_rounds"] >= 1
        assert ("process" in rows[program, "masu heap"]) == (program != "cache-scratch")
    assert "rounds" not in content
    done, content = bench("--cases", "--quick")
    assert done.returncode == 1 and "two different runs" in done.stderr


def test_short_cases_are_judged_by_what_they_time(tmp_path):
    found = {p.name: p for p in cases_of_the_benchmark(Path("/workloads"), tmp_path)}
    assert found["single-1M"].long[2:] == ("400000", "untouched") and found["single-1M"].timed and not found["threadtest"].timed
    assert found["larson"].timed
    done = running.Run(0.01, 0.01, 1000, 0, 'text\n{"pair_ns": 5, "cpu_ns": 2.5e6}\n', "", cpu=0.004)
    one = Measured("a", True, {"long": {"masu": [1.0], "masu heap": [1.0]}}, {"long": {"masu": [1], "masu heap": [1]}})
    for _ in range(8):
        one.add_together("masu", done, True)
        one.add_together("masu heap", replace(done, output='{"cpu_ns": 2.55e6}', cpu=0.005), True)
    (row,) = results.rows([one], [Contender("masu"), HEAP])
    assert row["cpu"][0] == pytest.approx(1.02) and row["process"][0] == pytest.approx(1.25) and row["verdict"] == results.HELD
    for output in "", "no figures", "[]", '{"pair_ns": 5}', '{"cpu_ns": "a"}':
        with pytest.raises(compare.Problem, match="cpu_ns"):
            one.add_together("masu", replace(done, output=output), True)


@pytest.mark.parametrize("observer", ["heaptrack", "memray", "massif"])
def test_a_tool_that_looks_at_every_allocation(bench, observer):
    there = {c.name: c.missing for c in contenders._of_the_system()}
    if there[observer]:
        pytest.skip(there[observer])
    done, content = bench("--quick", "--only", "python" if observer == "memray" else "kmalloc-round", "--observers", observer)
    assert done.returncode == 0, done.stderr
    (row,) = content["rows"]
    assert row["input"] == "short" and row["rounds"] == 1 and row["time"][0] > 1.05 and row["time"][1:] == [None, None]
    assert content["sites"]["named"][observer] == {"top": content["sites"]["truth"], "same": 5, "missing": ""}


def test_the_recorder_counts_with_who_collects(bench):
    done, content = bench("--quick", "--only", "kmalloc-round", "--observers", "masu record")
    assert done.returncode == 0, done.stderr
    (row,) = content["rows"]
    assert row["kib"] > row["kib_without"] + 10_000  # the Python program that collects


def test_an_unknown_name(bench):
    done, content = bench("--observers", "heap track")
    assert done.returncode == 1 and "there are: masu again, masu live, masu heap" in done.stderr and content is None
    done, content = bench("--quick", "--publish")
    assert done.returncode == 1 and "--publish is for all of it" in done.stderr


def test_a_redis_server(bench):
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        pytest.skip("redis is not installed")
    done, content = bench("--quick", "--seconds", "1", "--only", "redis", "--observers", "masu heap")
    assert done.returncode == 0, done.stderr
    (row,) = content["rows"]
    assert row["rounds"] >= 3 and row["kib"] > 5_000 and 0.2 < row["cpu"][0] < 5


# ---- What must not count ----


def measured_by(tmp_path, *observers):
    """echo, under these beside the system."""
    plan = compare.Plan(0.1, 1, 1, 1)
    runner = compare.Runner([Contender("system"), *observers], plan, tmp_path)
    return runner.measured(Program("echo", ("echo", "hello"), ("echo", "hello")), lambda text, part: None)


@pytest.mark.parametrize(
    ("observer", "why"),
    [
        (Contender("wrong", "system", prefix=("sh", "-c", "echo other #")), "prints something else"),
        (Contender("silent", "system", prefix=("sh", "-c", "true #")), "prints something else"),
        (Contender("failing", "system", prefix=("sh", "-c", "echo what >&2; exit 3 #")), "exit status 3: what"),
        (Contender("killed", "system", prefix=("sh", "-c", "kill -9 $$ #")), "signal 9"),
        (Contender("off", "system", writes="*.heap"), "it was not on"),
        (Contender("absent", "system", missing="is not installed"), "is not installed"),
    ],
)
def test_an_observer_that_fails_is_missing(tmp_path, observer, why):
    found = measured_by(tmp_path, observer, Contender("good", "system", prefix=("env",)))
    assert why in found.missing[observer.name] and list(found.missing) == [observer.name]
    (row, good) = results.rows([found], [Contender("system"), observer, Contender("good", "system")])
    assert "missing" in row and good["rounds"] >= 1


def test_lines_that_a_tool_adds_are_none_of_the_program(tmp_path):
    found = measured_by(tmp_path, Contender("tool", "system", prefix=("sh", "-c", 'echo starting; "$@"; echo done', "tool")))
    assert not found.missing


def test_the_allocator_itself_must_run(tmp_path):
    runner = compare.Runner([Contender("system"), Contender("good", "system")], compare.Plan(0.1, 1, 1, 1), tmp_path)
    with pytest.raises(compare.Problem, match="false on system: exit status 1"):
        runner.measured(Program("false", ("false",), ("false",)), lambda text, part: None)


def test_it_goes_on_where_it_stopped(tmp_path):
    state, all_ = tmp_path / "state", [Contender("system"), Contender("good", "system", prefix=("env",))]
    seconds = {"long": {"system": [1.0] * 5, "good": [2.0] * 5}}
    compare.write_state(state, {"known": Measured("known", False, seconds, seconds)})
    some = [Program("known", ("false",), ("false",)), Program("echo", ("echo", "a"), ("echo", "a"))]
    found, _, _ = compare.measure(all_, some, compare.Plan(0.1, 1, 1, 1), tmp_path, state, tmp_path, tables.console())
    rows = {row["program"]: row for row in results.rows(found, all_)}
    assert rows["known"]["time"][0] == 2.0 and rows["echo"]["rounds"] >= 1
    assert compare.read_state(state).keys() == {"known", "echo"}
    state.write_text("{]")
    with pytest.raises(compare.Problem, match="is no state"):
        compare.read_state(state)


# ---- What it says ----


def of(program, allocates, own, base, name="masu heap"):
    seconds = {"long": {name: own, "masu": base}}
    kib = {"long": {name: [3000.0] * len(own), "masu": [2000.0] * len(base)}}
    return Measured(program, allocates, seconds, kib, cpu={"long": {name: list(own), "masu": list(base)}})


HEAP = Contender("masu heap", "masu", "heap profile")


@pytest.mark.parametrize(
    ("own", "allocates", "verdict"),
    [
        ([1.02] * 8, True, results.HELD),
        ([1.02] * 8, False, results.BROKEN),
        ([1.05] * 8, True, results.BROKEN),
        ([1.0, 1.2] * 4, True, results.OPEN),
        ([1.0, 1.0, 1.2, 1.0, 1.2, 1.0, 1.2, 1.0], True, results.OPEN),
    ],
)
def test_a_limit_is_held_when_the_whole_interval_is_below(own, allocates, verdict):
    (row,) = results.rows([of("p", allocates, own, [1.0] * 8)], [Contender("masu"), HEAP])
    assert row["verdict"] == verdict


@pytest.mark.parametrize(("copy", "verdict"), [([1.0, 1.2] * 4, results.OPEN), ([1.0, 1.02] * 4, results.BROKEN)])
def test_a_limit_is_not_broken_where_a_copy_of_the_library_takes_as_long(copy, verdict):
    measured = of("p", True, [1.1] * 8, [1.0] * 8)
    measured.seconds["long"][contenders.AGAIN] = copy
    measured.kib["long"][contenders.AGAIN] = [2000.0] * 8
    measured.cpu["long"][contenders.AGAIN] = copy
    _, row = results.rows([measured], [Contender("masu"), Contender(contenders.AGAIN, "masu"), HEAP])
    assert row["verdict"] == verdict


def test_rounds_are_compared_in_pairs():
    """The machine was half as fast in some rounds; the sixth was not finished."""
    base = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]
    (row,) = results.rows([of("p", True, [1.02, 2.04, 1.02, 2.04, 1.02], base)], [Contender("masu"), HEAP])
    assert row["rounds"] == 5 and row["time"] == pytest.approx([1.02] * 3)


def test_a_limit_is_about_cpu_time():
    """What a program waits for is the machine's. A run from before has no other time."""
    measured = of("p", False, [1.2] * 5, [1.0] * 5)
    measured.cpu["long"]["masu heap"] = [1.005] * 5
    (row,) = results.rows([measured], [Contender("masu"), HEAP])
    assert row["verdict"] == results.HELD and row["time"][0] == 1.2 and row["cpu"][0] == pytest.approx(1.005)
    del row["cpu"]
    assert results.judged([row])[0]["verdict"] == results.BROKEN


def test_what_has_a_limit_runs_together_with_what_it_is_compared_with(tmp_path, monkeypatch):
    """At once: each waits until all five are there. On one processor, as the program says."""
    monkeypatch.setattr(compare, "MOST_ROUNDS", 7)
    everybody = tmp_path / "everybody"
    (tmp_path / "program.py").write_text(MEETING)
    plan, words = compare.Plan(600, 2, 1, 1), (sys.executable, str(tmp_path / "program.py"), str(everybody))
    all_ = [Contender("masu"), Contender("jemalloc"), Contender("other", "jemalloc"), HEAP, Contender(contenders.AGAIN, "masu")]
    runner = compare.Runner(all_, plan, tmp_path)
    monkeypatch.setattr(runner, "_together", lambda *each: (everybody.mkdir(exist_ok=True), compare.Runner._together(runner, *each)))
    found = runner.measured(Program("meeting", words, words, threads=True), lambda text, part: None)
    rows = {row["observer"]: row for row in results.rows([found], all_)}
    assert {name: (row["rounds"], row["cpu_rounds"]) for name, row in rows.items()} == {"other": (2, 2), "masu heap": (2, 7), contenders.AGAIN: (2, 7)}
    assert {path.read_text() for path in everybody.iterdir()} == {"1"} and len(list(everybody.iterdir())) == 3 * 7


def test_whose_threads_pile_up_on_one_processor_runs_in_turns(tmp_path, monkeypatch):
    """One thread starts them all, so one after the other, on all processors."""
    found = {p.name: p for p in cases_of_the_benchmark(Path("/workloads"), tmp_path)}
    assert [p.name for p in found.values() if p.in_turns] == ["larson"] and found["larson"].threads
    monkeypatch.setattr(compare, "MOST_ROUNDS", 7)
    all_ = [Contender("masu"), HEAP, Contender(contenders.AGAIN, "masu")]
    runner, started = compare.Runner(all_, compare.Plan(600, 1, 1, 1), tmp_path), []

    def once(program, length, contender, pinned=False):
        started.append((threading.get_ident(), contender.name, pinned))
        return running.Run(1, 1, 1000, 0, '{"cpu_ns": 1e9}', "", cpu=1)

    monkeypatch.setattr(runner, "_once", once)
    measured = runner.measured(found["larson"], lambda text, part: None)
    rounds = [started[i : i + 3] for i in range(6, 6 + 3 * 7, 3)]
    assert all(len({thread for thread, *_ in each}) == 1 and {name for _, name, _ in each} == {c.name for c in all_} for each in rounds)
    assert not any(pinned for *_, pinned in started) and len(measured.together["masu heap"]) == 7


@pytest.mark.parametrize("allocates, spread, enough", [(True, 0.003, True), (False, 0.0002, True), (False, 0.003, False)])
def test_rounds_end_when_the_interval_is_narrow(tmp_path, monkeypatch, allocates, spread, enough):
    """By its width: whether the limit holds, which it does in none of these, doesn't matter."""
    monkeypatch.setattr(compare, "MOST_ROUNDS", 30)
    runner, numbers = compare.Runner([Contender("masu"), HEAP], compare.Plan(600, 1, 1, 1), tmp_path), itertools.count()

    def once(program, length, contender, pinned=False):
        return running.Run(1, 1, 1000, 0, "", "", cpu=1.08 + spread * (next(numbers) % 3 - 1) if contender.of else 1)

    found = Measured("echo", allocates)
    monkeypatch.setattr(runner, "_once", once)
    runner._long(Program("echo", ("echo",), ("echo",)), found, lambda text, part: None)
    assert len(found.together["masu heap"]) == (min(compare.LOOKS) if enough else 30)


@pytest.mark.parametrize("spread, rounds", [(0.002, 12), (0.03, 25)])
def test_cases_with_wide_intervals_have_more_time(tmp_path, monkeypatch, spread, rounds):
    """By a clock that shows a second more in each round."""
    plan = compare.Plan(12, 1, 1, 1, most_seconds=25)
    runner, numbers, clock = compare.Runner([Contender("masu"), HEAP], plan, tmp_path), itertools.count(), itertools.count()

    def once(program, length, contender, pinned=False):
        return running.Run(1, 1, 1000, 0, "", "", cpu=1.02 + spread * (next(numbers) % 3 - 1) if contender.of else 1)

    found = Measured("echo", True)
    monkeypatch.setattr(compare, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(runner, "_once", once)
    runner._long(Program("echo", ("echo",), ("echo",)), found, lambda text, part: None)
    assert abs(len(found.together["masu heap"]) - rounds) <= 1


MEETING = '''
import os, pathlib, sys, time
place = pathlib.Path(sys.argv[1])
if place.is_dir():
    (place / str(os.getpid())).write_text(str(len(os.sched_getaffinity(0))))
    until = time.monotonic() + 60
    while len(list(place.iterdir())) % 3 and time.monotonic() < until:
        time.sleep(0.001)
    assert time.monotonic() < until
print("met")
'''


def test_what_fails_together_with_others_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "MOST_ROUNDS", 5)
    all_ = [Contender("masu"), HEAP, Contender(contenders.AGAIN, "masu")]
    runner = compare.Runner(all_, compare.Plan(600, 1, 1, 1), tmp_path)

    def once(program, length, contender, pinned=False):
        if pinned and contender is HEAP and len(found.together.get("masu", ())) == 3:
            raise compare.Problem("it fell over")
        return running.Run(1, 1, 1000, 0, "", "", cpu=1.02 if contender.of else 1)

    found = Measured("echo", False)
    monkeypatch.setattr(runner, "_once", once)
    runner._long(Program("echo", ("echo",), ("echo",)), found, lambda text, part: None)
    heap, again = results.rows([found], all_)
    assert heap["missing"] == "it fell over" and again["cpu_rounds"] == 5 and again["cpu"][0] == pytest.approx(1.02)


def test_a_program_of_one_thread_stays_on_one_processor(tmp_path):
    before = os.sched_getaffinity(0)
    for threads, count in (False, 1), (True, len(before)):
        runner = compare.Runner([Contender("system"), Contender("other", "system")], compare.Plan(0.1, 1, 1, 1), tmp_path)
        assert not runner.measured(Program("nproc", ("nproc",), ("nproc",), threads=threads), lambda text, part: None).missing
        assert runner.outputs[("nproc",)].strip() == str(count)
    assert os.sched_getaffinity(0) == before


def test_a_run_finds_its_folder_empty_but_not_new(tmp_path):
    """Files and folders of the run before are gone, and no other contender's run is there, all at once as well."""
    sees = 'test -z "$(ls "$PLACE")" && mkdir "$PLACE/deep" && echo it | tee "$PLACE/file" > "$PLACE/deep/file" && stat -c "%n %i" "$PLACE" >> "$LIST"'
    settings = "PLACE={folder}", f"LIST={tmp_path / 'list'}"
    all_ = [Contender("masu", settings=settings), replace(HEAP, writes="file", says_own=False, settings=settings)]
    (tmp_path / "runs").mkdir()
    runner = compare.Runner(all_, compare.Plan(1, 2, 1, 1), tmp_path / "runs")
    found = runner.measured(Program("sh", ("sh", "-c", sees), ("sh", "-c", sees), answers=False), lambda text, part: None)
    folders = (tmp_path / "list").read_text().splitlines()
    assert not found.missing and len(set(folders)) == len(all_) and len(folders) > 2 * 3


def test_a_limit_is_broken_where_one_program_breaks_it():
    one = [of("a", False, [1.0] * 5, [1.0] * 5), of("b", False, [1.0, 1.2] * 4, [1.0] * 8), of("c", True, [1.0] * 5, [1.0] * 5)]
    for more, verdict in ([], results.OPEN), ([of("d", False, [1.1] * 5, [1.0] * 5)], results.BROKEN):
        found = {row["allocates"]: row for row in results.limits(results.rows([*one, *more], [Contender("masu"), HEAP]))}
        assert found[True]["verdict"] == results.HELD and found[False]["verdict"] == verdict
        assert [row["program"] for row in found[False][results.BROKEN]] == ["d"] * bool(more)


def test_a_run_from_before_has_the_limits_of_now():
    """As the live page had none."""
    found = results.rows([of("a", False, [1.1] * 5, [1.0] * 5, "masu live")], [Contender("masu"), Contender("masu live", "masu")])
    before = [{name: value for name, value in row.items() if name not in ("limit", "verdict")} for row in found]
    assert results.limits(before) == results.limits(found) and results.limits(before)[0]["verdict"] == results.BROKEN


def test_the_recorder_has_rounds_of_its_own(tmp_path):
    """So many that there is an interval, on an input that takes longer; the others' are paired with their own."""
    recorder = Contender("recorder", "system", prefix=("env",), samples=False, records=True)
    sampler, tool = Contender("sampler", "system", prefix=("env",)), Contender("tool", "system", prefix=("env",), samples=False)
    all_ = [Contender("system"), recorder, sampler, tool]
    runner = compare.Runner(all_, compare.Plan(0.1, 1, 5, 3), tmp_path)
    program = Program("echo", ("echo", "long"), ("echo", "short"), recorded=("echo", "for seconds"))
    found = runner.measured(program, lambda text, part: None)
    assert set(runner.outputs) == {("echo", "long"), ("echo", "short"), ("echo", "for seconds")}
    assert {key: len(times["system"]) for key, times in found.seconds.items()}.items() >= {"recorded": 5, "short": 3}.items()
    rows = {row["observer"]: row for row in results.rows([found], all_)}
    assert rows["recorder"]["input"] == "recorded" and rows["recorder"]["rounds"] == 5 and None not in rows["recorder"]["time"]
    assert rows["sampler"]["input"] == "long" and rows["tool"]["rounds"] == 3


RECORDS = """
import sys
from pathlib import Path
from masu.trace import PAGE, PROCESS, PROCESS_HEAD, PROCESS_MAGIC, VERSION, Writer
writer = Writer(Path(sys.argv[1]))
writer.frame(PROCESS, 0, PROCESS_HEAD.pack(PROCESS_MAGIC, VERSION, PAGE, *[0] * 11).ljust(PAGE, bytes(1)))
writer.end(dict(seconds=0.001))
"""


def test_the_recorders_time_is_the_programs_own(tmp_path):
    recorder = Contender("recorder", "system", prefix=(sys.executable, "-c", RECORDS, "{folder}/it.trace"), writes="*.trace",
                         samples=False, records=True)  # fmt: skip
    done = running.run(("true",), recorder, tmp_path)
    assert done.seconds == 0.001 and done.whole > 0.001
    plain = running.run(("true",), Contender("system"), tmp_path)
    assert plain.seconds == plain.whole
    measured = Measured("p", False)
    for _ in range(5):
        measured.add("recorded", "recorder", replace(done, seconds=2.0, whole=3.0))
        measured.add("recorded", "system", replace(plain, seconds=1.0, whole=1.0))
    (row,) = results.rows([measured], [Contender("system"), recorder])
    assert row["time"][0] == 2.0 and row["time_whole"][0] == 3.0


def test_sums_and_the_page():
    rows = results.rows(
        [of("a", True, [1.0] * 5, [1.0] * 5), of("b", True, [1.21] * 5, [1.0] * 5), of("c", False, [1.0] * 5, [1.0] * 5)],
        [Contender("masu"), HEAP],
    )
    rows.append({"program": "c", "allocates": False, "observer": "other", "missing": "is not installed"})
    rows[0]["time_whole"] = [1.5, 1.4, 1.6]
    sums = results.sums(rows)
    both = next(one for one in sums if one["allocates"] and one["observer"] == "masu heap")
    assert both["time"] == pytest.approx(1.1) and (both["time_worst"], both["time_worst_program"]) == (1.21, "b")
    assert (both["held"], both["broken"]) == (1, 1) and both["kib_added_most"] == 1000
    content = {
        "machine": {"cpu": "a cpu", "kernel": "6", "when": "today", "commit": "abc"},
        "versions": {"masu": "0.1"},
        "observers": {"masu heap": {"of": "masu", "what": "heap profile", "missing": ""}, "other": {"of": "x", "what": "", "missing": "y"}},
        "rows": rows,
        "sums": sums,
        "sites": {"truth": ["f", "g"], "named": {"masu heap": {"top": ["g", "f"], "same": 2, "missing": ""}}},
        "calls": {"program": "redis-server", "measure": "heaptrack", "named": {
            "masu heap": {"top": {"f": 0.6, "g": 0.21}, "same": 1, "missing": ""}, "other": {"top": {}, "same": 0, "missing": "y"}}},
    }  # fmt: skip
    begins = (published.BEGIN, published.BEGIN_CASES, published.BEGIN_SOAK)
    empty = "before\n" + "\nbetween\n".join(f"{begin}\nold\n{published.END}" for begin in begins) + "\nafter\n"
    page = published.page(empty, content, None, None)
    assert page.startswith("before\n") and page.endswith("\nafter\n") and "old" not in page
    assert "| masu heap, where little else is done: 1.03 | **broken** | `a` 1.000 |  | `b` 1.210 |" in page
    assert "| masu heap, other programs: 1.01 | **held** | `c` 1.000 |  |  |" in page
    for script in ("soak-observers", "bench-observers --cases"):
        assert f"`script/{script} --publish` makes one" in page
    cases = published.page(page, content, {key: content[key] for key in ("machine", "observers", "rows")}, None)
    assert "| `b` | 1210 ms | " not in cases and "| `b` | 1000 ms | 1.03, **broken** | 1.210, 1.210 – 1.210 |  |" in cases
    assert "whole process" not in cases
    short = [{**rows[1], "cpu": [1.02, 1.01, 1.03], "process": [1.3, 1.2, 1.4]}]
    cases = published.page(page, content, {**{key: content[key] for key in ("machine", "observers")}, "rows": short}, None)
    assert "| `b` | 1000 ms | 1.300, 1.200 – 1.400 | 300.00 ms | 1.020, 1.010 – 1.030 |" in cases
    assert "| masu heap: heap profile | masu | 1.100; 1.210 b | 1.000; 1.000 c |" in page
    assert "| masu heap | 1 of 2 | `f` 60%, `g` 21% |\n| other | y |  |" in page and "in use, beside those of heaptrack." in page
    assert "| `b` | 1.210, 1.210 – 1.210 |" in page and "| masu heap | 2 of 2 | `g`, `f` |" in page
    assert "| `a` | 1.000, 1.000 – 1.000 | 1.500, 1.400 – 1.600 |" in page
    assert "- other: is not installed" in page
    assert published.page(page, content, None, None) == page
    growth = {"level": 2048, "growth": 10, "low": -1024, "high": 1024, "limit": 100, "days": 12, "verdict": "steady"}
    figures = [{"figure": "resident", **growth, "off": growth}, {"figure": "sites", **growth, "verdict": "grows"}]
    soaked = published.page(page, content, None, {"machine": content["machine"], "programs": {"redis": {"processes": 9, "figures": figures, "cost": [1.01, 1.0, 1.02]}}})
    assert "redis 9 processes each, 12 days. CPU time with the sampler, which may be 1.01: redis 1.010, 1.000 – 1.020, **not clear**." in soaked
    for cost, verdict in ([1.0, 0.99, 1.01], "held"), ([1.05, 1.02, 1.08], "broken"):
        assert f", **{verdict}**." in published.soaked({"machine": content["machine"], "programs": {"redis": {"processes": 9, "figures": figures, "cost": cost}}})
    assert "| redis | resident memory | 2 KiB | 0 KiB, -1 KiB – 1 KiB | 0 KiB | **steady** | 0 KiB |" in soaked
    assert "| redis | call sites in it | 2,048 | 10, -1,024 – 1,024 | 100 | **grows** |  |" in soaked


def test_the_page_has_the_committed_run():
    subprocess.run([sys.executable, ROOT / "bench/observers/published.py", "--check"], check=True)


# ---- What others write ----

PPROF_TEXT = """Using local file sites.
Total: 80.1 MB
     0.0   0.0%   0.0%     80.1 100.0% main
    25.6  31.9%  31.9%     25.6  31.9% keeps_rows
     0.0   0.0%  31.9%     24.0  30.0% keeps_pages
    24.0  30.0%  61.9%     24.0  30.0% prof_backtrace_impl
     9.5  11.9%  73.8%      9.5  11.9% keeps_index (inline)
"""

MASSIF = """desc: --massif-out-file=x
cmd: ./sites
time_unit: i
#-----------
snapshot=0
#-----------
time=0
mem_heap_B=0
heap_tree=empty
#-----------
snapshot=9
#-----------
time=100
mem_heap_B=90
heap_tree=detailed
n1: 90 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
 n0: 90 0x10916B: keeps_log (sites.c:33)
#-----------
snapshot=10
#-----------
time=200
mem_heap_B=1000
heap_tree=peak
n3: 1000 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
 n1: 600 0x10916B: keeps_rows (sites.c:33)
  n0: 600 0x10A: works (sites.c:50)
 n0: 300 0x1091AB: keeps_pages (sites.c:34)
 n0: 100 in 7 places, all below massif's threshold (1.00%)
#-----------
snapshot=11
#-----------
time=300
mem_heap_B=0
heap_tree=empty
"""


def test_what_pprof_prints():
    found = sites.of_pprof_text(PPROF_TEXT)
    assert found["keeps_rows"] == 25600 and found["keeps_pages"] == 24000 and found["keeps_index"] == 9500 and found["main"] == 80100


def test_what_massif_writes():
    assert sites.of_massif(MASSIF) == Counter(keeps_rows=600, keeps_pages=300)
    with pytest.raises(compare.Problem, match="no peak"):
        sites.of_massif("desc: x\n")


def test_folded_stacks():
    text = "main;works;keeps_rows 700\nmain;keeps_rows 30\nmain;works 9\n?;main (a.c);keeps_log (sites.c); 5\n"
    assert sites.of_folded(text, {"keeps_rows", "keeps_log"}) == Counter(keeps_rows=730, keeps_log=5)


def test_who_calls_the_wrappers_of_malloc():
    lines = ["main;sets (a.c);zmalloc_usable 700", "main;0x12;z3_solves<000000000012ea80>;prof_tctx;malloc 30", "main;redis+0x6;zcalloc 5", "zmalloc 9", "main;sets 1"]
    assert calls.callers(calls.of_folded(lines)) == Counter(sets=701, z3_solves=30, main=5)
    assert list(calls.of_massif(MASSIF)) == [(["keeps_rows", "works"], 600), (["keeps_pages"], 300), ([], 100)]


def test_functions_of_a_real_program(tmp_path):
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        pytest.skip("redis is not installed")
    all_ = [c for c in contenders.found(tmp_path, tmp_path) if c.name in ("masu heap", "heaptrack", "memray")]
    often = [replace(c, settings=tuple(s.replace("profile,", "profile:65536,") for s in c.settings)) for c in all_]
    found = calls.compare(often, tmp_path, tmp_path, lambda text: None)  # hundreds of samples, whatever they take
    masu, tool = found["named"]["masu heap"], found["named"]["heaptrack"]
    assert not masu["missing"] and len(masu["top"]) == 3 and all(0.05 < share < 0.6 for share in masu["top"].values())
    for name, share in () if tool["missing"] else list(tool["top"].items())[:2]:
        assert masu["top"][name] == pytest.approx(share, abs=0.1)
    assert tool["missing"] or masu["same"] >= 2
    assert found["measure"] == ("" if tool["missing"] else "heaptrack")
    assert found["named"]["memray"]["missing"]


# ---- The soak ----


def test_growth_is_a_slope_with_an_interval():
    noise = [0, 3, -2, 1, -3, 2, 0, -1, 3, -2, 1, 0, -3, 2, 1]
    steady = soak.growth([1000 + n / 10 for n in noise], 5)
    assert steady["verdict"] == soak.STEADY and steady["days"] == 10 and abs(steady["growth"]) < 5
    grows = soak.growth([1000 + 8 * day + n / 10 for day, n in enumerate(noise)], 5)
    assert grows["verdict"] == soak.GROWS and grows["growth"] == pytest.approx(72, abs=3)
    assert soak.growth([1000 + 40 * n for n in noise], 5)["verdict"] == soak.OPEN
    assert soak.growth([1000 + 100 / 2**day for day in range(15)], 5)["verdict"] == soak.STEADY  # only the warm-up


def test_days():
    values = [1.0] * soak.HOURS + [3.0] * soak.HOURS
    assert soak.by_day(values, 2) == [1.0, 3.0]
    assert soak.by_day(values[5:], 2) == [1.0, 3.0]  # the first hours had no profile
    hours = [soak.Hour(n).requests(1000) for n in range(soak.HOURS)]
    assert min(hours) == hours[4] and max(hours) == hours[16] and max(hours) > 5 * min(hours)


def test_the_cost_is_of_days_of_one_process():
    loads = (7.0, 9.0, 1.0, 2.0, 3.0, 4.0)  # two to warm up

    def process(side, number, level, with_sampler):
        one = soak.Process(side, number, Path(), None)
        for day, load in enumerate(loads):
            on = side == soak.ON or (side == soak.TURNS and day > 1 and one.samples(day))
            one.cpu += [level * load * (with_sampler if on else 1)] * soak.HOURS
        one.figures["own"] = [level] * len(one.cpu)
        return one

    turns = [process(soak.TURNS, number, 1.0 + number, 1.5 if number else 8) for number in range(5)]
    others = [process(side, number, 1.0 + 2 * number, 1.5) for side in (soak.ON, soak.OFF) for number in range(2)]
    kept = soak.Kept(turns + others)
    assert soak.cost(kept) == pytest.approx([1.5, 1.5, 8])
    assert [one.samples(0) for one in turns] == [True, False, True, False, True]
    assert kept.mean(soak.ON, "own") == [2.0] * 6 and kept.mean(soak.OFF, "sites") == []
    assert soak.cost(soak.Kept(turns[1:] + others))[1:] == [-math.inf, math.inf]  # four have no interval


@pytest.mark.parametrize("number", (0, 1))
def test_the_sampler_is_on_every_other_day(tmp_path, number):
    program = soak.PythonSoak(soak.contenders()[soak.TURNS], tmp_path)
    process, allocated = soak.Process(soak.TURNS, number, tmp_path, program), [0]
    try:
        for day in range(4):
            for hour in range(soak.HOURS):
                process.loaded(soak.Hour(hour, 0.05), day * soak.HOURS + hour)
            try:
                allocated.append(profile.heap(profile_live.take(program.pid)[1]).total("alloc_space"))
            except live.NotLive:  # it has not been on so far
                allocated.append(0)
            assert (allocated[-1] > allocated[-2]) == ((day + number) % 2 == 0), allocated
    finally:
        program.kill()


def test_cpu_time_is_also_of_threads_that_have_ended():
    burns = "import threading, time\n" \
            "def burn():\n  while time.thread_time() < 0.2: pass\n" \
            "t = threading.Thread(target=burn); t.start(); t.join(); print(time.process_time(), flush=True); input()"  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", burns], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        said = float(process.stdout.readline())
        assert 0.2 < said <= running.cpu_seconds(process.pid) < said + 1
        process.communicate("\n")
    assert running.cpu_seconds(process.pid) == 0


def test_a_short_soak(tmp_path):
    words = [sys.executable, SOAK, "--minutes", "0", "--load", "0.05", "--only", "python", "--processes", "5", "--json", tmp_path / "s.json"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stderr  # so short, it may not be clear
    python = json.loads((tmp_path / "s.json").read_text())["programs"]["python"]
    figures = {row["figure"]: row for row in python["figures"]}
    assert figures.keys() == {"resident", "own", "profile", "sites"}
    assert figures["resident"]["level"] > 5 << 20 and figures["sites"]["level"] > 5 and figures["profile"]["level"] > 1000
    assert figures["resident"]["off"]["level"] > 5 << 20 and "off" not in figures["sites"]
    assert [one["side"] for one in python["by_day"]] == ["on"] * 5 + ["off"] * 5 + ["turns"] * 5
    assert all(len(one["cpu"]) == len(one["own"]) == soak.LEAST_DAYS and min(one["cpu"]) > 0 for one in python["by_day"])
    assert 0.2 < python["cost"][1] <= python["cost"][0] <= python["cost"][2] < 5
    cost = results.verdict(python["cost"], 1.01)
    assert (done.returncode == 0) == (all(row["verdict"] == soak.STEADY for row in figures.values()) and cost != results.BROKEN)
    assert "days after the warm-up" in done.stdout and f"limit 1.01: {cost}" in " ".join(done.stdout.split())
    with pytest.raises(SystemExit):
        soak.main(["--publish", "--only", "python"])
