"""Heap and CPU profiles as tables for a terminal."""

from __future__ import annotations

from collections import Counter

from rich.table import Table
from rich.text import Text

from masu.profile import VIEWS, Heap, amount, duration, mean, size
from masu.profile_cpu import WORTH, callers

TITLES = {
    "in-use": "in use", "peak": "in use at the peak", "allocated": "allocated", "lifetime": "lifetimes",
    "suspects": "suspects", "cpu": "CPU time", "direct": "leaked", "indirect": "leaked with it",
}  # fmt: skip
MEMORY = ("in-use", "peak", "allocated", "direct", "indirect")
"""Views whose values are bytes."""


def growth_of(view: str) -> str:
    return "growth of " + (TITLES[view] if view == "cpu" else f"what is {TITLES[view]}")


def interval(heap: Heap) -> str:
    """Between two samples, on average."""
    return f"{duration(heap.interval * 1e-9)} of a thread's CPU time" if heap.is_cpu else size(heap.interval)


def summary(heap: Heap) -> str:
    if heap.is_cpu:
        told = f"{amount('cpu', heap.total('cpu'))} of CPU time in {heap.total('samples'):,} samples"
        return told + (f", in {duration(heap.seconds)}" if heap.seconds else "")
    parts = [
        f"{size(heap.total(VIEWS[view][0]))} {title}" + (_between(heap) if view == "in-use" else "")
        for view, title in TITLES.items() if view in MEMORY and VIEWS[view][0] in heap.types
    ]  # fmt: skip
    return ", ".join(parts) + (f", in {duration(heap.seconds)}" if heap.seconds else "")


def _between(heap: Heap) -> str:
    """What is in use, as far as that is known; "" where that makes no difference."""
    ends = [size(n) for n in heap.in_use or ()]
    return f" ({' to '.join(ends)})" if {*ends} - {size(heap.total("inuse_space"))} else ""


def functions(heap: Heap, view: str, *, by: str, cumulative: bool, count: int, growth: bool) -> Table:
    """Those with most first; of growth what shrank comes last."""
    outermost = by != "function"
    weight, blocks = heap.kinds(view)
    samples = None if growth else heap.samples(view)
    rank, whole = blocks if view == "lifetime" else weight, heap.total(weight)
    rows = [row for row in heap.rows(outermost) if row.total[rank] or row.flat[rank]]
    rows.sort(key=lambda r: ((r.total if cumulative else r.flat)[rank], r.total[rank], r.name), reverse=True)

    def cells(values: Counter[str]) -> list[str]:
        if view == "lifetime":
            return [f"{values[blocks]:,}", _mean_life(values, weight, blocks)]
        share = [] if growth else [f"{100 * values[weight] / whole:.1f} %" if whole else ""]
        return [_amount(view, values[weight], growth), *share]

    table = Table(box=None, pad_edge=False, header_style="bold")
    for side in ["flat"] if outermost else ["flat", "cum"]:
        columns = [f"{side} freed", f"{side} life"] if view == "lifetime" else [side] if growth else [side, f"{side} share"]
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
    for column in ["flat samples" if view == "cpu" else "flat blocks"] * (view != "lifetime") + ["of samples"] * bool(samples):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(by, overflow="fold")
    for row in rows[:count]:
        sides = [row.flat] if outermost else [row.flat, row.total]
        last = [] if view == "lifetime" else [f"{row.flat[blocks]:+,}" if growth else f"{row.flat[blocks]:,}"]
        last += [f"{samples(row.flat):,}"] if samples else []
        table.add_row(*(c for side in sides for c in cells(side)), *last, Text(row.name))
    if len(rows) > count:
        table.add_row(*[""] * (len(table.columns) - 1), Text(f"... and {len(rows) - count:,} more", style="dim"))
    return table


def sites(heap: Heap, view: str, count: int) -> Table:
    weight, _ = heap.kinds(view)
    whole, samples = heap.total(weight), heap.samples(view)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in [TITLES[view], "share", *["of samples"] * bool(samples)]:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("function, and who called it" if view == "cpu" else "call site, and who called it", overflow="fold")
    for frames, values in sorted(heap.sites().items(), key=lambda site: -site[1][weight])[:count]:
        if values[weight] > 0:
            taken = [f"{samples(values):,}"] if samples else []
            share = f"{100 * values[weight] / whole:.1f} %"
            table.add_row(amount(view, values[weight]), share, *taken, Text(" < ".join(reversed(frames))))
    return table


def allocating(heap: Heap, count: int) -> Table:
    """Of CPU time: who calls malloc and free."""
    whole = heap.total("cpu")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("time", "share", "taking", "freeing", "resizing"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("function, and who called it", overflow="fold")
    table.add_column("what may help", overflow="fold")
    for caller in callers(heap)[:count]:
        parts = [amount("cpu", n) for n in (caller.takes, caller.gives, caller.resizes)]
        advice = caller.advice() if caller.total > WORTH * whole else ""
        table.add_row(amount("cpu", caller.total), f"{100 * caller.total / whole:.1f} %", *parts, Text(caller.chain), Text(advice))
    return table


def suspects(heap: Heap, growth: Heap | None, count: int) -> Table:
    found, samples = heap.suspects(growth), heap.samples("suspects")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ["suspected", "in use", *["growth"] * bool(growth), "blocks", *["of samples"] * bool(samples), "mean age", "freed after"]:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("call site, and who called it", overflow="fold")
    for one in found[:count]:
        values = one.values
        more = [] if one.growth is None else [_amount("in-use", one.growth, True)]
        taken = [f"{samples(values):,}"] if samples else []
        age, life = mean(values, "inuse_age", "inuse_objects"), _mean_life(values, "lifetime", "freed_objects")
        table.add_row(size(one.bytes), size(values["inuse_space"]), *more, f"{values['inuse_objects']:,}", *taken, duration(age * 1e-9),
                      life or "never", Text(" < ".join(reversed(one.frames))))  # fmt: skip
    if len(found) > count:
        table.add_row(*[""] * (len(table.columns) - 1), Text(f"... and {len(found) - count:,} more", style="dim"))
    return table


def _amount(view: str, n: int, growth: bool) -> str:
    return ("+" if growth and n > 0 else "") + amount(view, n)


def _mean_life(values: Counter[str], weight: str, blocks: str) -> str:
    return duration(mean(values, weight, blocks) * 1e-9) if values[blocks] else ""
