"""What masu wants to reach, beside what the committed run shows, as the table of docs/targets.md.

    build/bench-venv/bin/python bench/targets.py [RESULTS]    prints it; RESULTS: bench/results/reference.json
    build/bench-venv/bin/python bench/targets.py --check      exit status 1 when docs/targets.md has another one

A ratio is that of masu to the best of the others in that figure of that case, unless the target says otherwise,
turned so that less is better. It reaches a target when its 95 % interval does.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from masu.bench import cases, report
from masu.bench.allocators import AGAIN, INLINE, LEAST, OURS, Contender
from masu.bench.run import HUGE_OFF, Measured, best_of
from masu.measuring.statistics import Estimate, estimate, ratio

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "bench/results/reference.json"
PAGE = ROOT / "docs/targets.md"
BEGIN, END = "<!-- bench/targets.py -->", "<!-- end -->"
NAMED = 6
"""So many that miss a target are named."""
SYSTEM = "system"
NEAR = 1.5
"""So many times the time of the fastest: what takes longer is not asked how little memory it needs."""


@dataclass(frozen=True)
class Found:
    """One number that has to be at most `most`."""

    case: str
    value: Estimate
    most: float
    of: str = ""
    """The allocator that the ratio is to; '' for a figure of masu's own."""
    unit: str = ""

    @property
    def reached(self) -> bool:
        return (self.value.low if self.value.has_interval else self.value.median) <= self.most

    def __str__(self) -> str:
        number = f"{self.value.median:,.0f}" if self.unit else f"{self.value.median:.2f}"
        interval = f" ({self.value.low:.2f}–{self.value.high:.2f})" if self.value.has_interval and not self.unit else ""
        return f"`{self.case}` {number}{interval}{self.unit and ' ' + self.unit}{f' of {self.of}' if self.of else ''}"


class Run:
    """What a run measured: {case: {allocator: {figure: the values of its rounds}}}."""

    def __init__(self, results: dict):
        self.values = results["values"]
        self.measured = {case: Measured(case, values=values) for case, values in self.values.items()}
        self.counted = {(r["case"], r["figure"], r["allocator"]): r["median"] for r in results["rows"] if r.get("rounds") == 1}
        self.figures = {(c.name, f.key): f for c in cases.ALL for f in c.figures}

    def figure(self, case: str, key: str) -> cases.Figure:
        return self.figures[case.removesuffix(f", {HUGE_OFF}"), key]

    def matching(self, *patterns: str) -> list[str]:
        """The cases, with huge pages off as well, in their order."""
        found = [name for name in self.values if any(fnmatch(name.removesuffix(f", {HUGE_OFF}"), p) for p in patterns)]
        if not found:
            sys.exit(f"targets.py: the results have none of {', '.join(patterns)}")
        return found

    def of(self, case: str, allocator: str, key: str) -> list[float]:
        return self.values[case].get(allocator, {}).get(key, [])

    def peers(self, case: str) -> list[str]:
        return [name for name in self.values[case] if name not in (OURS, AGAIN, INLINE, LEAST)]

    @cache
    def to(self, case: str, key: str, other: str) -> Estimate:
        ours, theirs = self.of(case, OURS, key), self.of(case, other, key)
        return ratio(theirs, ours) if self.figure(case, key).more else ratio(ours, theirs)

    @cache
    def to_best(self, most: float, case: str, key: str) -> Found:
        best = best_of(self.figure(case, key), self.measured[case], self.peers(case))
        return Found(_called(case, key), self.to(case, key, best), most, best)

    def keys(self, case: str, memory: bool) -> list[str]:
        """The judged figures of a case."""
        measured = self.values[case].get(OURS, {})
        return [key for key in measured if self.figure(case, key).judged and self.figure(case, key).memory == memory]


def _called(case: str, key: str) -> str:
    """Which figure, where a case has several of a kind."""
    short = key.removesuffix("_ns").removesuffix("_kib").removesuffix("_s")
    return case if short in ("pair", "operation", "step", "wall", "write", "block", "call") or key.endswith("per_s") else f"{case}: {short}"


# ---- The targets ----


def best(most: float, *patterns: str, memory: bool = False, keys: tuple[str, ...] = ()) -> Callable[[Run], Iterator[Found]]:
    """To the best of the others, in each figure of time, or of memory, or in these."""

    def found(run: Run) -> Iterator[Found]:
        for case in run.matching(*patterns):
            for key in keys or run.keys(case, memory):
                if run.of(case, OURS, key):
                    yield run.to_best(most, case, key)

    return found


def to(other: str, most: float, *patterns: str) -> Callable[[Run], Iterator[Found]]:
    def found(run: Run) -> Iterator[Found]:
        for case in run.matching(*patterns):
            for key in run.keys(case, memory=False):
                if run.of(case, other, key):
                    yield Found(_called(case, key), run.to(case, key, other), most, other)

    return found


def own(most: float, unit: str, case: str, key: str) -> Callable[[Run], Iterator[Found]]:
    """A figure of masu's own."""

    def found(run: Run) -> Iterator[Found]:
        run.matching(case.removesuffix(f", {HUGE_OFF}"))
        yield Found(_called(case, key), estimate(run.of(case, OURS, key)), most, unit=unit)

    return found


def within(most: float, of: str, *patterns: str, keys: tuple[str, ...]) -> Callable[[Run], Iterator[Found]]:
    """masu's resident memory as a part of another figure of the same run."""

    def found(run: Run) -> Iterator[Found]:
        for case in run.matching(*patterns):
            for key in keys:
                if base := run.of(case, OURS, of):
                    yield Found(_called(case, key), ratio(run.of(case, OURS, key), base), most)

    return found


def no_system_calls(run: Run) -> Iterator[Found]:
    """What the counted run makes in all, beside that with the smallest blocks."""
    few = run.counted["single-16", "system_calls", OURS]
    for case in ("single-512K", "single-1M", "single-2M", "single-4M"):
        more = run.counted[case, "system_calls", OURS] - few
        yield Found(case, Estimate(more, -math.inf, math.inf), 20, unit="system calls more than `single-16`")


def worst_call(run: Run) -> Iterator[Found]:
    for case in run.matching("stackprobe-tail"):
        empty = estimate(run.of(case, OURS, "calls_empty_worst_ns")).median
        for call in ("malloc", "realloc", "free"):
            value = estimate(run.of(case, OURS, f"calls_{call}_worst_ns"))
            yield Found(f"{case}: {call}", value, empty + 20_000, unit=f"ns, an empty loop's {empty:,.0f}")


def step2_after_threads(run: Run) -> Iterator[Found]:
    for off in ("", f", {HUGE_OFF}"):
        if f"indexer-32{off}" in run.values:
            many, one = (run.of(f"indexer-{n}{off}", OURS, "step2_wall_s") for n in (32, 1))
            # Of different cases, so that no rounds belong together: the ends of both intervals.
            a, b = estimate(many), estimate(one)
            yield Found(f"indexer-32{off}", Estimate(a.median / b.median, a.low / b.high, a.high / b.low), 1.1, "STEP 2 of `indexer-1`")


def smallest_of_the_fast(run: Run) -> Iterator[Found]:
    """Memory, beside the smallest of those that take no more than NEAR times as long as the fastest."""
    for case in run.matching("*"):
        times, sizes = run.keys(case, memory=False), run.keys(case, memory=True)
        if not times or not sizes or fnmatch(case, "solver*") or any(case.startswith(c.name) for c in cases.ALL if c.program):
            continue
        time = times[0]
        more = run.figure(case, time).more
        taken = {n: estimate(run.of(case, n, time)).median for n in run.peers(case) if run.of(case, n, time)}
        fastest = (max if more else min)(taken.values())
        near = [n for n, t in taken.items() if (fastest / t if more else t / fastest) <= NEAR]
        for key in sizes:
            smallest = min((n for n in near if run.of(case, n, key)), key=lambda n: estimate(run.of(case, n, key)).median)
            yield Found(_called(case, key), run.to(case, key, smallest), 1.0, smallest)


@dataclass(frozen=True)
class Target:
    family: str
    says: str
    found: Callable[[Run], Iterator[Found]]


PROGRAMS = tuple(c.name for c in cases.ALL if c.program)
OFF = f", {HUGE_OFF}"
AFTER = ("rss_little_kib", "rss_none_kib")

TARGETS = (
    Target("hit path", "1.00", best(1.0, "pairs-*", "sized-*")),
    Target("", "1.15 of the least that a preloaded library can do", to(LEAST, 1.15, "pairs-*", "sized-*")),
    Target("batches beyond any cache", "0.95", best(0.95, "kmalloc-round", "recycle-*")),
    Target("", "`kmalloc-round`: 12.5 times as fast as the system's", to(SYSTEM, 1 / 12.5, "kmalloc-round")),
    Target("single sizes, 16 B to 4 MiB", "1.00", best(1.0, "single-*")),
    Target("", "512 KiB and up: no system call", no_system_calls),
    Target("game frames", "`stackprobe`: 0.90", best(0.90, "stackprobe")),
    Target("", "99.99 % of the calls without fault or switch: 0.80", best(0.80, "stackprobe-tail", keys=tuple(f"calls_{c}_p9999_ns" for c in ("malloc", "realloc", "free")))),
    Target("", "the worst of them: an empty loop's and 20 us", worst_call),
    Target("numeric solver", "1.00, time and peak", lambda run: (*best(1.0, "solver-*")(run), *best(1.0, "solver-*", memory=True)(run))),
    Target("indexer", "STEP 1 and 2: 0.95", best(0.95, "indexer-*")),
    Target("", "STEP 2 after 32 threads: 1.1 of that after 1", step2_after_threads),
    Target("hand-over", "0.95", best(0.95, "handover", "one-to-many", "many-to-one", "larson", "xmalloc", "mstress", "random-sizes*", "free-only")),
    Target("false sharing", "1.01", best(1.01, "cache-*")),
    Target("large blocks", "growth, 5 to 25 MiB, calloc: 0.90", best(0.90, "realloc-growth", "malloc-large", "calloc-zero")),
    Target("real programs", "time: 1.00", best(1.0, *PROGRAMS)),
    Target("", "peak: 1.00", best(1.0, *PROGRAMS, memory=True)),
    Target("N blocks of 16 B and their addresses, huge pages off", "100,000: 4,300 KiB", own(4300, "KiB", f"resident-100K-x-16{OFF}", "rss_kib")),
    Target("", "1,000,000: 25,250 KiB", own(25250, "KiB", f"resident-1000K-x-16{OFF}", "rss_kib")),
    Target("", "5,000,000: 119,200 KiB", own(119200, "KiB", f"resident-5000K-x-16{OFF}", "rss_kib")),
    Target("", "1,000,000 of 4 B: 8 B each, beside 7,812 KiB of addresses and a program's 2,048 KiB",
           own(7812.5 + 7812.5 + 2048, "KiB", f"resident-1000K-x-4{OFF}", "rss_kib")),
    Target("memory in every other case", "1.00 of the smallest of those within 1.5 times of the fastest", smallest_of_the_fast),
    Target("1 GiB freed whole", "after 2 s of little, and of no activity: 5 % of what was resident", within(0.05, "rss_full_kib", "freed-whole-threaded", keys=AFTER)),
    Target("", "without threads: 5 %, and 25 % after no activity", lambda run: (
        *within(0.05, "rss_full_kib", "freed-whole", keys=AFTER[:1])(run), *within(0.25, "rss_full_kib", "freed-whole", keys=AFTER[1:])(run))),
    Target("1 GiB freed at random to a tenth", "the same: 5 times what is live", within(5, "live_kib", "freed-random90*", keys=AFTER)),
    Target("threads that end, or sleep", "1.2 times what is live", within(1.2, "live_kib", "short-threads", "sleeping-threads", keys=("rss_kib",))),
)  # fmt: skip


def overall(run: Run) -> str:
    """What the run itself says on top."""
    named = {case.name: case for case in cases.ALL}
    variants = [(named[name.removesuffix(f", {HUGE_OFF}")], name) for name in run.values]
    everybody = {name: Contender(name, None, floor=name in (INLINE, LEAST)) for values in run.values.values() for name in values}
    lines = report.lines(variants, run.measured, list(everybody.values()))
    s = report.summary(lines, None)
    flat = [line.to_best.median for line in report.judged(lines) if line.to_best]
    return (
        f"Overall: to be the best in four cases of five, means of 0.95 in time and in memory, nothing above 1.10. masu is best in every figure of {s.best_cases} of {s.cases} cases, best or even in {s.good_cases}; "
        f"the means of the ratios to the best of each case are {s.mean_time:.2f} and {s.mean_memory:.2f}; {sum(r > 1.1 for r in flat)} of {len(flat)} figures are above 1.10."
    )


def table(results: dict) -> str:
    run = Run(results)
    lines = ["| | at most | reached | not reached, the worst first |", "|---|---|---|---|"]
    for target in TARGETS:
        found = list(target.found(run))
        missed = sorted((f for f in found if not f.reached), key=lambda f: -f.value.median / f.most)
        more = f"; {len(missed) - NAMED} more" if len(missed) > NAMED else ""
        reached = f"{len(found) - len(missed)} of {len(found)}"
        lines.append(f"| {target.family} | {target.says} | {reached} | {'; '.join(map(str, missed[:NAMED]))}{more} |")
    return "\n".join([overall(run), "", *lines])


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text().split(BEGIN)[1].split(END)[0].strip() != table(json.loads(REFERENCE.read_text())):
            sys.exit("docs/targets.md: the table is not that of bench/targets.py")
        return
    path = Path(sys.argv[1]) if sys.argv[1:] else REFERENCE
    print(table(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
