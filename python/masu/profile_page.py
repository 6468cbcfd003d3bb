"""A heap profile as a page with a flame graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from masu.profile import VIEWS, Heap, size, tree
from masu.profile_tables import MEMORY, TITLES, summary


def page(file: Path, later: Path | None, heap: Heap, growth: Heap | None, view: str) -> str:
    """One file without network. growth: of the view, from `file` to `later`."""
    import jinja2

    # What is shown: title, and where in a stack's values its bytes and blocks are.
    views = [{"name": v, "title": TITLES[v], "kinds": VIEWS[v]} for v in ("in-use", "allocated", "peak") if heap.types.issuperset(VIEWS[v])]
    stacks = {frames: Counter(values) for frames, values in heap.stacks.items()}
    if growth:
        weight, blocks = VIEWS[view]
        for frames, values in growth.stacks.items():
            stacks.setdefault(frames, Counter()).update({"growth": values[weight], "growth_objects": values[blocks]})
        views.append({"name": "growth", "title": f"growth of what is {TITLES[view]}", "kinds": ("growth", "growth_objects")})
    first = "growth" if growth else view if view in MEMORY else heap.telling()
    kinds = [kind for v in views for kind in v["kinds"]] + [*VIEWS["lifetime"], *VIEWS["suspects"]]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).resolve().parent), autoescape=True, trim_blocks=True
    )
    return environment.get_template("profile.html.jinja").render(
        file=f"{file.name} to {later.name}" if later else file.name, facts=(f"{later.name}: " if later else "") + summary(heap), views=views, first=first,
        interval=heap.interval and size(heap.interval), data={**tree(stacks, kinds), "views": views},
    )  # fmt: skip
