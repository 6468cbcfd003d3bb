"""A full build of masu; the compiler, the linker and ninja run on the allocator."""

from __future__ import annotations

import shutil

from .harness import PROJECT, Program, Run

SOURCES = ("CMakeLists.txt", "cmake", "include", "src", "bench")


def build(run: Run, compiler: str, cxx: str) -> None:
    source = run.folder / "source"
    source.mkdir()
    for name in SOURCES:
        path = PROJECT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source / name)
    run.command(
        "cmake", "-G", "Ninja", "-S", "source", "-B", "build", "-DCMAKE_BUILD_TYPE=Release", "-DMASU_BENCH=ON",
        f"-DCMAKE_C_COMPILER={compiler}", f"-DCMAKE_CXX_COMPILER={cxx}",
    )  # fmt: skip
    run.command("cmake", "--build", "build")
    products = sorted(p for p in (run.folder / "build").rglob("*") if p.suffix in (".o", ".so", ".a"))
    run.record("products", len(products))
    for product in products:
        run.record_digest(str(product.relative_to(run.folder)), product)


PROGRAMS = (
    Program(
        "gcc",
        "builds masu with gcc; every object file compared",
        packages=("gcc", "g++", "cmake", "ninja-build"),
        probe=("gcc", "--version"),
        run=lambda run: build(run, "gcc", "g++"),
    ),
    Program(
        "clang",
        "builds masu with clang; every object file compared",
        packages=("clang", "cmake", "ninja-build"),
        probe=("clang", "--version"),
        run=lambda run: build(run, "clang", "clang++"),
    ),
)
