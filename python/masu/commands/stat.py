"""masu stat"""

from __future__ import annotations

import click

from masu.help import Command
from masu.json_text import json_text
from masu.messages import MASU_FAILED, fail


@click.command(cls=Command, example="masu stat --json $(pidof redis-server)")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.argument("pid", type=int)
def stat(as_json: bool, pid: int) -> None:
    """Prints the figures of process PID, which runs on masu with the option live."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from masu import live
    from masu.shown import heading, shown

    try:
        with live.Page(pid) as page:
            figures = page.read()
    except live.NotLive as why:
        fail(f"stat: {why}", MASU_FAILED)
    if as_json:
        click.echo(json_text(figures.as_json(), indent=1))
        return
    console = Console() if Console().is_terminal else Console(width=140)
    console.print(f"{figures.program}, process {pid}, masu {figures.masu}", style="bold", highlight=False, markup=False)
    for name, table in figures.tables.items():
        rows = figures.rows[name]
        if not rows:
            continue
        if table.is_single:
            out = Table(box=None, show_header=False, pad_edge=False)
            for _ in range(3):
                out.add_column(justify="right" if _ == 1 else "left")
            for c in table.columns:
                out.add_row(c.name, Text(shown(rows[0][c.name], c)), c.meaning)
            if name == "process":
                out.add_row("fragmentation", f"{figures.fragmentation:.1%}", "external: slab_free : (live + slab_free)")
        else:
            out = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=heading(name), title_justify="left")
            for c in table.columns:
                out.add_column(heading(c.name), justify="left" if c.unit == live.TEXT else "right")
            for row in rows:
                out.add_row(*(Text(shown(row[c.name], c)) for c in table.columns))
        console.print(out)
        if figures.more[name]:
            console.print(f"and {figures.more[name]} more", style="dim", highlight=False)
