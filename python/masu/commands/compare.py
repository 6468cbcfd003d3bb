"""masu compare"""

from __future__ import annotations

import click

from masu.help import Command, ResultFile
from masu.json_text import json_text
from masu.library import library_path
from masu.messages import MASU_FAILED, fail, say, warn, write_or_fail
from masu.program import find_or_fail, why_preload_fails


@click.command(
    cls=Command,
    example="masu compare -- python3 some_script.py",
    context_settings={"allow_interspersed_args": False},
)
@click.option("-n", "rounds", type=click.IntRange(min=1), default=None, metavar="ROUNDS",
              help="So many rounds, below 5 too few to say what is noise; else until it is clear, 5 to 30.")  # fmt: skip
@click.option("--metric", default="", metavar="REGEX",
              help="Judge by a number in the program's own output: the first group, more is better.")  # fmt: skip
@click.option("--less", is_flag=True, help="Less of the metric is better, as of seconds.")
@click.option("--for", "lasting", type=click.FloatRange(min=0, min_open=True), default=None, metavar="SECONDS",
              help="End each run after so long, by SIGTERM, as of a server; then memory and CPU time are judged.")  # fmt: skip
@click.option("--with", "extra", multiple=True, metavar="NAME=LIBRARY", help="One more allocator; may be repeated.")
@click.option("--json", "json_file", type=ResultFile(), help="Write every figure there.")
@click.option("--html", "html_file", type=ResultFile(), help="Write a page with plots there.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def compare(
    rounds, metric: str, less: bool, lasting, extra: tuple, json_file, html_file, program: str, arguments: tuple
) -> None:
    """Runs PROGRAM on every allocator that this machine has, round by round in random order, and
    says which fits: time, memory over time, page faults, with 95 % intervals. What it reads from a
    file (`<FILE`) it reads anew each time; of a pipe it gets nothing. The program's own output is
    not shown, and what it leaves running is ended. Ctrl-C ends it with what was measured so far."""
    from rich.console import Console

    from masu import installed
    from masu import compare as comparing
    from masu.comparison import page, table
    from masu.measuring.rounds import wide

    if less and not metric:
        raise click.UsageError("--less is for --metric.")
    library = library_path()
    path = find_or_fail(program)
    reason = why_preload_fails(path, library)
    if reason:
        fail(f"{reason}: it would run on its own allocator each time", MASU_FAILED)
    if comparing.input_is_lost():
        warn(f"the input of {program} is empty: what comes by a pipe can be read once only; <FILE is read anew by each run")
    console = wide()
    errors = Console(stderr=True)

    def hint(text: str) -> None:  # by the console that has the progress bar
        errors.print(f"masu: {text}", markup=False, highlight=False, soft_wrap=True)

    usable = installed.usable(library, extra)
    result = comparing.compare(
        [path, *arguments], [f.allocator for f in usable], errors, rounds=rounds or 0, metric=metric, less=less,
        figures=comparing.LASTING if lasting else comparing.FIGURES, once=comparing.Program(lasting or 0.0, hint=hint),
    )  # fmt: skip
    for note in comparing.notes(result):
        warn(f"{program}: {note}")
    for name, why in result.failed.items():
        warn(f"{program} failed on {name}: {why}")
    if result.interrupted:
        say(comparing.interruption(result))
    if not any(result.runs.values()):
        fail(f"{program} ran on no allocator to its end", MASU_FAILED)
    versions = {f.name: f.version for f in usable}
    try:
        console.print(table(result, versions))
        console.print(comparing.advice(result), style="bold", markup=False)
    finally:  # also when nobody reads that to its end
        results = []
        if json_file:
            results.append((json_file, json_text({**comparing.as_json(result), "versions": versions}, indent=1) + "\n"))
        if html_file:
            results.append((html_file, page(result, versions)))
        write_or_fail(*results)
