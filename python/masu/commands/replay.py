"""masu replay"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from masu.help import Command, ResultFile
from masu.json_text import json_text
from masu.library import library_path
from masu.messages import MASU_FAILED, fail, say, warn, write_or_fail


@click.command(cls=Command, example="masu replay python3.trace")
@click.option("-n", "rounds", type=click.IntRange(min=1), default=None, metavar="ROUNDS",
              help="So many rounds, below 5 too few to say what is noise; else until it is clear, 5 to 30.")  # fmt: skip
@click.option("--touch", type=click.Choice(("auto", "full", "first", "none")), default="auto", show_default=True,
              help="What is written to each block: all of it, a byte of each page, or nothing; auto: all of it, unless the replay "
                   "then takes longer than the program did.")  # fmt: skip
@click.option("--think", is_flag=True, help="With the time that the program spent between its calls.")
@click.option("--settle", "settle_s", type=click.FloatRange(0, 3600), default=2.0, show_default=True, metavar="SECONDS",
              help="So long after the end memory is looked at again.")  # fmt: skip
@click.option("--process", "number", type=int, metavar="PID", help="This process of the trace; else the one with most recorded.")
@click.option("--with", "extra", multiple=True, metavar="NAME=LIBRARY", help="One more allocator; may be repeated.")
@click.option("--json", "json_file", type=ResultFile(), help="Write every figure there.")
@click.argument("file", type=click.Path(path_type=Path))
def replay(rounds, touch: str, think: bool, settle_s: float, number, extra: tuple, json_file, file: Path) -> None:
    """Makes the calls that FILE recorded, thread by thread and in the order in which threads handed
    blocks over, on every allocator that this machine has: time, single calls, memory over time.
    Ctrl-C ends it with what was measured so far."""
    from rich.console import Console

    from masu import installed
    from masu import replay as replaying
    from masu import trace as traces
    from masu.compare import as_json as comparison_json
    from masu.compare import interruption
    from masu.comparison import table
    from masu.measuring.rounds import wide

    console = wide()
    trace = traces.read(file)
    if trace.damage:
        warn(f"{file}: {trace.damage}; what is there is replayed")
    process = trace.process(number)
    usable = installed.usable(library_path(), extra)
    with tempfile.TemporaryDirectory(prefix="masu-replay-") as folder:
        made = replaying.plan(trace, process, Path(folder))
        result = replaying.replay(
            made, [f.allocator for f in usable], Console(stderr=True), rounds=rounds or 0, touch=touch, think=think,
            settle_s=settle_s,
        )  # fmt: skip
    c = result.comparison
    c.command = [str(file)]
    for name, why in c.failed.items():
        warn(f"the replay failed on {name}: {why}")
    if c.interrupted:
        say(interruption(c))
    if not any(c.runs.values()):
        fail("the replay ran on no allocator to its end", MASU_FAILED)
    try:
        say(f"{process.name}, process {process.head.process}: {replaying.described(made.summary)}")
        if others := replaying.others(trace, process):
            say(others)
        console.print(table(c, {f.name: f.version for f in usable}))
        if result.single:
            console.print(replaying.SingleTables(result))
        console.print(f"{replaying.touched(result)} The replay itself takes {result.own_s:.3f} s of the time, "
                      "where no allocator is called.", style="dim")  # fmt: skip
        for line in replaying.prediction(result):
            console.print(line, markup=False)
        console.print(replaying.advised(result), style="bold", markup=False)
    finally:  # also when nobody reads that to its end
        if json_file:
            processes = [{"process": p.head.process, "name": p.name, "bytes": p.size} for p in trace.processes]
            said = {**comparison_json(c), **replaying.as_json(result), "processes": processes}
            write_or_fail((json_file, json_text(said, indent=1) + "\n"))
