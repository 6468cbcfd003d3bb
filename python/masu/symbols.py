"""Names of functions for addresses in a process, by what was mapped there and the symbol tables of those files."""

from __future__ import annotations

import bisect
import functools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

MAP = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ \d+\s*(.*)$")
DEBUG_FILES = Path("/usr/lib/debug/.build-id")
SYMBOL = [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
"""One of a symbol table. pyelftools makes an object of each, which takes minutes for a browser."""
FUNCTION, INDIRECT_FUNCTION = 2, 10
LINES_MOST = 4 << 20
"""Bytes of a table of lines without an index that are read as a whole: some seconds."""
MORE_THAN_ANY = "\U0010ffff"
"""As a path."""


@dataclass(frozen=True)
class Mapping:
    start: int
    end: int
    offset: int
    path: str
    build_id: str = ""
    """Of the file that was mapped; "": not known, so that any of that name will do."""


def mappings(maps: bytes) -> list[Mapping]:
    """Of code, from /proc/PID/maps as it was."""
    found = []
    for line in maps.decode(errors="replace").splitlines():
        match = MAP.match(line)
        if match and "x" in match[3]:
            found.append(Mapping(int(match[1], 16), int(match[2], 16), int(match[4], 16), match[5]))
    return found


class Symbols:
    def __init__(self, code: Iterable[Mapping]):
        self.mappings = sorted(code, key=lambda m: m.start)
        self.starts = [m.start for m in self.mappings]
        self.others: set[str] = set()
        """Files that aren't those that were mapped, which are not used."""

    def name(self, address: int) -> str:
        """Of the call before the return address: "function  (file)", or the file and an offset, or the address."""
        m = self.mapping(address - 1)
        if not m:
            return f"0x{address:x}"
        function = self.function(address - 1)
        where = Path(m.path).name or "?"
        return f"{function}  ({where})" if function else f"{where}+0x{address - 1 - m.start + m.offset:x}"

    def mapping(self, address: int) -> Mapping | None:
        i = bisect.bisect_right(self.starts, address) - 1
        return self.mappings[i] if i >= 0 and address < self.mappings[i].end else None

    def function(self, address: int) -> str:
        """'' where there is no symbol."""
        m = self.mapping(address)
        if not m or not m.path.startswith("/"):
            return ""
        file = _file(m.path)
        if file and m.build_id and file.build_id != m.build_id:
            self.others.add(m.path)
            return ""
        return file.function(address - m.start + m.offset) if file else ""

    def line(self, address: int) -> tuple[str, int]:
        """The source file and the line in it; "" where there is no debugging information."""
        m = self.mapping(address)
        file = _file(m.path) if m and m.path.startswith("/") else None
        if not m or not file or (m.build_id and file.build_id != m.build_id):
            return "", 0
        return file.line(address - m.start + m.offset)


class _File:
    def __init__(self, path: str):
        self.path, self.lines = path, None
        with open(path, "rb") as file:
            elf = ELFFile(file)
            self.segments = [(s["p_vaddr"], s["p_offset"], s["p_filesz"]) for s in elf.iter_segments("PT_LOAD")]
            self.build_id = _build_id(elf)
            # Of several names for one function the last is used: the one for everybody.
            tables = [*self._debug_tables(), _table(elf, ".symtab"), _table(elf, ".dynsym")]
        self.symbols = numpy.concatenate([symbols for symbols, _ in tables])
        self.names = b"".join(names for _, names in tables)
        # Each table's names are behind those of the one before.
        shifts = numpy.cumsum([0, *(len(names) for _, names in tables)])[: len(tables)]
        self.name_at = self.symbols["name"].astype("u8") + numpy.repeat(shifts, [len(s) for s, _ in tables]).astype("u8")
        order = numpy.argsort(self.symbols["value"], kind="stable")
        self.symbols, self.name_at = self.symbols[order], self.name_at[order]

    def _debug_tables(self) -> list:
        """Symbols that were taken out of the file may lie in one beside it, found by the build id."""
        try:
            with self._debug_file().open("rb") as file:
                return [_table(ELFFile(file), ".symtab")]
        except (OSError, ELFError):
            return []

    def _debug_file(self) -> Path:
        return DEBUG_FILES / self.build_id[:2] / f"{self.build_id[2:]}.debug"

    def _virtual(self, offset: int) -> int:
        return next((offset - o + v for v, o, size in self.segments if o <= offset < o + size), offset)

    def line(self, offset: int) -> tuple[str, int]:
        if self.lines is None:
            self.lines = [found for path in (Path(self.path), self._debug_file()) if (found := _lines(path))]
        try:
            return next((found for lines in self.lines if (found := lines.at(self._virtual(offset)))[0]), ("", 0))
        except Exception:  # a damaged table, or one of a later version
            return "", 0

    def function(self, offset: int) -> str:
        virtual = self._virtual(offset)
        i = int(numpy.searchsorted(self.symbols["value"], virtual, side="right")) - 1
        if i < 0:
            return ""
        start, size = int(self.symbols["value"][i]), int(self.symbols["size"][i])
        if size and virtual >= start + size:
            return ""
        at = int(self.name_at[i])
        return _demangled(self.names[at : self.names.index(b"\0", at)].decode(errors="replace"))


class _Lines:
    """The table of lines in a file's debugging information. Each unit is read when it is first asked about."""

    def __init__(self, file):
        self.dwarf = ELFFile(file).get_dwarf_info()
        self.where = self.dwarf.get_aranges()
        self.units: dict[int, list[tuple[int, bool, str, int]]] = {}

    def at(self, address: int) -> tuple[str, int]:
        rows = self._rows(self.where.cu_offset_at_addr(address) if self.where else None)
        i = bisect.bisect_right(rows, (address, True, MORE_THAN_ANY, 0)) - 1
        return rows[i][2:] if i >= 0 else ("", 0)

    def _rows(self, unit: int | None) -> list:
        """Address, whether code begins there, file and line; in order. None: of all units, where they are not many."""
        if unit is None and (self.where or self.dwarf.debug_line_sec.size > LINES_MOST):
            return []
        if unit not in self.units:
            units = self.dwarf.iter_CUs() if unit is None else [self.dwarf.get_CU_at(unit)]
            self.units[unit] = sorted(row for one in units for row in self._rows_of(one))
        return self.units[unit]

    def _rows_of(self, unit) -> Iterator[tuple[int, bool, str, int]]:
        program = self.dwarf.line_program_for_CU(unit)
        if not program:
            return
        folder = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
        old = program["version"] < 5  # counts files and folders from 1 on
        folders = [folder.value] * (old and folder is not None) + list(program["include_directory"])
        names = [os.path.join(*(folders[f.dir_index : f.dir_index + 1] or [b""]), f.name) for f in program["file_entry"]]
        if folder:
            names = [os.path.join(folder.value, name) for name in names]
        for entry in program.get_entries():
            if state := entry.state:
                at = state.file - old
                name = os.fsdecode(names[at]) if 0 <= at < len(names) and not state.end_sequence else ""
                yield state.address, not state.end_sequence, name, state.line if name else 0


def _lines(path: Path) -> _Lines | None:
    try:
        file = path.open("rb")
        lines = _Lines(file)
        if lines.dwarf.debug_line_sec and lines.dwarf.debug_info_sec:
            return lines
        file.close()
    except (OSError, ELFError, DWARFError, ValueError):
        pass
    return None


def _table(elf: ELFFile, name: str) -> tuple:
    """The functions of a symbol table, and the text that has their names."""
    section = elf.get_section_by_name(name)
    if not section or section["sh_type"] == "SHT_NOBITS" or elf.elfclass != 64 or not elf.little_endian:
        return numpy.empty(0, SYMBOL), b""
    data = section.data()
    symbols = numpy.frombuffer(data[: len(data) // 24 * 24], SYMBOL)
    kind = symbols["info"] & 15
    wanted = ((kind == FUNCTION) | (kind == INDIRECT_FUNCTION)) & (symbols["section"] != 0) & (symbols["value"] != 0)
    names = elf.get_section(section["sh_link"]).data() + b"\0"
    symbols = symbols[wanted]
    # One without a size reaches to the end of its section at most; behind that are stubs that call other files.
    ends = numpy.array([s["sh_addr"] + s["sh_size"] for s in elf.iter_sections()], "u8")
    bare = (symbols["size"] == 0) & (symbols["section"] < len(ends))
    symbols["size"][bare] = ends[symbols["section"][bare]] - symbols["value"][bare]
    return symbols[symbols["name"] < len(names)], names


def _build_id(elf: ELFFile) -> str:
    for section in elf.iter_sections("SHT_NOTE"):
        for note in section.iter_notes() if isinstance(section, NoteSection) else ():
            if note["n_type"] == "NT_GNU_BUILD_ID":
                return note["n_desc"]
    return ""


@functools.cache
def _file(path: str) -> _File | None:
    try:
        return _File(path)
    except (OSError, ELFError, UnicodeDecodeError, ValueError):
        return None


@functools.cache
def _demangled(name: str) -> str:
    if not name.startswith("_Z"):
        return name
    try:
        import cxxfilt

        return cxxfilt.demangle(name)
    except Exception:  # a library that isn't there, or a name that isn't one
        return name
