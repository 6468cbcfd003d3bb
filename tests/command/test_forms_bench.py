"""The page of script/bench-forms."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from forms import published

MACHINE = {"cpu": "a processor", "kernel": "6.1", "when": "2026-01-01 00:00 UTC", "commit": "abc"}


def row(form, median, times=None, stated=None):
    values = [median * (1 + i / 1000) for i in range(-4, 5)]
    return {
        "workload": "pair", "form": form, "median": median, "low": values[0], "high": values[-1], "values": values,
        "times_malloc": times, "published": stated,
    }  # fmt: skip


def page_of(*rows):
    return published.page(f"before\n{published.BEGIN}\nold\n{published.END}\nafter\n", {"machine": MACHINE, "rounds": 9, "rows": list(rows)})


def test_the_page_has_the_committed_run():
    subprocess.run([sys.executable, ROOT / "bench/forms/published.py", "--check"], check=True)


def test_a_form_beside_the_best_of_each_kind():
    page = page_of(
        row("masu pool", 1.15, [9.0, 8.0, 10.0], 18.5), row("masu malloc", 3), row("malloc", 9), row("malloc of rpmalloc", 2),
        row("boost pool", 1.2), row("pmr pool", 4), row("floor list", 1),
    )  # fmt: skip
    assert page.startswith("before\n") and page.endswith("\nafter\n") and "old" not in page
    assert "| one block of 64 bytes; ns a pair | pool | 1.15, 1.15 to 1.15 | 9.0, 8.0 to 10.0 | 18.5 | rpmalloc 2.00 | boost pool 1.20 | floor list 1.00 |" in page
    assert "No form is behind" in page


def test_where_a_form_is_behind():
    others = row("masu malloc", 2), row("malloc", 2.41), row("floor list", 1.9), row("boost pool", 2.5)
    page = page_of(row("masu pool", 2.4), *others)
    assert "No form is behind" not in page
    assert "| one block of 64 bytes; ns a pair | pool | masu | 1.20, " in page
    assert page.count("| pool |") == 3 and "| pool | floor list | 1.26, " in page
    page = page_of(row("masu shared pool", 2.4), *others)  # which is no rival of an inlined list of one thread
    assert page.count("| shared pool |") == 2 and "floor list" not in page


def test_what_is_published_is_whole():
    for given in (["--only", "pair", "--publish"], ["--rounds", "3", "--publish"]):
        done = subprocess.run([sys.executable, ROOT / "bench/forms/compare.py", *given], capture_output=True, text=True)
        assert done.returncode == 2 and "what is published has all workloads" in done.stderr
