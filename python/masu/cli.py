"""masu: the command line. One file per command in masu/commands."""

import io
import sys

import click

from masu.commands.allocators import allocators
from masu.commands.bench import bench
from masu.commands.compare import compare
from masu.commands.doctor import doctor
from masu.commands.export import export
from masu.commands.path import path
from masu.commands.profile import profile
from masu.commands.purge import purge
from masu.commands.record import record
from masu.commands.replay import replay
from masu.commands.report import report
from masu.commands.run import run
from masu.commands.stat import stat
from masu.commands.top import top
from masu.commands.tune import tune
from masu.help import Group


@click.group(cls=Group, example="masu run -- python3 -c 'print(6 * 7)'")
@click.version_option(package_name="masu", message="%(prog)s %(version)s")
def main() -> None:
    """Runs programs, unchanged, on the masu memory allocator, and shows which allocator fits."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":  # what it can't write is no reason to end
            stream.reconfigure(errors="replace")


main.add_command(run)
main.add_command(compare)
main.add_command(profile)
main.add_command(record)
main.add_command(replay)
main.add_command(report)
main.add_command(tune)
main.add_command(top)
main.add_command(stat)
main.add_command(doctor)
main.add_command(purge)
main.add_command(export)
main.add_command(allocators)
main.add_command(bench)
main.add_command(path)
