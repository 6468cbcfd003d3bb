"""What a program file is, before it is run: found as a shell finds it, and whether
LD_PRELOAD will reach it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from errno import ENOEXEC
from pathlib import Path
from typing import BinaryIO

from masu.messages import CANNOT_EXECUTE, NOT_FOUND, fail

ELF_MAGIC = b"\x7fELF"


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
        with open(path, "rb") as file, open(library, "rb") as ours:
            reason = _why_not(path, file, ours)
    except Exception:
        return None  # not readable, not ELF or damaged, in ways that no parser foresees: let the system decide
    return reason or _why_secure(path)


def _why_not(path: str, file: BinaryIO, library: BinaryIO) -> str | None:
    from elftools.elf.elffile import ELFFile  # takes longer than most commands do

    elf, ours = ELFFile(file), ELFFile(library)
    if _machine(elf) != _machine(ours):
        return f"{path} is for another kind of processor than masu"
    # The headers alone: pyelftools makes objects of segments by way of the sections, which need not be there.
    segments = [elf._get_segment_header(i)["p_type"] for i in range(elf.num_segments())]
    if "PT_INTERP" not in segments:  # a dynamic linker, which reads LD_PRELOAD
        return None if is_loader(path) else f"{path} is statically linked"
    if defines_malloc(path):
        return f"{path} has its own malloc"  # which is found before a preloaded one
    return None


def answers_malloc(path: str) -> str:
    """The library that answers malloc in this program, as far as its own needs say: the first of them all that
    defines it. Empty where that is the C library."""
    try:
        path = _follow_interpreters(path)
        # What the loader would load, in the order in which it looks a name up; nothing of the program is run.
        without = {k: v for k, v in os.environ.items() if not k.startswith("LD_")}
        listed = subprocess.run([_loader(path), "--list", path], env=without, capture_output=True, text=True, check=True).stdout
    except Exception:
        return ""  # as in why_preload_fails
    found = next((p for p in re.findall(r"^\t(?:.* => )?(/.*) \(0x", listed, re.MULTILINE) if is_c_library(p) or defines_malloc(p)), "")
    return "" if is_c_library(found) else found


def _loader(path: str) -> str:
    from elftools.elf.elffile import ELFFile

    with open(path, "rb") as file:
        elf = ELFFile(file)
        segments = (elf._get_segment_header(i) for i in range(elf.num_segments()))
        interpreter = next(s for s in segments if s["p_type"] == "PT_INTERP")
        file.seek(interpreter["p_offset"])
        return os.fsdecode(file.read(interpreter["p_filesz"]).rstrip(b"\0"))


def is_c_library(path: str) -> bool:
    """By its name; musl's is the loader as well."""
    return re.match(r"libc(\.so|\.musl|-2\.)|ld-musl", os.path.basename(path)) is not None


def is_loader(path: str) -> bool:
    return os.path.basename(path).startswith(("ld-", "ld64", "ld.so"))


@functools.cache
def defines_malloc(path: str) -> bool:
    """For others; which the C library and, formerly, its loader do as well."""
    from elftools.elf.elffile import ELFFile

    try:
        with open(path, "rb") as file:
            return any(symbol["st_shndx"] != "SHN_UNDEF" for symbol in _dynamic_symbols(ELFFile(file), "malloc"))
    except Exception:
        return False


def _machine(elf) -> tuple:
    return elf.elfclass, elf.little_endian, elf["e_machine"]


def _dynamic_symbols(elf, name: str) -> list:
    """By the hash table where there is one: pyelftools makes an object of each symbol that it looks at."""
    from elftools.elf.hash import GNUHashSection

    for section in elf.iter_sections():
        if isinstance(section, GNUHashSection):
            found = section.get_symbol(name)
            return [found] if found else []
    table = elf.get_section_by_name(".dynsym")
    return table and table.get_symbol_by_name(name) or []


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
