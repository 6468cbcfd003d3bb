"""Replays a trace on every allocator: a plan is made once, then executed by each."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from masu.compare import Comparison, Run, advice, check_ended_well, compare
from masu.measuring.measure import SYSTEM, Allocator, measure
from masu.measuring.rounds import Row, blocks, own_figures, shown
from masu.measuring.statistics import Estimate, ratio
from masu.messages import Problem
from masu.trace import Process, Trace

HERE = Path(__file__).resolve().parent
POINTS = ("mean", "p50", "p99", "p9999", "p99999", "worst")
PREDICTION_ROUNDS = 5
TOUCHES = {"full": "all of it is", "first": "a byte of each page is", "none": "nothing is"}
"""What is written to each block."""
AUTO = "auto"
PATIENCE_S = 3600.0
"""So much longer than its program, and than it is told to wait, a replay takes only if it hangs."""
PARTS = {"p50": 0.5, "p99": 0.99, "p9999": 0.9999, "p99999": 0.99999}


def program(name: str) -> Path:
    for folder in (HERE / "bin", HERE.parent.parent / "build/release/replay"):
        if (folder / name).exists():
            return folder / name
    raise Problem(f"{name} is not built; install the package: pip install .")


def _resident_to_live(r: Run) -> float:
    """On average over the replay; not a number where nothing was sampled."""
    curve = r.own.get("curve", ())
    live = sum(kib for _, _, kib in curve)
    return sum(kib for _, kib, _ in curve) / live if live else math.nan


def _own(key: str, label: str, unit: str = "", judged: bool = False) -> Row:
    return Row(label, lambda r: float(r.own[key]), unit, judged=judged)


FIGURES = (
    _own("wall_s", "time", "s", judged=True),
    _own("cpu_s", "CPU time", "s"),
    _own("peak_rss_kib", "peak memory", "KiB", judged=True),
    _own("mean_rss_kib", "mean memory", "KiB"),
    Row("resident : live", _resident_to_live),
    _own("page_faults", "page faults"),
    _own("voluntary_switches", "waits"),
)


@dataclass(frozen=True)
class Plan:
    path: Path
    summary: dict
    """What the recorder says of the process, and trace_plan of its calls."""

    @property
    def recorded_s(self) -> float:
        return self.summary["duration_ns"] * 1e-9


def plan(trace: Trace, process: Process, folder: Path) -> Plan:
    """Makes the plan in `folder`."""
    source = trace.extract(process, folder / "blocks")
    run = subprocess.run([program("trace_plan"), source, folder / "plan"], capture_output=True, text=True, check=False)
    if run.returncode:
        raise Problem(f"{trace.path}: {run.stderr.strip() or f'trace_plan ends with {run.returncode}'}")
    source.unlink()
    summary = {**vars(process.head), **json.loads(run.stdout)}
    if not any(count for kind, count in summary["by_kind"].items() if kind not in ("waits", "creates")):
        what = "only calls that failed or whose blocks are unknown" if summary["calls"] else "no call that was recorded"
        raise Problem(f"{trace.path}: process {process.head.process} ({process.name}) made {what}")
    return Plan(folder / "plan", summary)


def _once(made: Plan, command: Sequence[str], allocator: Allocator, settle_s: float = 0.0) -> Run:
    usage = measure(list(command), allocator, timeout=made.recorded_s + settle_s + PATIENCE_S)
    check_ended_well(usage)
    own = own_figures(usage.output)
    if "wall_s" not in own:
        raise Problem("the replay printed no figures")
    return Run(usage, own=own, curve=[(s, kib / 1024) for s, kib, _ in own["curve"]])


@dataclass
class Replayed:
    comparison: Comparison
    single: dict[str, dict]
    """For each allocator what one run says in which every call was timed: `calls`, by kind their
    count, mean, percentiles and the worst, in ns; and memory at the end and later."""
    settle_s: float
    own_s: float
    """What the replay takes where no allocator is called."""
    summary: dict
    touch: str
    predicted_s: dict[str, list[float]]
    """For each allocator, by each round, the time that the program itself would take where it was recorded: what
    it took then, less a recorded replay, plus the replay on that allocator. Empty if that was not measured, and with
    think time, which holds much of what recording took."""
    predicted_peak_kib: dict[str, list[float]]
    """The same of its peak memory. Empty also where the trace doesn't say what that was."""
    unpredicted: str = ""
    """Why nothing is predicted, if it should have been."""


def _recorded(made: Plan, words: Sequence[str], rounds: int) -> tuple[float, float]:
    """Time in s and peak memory in KiB of a replay that is recorded itself: of the calls, and of recording them."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="masu-replay-") as folder:
        for _ in range(rounds):
            command = [sys.executable, "-m", "masu", "record", "-o", f"{folder}/it.trace", "--", *words]
            # Python looks for masu where it is started first, and there the user may have a masu of his own.
            run = measure(command, folder=Path(folder), timeout=made.recorded_s + PATIENCE_S)
            figures = own_figures(run.output)
            if run.status or "wall_s" not in figures:
                raise Problem(f"the replay could not be recorded: {run.errors.strip()}")
            runs.append(figures)
    return statistics.median(r["wall_s"] for r in runs), statistics.median(map(_whole_kib, runs))


def _whole_kib(own: dict) -> float:
    """Peak memory of the replay with what it needs itself, where `peak_rss_kib` is without."""
    return own["own_rss_kib"] + own["peak_rss_kib"]


def _fitting_touch(made: Plan) -> str:
    """full can't be right where a replay takes longer with it than the program did, both being recorded. Hardly
    a program writes nothing to its blocks, and without a touch they take no memory, so first is the least, also
    where it can't be found out."""
    try:
        replayed_s, _ = _recorded(made, _words(made, "full", False), 1)
    except Problem:
        return "first"
    return "full" if replayed_s <= made.recorded_s else "first"


Predicted = dict[str, list[float]]


def _predicted(c: Comparison, made: Plan, words: Sequence[str], null_s: float) -> tuple[Predicted, Predicted]:
    """Time and peak memory, as in Replayed."""
    replayed_s, replayed_kib = _recorded(made, words, PREDICTION_ROUNDS)
    # What the program does besides its calls, less what the replay does: at worst the program does nothing.
    rest_s = max(made.recorded_s - replayed_s, -null_s)
    times = {n: [rest_s + r.own["wall_s"] for r in runs] for n, runs in c.runs.items() if runs}
    if not made.summary["peak_resident"]:
        return times, {}
    rest_kib = made.summary["peak_resident"] / 1024 - replayed_kib

    def peak(own: dict) -> float:  # where threads ran further ahead than the program's, it is less than nothing
        return max(rest_kib + own["own_rss_kib"], 0) + own["peak_rss_kib"]

    return times, {n: [peak(r.own) for r in runs] for n, runs in c.runs.items() if runs}


def _words(made: Plan, touch: str, think: bool) -> list[str]:
    return [str(program("trace_play")), str(made.path), f"touch={touch}", *["think"] * think]


def rounds_on(
    made: Plan, allocators: Sequence[Allocator], console: Console, *, rounds: int, touch: str, think: bool, seconds: float = 0.0
) -> Comparison:
    """Just the rounds, without single calls."""

    def once(command: Sequence[str], allocator: Allocator, _) -> Run:
        return _once(made, command, allocator)

    return compare(_words(made, touch, think), allocators, console, rounds=rounds, seconds=seconds, figures=FIGURES, once=once)


def replay(
    made: Plan,
    allocators: Sequence[Allocator],
    console: Console,
    *,
    rounds: int = 0,
    touch: str = AUTO,
    think: bool = False,
    settle_s: float = 2.0,
    seconds: float = 180.0,
) -> Replayed:
    """Ctrl-C ends it with the rounds that were measured. touch: of TOUCHES, or AUTO."""
    if touch == AUTO:
        with console.status("what the program can have written"):
            touch = _fitting_touch(made)
    words = _words(made, touch, think)
    with console.status("the replay itself"):
        null_s = statistics.median(_once(made, [*words, "null"], SYSTEM).own["wall_s"] for _ in range(1 if think else PREDICTION_ROUNDS))
    result = rounds_on(made, allocators, console, rounds=rounds, touch=touch, think=think, seconds=seconds)
    single = {}
    for allocator in allocators:
        if result.interrupted or not result.runs.get(allocator.name):
            continue
        try:
            with console.status(f"single calls: {allocator.name}"):
                single[allocator.name] = _once(made, [*words, "latency", f"settle={settle_s * 1000:.0f}"], allocator, settle_s).own
        except Problem as problem:
            result.failed[allocator.name] = str(problem)
        except KeyboardInterrupt:
            result.interrupted = True
    times, peaks, why = {}, {}, ""
    try:
        if not result.interrupted:
            with console.status("what that means for the program"):
                times, peaks = _predicted(result, made, words, null_s)
    except KeyboardInterrupt:
        result.interrupted = True
    except Problem as problem:
        why = str(problem)
    return Replayed(result, single, settle_s, null_s, made.summary, touch, {} if think else times, peaks, why)


# ---- What it says ----


@dataclass(frozen=True)
class SingleTables:
    """Every call of one run of each, as far as allocators fit beside each other."""

    of: Replayed

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("One run of each, every call timed", "table.title")
        yield from blocks(list(self.of.single), lambda names: _single_block(self.of, names), console, options)


def _single_block(r: Replayed, names: Sequence[str]) -> Table:
    """These allocators beside each other. The rows are those of all."""
    t = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "calls", "", *names):
        t.add_column(Text(heading), justify="right" if heading else "left", no_wrap=True)
    kinds = {kind: figures["count"] for own in r.single.values() for kind, figures in own["calls"].items()}
    for kind, count in sorted(kinds.items(), key=lambda item: -item[1]):
        first = True
        for point in POINTS:
            if point in PARTS and count * (1 - PARTS[point]) < 1:
                continue  # too few calls to say
            values = [r.single[name]["calls"].get(kind, {}).get(f"{point}_ns") for name in names]
            t.add_row(
                kind if first else "", f"{count:,}" if first else "", _point(point),
                *("–" if v is None else shown(v, "ns") for v in values),
            )  # fmt: skip
            first = False
        t.add_section()
    for part in (0.25, 0.5, 0.75, 1.0):
        values = {name: _resident_to_live_at(own["curve"], part) for name, own in r.single.items()}
        if not any(map(math.isnan, values.values())):
            when = f"after {part:.0%}" if part < 1 else "at the last"
            t.add_row("resident : live" if part == 0.25 else "", "", when, *(shown(values[name], "") for name in names))
    t.add_section()
    for label, key in (("at the end", "end_rss_kib"), (f"{r.settle_s:g} s later", "later_rss_kib")):
        t.add_row("memory", "", label, *(shown(r.single[name][key], "KiB") for name in names))
    return t


def _resident_to_live_at(curve: Sequence[Sequence[float]], part: float) -> float:
    """When so much of the time was over: at the last sample by then in which anything was live."""
    then = [rss / live for seconds, rss, live in curve if live and seconds <= part * curve[-1][0]]
    return then[-1] if then else math.nan


def _point(name: str) -> str:
    """p9999 is 99.99 %."""
    digits = name.removeprefix("p")
    if digits == name:
        return name
    return f"{digits[:2]}{'.' if digits[2:] else ''}{digits[2:]} %"


def described(s: dict) -> str:
    """One line on what is replayed, by the summary of its plan."""
    parts = [f"{s['calls']:,} call{'s' * (s['calls'] != 1)} of {s['threads']} thread{'s' * (s['threads'] != 1)}"]
    parts.append(f"{s['live_peak_bytes'] / 2**20:,.1f} MiB live at most")
    if s["handed_over"]:
        parts.append(f"{s['handed_over']:,} blocks handed from thread to thread")
    for key, text in (
        ("unknown_frees", "frees of blocks that nobody was seen to allocate, left out"),
        ("vanished", "blocks freed unseen"),
        ("failed", "calls that failed, left out"),
        ("dropped", "calls that found no room in the recorder"),
        ("bad_blocks", "damaged parts, left out"),
    ):
        if s[key]:
            parts.append(f"{text}: {s[key]:,}")
    if s["stopped"]:
        parts.append(f"recording ended before the program: {os.strerror(s['stopped'])}")
    return "; ".join(parts)


OTHERS = 8
"""So many are named, those with most recorded."""


def others(trace: Trace, process: Process) -> str:
    """The other processes of the trace; empty: there are none."""
    rest = sorted((p for p in trace.processes if p is not process), key=lambda p: -p.size)
    named = ", ".join(f"{p.head.process} ({p.name})" for p in rest[:OTHERS])
    more = f" and {len(rest) - OTHERS} more" if len(rest) > OTHERS else ""
    return f"The trace has other processes, for --process: {named}{more}" if rest else ""


def touched(r: Replayed) -> str:
    return f"Of each block {TOUCHES[r.touch]} written."


def advised(r: Replayed) -> str:
    """It judges the calls alone; what they are in the program is the prediction's."""
    return f"In the replay: {advice(r.comparison)}"


MANY_WAITS = 0.001
"""Of the calls: in programs with more the predictions were off by most (docs/experiments.md)."""


def predicted_ratios(values: Predicted) -> dict[str, Estimate]:
    """To the system's allocator, with the interval of the rounds: what the program does itself is the same in all."""
    base = values.get(SYSTEM.name)
    return {n: ratio(of, base) for n, of in values.items() if n != SYSTEM.name} if base else {}


def prediction(r: Replayed) -> list[str]:
    """A line each on time and memory of the program itself, or why there are none; empty where nothing is known."""
    lines = [f"No prediction of the program itself: {r.unpredicted}"] * bool(r.unpredicted)
    for what, values in (("time", r.predicted_s), ("peak memory", r.predicted_peak_kib)):
        others = sorted(predicted_ratios(values).items(), key=lambda item: item[1].median)
        if others:
            ratios = ", ".join(f"{n} {of.median:.2f}" + f" ({of.low:.2f}–{of.high:.2f})" * of.has_interval for n, of in others)
            lines.append(f"Predicted {what} of the program, if this machine recorded it, to that on the system's allocator: {ratios}")
    waits = r.summary["by_kind"]["waits"]
    if waits > MANY_WAITS * r.summary["calls"] and (r.predicted_s or r.predicted_peak_kib):
        lines.append(f"Don't rely on that: its threads wait for each other ({waits:,} times). In such programs predictions were off by up to 84 %.")
    return lines


def as_json(r: Replayed) -> dict:
    def medians(values: Predicted) -> dict[str, float]:
        return {name: statistics.median(of) for name, of in values.items()}

    def ratios(values: Predicted) -> dict[str, list[float]]:
        return {name: [of.median, of.low, of.high] for name, of in predicted_ratios(values).items()}

    return {"summary": r.summary, "touch": r.touch, "own_s": r.own_s, "single": r.single,
            "predicted_s": medians(r.predicted_s), "predicted_peak_kib": medians(r.predicted_peak_kib),
            "predicted_ratio": {"time": ratios(r.predicted_s), "peak memory": ratios(r.predicted_peak_kib)}}  # fmt: skip
