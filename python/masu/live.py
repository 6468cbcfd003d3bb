"""The page on which a process that runs on masu with the option `live` shows its figures:
docs/live-page.md. What its tables and columns are stands on the page itself."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import re
import signal
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

VERSION = 1
MAGIC = b"masulive"
SHM = Path("/dev/shm")
NAME = re.compile(r"masu-(\d+)-(\d+)-(\d+)$")

# Of the page's head, as in src/observe/live.h.
ASKED, SEQUENCE, READ_NS, REQUEST, NUMBER, DONE, WHY, ANSWER = 32, 36, 40, 48, 52, 56, 60, 64
COUNTS, MASU, PROGRAM, ARGUMENT, TABLES, COLUMNS = 72, 80, 96, 128, 384, 1152
TABLE = struct.Struct("16s8I")
COLUMN = struct.Struct("16sII56s")

TEXT, LABEL, COUNT, BYTES, COUNT_SUM, BYTES_SUM = range(6)
PURGE, MEASURE, PROFILE, SAMPLE = 1, 2, 3, 4
MEASURED = "resident"
"""The table that is of when it was measured last, and not of now."""

LARGEST, TABLES_MOST, COLUMNS_MOST = 1 << 20, 16, 80
"""Bytes of a page, and what there is room for: another user's process may write there what it likes."""

PATIENCE_S = 5.0
FUTEX_WAKE = 1
SYS_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}.get(platform.machine())


class NotLive(Exception):
    """Why there are no figures, in one line."""


class Refused(NotLive):
    """A request that the process could not fulfil."""

    def __init__(self, pid: int, why: int):
        super().__init__(f"process {pid}: {os.strerror(why)}")
        self.why = why


@dataclass
class Column:
    name: str
    unit: int
    offset: int
    meaning: str

    @property
    def is_bytes(self) -> bool:
        return self.unit in (BYTES, BYTES_SUM)

    @property
    def only_grows(self) -> bool:
        return self.unit in (COUNT_SUM, BYTES_SUM)

    @property
    def is_label(self) -> bool:
        return self.unit in (TEXT, LABEL)


@dataclass
class Table:
    name: str
    columns: list[Column]
    offset: int
    row_size: int
    most: int

    @property
    def is_single(self) -> bool:
        return self.most == 1


@dataclass
class Figures:
    """Of one moment."""

    pid: int
    program: str
    masu: str
    time_s: float
    tables: dict[str, Table]
    rows: dict[str, list[dict]] = field(default_factory=dict)
    more: dict[str, int] = field(default_factory=dict)

    @property
    def process(self) -> dict:
        return self.rows["process"][0]

    @property
    def fragmentation(self) -> float:
        """External: the part that is free between blocks in use, where only blocks of the same size class fit."""
        return self.process["slab_free"] / max(self.process["live"] + self.process["slab_free"], 1)

    def as_json(self) -> dict:
        """As masu_stats_print has it."""
        out: dict = {"version": self.masu, "pid": self.pid, "program": self.program}
        for name, table in self.tables.items():
            if not table.is_single:
                out[name] = self.rows[name]
                out[f"{name}_more"] = self.more[name]
            elif self.rows[name]:
                out[name] = self.rows[name][0]
        return out


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("utf-8", "replace")


def _state_and_start(pid: int) -> tuple[str, int]:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return fields[0], int(fields[19])


def has_ended(pid: int) -> bool:
    try:
        return _state_and_start(pid)[0] in "ZX"
    except OSError:
        return True


def _where(pid: int, start: str = "masu run --live") -> tuple[str, int]:
    """The path of the page, as the process sees it, and its inode. start: how to get one."""
    if has_ended(pid):
        raise NotLive(f"there is no process {pid}")
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except PermissionError:
        raise NotLive(f"process {pid} belongs to another user: only that user and root may look") from None
    except OSError:
        raise NotLive(f"process {pid} has ended") from None
    runs_on_masu = False
    for line in maps.splitlines():
        words = line.split(None, 5)
        path = words[5] if len(words) > 5 else ""
        if NAME.search(path.removesuffix(" (deleted)")) and "s" in words[1]:
            return path.removesuffix(" (deleted)"), int(words[4])
        runs_on_masu |= "/libmasu" in path
    if runs_on_masu:
        raise NotLive(f"process {pid} runs on masu without the option live; start it by: {start} -- PROGRAM")
    raise NotLive(f"process {pid} does not run on masu")


def _open(pid: int, start: str) -> int:
    path, inode = _where(pid, start)
    for name in (f"/proc/{pid}/root{path}", path):  # the first also from outside of a container
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        if os.fstat(fd).st_ino == inode:
            return fd
        os.close(fd)
    if has_ended(pid):
        raise NotLive(f"process {pid} has ended")
    raise NotLive(f"the page of process {pid}, {path}, can't be opened")


class Page:
    def __init__(self, pid: int, start: str = "masu run --live"):
        if SYS_FUTEX is None:
            raise NotLive(f"not known for this processor: {platform.machine()}")
        self.pid = pid
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = _open(pid, start)
        try:
            self._size, self.user = os.fstat(self._file).st_size, os.fstat(self._file).st_uid
            if self._size < COLUMNS:
                raise NotLive(f"process {pid} is only just starting")
            self._read_head()
        except BaseException:
            self.close()
            raise
        self._before: int | None = None

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._file)

    def _damaged(self) -> NotLive:
        return NotLive(f"the page of process {self.pid} is damaged")

    def _bytes(self, offset: int, size: int) -> bytes:
        """Not by a mapping: whose file it is can truncate it, and whoever looks at what was there gets SIGBUS."""
        found = os.pread(self._file, size, offset)
        if len(found) < size:
            raise self._damaged()
        return found

    def _number(self, offset: int, kind: str = "I") -> int:
        return struct.unpack(kind, self._bytes(offset, struct.calcsize(kind)))[0]

    def _set_number(self, offset: int, number: int) -> None:
        os.pwrite(self._file, struct.pack("I", number & 0xFFFFFFFF), offset)

    def _read_head(self) -> None:
        head = self._bytes(0, min(self._size, LARGEST))
        if head[:8] != MAGIC or self._size > LARGEST:
            raise self._damaged()
        (version,) = struct.unpack_from("I", head, 8)
        if version != VERSION:
            raise NotLive(f"process {self.pid} shows version {version} of the page, this masu reads {VERSION}")
        self.program = _text(head[PROGRAM : PROGRAM + 32])
        self.masu = _text(head[MASU : MASU + 16])
        tables, columns = struct.unpack_from("II", head, COUNTS)
        if tables > TABLES_MOST or columns > COLUMNS_MOST or len(head) < COLUMNS + columns * COLUMN.size:
            raise self._damaged()
        all_columns = []
        for i in range(columns):
            name, unit, offset, meaning = COLUMN.unpack_from(head, COLUMNS + i * COLUMN.size)
            all_columns.append(Column(_text(name), unit, offset, _text(meaning)))
        self.tables: dict[str, Table] = {}
        self._entries: dict[str, int] = {}
        for i in range(tables):
            at = TABLES + i * TABLE.size
            name, first, count, offset, row_size, most, *_ = TABLE.unpack_from(head, at)
            if row_size < 8 * max(count, 1):
                raise self._damaged()
            self.tables[_text(name)] = Table(_text(name), all_columns[first : first + count], offset, row_size, most)
            self._entries[_text(name)] = at

    # ---- Asking ----

    def _ring(self) -> None:
        self._set_number(ASKED, self._number(ASKED) + 1)
        try:
            mapped = mmap.mmap(self._file, COLUMNS)
        except ValueError:  # it is shorter now
            raise self._damaged() from None
        with mapped:
            word = ctypes.c_uint32.from_buffer(mapped, ASKED)
            self._libc.syscall(SYS_FUTEX, ctypes.byref(word), FUTEX_WAKE, 0x7FFFFFFF, None, None, 0)
            del word  # else the map can't be closed

    def _wait(self, done, patience_s: float | None = None) -> None:
        """Rings until done() is true: another reader may have changed the word at the same moment."""
        start = time.monotonic()
        ring_at = start
        while not done():
            now = time.monotonic()
            if now >= ring_at:
                self._ring()
                ring_at = now + 0.2
            if has_ended(self.pid):
                raise NotLive(f"process {self.pid} has ended")
            if now - start > (PATIENCE_S if patience_s is None else patience_s):
                raise NotLive(f"process {self.pid} does not answer; is it stopped?")
            time.sleep(0.002)

    def ask(self) -> None:
        """For new figures, which read() will wait for: who reads several processes asks all of them first."""
        self._before = self._number(SEQUENCE)
        self._ring()

    def read(self, measured: bool = False, patience_s: float | None = None) -> Figures:
        """New figures. measured: with those of the last measurement."""
        before = self._number(SEQUENCE) if self._before is None else self._before
        self._before = None
        self._wait(lambda: self._number(SEQUENCE) != before and not self._number(SEQUENCE) & 1, patience_s)
        for _ in range(1000):
            sequence = self._number(SEQUENCE)
            copy = self._bytes(0, self._size)
            if not sequence & 1 and self._number(SEQUENCE) == sequence:
                return self._parse(copy, measured)
            time.sleep(0.001)
        raise NotLive(f"the page of process {self.pid} does not hold still")

    def _parse(self, copy: bytes, measured: bool) -> Figures:
        out = Figures(self.pid, self.program, self.masu, struct.unpack_from("Q", copy, READ_NS)[0] / 1e9, self.tables)
        room = self._size
        try:
            for name, table in self.tables.items():
                *_, rows, more, _ = TABLE.unpack_from(copy, self._entries[name])
                rows = min(rows, table.most) if name != MEASURED or measured else 0
                room -= rows * table.row_size
                if room < 0:
                    raise self._damaged()
                out.more[name] = more
                out.rows[name] = [
                    {c.name: self._value(copy, table.offset + n * table.row_size + c.offset, c) for c in table.columns}
                    for n in range(rows)
                ]
        except struct.error:
            raise self._damaged() from None
        return out

    @staticmethod
    def _value(copy: bytes, at: int, column: Column):
        if column.unit == TEXT:
            return _text(copy[at : at + 32])
        return struct.unpack_from("Q", copy, at)[0]

    def _take_turn(self, patience_s: float | None) -> None:
        """Who has it may be stopped."""
        end = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > end:
                    raise NotLive(f"process {self.pid}: another reader is asking; is that stopped?") from None
            time.sleep(0.002)

    def request(self, kind: int, argument: str = "", patience_s: float | None = None) -> int:
        """The answer. Requests of several readers come one after the other."""
        text = os.fsencode(argument) + b"\0"
        if len(text) > TABLES - ARGUMENT:
            raise NotLive(f"{argument}: longer than the {TABLES - ARGUMENT - 1} bytes that there is room for")
        self._take_turn(patience_s)
        try:
            number = self._number(DONE) ^ 1  # one byte changes: nobody sees half of it
            os.pwrite(self._file, text, ARGUMENT)
            self._set_number(REQUEST, kind)
            self._set_number(NUMBER, number)
            self._wait(lambda: self._number(DONE) == number, patience_s)
            why = self._number(WHY)
            if why:
                raise Refused(self.pid, why)
            return self._number(ANSWER, "Q")
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


# ---- All of them ----


def sweep() -> None:
    """Removes the pages of processes of this user that ended without being able to."""
    for path in SHM.glob(f"masu-{os.geteuid()}-*"):
        match = NAME.match(path.name)
        if not match:
            continue
        pid, started = int(match[2]), int(match[3])
        try:
            gone = has_ended(pid) or _state_and_start(pid)[1] != started
            if gone and path.lstat().st_uid == os.geteuid() and not _is_mapped(path):
                path.unlink()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESRCH):
                raise


def _is_mapped(path: Path) -> bool:
    """Then the kernel gives no lease. A process of another process namespace, as of a container with the same
    /dev/shm, is not to be seen otherwise."""
    file = -1
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # if somebody opens it meanwhile; SIGIO would end us
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return False
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        if file >= 0:
            os.close(file)


def processes() -> list[int]:
    """Those that show their figures to this user."""
    sweep()
    found = []
    for path in SHM.glob("masu-*"):
        match = NAME.match(path.name)
        if not match or not os.access(path, os.R_OK | os.W_OK):
            continue
        try:
            _where(int(match[2]))
        except NotLive:
            continue
        found.append(int(match[2]))
    return sorted(set(found))
