"""Which malloc the processes of a run have, by what they have mapped."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from masu.program import defines_malloc, is_c_library, is_loader, why_preload_fails


def family(process: int) -> list[int]:
    """The process and its descendants, as far as they still run."""
    found = [process]
    try:
        tasks = list(Path(f"/proc/{process}/task").glob("*/children"))
    except OSError:  # it has ended meanwhile
        return found
    for task in tasks:
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += family(int(child))
    return found


class Reach:
    """Looks at the processes of a run, and sums up what they have resident: so a program counts as it was large and as it was there."""

    def __init__(self, library: Path | None, launcher: Path | None = None) -> None:
        """library: what is preloaded; None: nothing. launcher: a program that doesn't count."""
        self.library = os.path.realpath(library) if library else ""
        self.launcher = os.path.realpath(launcher) if launcher else ""
        self.resident: Counter[str] = Counter()
        """By program, MiB and looks."""
        self.without: Counter[str] = Counter()
        """What of it was without the library."""
        self.libraries: set[str] = set()
        self.whys: dict[str, str | None] = {}
        """Of a program: why_preload_fails."""

    def look(self, process: int, mib: float) -> bool:
        """False: there was nothing to see yet, or any more."""
        program, mapped = _mapped(process)
        if program in ("", self.launcher):
            return False
        if not any(map(is_c_library, mapped)):
            if any(map(is_loader, mapped - {program})):
                return False  # it is just being loaded
        elif self.library not in mapped:
            self.without[program] += mib
        self.resident[program] += mib
        self.libraries |= mapped - {program}
        return True

    def missed(self) -> tuple[float, str]:
        """The part that the library did not reach, and why it did not reach most of that."""
        if not self.library:
            return 0.0, ""
        for program in self.resident:
            if program not in self.whys:
                self.whys[program] = why_preload_fails(program, Path(self.library))
        parts = {program: self.resident[program] if why else self.without[program] for program, why in self.whys.items()}
        if not any(parts.values()):
            return 0.0, ""
        most = max(parts, key=parts.__getitem__)
        why = self.whys[most] or f"{most} did not load what was preloaded, as after `env -i`"
        return sum(parts.values()) / sum(self.resident.values()), why

    def other_malloc(self) -> str:
        """A library with a malloc that is not the C library's; empty if there is none."""
        others = (p for p in sorted(self.libraries) if p != self.library and not is_c_library(p) and not is_loader(p))
        return next(filter(defines_malloc, others), "")


class Watch:
    """Looks at the processes that a program starts, at each once for every program that it runs."""

    FIRST_S, PART = 0.05, 0.05
    """It doesn't begin before, and takes so much of a processor at most."""

    def __init__(self, library: Path, tell: Callable[[str], None]) -> None:
        """tell: is told once why the library did not reach one of them."""
        self.reach, self.tell = Reach(library), tell
        self.seen: set[tuple[int, str]] = set()
        self.next = time.monotonic() + self.FIRST_S

    def look(self) -> None:
        start = time.monotonic()
        if start < self.next:
            return
        running = {(process, _program(process)) for process in family(os.getpid())[1:]}
        self.seen = {this for this in running if this in self.seen or self.reach.look(this[0], 1.0)}
        _, why = self.reach.missed()
        if why:
            self.tell(why)
        now = time.monotonic()
        self.next = math.inf if why else now + (now - start) / self.PART


def _program(process: int) -> str:
    try:
        return os.readlink(f"/proc/{process}/exe")
    except OSError:
        return ""


def _mapped(process: int) -> tuple[str, set[str]]:
    """The program that it runs, and all files whose code it has mapped; empty of one that has ended or is another user's."""
    program = _program(process)
    try:
        lines = Path(f"/proc/{process}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return "", set()
    fields = (line.split(maxsplit=5) for line in lines)
    return program, {f[5] for f in fields if len(f) == 6 and "x" in f[1] and f[5].startswith("/")}
