"""Inputs for the real programs: files beside this one, and what is generated."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def generate(folder: Path) -> None:
    (folder / "pigeons.smt2").write_text("\n".join(pigeons(8)) + "\n(check-sat)\n")
    (folder / "much.c").write_text("".join(functions(400)))


def pigeons(holes: int):
    """More pigeons than holes: unsatisfiable, and hard for resolution."""
    place = [[f"p{i}_{j}" for j in range(holes)] for i in range(holes + 1)]
    yield from (f"(declare-const {p} Bool)" for row in place for p in row)
    yield from (f"(assert (or {' '.join(row)}))" for row in place)
    for j in range(holes):
        for a in range(holes + 1):
            yield from (f"(assert (not (and {place[a][j]} {place[b][j]})))" for b in range(a))


def functions(count: int):
    yield "struct point { double x, y; int tag; };\n"
    for i in range(count):
        yield (
            f"static int f{i}(struct point *p, int n) {{\n"
            f"  int sum = {i};\n"
            f"  for (int i = 0; i < n; i++) {{\n"
            f"    p[i].x = p[i].y * {i}.5 + i;\n"
            f"    if (p[i].x > {i % 97} && p[i].tag != {i % 13}) sum += p[i].tag * {i % 7 + 1};\n"
            f"    else switch (p[i].tag) {{ case 1: sum -= i; break; case 2: sum ^= {i}; break; default: sum++; }}\n"
            f"  }}\n  return sum;\n}}\n"
            f"int g{i}(struct point *p, int n) {{ return f{i}(p, n) + f{i}(p + 1, n - 1); }}\n"
        )
