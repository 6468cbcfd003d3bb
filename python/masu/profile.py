"""Profiles of memory and of CPU time: names for their addresses, and what they say by function, call site and thread."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from masu.pprof import BadProfile, Strings, read
from masu.profile_cpu import join_own
from masu.symbols import Mapping, Symbols

VIEWS = {
    "in-use": ("inuse_space", "inuse_objects"),
    "allocated": ("alloc_space", "alloc_objects"),
    "peak": ("peak_space", "peak_objects"),
    "lifetime": ("lifetime", "freed_objects"),
    "suspects": ("inuse_age", "inuse_objects"),
    "cpu": ("cpu", "samples"),
    "direct": ("direct_space", "direct_objects"),
    "indirect": ("indirect_space", "indirect_objects"),
}
"""What a view weighs, and its count of blocks or samples: sample types."""
SAMPLES = {
    "in-use": ("inuse_samples", ""), "suspects": ("inuse_samples", ""), "allocated": ("alloc_samples", ""),
    "peak": ("peak_samples", ""), "lifetime": ("alloc_samples", "inuse_samples"),
}  # fmt: skip
"""From how many samples a view's values are estimated: a sample type, and one that is to be subtracted."""
LITTLE = 0.1
"""Of the peak: with less than that in use at the end, the peak tells more."""

SITE_FRAMES = 4
CUT = 64
"""So many frames the library keeps of a stack, the innermost (STACK_MOST)."""
DEEPER = "[deeper calls]"
USED = re.compile(r"used (\d+) ns, lost (\d+) samples, the profiler took (\d+) ns")
"""The comment in a CPU profile."""
IN_USE = re.compile(r"in use (\d+) to (\d+) bytes, lost (\d+) samples")
"""The first comment in a heap profile: the ends of the 95 % interval."""
TOOK = re.compile(r"the profiler took (\d+) ns")
MUCH = 0.02
"""Of the time, for a profiler."""
OWN = re.compile(
    r"stack_capture|observe_taken|sampled_|operator new|masu_\w|limb_|form_take|"
    r"(masu_|__libc_|__)?(malloc|calloc|realloc|aligned|memalign|posix_memalign|p?valloc|take_large)"
)
"""Of masu, where it is part of the program: the innermost frames from stack_capture on."""


# ---- Names ----


def symbolize(profile) -> list[str]:
    """Gives the locations names, as far as there are some, and takes out masu's own frames. Returns the
    files that are others than those that the program ran."""
    strings = Strings(profile)
    code = [
        Mapping(m.memory_start, m.memory_limit, m.file_offset, strings[m.filename], strings[m.build_id])
        for m in profile.mapping if not m.has_functions
    ]  # fmt: skip
    symbols, mappings = Symbols(code), {m.id: m for m in profile.mapping}
    functions = {(f.name, f.filename): f.id for f in profile.function}
    fresh = itertools.count(max(functions.values(), default=0) + 1)

    def named(location, name: str, source: str = "", line: int = 0) -> None:
        file = mappings[location.mapping_id].filename if location.mapping_id else 0
        key = (strings.place(name), strings.place(source) if source else file)
        if key not in functions:
            functions[key] = next(fresh)
            profile.function.add(id=functions[key], name=key[0], system_name=key[0], filename=key[1])
        del location.line[:]
        location.line.add(function_id=functions[key], line=line)

    types = {strings[t.type] for t in profile.sample_type}
    # Few stacks: reading the lines of all that a large program allocates takes minutes.
    line_of = symbols.line if types.issuperset(VIEWS["direct"]) else lambda _: ()
    for location in profile.location:
        name = "" if location.line else symbols.function(location.address)
        if name:
            mappings[location.mapping_id].has_functions = True
            named(location, name, *line_of(location.address))
    if "cpu" in types:
        join_own(profile, strings, mappings, named, CUT, DEEPER)
    else:
        _drop_own(profile, strings, mappings)
    return sorted(symbols.others)


def _drop_own(profile, strings: Strings, mappings: dict) -> None:
    names = {f.id: strings[f.name] for f in profile.function}
    own = {id for id, m in mappings.items() if Path(strings[m.filename]).name.startswith("libmasu")}
    at = {l.id: l for l in profile.location}
    name_of = {id: names[l.line[0].function_id] if l.line else "" for id, l in at.items()}
    for sample in profile.sample:
        ids = list(sample.location_id)
        count = 0
        while count < len(ids) and at[ids[count]].mapping_id in own:
            count += 1
        if not count and ids and name_of[ids[0]].startswith("stack_capture"):
            while count < len(ids) and OWN.match(name_of[ids[count]]):
                count += 1
        if count:
            del sample.location_id[:count]


# ---- What it says ----


@dataclass
class Row:
    """Of a function, or of a thread."""

    name: str
    flat: Counter[str] = field(default_factory=Counter)
    """What it allocated or used itself, by sample type."""
    total: Counter[str] = field(default_factory=Counter)
    """And what those that it called did."""


@dataclass
class Suspect:
    """A call site."""

    frames: tuple[str, ...]
    bytes: float
    values: Counter[str]
    growth: int | None


@dataclass
class Heap:
    """Estimates."""

    stacks: dict[tuple[str, ...], Counter[str]]
    """From the outermost call inwards; the values by sample type."""
    types: set[str]
    interval: int
    """Bytes between two samples, on average; of a CPU profile nanoseconds."""
    seconds: float
    used: float = 0.0
    """Of a CPU profile: the CPU time of the process, in seconds, with what was not sampled; 0: not known."""
    lost: int = 0
    """Samples without room."""
    took: float = 0.0
    """Seconds that the profiler took itself, before this file; of a CPU profile of CPU time."""
    in_use: tuple[int, int] | None = None
    """Of a heap profile: the ends of the 95 % interval of what is in use; None: not known."""
    notes: tuple[str, ...] = ()
    """What else the file has to say."""
    curve: list[tuple[int, int]] = field(default_factory=list)
    """Of a heap profile: the most that was in use, by estimates, and that masu held, in each step of time."""
    step: float = 0.0
    """Seconds."""

    def total(self, kind: str) -> int:
        return sum(values[kind] for values in self.stacks.values())

    def kinds(self, view: str) -> tuple[str, str]:
        weight, blocks = VIEWS[view]
        if not {weight, blocks} <= self.types:
            there = ", ".join(v for v, types in VIEWS.items() if self.types.issuperset(types))
            raise BadProfile(f"has no view {view}" + (f", but {there}" if there else ": it is neither a heap nor a CPU profile"))
        return weight, blocks

    def telling(self) -> str:
        """The view to show when none was asked for."""
        there = [view for view, types in VIEWS.items() if self.types.issuperset(types)]
        if {"in-use", "peak"} <= set(there) and self.total("inuse_space") < LITTLE * self.total("peak_space"):
            return "peak"
        return there[0] if there else "in-use"

    def rows(self, outermost: bool = False) -> list[Row]:
        """Of each function; else of the outermost frames, which may be threads."""
        rows: dict[str, Row] = {}
        for frames, values in self.stacks.items():
            for name in {frames[0]} if outermost else set(frames):
                rows.setdefault(name, Row(name)).total.update(values)
            rows[frames[0] if outermost else frames[-1]].flat.update(values)
        return list(rows.values())

    def sites(self) -> dict[tuple[str, ...], Counter[str]]:
        """The values by the innermost frames."""
        sites: dict[tuple[str, ...], Counter[str]] = {}
        for frames, values in self.stacks.items():
            sites.setdefault(frames[-SITE_FRAMES:], Counter()).update(values)
        return sites

    def suspects(self, growth: Heap | None = None) -> list[Suspect]:
        """Sites whose blocks in use are older than its freed ones became, those with most bytes first. With the
        growth since an earlier profile only what grew counts."""
        grown = growth.sites() if growth else {}
        found = []
        for frames, values in self.sites().items():
            more = grown.get(frames, Counter())["inuse_space"] if growth else None
            held = values["inuse_space"] if more is None else max(0, min(more, values["inuse_space"]))
            if suspected := held * _overdue(values):
                found.append(Suspect(frames, suspected, values, more))
        return sorted(found, key=lambda s: (-s.bytes, s.frames))

    def minus(self, before: Heap) -> Heap:
        stacks = {frames: Counter(values) for frames, values in self.stacks.items()}
        for frames, values in before.stacks.items():
            stacks.setdefault(frames, Counter()).subtract(values)
        return Heap(stacks, self.types & before.types, self.interval, self.seconds)

    def samples(self, view: str) -> Callable[[Counter[str]], int] | None:
        """What counts them; None: the values are exact, or nobody knows."""
        more, less = SAMPLES.get(view, ("", ""))
        return (lambda values: values[more] - values[less]) if more in self.types else None

    @property
    def is_cpu(self) -> bool:
        return self.types.issuperset(VIEWS["cpu"])

    @property
    def is_leaks(self) -> bool:
        return self.types.issuperset(VIEWS["direct"])

    @property
    def has_lives(self) -> bool:
        return self.types.issuperset((*VIEWS["lifetime"], *VIEWS["suspects"]))


def _overdue(values: Counter[str]) -> float:
    """The part of the blocks in use that is older than blocks of their site become. Blocks that live by chance
    are as old on average as those that are freed become: none of them. Where none was ever freed: all."""
    age = mean(values, "inuse_age", "inuse_objects")
    return max(0.0, 1 - mean(values, "lifetime", "freed_objects") / age) if age else 0.0


def mean(values: Counter[str], sum_: str, count: str) -> float:
    return values[sum_] / values[count] if values[count] else 0.0


def load(path: Path) -> tuple[object, list[str]]:
    """The profile in a file, with names, and the files that were not used for them."""
    try:
        profile = read(path)
    except OSError as error:
        raise BadProfile(error.strerror or str(error)) from None
    return profile, symbolize(profile)


def heap(profile, by: str = "function") -> Heap:
    """by: "thread" or "heap": stacks begin with its name."""
    strings = Strings(profile)
    types = [strings[t.type] for t in profile.sample_type]
    name_of = location_names(profile, strings)
    stacks: dict[tuple[str, ...], Counter[str]] = {}
    for sample in profile.sample:
        frames = [name for id in reversed(sample.location_id) for name in name_of[id]] or ["?"]
        if len(sample.location_id) == CUT and frames[0] != DEEPER:
            frames.insert(0, DEEPER)
        if by != "function":
            name = next((strings.shown(l.str) for l in sample.label if strings[l.key] == by), "")
            frames.insert(0, f"{by} {name or '?'}" if name or by == "thread" else "general memory")
        values = stacks.setdefault(tuple(frames), Counter())
        for kind, value in zip(types, sample.value):
            values[kind] += value
    made = Heap(stacks, set(types), profile.period, profile.duration_nanos * 1e-9)
    made.curve, made.step = list(zip(profile.curve.in_use, profile.curve.held)), profile.curve.step * 1e-9
    for text in map(strings.shown, profile.comment):
        if said := USED.fullmatch(text):
            made.used, made.lost, made.took = int(said[1]) * 1e-9, int(said[2]), int(said[3]) * 1e-9
        elif said := IN_USE.fullmatch(text):
            made.in_use, made.lost = (int(said[1]), int(said[2])), int(said[3])
        elif said := TOOK.fullmatch(text):
            made.took = int(said[1]) * 1e-9
        else:
            made.notes += (text,)
    if made.lost and not made.is_cpu:
        made.notes += (f"{made.lost:,} samples had no room in memory and are missing",)
    if made.took > MUCH * (made.used if made.is_cpu else made.seconds):
        made.notes += (f"of the time the profiler itself took {made.took:.3f} s",)
    return made


def location_names(profile, strings: Strings) -> dict[int, list[str]]:
    """From the outermost inwards: functions that the compiler put into each other have one location."""
    functions = {f.id: strings.shown(f.name) for f in profile.function}
    mappings = {m.id: m for m in profile.mapping}
    found = {}
    for location in profile.location:
        names = [functions[line.function_id] for line in reversed(location.line) if line.function_id]
        if not names:
            mapping = mappings.get(location.mapping_id)
            where = mapping and os.path.basename(strings.shown(mapping.filename))
            offset = location.address - mapping.memory_start + mapping.file_offset if mapping else 0
            # The kernel's own, such as [vdso], have no names at all.
            names = [where if where and where[0] == "[" else f"{where}+0x{offset:x}" if where else f"0x{location.address:x}"]
        found[location.id] = names
    return found


# ---- Forms ----


def folded(heap: Heap, kind: str) -> Iterator[str]:
    """A line for each stack, with KiB, of CPU time with milliseconds. What rounds to none is left out."""
    unit = 1_000_000 if kind == "cpu" else 1024
    for frames, values in sorted(heap.stacks.items()):
        count = (values[kind] + unit // 2) // unit
        if count > 0:
            yield ";".join(" ".join(name.replace(";", ":").split()) for name in frames) + f" {count}"


def tree(stacks: dict[tuple[str, ...], Counter[str]], kinds: list[str]) -> dict:
    """All stacks as one, for the page: nodes in order, each behind its parent, the first for all; and for
    those where something was allocated its number and the values of these sample types."""
    names: dict[str, int] = {"all": 0}
    nodes: dict[tuple[str, ...], int] = {(): 0}
    name, parent, own = [0], [0], []
    for frames, values in sorted(stacks.items()):
        for depth in range(len(frames)):
            path = frames[: depth + 1]
            if path not in nodes:
                nodes[path] = len(nodes)
                name.append(names.setdefault(path[-1], len(names)))
                parent.append(nodes[path[:-1]])
        own.append([nodes[frames], *(values[kind] for kind in kinds)])
    return {"kinds": kinds, "names": list(names), "name": name, "parent": parent, "own": own}


def amount(view: str, n: float) -> str:
    return f"{n * 1e-9:.2f} s" if view == "cpu" else size(n)


def size(n: float) -> str:
    for unit, scale in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if abs(n) >= 1 << scale:
            return f"{n / (1 << scale):.1f} {unit}"
    return f"{n:.0f} B"


def duration(seconds: float) -> str:
    for unit, scale in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
