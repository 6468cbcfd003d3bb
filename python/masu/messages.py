"""One-line messages on stderr, and the exit statuses that shells use."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

MASU_FAILED = 125  # masu itself, as in env(1) and timeout(1)
CANNOT_EXECUTE = 126
NOT_FOUND = 127


class Problem(Exception):
    """Something the user has to know, and nothing else: shown as one line."""


def say(text: str) -> None:
    _line("", "", text)


def warn(text: str) -> None:
    _line("warning", "yellow", text)


def fail(text: str, status: int) -> NoReturn:
    _line("error", "red", text)
    sys.exit(status)


def writable_or_fail(path: Path) -> None:
    """Said at the start, and not when all is measured."""
    new = not path.exists()
    try:
        path.open("ab").close()
        if new:
            Path(os.path.realpath(path)).unlink()  # and not a link that leads there
    except OSError as error:
        fail(f"{path}: {error.strerror}", MASU_FAILED)


def write_or_fail(*results: tuple[Path, str]) -> None:
    """At the end: by then a disk may be full. What can be written is, and the rest is named."""
    failed = False
    for path, text in results:
        try:
            path.write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            _line("error", "red", f"{path}: {error.strerror}")
            failed = True
    if failed:
        sys.exit(MASU_FAILED)


@contextlib.contextmanager
def failures_said(command: str) -> Iterator[None]:
    """What goes wrong inside ends the command, with one line; so does Ctrl-C."""
    try:
        yield
    except Problem as problem:
        fail(f"{command}: {problem}", MASU_FAILED)
    except BrokenPipeError:
        raise  # whoever reads our output has enough; click ends quietly
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{command}: {where}{error.strerror or error}", MASU_FAILED)
    except KeyboardInterrupt:
        say(f"{command}: interrupted")
        raise SystemExit(130) from None


def _line(kind: str, colour: str, text: str) -> None:
    import click  # late: what reads traces runs without it

    said = f"{click.style(kind, fg=colour, bold=True)}: {text}" if kind else text
    click.echo(f"masu: {said}", err=True, color=False if os.environ.get("NO_COLOR") else None)
