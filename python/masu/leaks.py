"""Leaks as masu run --leaks shows them: grouped by the calls that led to the allocation, without those that a
suppressions file names."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from masu.messages import Problem
from masu.pprof import Strings
from masu.profile import CUT, DEEPER, location_names

SHOWN_MOST = 100


@dataclass(frozen=True)
class Frame:
    function: str
    """Or the file and an offset in it, where there is no name."""
    file: str
    """"": not known."""
    source: str = ""
    """File and line; "": not known."""

    def __str__(self) -> str:
        if not self.file or "+0x" in self.function:
            return self.function
        return "  ".join([self.function, *[os.path.basename(self.source)] * bool(self.source), f"({os.path.basename(self.file)})"])


@dataclass
class Leak:
    """Blocks that were allocated by the same calls."""

    frames: tuple[Frame, ...]
    """From the innermost outwards."""
    direct: bool
    blocks: int
    size: int


@dataclass
class Leaks:
    """Of one process."""

    leaks: list[Leak]
    """Direct ones first, and of these the largest."""
    notes: list[str]
    """What the library had to say."""


def leaks(profile) -> Leaks:
    strings = Strings(profile)
    types = [strings[t.type] for t in profile.sample_type]
    frames = _frames(profile, strings)
    found: dict[tuple[tuple[Frame, ...], bool], list[int]] = {}
    for sample in profile.sample:
        values = dict(zip(types, sample.value))
        stack = tuple(f for id in sample.location_id for f in frames[id])
        if len(sample.location_id) == CUT:
            stack += (Frame(DEEPER, ""),)
        for direct, kind in ((True, "direct"), (False, "indirect")):
            if values.get(f"{kind}_objects"):
                sums = found.setdefault((stack, direct), [0, 0])
                sums[0] += values[f"{kind}_objects"]
                sums[1] += values[f"{kind}_space"]
    made = [Leak(stack, direct, *sums) for (stack, direct), sums in found.items()]
    made.sort(key=lambda l: (not l.direct, -l.size, -l.blocks, [f.function for f in l.frames]))
    return Leaks(made, [strings[c] for c in profile.comment])


def _frames(profile, strings: Strings) -> dict[int, list[Frame]]:
    """Of each location, the innermost first."""
    mappings = {m.id: strings[m.filename] for m in profile.mapping}
    sources = {f.id: strings[f.filename] for f in profile.function}
    names, found = location_names(profile, strings), {}
    for location in profile.location:
        file = mappings.get(location.mapping_id, "")
        lines = [f"{sources[line.function_id]}:{line.line}" if line.line else "" for line in location.line if line.function_id] or [""]
        found[location.id] = [Frame(name, file, source) for name, source in zip(reversed(names[location.id]), lines)]
    return found


# ---- Suppressions ----


@dataclass
class Suppression:
    pattern: str
    expression: re.Pattern
    blocks: int = 0
    size: int = 0

    def fits(self, leak: Leak) -> bool:
        return any(self.expression.search(text) for f in leak.frames for text in (f.function, f.source, f.file))


@dataclass
class Suppressions:
    """What they kept from being shown is counted."""

    rules: list[Suppression] = field(default_factory=list)

    def without(self, found: list[Leak]) -> list[Leak]:
        shown = []
        for leak in found:
            rule = next((r for r in self.rules if r.fits(leak)), None)
            if rule:
                rule.blocks += leak.blocks
                rule.size += leak.size
            else:
                shown.append(leak)
        return shown


def read_suppressions(path: Path) -> Suppressions:
    """Lines "leak:PATTERN"; Problem where one is not, OSError."""
    rules = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="surrogateescape").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        kind, colon, pattern = line.partition(":")
        if kind != "leak" or not colon or not pattern.strip("*^$ "):
            raise Problem(f"{path}:{number}: '{line}' is not 'leak:PATTERN'")
        rules.append(Suppression(pattern, _expression(pattern)))
    return Suppressions(rules)


def _expression(pattern: str) -> re.Pattern:
    """Any part of a name fits; * is any text, ^ its start and $ its end."""
    start, end = pattern.startswith("^"), pattern.endswith("$")
    middle = ".*".join(map(re.escape, pattern[start : len(pattern) - end].split("*")))
    return re.compile(("^" if start else "") + middle + ("$" if end else ""))


# ---- The report ----


def amount(size: int, blocks: int) -> str:
    return f"{size:,} byte{'s' * (size != 1)} in {blocks:,} block{'s' * (blocks != 1)}"


def report(shown: list[Leak]) -> Iterator[str]:
    """The lines for each leak."""
    for leak in shown[:SHOWN_MOST]:
        yield f"{'Direct' if leak.direct else 'Indirect'} leak of {amount(leak.size, leak.blocks)} allocated from"
        yield from (f"    #{n} {frame}" for n, frame in enumerate(leak.frames))
        yield ""
    if len(shown) > SHOWN_MOST:
        rest = shown[SHOWN_MOST:]
        yield f"and {amount(sum(l.size for l in rest), sum(l.blocks for l in rest))} by {len(rest):,} other stacks of calls"
        yield ""


def summary(shown: list[Leak]) -> str:
    blocks, size = Counter(), Counter()
    for leak in shown:
        blocks[leak.direct] += leak.blocks
        size[leak.direct] += leak.size
    parts = [f"{amount(size[True], blocks[True])} directly"] * bool(blocks[True])
    parts += [f"{amount(size[False], blocks[False])} that only lost blocks lead to"] * bool(blocks[False])
    return f"{amount(sum(size.values()), sum(blocks.values()))} leaked" + (f": {', '.join(parts)}" if len(parts) > 1 else "")
