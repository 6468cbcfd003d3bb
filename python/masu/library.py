"""libmasu.so, as it lies in this package."""

from pathlib import Path

from masu.messages import MASU_FAILED, fail


def library_path() -> Path:
    path = Path(__file__).resolve().parent / "lib" / "libmasu.so"
    if not path.is_file():
        fail(f"{path} is missing; install the package: pip install .", MASU_FAILED)
    # LD_PRELOAD is a list that both of these separate; there is no way to quote.
    if " " in str(path) or ":" in str(path):
        fail(f"LD_PRELOAD cannot name {path}: it has a space or a colon", MASU_FAILED)
    return path
