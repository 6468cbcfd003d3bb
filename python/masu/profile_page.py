"""A profile as a page with a flame graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from masu.pages import render
from masu.profile import VIEWS, Heap, amount, duration, size, tree
from masu.profile_cpu import NEXT, WORTH, callers, unsampled, verdict
from masu.profile_tables import MEMORY, TITLES, growth_of, interval, summary

CALLERS = 40


def page(file: Path, later: Path | None, heap: Heap, growth: Heap | None, view: str) -> str:
    """One file without network. growth: of the view, from `file` to `later`."""
    # What is shown: title, and where in a stack's values its bytes and blocks are.
    views = [
        {"name": v, "title": TITLES[v], "kinds": VIEWS[v]}
        for v in ("in-use", "allocated", "peak", "cpu", "direct", "indirect") if heap.types.issuperset(VIEWS[v])
    ]  # fmt: skip
    stacks = {frames: Counter(values) for frames, values in heap.stacks.items()}
    if growth:
        weight, blocks = VIEWS[view]
        for frames, values in growth.stacks.items():
            stacks.setdefault(frames, Counter()).update({"growth": values[weight], "growth_objects": values[blocks]})
        views.append({"name": "growth", "title": growth_of(view), "kinds": ("growth", "growth_objects")})
    first = "growth" if growth else view if view in MEMORY else heap.telling()
    kinds = [kind for v in views for kind in v["kinds"]] + ([*VIEWS["lifetime"], *VIEWS["suspects"]] if heap.has_lives else [])
    return render(
        "profile.html",
        file=f"{file.name} to {later.name}" if later else file.name, facts=(f"{later.name}: " if later else "") + summary(heap), views=views, first=first,
        interval=heap.interval and interval(heap), data={**tree(stacks, kinds), "views": views, "cpu": heap.is_cpu, "lives": heap.has_lives}, cpu=heap.is_cpu,
        kind="CPU profile" if heap.is_cpu else "leaks" if heap.is_leaks else "heap profile", lives=heap.has_lives,
        notes=[*heap.notes, *([unsampled(heap)] if heap.is_cpu and unsampled(heap) else [])], verdict=heap.is_cpu and verdict(heap), next=NEXT,
        callers=_callers(heap) if heap.is_cpu else [], curve=_curve(heap),
    )  # fmt: skip


def _curve(heap: Heap) -> dict | None:
    """Memory over time, drawn with a step as the unit and 100 as the height."""
    top = max((max(point) for point in heap.curve), default=0)
    if len(heap.curve) < 2 or not top:
        return None
    width = max(heap.seconds / heap.step, len(heap.curve) - 1)  # the last step has not gone by

    def drawn(values: Iterable[int]) -> str:
        heights = enumerate(f"{100 - 100 * value / top:.2f}" for value in values)
        return " ".join(f"{n},{y} {min(n + 1, width):.3f},{y}" for n, y in heights)

    in_use, held = zip(*heap.curve)
    return {"in_use": drawn(in_use), "held": drawn(held), "width": f"{width:.3f}", "top": size(top), "seconds": duration(heap.seconds),
            "step": duration(heap.step)}  # fmt: skip


def _callers(heap: Heap) -> list[dict]:
    """Who calls malloc and free, in words."""
    whole = heap.total("cpu")
    return [
        {"cells": [amount("cpu", c.total), f"{100 * c.total / whole:.1f} %", *(amount("cpu", n) for n in (c.takes, c.gives, c.resizes))],
         "name": c.name, "chain": c.chain, "advice": c.advice() if c.total > WORTH * whole else ""}
        for c in callers(heap)[:CALLERS]
    ]  # fmt: skip
