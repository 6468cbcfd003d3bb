"""masu bench: masu beside its peers, in one run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from masu.help import Command, ResultFile
from masu.library import library_path


@click.command(
    cls=Command,
    example="masu bench --quick --only pairs-lifo100,xmalloc",
)
@click.option("--list", "listed", is_flag=True, help="Name the cases and end.")
@click.option("--only", metavar="CASE,...", default="", help="These cases or families only.")
@click.option("--quick", is_flag=True, help="A case or two of each family, few rounds: some minutes.")
@click.option("--peers", type=click.Path(path_type=Path), help="The folder that script/peers filled; else the allocators of this machine's packages.")
@click.option("--with", "extra", multiple=True, metavar="NAME=LIBRARY", help="One more allocator; may be repeated.")
@click.option("--library", type=click.Path(path_type=Path), help="Another libmasu.so than the package's.")
@click.option("--seconds", type=float, help="Time for one case on all allocators (quick: 10, else 20).")
@click.option("--json", "json_file", type=ResultFile(), help="Write every figure there.")
@click.option("--html", "html_file", type=ResultFile(), help="Write the page there.")
@click.option("--baseline", type=click.Path(path_type=Path), help="A saved --json: say what got worse since.")
@click.option("--state", type=click.Path(path_type=Path), help="Where a run that was interrupted goes on from.")
def bench(listed: bool, only: str, **given) -> None:
    """Runs masu and its peers over every case, interleaved, and prints a table; --json and --html write all of
    it. What was interrupted goes on where it stopped. Exit status 1: masu failed in a case."""
    from masu.bench import session  # late: these take their time to load

    if listed:
        session.list_cases()
        return
    library = given.pop("library") or library_path()
    with tempfile.TemporaryDirectory(prefix="masu-bench-") as folder:
        summary = session.run(only, library=Path(library).resolve(), folder=Path(folder), **given)
    if summary.failed:
        raise SystemExit(1)
