"""What every program here is run with: folders, measured commands, servers, results."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from masu.measuring.measure import SYSTEM, Allocator, Usage, clean_environment, launcher, measure
from masu.messages import Problem

FILES = Path(__file__).resolve().parent / "files"
PROJECT = FILES.parent.parent.parent
SHARED = PROJECT / "python/masu/bench/programs"
"""Inputs that the benchmark uses as well."""
Word = str | os.PathLike[str]


@dataclass(frozen=True)
class Program:
    """A real program, and work for it with a result that can be compared."""

    name: str
    about: str
    packages: tuple[str, ...]
    """Debian packages that it needs."""
    probe: tuple[str, ...]
    """A command of it that ends at once, to prove that its malloc is the one that was preloaded."""
    run: Callable[[Run], None]
    prepare: Callable[[Path], None] | None = None
    """Fills a folder that is kept; called when that folder is missing."""
    quick: bool = False


@dataclass
class Run:
    """One program on one allocator."""

    allocator: Allocator
    folder: Path
    """Empty, and at the same place for every allocator: some results contain paths."""
    prepared: Path
    results: dict[str, str] = field(default_factory=dict)
    wall_s: float = 0
    peak_rss_kib: int = 0

    def command(
        self, *words: Word, environment: dict[str, str] | None = None, timeout: float = 600, may_fail: bool = False
    ) -> Usage:
        """Runs a command of the program to its end; time and memory are added up."""
        usage = measure(list(words), self.allocator, environment=environment, folder=self.folder, timeout=timeout)
        self.wall_s += usage.wall_s
        self.peak_rss_kib = max(self.peak_rss_kib, usage.peak_rss_kib)
        check_loaded(self.allocator, usage.errors)
        if usage.status and not may_fail:
            raise Problem(f"{shown(words)} ended with {ending(usage.status)}:\n{tail(usage.errors or usage.output)}")
        return usage

    def record(self, name: str, value: object) -> None:
        """A part of the result: has to be the same on every allocator."""
        self.results[name] = str(value)

    def record_digest(self, name: str, data: bytes | str | Path) -> None:
        self.record(name, digest(data))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Work that a client does with a server of this run."""
        start = time.monotonic()
        yield
        self.wall_s += time.monotonic() - start

    @contextmanager
    def server(
        self, *words: Word, environment: dict[str, str] | None = None, stop: int = signal.SIGTERM
    ) -> Iterator[Server]:
        """Starts a server, proves what it runs on, and ends it by the signal `stop`."""
        server = Server(self, words, clean_environment(SYSTEM, environment))
        try:
            yield server
            server.stop(stop)
        except Problem as problem:
            raise Problem(f"{problem}\n{tail(server.log())}") from None
        finally:
            server.kill()


class Server:
    """A running server, started through the launcher that measures it."""

    def __init__(self, run: Run, words: Sequence[Word], environment: dict[str, str]) -> None:
        self.run = run
        self.name = Path(words[0]).name
        self._usage = run.folder / f"{self.name}.usage"
        self._log = run.folder / f"{self.name}.log"
        self._usage.unlink(missing_ok=True)
        settings = [f"{k}={v}" for k, v in run.allocator.environment().items()]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [launcher(), self._usage, *settings, "--", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=run.folder,
                env=environment,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        wait_until(lambda: self._usage.exists() and self._usage.read_text().endswith("\n"), 10, f"{self.name} starts")
        return int(self._usage.read_text().splitlines()[0])

    def wait_for(self, ready: Callable[[], bool], what: str, timeout: float = 30) -> None:
        def check() -> bool:
            if self.process.poll() is not None:
                raise Problem(f"{self.name} ended while waiting until {what}")
            return ready()

        wait_until(check, timeout, f"{self.name}: {what}")

    def wait_port(self, port: int) -> None:
        self.wait_for(lambda: port_open(port), f"it listens on port {port}")
        library = self.run.allocator.library
        if library and str(library) not in Path(f"/proc/{self.pid}/maps").read_text():
            raise Problem(f"{self.name} runs without {library}")

    def stop(self, by: int, timeout: float = 60) -> Usage:
        os.kill(self.pid, by)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Problem(f"{self.name} did not end within {timeout:.0f} s of {signal.Signals(by).name}") from None
        usage = Usage.read(self._usage.read_text() if self._usage.exists() else "")
        self.run.peak_rss_kib = max(self.run.peak_rss_kib, usage.peak_rss_kib)
        check_loaded(self.run.allocator, self.log())
        if usage.status not in (0, -by):
            raise Problem(f"{self.name} ended with {ending(usage.status)}")
        return usage

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


# ---- Proof of what a program runs on ----


def check_loaded(allocator: Allocator, errors: str) -> None:
    if allocator.library and "cannot be preloaded" in errors:
        raise Problem(f"the loader refused {allocator.library}:\n{tail(errors)}")


def prove(program: Program, allocator: Allocator, folder: Path) -> None:
    """Asks the loader where the program and its libraries find malloc: in the allocator, all of them."""
    environment = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(folder / "bindings"), "LD_BIND_NOW": "1"}
    subprocess.run(
        program.probe,
        env={**clean_environment(allocator), **environment},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    bound: set[tuple[str, str]] = set()
    for log in folder.glob("bindings.*"):
        text = log.read_text(errors="replace")
        bound |= set(re.findall(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `malloc'", text))
        log.unlink()
    # A program at a fixed address lends its own entry for malloc to libraries, and is bound itself.
    library = str(allocator.library)
    elsewhere = {to for _, to in bound if to != library and (to, library) not in bound}
    if elsewhere or not bound:
        where = ", ".join(sorted(elsewhere)) or "nothing"
        raise Problem(f"{program.probe[0]} finds malloc in {where}, not in {library}")


# ---- Small things ----


def digest(data: bytes | str | Path) -> str:
    if isinstance(data, Path):
        data = data.read_bytes()
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def shown(words: Sequence[Word]) -> str:
    text = " ".join(str(w) for w in words)
    return text if len(text) < 200 else text[:200] + " ..."


def tail(text: str, lines: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


def ending(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def port_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def wait_until(ready: Callable[[], bool], timeout: float, what: str) -> None:
    end = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > end:
            raise Problem(f"waited {timeout:.0f} s in vain: {what}")
        time.sleep(0.02)


def quietly(*words: Word, folder: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """A command that is not under test: a client, or preparation."""
    env = clean_environment(SYSTEM, environment)
    done = subprocess.run(
        [str(w) for w in words],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=600,
        errors="replace",
    )
    if done.returncode:
        raise Problem(f"{shown(words)} ended with {ending(done.returncode)}:\n{tail(done.stderr or done.stdout)}")
    return done.stdout


def download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


def unpack(archive: bytes, into: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        # The filter that refuses paths which lead elsewhere came with Python 3.11.4.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        tar.extractall(into)


def as_user(name: str) -> tuple[str, ...]:
    """Words before a command that must not run as root."""
    if os.geteuid():
        return ()
    return ("setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups")


def empty_folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path
