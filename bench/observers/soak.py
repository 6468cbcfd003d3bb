"""A day's load in a minute, day after day, with the heap profiler on: what must not grow does not, and what it costs.

    script/soak-observers [--minutes N] [--only redis,python] [--processes N] [--json FILE] [--publish]

redis-server and a service in Python run in six processes with the sampler on, six with it off, and six where it is on
every other day. A day has 24 hours, whose load and sizes rise and fall; each hour all get the same load, at once, and
take turns on one processor. Of each hour the CPU time, the resident memory and masu's own are kept, and the size and
call sites of the profile that those with the sampler on are asked for at midnight.

Judged by the means of the days after the warm-up, a third of all, over all processes of a kind: the slope of each figure
(Theil and Sen) with its 95 % interval, times the days. `steady`: the whole interval is below 5 % of the figure (or below
a small amount: some KiB, 25 sites). `grows`: all of it is above that. `not clear`: neither; a longer run tells.

Two processes on the same library differ by half a percent to one and a half for as long as they run. So the cost is
that of a day with the sampler on in the CPU time of a day without, both of one process, each in that of the same day of
those that don't alternate: the median of those that do, with the 95 % interval of a bootstrap over them. It is held
where all of that is below the sampler's limit, broken where all is above. The exit status is 0 when all is steady and
the cost not broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
from rich import box
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from scipy import stats

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from masu import live, profile_live
from masu.bench.report import machine
from masu.library import library_path
from masu.measuring import statistics
from masu.measuring.measure import clean_environment
from masu.messages import Problem
from masu.pprof import BadProfile, read
from observers import published, tables
from observers.contenders import Contender
from observers.results import BROKEN, verdict
from observers.running import Redis, cpu_seconds, on_one_processor

HOURS = 24
WARM_UP = 1 / 3
LEAST_DAYS = 6
GROWTH = 0.05
FIGURES = {"resident": 256 << 10, "own": 64 << 10, "profile": 8 << 10, "sites": 25}
"""Bytes and a count, with what is too little to judge. `own`: masu's descriptors and tables."""
STEADY, GROWS, OPEN = "steady", "grows", "not clear"
ON, OFF, TURNS = "on", "off", "turns"
"""Of the sampler; turns: every other day."""
ASKS = signal.SIGUSR2
"""For a profile."""
INTERVAL = 512 << 10
"""Bytes; the sampler's own."""


@dataclass(frozen=True)
class Hour:
    """Of a day."""

    number: int
    load: float = 1.0

    def requests(self, most: int) -> int:
        """Few at four in the morning, most twelve hours later."""
        return max(2, int(self.load * most * (0.55 - 0.45 * math.cos(2 * math.pi * (self.number - 4) / HOURS))))

    @property
    def size(self) -> int:
        """Of values: other classes at other hours."""
        return 64 + 48 * (self.number % 8)


# ---- The programs ----


class RedisSoak:
    def __init__(self, contender: Contender, folder: Path):
        self.server = Redis(contender, folder)
        self.pid = self.server.process.pid

    def load(self, hour: Hour, seed: int) -> None:
        self.server.load(hour.requests(10000), size=hour.size, keys=3000)

    def stop(self) -> None:
        if status := self.server.stop():
            raise Problem(f"redis-server ended with {status}")

    def kill(self) -> None:
        self.server.kill()


class PythonSoak:
    def __init__(self, contender: Contender, folder: Path):
        self.errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, HERE / "soak_program.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            text=True, env=clean_environment(contender.allocator(folder)), cwd=folder,
        )  # fmt: skip
        self.pid = self.process.pid
        self.load(Hour(0, 0), 0)  # it is there

    def load(self, hour: Hour, seed: int) -> str:
        try:
            print(seed, hour.requests(600), hour.size, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # what it said is read below
        answer = self.process.stdout.readline()
        if not answer:
            self.errors.seek(0)
            raise Problem(f"the program ended: {self.errors.read()[-300:]}")
        return answer

    def stop(self) -> None:
        self.process.stdin.close()
        if status := self.process.wait(60):
            raise Problem(f"the program ended with {status}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


PROGRAMS = {"redis": RedisSoak, "python": PythonSoak}


# ---- One soak ----


@dataclass(eq=False)
class Process:
    side: str
    number: int
    """Among those of its side."""
    folder: Path
    program: RedisSoak | PythonSoak
    cpu: list[float] = field(default_factory=list)
    """Seconds; a value for each hour, as of all figures."""
    figures: dict[str, list[float]] = field(default_factory=dict)

    def loaded(self, hour: Hour, seed: int) -> str | None:
        """Its answer."""
        before = cpu_seconds(self.program.pid)
        if hour.number == 0:
            self._midnight()
        answer = self.program.load(hour, seed)
        self.cpu.append(cpu_seconds(self.program.pid) - before)
        return answer

    def _midnight(self) -> None:
        if self.side == ON:
            os.kill(self.program.pid, ASKS)
        elif self.side == TURNS:
            try:
                profile_live.sample(self.program.pid, INTERVAL if self.samples(len(self.cpu) // HOURS) else 0)
            except live.NotLive as why:
                raise Problem(str(why)) from None

    def samples(self, day: int) -> bool:
        """Where it alternates: half of them on even days."""
        return (day + self.number) % 2 == 0

    def look(self) -> None:
        try:
            with live.Page(self.program.pid) as page:
                process = page.read().process
        except live.NotLive as why:
            raise Problem(str(why)) from None
        for name, value in {"resident": process["resident"], "own": process["own"], **_profile(self.folder)}.items():
            self.figures.setdefault(name, []).append(value)


@dataclass
class Kept:
    processes: list[Process]

    def of(self, side: str) -> list[Process]:
        return [process for process in self.processes if process.side == side]

    def days(self) -> int:
        return len(self.processes[0].cpu) // HOURS

    def mean(self, side: str, figure: str) -> list[float]:
        """Over the processes that have it, by day; empty: none has."""
        found = [by_day(process.figures[figure], self.days()) for process in self.of(side) if figure in process.figures]
        return np.mean(found, axis=0).tolist() if found else []


def contenders() -> dict[str, Contender]:
    library = library_path()
    on = f"MASU_OPTIONS=live,profile,profile_signal:{ASKS.value}"
    return {
        ON: Contender(ON, OFF, library=library, settings=(on, "MASU_PROFILE={folder}")),
        OFF: Contender(OFF, library=library, settings=("MASU_OPTIONS=live",)),
        TURNS: Contender(TURNS, OFF, library=library, settings=("MASU_OPTIONS=live",)),
    }


def soak(name: str, minutes: float, load: float, each: int, folder: Path, tell: Callable[[str, float], None]) -> Kept:
    order, start = random.Random(1), time.monotonic()
    with contextlib.ExitStack() as stack:
        kept = Kept([])
        for (side, contender), number in product(contenders().items(), range(each)):
            own = folder / f"{name}-{side}-{number}"
            own.mkdir()
            with on_one_processor():
                process = Process(side, number, own, PROGRAMS[name](contender, own))
            stack.callback(process.program.kill)
            kept.processes.append(process)
        while True:
            used = (time.monotonic() - start) / (60 * minutes) if minutes else 1
            if used >= 1 and kept.days() >= LEAST_DAYS:
                break
            for number in range(HOURS):
                tell(f"{name}, day {kept.days() + 1}, hour {number}", min(used, 0.99))
                _hour(Hour(number, load), kept, order)
        for process in kept.processes:
            process.program.stop()
    return kept


def _hour(hour: Hour, kept: Kept, order: random.Random) -> None:
    seed, shuffled = order.randrange(1 << 30), order.sample(kept.processes, len(kept.processes))
    with futures.ThreadPoolExecutor(len(shuffled)) as threads:
        answers = set(threads.map(lambda process: process.loaded(hour, seed), shuffled))
    if len(answers) > 1:
        raise Problem("the answers differ with the sampler on")
    for process in kept.processes:
        process.look()


def _profile(folder: Path) -> dict[str, float]:
    """Of the newest; older ones are removed. A file is whole from its first moment on."""
    found = sorted(folder.glob("*.heap.pb"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        return {}
    for path in found[:-1]:
        path.unlink()
    try:
        return {"profile": found[-1].stat().st_size, "sites": len(read(found[-1]).sample)}
    except BadProfile as why:
        raise Problem(f"{found[-1]}: {why}") from None


# ---- What it says ----


def judged(kept: Kept) -> list[dict]:
    """Each figure with the sampler on; beside it that without, where it has it."""
    rows = []
    for name, little in FIGURES.items():
        if not (values := kept.mean(ON, name)):
            raise Problem(f"no figure {name}: the sampler wrote no profile")
        row = {"figure": name, **growth(values, little)}
        if other := kept.mean(OFF, name):
            row["off"] = growth(other, little)
        rows.append(row)
    return rows


def by_day(values: list[float], days: int) -> list[float]:
    """The means. What began later, such as the first profile, lacks hours of the first day."""
    whole = [math.nan] * (days * HOURS - len(values)) + list(values)
    return [float(np.nanmean(whole[d * HOURS : (d + 1) * HOURS])) for d in range(days)]


def growth(days: list[float], little: float) -> dict:
    """Over all days after the warm-up, with its 95 % interval."""
    after = np.array(days[math.ceil(len(days) * WARM_UP) :])
    slope = stats.theilslopes(after, np.arange(len(after)), alpha=0.95)
    middle, low, high = (float(s) * (len(after) - 1) for s in (slope.slope, slope.low_slope, slope.high_slope))
    level = float(np.median(after))
    limit = max(GROWTH * level, little)
    verdict = STEADY if high <= limit else GROWS if low > limit else OPEN
    return {"level": level, "growth": middle, "low": low, "high": high, "limit": limit, "days": len(after), "verdict": verdict}


def cost(kept: Kept) -> list[float]:
    """Ratio of the CPU times of days with the sampler on and off, after the warm-up. Days differ, for all processes alike:
    each is divided by what it took those that don't alternate."""
    days = range(math.ceil(kept.days() * WARM_UP), kept.days())
    others = np.mean([by_day(process.cpu, kept.days()) for process in kept.of(ON) + kept.of(OFF)], axis=0)
    ratios = []
    for process in kept.of(TURNS):
        of_day = by_day(process.cpu, kept.days()) / others
        on, off = (np.mean([of_day[day] for day in days if process.samples(day) == samples]) for samples in (True, False))
        ratios.append(on / off)
    found = statistics.estimate(ratios)
    return [found.median, found.low, found.high]


def _by_day(kept: Kept) -> list[dict]:
    """Of each process."""
    days = kept.days()
    return [
        {"side": process.side, "cpu": by_day(process.cpu, days), **{name: by_day(values, days) for name, values in process.figures.items()}}
        for process in kept.processes
    ]


def shown(figure: str, value: float) -> str:
    return f"{value:,.0f}" if figure == "sites" else f"{value / 1024:,.0f} KiB"


def table(name: str, each: int, rows: list[dict], ratio: list[float]) -> Table:
    cost = f"CPU time with the sampler {ratio[0]:.3f}, {ratio[1]:.3f} to {ratio[2]:.3f}, limit {published.SOAK_LIMIT:.2f}: {verdict(ratio, published.SOAK_LIMIT)}"
    title = f"{name}: {each} processes each, {rows[0]['days']} days after the warm-up; {cost}"
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "level", "growth", "95 %", "limit", "", "sampler off: level", "growth"):
        out.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in rows:
        text = lambda key, of=row, figure=row["figure"]: shown(figure, of[key])  # noqa: E731
        off = row.get("off")
        out.add_row(
            row["figure"], text("level"), text("growth"), f"{text('low')} – {text('high')}", text("limit"), row["verdict"],
            *((shown(row["figure"], off["level"]), shown(row["figure"], off["growth"])) if off else ("", "")),
            style=None if row["verdict"] == STEADY else "bold red",
        )  # fmt: skip
    return out


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15, metavar="N", help=f"for each program (15); at least {LEAST_DAYS} days in any case")
    parser.add_argument("--only", default=",".join(PROGRAMS), metavar="PROGRAM,...", help="redis or python")
    parser.add_argument("--processes", type=int, default=6, metavar="N", help="with the sampler on, off, and on every other day, each (6)")
    parser.add_argument("--json", type=Path, default=Path("build/bench/soak.json"), metavar="FILE")
    parser.add_argument("--publish", action="store_true", help=f"also as {published.SOAK.name}, and into {published.PAGE.name}")
    parser.add_argument("--load", type=float, default=1, help=argparse.SUPPRESS)  # a part of it, for the tests
    given = parser.parse_args(argv)
    names = [name for name in given.only.split(",") if name]
    if unknown := set(names) - PROGRAMS.keys():
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    if given.processes < 1:
        parser.error("--processes is 1 or more")
    if given.publish and (set(names) != PROGRAMS.keys() or given.load != 1):
        parser.error("--publish is for all of it")
    console, content, fine = tables.console(), {"machine": machine(), "programs": {}}, True
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with tempfile.TemporaryDirectory(prefix="masu-soak-", ignore_cleanup_errors=True) as folder:
        for name in names:
            with Progress(*columns, console=console, transient=True) as progress:
                task = progress.add_task(name, total=1)
                tell = lambda text, part: progress.update(task, description=text, completed=part)  # noqa: E731
                kept = soak(name, given.minutes, given.load, given.processes, Path(folder), tell)
            rows, ratio = judged(kept), cost(kept)
            content["programs"][name] = {"figures": rows, "cost": ratio, "processes": given.processes, "by_day": _by_day(kept)}
            console.print(table(name, given.processes, rows, ratio))
            fine &= all(row["verdict"] == STEADY for row in rows) and verdict(ratio, published.SOAK_LIMIT) != BROKEN
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(content, indent=1) + "\n")
    console.print(f"figures in {given.json}", style="dim", highlight=False)
    if given.publish:
        published.publish(content, published.SOAK)
        console.print(f"{published.SOAK} and {published.PAGE} are new", style="dim", highlight=False)
    return 0 if fine else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Problem as problem:
        sys.exit(f"soak-observers: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
