"""One program on every allocator: interleaved rounds, figures, advice."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from masu.measuring import statistics
from masu.measuring.measure import SYSTEM, Allocator, Usage, launcher, measure
from masu.measuring.rounds import Answers, Row, add_answers, differing, own_figures, own_rows
from masu.measuring.statistics import LEAST_ROUNDS
from masu.messages import Problem
from masu.program import answers_malloc
from masu.reach import Reach, family

MOST_ROUNDS = 30
SECONDS = 180.0
TIGHT = 0.01
"""Half of the 95 % interval of a ratio: enough to decide by."""
MATTERS = 0.01
"""A smaller difference is none, however sure it is."""
MISSED = 0.1
"""So much of the memory may be in processes that no allocator reached, without a word."""
LARGEST_STATUS = 125
"""The exit statuses above it say that a program could not be run, or how it was ended."""
PATIENCE_S = 3600.0
HINT_S = 30.0
GRACE_S = 10.0
"""What was asked to end has so long to do it."""
C_LIBRARY = Allocator(SYSTEM.name, None, ("LD_PRELOAD=libc.so.6",))
"""The system's in a program with a malloc from another library: what is preloaded is found first."""


@dataclass
class Run:
    usage: Usage
    metric: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the start, and MiB resident in the program and its children."""
    own: dict = field(default_factory=dict)
    """See own_figures."""
    reach: Reach | None = None
    """Of a warm-up."""


CPU_TIME = Row("CPU time", lambda r: r.usage.cpu_s, "s")
FIGURES = (
    Row("wall time", lambda r: r.usage.wall_s, "s", judged=True),
    CPU_TIME,
    Row("peak memory", lambda r: r.usage.peak_rss_kib, "KiB", judged=True),
    Row("mean memory", lambda r: _mean(r.curve) * 1024, "KiB"),
    Row("page faults", lambda r: r.usage.page_faults),
    Row("waits", lambda r: r.usage.voluntary_switches),
    Row("interrupted", lambda r: r.usage.involuntary_switches),
)
LASTING = (replace(CPU_TIME, judged=True), *FIGURES[2:])
"""Of a program that is ended after a time."""


def _mean(curve: Sequence[tuple[float, float]]) -> float:
    return float(np.mean([mib for _, mib in curve])) if curve else math.nan


@dataclass
class Comparison:
    command: list[str]
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    warm_ups: dict[str, Run] = field(default_factory=dict)
    """They don't count."""
    metric: str = ""
    less: bool = False
    """Less of the metric is better."""
    counted: tuple[Row, ...] = FIGURES
    interrupted: bool = False
    """By Ctrl-C; the rounds that were measured are here."""

    @property
    def figures(self) -> list[Row]:
        """Those that every run has: what ended before the first sample has no mean memory."""
        metric = [Row(self.metric, lambda r: r.metric, more=not self.less, judged=True)] if self.metric else []
        runs = {name: of for name, of in self.runs.items() if of}
        own = own_rows(runs) if runs and self.counted in (FIGURES, LASTING) else []
        counted = [f for f in self.counted if not any(math.isnan(v) for name in runs for v in self.values(name, f))]
        return [*metric, *counted, *own]

    @property
    def way(self) -> str:
        """How the metric is judged."""
        return f"{'less' if self.less else 'more'} is better"

    @property
    def rounds(self) -> int:
        return max((len(runs) for runs in self.runs.values()), default=0)

    def values(self, name: str, figure: Row) -> list[float]:
        return [figure.value(run) for run in self.runs[name]]

    def ratio(self, name: str, figure: Row, base: str = SYSTEM.name) -> statistics.Estimate:
        return statistics.ratio(self.values(name, figure), self.values(base, figure))


# ---- Measuring ----


class Curve(threading.Thread):
    """Samples what the program and its children have resident."""

    STEP_S = 0.01

    def __init__(self, reach: Reach | None = None, lasting: float = 0.0) -> None:
        """reach: is shown each process. lasting: after so many seconds they are all asked to end, as by timeout(1)."""
        super().__init__(daemon=True)
        self.reach, self.lasting = reach, lasting
        self.samples: list[tuple[float, float]] = []
        self.peak_mib = 0.0
        """What they had in two samples, one after the other: a process that was just forked looks as large as the one
        that forked it, until it runs another program."""
        self.asked = False
        self.ended = threading.Event()

    def watch(self, launcher: int) -> None:
        self.launcher = launcher
        self.start()

    def end(self) -> None:
        """Also of one that was never started: what was to be watched did not come so far."""
        self.ended.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        start, step, before = time.monotonic(), self.STEP_S, 0.0
        while not self.ended.wait(step):
            if self.lasting and not self.asked and time.monotonic() - start >= self.lasting:
                self._ask_to_end()
            resident = self._sample()
            self.peak_mib, before = max(self.peak_mib, min(before, resident)), resident
            if resident:
                self.samples.append((time.monotonic() - start, resident))
            if len(self.samples) >= 2000:  # a long run: half as many, half as often
                self.samples = self.samples[::2]
                step *= 2

    def _sample(self) -> float:
        sizes = {process: _resident_mib(process) for process in family(self.launcher)[1:]}
        for process, mib in sizes.items():
            if self.reach and mib:
                self.reach.look(process, mib)
        return sum(sizes.values())

    def _ask_to_end(self) -> None:
        self.asked = True
        for process in family(self.launcher)[1:]:
            with contextlib.suppress(OSError):  # it has just ended, or is another user's
                os.kill(process, signal.SIGTERM)


def _resident_mib(process: int) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _input_mode() -> int:
    """Of what masu itself was given to read; 0: nothing."""
    return os.fstat(0).st_mode if sys.stdin else 0


def own_input() -> Path:
    """What each run reads: a file is opened anew, from its start."""
    return Path("/proc/self/fd/0" if stat.S_ISREG(_input_mode()) else os.devnull)


def input_is_lost() -> bool:
    """What comes by a pipe can be read once only, so that no run gets it."""
    mode = _input_mode()
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def check_ended_well(usage: Usage, well: int = 0) -> None:
    """well: the exit status that a success has."""
    if usage.status != well:
        instead = f" instead of {well}" if well and usage.status >= 0 else ""
        raise Problem(f"{_how(usage)}{instead}{_last_line(usage.errors)}")


def _how(usage: Usage) -> str:
    return f"exit status {usage.status}" if usage.status >= 0 else f"signal {-usage.status}"


def _last_line(errors: str) -> str:
    said = errors.strip().splitlines()
    return f": {said[-1][:160]}" if said else ""


class Program:
    """Runs a program on one allocator at a time. The first run on each, that on the system's before the others, is
    looked at closely: which malloc its processes have, and what exit status a success has."""

    def __init__(self, lasting: float = 0.0, hint: Callable[[str], object] = lambda text: None) -> None:
        """lasting: it is ended after so many seconds. hint: is told what may help, while the program runs."""
        self.lasting, self.hint = lasting, hint
        self.well = 0
        self.other_malloc = ""
        """A library that would answer malloc where nothing is preloaded."""
        self.seen: set[str] = set()

    def __call__(self, command: Sequence[str], allocator: Allocator, metric: re.Pattern[str] | None) -> Run:
        """Problem: it failed."""
        reach = None if allocator.name in self.seen else Reach(allocator.library, launcher())
        if allocator == SYSTEM and reach and (other := answers_malloc(command[0])):
            self.other_malloc = other
            reach.libraries.add(other)
        curve, usage = self._measured(command, self._meant(allocator), reach)
        self.seen.add(allocator.name)
        if self.lasting and not curve.asked:
            raise Problem(f"it ended by itself after {usage.wall_s:.1f} s, with {_how(usage)}{_last_line(usage.errors)}")
        if curve.asked and usage.status in (-signal.SIGTERM, 128 + signal.SIGTERM):
            usage = replace(usage, status=0)
        if allocator == SYSTEM and reach:
            self.other_malloc = reach.other_malloc()
            self.well = usage.status if 0 <= usage.status <= LARGEST_STATUS else 0
        check_ended_well(usage, self.well)
        usage = replace(usage, peak_rss_kib=max(usage.peak_rss_kib, int(curve.peak_mib * 1024)))
        return Run(usage, _found(metric, usage), curve.samples, own_figures(usage.output), reach)

    def _meant(self, allocator: Allocator) -> Allocator:
        """The system's is the C library's, also where the program would have another."""
        return C_LIBRARY if allocator == SYSTEM and self.other_malloc else allocator

    def _measured(self, command: Sequence[str], allocator: Allocator, reach: Reach | None) -> tuple[Curve, Usage]:
        curve = Curve(reach, self.lasting)
        timeout = self.lasting + GRACE_S if self.lasting else PATIENCE_S
        hint = threading.Timer(HINT_S, self.hint, [f"{command[0]} has run for {HINT_S:.0f} s; if it does not end by itself, "
                                                   "--for SECONDS ends each run"])  # fmt: skip
        if not self.seen and not self.lasting:
            hint.start()
        try:
            return curve, measure(list(command), allocator, timeout=timeout, started=curve.watch, source=own_input())
        finally:
            hint.cancel()
            curve.end()


def _found(metric: re.Pattern[str] | None, usage: Usage) -> float:
    if not metric:
        return 0.0
    match = metric.search(usage.output) or metric.search(usage.errors)
    if not match:
        raise Problem(f"its output has nothing that matches {metric.pattern}")
    try:
        value = float((match.group(1 if metric.groups else 0) or "").replace(",", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Problem(f"{match.group(0)!r} is no number")
    return value


def compare(
    command: Sequence[str],
    allocators: Sequence[Allocator],
    console: Console,
    *,
    rounds: int = 0,
    metric: str = "",
    less: bool = False,
    seconds: float = SECONDS,
    figures: tuple[Row, ...] = FIGURES,
    once: Callable[[Sequence[str], Allocator, re.Pattern[str] | None], Run] | None = None,
) -> Comparison:
    """Rounds that run every allocator once, in random order, after one that doesn't count and begins with the system's.
    `rounds` 0: until the ratios of the judged figures are tight, or the time is up. Ctrl-C ends
    it with what was measured."""
    try:
        pattern = re.compile(metric) if metric else None
    except re.error as error:
        raise Problem(f"--metric {metric}: {error}") from None
    result = Comparison(list(command), {a.name: [] for a in allocators}, metric=metric, less=less, counted=figures)
    once = once or Program()
    running, order, start, done = list(allocators), random.Random(), time.monotonic(), -1
    answers: dict[str, Answers] = {a.name: {} for a in allocators}
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("left"), TimeRemainingColumn())
    # The pace is that of all runs so far: in the usual half minute there may be none.
    with Progress(*columns, console=console, transient=True, speed_estimate_period=math.inf) as progress:
        task = progress.add_task("warming up", total=1.0)
        try:
            while running and done < (rounds or MOST_ROUNDS):
                turn = order.sample(running, len(running)) if done >= 0 else sorted(running, key=lambda a: a.name != SYSTEM.name)
                for place, allocator in enumerate(turn):
                    progress.update(
                        task,
                        description=f"round {done + 1}: {allocator.name}" if done >= 0 else f"warming up: {allocator.name}",
                        completed=_part(done + 1 + place / len(turn), rounds, time.monotonic() - start, seconds),
                    )
                    try:
                        run = once(command, allocator, pattern)
                    except Problem as problem:
                        result.failed[allocator.name] = str(problem)
                        result.runs.pop(allocator.name)
                        running.remove(allocator)
                        continue
                    add_answers(answers[allocator.name], run.own)
                    if done >= 0:
                        result.runs[allocator.name].append(run)
                    else:
                        result.warm_ups[allocator.name] = run
                done += 1
                over = time.monotonic() - start > seconds
                if not rounds and done >= LEAST_ROUNDS and (over or _is_tight(result)):
                    break
        except KeyboardInterrupt:
            if done < 1:
                raise
            result.interrupted = True
    _settle(result, answers)
    return result


def _settle(c: Comparison, answers: dict[str, Answers]) -> None:
    """Leaves out the round that was interrupted, and whose answers are not the first one's."""
    least = min((len(runs) for runs in c.runs.values()), default=0)
    for runs in c.runs.values():
        del runs[least:]
    for name, why in differing({name: answers[name] for name in c.runs}, next(iter(c.runs), "")).items():
        c.failed[name] = why
        del c.runs[name]


def _part(made: float, rounds: int, used: float, seconds: float) -> float:
    """Of the rounds that there will be, the warm-up among them: as many as are asked for, else as fit the time at
    the pace so far. `made` in `used` seconds, parts of one included."""
    fit = made * seconds / used if used else math.inf
    expected = rounds + 1 if rounds else min(max(fit, LEAST_ROUNDS + 1), MOST_ROUNDS + 1)
    return min(0.99, made / expected)


def _is_tight(c: Comparison) -> bool:
    if SYSTEM.name not in c.runs:
        return True
    judged = [f for f in c.figures if f.judged]
    return all(c.ratio(n, f).spread <= TIGHT for n in c.runs if n != SYSTEM.name for f in judged)


# ---- What it says ----


def interruption(c: Comparison) -> str:
    """Of one that Ctrl-C ended; else empty."""
    return f"interrupted after {c.rounds} round{'s' * (c.rounds != 1)}" if c.interrupted else ""


def missed(c: Comparison) -> tuple[float, str]:
    """The part of the memory over time that was in processes which an allocator did not reach, and a sentence on it."""
    part, why = max((run.reach.missed() for run in c.warm_ups.values() if run.reach), default=(0.0, ""))
    return part, f"no allocator reached {part:.0%} of its memory: {why}" if part > MISSED else ""


def notes(c: Comparison) -> list[str]:
    """What has to be known beside the figures; a line each."""
    lines = []
    system = c.warm_ups.get(SYSTEM.name)
    if system and system.usage.status:
        lines.append(f"it ends with exit status {system.usage.status} on the system's allocator, and so it has to on the others"
                     + _last_line(system.usage.errors))  # fmt: skip
    if system and system.reach and (other := system.reach.other_malloc()):
        lines.append(f"{other} answers malloc in it: for `system` the C library is preloaded")
    part, sentence = missed(c)
    return [*lines, *[sentence] * bool(sentence)]


def _gain(c: Comparison, name: str, figure: Row, base: str) -> tuple[float, bool]:
    """How many times as good as base, and whether that is beyond noise."""
    r = c.ratio(name, figure, base)
    if not r.median > 0:
        return 1.0, False
    return (r.median if figure.more else 1 / r.median), r.differs and abs(r.median - 1) > MATTERS


def _best(c: Comparison, figure: Row) -> tuple[str, list[str]]:
    """The best allocator, and those that are as good within noise."""
    medians = {name: statistics.estimate(c.values(name, figure)).median for name in c.runs}
    best = (max if figure.more else min)(medians, key=medians.__getitem__)
    return best, [n for n in c.runs if n != best and not _gain(c, n, figure, best)[1]]


def advice(c: Comparison) -> str:
    """Plain sentences; the first says what to do."""
    if SYSTEM.name not in c.runs or len(c.runs) < 2:
        return f"Nothing to compare: {'no other allocator ran' if SYSTEM.name in c.runs else 'the system allocator did not run'}."
    part, sentence = missed(c)
    if part > 0.5:
        return f"Nothing to compare: {sentence}."
    if c.rounds < LEAST_ROUNDS:
        return f"Too few rounds to say which fits: below {LEAST_ROUNDS} any difference may be noise."
    speed = c.figures[0]
    memory = next(f for f in c.figures if f.label == "peak memory")
    best, even = _best(c, speed)
    gain, sure = _gain(c, best, speed, SYSTEM.name)
    what = f"by {speed.label} ({c.way})" if c.metric else "by CPU time" if c.counted is LASTING else "by time"
    if best == SYSTEM.name or SYSTEM.name in even or not sure:
        slower = [n for n in c.runs if _gain(c, n, speed, SYSTEM.name)[1] and _gain(c, n, speed, SYSTEM.name)[0] < 1]
        first = f"No {'gain' if slower else 'difference'} beyond noise {what}: this program can stay on the system's allocator."
        if slower:
            first += f" Slower here: {', '.join(slower)}."
        best, even = SYSTEM.name, [n for n in c.runs if n != SYSTEM.name and n not in slower]
    else:
        times = 1 / gain if c.metric and c.less else gain
        first = f"Best {what}: {best}, {times:.2f} times the system's."
        if even:
            first += f" As good within noise: {', '.join(even)}."
    frugal = min((best, *even), key=lambda n: statistics.estimate(c.values(n, memory)).median)
    saves, sure = _gain(c, frugal, memory, SYSTEM.name)
    if sure and frugal != SYSTEM.name:
        word = "less" if saves > 1 else "more"
        part = 1 - 1 / saves if saves > 1 else 1 / saves - 1
        first += f" {frugal} takes {part:.0%} {word} memory at its peak than the system's."
    elif frugal == SYSTEM.name and best != SYSTEM.name:
        first += " The system's allocator takes least memory of those."
    return first


def as_json(c: Comparison) -> dict:
    return {
        "command": c.command,
        "rounds": c.rounds,
        "interrupted": c.interrupted,
        "failed": c.failed,
        "notes": notes(c),
        "advice": advice(c),
        "rows": [
            {
                "allocator": name,
                "figure": f.label,
                "unit": f.unit,
                "better": "more" if f.more else "less",
                "values": c.values(name, f),
                "median": statistics.estimate(c.values(name, f)).median,
                "ratio": _ratio_json(c, name, f),
            }
            for name in c.runs
            if c.runs[name]
            for f in c.figures
        ],
        "curves": {name: runs[-1].curve for name, runs in c.runs.items() if runs},
    }


def _ratio_json(c: Comparison, name: str, figure: Row) -> list[float] | None:
    if name == SYSTEM.name or not c.runs.get(SYSTEM.name):
        return None
    r = c.ratio(name, figure)
    return [r.median, r.low, r.high] if r.median == r.median else None
