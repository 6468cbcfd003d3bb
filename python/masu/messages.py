"""One-line messages on stderr, and the exit statuses that shells use."""

import sys
from typing import NoReturn

MASU_FAILED = 125  # masu itself, as in env(1) and timeout(1)
CANNOT_EXECUTE = 126
NOT_FOUND = 127


def warn(text: str) -> None:
    _line("warning", "yellow", text)


def fail(text: str, status: int) -> NoReturn:
    _line("error", "red", text)
    sys.exit(status)


def _line(kind: str, colour: str, text: str) -> None:
    from rich.console import Console  # late: most runs have nothing to say
    from rich.text import Text

    Console(stderr=True, soft_wrap=True, highlight=False).print(
        Text.assemble("masu: ", (kind, f"bold {colour}"), f": {text}")
    )
