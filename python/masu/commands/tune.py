"""masu tune"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from masu.help import Command, ResultFile
from masu.library import library_path
from masu.messages import say, warn, writable_or_fail, write_or_fail


@click.command(cls=Command, example="masu tune python3.trace")
@click.option("--for", "goal", type=click.Choice(("memory", "time")), default="memory", show_default=True,
              help="What is to become less.")  # fmt: skip
@click.option("-o", "output", type=ResultFile(), help="The options file; else FILE.options.")
@click.option("-n", "rounds", type=click.IntRange(min=5), default=10, show_default=True, metavar="ROUNDS",
              help="So many rounds of the replay for every step.")  # fmt: skip
@click.option("--touch", type=click.Choice(("full", "first", "none")), default="full", show_default=True,
              help="What is written to each block: all of it, a byte of each page, or nothing.")  # fmt: skip
@click.option("--think", is_flag=True, help="With the time that the program spent between its calls; purge_delay is tried as well, and sleepers with many threads.")
@click.option("--process", "number", type=int, metavar="PID", help="This process of the trace; else the one with most recorded.")
@click.argument("file", type=click.Path(path_type=Path))
def tune(goal: str, output, rounds: int, touch: str, think: bool, number, file: Path) -> None:
    """Finds the size classes and options that fit the program that FILE was recorded of, measures by
    replay what they save, and writes them as an options file. Where nothing is better beyond noise,
    nothing is written. Ctrl-C ends it with what was better by then."""
    from importlib.metadata import version

    from rich.console import Console

    from masu import replay as replaying
    from masu import report as reporting
    from masu import trace as traces
    from masu import tune as tuning

    library = library_path()
    progress, console = Console(stderr=True), Console() if Console().is_terminal else Console(width=140)
    trace = traces.read(file)
    if trace.damage:
        warn(f"{file}: {trace.damage}; tuned for what is there")
    process = trace.process(number)
    if not output:
        output = Path(f"{file}.options")
        writable_or_fail(output)
    with tempfile.TemporaryDirectory(prefix="masu-tune-") as folder:
        data = reporting.analyse(trace, process, Path(folder)).data
        at_peak, on_average = tuning.loads(data)
        classes = tuning.choose_classes(at_peak, on_average)
        say(f"{process.name}, process {process.head.process}: at the peak of live memory its blocks of up to 32 KiB take "
            f"{tuning.added(tuning.DEFAULT, at_peak):.1%} more than was asked for, slabs that are begun included; "
            f"with the classes chosen for them {tuning.added(classes, at_peak):.1%}")  # fmt: skip
        made = replaying.plan(trace, process, Path(folder))
        tuned = tuning.search(
            goal,
            think,
            tuning.candidates(goal, classes, think, data["threads"]),
            lambda allocators: replaying.rounds_on(made, allocators, progress, rounds=rounds, touch=touch, think=think),
            library,
            Path(folder),
            lambda names, ratio: say(f"tried {names}: {ratio.median:.3f} ({ratio.low:.3f}–{ratio.high:.3f})"),
            lambda names, why: warn(f"tried {names}, and the replay failed: {why}"),
        )
    if not tuned.comparison and not tuned.interrupted:
        console.print(f"No gain in {goal} beyond noise: nothing is written, masu's defaults fit.", style="bold")
        return
    how = f"{rounds} rounds, --touch {touch}{' --think' if think else ''}"
    use = f"masu run --options-file {output} -- PROGRAM"
    try:
        if tuned.comparison:
            console.print(_table(tuned.settings.names(), tuning.gains(tuned.comparison)))
        else:
            say(f"interrupted: this was better by then, and is not measured anew beside the default: {tuned.settings.names()}")
    finally:  # also when nobody reads that to its end
        write_or_fail((output, tuning.options_file(tuned, file, goal, version("masu"), how, use)))
    console.print(f"{output} is written. Use it: {use}", style="bold", soft_wrap=True, markup=False)


def _table(names: str, rows: list):
    from rich import box
    from rich.table import Table

    table = Table(title=f"A replay with default settings and with {names}", title_justify="left",
                  box=box.SIMPLE_HEAD, pad_edge=False)  # fmt: skip
    for heading in ("", "default", "tuned", "ratio (95 %)"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(*row)
    return table
