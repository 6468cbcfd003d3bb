"""Trace files: what `masu record` writes and the other commands read.

A trace file is a header and frames, each whole on its own, so that a file that was cut
is read as far as it goes. A folder of spool files, as the recorder leaves them
when `masu record` itself is killed, is read the same way. docs/trace-format.md has both.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import zstandard

from masu.json_text import json_text
from masu.messages import Problem

MAGIC, VERSION = b"MASUTRAC", 2
HEADER = struct.Struct("<8sII")
FRAME = struct.Struct("<4sBxxxIIII")
"""magic, kind, number of the process, length raw, length stored, CRC-32 of what is stored"""
FRAME_MAGIC = b"MFRA"
PROCESS, BLOCKS, MAPS, END = 1, 2, 3, 4
MOST_RAW = 1 << 26
"""A frame that says it is longer is not one."""

PAGE = 4096
PROCESS_MAGIC, BLOCK_MAGIC = 0x3173736563757361, 0x316B636F6C627361
PROCESS_HEAD = struct.Struct("<QIIIIQQIIIiIII")
COMMAND_MOST = 3072
PEAK_RESIDENT, PEAK_AT = struct.Struct("<Q"), 3144
BLOCK_HEAD = struct.Struct("<QIIIIQII")
OPEN, FULL, COPIED = 1, 2, 3


@dataclass(frozen=True)
class ProcessHead:
    """The first page of a process: trace_process in src/observe/trace.h."""

    process: int
    parent: int
    start_ns: int
    start_wall_ns: int
    cost_ns: int
    stacks: bool
    pages: int
    stopped: int
    dropped: int
    ended: bool
    peak_resident: int
    """Bytes; 0: not known."""
    command: tuple[str, ...]

    @classmethod
    def parse(cls, page: bytes, of: Path) -> ProcessHead | None:
        """None: not such a page. Problem: `of` is another version's."""
        if len(page) < PAGE:
            return None
        magic, version, size, process, parent, start, wall, cost, stacks, pages, stopped, dropped, ended, length = (
            PROCESS_HEAD.unpack_from(page)
        )
        if magic != PROCESS_MAGIC or size != PAGE:
            return None
        if version != VERSION:
            raise Problem(f"{of}: a process was recorded by another version of masu: format {version}, this one reads {VERSION}")
        peak = PEAK_RESIDENT.unpack_from(page, PEAK_AT)[0]
        words = page[PROCESS_HEAD.size : PROCESS_HEAD.size + min(length, COMMAND_MOST)]
        command = tuple(w.decode(errors="replace") for w in words.rstrip(b"\0").split(b"\0"))
        return cls(process, parent, start, wall, cost, bool(stacks), pages, stopped, dropped, bool(ended), peak, command)


@dataclass(frozen=True)
class BlockHead:
    page: int
    pages: int
    time: int
    state: int
    copy_of: int
    """A page; 0: of none."""

    @classmethod
    def parse(cls, data, at: int) -> BlockHead | None:
        magic, page, pages, _, _, time, state, copy_of = BLOCK_HEAD.unpack_from(data, at)
        if magic != BLOCK_MAGIC or not 1 <= pages <= 16:
            return None
        return cls(page, pages, time, state, copy_of)

    def counts(self, at: Callable[[int], BlockHead | None]) -> bool:
        """In a spool file; `at` gives the block at a page. A copy counts when what it is of does not hold the same any more."""
        if self.state == COPIED:
            return False
        source = at(self.copy_of) if self.copy_of else None
        return not (source and source.state == OPEN and source.time == self.time)


# ---- Writing ----


class Writer:
    """Writes a trace file, frame by frame."""

    def __init__(self, path: Path, level: int = 1):
        # Without a buffer: what a full disk has refused is not written once more when the file is closed.
        self.file = path.open("wb", buffering=0)
        self._write(HEADER.pack(MAGIC, VERSION, 0))
        self.compressor = zstandard.ZstdCompressor(level=level)

    def frame(self, kind: int, process: int, data: bytes | memoryview) -> None:
        stored = self.compressor.compress(data)
        head = FRAME.pack(FRAME_MAGIC, kind, process, len(data), len(stored), zlib.crc32(stored))
        self._write(head + stored)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self.file.write(left) :]

    def end(self, summary: dict) -> None:
        self.frame(END, 0, json_text(summary).encode())
        self.close()

    def close(self) -> None:
        self.file.close()


# ---- Reading ----


def _length(stored: bytes) -> int:
    """Of what was compressed; -1: it doesn't say, or is damaged."""
    try:
        return zstandard.frame_content_size(stored)
    except zstandard.ZstdError:
        return -1


def _content(stored: bytes, raw: int) -> bytes | None:
    """What was compressed, which has that length; None: it is damaged."""
    try:
        if raw > MOST_RAW or _length(stored) != raw:
            return None
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=MOST_RAW)
    except (zstandard.ZstdError, MemoryError):
        return None


def _begin(stored: bytes, raw: int) -> bytes:
    """The whole blocks at the start of a frame that was cut: zstd's own pieces, of 128 KiB at most, are read as long as they are whole."""
    if raw > MOST_RAW or _length(stored) != raw:
        return b""
    try:
        data = zstandard.ZstdDecompressor().stream_reader(stored).read(raw)
    except (zstandard.ZstdError, MemoryError):
        return b""
    ends = (at + head.pages * PAGE for at, head in _blocks_in(data))
    return data[: max((end for end in ends if end <= len(data)), default=0)]


def _json(text: bytes) -> dict:
    """Empty: it is no object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass
class Process:
    number: int
    head: ProcessHead
    page: bytes
    size: int = 0
    """Bytes of its blocks: how much there is of it."""
    frames: list[tuple[int, int, int]] = field(default_factory=list)
    """Offset, stored length and length of the frames of blocks."""
    begun: bytes = b""
    """The blocks of one that was cut, as far as they are there."""
    spool: Path | None = None
    maps: bytes = b""

    @property
    def name(self) -> str:
        return Path(self.head.command[0]).name if self.head.command and self.head.command[0] else "?"


@dataclass
class Trace:
    path: Path
    processes: list[Process]
    complete: bool
    """Was it written to its end?"""
    damage: str = ""
    """What is missing, and why."""
    summary: dict = field(default_factory=dict)
    """What its end says."""

    def main(self) -> Process:
        """The process with most to replay."""
        return max(self.processes, key=lambda p: p.size)

    def process(self, number: int | None) -> Process:
        if number is None:
            return self.main()
        same = [p for p in self.processes if p.head.process == number]
        if same:  # a process that executes another program keeps its id
            return max(same, key=lambda p: p.size)
        known = ", ".join(sorted({f"{p.head.process} ({p.name})" for p in self.processes})[:12])
        raise Problem(f"{self.path}: no process {number}; there are {known}")

    def blocks(self, process: Process) -> Iterator[bytes]:
        """Whole blocks, some at a time: those of the trace file, then those that still lay in the
        spool file."""
        seen: set[int] = set()
        for data in self._taken_up(process):
            if process.spool:
                seen.update(head.page for _, head in _blocks_in(data))
            yield data
        if process.spool:
            data = process.spool.read_bytes()
            found = {head.page: head for _, head in _blocks_in(data, PAGE)}
            for at, head in _blocks_in(data, PAGE):
                if head.page not in seen and head.counts(found.get):
                    yield data[at : at + head.pages * PAGE]

    def _taken_up(self, process: Process) -> Iterator[bytes]:
        if process.frames:
            with self.path.open("rb") as file:
                for offset, stored, raw in process.frames:
                    file.seek(offset)
                    yield _content(file.read(stored), raw) or b""
        yield process.begun

    def extract(self, process: Process, to: Path) -> Path:
        """What the plan is made from: the process's page, and its blocks."""
        with to.open("wb") as file:
            file.write(process.page)
            for data in self.blocks(process):
                file.write(data)
        return to


def _blocks_in(data: bytes, at: int = 0) -> Iterator[tuple[int, BlockHead]]:
    """Offset and head of each."""
    while at + PAGE <= len(data):
        head = BlockHead.parse(data, at)
        if head:
            yield at, head
        at += head.pages * PAGE if head else PAGE


def read(path: Path) -> Trace:
    """A trace file, or the folder of spool files that masu record left beside it, or both."""
    folder = path if path.is_dir() else Path(f"{path}.spool")
    if folder == path and path.suffix == ".spool" and path.with_suffix("").is_file():
        path = path.with_suffix("")
    if folder.is_dir() and not _is_begun(path):
        path = folder
    if path == folder:
        trace = _read_spool(folder)
        if not trace.processes:
            raise Problem(f"{folder}: a folder without a recording")
        return trace
    try:
        with path.open("rb") as file:
            trace = _read_file(path, file)
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from None
    if not trace.complete and folder.is_dir():
        trace = _join(trace, _read_spool(folder))
    if not trace.processes:
        raise Problem(f"{path}: nothing was recorded" + (f" ({trace.damage})" if trace.damage else ""))
    return trace


def _is_begun(path: Path) -> bool:
    """Has it a header? It has none where masu record was killed, or its disk was full, before that was written."""
    return path.exists() and path.stat().st_size >= HEADER.size


def _join(trace: Trace, rest: Trace) -> Trace:
    """What was taken up before masu record was killed, and what lay in the spool files then."""
    known = {(p.head.process, p.head.start_ns): p for p in trace.processes}
    for p in rest.processes:
        process = known.setdefault((p.head.process, p.head.start_ns), p)
        if process is not p:
            process.head, process.page, process.spool = p.head, p.page, p.spool
            process.size += p.size
            process.maps = p.maps or process.maps
    trace.processes = list(known.values())
    trace.damage = rest.damage
    return trace


def _read_spool(folder: Path) -> Trace:
    processes = []
    for file in sorted(folder.glob("*.spool")):
        with file.open("rb") as spool:
            page = spool.read(PAGE)
        head = ProcessHead.parse(page, file)
        if head:
            maps = file.with_suffix(".maps")
            processes.append(
                Process(len(processes), head, page, size=file.stat().st_blocks * 512, spool=file,
                        maps=maps.read_bytes() if maps.exists() else b"")
            )  # fmt: skip
    return Trace(path=folder, processes=processes, complete=False, damage="masu record did not end; read with what lay in its spool files")


@dataclass
class _Frames:
    """What the frames of a trace file say, by the number of the process. What is known of one may come after its
    blocks, where the frame that was before them is damaged."""

    path: Path
    heads: dict[int, tuple[ProcessHead, bytes]] = field(default_factory=dict)
    blocks: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    begun: dict[int, bytes] = field(default_factory=dict)
    maps: dict[int, bytes] = field(default_factory=dict)
    summary: dict = field(default_factory=dict)

    def take(self, kind: int, number: int, raw: int, stored: bytes, at: int) -> bool:
        """False: it is damaged. The CRC covers what is stored, at offset `at`, and not the head with the rest, so
        that those are checked against it."""
        if kind == BLOCKS:
            sound = raw % PAGE == 0 and _length(stored) == raw
            if sound:
                self.blocks[number].append((at, len(stored), raw))
            return sound
        content = _content(stored, raw)
        if content is None:
            return False
        if kind == PROCESS and (process := ProcessHead.parse(content, self.path)):
            self.heads[number] = (process, content)
            return True
        if kind == MAPS and b"\0" not in content:
            self.maps[number] = content
            return True
        if kind == END:
            self.summary = _json(content)
        return kind == END and bool(self.summary)

    def is_astray(self) -> bool:
        """Has one the number of another process, or of none?"""
        known = {(head.process, head.start_ns) for head, _ in self.heads.values()}
        return len(known) < len(self.heads) or not {*self.blocks, *self.maps} <= {*self.heads}

    def processes(self) -> list[Process]:
        return [
            Process(number, head, page, size=sum(raw for *_, raw in self.blocks[number]) + len(begun), frames=self.blocks[number],
                    begun=begun, maps=self.maps.get(number, b""))
            for number, (head, page) in sorted(self.heads.items())
            for begun in [self.begun.get(number, b"")]
        ]  # fmt: skip


def _read_file(path: Path, file: BinaryIO) -> Trace:
    head = file.read(HEADER.size)
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise Problem(f"{path}: not a trace of masu record")
    version = HEADER.unpack(head)[1]
    if version != VERSION:
        raise Problem(f"{path}: format {version}, this masu reads {VERSION}")
    frames, damage = _Frames(path), ""
    while True:
        offset = file.tell()
        head = file.read(FRAME.size)
        if not head:
            break
        if len(head) < FRAME.size:
            damage = f"cut at byte {offset}"
            break
        magic, kind, number, raw, stored, crc = FRAME.unpack(head)
        if magic != FRAME_MAGIC or raw > MOST_RAW or stored > MOST_RAW:
            damage = f"not readable from byte {offset} on"
            break
        data = file.read(stored)
        if len(data) < stored:
            damage = f"cut at byte {offset}"
            if kind == BLOCKS:
                frames.begun[number] = _begin(data, raw)
            break
        if zlib.crc32(data) != crc or not frames.take(kind, number, raw, data, offset + FRAME.size):
            damage = f"damaged at byte {offset}"
    if not damage and frames.is_astray():
        damage = "a part has the number of another process"
    if not frames.summary and not damage:
        damage = "masu record did not end"
    return Trace(path, frames.processes(), bool(frames.summary), damage, frames.summary)
