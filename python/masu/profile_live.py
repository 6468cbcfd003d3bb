"""Heap profiles of running processes, asked for by their live page (docs/live-page.md)."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from masu import live
from masu.profile import load

START = "masu run --live --profile heap"
PATIENCE_S = 60.0
"""A large profile on a slow disk takes its time."""


def take(pid: int) -> tuple[str, object, list[str]]:
    """The program's name, the profile of this moment with names, and the files that were not used for them."""
    with live.Page(pid, START) as page, _folder(pid, page.user) as (outside, inside):
        page.read()  # one that is stopped does not even answer this
        try:
            page.request(live.PROFILE, f"{inside}/heap.pb", PATIENCE_S)
        except live.Refused as refused:
            raise _explained(pid, refused, inside) from None
        profile, others = load(outside / "heap.pb")
        return page.program, profile, others


def sample(pid: int, interval: int) -> str:
    """From now on a sample every so many bytes; 0: none. Returns the program's name."""
    with live.Page(pid, START) as page:
        try:
            page.request(live.SAMPLE, str(interval))
        except live.Refused as refused:
            raise _explained(pid, refused, "") from None
        return page.program


def _explained(pid: int, refused: live.Refused, folder: str) -> live.NotLive:
    if refused.why == errno.ENODATA:
        return live.NotLive(f"process {pid} takes no samples; start it by: {START} -- PROGRAM, "
                            f"or let it begin now: masu profile --live {pid} --start")  # fmt: skip
    if refused.why == errno.EBUSY:
        return live.NotLive(f"process {pid} looks for leaks, so every allocation of it is a sample until that ends")
    if refused.why == errno.ENOSYS:
        return live.NotLive(f"process {pid} runs on an older masu, which does not know this request")
    if folder and refused.why in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOSPC, errno.EROFS):
        return live.NotLive(f"process {pid} can't write to {folder}: {os.strerror(refused.why)}")
    return refused


@contextlib.contextmanager
def _folder(pid: int, user: int) -> Iterator[tuple[Path, str]]:
    """A new one that only the process's user can use: as we reach it, also when the process is gone, and as the
    process does, which may see other files than we."""
    beside, seen_as = _temporary(pid)
    try:
        try:
            made = Path(tempfile.mkdtemp(prefix="masu.", dir=f"/proc/self/fd/{beside}"))
        except OSError as why:
            raise live.NotLive(f"process {pid}: no folder can be made in {seen_as}: {why.strerror}") from None
        try:
            if user != os.geteuid():
                os.chown(made, user, -1)
            yield made, f"{seen_as}/{made.name}"
        finally:
            shutil.rmtree(made, ignore_errors=True)
    finally:
        os.close(beside)


def _temporary(pid: int) -> tuple[int, str]:
    """An open folder for files that don't last, and its path for the process."""
    places = [tempfile.gettempdir(), "/tmp"]
    for path, seen_as in [(f"/proc/{pid}/root{place}", place) for place in places] + [(places[0], places[0])]:
        with contextlib.suppress(OSError):
            return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), seen_as
    raise live.NotLive(f"no folder for files that don't last, such as {places[0]}")
