"""The committed run of script/bench-forms as the tables of docs/forms.md.

    bench/forms/published.py           writes them into the page
    bench/forms/published.py --check   exit status 1 when the page has others

Wants the Python environment of the benchmark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from masu.measuring import statistics

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench/results/forms.json"
PAGE = ROOT / "docs/forms.md"
BEGIN, END = "<!-- bench/forms/published.py -->", "<!-- end -->"

WORKLOADS = {
    "kmalloc": "10,000 blocks of 1,024 bytes, then freed; ns a pair",
    "tiny": "1,000,000 blocks of 4 bytes; KiB",
    "pair": "one block of 64 bytes; ns a pair",
    "replace": "10,000 of 48 bytes, replaced at random; ns",
    "sizes": "the same, 16 to 512 bytes",
    "frame": "100,000 of 48 bytes, then all at once; ns a block",
    "first": "10,000 of 2,000 bytes, the first that the program has; ns a block",
    "reset": "resetting an arena of 100,000 blocks; ns in all",
    "scope": "opening and closing an empty scope; ns",
    "stackprobe": "14,000 slots of 1 to 10,000 bytes; ns a step",
    "tail": "calls above 10 us in a million, less an empty loop's",
}
FLOOR_GOAL = 1.2
OWN = "masu malloc"
# What a form is held against beside malloc: the nearest peers, and where it is inlined and for one thread the floor.
POOLS = ("boost pool", "pmr pool", "talloc pool")
PEERS = {
    "masu pool": POOLS,
    "masu pool, not counted": POOLS,
    "masu heap": ("mimalloc 3 heap",),
    "masu ladder": ("pmr pool",),
    "masu arena": ("pmr monotonic", "obstack"),
    "masu scope": ("obstack", "talloc pool"),
}
FLOORS = {"masu pool": "floor list", "masu pool, not counted": "floor list", "masu arena": "floor bump"}


def publish(content: dict) -> None:
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), content))


def page(before: str, content: dict) -> str:
    head, rest = before.split(f"{BEGIN}\n")
    return f"{head}{BEGIN}\n{text(content)}\n{END}{rest.split(END, 1)[1]}"


def text(content: dict) -> str:
    machine = content["machine"]
    where = f"{machine['cpu']}, Linux {machine['kernel']}, {machine['when']}, commit {machine['commit']}, {content['rounds']} rounds; medians with 95 % intervals."
    by_workload = {name: [row for row in content["rows"] if row["workload"] == name] for name in WORKLOADS}
    return "\n\n".join([where, _forms(by_workload), _behind(by_workload)])


def is_form(row: dict) -> bool:
    return row["form"].startswith("masu ") and row["form"] != OWN


def rivals(form: str, rows: list[dict]) -> dict[str, dict]:
    """The best malloc, masu's included; the nearest peer of the form; its floor: the first of each kind, where there is one."""
    kinds = {
        "malloc": [row for row in rows if row["form"] in ("malloc", OWN) or row["form"].startswith("malloc of ")],
        "peer": [row for row in rows if row["form"] in PEERS.get(form, ())],
        "floor": [row for row in rows if row["form"] == FLOORS.get(form)],
    }
    return {kind: min(some, key=lambda row: row["median"]) for kind, some in kinds.items() if some}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def _name(row: dict) -> str:
    return {"malloc": "glibc"}.get(row["form"], row["form"].removeprefix("malloc of ").removesuffix(" malloc"))


def _forms(by_workload: dict[str, list[dict]]) -> str:
    lines = []
    for workload, rows in by_workload.items():
        what = WORKLOADS[workload]
        for row in filter(is_form, rows):
            beside = rivals(row["form"], rows)
            times = row["times_malloc"]
            cells = [f"{_name(beside[kind])} {_number(beside[kind]['median'])}" if kind in beside else "" for kind in ("malloc", "peer", "floor")]
            lines.append((
                what, row["form"].removeprefix("masu "), f"{_number(row['median'])}, {_number(row['low'])} to {_number(row['high'])}",
                f"{times[0]:.1f}, {times[1]:.1f} to {times[2]:.1f}" if times else "", f"{row['published']:.1f}" if row["published"] else "", *cells,
            ))  # fmt: skip
            what = ""
    return _table(("what", "form", "median, 95 %", "times as long on glibc's `malloc`", "published", "the best `malloc`", "nearest peer", "floor"), lines)


def _behind(by_workload: dict[str, list[dict]]) -> str:
    """Where a form takes longer than one of them, or than 1.2 times the floor, beyond the interval of the ratio."""
    lines = []
    for workload, rows in by_workload.items():
        if workload == "tail":  # a count; its goal is 0
            continue
        for row in filter(is_form, rows):
            for kind, other in rivals(row["form"], rows).items():
                ratio = statistics.ratio(row["values"], other["values"])
                if ratio.low > (FLOOR_GOAL if kind == "floor" else 1):
                    lines.append((WORKLOADS[workload], row["form"].removeprefix("masu "), _name(other), f"{ratio.median:.2f}, {ratio.low:.2f} to {ratio.high:.2f}"))
    head = "Where a form is behind the best `malloc`, its nearest peer, or 1.2 times the floor, beyond the interval of the ratio:"
    return f"{head}\n\n{_table(('what', 'form', 'behind', 'times as long'), lines)}" if lines else "No form is behind the best `malloc`, its nearest peer, or 1.2 times the floor."


def _table(headings: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    rows = [headings, ("---",) * len(headings), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    before = PAGE.read_text()
    after = page(before, json.loads(RESULTS.read_text()))
    if "--check" in sys.argv[1:]:
        sys.exit("docs/forms.md has not the tables of bench/results/forms.json: bench/forms/published.py" if before != after else 0)
    PAGE.write_text(after)


if __name__ == "__main__":
    main()
