"""Does a replay predict the program? Runs programs on every allocator, replays their traces on
the same, and shows both ratios, of the slowest and of the fastest allocator to the system's: time
by a replay without think time, peak memory by one with it.

    build/venv/bin/python bench/predict.py [--rounds N] [--with NAME=LIBRARY]... [PROGRAM]...

PROGRAM: names of the table below; all without one. Prints a Markdown table, and above it when, where and of what. A program that fails is named, the rest
goes on, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from masu import installed, replay, trace
from masu.bench import programs
from masu.bench.report import machine
from masu.compare import Comparison, compare
from masu.library import library_path
from masu.measuring import statistics
from masu.measuring.measure import SYSTEM, Allocator
from masu.messages import Problem

HERE = programs.HERE
BIN = HERE.parent / "bin"
MASU = Path(sys.executable).parent / "masu"
PROGRAMS = {
    "lua": ["lua5.4", str(HERE / "objects.lua")],
    "ruby": ["ruby", str(HERE / "objects.rb")],
    # Not what PATH calls python3, which may be a script.
    "python on malloc": ["env", "PYTHONMALLOC=malloc", os.path.realpath(sys.executable), "-S", str(HERE / "objects.py")],
    "sqlite": ["sqlite3", ":memory:", f".read {HERE / 'speed.sql'}"],
    "z3": ["z3", "{made}/pigeons.smt2"],
    "ghostscript": ["gs", "-q", "-dNOPAUSE", "-dBATCH", "-dSAFER", "-sDEVICE=ppmraw", "-r300", "-sOutputFile=/dev/null",
                    str(HERE / "pages.ps")],
    "cc1": ["cc", "-O1", "-S", "-o", "/dev/null", "{made}/much.c"],
    "perl": ["perl", "-e", 'for my $r (1 .. 3) { my %h; push @{$h{"key " . $_ % 50021}}, "word $_" for 1 .. 400_000; '
             'my @s = sort { @$a <=> @$b } values %h; print scalar(@s), "\n" }'],
    "jq": ["jq", "-n", '[range(200000) | {id: ., name: "n\\(. % 997)", tags: [., . % 7]}] | group_by(.name) | map(length) | add'],
    "tcl": ["tclsh", str(HERE / "objects.tcl")],
    "cmake": ["cmake", "-P", str(HERE / "objects.cmake")],
    "as": ["as", "-o", "/dev/null", str(HERE / "symbols.s")],
    "mawk": ["mawk", 'BEGIN { for (i = 0; i < 600000; i++) a["key " i] = "word " i; for (k in a) if (length(a[k]) % 2) delete a[k]; '
             'for (i = 0; i < 600000; i++) b[i, i % 7] = i; print length(a), length(b) }'],
    "python's XML on malloc": ["env", "PYTHONMALLOC=malloc", os.path.realpath(sys.executable), "-S", str(HERE / "elements.py")],
    "lua's words": ["lua5.4", str(HERE / "words.lua")],
    "indexer": [str(BIN / "indexer"), "--threads=8", "--megabytes=20"],
    "stackprobe": [str(BIN / "stackprobe"), "throughput", "1000000"],
    "mstress": [str(BIN / "mstress"), "2", "40"],
    "xmalloc": [str(BIN / "xmalloc"), "2", "2", "20000"],
    "kmalloc_round": [str(BIN / "kmalloc_round"), "100"],
    "hakmem_memory": [str(BIN / "hakmem_memory"), "1000000", "16"],
}
LEAST_DIFFERENCE = 1.2  # of the slowest to the fastest, or the largest to the smallest


def ratios(c: Comparison, label: str) -> dict[str, float]:
    figure = next(f for f in c.figures if f.label == label)
    medians = {n: statistics.estimate(c.values(n, figure)).median for n in c.runs if c.runs[n]}
    return {n: v / medians[SYSTEM.name] for n, v in medians.items()}


def rows(name: str, real: Comparison, predicted_s: replay.Predicted, predicted_peak_kib: replay.Predicted) -> list[str]:
    """Both figures of a program in which the allocators differ in either."""
    said, differs = [], False
    for label, values in (("wall time", predicted_s), ("peak memory", predicted_peak_kib)):
        p = {n: of.median for n, of in replay.predicted_ratios(values).items()}
        r = ratios(real, label)
        least, most = min(r, key=r.__getitem__), max(r, key=r.__getitem__)
        differs |= r[most] / r[least] >= LEAST_DIFFERENCE
        for which in (most, least):
            if which in p and which != SYSTEM.name:  # whose ratio to itself is 1 in either
                said.append(f"| {name} | {label} | {which} | {r[which]:.2f} | {p[which]:.2f} | {p[which] / r[which] - 1:+.0%} |")
    return said if differs else [f"| {name} | both | | differ by less than a fifth | | |"]


def one(name: str, command: list[str], allocators: list[Allocator], rounds: int, folder: Path, console: Console) -> list[str]:
    if not shutil.which(command[0]):
        return [f"| {name} | | | is not installed | | |"]
    command = [word.replace("{made}", str(folder)) for word in command]
    file = folder / f"{name}.trace"
    # What the program prints would be in the table.
    run = subprocess.run(
        [MASU, "record", "-o", file, "--", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if run.returncode:
        raise Problem(run.stderr.strip() or f"exit status {run.returncode}")
    found = trace.read(file)
    made = replay.plan(found, found.main(), folder)
    real = compare(command, allocators, console, rounds=rounds)
    if not real.runs.get(SYSTEM.name):
        raise Problem(real.failed[SYSTEM.name])
    times = replay.replay(made, allocators, console, rounds=rounds, settle_s=0).predicted_s
    peaks = replay.replay(made, allocators, console, rounds=rounds, settle_s=0, think=True).predicted_peak_kib
    file.unlink()
    return rows(name, real, times, peaks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--with", dest="extra", action="append", default=[])
    parser.add_argument("program", nargs="*")
    given = parser.parse_args()
    console = Console(stderr=True)
    usable = installed.usable(library_path(), tuple(given.extra))
    allocators = [f.allocator for f in usable]
    here = machine(Path(__file__).resolve())
    versions = ", ".join(f"{f.name} {f.version}".strip() for f in usable)
    print(f"{here['when']}, commit {here['commit']}, {here['cpu']}, {given.rounds} rounds: {versions}.\n")
    print("| program | figure | allocator | real | replayed | off by |\n|---|---|---|---|---|---|")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        programs.generate(Path(folder))
        for name in given.program or PROGRAMS:
            try:
                print("\n".join(one(name, PROGRAMS[name], allocators, given.rounds, Path(folder), console)), flush=True)
            except Problem as problem:
                print(f"predict.py: {name}: {problem}", file=sys.stderr)
                failed = True
    sys.exit(failed)


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(f"predict.py: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
