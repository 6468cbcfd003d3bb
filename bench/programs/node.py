"""node with worker threads."""

from __future__ import annotations

from .harness import FILES, Program, Run


def run_node(run: Run) -> None:
    run.record("answers", run.command("node", FILES / "workers.js").output.strip())


PROGRAMS = (
    Program(
        "node",
        "node: six worker threads with JSON, buffers, zlib, crypto, regular expressions; digests compared",
        packages=("nodejs",),
        probe=("node", "--version"),
        run=run_node,
    ),
)
