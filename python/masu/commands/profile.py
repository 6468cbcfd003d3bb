"""masu profile"""

from __future__ import annotations

from pathlib import Path

import click

from masu.help import Command, ResultFile
from masu.messages import MASU_FAILED, fail, say, warn, writable_or_fail


@click.command(cls=Command, example="masu profile python3.4242.heap.pb.gz")
@click.option("--view", type=click.Choice(["in-use", "allocated", "peak", "lifetime", "cpu"]),
              help="What to show; else what is in use at the end or, if that is little, at the peak. A CPU profile has only cpu.")  # fmt: skip
@click.option("--by", type=click.Choice(["function", "thread"]), default="function", help="Sum up by that.")
@click.option("--cumulative", is_flag=True, help="Sort by what a function and those that it calls have.")
@click.option("-n", "count", type=click.IntRange(min=1), default=20, metavar="ROWS", help="So many rows; else 20.")
@click.option("--folded", is_flag=True, help="Write folded stacks with KiB or milliseconds, for flamegraph.pl, inferno, speedscope.")
@click.option("--html", is_flag=True, help="Write a page with a flame graph.")
@click.option("-o", "output", type=ResultFile(), help="Where to; else FILE.html, and stdout for --folded.")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("later", type=click.Path(path_type=Path), required=False)
def profile(view, by: str, cumulative: bool, count: int, folded: bool, html: bool, output, file: Path, later) -> None:
    """Shows a profile of `masu run --profile heap` or `--profile cpu`, or any of these kinds in the format of pprof; with
    a second FILE the growth from the first to the second."""
    from masu import profile as profiles

    if folded and html:
        raise click.UsageError("--folded and --html are two forms: choose one.")
    if output and not (folded or html):
        raise click.UsageError("-o is for --folded and --html.")
    by_thread = by == "thread"
    files = [file, later] if later else [file]
    heaps = [_heap(path, by_thread) for path in files]
    last, growth = heaps[-1], heaps[1].minus(heaps[0]) if later else None
    shown = growth or last
    view = view or ("in-use" if later and not last.is_cpu else last.telling())
    for path, one in zip(files, heaps):
        try:
            weight, _ = one.kinds(view)
        except profiles.BadProfile as problem:
            fail(f"{path}: {problem}", MASU_FAILED)
    if folded:
        if view == "lifetime":
            raise click.UsageError("--folded is KiB, and lifetimes have none.")
        text = "".join(f"{line}\n" for line in profiles.folded(shown, weight))
        if output:
            output.write_text(text, encoding="utf-8")
        else:
            click.echo(text, nl=False)
    elif html:
        from masu.profile_page import page

        if not output:
            output = Path(f"{later or file}.html")
            writable_or_fail(output)
        output.write_text(page(file, later, last, growth, view), encoding="utf-8")
        say(f"{output}: {output.stat().st_size / 1024:.0f} KiB")
    else:
        _show(file, later, shown, last, view, by_thread=by_thread, cumulative=cumulative, count=count)


def _heap(path: Path, by_thread: bool):
    from masu import profile as profiles

    try:
        found, others = profiles.load(path)
    except profiles.BadProfile as problem:
        fail(f"{path}: {problem}", MASU_FAILED)
    if others:
        warn(f"no names of functions from {', '.join(others)}: not the file{'s' * (len(others) > 1)} that the program ran")
    return profiles.heap(found, by_thread)


def _show(file: Path, later, shown, last, view: str, *, by_thread: bool, cumulative: bool, count: int) -> None:
    from rich.console import Console

    from masu import profile_tables as tables
    from masu.profile_cpu import NEXT, unsampled, verdict

    console = Console(highlight=False) if Console().is_terminal else Console(width=200, highlight=False)
    what = tables.growth_of(view) if later else tables.TITLES[view]
    console.print(f"{file} to {later}" if later else str(file), style="bold", markup=False)
    console.print((f"{later}: " if later else "") + tables.summary(last) + (f"; a sample every {tables.interval(last)}" if last.interval else ""), markup=False)
    console.print(f"\n{what}:", markup=False)
    console.print(
        tables.functions(shown, view, by_thread=by_thread, cumulative=cumulative, count=count, growth=bool(later))
    )
    if view != "cpu" or later:
        return
    if unsampled(last):
        console.print(unsampled(last), markup=False)
    console.print("\ntime in malloc and free:", markup=False)
    console.print(verdict(last), markup=False)
    table = tables.allocating(last, count)
    if table.row_count:
        console.print(table)
        console.print(NEXT, markup=False)
