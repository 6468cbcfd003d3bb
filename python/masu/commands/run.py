"""masu run"""

import os
import signal
from errno import ENOEXEC
from pathlib import Path

import click

from masu.help import Command
from masu.library import library_path
from masu.messages import CANNOT_EXECUTE, fail, warn
from masu.program import ELF_MAGIC, NotRunnable, find_program, why_preload_fails


@click.command(
    cls=Command,
    example="masu run --stats -- python3 -c 'print(6 * 7)'",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--stats", is_flag=True, help="Write a summary to stderr when the program ends.")
@click.option("--verbose", is_flag=True, help="Say on stderr that the program runs on masu.")
@click.option("--options", metavar="NAME:VALUE,...", help="Options of the library, as in MASU_OPTIONS.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(stats: bool, verbose: bool, options: str, program: str, arguments: tuple) -> None:
    """Runs PROGRAM on masu. The exit status is the program's own; 127 when there is
    no such program, 126 when it cannot be executed, 125 when masu itself fails."""
    library = library_path()
    try:
        path = find_program(program)
    except NotRunnable as error:
        fail(str(error), error.status)
    reason = why_preload_fails(path, library)
    if reason:
        warn(f"{reason}: LD_PRELOAD has no effect, it runs on its own allocator")
    added = [options] * bool(options) + ["verbose"] * verbose + [f"stats:{os.getpid()}"] * stats
    environment = _environment(library, added)
    _restore_signals()
    try:
        _execute(path, [program, *arguments], environment)
    except OSError as error:
        fail(f"{program}: {error.strerror}", CANNOT_EXECUTE)


def _environment(library: Path, options: list) -> dict:
    """What the program would have got without us, plus the preload and the options."""
    environment = _environment_at_start()
    _join(environment, "LD_PRELOAD", ":", [str(library)], first=True)
    _join(environment, "MASU_OPTIONS", ",", options, first=False)
    return environment


def _environment_at_start() -> dict:
    """os.environ is not it: in the C locale Python changes LC_CTYPE."""
    with open("/proc/self/environ", "rb") as file:
        entries = os.fsdecode(file.read()).split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _join(environment: dict, name: str, separator: str, added: list, first: bool) -> None:
    present = [environment[name]] if environment.get(name) else []
    values = added + present if first else present + added
    if values:
        environment[name] = separator.join(values)


def _restore_signals() -> None:
    """Python ignores these, and what is ignored stays so in the program."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _execute(path: str, argv: list, environment: dict) -> None:
    try:
        os.execve(path, argv, environment)
    except OSError as error:
        # A text without #! is a shell script, as for execvp(3) and every shell.
        if error.errno != ENOEXEC or _is_elf(path):
            raise
        os.execve("/bin/sh", ["sh", path, *argv[1:]], environment)


def _is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == ELF_MAGIC
