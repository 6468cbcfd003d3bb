"""masu top"""

from __future__ import annotations

import sys

import click

from masu.help import Command
from masu.messages import MASU_FAILED, fail


@click.command(cls=Command, example="masu top $(pidof redis-server)")
@click.argument("pid", type=int, required=False)
def top(pid: int | None) -> None:
    """Shows process PID while it runs: live and resident memory over time, rates, size classes,
    threads, named heaps, and the call sites that keep most while the heap profiler runs. Without PID, the process that shows its figures. It runs on masu with
    the option live. The key p gives back what it keeps for reuse, and what it prepared by masu_prewarm."""
    from masu import live

    if pid is None:
        pids = live.processes()
        if not pids:
            fail("top: no process of this user shows its figures: masu run --live -- PROGRAM", MASU_FAILED)
        if len(pids) > 1:
            fail(f"top: which one? {', '.join(map(_named, pids))}", MASU_FAILED)
        pid = pids[0]
    try:
        page = live.Page(pid)
        page.read()
    except live.NotLive as why:
        fail(f"top: {why}", MASU_FAILED)

    from masu.top import Top

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail("top: it draws on a terminal and reads its keys; masu stat PID prints the figures once", MASU_FAILED)
    with page:
        why = Top(page).run()
    if why:
        fail(f"top: {why}", MASU_FAILED)


def _named(pid: int) -> str:
    from masu import live

    try:
        with live.Page(pid) as page:
            return f"{pid} {page.program}"
    except live.NotLive:  # it ends just now
        return str(pid)
