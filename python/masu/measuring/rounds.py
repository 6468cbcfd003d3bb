"""Interleaved rounds of one command on several allocators, and what they say.

A round runs every allocator once, in random order, so that whatever else the machine
does meets all of them alike. Figures are medians over the rounds; a ratio comes with
the 95 % interval of a bootstrap over whole rounds, from five on.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich import box
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from masu.measuring import statistics
from masu.measuring.measure import Allocator, Usage, measure
from masu.messages import Problem

Figures = dict[str, float]


@dataclass(frozen=True)
class Sample:
    """One run: what the system counted, and what the program says about itself."""

    usage: Usage
    own: dict
    """See own_figures."""


@dataclass(frozen=True)
class Row:
    """A line of the table. Less is better, unless `more` says otherwise or `neutral` says neither."""

    label: str
    value: Callable[[Sample], float]
    unit: str = ""
    """s, KiB (shown as MiB), % or nothing."""
    more: bool = False
    neutral: bool = False
    group: str = ""
    judged: bool = False
    """Is it what a decision is made by?"""


Results = dict[str, list[Sample]]

PROCESS_ROWS = (
    Row("wall time", lambda s: s.usage.wall_s, "s"),
    Row("CPU time", lambda s: s.usage.cpu_s, "s"),
    Row("peak memory", lambda s: s.usage.peak_rss_kib, "KiB"),
    Row("waits (context switches)", lambda s: s.usage.voluntary_switches),
    Row("page faults", lambda s: s.usage.page_faults),
)


def own_figures(output: str) -> dict:
    """The JSON object in the last line; empty without one."""
    lines = output.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        return {}
    try:
        return json.loads(lines[-1])
    except (ValueError, RecursionError):
        return {}


def run_rounds(
    command: Sequence[str],
    allocators: Sequence[Allocator],
    rounds: int,
    *,
    warm_up: int = 1,
    seed: int | None = None,
    console: Console,
) -> Results:
    """The warm-up rounds fill the page cache and are thrown away."""
    order = random.Random(seed)
    results: Results = {a.name: [] for a in allocators}
    answers: dict[str, Answers] = {a.name: {} for a in allocators}
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=(warm_up + rounds) * len(allocators))
        for number in range(-warm_up, rounds):
            for allocator in order.sample(list(allocators), len(allocators)):
                name = f"round {number + 1} of {rounds}" if number >= 0 else "warming up"
                progress.update(task, description=f"{name}: {allocator.name}")
                sample = run_once(command, allocator)
                add_answers(answers[allocator.name], sample.own)
                if number >= 0:
                    results[allocator.name].append(sample)
                progress.advance(task)
    for why in differing(answers, allocators[0].name).values():
        raise Problem(why)
    return results


def run_once(command: Sequence[str], allocator: Allocator) -> Sample:
    usage = measure(list(command), allocator)
    if "cannot be preloaded" in usage.errors:
        raise Problem(f"{allocator.name}: {usage.errors.strip().splitlines()[0]}")
    if usage.status:
        how = f"exit status {usage.status}" if usage.status > 0 else f"signal {-usage.status}"
        raise Problem(f"{command[0]} ended with {how} on {allocator.name}: {usage.errors.strip()[-400:]}")
    return Sample(usage, own_figures(usage.output))


Answers = dict[str, list[str]]
"""What a program says of itself that is no figure but a result, as a checksum is: by its name all that it was, in any run."""


def add_answers(before: Answers, own: dict) -> None:
    for key, value in own.items():
        if isinstance(value, str):
            before[key] = sorted({*before.get(key, []), value})


def settled(answers: Answers) -> dict[str, str]:
    """What differs from run to run on one allocator, as a date does, is no answer."""
    return {key: values[0] for key, values in answers.items() if len(values) == 1}


def differing(answers: dict[str, Answers], reference: str) -> dict[str, str]:
    """By allocator: whose answers are not, in every run, those of the reference, and why."""
    return {
        name: f"{key} differs: {right} on {reference}, {' or '.join(said.get(key, ['nothing']))} on {name}"
        for key, right in settled(answers.get(reference, {})).items()
        for name, said in answers.items()
        if said.get(key) != [right]
    }


# ---- Statistics ----


def column(results: Results, name: str, row: Row) -> np.ndarray:
    return np.array([row.value(s) for s in results[name]], dtype=float)


# ---- The table ----


def wide() -> Console:
    """A table in a file or a pipe is not cut to 80 columns."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=200)


def fits(t: Table, console: Console, options: ConsoleOptions) -> bool:
    return Measurement.get(console, options.update_width(10_000), t).maximum <= options.max_width


def blocks(names: Sequence[str], block: Callable[[Sequence[str]], Table], console: Console, options: ConsoleOptions) -> Iterator[Table]:
    """Tables of as many names beside each other as fit; the rest stands below them, and no figure is cut."""
    while names:
        most = next((n for n in range(len(names), 1, -1) if fits(block(names[:n]), console, options)), 1)
        yield block(names[:most])
        names = names[most:]


def shown(value: float, unit: str) -> str:
    if unit == "KiB":
        return f"{value / 1024:,.1f} MiB"
    if unit == "per s":
        return f"{value / 1e6:,.2f} M/s" if value >= 1e5 else f"{value:,.0f} /s"
    if unit == "ns":
        return f"{value:,.1f} ns"
    if unit == "s" and value < 0.1:
        return f"{value * 1e3:.2f} ms"
    if unit == "s":
        return f"{value:.3f} s" if value < 100 else f"{value:.1f} s"
    if unit == "%":
        return f"{value:.0f} %"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def ratio_text(row: Row, values: np.ndarray, base: np.ndarray) -> Text:
    r = statistics.ratio(values, base)
    if math.isnan(r.median):
        return Text("–", style="dim")
    style = ""
    if not row.neutral and r.differs:
        style = "bold green" if (r.high < 1) != row.more else "bold red"
    return Text(f"{r.median:.2f}", style).append(f"  {r.low:.2f} – {r.high:.2f}" if r.has_interval else "", "dim")


def table(results: Results, rows: Iterable[Row], title: str = "") -> Table:
    base, *others = results
    enough = len(results[base]) >= statistics.LEAST_ROUNDS
    heading = "ratio (95 % interval)" if enough else "ratio (too few rounds for an interval)"
    t = Table(title=Text(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    t.add_column("")
    for name in results:
        t.add_column(Text(name), justify="right", no_wrap=True)
    for name in others:
        t.add_column(Text(f"{name} : {base}" if len(others) > 1 else heading), justify="right", no_wrap=True)
    group = None
    for row in rows:
        if row.group and row.group != group:
            if group is not None:
                t.add_section()
            t.add_row(Text(row.group, "bold"))
        group = row.group
        columns = {name: column(results, name, row) for name in results}
        t.add_row(
            Text(("  " if row.group else "") + row.label),
            *(shown(float(np.median(values)), row.unit) for values in columns.values()),
            *(ratio_text(row, columns[name], columns[base]) for name in others),
        )
    return t


def is_finite(value: object) -> bool:
    """A number that fits a float, and is one."""
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max


def own_rows(results: Results) -> list[Row]:
    """A row for each number that every run of the program prints about itself, where it is not always the same."""
    samples = [s for samples in results.values() for s in samples]
    rows = []
    for key in samples[0].own:
        values = [s.own.get(key) for s in samples]
        if not all(map(is_finite, values)) or len(set(values)) == 1:
            continue
        name, unit = key, ""
        more = key.endswith("_per_s")
        for ending, its_unit in (("_s", "s"), ("_kib", "KiB")):
            if key.endswith(ending) and not more:
                name, unit = key.removesuffix(ending), its_unit
        rows.append(Row(name.replace("_", " "), lambda s, k=key: float(s.own[k]), unit, more))
    return rows


def plain(sample: Sample) -> dict:
    used = {key: value for key, value in vars(sample.usage).items() if key not in ("output", "errors")}
    return {**used, "own": sample.own}


def summary(results: Results, row: Row) -> dict:
    base, *others = results
    columns = {name: column(results, name, row) for name in results}
    ratios = {}
    for name in others:
        ratios[name] = vars(statistics.ratio(columns[name], columns[base]))
    return {
        "figure": f"{row.group} {row.label}".strip(),
        "unit": row.unit,
        "median": {name: float(np.median(values)) for name, values in columns.items()},
        "ratio": ratios,
    }


def as_json(command: Sequence[str], allocators: Sequence[Allocator], results: Results, rows: Iterable[Row]) -> dict:
    """Everything that was measured, and the medians and ratios of the rows; for json_text."""
    return {
        "command": list(command),
        "allocators": {a.name: str(a.library) if a.library else None for a in allocators},
        "runs": {name: [plain(s) for s in samples] for name, samples in results.items()},
        "summary": [summary(results, row) for row in rows],
    }
