"""What the measurements say: a row for each program and observer, and their sums."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from masu.measuring import statistics

from observers.contenders import AGAIN, LIMITS, Contender
from observers.running import Run, timed_cpu

HELD, BROKEN, OPEN = "held", "broken", "not clear"


@dataclass
class Measured:
    """A program: by input (Contender.input) and contender the rounds' seconds and KiB; or why there are none. `whole`: the
    seconds of the whole command."""

    program: str
    allocates: bool
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    kib: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    whole: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    own: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """The part of the program's CPU time that a profiler says it took."""
    cpu: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Seconds of CPU time."""
    together: dict[str, list[float]] = field(default_factory=dict)
    """The same by contender, of the rounds in which all run at once; of a program that times a part of itself, of that part."""
    process: dict[str, list[float]] = field(default_factory=dict)
    """Of such a program all of its CPU time, in the same rounds."""

    def add(self, length: str, name: str, run: Run) -> None:
        for values, figure in ((self.seconds, run.seconds), (self.whole, run.whole), (self.kib, run.peak_kib), (self.cpu, run.cpu)):
            values.setdefault(length, {}).setdefault(name, []).append(figure)
        if run.own:
            self.own.setdefault(length, {}).setdefault(name, []).append(run.own / run.cpu)

    def add_together(self, name: str, run: Run, timed: bool) -> None:
        part = timed_cpu(run) if timed else run.cpu
        self.together.setdefault(name, []).append(part)
        if timed:
            self.process.setdefault(name, []).append(run.cpu)

    def drop(self, length: str, name: str, why: str) -> None:
        self.missing[name] = why
        for values in (self.seconds, self.whole, self.kib, self.own, self.cpu):
            values.get(length, {}).pop(name, None)
        self.together.pop(name, None)
        self.process.pop(name, None)


def rows(measured: Iterable[Measured], all_: list[Contender]) -> list[dict]:
    return judged([_row(one, contender) for one in measured for contender in all_ if contender.of and _concerns(one, contender)])


def _concerns(one: Measured, contender: Contender) -> bool:
    return contender.name in one.missing or any(contender.name in values for values in one.seconds.values())


def _row(one: Measured, contender: Contender) -> dict:
    row = {"program": one.program, "allocates": one.allocates, "observer": contender.name}
    if contender.name in one.missing:
        return {**row, "missing": one.missing[contender.name]}
    length = contender.input
    own, base = one.seconds[length][contender.name], one.seconds[length][contender.of]
    kib, base_kib = one.kib[length][contender.name], one.kib[length][contender.of]
    count = min(len(own), len(base))  # rounds that both were in, from the first on
    times, memory = statistics.ratio(own[:count], base[:count]), statistics.ratio(kib[:count], base_kib[:count])
    return {
        **row,
        "input": length,
        "rounds": count,
        "seconds": statistics.estimate(own[:count]).median,
        "seconds_without": statistics.estimate(base[:count]).median,
        "kib": statistics.estimate(kib[:count]).median,
        "kib_without": statistics.estimate(base_kib[:count]).median,
        "time": _interval(times),
        **({"cpu": _interval(statistics.estimate(parts)), "cpu_rounds": len(parts)} if (parts := _cpu(one, contender, count)) else {}),
        **({"process": _interval(statistics.ratio(one.process[contender.name], one.process[contender.of]))} if contender.name in one.process else {}),
        **({"time_whole": _interval(statistics.ratio(one.whole[length][contender.name][:count], base[:count]))} if contender.records else {}),
        "memory": _interval(memory),
        **({"own": _interval(statistics.estimate(shares))} if (shares := one.own.get(length, {}).get(contender.name)) else {}),
    }  # fmt: skip


def _cpu(one: Measured, contender: Contender, count: int) -> list[float]:
    """What samples: its ratio in each round, if there are some together in those. Of a server that had nothing to do, none."""
    times = one.cpu.get(contender.input, {}) if contender.samples else {}
    own, base = (times.get(name, [])[:count] for name in (contender.name, contender.of))
    if contender.name in one.together:
        own, base = one.together[contender.name], one.together[contender.of]
    return [a / b for a, b in zip(own, base, strict=True)] if base and all(base) else []


def narrow(one: Measured, some: Iterable[Contender], part: float) -> bool:
    """Is the interval of each that has a limit at most as wide as this part of what the limit leaves? Of the width only:
    rounds that ended as soon as they hold would favour what holds."""
    return all(_width(one.together[c.name], one.together[c.of]) <= part * (_limit(one.allocates, c.name) - 1) for c in some if c.name in LIMITS)


def _width(own: list[float], base: list[float]) -> float:
    if not all(base):
        return math.inf
    found = statistics.estimate([a / b for a, b in zip(own, base, strict=True)])
    return found.high - found.low


def _limit(allocates: bool, name: str) -> float:
    return LIMITS[name][0 if allocates else 1]


def limited(row: dict) -> list[float | None]:
    """What its limit is about: CPU time; of the recorder, and of a run from before, time."""
    return row.get("cpu", row["time"])


def judged(all_rows: list[dict]) -> list[dict]:
    """With their limits and what became of them. A run from before may have had none."""
    noise = {(row["program"], row["input"]): limited(row)[2] for row in all_rows if row["observer"] == AGAIN and "time" in row}
    found = []
    for row in all_rows:
        if "time" in row and row["observer"] in LIMITS:
            limit = _limit(row["allocates"], row["observer"])
            row = {**row, "limit": limit, "verdict": verdict(limited(row), limit, noise.get((row["program"], row["input"])))}
        found.append(row)
    return found


def _interval(e: statistics.Estimate) -> list[float | None]:
    """Of few rounds there is none."""
    return [x if math.isfinite(x) else None for x in (e.median, e.low, e.high)]


def verdict(interval: list[float | None], limit: float, noise: float | None = None) -> str:
    """noise: up to which a copy's interval goes. What isn't beyond that may be as good as the copy."""
    _, low, high = interval
    if low is None or high is None:
        return OPEN
    return HELD if high <= limit else BROKEN if low > max(limit, noise or 0) else OPEN


def limits(all_rows: list[dict]) -> list[dict]:
    """Of each limit the programs by what became of it there, and what became of it in all."""
    found: dict[tuple[str, bool], dict] = {}
    for row in judged(all_rows):
        if "verdict" in row:
            one = {"observer": row["observer"], "allocates": row["allocates"], "limit": row["limit"], HELD: [], OPEN: [], BROKEN: []}
            found.setdefault((row["observer"], row["allocates"]), one)[row["verdict"]].append(row)
    for one in found.values():
        one["verdict"] = BROKEN if one[BROKEN] else OPEN if one[OPEN] else HELD
    return list(found.values())


def sums(all_rows: list[dict]) -> list[dict]:
    """For each observer and kind of program: the mean ratios, the worst, and what was missing."""
    found = []
    for name in dict.fromkeys(row["observer"] for row in all_rows):
        for allocates in (True, False):
            some = [row for row in all_rows if row["observer"] == name and row["allocates"] == allocates]
            there = [row for row in some if "time" in row]
            one = {"observer": name, "allocates": allocates, "programs": len(there)}
            if there:
                worst = max(there, key=lambda row: row["time"][0])
                added = max(there, key=lambda row: row["kib"] - row["kib_without"])
                one |= {
                    "time": statistics.geometric_mean([row["time"][0] for row in there]),
                    "time_worst": worst["time"][0],
                    "time_worst_program": worst["program"],
                    "memory": statistics.geometric_mean([row["memory"][0] for row in there]),
                    "kib_added_most": added["kib"] - added["kib_without"],
                    "kib_added_most_program": added["program"],
                }
                if any("verdict" in row for row in there):
                    one |= {"limit": there[0]["limit"],
                            **{word: sum(row["verdict"] == word for row in there) for word in (HELD, OPEN, BROKEN)}}  # fmt: skip
            if some:
                found.append(one)
    return found
