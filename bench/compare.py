#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "rich"]
# ///
"""Compares allocators on a command of your own.

    bench/compare.py system masu=build/release/libmasu.so -- build/release/bench/stackprobe
    bench/compare.py --rounds 20 system masu=... jemalloc=libjemalloc.so.2 -- python3 -c 'print(sum(range(10**7)))'

Allocators are `system` or NAME=LIBRARY, loaded by LD_PRELOAD; ratios are to the first
one. Every round runs each of them once, in random order. The table shows medians, and
ratios with the 95 % interval of a bootstrap. When the last line that the command prints
is a JSON object, its numbers are compared as well, and its texts have to be the same
on every allocator, unless they differ from run to run on the first one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

try:
    from masu.measuring import rounds
except ModuleNotFoundError as missing:
    sys.exit(f"compare.py needs the Python package {missing.name}: apt install python3-numpy python3-rich")

from masu.json_text import json_text
from masu.measuring.measure import SYSTEM, Allocator
from masu.messages import Problem


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="compare.py [OPTIONS] ALLOCATOR... -- COMMAND...",
    )
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="rounds that count (10)")
    parser.add_argument("--warm-up", type=int, default=1, metavar="N", help="rounds before them that do not (1)")
    parser.add_argument("--seed", type=int, metavar="N", help="fixes the order inside the rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure there")
    parser.add_argument("allocators", nargs="+", metavar="ALLOCATOR", help="system, or NAME=LIBRARY")
    options, command = argv, []
    if "--" in argv:
        cut = argv.index("--")
        options, command = argv[:cut], argv[cut + 1 :]
    result = parser.parse_args(options)
    if not command:
        parser.error("a command is missing: ... -- COMMAND")
    if result.rounds < 1 or result.warm_up < 0:
        parser.error("at least one round is needed")
    result.command = command
    return result


def main(argv: list[str]) -> None:
    given = arguments(argv)
    allocators = [Allocator.parse(text) for text in given.allocators]
    if len({a.name for a in allocators}) < len(allocators):
        raise Problem("two allocators have the same name")
    if len(allocators) == 1 and allocators[0] != SYSTEM:
        allocators.insert(0, SYSTEM)
    console = rounds.wide()
    results = rounds.run_rounds(
        given.command, allocators, given.rounds, warm_up=given.warm_up, seed=given.seed, console=console
    )
    rows = [*rounds.PROCESS_ROWS, *rounds.own_rows(results)]
    console.print(rounds.table(results, rows, f"{' '.join(given.command)}  ·  medians of {given.rounds} rounds"))
    if given.json:
        given.json.write_text(json_text(rounds.as_json(given.command, allocators, results, rows), indent=2) + "\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Problem as problem:
        sys.exit(f"compare.py: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
