"""masu: the command line. One file per command in masu/commands."""

import click

from masu.commands.allocators import allocators
from masu.commands.bench import bench
from masu.commands.compare import compare
from masu.commands.path import path
from masu.commands.run import run
from masu.help import Group


@click.group(cls=Group, example="masu run -- python3 -c 'print(6 * 7)'")
@click.version_option(package_name="masu", message="%(prog)s %(version)s")
def main() -> None:
    """Runs programs, unchanged, on the masu memory allocator, and shows which allocator fits."""


main.add_command(run)
main.add_command(compare)
main.add_command(allocators)
main.add_command(bench)
main.add_command(path)
