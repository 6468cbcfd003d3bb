"""The command line of script/programs."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from masu.measuring.measure import SYSTEM, Allocator
from masu.messages import Problem

from . import ALL
from .harness import PROJECT, Program, Run, empty_folder, prove

KEPT = PROJECT / "build" / "programs"
"""The library, and what programs were prepared with."""


# ---- Installing ----


def missing(packages: set[str]) -> list[str]:
    def installed(package: str) -> bool:
        words = ("dpkg-query", "-W", "-f", "${Status}", package)
        return "ok installed" in subprocess.run(words, capture_output=True, text=True, check=False).stdout

    return sorted(p for p in packages if not installed(p))


@contextmanager
def without_services():
    """Debian starts what it installs, unless this file says no."""
    policy = Path("/usr/sbin/policy-rc.d")
    if os.geteuid() or policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def install(programs: list[Program]) -> None:
    packages = missing({package for program in programs for package in program.packages})
    if not packages:
        return
    if not shutil.which("apt-get"):
        raise Problem(f"these have to be installed first: {' '.join(packages)}")
    root = [] if os.geteuid() == 0 else ["sudo"]
    if root and not shutil.which("sudo"):
        raise Problem(f"needs root or sudo to install {' '.join(packages)}")
    print(f"Installing {' '.join(packages)}", flush=True)
    apt = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]
    apt += ["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
    with without_services():
        # A source that cannot be reached does not matter when the packages come from others.
        subprocess.run([*apt, "update"], capture_output=True, check=False)
        words = [*apt, "install", "--no-install-recommends", *packages]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem(f"apt-get install failed:\n{done.stderr[-1000:]}")


def build_library() -> Path:
    print("Building masu", flush=True)
    folder = KEPT / "masu"
    for words in (
        ("cmake", "-S", PROJECT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"),
        ("cmake", "--build", folder, "--parallel", "--target", "masu_shared"),
    ):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Problem(f"masu does not build:\n{(done.stderr or done.stdout)[-2000:]}")
    return folder / "libmasu.so"


# ---- Running ----


def run_on(program: Program, allocator: Allocator, scratch: Path) -> Run:
    run = Run(allocator, empty_folder(scratch / program.name), KEPT / program.name)
    if allocator.library:
        prove(program, allocator, run.folder)
    program.run(run)
    return run


def prepare(program: Program) -> None:
    folder = KEPT / program.name
    if not program.prepare or folder.exists():
        return
    half = empty_folder(folder.with_suffix(".part"))
    program.prepare(half)
    half.rename(folder)


def differences(ours: Run, theirs: Run) -> list[str]:
    lines = []
    for name in dict.fromkeys([*theirs.results, *ours.results]):
        expected, got = (run.results.get(name, "nothing") for run in (theirs, ours))
        if expected != got:
            lines.append(f"{name}: {expected} on {theirs.allocator.name}, {got} on {ours.allocator.name}")
    return lines


def shown(run: Run) -> str:
    return f"{run.wall_s:7.2f} s {run.peak_rss_kib / 1024:8.1f} MiB"


def compare(program: Program, allocator: Allocator, scratch: Path, *, show: bool) -> bool:
    """One line, and what differs below it."""
    print(f"{program.name:<12}", end=" ", flush=True)
    try:
        prepare(program)
        theirs = run_on(program, SYSTEM, scratch)
        ours = run_on(program, allocator, scratch)
    except (Problem, OSError, subprocess.SubprocessError) as problem:
        print("FAILED\n  " + str(problem).replace("\n", "\n  "))
        return False
    different = differences(ours, theirs)
    word = "DIFFERENT" if different else "same"
    print(f"{word:<10} {shown(theirs)}   {shown(ours)}   {len(theirs.results):5} results", flush=True)
    if show:
        for name, value in ours.results.items():
            print(f"  {name}: {value}")
    for line in different[:20]:
        print(f"  {line[:300]}")
    if len(different) > 20:
        print(f"  ... and {len(different) - 20} more")
    return not different


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="script/programs",
        description="Runs real programs on the system allocator and on masu, and compares their results.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs to run (all)")
    parser.add_argument("--list", action="store_true", help="name the programs and what they do")
    parser.add_argument("--quick", action="store_true", help="the smaller choice that script/test runs")
    parser.add_argument("--results", action="store_true", help="print all results")
    parser.add_argument("--library", type=Path, metavar="FILE", help="the library to preload (masu, built first)")
    parser.add_argument("--no-install", action="store_true", help="install no packages")
    parser.add_argument("--keep", action="store_true", help="keep the folders that the programs ran in")
    return parser.parse_args()


def chosen(given: argparse.Namespace) -> list[Program]:
    known = {program.name: program for program in ALL}
    unknown = [name for name in given.names if name not in known]
    if unknown:
        raise Problem(f"no program {unknown[0]}; there are: {' '.join(known)}")
    if given.names:
        return [known[name] for name in given.names]
    # python-core has all that python has.
    return [p for p in ALL if (p.quick if given.quick else p.name != "python")]


def main() -> int:
    given = arguments()
    if given.list:
        for program in ALL:
            print(f"{program.name:<12} {'quick' if program.quick else '     '}  {program.about}")
        return 0
    programs = chosen(given)
    if not given.no_install:
        install(programs)
    library = (given.library or build_library()).resolve()
    if not library.is_file():
        raise Problem(f"{library}: no such library")

    scratch = Path(tempfile.mkdtemp(prefix="masu-programs-"))
    try:
        scratch.chmod(0o755)  # some servers run as another user, and they too load the library
        allocator = Allocator("masu", Path(shutil.copy(library, scratch / "libmasu.so")))
        print(f"\n{'':12} {'':10} {'system':>23}   {'masu':>23}")
        failed = [program.name for program in programs if not compare(program, allocator, scratch, show=given.results)]
    finally:
        if given.keep:
            print(f"\nThe folders are in {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    if failed:
        print(f"\n{len(failed)} of {len(programs)} programs are not the same on masu: {' '.join(failed)}")
        return 1
    print(f"\n{len(programs)} of {len(programs)} programs give the same results on masu as on the system allocator.")
    return 0


def entry() -> None:
    try:
        sys.exit(main())
    except Problem as problem:
        sys.exit(f"script/programs: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
