"""The allocators that are compared: found, named, and proven to answer malloc."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from masu import installed
from masu.library import library_path
from masu.measuring.answers import why_not
from masu.measuring.measure import SYSTEM, Allocator
from masu.messages import Problem

OURS, AGAIN = "masu", "masu-again"
"""A second copy of masu runs beside the first: what they differ by is noise."""
LEAST, INLINE = "least", "inline"
"""The floors: a preloaded library, and workloads with malloc and free compiled into them."""


@dataclass(frozen=True)
class Contender:
    name: str
    allocator: Allocator | None
    """None: it cannot run, for the reason in `missing`."""
    version: str = ""
    missing: str = ""
    floor: bool = False
    """No allocator: the least work that malloc and free can do."""

    @property
    def is_peer(self) -> bool:
        return not self.floor and self.name not in (OURS, AGAIN)


def found(library: Path, peers: Path | None, extra: tuple[str, ...], folder: Path) -> list[Contender]:
    """masu twice, the system's, those that script/peers built or else the installed ones, and those given as NAME=LIBRARY."""
    again = folder / "masu-again.so"
    shutil.copyfile(library, again)
    version = importlib.metadata.version("masu") if library == library_path().resolve() else f"{library}"
    contenders = [
        Contender(OURS, Allocator(OURS, library), version),
        Contender(AGAIN, Allocator(AGAIN, again), version),
        Contender("system", SYSTEM, os.confstr("CS_GNU_LIBC_VERSION") or ""),
        *(_built(peers) if peers else _installed(library)),
        Contender(INLINE, Allocator(INLINE), "bench/floors/inline.h", floor=True),
    ]
    for text in extra:
        allocator = installed.given(text)
        contenders = [c for c in contenders if c.name != allocator.name]
        contenders.append(Contender(allocator.name, allocator, text.partition("=")[2]))
    return contenders


def _installed(library: Path) -> list[Contender]:
    """Each that masu knows by name; what is not installed is missing, not left out."""
    there = {f.name: Contender(f.name, f.allocator, f.version) for f in installed.allocators(library)}
    return [there.get(name) or Contender(name, None, missing="not installed") for name in installed.KNOWN]


def _built(peers: Path) -> list[Contender]:
    try:
        listed = json.loads((peers / "peers.json").read_text())
    except FileNotFoundError:
        raise Problem(f"{peers}/peers.json is missing: run script/peers") from None
    contenders = []
    for entry in listed:
        name, allocator = entry["name"], None
        if "library" in entry:
            settings = tuple(filter(None, [entry.get("environment")]))
            allocator = Allocator(name, Path(entry["library"]), settings)
        contenders.append(
            Contender(name, allocator, entry.get("version", ""), entry.get("missing", ""), name == LEAST)
        )
    return contenders


def proven(contender: Contender) -> Contender:
    """The contender, or the reason why it cannot be measured."""
    allocator = contender.allocator
    if not allocator or not allocator.library:
        return contender
    reason = why_not(allocator)
    return Contender(contender.name, None, contender.version, reason, contender.floor) if reason else contender
