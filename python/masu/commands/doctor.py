"""masu doctor"""

from __future__ import annotations

import click

from masu.help import Command
from masu.messages import MASU_FAILED, fail

BAR = 30


@click.command(cls=Command, example="masu doctor $(pidof redis-server)")
@click.argument("pid", type=int)
def doctor(pid: int) -> None:
    """Explains the resident memory of process PID on one screen, and says what would help. The
    process runs on masu with the option live."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from masu import doctor as doctors
    from masu import live
    from masu.shown import size

    try:
        with live.Page(pid) as page:
            d = doctors.diagnose(page)
    except live.NotLive as why:
        fail(f"doctor: {why}", MASU_FAILED)
    console = Console() if Console().is_terminal else Console(width=140)
    console.print(f"{d.figures.program}, process {pid}: {size(d.kernel.total)} resident", style="bold", highlight=False, markup=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("resident", justify="right")
    table.add_column("share", justify="right")
    table.add_column("", width=BAR)
    table.add_column("what it is")
    for part in d.parts:
        share = part.bytes / max(d.kernel.total, 1)
        table.add_row(part.name, size(part.bytes), f"{share:.1%}", "█" * round(share * BAR), part.meaning)
    table.add_section()
    table.add_row("together", size(d.kernel.total), "100.0%", "", "as the kernel counts in smaps")
    table.add_row("in huge pages", size(d.kernel.huge), "", "", "of the above")
    table.add_row("size classes", *doctors.slack(d))
    table.add_row("held ready", size(d.figures.process["ready_most"]), "", "", "of live: what threads hold ready, at most")
    console.print(table)
    for text in doctors.advice(d):
        console.print(f"• {text}", highlight=False, markup=False, soft_wrap=True)
