"""Compares masu's forms with malloc and with the nearest peer of each, side by side in one run.

    script/bench-forms [--rounds N] [--only WORKLOAD,...] [--json FILE] [--publish]

Every round runs every form of every workload once, in random order. The tables show medians with
their 95 % interval and how many times as fast as the system's malloc (with its default settings) each is.
The last one has all that the documents behind masu have published of such forms (docs/mission.md): their ratio,
and the one here.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from masu.bench.report import machine
from masu.json_text import json_text
from masu.measuring import statistics
from masu.measuring.measure import Allocator, measure
from masu.messages import Problem

from forms import published

WORKLOADS = {
    "kmalloc": "KMalloc's round: 10,000 blocks of 1,024 bytes, then all freed; ns a pair",
    "tiny": "1,000,000 blocks of 4 bytes; KiB that the process grows by",
    "pair": "one block of 64 bytes, taken and freed; ns a pair",
    "replace": "10,000 blocks of 48 bytes, replaced at random; ns a replacement",
    "sizes": "the same with 16 to 512 bytes",
    "frame": "100,000 blocks of 48 bytes, then all at once; ns a block",
    "first": "10,000 blocks of 2,000 bytes, the first that the program has; ns a block",
    "reset": "resetting an arena with 100,000 blocks, the shortest of 100; ns in all",
    "scope": "an empty scope, opened and closed; ns",
    "stackprobe": "14,000 slots of 1 to 10,000 bytes, with realloc; ns a step",
    "tail": "calls above 10 us in a million, less those of an empty loop that takes as long",
}


@dataclass(frozen=True)
class Published:
    document: str
    malloc: float
    form: float
    """The same of the form, in the same unit."""

    @property
    def times(self) -> float:
        return self.malloc / self.form


PUBLISHED = {
    ("kmalloc", "masu sized"): Published("KMalloc", 35.2, 2.81),
    ("kmalloc", "masu pool"): Published("KMalloc", 35.2, 1.90),
    ("kmalloc", "masu pool, not counted"): Published("KMalloc", 35.2, 1.88),
    ("tiny", "masu sized"): Published("KMalloc", 15956, 4236),
    ("stackprobe", "masu fixed"): Published("stackprobe", 3225, 141),
}

PEERS = ("mimalloc3", "mimalloc2", "tcmalloc-google", "gperftools", "jemalloc", "snmalloc", "rpmalloc", "tbb")


@dataclass(frozen=True)
class Entry:
    workload: str
    name: str
    command: tuple[str, ...]
    allocator: Allocator


def listed(program: Path) -> list[tuple[str, str]]:
    out = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout
    return [tuple(line.split()) for line in out.splitlines()]


def allocators(folder: Path) -> list[Allocator]:
    """What script/peers has built; none is fine."""
    found = []
    for name in PEERS:
        described = folder / f"{name}.json"
        if (folder / f"{name}.so").is_file() and described.is_file():
            settings = json.loads(described.read_text()).get("environment", "")
            found.append(Allocator(name, folder / f"{name}.so", tuple(settings.split())))
    return found


def entries(build: Path, peers: Path, only: set[str]) -> list[Entry]:
    system, others = Allocator("system"), allocators(peers)
    mimalloc = next((a for a in others if a.name == "mimalloc3"), None)
    result = []

    def add(workload: str, name: str, program: str, form: str, allocator: Allocator) -> None:
        if not only or workload in only:
            result.append(Entry(workload, name, (str(build / program), workload, form), allocator))

    for workload, form in listed(build / "forms_masu"):
        add(workload, "masu malloc" if form == "masu" else f"masu {form.replace('_', ' ')}", "forms_masu", form, system)
        if form == "pool" and workload in ("kmalloc", "pair", "replace"):
            add(workload, "masu pool, not counted", "forms_uncounted", form, system)
    for workload, form in listed(build / "forms_malloc"):
        if form == "mi_heap":
            if mimalloc:
                add(workload, "mimalloc 3 heap", "forms_malloc", form, mimalloc)
            continue
        add(workload, form.replace("_", " "), "forms_malloc", form, system)
        if form == "malloc":
            for other in others:
                add(workload, f"malloc of {other.name}", "forms_malloc", form, other)
    return result


def figure_of(entry: Entry) -> float:
    usage = measure(["taskset", "-c", str(max(os.sched_getaffinity(0))), *entry.command], entry.allocator)
    if usage.status:
        raise Problem(f"{entry.name}, {entry.workload}: {usage.errors.strip()[-300:] or f'status {usage.status}'}")
    return float(json.loads(usage.output.strip().splitlines()[-1])["figure"])


def run(chosen: list[Entry], rounds: int, console: Console) -> dict[Entry, list[float]]:
    order = random.Random()
    found: dict[Entry, list[float]] = {entry: [] for entry in chosen}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=rounds * len(chosen))
        for number in range(rounds):
            for entry in order.sample(chosen, len(chosen)):
                progress.update(task, description=f"round {number + 1}: {entry.workload}, {entry.name}")
                found[entry].append(figure_of(entry))
                progress.advance(task)
    return found


def rows_of(workload: str, found: dict[Entry, list[float]]) -> list[dict]:
    base = next((values for e, values in found.items() if (e.workload, e.name) == (workload, "malloc")), None)
    rows = []
    for entry, values in found.items():
        if entry.workload != workload:
            continue
        own = statistics.estimate(values)
        times = statistics.ratio(base, values) if base is not None and workload != "tail" else None
        rows.append(
            {
                "workload": workload,
                "form": entry.name,
                "median": own.median,
                "low": own.low,
                "high": own.high,
                "values": values,
                "times_malloc": times and [times.median, times.low, times.high],
                "published": getattr(PUBLISHED.get((workload, entry.name)), "times", None),
            }
        )
    return sorted(rows, key=lambda row: row["median"])


def between(low: float, high: float) -> str:
    return f"{low:,.2f} – {high:,.2f}" if math.isfinite(high - low) else "too few rounds"


def shown(rows: list[dict], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "median", "95 %", "malloc takes, times", "95 %"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for row in rows:
        times = row["times_malloc"]
        table.add_row(
            row["form"],
            f"{row['median']:,.2f}",
            between(row["low"], row["high"]),
            f"{times[0]:.2f}" if times else "–",
            between(*times[1:]) if times else "–",
            style="bold" if row["form"].startswith("masu") else None,
        )
    return table


def documents(rows: list[dict]) -> Table:
    """What was published and was run here."""
    table = Table(title="what the documents say: malloc takes, times", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("document", "workload", "form", "theirs", "here", "95 %"):
        table.add_column(heading, justify="right" if heading in ("theirs", "here", "95 %") else "left", no_wrap=True)
    for row in rows:
        if row["published"]:
            document = PUBLISHED[row["workload"], row["form"]].document
            times = row["times_malloc"]
            table.add_row(document, row["workload"], row["form"], f"{row['published']:.1f}", f"{times[0]:.1f}", between(*times[1:]))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="rounds (10)")
    parser.add_argument("--only", default="", metavar="WORKLOAD,...", help=f"some of: {', '.join(WORKLOADS)}")
    parser.add_argument("--json", type=Path, default=Path("build/bench/forms.json"), metavar="FILE")
    parser.add_argument("--publish", action="store_true", help="commit's part: bench/results/forms.json and the tables of docs/forms.md")
    parser.add_argument("--build", type=Path, default=Path("build/release/bench"), help=argparse.SUPPRESS)
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    only = {name for name in given.only.split(",") if name}
    if unknown := only - WORKLOADS.keys():
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    if given.rounds < 1:
        parser.error("at least one round is needed")
    if given.publish and (only or given.rounds < statistics.LEAST_ROUNDS):
        parser.error(f"what is published has all workloads, and {statistics.LEAST_ROUNDS} rounds or more")
    console = Console() if Console().is_terminal else Console(width=140)
    where = machine()
    found = run(entries(given.build.resolve(), given.peers.resolve(), only), given.rounds, console)
    rows = []
    for workload, title in WORKLOADS.items():
        if not only or workload in only:
            rows += (some := rows_of(workload, found))
            console.print(shown(some, f"{workload}: {title}"))
    if any(row["published"] for row in rows):
        console.print(documents(rows))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": where, "rounds": given.rounds, "rows": rows}
    given.json.write_text(json_text(content, indent=1) + "\n")
    if given.publish:
        published.publish(content)
    console.print(f"{given.rounds} rounds; figures in {given.json}", style="dim")


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(f"bench-forms: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
