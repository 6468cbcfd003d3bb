"""Runs one command on one allocator and says what it used."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from masu.messages import Problem

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Allocator:
    """An allocator that a program gets by preload; without a library, the system's."""

    name: str
    library: Path | None = None
    settings: tuple[str, ...] = ()
    """More of the environment that it needs, as NAME=VALUE."""

    @classmethod
    def parse(cls, text: str) -> Allocator:
        """`system`, or `NAME=LIBRARY` (a path, or a name that the loader finds)."""
        name, equals, library = text.partition("=")
        if not equals:
            if name != "system":
                raise Problem(f"{name}: neither `system` nor NAME=LIBRARY")
            return cls(name)
        path = Path(library)
        if "/" in library or path.exists():
            if not path.is_file():
                raise Problem(f"{library}: no such library")
            path = path.resolve()
        return cls(name, path)

    def environment(self) -> dict[str, str]:
        """What a program's environment needs to contain so that the program runs on it."""
        needed = {"LD_PRELOAD": str(self.library)} if self.library else {}
        return {**needed, **dict(text.split("=", 1) for text in self.settings)}


SYSTEM = Allocator("system")


@dataclass(frozen=True)
class Usage:
    """What a finished process and the children it waited for used."""

    wall_s: float
    user_s: float
    system_s: float
    peak_rss_kib: int
    page_faults: int
    voluntary_switches: int
    involuntary_switches: int
    status: int
    """Exit status, or minus the signal that ended it."""
    output: str = field(default="", repr=False)
    errors: str = field(default="", repr=False)

    @classmethod
    def read(cls, result: str, output: str = "", errors: str = "") -> Usage:
        """What measure.c wrote."""
        lines = result.splitlines()
        if len(lines) != 2:
            raise Problem(f"a program could not be measured: {errors.strip()}")
        return cls(**json.loads(lines[1]), output=output, errors=errors)

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


@functools.cache
def launcher() -> Path:
    """measure.c as it was built with the package; else compiled on first use, into a folder
    that is removed at the end."""
    built = HERE / "bin" / "measure"
    if built.is_file():
        return built
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise Problem("measuring needs a C compiler (cc, gcc or clang)")
    folder = tempfile.TemporaryDirectory(prefix="masu-measure-")
    _kept.append(folder)
    program = Path(folder.name) / "measure"
    subprocess.run([compiler, "-O1", "-o", program, HERE / "measure.c"], check=True)
    # Programs under test may run as another user.
    Path(folder.name).chmod(0o755)
    return program


_kept: list[tempfile.TemporaryDirectory[str]] = []


# Settings of masu and of the others that are known: what they are set to where masu is started would make them
# something else than what is compared elsewhere.
SETTINGS = re.compile(r"MASU_(OPTIONS(_FILE)?|BENCH_HUGE)|(MALLOC|MIMALLOC|TCMALLOC|TBB_MALLOC)_\w+|HEAPPROFILE|HEAPCHECK")


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in environment.items() if not SETTINGS.fullmatch(k)}
    if "GLIBC_TUNABLES" in kept:  # of malloc and of others
        tunables = kept.pop("GLIBC_TUNABLES").split(":")
        if others := [t for t in tunables if not t.startswith("glibc.malloc.")]:
            kept["GLIBC_TUNABLES"] = ":".join(others)
    return kept


def settings_left_out() -> list[str]:
    """The names of those that are set and that clean_environment leaves out, at least in part."""
    kept = _without_settings(os.environ)
    return sorted(name for name, value in os.environ.items() if value and kept.get(name) != value)


def clean_environment(allocator: Allocator, extra: dict[str, str] | None = None) -> dict[str, str]:
    """This process's environment, with the allocator that is meant and no other, and no settings of any."""
    base = _without_settings(os.environ)
    base.pop("LD_PRELOAD", None)
    return {**base, **(extra or {}), **allocator.environment()}


def _wait(process: subprocess.Popen, timeout: float) -> None:
    """As its own wait(), which only looks now and then whether a process has ended that has a time limit."""
    try:
        ended = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not in every Python, nor every container
        process.wait(timeout)
        return
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        if not poll.poll(min(timeout * 1000, 2**31 - 1)):
            raise subprocess.TimeoutExpired(process.args, timeout)
    finally:
        os.close(ended)
    process.wait()


def measure(
    command: list[str | os.PathLike[str]],
    allocator: Allocator = SYSTEM,
    *,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
    timeout: float = 600,
    started: Callable[[int], None] | None = None,
    source: Path = Path(os.devnull),
) -> Usage:
    """Runs the command to its end, and ends what it leaves. The launcher itself stays on the system allocator;
    `started` is told its process id, what else it is the parent of was the command's. `source`: what the command reads."""
    env = clean_environment(SYSTEM, environment)
    settings = [f"{k}={v}" for k, v in allocator.environment().items()]
    with contextlib.ExitStack() as files:
        # Files, not pipes: the end of a pipe comes when the last process has ended that holds it. In memory, as for minutes
        # an ext4 without a journal looks past each file that was removed, whenever a program makes a new one.
        result, output, errors = (files.enter_context(_scratch(name)) for name in ("usage", "output", "errors"))
        with source.open("rb") as stdin:
            process = subprocess.Popen(
                [launcher(), f"/proc/{os.getpid()}/fd/{result.fileno()}", *settings, "--", *command],
                stdin=stdin,
                stdout=output,
                stderr=errors,
                env=env,
                cwd=folder,
                start_new_session=True,
            )
            with process:
                try:
                    if started:
                        started(process.pid)
                    _wait(process, timeout)
                except BaseException as error:
                    process.terminate()  # and what it has started
                    if isinstance(error, subprocess.TimeoutExpired):
                        raise Problem(f"{command[0]} did not end within {timeout:.0f} s") from None
                    raise
        return Usage.read(*(_text(file) for file in (result, output, errors)))


def _scratch(name: str) -> BinaryIO:
    try:
        return open(os.memfd_create(name), "w+b")
    except (AttributeError, OSError):  # as with pidfd_open
        return tempfile.TemporaryFile()


def _text(file: BinaryIO) -> str:
    """All of it, from the start."""
    file.seek(0)
    return file.read().decode(errors="replace")
