"""What they observe: programs that do little but allocate, and others. Each has a long input, for what samples,
and a short one, for what looks at every allocation. The recorder gets one that takes seconds: else what is
measured of it is mostly how it starts and ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from masu.bench import cases
from masu.bench import programs as inputs
from masu.messages import Problem


@dataclass(frozen=True)
class Program:
    name: str
    long: tuple[str, ...]
    short: tuple[str, ...]
    allocates: bool = False
    """It does little else."""
    answers: bool = True
    """What it prints has to be the same with and without an observer."""
    threads: bool = False
    """More than one; else a run can stay on one processor."""
    python: bool = False
    recorded: tuple[str, ...] = ()
    """For the recorder; else the long input lasts."""
    requests: dict[str, int] = field(default_factory=dict)
    """A server, and its load for each input."""
    timed: bool = False
    """It prints the CPU time of what it times, `cpu_ns`: that has the limit, without how the process starts and ends."""
    in_turns: bool = False
    """What has a limit runs one after the other on all processors, not at once on one."""
    quick: bool = False
    missing: str = ""

    def words(self, input_: str) -> tuple[str, ...]:
        """input_: as Contender.input has it."""
        return {"long": self.long, "recorded": self.recorded or self.long, "short": self.short}[input_]


def found(workloads: Path, made: Path) -> list[Program]:
    """Their inputs are made in that folder."""
    made.mkdir(parents=True, exist_ok=True)
    return [*_that_allocate(workloads), *_others(made)]


DO_MORE = ("real programs", "indexer", "numeric solver", "false sharing")
"""The families of the benchmark's cases that do more than allocate."""


TIMED = ("single_size", "batch", "hakmem_memory", "larson_like")
"""Workloads that last for milliseconds and print `cpu_ns`: what a process pays once is most of what they pay."""


IN_TURNS = ("larson",)
"""Cases whose threads start their successors and end. Where they share a processor some nine are alive at once, each with a
heap, instead of three: as the scheduler has it, so rounds differ three times as much, and the more of them the longer each
takes."""


def cases_of_the_benchmark(workloads: Path, made: Path) -> list[Program]:
    """As it runs them, but those that mostly wait, traces, and a server with its clients."""
    made.mkdir(parents=True, exist_ok=True)
    inputs.generate(made)
    return [_case(case, _words(case, workloads, made)) for case in cases.ALL if not (case.trace or case.waits or case.starts)]


def _case(case: cases.Case, words: tuple[str, ...]) -> Program:
    return Program(
        case.name, words, (), allocates=case.family not in DO_MORE, answers=False, threads=not case.cores,
        timed=case.command[0] in TIMED, in_turns=case.name in IN_TURNS, missing=case.missing() and f"{case.missing()} is not installed",
    )  # fmt: skip


def _words(case: cases.Case, workloads: Path, made: Path) -> tuple[str, ...]:
    first, *others = (word.format(made=made) for word in case.command)
    return (first if case.program else str(workloads / first), *others)


def _that_allocate(folder: Path) -> list[Program]:
    """Each checks what it finds in its blocks."""

    def workload(name: str, long: str, short: str, **more) -> Program:
        program = str(folder / name)
        return Program(name.replace("_", "-"), (program, *long.split()), (program, *short.split()), True, False, **more)

    return [
        workload("pairs", "64 lifo100 100000000", "64 lifo100 400000"),
        workload("kmalloc_round", "3000", "30", quick=True),
        workload("stackprobe", "throughput 5000000", "throughput 300000", quick=True),
        workload("random_sizes", "2 8000 10000000", "2 8000 150000", threads=True),
        workload("larson_like", "2 40 500000", "2 4 40000", threads=True),
        workload("xmalloc", "2 2 80000", "2 2 1500", threads=True),
        workload("threadtest", "2 1500", "2 8", threads=True),
    ]


def _others(made: Path) -> list[Program]:
    """Their answers have to be the same with and without an observer. Inputs: long, short, recorded."""

    def each(name: str, inputs_: list[str], *words: str, **more) -> Program:
        long, short, recorded = ((*words, input_) for input_ in inputs_)
        return Program(name, long, short, recorded=recorded, **more)

    lua, sqlite, cc1 = shutil.which("lua5.4"), shutil.which("sqlite3"), _cc1()
    functions = (120, 8, 400)
    for n in functions:
        (made / f"much-{n}.c").write_text("".join(inputs.functions(n)))
    python = [_made(made, "objects.py", "range(12)", f"range({n})") for n in (12, 1, 60)]
    script = [_made(made, "objects.lua", "round = 1, 12", f"round = 1, {n}") for n in (12, 1, 40)]
    speed = [_made(made, "speed.sql", "i < 150000", f"i < {n}") for n in (50000, 4000, 250000)]
    holes = [_pigeons(made, n) for n in (8, 6, 10)]
    server = "" if shutil.which("redis-server") and shutil.which("redis-benchmark") else "redis is not installed"
    return [
        each("python", python, sys.executable, python=True, quick=True),
        each("lua", script, "lua5.4", missing="" if lua else "lua5.4 is not installed"),
        each("sqlite", [f".read {file}" for file in speed], "sqlite3", ":memory:", quick=True,
             missing="" if sqlite else "sqlite3 is not installed"),
        each("cc1", [str(made / f"much-{n}.c") for n in functions], cc1, "-quiet", "-O2", "-o", "-",
             missing="" if cc1 else "there is no cc1"),
        each("z3", holes, "z3", missing="" if shutil.which("z3") else "z3 is not installed"),
        Program("redis", (), (), requests={"long": 40000, "short": 2000, "recorded": 400000}, missing=server),
    ]  # fmt: skip


def _made(folder: Path, name: str, before: str, after: str) -> str:
    """That script, with less to do, or more."""
    text = (inputs.HERE / name).read_text()
    if before not in text:
        raise Problem(f"{name} no longer has '{before}'")
    path = folder / f"{Path(name).stem}-{''.join(c for c in after if c.isdigit())}{Path(name).suffix}"
    path.write_text(text.replace(before, after))
    return str(path)


def _pigeons(folder: Path, holes: int) -> str:
    path = folder / f"pigeons-{holes}.smt2"
    path.write_text("\n".join(inputs.pigeons(holes)) + "\n(check-sat)\n")
    return str(path)


def _cc1() -> str:
    """Itself, and not the driver that starts it."""
    compiler = shutil.which("gcc")
    said = compiler and subprocess.run([compiler, "-print-prog-name=cc1"], capture_output=True, text=True, check=False).stdout
    return (said and shutil.which(said.strip())) or ""
