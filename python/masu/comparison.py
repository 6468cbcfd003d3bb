"""How a comparison is shown: a table in the terminal, a page."""

from __future__ import annotations

import math
import shlex

from rich import box
from rich.table import Table
from rich.text import Text

from masu.compare import Comparison, advice
from masu.measuring import statistics
from masu.measuring.measure import SYSTEM
from masu.measuring.rounds import Row, shown
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


def table(c: Comparison, versions: dict[str, str]) -> Table:
    t = Table(
        title=Text(f"{shlex.join(c.command)}  ·  medians of {c.rounds} rounds, {ratios(c)}"),
        title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    t.add_column("")
    names = [name for name, runs in c.runs.items() if runs]
    for name in names:
        t.add_column(Text(f"{name}\n{versions.get(name, '')}"), justify="right")
    for figure in c.figures:
        row = []
        for name in names:
            median, ratio, how = cells(c, name, figure)
            style = {"good": "green", "bad": "red", "": "dim"}[how]
            row.append(Text(median).append("\n" + ratio, style) if ratio else Text(median))
        t.add_row(Text(figure.label), *row)
    return t


def page(c: Comparison, versions: dict[str, str]) -> str:
    """One file without network."""
    from masu.measuring.plots import plot

    names = [name for name, runs in c.runs.items() if runs]
    last = {name: c.runs[name][-1].curve for name in names if c.runs[name][-1].curve}
    rows = [(figure.label, [cells(c, name, figure) for name in names]) for figure in c.figures]

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
        ratios=ratios(c), advice=advice(c), failed=c.failed, times=plot(times, 0.8 + 0.3 * len(names)),
        curves=plot(curves, 3.4) if last else "",
    )  # fmt: skip
