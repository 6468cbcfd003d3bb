"""z3 on generated problems."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from masu.bench.programs import pigeons

from .harness import Program, Run


def sudoku() -> Iterator[str]:
    """Integers and `distinct`; few clues, one answer."""
    clues = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."
    cells = [[f"x{r}{c}" for c in range(9)] for r in range(9)]
    for r in range(9):
        for c in range(9):
            yield f"(declare-const {cells[r][c]} Int)(assert (<= 1 {cells[r][c]} 9))"
            if clues[9 * r + c] != ".":
                yield f"(assert (= {cells[r][c]} {clues[9 * r + c]}))"
    groups = [*cells, *zip(*cells, strict=True)]
    groups += [[cells[r + i][c + j] for i in range(3) for j in range(3)] for r in (0, 3, 6) for c in (0, 3, 6)]
    yield from (f"(assert (distinct {' '.join(group)}))" for group in groups)


def factor() -> Iterator[str]:
    """Bit vectors: two factors of a product."""
    yield "(declare-const a (_ BitVec 40))(declare-const b (_ BitVec 40))"
    yield f"(assert (= (bvmul a b) (_ bv{65_537 * 65_539} 40)))"
    yield "(assert (bvult (_ bv1 40) a))(assert (bvult a (_ bv1000000 40)))"
    yield "(assert (bvult (_ bv1 40) b))(assert (bvule a b))(assert (bvult b (_ bv1000000 40)))"


def arrays() -> Iterator[str]:
    """Quantified arrays and linear arithmetic, both answers."""
    yield "(declare-const a (Array Int Int))(declare-const n Int)"
    yield "(assert (> n 20))"
    yield "(assert (forall ((i Int)) (=> (and (<= 0 i) (< i n)) (< (select a i) (select a (+ i 1))))))"
    yield "(assert (>= (select a 0) 5))(assert (< (select a 20) 25))"


def clauses() -> Iterator[str]:
    """Random 3-SAT near the threshold."""
    draw = random.Random(7)
    count = 130
    yield from (f"(declare-const v{i} Bool)" for i in range(count))
    for _ in range(int(4.26 * count)):
        literals = (f"v{i}" if draw.random() < 0.5 else f"(not v{i})" for i in draw.sample(range(count), 3))
        yield f"(assert (or {' '.join(literals)}))"


PROBLEMS = {"pigeons": lambda: pigeons(8), "sudoku": sudoku, "factors": factor, "arrays": arrays, "clauses": clauses}


def write(path: Path, lines: Iterator[str]) -> None:
    path.write_text("\n".join([*lines, "(check-sat)", ""]))


def run_z3(run: Run) -> None:
    for name, problem in PROBLEMS.items():
        write(run.folder / f"{name}.smt2", problem())
        usage = run.command("z3", "-T:300", f"{name}.smt2")
        run.record(name, usage.output.strip())


PROGRAMS = (
    Program(
        "z3",
        f"z3 on {len(PROBLEMS)} problems: {', '.join(PROBLEMS)}; answers compared",
        packages=("z3",),
        probe=("z3", "--version"),
        run=run_z3,
    ),
)
