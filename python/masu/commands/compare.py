"""masu compare"""

from __future__ import annotations

import json
from pathlib import Path

import click

from masu.help import Command
from masu.library import library_path
from masu.messages import MASU_FAILED, fail, warn
from masu.program import NotRunnable, find_program, why_preload_fails


@click.command(
    cls=Command,
    example="masu compare -- python3 some_script.py",
    context_settings={"allow_interspersed_args": False},
)
@click.option("-n", "rounds", type=click.IntRange(min=1), default=None, metavar="ROUNDS",
              help="So many rounds; else until it is clear, 5 to 30.")  # fmt: skip
@click.option("--metric", default="", metavar="REGEX",
              help="Judge by a number in the program's own output: the first group, more is better.")  # fmt: skip
@click.option("--with", "extra", multiple=True, metavar="NAME=LIBRARY", help="One more allocator; may be repeated.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every figure there.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write a page with plots there.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def compare(rounds, metric: str, extra: tuple, json_file, html_file, program: str, arguments: tuple) -> None:
    """Runs PROGRAM on every allocator that this machine has, round by round in random order, and
    says which fits: time, memory over time, page faults, with 95 % intervals. The program's own
    output is not shown. Ctrl-C ends it with what was measured so far."""
    from rich.console import Console

    from masu import installed
    from masu import compare as comparing
    from masu.bench.measure import Problem
    from masu.comparison import page, table

    library = library_path()
    try:
        path = find_program(program)
    except NotRunnable as error:
        fail(str(error), error.status)
    reason = why_preload_fails(path, library)
    if reason:
        fail(f"{reason}: it would run on its own allocator each time", MASU_FAILED)
    console = Console() if Console().is_terminal else Console(width=140)
    try:
        found = installed.allocators(library, extra)
        for f in found:
            if f.wrong:
                warn(f"{f.name} is left out: {f.wrong}")
        usable = [f for f in found if not f.wrong]
        result = comparing.compare(
            [path, *arguments], [f.allocator for f in usable], Console(stderr=True), rounds=rounds or 0, metric=metric
        )
    except Problem as problem:
        fail(f"compare: {problem}", MASU_FAILED)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    for name, why in result.failed.items():
        warn(f"{program} failed on {name}: {why}")
    if not any(result.runs.values()):
        fail(f"{program} ran on no allocator to its end", MASU_FAILED)
    versions = {f.name: f.version for f in usable}
    console.print(table(result, versions))
    console.print(comparing.advice(result), style="bold")
    if json_file:
        json_file.write_text(json.dumps({**comparing.as_json(result), "versions": versions}, indent=1) + "\n")
    if html_file:
        html_file.write_text(page(result, versions))
