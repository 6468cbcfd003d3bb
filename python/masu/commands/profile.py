"""masu profile"""

from __future__ import annotations

from pathlib import Path

import click

from masu.commands.run import Size
from masu.help import Command, ResultFile
from masu.messages import MASU_FAILED, fail, say, warn, writable_or_fail


@click.command(cls=Command, example="masu profile python3.4242.heap.pb.gz")
@click.option("--view", type=click.Choice(["in-use", "allocated", "peak", "lifetime", "suspects", "cpu", "direct", "indirect"]),
              help="What to show; else what is in use at the end or, if that is little, at the peak. A CPU profile has only cpu; "
                   "leaks have direct, which is shown, and indirect.")  # fmt: skip
@click.option("--by", type=click.Choice(["function", "thread", "heap"]), default="function",
              help="Sum up by function, thread or named heap.")  # fmt: skip
@click.option("--cumulative", is_flag=True, help="Sort by what a function and those that it calls have.")
@click.option("-n", "count", type=click.IntRange(min=1), default=20, metavar="ROWS", help="So many rows; else 20.")
@click.option("--folded", is_flag=True, help="Write folded stacks with KiB or milliseconds, for flamegraph.pl and speedscope.")
@click.option("--html", is_flag=True, help="Write a page with a flame graph.")
@click.option("-o", "output", type=ResultFile(),
              help="Where to; else FILE.html, and stdout for --folded. With --live alone: keep the profile.")  # fmt: skip
@click.option("--live", "pid", type=int, metavar="PID",
              help="The profile of this process now, which runs by masu run --live --profile heap.")  # fmt: skip
@click.option("--start", type=Size(), is_flag=False, flag_value="512K", metavar="[SIZE]",
              help="With --live: from now on a sample every so many bytes on average; else 512K.")  # fmt: skip
@click.option("--stop", is_flag=True, help="With --live: no more samples.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("later", type=click.Path(path_type=Path), required=False)
def profile(view, by: str, cumulative: bool, count: int, folded: bool, html: bool, output, pid, start, stop: bool, file, later) -> None:
    """Shows a profile of `masu run --profile heap` or `--profile cpu`, the leaks that `masu run --leaks -o FILE` found, or
    any of these kinds in the format of pprof; with a second FILE the growth from the first to the second. With --live PID
    the last one is that of a running process."""
    from masu import profile as profiles
    from masu.pprof import put

    if pid is None and (start or stop):
        raise click.UsageError("--start and --stop are for --live PID.")
    if start or stop:
        _switch(pid, 0 if stop else start)
        return
    if pid is None and not file:
        raise click.UsageError("Missing argument 'FILE'.")
    if pid is not None and later:
        raise click.UsageError("--live PID is the second: one FILE at most.")
    if folded and html:
        raise click.UsageError("--folded and --html are two forms: choose one.")
    if output and not (folded or html or pid is not None):
        raise click.UsageError("-o is for --folded, --html and --live.")
    if folded and view in ("lifetime", "suspects"):
        raise click.UsageError(f"--folded is of stacks, and {view} has none.")
    if view == "suspects" and by != "function":
        raise click.UsageError("--view suspects is by call site.")
    shown_as = [path for path in (file, later) if path]
    heaps = [_heap(path, by) for path in shown_as]
    if pid is not None:
        name, now = _now(pid, by, None if folded or html else output)
        shown_as.append(name)
        heaps.append(now)
    if by == "heap" and heaps[-1].is_cpu:
        raise click.UsageError("--by heap is for heap profiles: time is not spent in a heap.")
    last, growth = heaps[-1], heaps[1].minus(heaps[0]) if len(heaps) > 1 else None
    view = view or ("in-use" if growth and "inuse_space" in last.types else last.telling())
    for path, one in zip(shown_as, heaps):
        try:
            weight, _ = one.kinds(view)
        except profiles.BadProfile as problem:
            fail(f"{path}: {problem}", MASU_FAILED)
    if folded:
        text = "".join(f"{line}\n" for line in profiles.folded(growth or last, weight))
        if output:
            put(output, text.encode())
        else:
            click.echo(text, nl=False)
    elif html:
        from masu.profile_page import page

        if not output:
            output = Path(f"{shown_as[-1]}.html")
            writable_or_fail(output)
        text = page(shown_as[0], shown_as[-1] if growth else None, last, growth, "in-use" if view == "suspects" else view)
        put(output, text.encode())
        say(f"{output}: {output.stat().st_size / 1024:.0f} KiB")
    else:
        _show(shown_as, last, growth, view, by=by, cumulative=cumulative, count=count)


def _heap(path: Path, by: str):
    from masu import profile as profiles

    try:
        found, others = profiles.load(path)
    except profiles.BadProfile as problem:
        fail(f"{path}: {problem}", MASU_FAILED)
    _warn_of(others)
    return profiles.heap(found, by)


def _warn_of(others: list) -> None:
    if others:
        warn(f"no names of functions from {', '.join(others)}: not the file{'s' * (len(others) > 1)} that the program ran")


def _now(pid: int, by: str, keep) -> tuple:
    """What to call the profile of a running process, and what is in it. keep: the file that it is kept in."""
    from masu import live, pprof, profile_live
    from masu import profile as profiles

    try:
        program, found, others = profile_live.take(pid)
    except (live.NotLive, profiles.BadProfile) as why:
        fail(f"profile: {why}", MASU_FAILED)
    _warn_of(others)
    if keep:
        pprof.write(keep, found)
    return Path(f"{program.replace('/', '_') or 'program'}.{pid}"), profiles.heap(found, by)


def _switch(pid: int, interval: int) -> None:
    from masu import live, profile_live
    from masu.profile_tables import size

    try:
        program = profile_live.sample(pid, interval)
    except live.NotLive as why:
        fail(f"profile: {why}", MASU_FAILED)
    say(f"{program}, process {pid}: " + (f"a sample every {size(interval)} from now on" if interval else "no more samples"))


def _show(shown_as: list, last, growth, view: str, *, by: str, cumulative: bool, count: int) -> None:
    from rich.console import Console

    from masu import profile_tables as tables

    console = Console(highlight=False) if Console().is_terminal else Console(width=200, highlight=False)
    what = tables.growth_of(view) if growth and view != "suspects" else tables.TITLES[view]
    facts = tables.summary(last) + (f"; a sample every {tables.interval(last)}" if last.interval else "")
    console.print(" to ".join(map(str, shown_as)), style="bold", markup=False)
    console.print((f"{shown_as[-1]}: " if growth else "") + facts, markup=False)
    for note in last.notes:
        console.print(note, markup=False)
    console.print(f"\n{what}:", markup=False)
    if view == "suspects":
        console.print(tables.suspects(last, growth, count))
    else:
        console.print(tables.functions(growth or last, view, by=by, cumulative=cumulative, count=count, growth=bool(growth)))
    if view == "cpu" and not growth:
        _show_allocating(console, last, count)


def _show_allocating(console, profile, count: int) -> None:
    """Of a CPU profile."""
    from masu import profile_tables as tables
    from masu.profile_cpu import NEXT, unsampled, verdict

    if unsampled(profile):
        console.print(unsampled(profile), markup=False)
    console.print("\ntime in malloc and free:", markup=False)
    console.print(verdict(profile), markup=False)
    table = tables.allocating(profile, count)
    if table.row_count:
        console.print(table)
        console.print(NEXT, markup=False)
