"""Scripts in perl and ruby: strings, hashes, sorting, regular expressions, threads, processes."""

from __future__ import annotations

from .harness import FILES, SHARED, Program, Run


def run_perl(run: Run) -> None:
    run.record("answers", run.command("perl", FILES / "text.pl").output.strip())


def run_ruby(run: Run) -> None:
    run.record("answers", run.command("ruby", SHARED / "objects.rb").output.strip())


PROGRAMS = (
    Program(
        "perl",
        "perl: hashes, sorting, regular expressions, interpreter threads, forks; digests compared",
        packages=("perl",),
        probe=("perl", "--version"),
        run=run_perl,
        quick=True,
    ),
    Program(
        "ruby",
        "ruby: objects, JSON, Marshal, garbage collection, threads, forks; digests compared",
        packages=("ruby",),
        probe=("ruby", "--version"),
        run=run_ruby,
    ),
)
