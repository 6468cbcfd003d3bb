#!/usr/bin/env python3
"""Every rule of whole libraries, against what readelf reads from the same tables.

test_unwind.py UNWIND_RULES LIBMASU: exits with 1 when a rule is another one.
"""

import bisect
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

# What is there on every system, and what may be: with much assembly, or much code.
NEEDED = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2")
OPTIONAL = ("libcrypto.so.3", "libpython3.11.so.1.0")
MOST = 400_000  # addresses of one library
CFA_MOST, RBP_MOST = 2**31, 2**15

COMMON = re.compile(r"^([0-9a-f]+) [0-9a-f]+ [0-9a-f]+ CIE ")
FUNCTION = re.compile(r"^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+)")


def expected_rule(columns):
    """What the rule must be, of a row of readelf's; None: there is an expression, which it does
    not evaluate."""
    cfa, ra, rbp = columns["CFA"], columns.get("ra", "u"), columns.get("rbp", "u")
    other = ("other", 0, "same", 0)
    if ra == "u":
        return ("end", 0, "same", 0)
    if "exp" in (cfa, ra, rbp, columns.get("rsp")):
        return None
    register, offset = re.fullmatch(r"([a-z0-9]+)([+-]\d+)", cfa).groups()
    if register not in ("rsp", "rbp") or ra != "c-8" or columns.get("rsp", "u") not in "us":
        return other
    if rbp in ("u", "s"):
        return (register, int(offset), "same", 0)
    if not (place := re.fullmatch(r"c([+-]\d+)", rbp)):
        return other
    if abs(int(place[1])) >= RBP_MOST or abs(int(offset)) >= CFA_MOST:
        return other
    return (register, int(offset), "cfa", int(place[1]))


def tables(path):
    """Of a file: [(start, end, [(address, columns)])] for each function; one without rows has that
    of what functions have in common."""
    command = ["readelf", "--wide", "--debug-dump=frames-interp", path]
    functions, common, heading, rows = [], {}, [], None
    for line in subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines():
        if line.startswith("Contents of the"):
            rows = None
            if ".eh_frame " not in line:
                break
        elif entry := COMMON.match(line):
            rows = common[int(entry[1], 16)] = []
        elif entry := FUNCTION.match(line):
            rows = []
            functions.append((int(entry[2], 16), int(entry[3], 16), rows, int(entry[1], 16)))
        elif line.startswith("   LOC"):
            heading = line.split()[1:]
        elif rows is not None and re.match(r"^[0-9a-f]{16} ", line):
            address, *fields = re.sub(r" \(\w+\)", "", line).split()  # "r1 (rdx)": another register
            rows.append((int(address, 16), dict(zip(heading, fields, strict=True))))
    functions = sorted((f for f in functions if f[0] and f[1] > f[0]), key=lambda f: f[:2])
    return [(start, end, rows or [(start, common[cie][0][1])]) for start, end, rows, cie in functions]


def questions(functions):
    """(address, exact) -> the rule: at both ends of each row, and between functions."""
    asked = {}
    for start, end, rows in functions:
        last = {}
        for address, columns in rows:  # the last row for an address counts
            last[address] = columns
        places = sorted(last)
        for at, following in zip(places, [*places[1:], end]):
            if not start <= at < following <= end:
                continue
            rule = expected_rule(last[at])
            asked[at, 1] = asked[following - 1, 1] = asked[at + 1, 0] = asked[following, 0] = rule
    starts = [f[0] for f in functions]
    for _, end, _ in functions:
        following = bisect.bisect_right(starts, end - 1)
        if following < len(starts) and starts[following] > end:
            asked[end, 1] = asked[end + 1, 0] = ("end", 0, "same", 0)
    return asked


def check(program, library):
    """(functions, addresses, wrong), or None if there is no such library."""
    first = subprocess.run([program, library], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if first.returncode == 77:
        return None
    path = Path(first.stdout.splitlines()[0])
    functions = tables(path)
    asked = questions(functions)
    if len(asked) > MOST:
        keep = len(asked) // MOST + 1
        asked = {k: v for i, (k, v) in enumerate(asked.items()) if i // 4 % keep == 0}
    text = "".join(f"{address:x} {exact}\n" for address, exact in asked)
    answers = subprocess.run([program, library], input=text, capture_output=True, text=True, check=True)
    answers = answers.stdout.splitlines()[1:]
    assert len(answers) == len(asked)
    wrong, kinds = 0, Counter()
    for ((address, exact), rule), answer in zip(asked.items(), answers):
        kind, cfa, saved, rbp = answer.split()
        got = (kind, int(cfa), saved, int(rbp))
        kinds[kind if rule else f"{kind} by expression"] += 1
        if rule and got != rule or kind == "none":
            wrong += 1
            if wrong <= 10:
                print(f"{path}: {address:#x} ({'at' if exact else 'before'}): {got}, expected {rule}")
    print(f"{path}: {len(functions)} functions, {len(asked)} addresses, {wrong} wrong: {dict(kinds)}")
    return len(functions), len(asked), wrong, kinds


def main():
    program, masu = sys.argv[1:]
    if not shutil.which("readelf"):
        sys.exit(77)
    results = {name: check(program, name) for name in (*NEEDED, masu, *OPTIONAL)}
    missing = [name for name in (*NEEDED, masu) if not results[name]]
    wrong = [name for name, result in results.items() if result and result[2]]
    # Signal frames and the linkage table are expressions that rules are made of.
    found = results["libc.so.6"] and results["libc.so.6"][3]
    lacks = not found or not found["signal by expression"] or not found["rsp by expression"]
    for text, problem in (("not there", missing), ("wrong", wrong), ("libc.so.6 has no rule for", ["expressions"] * lacks)):
        if problem:
            print(f"{text}: {', '.join(problem)}")
    sys.exit(1 if missing or wrong or lacks else 0)


if __name__ == "__main__":
    main()
