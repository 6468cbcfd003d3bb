"""How a comparison is shown: a table in the terminal, a page."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from masu.compare import Comparison, advice, interruption, notes
from masu.measuring import statistics
from masu.measuring.measure import SYSTEM
from masu.measuring.rounds import Row, blocks, fits, shown
from masu.pages import render


def cells(c: Comparison, name: str, figure: Row) -> tuple[str, str, str]:
    """Median, ratio to the system's with its interval, and how that is: good, bad or nothing."""
    median = shown(statistics.estimate(c.values(name, figure)).median, figure.unit)
    if name == SYSTEM.name or not c.runs.get(SYSTEM.name):
        return median, "", ""
    r = c.ratio(name, figure)
    if math.isnan(r.median):
        return median, "", ""
    interval = f" {r.low:.2f}–{r.high:.2f}" if r.has_interval else ""
    how = ("good" if (r.median > 1) == figure.more else "bad") if r.differs else ""
    return median, f"{r.median:.2f}{interval}", how


def ratios(c: Comparison) -> str:
    """What stands beside or below the medians."""
    enough = c.rounds >= statistics.LEAST_ROUNDS
    return "ratio to the system's allocator" + (" with its 95 % interval" if enough else "; too few rounds to say what is noise")


SPARKS = "▁▂▃▄▅▆▇█"
POINTS = 9
"""As wide as an interval."""


def spark(curve: Sequence[tuple[float, float]], most: float) -> str:
    """What was resident from the first sample to the last, in eighths of `most`."""
    times, mib = zip(*curve)
    eighths = np.interp(np.linspace(times[0], times[-1], POINTS), times, mib) / most * len(SPARKS)
    return "".join(SPARKS[min(int(e), len(SPARKS) - 1)] for e in eighths)


def _sparks(c: Comparison, names: Sequence[str]) -> dict[str, str]:
    """Of the last round; all by one measure, that of all allocators."""
    curves = {name: c.runs[name][-1].curve for name in c.runs if c.runs[name]}
    most = max((mib for curve in curves.values() for _, mib in curve), default=0)
    return {name: spark(curves[name], most) for name in names} if most and all(curves.values()) else {}


def _block(c: Comparison, versions: dict[str, str], names: Sequence[str], narrow: bool) -> Table:
    """These allocators beside each other; narrow: a ratio has its interval below it."""
    t = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    t.add_column("", max_width=24, overflow="fold")
    for name in names:
        version = versions.get(name, "")
        lines = textwrap.wrap(version, POINTS + 2) if narrow else [version]
        t.add_column(Text("\n".join([name, *lines])), justify="right", no_wrap=True)
    sparks = _sparks(c, names)
    for figure in c.figures:
        row = []
        for name in names:
            median, ratio, how = cells(c, name, figure)
            style = {"good": "green", "bad": "red", "": "dim"}[how]
            below = "\n" + (ratio.replace(" ", "\n") if narrow else ratio)
            row.append(Text(median).append(below, style) if ratio else Text(median))
        t.add_row(Text(figure.label + (f"\n{c.way}" if figure.label == c.metric else "")), *row)
        if figure.label == "mean memory" and sparks:
            t.add_row("memory over time", *(Text(sparks[name], "dim") for name in names))
    return t


@dataclass(frozen=True)
class Tables:
    """One table as far as it fits; else what doesn't fit beside the rest stands below it, and no figure is cut."""

    comparison: Comparison
    versions: dict[str, str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        c = self.comparison
        names = [name for name, runs in c.runs.items() if runs]
        narrow = not fits(_block(c, self.versions, names, narrow=False), console, options)
        yield Text(f"{shlex.join(c.command)}  ·  medians of {c.rounds} rounds, {ratios(c)}", "table.title")
        yield from blocks(names, lambda some: _block(c, self.versions, some, narrow), console, options)


def table(c: Comparison, versions: dict[str, str]) -> Tables:
    return Tables(c, versions)


def page(c: Comparison, versions: dict[str, str]) -> str:
    """One file without network."""
    from masu.measuring.plots import plot

    names = [name for name, runs in c.runs.items() if runs]
    last = {name: c.runs[name][-1].curve for name in names if c.runs[name][-1].curve}
    rows = [
        (figure.label + (f" ({c.way})" if figure.label == c.metric else ""), [cells(c, name, figure) for name in names])
        for figure in c.figures
    ]

    def curves(axes) -> None:
        for name, curve in last.items():
            axes.plot(*zip(*curve), label=name, linewidth=2 if name == "masu" else 1)
        axes.set_xlabel("seconds")
        axes.set_ylabel("MiB resident")
        axes.legend(fontsize=8, frameon=False)

    def times(axes) -> None:
        for place, name in enumerate(names):
            values = c.values(name, c.figures[0])
            (rounds,) = axes.plot(values, [place] * len(values), "o", alpha=0.4)
            axes.plot(statistics.estimate(values).median, place, "|", color=rounds.get_color(), markersize=18, markeredgewidth=2)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel(f"{c.figures[0].label} {c.figures[0].unit}")

    return render(
        "comparison.html",
        command=shlex.join(c.command), rounds=c.rounds, names=names, versions=versions, rows=rows,
        ratios=ratios(c), advice=advice(c), notes=notes(c), failed=c.failed, interruption=interruption(c),
        times=plot(times, 0.8 + 0.3 * len(names)), curves=plot(curves, 3.4) if last else "",
    )  # fmt: skip
