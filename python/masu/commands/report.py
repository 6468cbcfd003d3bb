"""masu report"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from masu.help import Command
from masu.library import library_path
from masu.messages import MASU_FAILED, fail, say, warn, writable_or_fail, write_or_fail


@click.command(cls=Command, example="masu report python3.trace")
@click.option("-o", "output", type=click.Path(path_type=Path), help="The page; else FILE.html.")
@click.option("-n", "rounds", type=click.IntRange(min=1), default=None, metavar="ROUNDS",
              help="So many rounds of the replay, below 5 too few to say what is noise; else until it is clear, 5 to 30.")  # fmt: skip
@click.option("--process", "number", type=int, metavar="PID", help="This process of the trace; else the one with most recorded.")
@click.option("--with", "extra", multiple=True, metavar="NAME=LIBRARY", help="One more allocator; may be repeated.")
@click.argument("file", type=click.Path(path_type=Path))
def report(output, rounds, number, extra: tuple, file: Path) -> None:
    """Writes one page about the trace FILE: sizes, lifetimes, memory over time, threads, call sites,
    a replay on every allocator, and what to change. The page needs no network. Ctrl-C ends the replay;
    the page has what was measured by then."""
    from rich.console import Console

    from masu import installed, replay, trace as traces
    from masu import report as reporting
    from masu.compare import interruption
    from masu.measuring.measure import Allocator

    library = library_path()
    # Masu with an option that some programs gain by is measured as one more.
    options = {"masu with huge pages": "huge_pages:16"}
    trace = traces.read(file)
    if trace.damage:
        warn(f"{file}: {trace.damage}; the page is about what is there")
    process = trace.process(number)
    output = output or Path(f"{file}.html")
    writable_or_fail(output)
    usable = installed.usable(library, extra)
    allocators = [f.allocator for f in usable]
    with tempfile.TemporaryDirectory(prefix="masu-report-") as folder:
        analysis = reporting.analyse(trace, process, Path(folder))
        reporting.measure_usable(analysis, allocators)
        made = replay.plan(trace, process, Path(folder))
        more = [Allocator(name, library, (f"MASU_OPTIONS={text}",)) for name, text in options.items()]
        try:
            replayed = replay.replay(made, [*allocators, *more], Console(stderr=True), rounds=rounds or 0)
        except KeyboardInterrupt:
            replayed = None
            say("interrupted before the first round: the page is without a replay")
    if replayed and replayed.comparison.interrupted:
        say(interruption(replayed.comparison))
    if replayed and not any(replayed.comparison.runs.values()):
        fail("the replay ran on no allocator to its end", MASU_FAILED)
    versions = {f.name: f.version for f in usable}
    try:
        for text in reporting.sentences(analysis, replayed, options, trace.path):
            click.echo(text)
    finally:  # also when nobody reads that to its end
        write_or_fail((output, reporting.page(trace, process, analysis, made.summary, replayed, versions, options)))
    say(f"{output}: {output.stat().st_size / 1024:.0f} KiB")
