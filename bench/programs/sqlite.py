"""sqlite3 and a script of the kind of SQLite's own speedtest1."""

from __future__ import annotations

from .harness import SHARED, Program, Run


def run_sqlite(run: Run) -> None:
    for name, database in (("in memory", ":memory:"), ("in a file", "test.db")):
        usage = run.command("sqlite3", "-batch", "-bail", database, f".read {SHARED / 'speed.sql'}")
        run.record(f"answers, {name}", usage.output.strip())


PROGRAMS = (
    Program(
        "sqlite",
        "sqlite3: inserts, indexes, joins, updates, text search, in memory and in a file; answers compared",
        packages=("sqlite3",),
        probe=("sqlite3", "--version"),
        run=run_sqlite,
        quick=True,
    ),
)
