"""masu path"""

import click

from masu.help import Command
from masu.library import library_path


@click.command(cls=Command, example='LD_PRELOAD="$(masu path)" python3')
def path() -> None:
    """Prints where libmasu.so is, for LD_PRELOAD by hand."""
    click.echo(library_path())
