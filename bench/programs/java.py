"""A Java program: threads, garbage collection, and memory outside the heap."""

from __future__ import annotations

from .harness import FILES, Program, Run


def run_java(run: Run) -> None:
    run.command("javac", "-d", ".", FILES / "Work.java")
    for collector in ("G1", "Parallel"):
        usage = run.command("java", f"-XX:+Use{collector}GC", "-Xmx256m", "-cp", ".", "Work")
        run.record(f"answers, {collector}", usage.output.strip())


PROGRAMS = (
    Program(
        "java",
        "javac, then a program with threads, zip, direct buffers and maps on two collectors; digests compared",
        packages=("default-jdk-headless",),
        probe=("java", "-version"),
        run=run_java,
    ),
)
