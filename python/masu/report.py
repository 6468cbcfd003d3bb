"""What a trace says about a program: figures, plots and advice for `masu report`."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from masu.compare import Comparison, interruption
from masu.measuring.measure import SYSTEM, Allocator, clean_environment
from masu.messages import Problem
from masu.pages import render
from masu.replay import Replayed, advised, described, prediction, program, touched
from masu.symbols import Symbols, mappings
from masu.trace import Process, Trace
from masu.tune import DEFAULT, choose_classes, loads, added

POOL_NS, SHARED_POOL_NS, ARENA_NS, SCOPE_NS = 2.31, 3.98, 1.85, 3.44
"""What a pair of calls takes by these forms: docs/forms.md, the rows of blocks of 48 bytes."""
HEADER = {SYSTEM.name: 8}
"""Bytes before each block that malloc_usable_size leaves out: glibc's, which takes 32 for 24."""
SHARE = 0.01
"""Of all allocations: a site with less isn't worth a change."""


@dataclass
class Site:
    """A place in the program that allocates; in traces without stacks, a size."""

    figures: dict
    frames: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        f = self.figures
        return f"blocks of {f['size']:,} bytes" if not f["stack"] else f"stack {f['stack']}"

    @property
    def one_size(self) -> float:
        """How many of its blocks have the usual size."""
        return self.figures["of_usual"] / self.figures["taken"]

    @property
    def run(self) -> float:
        """Blocks that are freed one after the other, on average, with none taken between."""
        return self.figures["given"] / self.figures["runs"] if self.figures["runs"] else 0.0


@dataclass(frozen=True)
class Gain:
    site: Site
    form: str
    why: str
    saved_s: float
    """Of time in malloc and free, estimated."""


@dataclass
class Analysis:
    data: dict
    sites: list[Site]
    usable: dict[str, list[int]] = field(default_factory=dict)
    """For each allocator what it gives for each of data["sizes"]."""

    def waste_by_class(self, name: str) -> list[tuple[int, int]]:
        """Bytes beyond what was asked for, at the moment of most live bytes, by what a block takes."""
        lost: dict[int, int] = {}
        for (size, _, _, live), usable in zip(self.data["sizes"], self.usable[name]):
            block = usable + HEADER.get(name, 0)
            if live > 0:
                lost[block] = lost.get(block, 0) + max(0, block - size) * live
        return sorted(lost.items())

    def waste(self, name: str) -> float:
        """All of them, as a part of what was asked for."""
        asked = sum(size * live for size, _, _, live in self.data["sizes"] if live > 0)
        return sum(lost for _, lost in self.waste_by_class(name)) / asked if asked else 0.0


def analyse(trace: Trace, process: Process, folder: Path) -> Analysis:
    source = trace.extract(process, folder / "blocks")
    run = subprocess.run([program("trace_analyze"), source], capture_output=True, text=True, check=False)
    source.unlink()
    if run.returncode:
        raise Problem(f"{trace.path}: {run.stderr.strip() or f'trace_analyze ends with {run.returncode}'}")
    data = json.loads(run.stdout)
    if not data["sizes"]:
        raise Problem(f"{trace.path}: process {process.head.process} ({process.name}) allocated nothing that was recorded")
    symbols = Symbols(mappings(process.maps))
    sites = [
        Site(s, [symbols.name(a) for a in data["stacks"].get(str(s["stack"]), [])]) for s in data["sites"]
    ]
    return Analysis(data, sites)


def measure_usable(analysis: Analysis, allocators: Sequence[Allocator]) -> None:
    """Asks each allocator what it gives for the sizes of the trace."""
    sizes = [size for size, *_ in analysis.data["sizes"]]
    given = "\n".join(map(str, sizes)) + "\n"
    for allocator in allocators:
        run = subprocess.run(
            [program("trace_usable")], input=given, env=clean_environment(allocator), capture_output=True, text=True, check=False
        )
        answer = [int(line) for line in run.stdout.split()]
        if run.returncode == 0 and len(answer) == len(sizes):
            analysis.usable[allocator.name] = answer


# ---- Advice ----


def gains(analysis: Analysis, pair_ns: float) -> list[Gain]:
    """Sites that a form would serve better, and what that would save of `pair_ns` a block."""
    calls = sum(taken for _, taken, _, _ in analysis.data["sizes"])  # also of sites that are not among these
    found = []
    for site in analysis.sites:
        f = site.figures
        if f["taken"] < max(100, SHARE * calls) or not f["given"] or f["resized"] > 0.05 * f["taken"]:
            continue
        size = f"{f['usual']:,} bytes"
        life = duration(f["life_ns"] * 1e-9)

        def gain(form: str, floor_ns: float, why: str, site=site, f=f) -> Gain:
            return Gain(site, form, why, max(0.0, pair_ns - floor_ns) * 1e-9 * f["taken"])

        if f["handed"] <= 0.01 * f["given"] and f["lifo"] >= 0.9 * f["given"] and f["life_ns"] < 1e6:
            found.append(gain("scope", SCOPE_NS, f"of those that are there the youngest is freed first, after {life}"))
        elif f["handed"] <= 0.01 * f["given"] and site.run >= 32:
            found.append(gain("arena", ARENA_NS, f"they die together, {site.run:,.0f} at a time"))
        elif site.one_size >= 0.95:
            shared = f["handed"] > 0.01 * f["given"]
            why = f"{site.one_size:.0%} have {size}; up to {f['blocks_most']:,} at once" + " (shared: other threads free them)" * shared
            found.append(gain("pool", SHARED_POOL_NS if shared else POOL_NS, why))
    return sorted(found, key=lambda g: -g.saved_s)


def pair_ns(replayed: Replayed | None, name: str) -> float:
    """An allocation and a release on that allocator, by the medians; 0: not measured."""
    calls = replayed.single.get(name, {}).get("calls", {}) if replayed else {}

    def middle(kinds: Sequence[str]) -> float:
        of = [(calls[k]["p50_ns"], calls[k]["count"]) for k in kinds if k in calls]
        count = sum(n for _, n in of)
        return sum(ns * n for ns, n in of) / count if count else 0.0

    return middle(("malloc", "calloc", "realloc", "new", "aligned_alloc", "new_aligned")) + middle(
        ("free", "delete", "delete_sized", "free_sized")
    )


def sentences(analysis: Analysis, replayed: Replayed | None, options: dict[str, str], trace: Path) -> list[str]:
    """The first says which allocator; `options` names the allocators that are masu with options."""
    said = [advised(replayed), *prediction(replayed)] if replayed else []
    c = replayed.comparison if replayed else Comparison([])
    for name, text in options.items():
        if name not in c.runs or "masu" not in c.runs:
            continue
        for figure in (f for f in c.figures if f.label in ("time", "peak memory")):
            r = c.ratio(name, figure, "masu")
            if r.high < 0.97:
                said.append(f"MASU_OPTIONS={text} brings masu's {figure.label} to {r.median:.2f} of what it is without.")
    wastes = {name: analysis.waste(name) for name in analysis.usable}
    if wastes and "masu" in wastes:
        least = min(wastes, key=wastes.__getitem__)
        said.append(
            f"Of what is live at the peak, masu's size classes add {wastes['masu']:.1%}"
            + (f"; the least is {least} with {wastes[least]:.1%}." if least != "masu" else ", the least of all.")
        )
    at_peak, on_average = loads(analysis.data)
    chosen = added(choose_classes(at_peak, on_average), at_peak)
    said.append(
        f"masu tune {trace} would choose other size classes, which add {chosen:.1%} to its blocks up to 32 KiB instead of "
        f"{added(DEFAULT, at_peak):.1%} (larger blocks, and slabs that are begun), and tries them and masu's options by replay."
    )
    return said


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


# ---- The page ----

SITES = 20
"""So many are shown by calls, and as many by bytes."""


def most(sites: Sequence[Site]) -> list[Site]:
    """Those with most calls, then those with most bytes at the peak that are not among them."""
    by_calls = sorted(sites, key=lambda s: -s.figures["taken"])[:SITES]
    by_bytes = sorted((s for s in sites if s.figures["at_peak"]), key=lambda s: -s.figures["at_peak"])[:SITES]
    return by_calls + [s for s in by_bytes if s not in by_calls]


def thread_names(rows: int, threads: int) -> dict[int, str]:
    """Of some rows of the matrix; where there are more threads, all that have none share the last."""
    named = {row: str(row) for row in range(0, rows, 1 + rows // 12)}
    return {**named, rows - 1: "others"} if threads > rows else named


def page(
    trace: Trace, process: Process, analysis: Analysis, summary: dict, replayed: Replayed | None, versions: dict[str, str], options: dict
) -> str:
    """One file without network. replayed None: Ctrl-C came before there was a round."""
    from masu.measuring.plots import plot
    from masu.comparison import cells, ratios

    c, data = replayed.comparison if replayed else Comparison([]), analysis.data
    single = replayed.single if replayed else {}
    names = [name for name, runs in c.runs.items() if runs]
    curves = {name: c.runs[name][-1].own["curve"] for name in names if c.runs[name][-1].own["curve"]}
    width = {name: 2.0 if name == "masu" else 1.0 for name in names}

    def over_time(axes) -> None:
        axes.fill_between([p[0] for p in data["curve"]], [p[1] / 2**20 for p in data["curve"]], color="#bcd")
        axes.set_xlabel("seconds of the recording")
        axes.set_ylabel("MiB live")

    def resident(axes) -> None:
        for name, curve in curves.items():
            time, rss, live = zip(*curve)
            (line,) = axes.plot(time, [k / 1024 for k in rss], label=name, linewidth=width[name])
            axes.plot(time, [k / 1024 for k in live], ":", color=line.get_color(), linewidth=width[name])
        axes.plot([], [], ":", color="gray", label="dotted: live bytes")
        axes.set_xlabel("seconds of the replay")
        axes.set_ylabel("MiB resident")
        axes.legend(fontsize=8, frameon=False, ncols=2)

    def sizes(axes) -> None:
        steps: dict[int, int] = {}
        for size, taken, _, _ in data["sizes"]:
            steps[max(size, 1).bit_length()] = steps.get(max(size, 1).bit_length(), 0) + taken
        low, high = min(steps), max(steps)
        axes.bar(range(low, high + 1), [steps.get(b, 0) for b in range(low, high + 1)], color="#47a")
        axes.set_xticks(range(low, high + 1), [_bytes((1 << b) - 1) for b in range(low, high + 1)], rotation=60, fontsize=8)
        axes.set_yscale("log")
        axes.set_xlabel("bytes asked for, up to")
        axes.set_ylabel("calls")

    def wastes(axes) -> None:
        shown_names = sorted(analysis.usable, key=analysis.waste)
        axes.barh(range(len(shown_names)), [100 * analysis.waste(n) for n in shown_names],
                  color=["#1a7f37" if n == "masu" else "#999" for n in shown_names])  # fmt: skip
        axes.set_yticks(range(len(shown_names)), shown_names)
        axes.invert_yaxis()
        axes.set_xlabel("% added by size classes to what is live at the peak")

    def wastes_by_class(axes) -> None:
        for name in analysis.usable:
            by_class = analysis.waste_by_class(name)
            axes.step([max(size, 1) for size, _ in by_class], [n / 1024 for n in accumulate(lost for _, lost in by_class)],
                      where="post", marker=".", label=name, linewidth=width.get(name, 1))  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda n, _: _bytes(int(n)))
        axes.set_xlabel("bytes that a block takes")
        axes.set_ylabel("KiB added at the peak")
        axes.legend(fontsize=8, frameon=False, ncols=2)

    def lifetimes(axes) -> None:
        lives = [n for n, _ in data["lifetimes"]]
        there = [b for b, n in enumerate(lives[:-1]) if n]
        low, high = (min(there), max(there)) if there else (0, 0)
        axes.bar(range(low, high + 1), lives[low : high + 1], color="#47a")
        ticks = range(low, high + 1, 3)
        axes.set_xticks(ticks, [duration(2.0**b * 1e-9) for b in ticks], fontsize=8)
        axes.set_yscale("log" if there else "linear")
        axes.set_xlabel(f"time from allocation to release, at least (never released: {lives[-1]:,})")
        axes.set_ylabel("blocks")

    def matrix(axes) -> None:
        most = max(n for row in data["handed"] for n in row)
        axes.imshow([[math.log10(n + 1) for n in row] for row in data["handed"]], cmap="Blues", aspect="equal")
        ticks = thread_names(len(data["handed"]), data["threads"])
        axes.set_xticks(list(ticks), ticks.values())
        axes.set_yticks(list(ticks), ticks.values())
        axes.set_xlabel("released by thread")
        axes.set_ylabel("taken by thread")
        if len(data["handed"]) <= 12:
            for y, row in enumerate(data["handed"]):
                for x, n in enumerate(row):
                    if n:
                        dark = math.log10(n + 1) > 0.6 * math.log10(most + 1)
                        axes.text(x, y, f"{n:,}", ha="center", va="center", fontsize=8, color="white" if dark else "black")

    def tails(axes) -> None:
        kinds = {}
        for own in single.values():
            for kind, figures in own["calls"].items():
                kinds[kind] = figures["count"]
        points = ("p50", "p90", "p99", "p999", "p9999", "p99999", "worst")
        most = max(kinds, key=kinds.__getitem__)
        for name, own in single.items():
            figures = own["calls"].get(most)
            if figures:
                axes.plot(points, [max(1, figures[f"{p}_ns"]) for p in points], marker=".", label=name, linewidth=width.get(name, 1))
        axes.set_yscale("log")
        axes.set_ylabel(f"ns a call of {most}")
        axes.legend(fontsize=8, frameon=False, ncols=2)

    gained = gains(analysis, pair_ns(replayed, "masu"))
    rows = [(figure.label, [cells(c, name, figure) for name in names]) for figure in c.figures]
    return render(
        "report.html",
        file=trace.path.name, damage=trace.damage, command=" ".join(process.head.command), process=process.head.process, data=data,
        described=described(summary), touched=touched(replayed) if replayed else "",
        interruption=interruption(c) if replayed else "interrupted before its first round",
        advice=sentences(analysis, replayed, options, trace.path), gains=gained[:20], sites=most(analysis.sites), names=names, versions=versions,
        rows=rows, rounds=c.rounds, ratios=ratios(c), failed=c.failed, duration=duration, own_s=replayed.own_s if replayed else 0.0,
        pair_ns=pair_ns(replayed, "masu"),
        plots={
            "Live bytes over time": plot(over_time, 2.6),
            **({"Resident memory in the replay, last round": plot(resident, 3.2)} if curves else {}),
            "Sizes": plot(sizes, 2.6),
            **({
                "Lost to size classes": plot(wastes, 0.6 + 0.3 * len(analysis.usable)),
                "Lost to size classes, by class": plot(wastes_by_class, 3.2),
            } if analysis.usable else {}),
            "Lifetimes": plot(lifetimes, 2.6),
            **({"Time of single calls": plot(tails, 3.2)} if single else {}),
            **({"From thread to thread": plot(matrix, 4.5)} if len(data["handed"]) > 1 else {}),
        },
    )  # fmt: skip


def _bytes(n: int) -> str:
    for unit, scale in (("G", 30), ("M", 20), ("K", 10)):
        if n >= 1 << scale:
            return f"{(n + 1) >> scale}{unit}"
    return str(n)
