"""What a program file is, before it is run: found as a shell finds it, and whether
LD_PRELOAD will reach it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from errno import ENOEXEC
from pathlib import Path
from typing import BinaryIO

from masu.messages import CANNOT_EXECUTE, NOT_FOUND, fail

ELF_MAGIC = b"\x7fELF"
PT_INTERP = 3
SHT_DYNSYM = 11


class NotRunnable(Exception):
    """Carries the exit status that a shell would give."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


def find_program(name: str) -> str:
    """The file that a shell would run for this name."""
    path = name if "/" in name else shutil.which(name)
    if path is None:
        raise NotRunnable(f"{name}: command not found", NOT_FOUND)
    if not os.path.exists(path):
        raise NotRunnable(f"{name}: no such file", NOT_FOUND)
    if os.path.isdir(path):
        raise NotRunnable(f"{name}: is a directory", CANNOT_EXECUTE)
    if not os.access(path, os.X_OK):
        raise NotRunnable(f"{name}: permission denied", CANNOT_EXECUTE)
    return path


def find_or_fail(name: str) -> str:
    """The same; a message and the shell's exit status where there is none."""
    try:
        return find_program(name)
    except NotRunnable as error:
        fail(str(error), error.status)


def environment_at_start() -> dict:
    """os.environ is not it: in the C locale Python changes LC_CTYPE."""
    with open("/proc/self/environ", "rb") as file:
        entries = os.fsdecode(file.read()).split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def execute(path: str, words: list, environment: dict, how: Callable = os.execve):
    """how: what starts it, with the file, its words and its environment."""
    try:
        return how(path, words, environment)
    except OSError as error:
        # A text without #! is a shell script, as for execvp(3) and every shell.
        if error.errno != ENOEXEC or _is_elf(path):
            raise
        return how("/bin/sh", ["sh", path, *words[1:]], environment)


def _is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == ELF_MAGIC


def why_preload_fails(path: str, library: Path) -> str | None:
    """Why LD_PRELOAD would have no effect on this program, or None."""
    try:
        path = _follow_interpreters(path)
        elf, ours = _read_elf(path), _read_elf(library)
    except (OSError, ValueError, OverflowError, MemoryError):
        return None  # not readable, not ELF or damaged: let the system decide
    if elf.machine != ours.machine:
        return f"{path} is for another kind of processor than masu"
    if not elf.has_interpreter and not os.path.basename(path).startswith("ld-"):
        return f"{path} is statically linked"
    if elf.has_interpreter and elf.has_malloc:
        return f"{path} has its own malloc"
    return _why_secure(path)


def _follow_interpreters(path: str) -> str:
    """The ELF file that runs in the end: scripts name their interpreter."""
    for _ in range(5):  # as deep as Linux goes
        with open(path, "rb") as file:
            line = file.read(256).split(b"\n")[0]
        if not line.startswith(b"#!"):
            return path
        words = os.fsdecode(line[2:]).split()
        if not words:
            return path
        path = words[0]
        # env looks the name up: "#!/usr/bin/env -S NAME=VALUE program -option"
        if os.path.basename(path) == "env":
            names = [w for w in words[1:] if not w.startswith("-") and "=" not in w]
            path = (names and shutil.which(names[0])) or path
    return path


@dataclass
class _Elf:
    machine: tuple  # (64 bits?, little endian?, processor)
    has_interpreter: bool  # a dynamic linker, which reads LD_PRELOAD
    has_malloc: bool  # of its own, which is found before a preloaded one


def _read_elf(path: str | Path) -> _Elf:
    with open(path, "rb") as file:
        return _parse_elf(file)


def _parse_elf(file: BinaryIO) -> _Elf:
    ident = file.read(64)  # the header, as much as any kind has
    if ident[:4] != ELF_MAGIC or len(ident) < 52 or ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise ValueError("not ELF")
    wide, little = ident[4] == 2, ident[5] == 1

    def number(offset: int, size: int, data: bytes = ident) -> int:
        return int.from_bytes(data[offset : offset + size], "little" if little else "big")

    table, entry_size, entries = (
        (number(32, 8), number(54, 2), number(56, 2))
        if wide
        else (number(28, 4), number(42, 2), number(44, 2))
    )
    file.seek(table)
    headers = file.read(entry_size * entries)
    types = [number(i * entry_size, 4, headers) for i in range(entries)]
    return _Elf((wide, little, number(18, 2)), PT_INTERP in types, _defines(b"malloc", file, ident, number))


def _defines(name: bytes, file: BinaryIO, ident: bytes, number: Callable[..., int]) -> bool:
    """Is it among the dynamic symbols that are defined? number: (offset, size, data) as in _parse_elf."""
    wide = ident[4] == 2

    def content(section: bytes) -> bytes:
        file.seek(number(24, 8, section) if wide else number(16, 4, section))
        return file.read(number(32, 8, section) if wide else number(20, 4, section))

    table, entry_size, entries = (
        (number(40, 8), number(58, 2), number(60, 2))
        if wide
        else (number(32, 4), number(46, 2), number(48, 2))
    )
    file.seek(table)
    sections = [file.read(entry_size) for _ in range(entries)]
    symbol = struct.Struct("<>"[ident[5] - 1] + ("IBBHQQ" if wide else "IIIBBH"))
    for section in sections:
        link = number(40 if wide else 24, 4, section)
        if number(4, 4, section) == SHT_DYNSYM and link < entries:
            # A name may be the end of a longer one.
            named = {m.start() for m in re.finditer(re.escape(name) + b"\0", content(sections[link]))}
            symbols = content(section)
            whole = symbols[: len(symbols) // symbol.size * symbol.size]
            return any(s[0] in named and s[3 if wide else 5] for s in symbol.iter_unpack(whole))
    return False


def _why_secure(path: str) -> str | None:
    """The dynamic linker ignores LD_PRELOAD where a program gains rights."""
    status = os.stat(path)
    gains_user = status.st_mode & stat.S_ISUID and status.st_uid != os.getuid()
    gains_group = status.st_mode & stat.S_ISGID and status.st_gid != os.getgid()
    if gains_user or gains_group:
        return f"{path} is setuid or setgid"
    if os.getuid() != 0 and "security.capability" in os.listxattr(path):
        return f"{path} has file capabilities"
    return None
