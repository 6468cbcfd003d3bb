"""Real programs, run on masu by preload and on the system allocator: are the results the same?

Each module holds programs of one kind. To add one: write a module with PROGRAMS, name it below.
"""

from __future__ import annotations

from . import cargo, compilers, ghostscript, git, java, nginx, node, postgres, python_suite, redis, scripts, sqlite, z3
from .harness import Program

ALL: tuple[Program, ...] = (
    *python_suite.PROGRAMS,
    *compilers.PROGRAMS,
    *cargo.PROGRAMS,
    *redis.PROGRAMS,
    *postgres.PROGRAMS,
    *nginx.PROGRAMS,
    *sqlite.PROGRAMS,
    *node.PROGRAMS,
    *java.PROGRAMS,
    *git.PROGRAMS,
    *ghostscript.PROGRAMS,
    *z3.PROGRAMS,
    *scripts.PROGRAMS,
)
