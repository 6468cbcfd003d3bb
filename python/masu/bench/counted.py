"""What is counted in runs that are not timed: memory by kind, system calls, instructions.

These runs are slower than the timed ones, so nothing of theirs is compared as a time.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from masu.measuring.measure import SYSTEM, Allocator, measure
from masu.messages import Problem
from masu.reach import family

SAMPLE_S = 0.02
TIMEOUT_S = 240
PAIRS = (100_000, 300_000)


# ---- Memory by kind ----


class Sampler(threading.Thread):
    """Reads the memory of a process's descendants, until it is told to end.

    The peaks in KiB: `rss` and `pss` (what is shared with others, divided among them),
    and `huge`, the part of it in anonymous huge pages.
    """

    KEYS = {"Rss": "rss_kib", "Pss": "pss_kib", "AnonHugePages": "huge_kib"}

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peaks = dict.fromkeys(self.KEYS.values(), 0)
        self.ended = threading.Event()
        self.launcher = 0

    def watch(self, launcher: int) -> None:
        self.launcher = launcher
        self.start()

    def run(self) -> None:
        start = time.monotonic()
        while not self.ended.is_set():
            now = dict.fromkeys(self.peaks, 0)
            for process in family(self.launcher)[1:]:
                for line in _lines(Path(f"/proc/{process}/smaps_rollup")):
                    key, _, value = line.partition(":")
                    if key in self.KEYS:
                        now[self.KEYS[key]] += int(value.split()[0])
            self.peaks = {key: max(peak, now[key]) for key, peak in self.peaks.items()}
            self.ended.wait(min(SAMPLE_S, (time.monotonic() - start) / 20))  # some programs end after milliseconds


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # it has ended meanwhile
        return []


@contextlib.contextmanager
def memory(into: dict[str, float]) -> Iterator[Callable[[int], None]]:
    """The peaks of what measure() starts meanwhile; it is to tell its launcher. Another run that nothing is timed in will do."""
    sampler = Sampler()
    try:
        yield sampler.watch
    finally:
        sampler.ended.set()
    into.update({f"sampled_{key}": float(peak) for key, peak in sampler.peaks.items() if sampler.peaks["rss_kib"]})


# ---- System calls ----


def system_calls(command: Sequence[str], allocator: Allocator, environment: dict[str, str]) -> dict[str, float]:
    """By name, of all threads and children; with the few that the loader makes."""
    with tempfile.TemporaryDirectory(prefix="masu-strace-") as folder:
        counts = Path(folder) / "counts"
        tracer = ["strace", "-f", "-c", "--summary-columns=name,calls", "-o", str(counts)]
        for name, value in allocator.environment().items():
            tracer += ["-E", f"{name}={value}"]  # for the program, not for strace
        _run(tracer, command, SYSTEM, environment)
        found = re.findall(r"^\s*(\w+)\s+(\d+)\s*$", counts.read_text(), re.MULTILINE)
    return {name: float(count) for name, count in found if name != "total"}


# ---- Instructions ----


def instructions(command: Sequence[str], allocator: Allocator, environment: dict[str, str]) -> float:
    """For one pair of malloc and free, outside of the program itself. The last argument
    of the command is the number of pairs; two runs differ by nothing else."""
    few, many = (_outside([*command[:-1], str(pairs)], allocator, environment) for pairs in PAIRS)
    return (many - few) / (PAIRS[1] - PAIRS[0])


def _outside(command: Sequence[str], allocator: Allocator, environment: dict[str, str]) -> int:
    with tempfile.TemporaryDirectory(prefix="masu-callgrind-") as folder:
        out = Path(folder) / "out"
        tracer = [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no",
            "--compress-pos=no", "--log-file=/dev/null",
        ]  # fmt: skip
        _run(tracer, command, allocator, environment)
        if not out.exists():
            raise Problem("callgrind says nothing")
        return _own_costs(out.read_text().splitlines(), Path(command[0]).name)


def _own_costs(lines: Sequence[str], program: str) -> int:
    """What is executed in objects other than the program, without what they call."""
    total, outside, skip = 0, False, False
    for line in lines:
        if line.startswith("ob="):
            outside = Path(line[3:]).name != program
        elif line.startswith("calls="):
            skip = True  # the next line is the cost of the call
        elif cost := re.match(r"[\d+*-]\S* (\d+)", line):
            if outside and not skip:
                total += int(cost[1])
            skip = False
    return total


def _run(tracer: list[str], command: Sequence[str], allocator: Allocator, environment: dict[str, str]) -> None:
    if not shutil.which(tracer[0]):
        raise Problem(f"{tracer[0]} is not installed")
    usage = measure([*tracer, *command], allocator, environment=environment, timeout=TIMEOUT_S)
    if usage.status:
        raise Problem(f"under {tracer[0]} it ends with {usage.status}: {usage.errors.strip()[-200:]}")
