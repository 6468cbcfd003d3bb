"""The bundled traces: whole, as their README says, and nothing in them of where they were recorded."""

import re
from pathlib import Path

import pytest

from masu import replay, trace

FOLDER = Path(__file__).resolve().parents[2] / "bench/traces"
TRACES = sorted(FOLDER.glob("*.trace"))
ROWS = {
    line.split("`")[1]: [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (FOLDER / "README.md").read_text().splitlines()
    if line.startswith("| `")
}


def test_each_is_in_the_readme_and_a_case_of_the_benchmark(masu):
    names = {path.stem for path in TRACES}
    assert len(names) >= 12 and names == set(ROWS)
    assert names == set(re.findall(r"^  trace-(\S+)", masu("bench", "--list").stdout, re.MULTILINE))


def test_together_they_are_small():
    assert sum(path.stat().st_size for path in TRACES) <= 8 << 20
    assert all(path.stat().st_size <= 1 << 20 for path in TRACES)


def test_some_have_threads_that_hand_blocks_over():
    assert sum(number(row[5]) > 1 for row in ROWS.values()) >= 4
    assert sum(number(row[6]) > 1000 for row in ROWS.values()) >= 2


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_whole_and_as_described(path, tmp_path):
    found = trace.read(path)
    assert found.complete and not found.damage
    (process,) = found.processes
    assert process.head.ended and not process.head.stopped and not process.head.dropped
    s = replay.plan(found, process, tmp_path).summary
    assert not any(s[key] for key in ("unknown_frees", "vanished", "bad_blocks", "dropped"))
    row = ROWS[path.stem]
    assert [number(cell) for cell in row[4:7]] == [s["calls"], s["threads"], s["handed_over"]]
    assert row[2] == found.summary["package"]
    assert row[8] == f"{path.stat().st_size / 1024:.0f} KiB"


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_nothing_of_where_it_was_recorded(path):
    found = trace.read(path)
    (process,) = found.processes
    content = process.page + b"".join(found.blocks(process))
    assert not process.maps and not re.search(rb"/(home|root|tmp)\b", content)


def number(cell):
    return int(cell.replace(",", ""))
