"""The hit path of a function, disassembled: from its entry to a ret without a call, a stack frame, an atomic
read-modify-write or a jump out of the function. For masu bench and script/check-fastpath."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path


class Instruction:
    def __init__(self, address, text):
        self.address = address
        self.text = text
        words = text.split()
        # Prefixes stand before the mnemonic: lock, rep, repz, notrack, data16, bnd.
        self.prefixes = []
        while len(words) > 1 and words[0] in ("lock", "rep", "repz", "repnz", "bnd", "notrack", "data16"):
            self.prefixes.append(words.pop(0))
        self.name = words[0]
        self.operands = " ".join(words[1:]).split("#")[0]
        target = re.match(r"([0-9a-f]+)(?: <|$)", self.operands)
        self.target = int(target[1], 16) if target else None
        self.ends = self.name.startswith("ret")
        self.jumps = self.name == "jmp"
        self.branches = self.name.startswith("j") and not self.jumps

    def forbidden(self):
        """Why this instruction has no place on a hit path, or None."""
        if self.name.startswith("call"):
            return "a call"
        if self.name.startswith(("push", "pop", "enter", "leave")):
            return "a stack frame"
        if re.match(r"(sub|add|and|lea|mov)", self.name) and self.operands.rstrip().endswith("%rsp"):
            return "a stack frame"
        if "lock" in self.prefixes or (self.name.startswith("xchg") and "(" in self.operands):
            return "an atomic read-modify-write"
        if self.name.endswith("fence"):
            return "a fence"
        return None


def symbol_table(library):
    """{exported function: (address, size)}"""
    table = {}
    for line in _said("readelf", "--dyn-syms", "-W", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[3] == "FUNC" and fields[6] != "UND":
            table[fields[7].split("@")[0]] = int(fields[1], 16), int(fields[2], 0)
    return table


def disassemble(library, address, size):
    bounds = f"--start-address={address}", f"--stop-address={address + size}"
    text = _said("objdump", "-d", "--no-show-raw-insn", *bounds, library)
    lines = re.findall(r"^\s*([0-9a-f]+):\t(.+)$", text, re.MULTILINE)
    return [Instruction(int(at, 16), text.strip()) for at, text in lines]


def hit_paths(code):
    """Every hit path, and why the other ways were left."""
    index = {instruction.address: i for i, instruction in enumerate(code)}
    paths, left = [], []

    def walk(i, path):
        while True:
            if i is None or i >= len(code):
                left.append(f"{path[-1].text}: a jump out of the function")
                return
            here = code[i]
            why = "a loop" if here in path else here.forbidden()
            if why:
                left.append(f"{here.text}: {why}")
                return
            path = path + [here]
            if here.ends:
                paths.append(path)
                return
            if here.branches:
                walk(index.get(here.target), path)
            i = index.get(here.target) if here.jumps else i + 1

    walk(0, [])
    return paths, left


def lengths(library: Path) -> dict[str, int]:
    """Instructions on the shortest hit path of malloc and free, which is the usual one, ret included; none where there is no such path, or
    nothing to disassemble with."""
    if not shutil.which("objdump") or not shutil.which("readelf"):
        return {}
    table = symbol_table(library)
    found = {name: hit_paths(disassemble(library, *table[name]))[0] for name in ("malloc", "free") if name in table}
    return {name: len(min(paths, key=len)) for name, paths in found.items() if paths}


def _said(*command: str | Path) -> str:
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
