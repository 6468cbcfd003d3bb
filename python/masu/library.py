"""The libraries, as they lie in this package."""

from pathlib import Path

from masu.messages import MASU_FAILED, fail


def library_path() -> Path:
    return _path("libmasu.so")


def recorder_path() -> Path:
    """masu with a record of every call: src/observe/record.h."""
    return _path("libmasu-record.so")


def _path(name: str) -> Path:
    path = Path(__file__).resolve().parent / "lib" / name
    if not path.is_file():
        fail(f"{path} is missing; install the package: pip install .", MASU_FAILED)
    # LD_PRELOAD is a list that both of these separate; there is no way to quote.
    if " " in str(path) or ":" in str(path):
        fail(f"LD_PRELOAD cannot name {path}: it has a space or a colon", MASU_FAILED)
    return path
