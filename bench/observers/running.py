"""One run of a program under one contender."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from masu import pprof, profile, trace
from masu.measuring.measure import SYSTEM, clean_environment, measure
from masu.messages import Problem
from masu.reach import family

from observers.contenders import Contender

TIMEOUT_S = 300
POLL_S = 0.02
CPU_CLOCK = 2
"""Of a process: the kernel's CPUCLOCK_SCHED, in ns."""


@dataclass(frozen=True)
class Run:
    seconds: float
    """Of the program from start to end; of a server, of its load."""
    whole: float
    """Of the whole command: what starts before the program and goes on behind it counts too."""
    peak_kib: int
    """Of the program's process; with its helpers' where the contender has some."""
    status: int
    output: str
    errors: str
    cpu: float = 0
    """Seconds, of the program's process."""
    own: float = 0
    """Of these what its profiler says that it took; 0: it doesn't say."""


class Watch(threading.Thread):
    """The most that the descendants of a process had at their peaks together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_kib, self.process = 0, 0
        self.ended = threading.Event()

    def started(self, process: int) -> None:
        self.process = process
        self.start()

    def run(self) -> None:
        while not self.ended.is_set():
            self.peak_kib = max(self.peak_kib, sum(peak_kib(p) for p in family(self.process)[1:]))
            self.ended.wait(POLL_S)


def peak_kib(process: int) -> int:
    with contextlib.suppress(OSError):  # it has ended
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


@contextlib.contextmanager
def on_one_processor() -> Iterator[None]:
    """The last one: what this thread starts meanwhile, and itself."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run(words: tuple[str, ...], contender: Contender, folder: Path, pinned: bool = False) -> Run:
    """pinned: on one processor."""
    watch = Watch() if contender.helpers else None
    try:
        with on_one_processor() if pinned else contextlib.nullcontext():
            usage = measure(
                contender.command(words, folder), contender.allocator(folder),
                folder=folder, timeout=TIMEOUT_S, started=watch and watch.started,
            )  # fmt: skip
    finally:
        if watch:
            watch.ended.set()
    peak = max(usage.peak_rss_kib, watch.peak_kib if watch else 0)
    return Run(
        _own_seconds(contender, folder) or usage.wall_s, usage.wall_s, peak, usage.status, usage.output, usage.errors,
        usage.user_s + usage.system_s, _own_part(contender, folder),
    )  # fmt: skip


def _own_seconds(contender: Contender, folder: Path) -> float:
    """Of the program, as the recorder says; 0: it doesn't."""
    if not contender.records or not contender.writes:
        return 0
    with contextlib.suppress(Problem):  # it wrote none, which is told behind
        return max((float(trace.read(path).summary.get("seconds", 0)) for path in folder.glob(contender.writes)), default=0)
    return 0


def _own_part(contender: Contender, folder: Path) -> float:
    """Of the newest file of a profiler of masu's, which can't count what that one takes itself."""
    found = [pprof.read(path) for path in folder.glob(contender.writes)] if contender.says_own else []
    return max((profile.heap(one).took for one in found), default=0)


def cpu_seconds(process: int) -> float:
    """Of all its threads so far, as its clock says (clock_getcpuclockid(3)); /proc/PID/stat counts in ticks of 10 ms."""
    with contextlib.suppress(OSError):  # it has ended
        return time.clock_gettime(~process << 3 | CPU_CLOCK)
    return 0


def checked(contender: Contender, done: Run, folder: Path) -> Run:
    """It ended well, and the observer was there."""
    if "cannot be preloaded" in done.errors:
        raise Problem(done.errors.strip().splitlines()[0])
    if done.status:
        said = (done.errors.strip() or done.output.strip()).splitlines()
        how = f"exit status {done.status}" if done.status > 0 else f"signal {-done.status}"
        raise Problem(f"{how}: {said[-1][:200]}" if said else how)
    if contender.writes and not any(path.stat().st_size for path in folder.glob(contender.writes)):
        raise Problem(f"it wrote no {contender.writes}: it was not on")
    return done


def timed_cpu(done: Run) -> float:
    """Seconds of CPU time of what the program times, as it says in its last line."""
    try:
        return json.loads(done.output.splitlines()[-1])["cpu_ns"] / 1e9
    except (IndexError, ValueError, KeyError, TypeError):
        raise Problem("it does not say the CPU time of what it times, cpu_ns") from None


# ---- A server ----

COMMANDS = "set,get,incr,lpush,lpop,sadd,hset,spop,zadd,zpopmin"
"""What is pushed is popped, and keys are few: it grows no more than its warm-up."""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as s:
            s.sendall(b"PING\r\n")
            return s.recv(16).startswith(b"+PONG")
    except OSError:
        return False


class Redis:
    """A server under a contender; the clients run on the system's allocator."""

    def __init__(self, contender: Contender, folder: Path):
        self.contender, self.folder, self.port = contender, folder, free_port()
        words = ("redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", str(folder))
        self.log = (folder / "server.log").open("w+")
        self.process = subprocess.Popen(
            contender.command(words, folder), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env=clean_environment(contender.allocator(folder)), cwd=folder,
        )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() > until:
                raise Problem(f"redis-server does not answer: {(self.folder / 'server.log').read_text().strip()[-200:]}")
            time.sleep(0.01)

    def load(self, requests: int, size: int = 200, keys: int = 20000, commands: str = COMMANDS) -> float:
        """So many requests of each command; returns seconds."""
        words = ["redis-benchmark", "-p", str(self.port), "-q", "--csv", "-P", "16", "-c", "20", "-n", str(requests)]
        words += ["-r", str(keys), "-d", str(size), "-t", commands]
        start = time.monotonic()
        done = subprocess.run(words, env=clean_environment(SYSTEM), capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
        if done.returncode or "rror" in done.stdout + done.stderr:
            raise Problem(f"redis-benchmark: {(done.stderr or done.stdout).strip()[-200:]}")
        return seconds

    def peak_kib(self) -> int:
        return sum(peak_kib(p) for p in family(self.process.pid))

    def stop(self) -> int:
        """It ends by itself, so that whoever observes it writes what there is to write."""
        words = ["redis-cli", "-p", str(self.port), "shutdown", "nosave"]
        subprocess.run(words, env=clean_environment(SYSTEM), capture_output=True, check=False)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Problem("redis-server does not end") from None
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            for process in reversed(family(self.process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.process.wait()
        self.log.close()


def serve(requests: int, contender: Contender, folder: Path, pinned: bool = False) -> Run:
    """pinned: the server, not its clients."""
    with on_one_processor() if pinned else contextlib.nullcontext():
        server = Redis(contender, folder)
    try:
        seconds = server.load(requests)
        peak, cpu = server.peak_kib(), cpu_seconds(server.process.pid)
        status = server.stop()
    finally:
        server.kill()
    return replace(run_of(server, status, seconds, peak), cpu=cpu, own=_own_part(contender, folder))


def run_of(server: Redis, status: int, seconds: float = 0, peak: int = 0) -> Run:
    return Run(seconds, seconds, peak, status, "", (server.folder / "server.log").read_text())

