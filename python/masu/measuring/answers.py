"""Whether a library is an allocator that answers a program's calls."""

from __future__ import annotations

import subprocess
from pathlib import Path

from masu.measuring.measure import Allocator, clean_environment

PROGRAM = Path(__file__).resolve().parent / "bin" / "answers"


def why_not(allocator: Allocator, *how: str) -> str:
    """Loaded into a program, does it answer malloc there, and well? '' if so."""
    run = subprocess.run(
        [PROGRAM, allocator.library.resolve(), *how],
        env=clean_environment(allocator),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if run.returncode == 0:
        return ""
    said = (run.stdout + run.stderr).strip().splitlines()
    return said[-1] if said else f"ends with {run.returncode}"
