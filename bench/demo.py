"""The figures of script/demo: the full-text indexer on the system allocator and on masu.

demo.py INDEXER LIBRARY [--rounds N] [--threads N] [--megabytes N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.panel import Panel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from masu.bench import rounds
from masu.bench.measure import SYSTEM, Allocator, Problem
from masu.bench.rounds import Row, Sample

NOTE = (
    "Medians of {rounds} rounds; 95 % intervals by bootstrap over the rounds.\n"
    "Waits and preemptions are context switches: a thread had to wait (for a lock, mostly), or its time slice was over."
)


def own(key: str, label: str, unit: str, group: str) -> Row:
    return Row(label, lambda s: float(s.own[key]), unit, group=group)


def step_rows(step: str, group: str) -> list[Row]:
    def busy(s: Sample) -> float:
        return 100 * s.own[f"{step}_cpu_s"] / s.own[f"{step}_wall_s"]

    return [
        own(f"{step}_wall_s", "wall time", "s", group),
        own(f"{step}_cpu_s", "CPU time", "s", group),
        own(f"{step}_system_s", "  of it in the kernel", "s", group),
        Row("CPU time per wall time", busy, "%", neutral=True, group=group),
        own(f"{step}_voluntary_switches", "waits", "", group),
        own(f"{step}_involuntary_switches", "preemptions", "", group),
        own(f"{step}_page_faults", "page faults", "", group),
    ]


def rows(threads: int) -> list[Row]:
    count = f"{threads} threads" if threads > 1 else "one thread"
    whole = "The whole program"
    return [
        *step_rows("step1", f"STEP 1: words, {count}"),
        *step_rows("step2", "STEP 2: sort, one thread"),
        Row("wall time", lambda s: s.usage.wall_s, "s", group=whole),
        Row("CPU time", lambda s: s.usage.cpu_s, "s", group=whole),
        own("peak_rss_kib", "peak memory", "KiB", whole),
    ]


def caption(sample: Sample) -> str:
    facts = sample.own
    return (
        f"{facts['volume_bytes'] / 1e6:,.0f} MB of text read from {facts['files']:,} files of this machine "
        f"({facts['file_bytes'] / 1e6:,.0f} MB; read again until the volume is reached)\n"
        f"{facts['distinct_words']:,} distinct words in {facts['postings']:,} places, "
        f"the same index on both allocators (checksum {facts['checksum']})"
    )


def verdict(results: rounds.Results) -> str:
    def said(row: Row, less: str, more: str) -> str:
        middle, low, high = rounds.ratio(rounds.column(results, "masu", row), rounds.column(results, "system", row))
        if low <= 1 <= high:
            return f"[yellow]no difference that {len(results['masu'])} rounds can show[/] ({middle:.2f} times)"
        if middle < 1:
            return f"[green]{1 / middle:.2f} times {less}[/]"
        return f"[red]{middle:.2f} times {more}[/]"

    step1, step2 = (own(f"step{i}_wall_s", "", "s", "") for i in (1, 2))
    return (
        f"STEP 1  {said(step1, 'faster', 'slower')}\n"
        f"STEP 2  {said(step2, 'faster', 'slower')}\n"
        f"Peak memory  {said(own('peak_rss_kib', '', 'KiB', ''), 'smaller', 'larger')}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("indexer", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()

    console = Console()
    allocators = [SYSTEM, Allocator("masu", given.library.resolve())]
    command = [str(given.indexer.resolve()), "--json", f"--threads={given.threads}", f"--megabytes={given.megabytes}"]
    libc = " ".join(platform.libc_ver())
    console.print(
        f"[bold]A full-text indexer on two allocators[/]: {libc} and masu, {given.rounds} rounds each, in turn, "
        f"on {len(os.sched_getaffinity(0))} cores. This takes a few minutes.\n"
    )
    results = rounds.run_rounds(command, allocators, given.rounds, console=console)
    console.print(caption(results["masu"][0]), highlight=False)
    console.print()
    shown = rows(given.threads)
    console.print(rounds.table(results, shown))
    console.print(Panel(verdict(results), title="masu against the system allocator", title_align="left", expand=False))
    console.print(NOTE.format(rounds=given.rounds), style="dim", highlight=False)
    if given.json:
        given.json.write_text(json.dumps(rounds.as_json(command, allocators, results, shown), indent=2) + "\n")


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(f"demo: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
