"""Which functions of a real program each observer names as those that take what is in use: redis-server's, which
exports their names, after a load.

Nobody knows its true shares: those that look at every allocation are the measure for the others. A function counts with
what it asks for itself, through the program's wrappers of malloc; code without a name counts for its caller. What is in
use is that of the end or, for heaptrack and massif, of the peak, which is the same here: the server ends with its data."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from masu import profile as profiles
from masu.messages import Problem

from observers import sites
from observers.contenders import Contender
from observers.running import Redis, checked, run_of

PROGRAM = "redis-server"
TOP = 3
REQUESTS, SIZE, KEYS = 150000, 100, 100000
COMMANDS = "set,lpush,sadd,zadd"
"""Which only add, so that the end is the peak."""
MEASURES = ("heaptrack", "massif")
"""The first of them that is there; it looks at every allocation."""

Stacks = Iterable[tuple[list[str], int]]
"""Functions from the innermost outwards, and bytes."""


@dataclass
class Called:
    top: dict[str, float] = field(default_factory=dict)
    """Their shares of what is in use."""
    same: int = 0
    """So many of them the measure has among its first as well."""
    missing: str = ""


def compare(contenders: list[Contender], folder: Path, peers: Path, tell) -> dict:
    """{"program": ..., "measure": observer, "named": {observer: ...}}"""
    named: dict[str, Called] = {}
    for contender in contenders:
        if contender.name in READERS:
            tell(f"call sites of {PROGRAM}: {contender.name}")
            named[contender.name] = _called(contender, folder / f"calls-{contender.name.replace(' ', '-')}", peers)
    measure = next((name for name in MEASURES if name in named and not named[name].missing), "")
    for one in named.values():
        one.same = len(one.top.keys() & named[measure].top.keys()) if measure else 0
    return {"program": PROGRAM, "measure": measure, "named": {name: vars(one) for name, one in named.items()}}


def _called(contender: Contender, folder: Path, peers: Path) -> Called:
    if not shutil.which(PROGRAM) or not shutil.which("redis-benchmark"):
        return Called(missing="redis is not installed")
    if contender.missing or contender.python:
        return Called(missing=contender.missing or "takes programs in Python only")
    folder.mkdir()
    try:
        checked(contender, _served(contender, folder), folder)
        found = callers(READERS[contender.name](folder, peers))
    except (Problem, OSError, profiles.BadProfile, subprocess.CalledProcessError) as problem:
        return Called(missing=str(problem))
    total = max(sum(found.values()), 1)
    return Called({name: bytes_ / total for name, bytes_ in found.most_common(TOP)})


def _served(contender: Contender, folder: Path):
    server = Redis(contender, folder)
    try:
        server.load(REQUESTS, SIZE, KEYS, COMMANDS)
        status = server.stop()
    finally:
        server.kill()
    return run_of(server, status)


WRAPPER = re.compile(r"(z|ztry|je_|tc_|__libc_)?(m|c|re)alloc|operator new|prof_|i(m|c|re)?alloc|do_(m|c|re)|tcmalloc")
"""Functions of the program and of allocators that call malloc for others."""
NAMELESS = re.compile(r"0x|\?|\[|$|.*\+0x")


def callers(stacks: Stacks) -> Counter[str]:
    found: Counter[str] = Counter()
    for frames, bytes_ in stacks:
        found[next((name for name in frames if not WRAPPER.match(name) and not NAMELESS.match(name)), "")] += bytes_
    del found[""]
    return found


# ---- What each of them writes ----


def of_masu(folder: Path, peers: Path) -> Stacks:
    profile, _ = profiles.load(max(folder.glob("*.heap.pb*")))
    for frames, values in profiles.heap(profile).stacks.items():
        yield list(reversed(frames)), values["inuse_space"]


BEHIND_NAME = re.compile(r" \(.*|<[0-9a-f]{16}>$")
"""A file, or an address."""


def of_folded(lines: Iterable[str]) -> Stacks:
    """From the outermost inwards, with semicolons between them."""
    for line in lines:
        frames, _, number = line.rpartition(" ")
        yield [BEHIND_NAME.sub("", frame) for frame in reversed(frames.split(";")) if frame], int(number)


def of_jeprof(folder: Path, peers: Path) -> Stacks:
    """Of jemalloc, and of gperftools, from whose reader it was made."""
    last = max(folder.glob("*.heap"), key=lambda path: path.stat().st_mtime_ns)
    words = ["perl", peers / "jeprof", "--collapsed", "--inuse_space", shutil.which(PROGRAM), last]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem(f"jeprof: {(done.stderr or 'failed').strip().splitlines()[-1]}")
    return of_folded(done.stdout.splitlines())


def of_heaptrack(folder: Path, peers: Path) -> Stacks:
    return of_folded(sites.folded_by_heaptrack(folder).splitlines())


NODE = re.compile(r"^( +)n(\d+): (\d+) (?:0x[0-9A-Fa-f]+: (\S+)|in )", re.M)


def of_massif(text: str) -> Stacks:
    """The tree of the peak: each node's callers stand below it, further in."""
    path: list[str] = []
    for indent, children, bytes_, name in NODE.findall(sites.peak_of_massif(text)):
        path[len(indent) - 1 :] = [name] if name else []
        if children == "0":
            yield list(path), int(bytes_)


READERS = {
    "masu heap": of_masu,
    "jemalloc heap": of_jeprof,
    "gperftools heap": of_jeprof,
    "heaptrack": of_heaptrack,
    "memray": None,
    "massif": lambda folder, peers: of_massif((folder / "massif.out").read_text()),
}
