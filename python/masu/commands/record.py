"""masu record"""

from __future__ import annotations

import os
from pathlib import Path

import click

from masu.help import Command
from masu.library import recorder_path
from masu.messages import MASU_FAILED, fail, say, warn, writable_or_fail
from masu.program import NotRunnable, environment_at_start, find_or_fail, why_preload_fails


@click.command(
    cls=Command,
    example="masu record -- python3 some_script.py",
    context_settings={"allow_interspersed_args": False},
    runs=True,
)
@click.option("-o", "output", type=click.Path(path_type=Path), help="The trace file; else PROGRAM.trace here, and one of before gets a number.")
@click.option("--stacks", is_flag=True, help="Also the call stack of each call (slower, larger).")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def record(output, stacks: bool, program: str, arguments: tuple) -> None:
    """Runs PROGRAM and records every call of malloc and its family, with those of the processes
    that it starts, for `masu replay`. The exit status is the program's own; 128 and the number of
    the signal, when one ended it."""
    from masu import record as recording

    library = recorder_path()
    path = find_or_fail(program)
    reason = why_preload_fails(path, library)
    if reason:
        fail(f"{reason}: LD_PRELOAD has no effect, nothing would be recorded", MASU_FAILED)
    own_name, output = not output, output or Path(f"{os.path.basename(program)}.trace")
    writable_or_fail(output)

    def keep() -> None:
        before = recording.kept(output) if own_name else None
        if before:
            say(f"{output} of before is now {before}")

    try:
        done = recording.record(
            path, [program, *arguments], output, library, environment=environment_at_start(), stacks=stacks,
            left_behind=lambda n: say(f"{program} has ended; waiting for {n} process{'es' * (n > 1)} that it left, until Ctrl-C"),
            stopped=lambda process, why: warn(f"recording of process {process} ends here: {os.strerror(why)}"),
            missed=lambda why: warn(f"not all is recorded: {why}"), keep=keep,
        )  # fmt: skip
    except NotRunnable as error:
        fail(str(error), error.status)
    if not done.processes:
        warn(f"{program} was not recorded: it cleared its environment, or does not load what is preloaded")
    else:
        say(f"{output}: {_size(done.file)} from {done.processes} process{'es' * (done.processes > 1)}; try: masu replay {output}")
    raise SystemExit(done.status if done.status >= 0 else 128 - done.status)


def _size(n: int) -> str:
    return f"{n / 2**20:.1f} MiB" if n >= 1 << 20 else f"{n / 1024:.0f} KiB"
