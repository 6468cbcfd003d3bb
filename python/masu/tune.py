"""Size classes and options for one program, chosen from its trace and tried by replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from masu.measuring.measure import Allocator
from masu.measuring.rounds import Row, shown
from masu.measuring.statistics import Estimate, estimate
from masu.messages import Problem
from masu.compare import MATTERS, Comparison

# ---- What an options file can say of classes: src/heap/sizes.h ----

GRAIN, MOST, CLASSES, SLICE, PAGE = 16, 32768, 41, 65536, 4096
GRAINS = MOST // GRAIN
POWERS = tuple(GRAIN << n for n in range((MOST // GRAIN).bit_length()))
DEFAULT = (8, 16, 32, 48, 64, *(n * part // 4 for n in POWERS if 64 <= n < MOST for part in (5, 6, 7, 8)))

PARTLY = 8192
"""Bytes of a class's last slab that are resident and not in use: half of the step in which a slab
is taken into use, 16 KiB."""
ELSEWHERE = 0.01
"""So much of the live bytes is thought to be of sizes that the trace has not, spread over all of
them, so that they are served as well."""


def slot(size: int) -> float:
    """Resident bytes for each block of a full slab."""
    slices = 1
    while slices * SLICE // size < 4 or slices * SLICE % size * 32 > slices * SLICE:
        slices += 1
    blocks = slices * SLICE // size
    return -(-blocks * size // PAGE) * PAGE / blocks


SLOTS = np.array([0.0] + [slot(grains * GRAIN) for grains in range(1, GRAINS + 1)])


def _by_grains(blocks: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
    """Blocks, and the bytes asked for, by the multiple of 16 that a size above 8 is rounded up to."""
    count, asked = np.zeros(GRAINS + 1), np.zeros(GRAINS + 1)
    for size, n in blocks.items():
        if 8 < size <= MOST:
            grains = -(-size // GRAIN)
            count[grains] += n
            asked[grains] += n * size
    return count, asked


def loads(data: dict) -> tuple[dict[int, float], dict[int, float]]:
    """Live blocks by size, of what trace_analyze says: at the moment of most live bytes, and on average over time."""
    at_peak = {size: float(max(0, live)) for size, _, _, live in data["sizes"]}
    return at_peak, {size: live for (size, *_), live in zip(data["sizes"], data["mean_live"])}


def choose_classes(*loads: dict[int, float]) -> list[int]:
    """The classes that lose least, of each load (live blocks by size) the sum: what blocks are
    larger than what was asked for, and the part of a slab for each class that is used at all."""
    counts = [_by_grains(load)[0] for load in loads]
    grains = np.arange(GRAINS + 1)
    elsewhere = np.zeros(GRAINS + 1)
    elsewhere[1:] = 1 / grains[1:] ** 2.0  # as many bytes in each doubling
    asked = sum(float(count @ grains) for count in counts)
    elsewhere *= max(ELSEWHERE * asked, 1e-9) / float(elsewhere @ grains)
    before = np.cumsum(sum(counts, elsewhere))  # blocks up to so many grains
    used = np.cumsum([count > 0.5 for count in counts], axis=1)
    # cost[i, j]: of a class of j grains with the next smaller one of i; powers of two must be.
    # Where the page that a slab ends in is the same, the smaller size.
    cost = (SLOTS + grains * GRAIN / 1000)[None, :] * (before[None, :] - before[:, None])
    for u in used:
        cost += PARTLY * (u[None, :] > u[:, None])
    cost[grains[:, None] >= grains[None, :]] = np.inf
    for power in POWERS:
        p = power // GRAIN
        cost[:p, p + 1 :] = np.inf
    least = np.full(GRAINS + 1, np.inf)
    least[0] = 0.0
    came_from = []
    for _ in range(CLASSES - 1):
        through = least[:, None] + cost
        came_from.append(through.argmin(axis=0))
        least = through[came_from[-1], grains]
    sizes, at = [], GRAINS
    for origin in reversed(came_from):
        sizes.append(int(at) * GRAIN)
        at = origin[at]
    return [8, *reversed(sizes)]


def added(classes: Sequence[int], blocks: dict[int, float]) -> float:
    """Bytes beyond what was asked for, of blocks up to 32 KiB, as a part of that: what blocks are larger, and the
    part of a slab for each class that is used at all."""
    count, asked = _by_grains(blocks)
    more, below = -float(asked.sum()), 0
    for size in classes:
        of_class = float(count[below + 1 : size // GRAIN + 1].sum())
        more += of_class * size + (PARTLY if of_class > 0.5 else 0)
        below = size // GRAIN
    return more / float(asked.sum()) if asked.any() else 0.0


# ---- Options files ----


@dataclass(frozen=True)
class Settings:
    classes: tuple[int, ...] = ()
    """None: the default ones."""
    options: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.classes or self.options)

    def __or__(self, other: Settings) -> Settings:
        return Settings(other.classes or self.classes, tuple({**dict(self.options), **dict(other.options)}.items()))

    def text(self) -> str:
        lines = [f"classes: {' '.join(map(str, self.classes))}"] * bool(self.classes)
        return "\n".join([*lines, *(f"{name}:{value}" for name, value in self.options)]) + "\n"

    def names(self) -> str:
        return ", ".join(["other size classes"] * bool(self.classes) + [f"{name}:{value}" for name, value in self.options])


MANY_THREADS = 8
"""From so many on it is tried what those that sleep hold ready."""


def candidates(goal: str, classes: Sequence[int], think: bool, threads: int) -> list[Settings]:
    """What is tried. purge_delay counts the program's own time, which passes only with `think`; threads sleep only then."""
    found = [Settings(classes=tuple(classes))] if tuple(classes) != DEFAULT else []
    delays = {"memory": (100, 0), "time": (5000,)}[goal] if think else ()
    found += [Settings(options=(("purge_delay", delay),)) for delay in delays]
    if goal == "memory" and think and threads >= MANY_THREADS:
        found.append(Settings(options=(("sleepers", 1),)))
    if goal == "time":
        found.append(Settings(options=(("huge_pages", 16),)))
    return found


# ---- Trying ----

WORSE = 1.1
"""Nothing is kept that surely costs more of the other figure."""
BEFORE = "default"


@dataclass
class Tuned:
    settings: Settings
    comparison: Comparison | None
    """Of the default settings and these, in rounds of their own; None: nothing was better, or Ctrl-C came before."""
    kept: list[tuple[str, Estimate]] = field(default_factory=list)
    """What proved better, each with its ratio to what there was before it."""
    interrupted: bool = False


def _figure(c: Comparison, label: str) -> Row:
    return next(f for f in c.figures if f.label == label)


COUNTED_KIB = 512
"""The kernel counts resident pages in batches, of each thread or processor: some hundred KiB may be
missing at the start or at the peak, the same in every round."""


def _surely_less(c: Comparison, label: str, name: str, base: str) -> Estimate | None:
    """The ratio, if it is less than 1 beyond noise."""
    figure = _figure(c, label)
    r = c.ratio(name, figure, base)
    saved = estimate(c.values(base, figure)).median - estimate(c.values(name, figure)).median
    counts = figure.unit != "KiB" or saved > COUNTED_KIB
    return r if r.high < 1 and 1 - r.median > MATTERS and counts else None


def judge(c: Comparison, name: str, base: str, goal: str, think: bool) -> Estimate | None:
    """The ratio by which `name` is better beyond noise; None: it is not. In the program's own time
    less memory on average counts as well, if the peak is not higher."""
    time, peak = (c.ratio(name, _figure(c, label), base) for label in ("time", "peak memory"))
    if (peak if goal == "time" else time).low > WORSE:
        return None
    if goal == "time":
        return _surely_less(c, "time", name, base)
    less = _surely_less(c, "peak memory", name, base)
    if not less and think and peak.low <= 1 + MATTERS:
        less = _surely_less(c, "mean memory", name, base)
    return less


def search(
    goal: str,
    think: bool,
    options: Sequence[Settings],
    rounds: Callable[[Sequence[Allocator]], Comparison],
    library: Path,
    folder: Path,
    tell: Callable[[str, Estimate], None],
    dropped: Callable[[str, str], None],
) -> Tuned:
    """Keeps the best of what is better than what there is, as long as there is any; then measures all
    that was kept anew, beside the default settings. `rounds` replays on each allocator; `tell` is told
    at once what was tried, and the ratio of the figure that is tuned for to that without; `dropped`, with
    what the replay failed, and why: it is not tried again. Ctrl-C ends it with what was kept by then."""

    def masu_with(name: str, settings: Settings) -> Allocator:
        if not settings:
            return Allocator(name, library)
        file = folder / f"{name}.options"
        file.write_text(settings.text())
        return Allocator(name, library, (f"MASU_OPTIONS_FILE={file}",))

    def keep_the_best(tuned: Tuned, left: list[Settings]) -> Settings | None:
        named = {o.names(): o for o in left}
        c = rounds([masu_with(BEFORE, tuned.settings), *(masu_with(n, tuned.settings | o) for n, o in named.items())])
        _check(c, BEFORE)
        for n, why in c.failed.items():
            dropped(n, why)
            left.remove(named.pop(n))
        judged = {n: judge(c, n, BEFORE, goal, think) for n in named}
        label = "time" if goal == "time" else "peak memory"
        for n, r in judged.items():
            tell(n, r or c.ratio(n, _figure(c, label), BEFORE))
        good = {n: r for n, r in judged.items() if r}
        if not good:
            return None
        best = min(good, key=lambda n: good[n].median)
        tuned.settings |= named[best]
        tuned.kept.append((best, good[best]))
        return named[best]

    tuned, left = Tuned(Settings(), None), list(options)
    try:
        while left and (kept := keep_the_best(tuned, left)):
            names = {name for name, _ in kept.options}
            left = [o for o in left if o is not kept and not names & {name for name, _ in o.options}]
        if tuned.settings:
            c = rounds([masu_with(BEFORE, Settings()), masu_with("tuned", tuned.settings)])
            _check(c, BEFORE, "tuned")
            if judge(c, "tuned", BEFORE, goal, think):
                tuned.comparison = c
    except KeyboardInterrupt:
        if not tuned.kept:
            raise
        tuned.interrupted = True
    return tuned


def _check(c: Comparison, *needed: str) -> None:
    if c.interrupted:
        raise KeyboardInterrupt
    for name in needed:
        if name in c.failed:
            raise Problem(f"the replay failed ({name}): {c.failed[name]}")


# ---- What it says ----


def gains(c: Comparison) -> list[tuple[str, str, str, str]]:
    """Figure, before, after, and their ratio."""
    rows = []
    for label in ("peak memory", "mean memory", "time", "page faults"):
        f = _figure(c, label)
        before, after = (shown(estimate(c.values(name, f)).median, f.unit) for name in (BEFORE, "tuned"))
        r = c.ratio("tuned", f, BEFORE)
        rows.append((label, before, after, f"{r.median:.3f} ({r.low:.3f}–{r.high:.3f})"))
    return rows


def options_file(tuned: Tuned, trace: Path, goal: str, version: str, how: str, use: str) -> str:
    """What is written, with where it comes from."""
    if tuned.comparison:
        figures = [f"its replay ({how}), default and with this, and the ratio with its 95 % interval:"]
        figures += [f"  {label}: {before}, {after}; {ratio}" for label, before, after, ratio in gains(tuned.comparison)]
    else:
        figures = [f"interrupted: not measured anew beside the default. What was better in its replay ({how}), one after the other:"]
        figures += [f"  {names}: {r.median:.3f} ({r.low:.3f}–{r.high:.3f})" for names, r in tuned.kept]
    lines = [f"made by masu tune {version}, for {goal}, from {trace}", *figures, f"use: {use}"]
    return "".join(f"# {line}\n" for line in lines) + tuned.settings.text()
