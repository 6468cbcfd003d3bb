"""Runs a program with an observer of the library on, and takes up the profiles that it and its processes write."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from masu.pprof import BadProfile, write
from masu.profile import heap, load
from masu.signals import Start, passed_on

KEPT_S = {"heap": 5, "cpu": 2}
"""Of a program that is killed there is a profile not older than that, as long as it allocates or uses CPU time."""
GRACE_S = 1.0
POLL_S = 0.02


@dataclass(frozen=True)
class Kind:
    names: tuple[str, ...]
    """In the names of its files."""
    make: Callable[[Any], Any]
    """What is made of a profile."""

    def parse(self, file: str) -> re.Match | None:
        """Program, process, number and name."""
        return re.match(rf"^(.*)\.(\d+)(?:-(\d+))?\.({'|'.join(self.names)})\.pb$", file)


PROFILES = Kind(("heap", "cpu"), heap)


@dataclass(frozen=True)
class Written:
    """A file as the library wrote it."""

    path: Path
    program: str
    process: int
    number: str
    """"": the last one, written when the process ended."""
    kind: str
    time: float


@dataclass
class Taken:
    """What became of them."""

    status: int
    """As subprocess has it: minus the signal, if one ended the program."""
    files: list[tuple[Path, Any]] = field(default_factory=list)
    """What is made of the last profile of each process, the program's own first."""
    numbered: int = 0
    empty: int = 0
    """Other processes whose profile has nothing in it."""
    own: bool = False
    """The program itself wrote one."""
    at_end: bool = False
    others: set[str] = field(default_factory=set)
    """Files that are no longer those that ran."""
    running: int = 0
    problems: list[str] = field(default_factory=list)
    left: Path | None = None
    """The folder, if something is still in it."""


def beside(output: Path) -> Path | None:
    """The folder for what comes with it; None: it is a device or the like."""
    return output.parent if output.is_file() or not output.exists() else None


def folder_for(program: str, inside: Path | None) -> Path:
    """Where the processes write; None: in the system's folder for such."""
    return Path(tempfile.mkdtemp(prefix=f"{os.path.basename(program)}.", suffix=".profile", dir=inside)).resolve()


def run(start: Start, folder: Path, output: Path | None, keep_all: bool, kind: Kind = PROFILES, keep: bool = True) -> Taken:
    """keep_all: also the profiles that are written meanwhile. keep: put them
    beside the output, else only look at them."""
    process, status = _wait(start, folder, keep_all)
    until = time.monotonic() + GRACE_S
    while (running := _running(folder)) and time.monotonic() < until:
        time.sleep(POLL_S)
    taken = Taken(status, running=running)
    others = (output and beside(output)) or Path()
    found = _written(folder, kind)
    for last in sorted(_last(found), key=lambda w: (w.process != process, w.process)):
        own = last.process == process
        if own:
            taken.own, taken.at_end = True, not last.number
        path = output if own and output else others / f"{last.program}.{last.process}.{last.kind}.pb.gz"
        profile = _take(last, path, taken, keep=keep, even_empty=own)
        if profile:
            taken.files.append((path, kind.make(profile)))
    for one in set(found).difference(_last(found)) if keep_all else ():
        if _take(one, others / f"{one.path.name}.gz", taken, keep=keep, even_empty=True):
            taken.numbered += 1
    if not taken.running and not taken.problems:
        shutil.rmtree(folder, ignore_errors=True)
    taken.left = folder if folder.exists() else None
    return taken


def _wait(start: Start, folder: Path, keep_all: bool) -> tuple[int, int]:
    """To the program's end."""
    ended = threading.Event()
    with passed_on(start) as program:
        try:
            if not keep_all:
                threading.Thread(target=_forget_old, args=(folder, ended), daemon=True).start()
            program.wait()
        finally:
            ended.set()
    return program.pid, program.returncode


def _forget_old(folder: Path, ended: threading.Event) -> None:
    """Of the numbered files of a process only the newest is of use."""
    while not ended.wait(max(KEPT_S.values())):
        found = _written(folder)
        last = _last(found)
        for one in found:
            if one.number and one not in last:
                one.path.unlink(missing_ok=True)


def _written(folder: Path, kind: Kind = PROFILES) -> list[Written]:
    found: list[Written] = []
    for path in folder.iterdir() if folder.is_dir() else ():  # a program may have removed it
        match = kind.parse(path.name)
        if match:
            try:
                found.append(Written(path, match[1], int(match[2]), match[3] or "", match[4], path.stat().st_mtime))
            except FileNotFoundError:  # forgotten meanwhile
                pass
    return found


def _last(found: list[Written]) -> list[Written]:
    """Of each process."""
    last: dict[int, Written] = {}
    for one in sorted(found, key=lambda w: (w.time, w.number == "", w.number)):
        last[one.process] = one
    return list(last.values())


def _take(one: Written, path: Path, taken: Taken, *, keep: bool, even_empty: bool) -> Any | None:
    """The profile, with names."""
    try:
        profile, others = load(one.path)
        wanted = profile.sample or even_empty
        if wanted and keep:
            write(path, profile)
        taken.empty += not wanted
        one.path.unlink()
    except BadProfile as problem:
        taken.problems.append(f"{one.path}: {problem}")
        return None
    except OSError as error:
        taken.problems.append(f"{path}: {error.strerror}")
        return None
    taken.others.update(others)
    return profile if wanted else None


def _running(folder: Path) -> int:
    """Processes of the family that have not ended."""
    wanted, count = os.fsencode(f"\0MASU_PROFILE={folder}\0"), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/environ", "rb") as file:
                    count += wanted in b"\0" + file.read()
            except OSError:  # somebody else's, or it has ended
                pass
    return count
