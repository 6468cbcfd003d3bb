"""The page: everything a run says, with plots, in one file without network."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from masu.bench.allocators import AGAIN, OURS, Contender
from masu.bench.report import Line, Summary, facts, shown
from masu.bench.run import Measured
from masu.measuring.plots import plt, svg
from masu.pages import render


def _relative(line: Line, name: str) -> float | None:
    """To the best of the others, turned so that less is better."""
    e, best = line.medians.get(name), line.medians.get(line.best)
    if not e or not best or e.median <= 0 or best.median <= 0:
        return None
    return best.median / e.median if line.figure.more else e.median / best.median


def ratios(lines: Sequence[Line]) -> Markup:
    """masu to the best of the others, with its interval: a row for each figure."""
    there = [line for line in lines if line.figure.judged and line.to_best]
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.2 * len(there)))
    for y, line in enumerate(reversed(there)):
        e = line.to_best
        colour = {"best": "#1a7f37", "worse": "#c0392b", "even": "#777777", "open": "#bbbbbb"}[line.verdict]
        low, high = (e.low, e.high) if e.has_interval else (e.median, e.median)
        axes.plot([low, high], [y, y], color=colour, linewidth=2)
        axes.plot(e.median, y, "o", color=colour, markersize=4)
    axes.set_yticks(range(len(there)), [f"{line.case}  {line.figure.key}" for line in reversed(there)])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    ticks = (0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8)
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("masu to the best of the others (less is better)")
    axes.set_ylim(-1, len(there))
    return svg(figure)


TAIL_PARTS = {"p50": 0.5, "p90": 0.1, "p99": 1e-2, "p999": 1e-3, "p9999": 1e-4, "p99999": 1e-5}
"""Quantiles of single calls, by what part of them takes longer."""


def tails(name: str, measured: Measured) -> Markup:
    """How long single calls take, all of them: a plot for each kind of call."""
    calls = ("malloc", "realloc", "free")
    figure, plots = plt.subplots(1, len(calls), figsize=(12, 3.6), sharey=True)
    for call, axes in zip(calls, plots):
        for contender, values in measured.values.items():
            if contender == AGAIN:
                continue
            ns = [max(statistics.median(values[f"all_{call}_{part}_ns"]), 1) for part in TAIL_PARTS]
            axes.plot(list(TAIL_PARTS.values()), ns, label=contender, linewidth=2.2 if contender == OURS else 1)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(list(TAIL_PARTS.values()), ["50", "90", "99", "99.9", "99.99", "99.999"])
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.minorticks_off()
        axes.invert_xaxis()
        axes.set_title(f"{name}: {call}", loc="left", fontsize=9)
        axes.set_xlabel("% of the calls take at most")
    plots[0].set_ylabel("ns")
    plots[-1].legend(fontsize=9, frameon=False)
    return svg(figure)


def curves(name: str, measured: Measured) -> Markup:
    """Resident memory against live bytes."""
    figure, axes = plt.subplots(figsize=(8, 3.2))
    live = None
    for contender, samples in measured.curves.items():
        if contender == AGAIN:
            continue
        time, resident, live = zip(*samples)
        axes.plot(time, [r / 1024 for r in resident], label=contender, linewidth=2.2 if contender == OURS else 1)
    if live:
        axes.fill_between(time, [x / 1024 for x in live], color="#dddddd", label="live bytes")
    axes.set_xlabel("seconds")
    axes.set_ylabel("MiB resident")
    axes.set_title(name, loc="left")
    axes.legend(fontsize=8, ncols=2, frameon=False)
    return svg(figure)


def _colour(relative: float | None) -> str:
    """Green at the best, red at four times as much."""
    if relative is None:
        return "transparent"
    heat = min(max(math.log2(relative) / 2, -0.5), 1)
    return f"hsl({120 * (1 - max(heat, 0)):.0f} 60% {92 if heat < 0 else 90:.0f}%)"


def write(
    path: Path,
    lines: Sequence[Line],
    summary: Summary,
    contenders: Sequence[Contender],
    measured: dict[str, Measured],
    about: dict,
) -> None:
    families: dict[str, list[Line]] = {}
    for line in lines:
        families.setdefault(line.family, []).append(line)
    names = [c.name for c in contenders]
    path.write_text(
        render(
            "bench.html",
            lines=lines, families=families, summary=summary, contenders=contenders, names=names,
            facts=facts(about), hit_path=about["hit path"], measured=measured, relative=_relative, colour=_colour, shown=shown, ours=OURS,
            median=statistics.median,
            pairs={name: m.counted for name, m in measured.items() if any("instructions" in c for c in m.counted.values())},
            plots={family: ratios(of) for family, of in families.items() if any(line.to_best for line in of)},
            curves=[curves(name, m) for name, m in measured.items() if m.curves],
            tails=[tails(name, m) for name, m in measured.items() if any("all_malloc_p50_ns" in v for v in m.values.values())],
        )
    )  # fmt: skip
