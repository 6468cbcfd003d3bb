"""masu allocators"""

import click

from masu.help import Command
from masu.library import library_path


@click.command(cls=Command, example="masu allocators")
@click.option("--with", "extra", multiple=True, metavar="NAME=LIBRARY", help="One more; may be repeated.")
def allocators(extra: tuple) -> None:
    """Lists the allocators that this machine has, each but the system's tried in a program of its own."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from masu import installed
    from masu.measuring.rounds import wide

    found = installed.allocators(library_path(), extra)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "version", "library", ""):
        table.add_column(heading, overflow="fold")
    for f in found:
        library = str(f.allocator.library) if f.allocator.library else "the C library's own"
        if not f.allocator.library:
            said = Text("not tried: what programs have by themselves", "dim")
        elif f.wrong:
            said = Text(f"not usable: {f.wrong}", "red")
        elif f.flaw:
            said = Text(f"answers, but {f.flaw}", "yellow")
        else:
            said = Text("answers", "green")
        table.add_row(Text(f.name), f.version, Text(library), said)
    wide().print(table)
