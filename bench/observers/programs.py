"""What they observe: programs that do little but allocate, and others. Each has a long input, for what samples,
and a short one, for what looks at every allocation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from masu.bench import programs as inputs
from masu.messages import Problem


@dataclass(frozen=True)
class Program:
    name: str
    long: tuple[str, ...]
    short: tuple[str, ...]
    allocates: bool = False
    """It does little else."""
    python: bool = False
    requests: tuple[int, int] = (0, 0)
    """A server, and its load: long and short."""
    quick: bool = False
    missing: str = ""


def found(workloads: Path, made: Path) -> list[Program]:
    """Their inputs are made in that folder."""
    made.mkdir(parents=True, exist_ok=True)
    return [*_that_allocate(workloads), *_others(made)]


def _that_allocate(folder: Path) -> list[Program]:
    """Each checks what it finds in its blocks."""

    def workload(name: str, long: str, short: str, quick: bool = False) -> Program:
        program = str(folder / name)
        return Program(name.replace("_", "-"), (program, *long.split()), (program, *short.split()), True, quick=quick)

    return [
        workload("pairs", "64 lifo100 100000000", "64 lifo100 400000"),
        workload("kmalloc_round", "3000", "30", quick=True),
        workload("stackprobe", "throughput 5000000", "throughput 300000", quick=True),
        workload("random_sizes", "2 8000 10000000", "2 8000 150000"),
        workload("larson_like", "2 40 500000", "2 4 40000"),
        workload("xmalloc", "2 2 80000", "2 2 1500"),
        workload("threadtest", "2 1500", "2 8"),
    ]


def _others(made: Path) -> list[Program]:
    """Their answers have to be the same with and without an observer."""
    lua, sqlite, cc1 = shutil.which("lua5.4"), shutil.which("sqlite3"), _cc1()
    for functions in (120, 8):
        (made / f"much-{functions}.c").write_text("".join(inputs.functions(functions)))
    compile_ = ("-quiet", "-O2", "-o", "-")
    python = [_made(made, "objects.py", "range(12)", f"range({n})") for n in (4, 1)]
    script = [_made(made, "objects.lua", "round = 1, 12", f"round = 1, {n}") for n in (4, 1)]
    speed = [_made(made, "speed.sql", "i < 150000", f"i < {n}") for n in (50000, 4000)]
    holes = [_pigeons(made, n) for n in (8, 6)]
    server = "" if shutil.which("redis-server") and shutil.which("redis-benchmark") else "redis is not installed"
    return [
        Program("python", (sys.executable, python[0]), (sys.executable, python[1]), python=True, quick=True),
        Program("lua", ("lua5.4", script[0]), ("lua5.4", script[1]), missing="" if lua else "lua5.4 is not installed"),
        Program("sqlite", ("sqlite3", ":memory:", f".read {speed[0]}"), ("sqlite3", ":memory:", f".read {speed[1]}"),
                quick=True, missing="" if sqlite else "sqlite3 is not installed"),
        Program("cc1", (cc1, *compile_, str(made / "much-120.c")), (cc1, *compile_, str(made / "much-8.c")),
                missing="" if cc1 else "there is no cc1"),
        Program("z3", ("z3", holes[0]), ("z3", holes[1]), missing="" if shutil.which("z3") else "z3 is not installed"),
        Program("redis", (), (), requests=(40000, 2000), missing=server),
    ]  # fmt: skip


def _made(folder: Path, name: str, before: str, after: str) -> str:
    """That script, with less to do."""
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
