"""masu record, with a program that does at random whatever a program may do, and ends at any moment: the trace holds it
all, and contradicts itself nowhere."""

import random
import signal
from pathlib import Path

import pytest

from masu import replay
from masu import trace as traces

SOURCE = Path(__file__).resolve().parents[1] / "fuzz/recorded.c"
ENDINGS = {"return": 0, "exit": 0, "_exit": 0, "abort": 128 + signal.SIGABRT, "kill": 128 + signal.SIGKILL}
RESIZING = 2 * 4
"""Calls of realloc that may have had no time to be written: four threads, each with a handler."""


@pytest.fixture(scope="session")
def program(compile_program):
    return compile_program(SOURCE.read_text(), "-fno-builtin", "-pthread", "-lstdc++", "-Wno-alloc-size-larger-than")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ending", ENDINGS)
def test_whatever_a_program_does_its_trace_is_whole(masu, program, tmp_path, ending, seed):
    steps = random.Random(f"{ending}, {seed}").randrange(1000, 200_000)
    trace, stacks = tmp_path / "it.trace", ["--stacks"] * (seed == 3)
    result = masu("record", *stacks, "-o", trace, "--", program, str(seed), str(steps), ending)
    assert result.returncode == ENDINGS[ending], result.stderr
    found = traces.read(trace)
    assert found.complete and not found.damage
    for process in found.processes:
        s = replay.plan(found, process, tmp_path).summary
        assert not any(s[key] for key in ("bad_blocks", "unknown_frees", "dropped", "stopped"))
        cut = ending != "return" and not s["parent"]
        assert s["vanished"] <= (RESIZING if cut else 0)
        assert s["calls"] >= (0 if s["parent"] else steps / 2)
