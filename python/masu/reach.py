"""Which malloc the processes of a run have, by what they have mapped."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from masu.measuring.measure import launcher
from masu.program import defines_malloc, is_c_library, is_loader, why_preload_fails


class Reach:
    """Looks at the processes of a run, and sums up what they have resident: so a program counts as it was large and as it was there."""

    def __init__(self, library: Path | None) -> None:
        """library: what is preloaded; None: nothing."""
        self.library = os.path.realpath(library) if library else ""
        self.launcher = os.path.realpath(launcher())
        self.resident: Counter[str] = Counter()
        """By program, MiB and looks."""
        self.without: Counter[str] = Counter()
        """What of it was without the library."""
        self.libraries: set[str] = set()

    def look(self, process: int, mib: float) -> None:
        program, mapped = _mapped(process)
        if program in ("", self.launcher):
            return
        if not any(map(is_c_library, mapped)):
            if any(map(is_loader, mapped - {program})):
                return  # it is just being loaded
        elif self.library not in mapped:
            self.without[program] += mib
        self.resident[program] += mib
        self.libraries |= mapped - {program}

    def missed(self) -> tuple[float, str]:
        """The part that the library did not reach, and why it did not reach most of that."""
        if not self.library:
            return 0.0, ""
        whys = {program: why_preload_fails(program, Path(self.library)) for program in self.resident}
        parts = {program: self.resident[program] if why else self.without[program] for program, why in whys.items()}
        if not any(parts.values()):
            return 0.0, ""
        most = max(parts, key=parts.__getitem__)
        why = whys[most] or f"{most} did not load what was preloaded, as after `env -i`"
        return sum(parts.values()) / sum(self.resident.values()), why

    def other_malloc(self) -> str:
        """A library with a malloc that is not the C library's; empty if there is none."""
        others = (p for p in sorted(self.libraries) if p != self.library and not is_c_library(p) and not is_loader(p))
        return next(filter(defines_malloc, others), "")


def _mapped(process: int) -> tuple[str, set[str]]:
    """The program that it runs, and all files whose code it has mapped; empty of one that has ended or is another user's."""
    try:
        program = os.readlink(f"/proc/{process}/exe")
        lines = Path(f"/proc/{process}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return "", set()
    fields = (line.split(maxsplit=5) for line in lines)
    return program, {f[5] for f in fields if len(f) == 6 and "x" in f[1] and f[5].startswith("/")}
