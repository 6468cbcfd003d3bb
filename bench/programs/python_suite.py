"""CPython's own test suite, with Python's object memory by malloc too (PYTHONMALLOC)."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

from masu.messages import Problem

from .harness import Program, Run, tail

PYTHON = "/usr/bin/python3"
QUICK = ("test_list", "test_dict", "test_json")
CORE = (
    *QUICK,
    "test_threading",
    "test_concurrent_futures",
    "test_multiprocessing_fork",
    "test_ctypes",
    "test_gc",
    "test_array",
    "test_bytes",
    "test_bz2",
    "test_lzma",
    "test_mmap",
    "test_pickle",
    "test_re",
    "test_set",
    "test_unicode",
    "test_zlib",
)


def outcome(case: ElementTree.Element) -> str:
    for kind in ("failure", "error", "skipped"):
        if case.find(kind) is not None:
            return kind
    return "passed"


def run_tests(run: Run, tests: tuple[str, ...]) -> None:
    report = run.folder / "report.xml"
    usage = run.command(
        PYTHON, "-m", "test", "-j2", "--timeout=300", f"--junit-xml={report}", *tests,
        environment={"PYTHONMALLOC": "malloc", "TMPDIR": str(run.folder)},
        timeout=1800,
        may_fail=True,
    )  # fmt: skip
    (run.folder / "output.log").write_text(usage.output + usage.errors)
    if not report.exists():
        raise Problem(f"the test suite left no report:\n{tail(usage.errors + usage.output)}")
    outcomes = {case.get("name", "?"): outcome(case) for case in ElementTree.parse(report).iter("testcase")}
    run.record("tests", dict(sorted(Counter(outcomes.values()).items())))
    run.record("exit status", usage.status)
    # A module that crashed or hung is named here only.
    run.record("modules that failed", re.findall(r"^    (test_\w.*)$", usage.output, re.MULTILINE))
    for name, how in sorted(outcomes.items()):
        run.record(name, how)


def program(name: str, about: str, tests: tuple[str, ...], *, quick: bool) -> Program:
    return Program(
        name,
        about,
        packages=("python3", "libpython3.11-testsuite"),
        probe=(PYTHON, "--version"),
        run=lambda run: run_tests(run, tests),
        quick=quick,
    )


PROGRAMS = (
    program("python", f"CPython's test suite: {' '.join(QUICK)}", QUICK, quick=True),
    program(
        "python-core", f"CPython's test suite: {len(CORE)} modules, threads and processes among them", CORE, quick=False
    ),
)
