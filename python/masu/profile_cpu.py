"""CPU profiles: what of the time is spent in malloc and free, for whom, and what would take less."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

TAKES = {"malloc", "calloc", "aligned_alloc", "memalign", "posix_memalign", "valloc", "pvalloc", "operator new"}
GIVES = {"free", "free_sized", "free_aligned_sized", "cfree", "operator delete"}
RESIZES = {"realloc", "reallocarray", "reallocf"}
EITHER = "malloc or free"
"""Of a library without names."""
CALLS = TAKES | GIVES | RESIZES | {EITHER}

PUBLIC = re.compile(r"(?:masu_|__libc_|__)?(\w+)")
OTHERS = re.compile(r"masu_\w+|malloc_(usable_size|good_size|trim|stats|info)|mallinfo2?|mallopt")
OPERATOR = re.compile(r"operator (new|delete)\b")
INTERNAL = (
    ("malloc", re.compile(r"malloc_(slow|larger|aligned|reclaiming|sampled)|take_large|trace_take")),
    ("free", re.compile(r"free_(slow|event|entered)|give_large")),
    ("realloc", re.compile(r"realloc_by_copy|resize_large")),
    ("operator new", re.compile(r"new_or_(throw|null)")),
    ("operator delete", re.compile(r"delete_sized")),
)
"""What the compiler leaves of masu's functions on a stack, where one ends by calling another."""
AROUND = re.compile(r"pthread_create|thrd_create|_exit|_Exit|thread_made|start_(run|done)|(masu_)?(cpu|profile|live|helper|process|library)_|on_cpu_signal")
"""Functions of masu that aren't the allocator's: what they call may be."""
PLUMBING = re.compile(r"(void |char\* )?(std|__gnu_cxx)::")
"""Of C++: who called these is who may change something."""

LITTLE = 0.03
"""Of CPU time: with less in malloc and free there is little to gain."""
WORTH = 0.02
"""The same of one caller."""
CHAIN = 3


# ---- Masu's own frames ----


def public_name(name: str) -> str:
    """By which the program calls this function of masu; "" if it doesn't."""
    match = OPERATOR.match(name)
    if match:
        return match[0]
    match = PUBLIC.fullmatch(name)
    if match and match[1] in CALLS:
        return match[1]
    if OTHERS.fullmatch(name):
        return name
    return next((called for called, inside in INTERNAL if inside.match(name)), "")


def join_own(profile, strings, mappings: dict, named, most: int, deeper: str) -> None:
    """Of masu's frames in a stack only one stays, under the name by which the program called it. named(location,
    name) gives a location that name. Stacks of `most` frames are cut off."""
    own = {id for id, m in mappings.items() if Path(strings[m.filename]).name.startswith("libmasu")}
    functions = {f.id: strings[f.name] for f in profile.function}
    at = {l.id: l for l in profile.location}
    name_of = {id: functions.get(l.line[0].function_id, "") if l.line else "" for id, l in at.items()}
    rest = next((id for id, name in name_of.items() if name == deeper), 0)

    def is_own(id: int) -> bool:
        if at[id].mapping_id in own:
            return not AROUND.match(name_of[id])
        return not own and bool(public_name(name_of[id]))

    for sample in profile.sample:
        ids = list(sample.location_id)
        if len(ids) == most and ids[-1] != rest:
            if not rest:
                rest = max(at) + 1
                named(profile.location.add(id=rest), deeper)
            ids.append(rest)
        places = [i for i, id in enumerate(ids) if id in at and is_own(id)]
        if places:
            shown = next((i for i in reversed(places) if public_name(name_of[ids[i]])), places[-1])
            named(at[ids[shown]], public_name(name_of[ids[shown]]) or EITHER)
            ids = [ids[shown], *ids[places[-1] + 1 :]]
        del sample.location_id[:]
        sample.location_id.extend(ids)


# ---- Who allocates ----


@dataclass
class Caller:
    """A function that calls malloc, free and the like. Nanoseconds of CPU time in them."""

    name: str
    takes: int = 0
    gives: int = 0
    resizes: int = 0
    chains: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Who called it, inwards."""

    @property
    def total(self) -> int:
        return sum(self.chains.values())

    @property
    def chain(self) -> str:
        return " < ".join(reversed(max(self.chains, key=self.chains.__getitem__)))

    def advice(self) -> str:
        known = self.takes + self.gives + self.resizes
        if 2 * self.resizes > known:
            return "grows its blocks: ask for the final size at once"
        if min(self.takes, self.gives) > 0.1 * known:
            return "takes and frees: a scope or an arena; a pool if the blocks have one size"
        if 2 * self.takes > known:
            return "takes: a pool if the blocks have one size, an arena if they end together"
        if self.gives:
            return "frees what was taken elsewhere: an arena frees all at once, a pool faster"
        return ""


def callers(profile) -> list[Caller]:
    """Those with most first."""
    found: dict[str, Caller] = {}
    for frames, values in profile.stacks.items():
        if frames[-1] not in CALLS or not values["cpu"]:
            continue
        outside = len(frames) - 1
        while outside > 1 and PLUMBING.match(frames[outside - 1]):
            outside -= 1
        chain = frames[max(0, outside - CHAIN) : outside] or ("?",)
        one = found.setdefault(chain[-1], Caller(chain[-1]))
        one.chains[chain] += values["cpu"]
        one.takes += values["cpu"] * (frames[-1] in TAKES)
        one.gives += values["cpu"] * (frames[-1] in GIVES)
        one.resizes += values["cpu"] * (frames[-1] in RESIZES)
    return sorted(found.values(), key=lambda c: (-c.total, c.name))


def verdict(profile) -> str:
    """In one sentence."""
    all_, spent = profile.total("cpu"), sum(c.total for c in callers(profile))
    part = spent / all_ if all_ else 0.0
    said = f"malloc, free and the like take {spent * 1e-9:.2f} s, {100 * part:.1f} % of CPU time"
    if part < LITTLE:
        return f"{said}: little to gain."
    return f"{said}; that is the most that pools, arenas and scopes can save."


NEXT = "masu record --stacks and masu report measure sizes and lifetimes, and so which form fits; docs/forms.md describes them."


def unsampled(profile) -> str:
    """"" if nearly all that the process used was sampled."""
    said = []
    missing = profile.used - profile.total("cpu") * 1e-9
    if missing > max(0.2, 0.1 * profile.used):
        said.append(f"{missing:.2f} s of the {profile.used:.2f} s that the process used were not sampled: "
                    "of threads that block SIGURG or end within a moment, or after the program took the signal for itself")  # fmt: skip
    if profile.lost:
        said.append(f"{profile.lost:,} samples had no room: too many different stacks")
    return "; ".join(said)
