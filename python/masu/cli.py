"""masu: the command line. One file per command in masu/commands."""

import io
import sys

import click

from masu.help import Group

COMMANDS = (
    "allocators", "bench", "compare", "doctor", "export", "path", "profile", "purge",
    "record", "replay", "report", "run", "stat", "top", "tune",
)  # fmt: skip


@click.group(cls=Group, names=COMMANDS, example="masu run -- python3 -c 'print(6 * 7)'")
@click.version_option(package_name="masu", message="%(prog)s %(version)s")
def main() -> None:
    """Runs programs, unchanged, on the masu memory allocator, and shows which allocator fits."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":  # what it can't write is no reason to end
            stream.reconfigure(errors="replace")
