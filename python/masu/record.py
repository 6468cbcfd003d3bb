"""Records a program: runs it on the recorder, and takes up what that writes."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import mmap
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from masu.messages import CANNOT_EXECUTE, Problem
from masu.program import NotRunnable, execute
from masu.reach import Watch
from masu.signals import passed_on
from masu.trace import BLOCK_HEAD, BLOCKS, FULL, MAPS, PAGE, PROCESS, BlockHead, ProcessHead, Writer

POLL_S = 0.05
FRAME_PAGES, BLOCK_MOST = (1 << 20) // PAGE, 16
NARROW = 4 << 20
"""Bytes: where a disk has less left, blocks are taken one by one, since each that is taken makes room for the next."""
MOST_WAITING, PART_WAITING = 1 << 30, 1 / 4
"""Bytes that may wait for an idle processor, and at most so much of what the disk had free."""
PUNCH_HOLE = 3
"""FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE"""
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Spool:
    """One process's file, taken up block by block."""

    path: Path
    number: int
    at: int = max(1, mmap.PAGESIZE // PAGE)
    """Page that was not looked at yet; the first ones are one page of the system."""
    open: list[int] = field(default_factory=list)
    """Pages of blocks that are still written to, and of copies that don't count yet."""
    head: ProcessHead | None = None
    maps: bytes = b""
    """As they were when blocks were taken last."""


class Collector:
    """Moves blocks from the spool files into the trace file."""

    def __init__(self, folder: Path, writer: Writer, stopped: Callable[[int, int], None]):
        """stopped is told once of each process whose recording ended before it, and for which errno value."""
        self.folder, self.writer, self.stopped = folder, writer, stopped
        self.spools: dict[Path, Spool] = {}
        self.numbers = itertools.count()
        self.processes = 0
        self.room = memoryview(bytearray((FRAME_PAGES + BLOCK_MOST) * PAGE))
        self.lock, self.hurry = threading.Lock(), False
        self.failed: OSError | None = None

    def collect(self, last: bool = False) -> None:
        """last: nobody writes any more, so also what is not full."""
        self.hurry = True
        with self.lock:
            self.hurry = False
            self._checked(last)

    def idle(self, gives_way: Callable[[], bool]) -> None:
        """The same, but stops where somebody else collects and, of processes that run, where that says so: what is not
        done waits for the next time."""
        with self.lock:
            self._checked(False, gives_way)

    def waiting(self) -> int:
        """Bytes on the disk."""
        found = 0
        for path in self.folder.glob("*.spool"):
            with contextlib.suppress(FileNotFoundError):  # taken up whole
                found += path.stat().st_blocks * 512
        return found

    def check(self) -> None:
        if self.failed:
            raise self.failed

    def _checked(self, last: bool, gives_way: Callable[[], bool] = lambda: False) -> None:
        """Once it has failed nothing is added: the last frame may not be whole."""
        self.check()
        try:
            self._collect(last, gives_way)
        except OSError as error:
            self.failed = error
            raise

    def _collect(self, last: bool, gives_way: Callable[[], bool]) -> None:
        for path in sorted(self.folder.glob("*.spool")):
            if path not in self.spools:
                self.spools[path] = Spool(path, next(self.numbers))
            spool = self.spools[path]
            over = last or _is_over(spool)  # before it is read: then that was all
            if spool.head and not over and gives_way():
                continue
            with path.open("r+b", buffering=0) as file:
                self._take(spool, file.fileno(), over, gives_way)
            if self.hurry:
                return
            if over:
                self._maps(spool)
            if over and not last:  # a build has thousands: those that have ended are not looked at again
                del self.spools[path]
                path.unlink()
                path.with_suffix(".maps").unlink(missing_ok=True)

    def _take(self, spool: Spool, file: int, last: bool, gives_way: Callable[[], bool]) -> None:
        size = os.fstat(file).st_size // PAGE
        first = os.pread(file, PAGE, 0)
        head = ProcessHead.parse(first, spool.path)
        if not head:
            return
        self.processes += spool.head is None
        stopped = head.stopped and not (spool.head and spool.head.stopped)
        if spool.head is None or last:
            self.writer.frame(PROCESS, spool.number, first)
        spool.head = head
        pages = min(head.pages, size)
        taken: list[tuple[int, int]] = []

        def is_over(block: BlockHead) -> bool:
            return (last or block.state == FULL) and block.counts(lambda page: _block(file, page))

        waiting = []
        for page in spool.open:
            block = _block(file, page)
            (taken if block and is_over(block) else waiting).append((page, block.pages if block else 1))
        spool.open = [page for page, _ in waiting]
        while spool.at < pages:
            block = _block(file, spool.at)
            if block is None and not last:
                break  # claimed, and not begun
            if block and spool.at + block.pages <= size:
                if is_over(block):
                    taken.append((spool.at, block.pages))
                else:
                    spool.open.append(spool.at)
                spool.at += block.pages
            elif block and not last:
                break
            else:
                spool.at += 1
        if taken and head.stacks and not last:
            spool.maps = _maps_of(head.process) or spool.maps
        is_narrow = shutil.disk_usage(self.folder).free < NARROW
        for frame in _frames(taken, 1 if is_narrow else FRAME_PAGES):
            if self.hurry or (not last and gives_way()):
                spool.open += [page for page, _ in frame]
                continue
            self.writer.frame(BLOCKS, spool.number, self._read(file, frame))
            for page, count in _joined(frame) if not last else ():  # some may still write, after Ctrl-C
                _libc.fallocate(file, PUNCH_HOLE, ctypes.c_long(page * PAGE), ctypes.c_long(count * PAGE))
        if stopped:  # and what was recorded by then has found its place
            self.stopped(head.process, head.stopped)

    def _read(self, file: int, frame: list[tuple[int, int]]) -> memoryview:
        at = 0
        for page, pages in _joined(frame):
            at += os.preadv(file, [self.room[at : at + pages * PAGE]], page * PAGE)
        return self.room[:at]

    def _maps(self, spool: Spool) -> None:
        file = spool.path.with_suffix(".maps")
        maps = file.read_bytes() if file.exists() else spool.maps
        if maps and spool.head:
            self.writer.frame(MAPS, spool.number, maps)


def _block(file: int, page: int) -> BlockHead | None:
    return BlockHead.parse(os.pread(file, BLOCK_HEAD.size, page * PAGE), 0)


def _frames(blocks: list[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    """Blocks, as first page and pages, for each frame: one ends with the block that brings it to so many pages."""
    frame: list[tuple[int, int]] = []
    for block in blocks:
        frame.append(block)
        if sum(pages for _, pages in frame) >= most:
            yield frame
            frame = []
    if frame:
        yield frame


def _joined(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where one goes on from the one before, they are one."""
    found: list[tuple[int, int]] = []
    for page, pages in blocks:
        if found and sum(found[-1]) == page:
            found[-1] = (found[-1][0], found[-1][1] + pages)
        else:
            found.append((page, pages))
    return found


def _is_over(spool: Spool) -> bool:
    """Has its process ended? That has another number in a namespace of its own, so that the kernel is asked as well:
    it gives no lease of a file that somebody has open for writing, or mapped."""
    if not spool.head or Path(f"/proc/{spool.head.process}").exists():
        return False
    with spool.path.open("rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:  # or here it gives none at all
            return False
    return True


def _maps_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/maps").read_bytes()
    except OSError:  # it has ended
        return b""


def _adopt() -> None:
    """Processes that the program leaves behind become our children."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap(program: int = 0) -> None:
    """Forgets children that have ended: to whoever started one it would be there for ever. Not the program
    itself, whose status is wanted."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == program:
                break
            os.waitpid(ended.si_pid, 0)


def _children() -> int:
    """How many there are."""
    _reap()
    found = 0
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread of ours that ends, which has none
            found += len(path.read_text().split())
    return found


class End(threading.Thread):
    """Waits for the end of the program, so that it is noticed at once, and not when its blocks are looked at again."""

    def __init__(self, program: subprocess.Popen):
        super().__init__(daemon=True)
        self.program, self.at = program, 0.0

    def run(self) -> None:
        self.program.wait()
        self.at = time.monotonic()


class Spare:
    """Whether a processor had little to do lately, but for what this thread did."""

    PART = 0.75

    def __init__(self, counts: Path = Path("/proc/stat")) -> None:
        self.counts = counts
        self.is_there, self.seen = False, self._look()

    def _look(self) -> tuple[float, float]:
        """Now, and seconds that processors had nothing to do or had us."""
        try:
            words = self.counts.read_text().split(maxsplit=6)  # cpu, user, nice, system, idle, iowait
            idle = (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            idle = time.monotonic()  # it doesn't say
        return time.monotonic(), idle + time.thread_time()

    def look(self) -> bool:
        now, spare = self._look()
        passed = now - self.seen[0]
        if passed >= POLL_S:  # the system counts in hundredths
            self.is_there, self.seen = spare - self.seen[1] > self.PART * passed, (now, spare)
        return self.is_there


class Idler(threading.Thread):
    """Collects while the program runs, where nobody else wants the processor: the program and those who talk to it
    come first. The scheduler alone does not see to that: threads that wait for each other give way for a moment, and
    come back to a processor that is not as they left it."""

    def __init__(self, collector: Collector):
        super().__init__(daemon=True)
        self.collector, self.over = collector, threading.Event()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # of this thread
        spare = Spare()
        with contextlib.suppress(OSError):  # the collector knows
            while not self.over.wait(POLL_S):
                self.collector.idle(lambda: not spare.look())


@dataclass(frozen=True)
class Recorded:
    status: int
    """As subprocess has it: minus the signal, if one ended the program."""
    processes: int
    file: int
    """Bytes."""


def record(
    path: str,
    arguments: list[str],
    output: Path,
    library: Path,
    *,
    environment: dict[str, str],
    stacks: bool = False,
    left_behind: Callable[[int], None] = lambda count: None,
    stopped: Callable[[int, int], None] = lambda process, why: None,
    missed: Callable[[str], None] = lambda why: None,
    keep: Callable[[], None] = lambda: None,
) -> Recorded:
    """Runs the program to its end and writes its trace, which is known to be writable. Signals are the program's, not
    ours. `missed` is told why one of the processes is not recorded; `keep` is called when the program has started,
    before there is a new trace."""
    spool = Path(f"{output.resolve()}.spool")
    preload = ":".join(filter(None, [str(library), environment.get("LD_PRELOAD", "")]))
    environment = {**environment, "LD_PRELOAD": preload, "MASU_RECORD": str(spool)}
    if stacks:
        environment["MASU_RECORD_STACKS"] = "1"

    def start(in_child: Callable[[], object]) -> subprocess.Popen:
        def popen(file: str, words: list[str], variables: dict[str, str]) -> subprocess.Popen:
            return subprocess.Popen(words, executable=file, env=variables, close_fds=False, preexec_fn=in_child)

        _make(spool)  # not before: Ctrl-C is the program's by now, and can't leave it behind
        try:
            return execute(path, arguments, environment, popen)
        except OSError as error:
            spool.rmdir()
            raise NotRunnable(f"{arguments[0]}: {error.strerror}", CANNOT_EXECUTE) from None

    _adopt()
    with passed_on(start) as program:
        began = time.monotonic()  # it executes its file
        try:
            # Not before: if it hadn't started, the trace of another run would be lost.
            keep()
            collector = Collector(spool, Writer(output), stopped)
            at = _collected(collector, program, Watch(library, missed))
            _wait_for_the_rest(collector, left_behind)
            collector.collect(last=True)
            collector.writer.end({"processes": collector.processes, "status": program.returncode, "seconds": at - began})
        except OSError as error:
            program.wait()
            raise Problem(f"{output}: {error.strerror}; what was recorded since is in {spool}") from None
        _remove(spool)
    return Recorded(program.returncode, collector.processes, output.stat().st_size)


def _collected(collector: Collector, program: subprocess.Popen, watch: Watch) -> float:
    """As long as the program runs; when it ended."""
    end, idler = End(program), Idler(collector)
    most_waiting = min(MOST_WAITING, PART_WAITING * shutil.disk_usage(collector.folder).free)
    end.start()
    idler.start()
    while end.is_alive():
        collector.check()
        _reap(program.pid)
        if collector.waiting() > most_waiting:
            collector.collect()
        watch.look()
        end.join(POLL_S)
    idler.over.set()
    collector.collect()
    idler.join()
    return end.at


def kept(output: Path) -> Path | None:
    """Gives the trace that has this name a number, so that it is there yet; None: there is none."""
    if not output.exists():
        return None
    numbered = (output.with_name(f"{output.stem}.{n}{output.suffix}") for n in itertools.count(1))
    return output.rename(next(path for path in numbered if not path.exists()))


def _make(spool: Path) -> None:
    try:
        spool.mkdir(mode=0o700)
    except FileExistsError:
        raise Problem(f"{spool} is there already: another recording, or what one that was killed left") from None
    except OSError as error:
        raise Problem(f"{spool}: {error.strerror}") from None


def _remove(spool: Path) -> None:
    """Processes that go on after Ctrl-C may make files in it: first it is moved to where they
    don't look."""
    shutil.rmtree(spool.rename(f"{spool}-{time.time_ns()}"), ignore_errors=True)


def _wait_for_the_rest(collector: Collector, left_behind: Callable[[int], None]) -> None:
    """Processes that the program left behind are recorded to their end, or to Ctrl-C."""
    told = False
    interrupted: list[int] = []
    before = {n: signal.signal(n, lambda *_: interrupted.append(1)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        since = time.monotonic()
        while not interrupted and (count := _children()):
            if not told and time.monotonic() - since > 1:
                left_behind(count)
                told = True
            time.sleep(POLL_S)
            collector.collect()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
