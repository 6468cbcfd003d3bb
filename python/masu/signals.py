"""Signals while masu waits for a program that it runs, as a shell does: what the terminal sends, it sends to the
program itself; what is sent to masu is passed on."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)

Start = Callable[[Callable[[], object]], subprocess.Popen]
"""Starts the program. What it is given is to be called in the new process, before it becomes the program."""


@contextlib.contextmanager
def passed_on(start: Start) -> Iterator[subprocess.Popen]:
    """To the program that start starts, until the end of `with`."""
    started: list[subprocess.Popen] = []
    before = {n: signal.signal(n, signal.SIG_IGN) for n in OF_THE_TERMINAL}
    for number in FORWARDED:
        before[number] = signal.getsignal(number)
        if before[number] != signal.SIG_IGN:
            signal.signal(number, lambda n, _: started and started[0].send_signal(n))
    try:
        started.append(start(lambda: [signal.signal(n, handler) for n, handler in before.items()]))
        yield started[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
