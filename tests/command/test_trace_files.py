"""Traces that are not whole, hold next to nothing, or are none: what can be read is, and the rest is said."""

import os
import random
import re
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from conftest import MASU
from recording import CALLS, FRAME, HEADER, frames, one_line

from masu import replay
from masu import trace as traces
from masu.messages import Problem


@pytest.mark.parametrize("part", [0.3, 0.9])
def test_a_cut_trace(masu, whole, tmp_path, part):
    data = whole.read_bytes()
    trace = tmp_path / "cut.trace"
    trace.write_bytes(data[: int(len(data) * part)])
    result = masu("replay", "-n", "1", "--settle", "0", trace)
    assert result.returncode == 0, result.stderr
    assert "cut at byte" in " ".join(result.stderr.split())


def test_a_cut_trace_keeps_what_lies_in_whole_frames(whole, tmp_path):
    """And whole blocks of the one that is cut, if any."""
    data, before = whole.read_bytes(), traces.read(whole)
    blocks, kept, cut = b"".join(before.blocks(before.main())), 0, tmp_path / "cut.trace"
    for at in frames(data):
        kind, number, raw, stored = struct.unpack_from("<BxxxIII", data, at + 4)
        ours = kind == traces.BLOCKS and number == before.main().number
        cut.write_bytes(data[: at + FRAME + stored - 1])
        if kept:
            after = traces.read(cut)
            assert f"cut at byte {at}" in after.damage
            left = b"".join(after.blocks(after.main()))
            assert kept <= len(left) <= kept + raw * ours and blocks.startswith(left)
        kept += raw * ours
    assert kept == len(blocks)


BUNDLED = Path(__file__).resolve().parents[2] / "bench/traces"


@pytest.mark.parametrize("name", ["sqlite", "recoll"])
def test_of_a_trace_in_one_piece_what_is_left_of_it_is_replayed(masu, tmp_path, name):
    data, cut = (BUNDLED / f"{name}.trace").read_bytes(), tmp_path / "cut.trace"
    cut.write_bytes(data[: len(data) // 2])
    found, before = traces.read(cut), traces.read(BUNDLED / f"{name}.trace")
    assert "cut at byte" in found.damage and not found.main().frames
    left, blocks = (b"".join(trace.blocks(trace.main())) for trace in (found, before))
    assert 0.1 < len(left) / len(blocks) <= 0.5 and blocks.startswith(left)
    assert not replay.plan(found, found.main(), tmp_path).summary["bad_blocks"]
    result = masu("replay", "-n", "1", "--settle", "0", cut)
    assert result.returncode == 0, result.stderr
    assert "cut at byte" in " ".join(result.stderr.split())


def test_a_damaged_trace(masu, whole, tmp_path):
    data = bytearray(whole.read_bytes())
    middle = list(frames(data))[2]
    data[middle + FRAME + 5] ^= 0xFF
    trace = tmp_path / "damaged.trace"
    trace.write_bytes(data)
    result = masu("replay", "-n", "1", "--settle", "0", trace)
    assert result.returncode == 0, result.stderr
    assert "damaged at byte" in " ".join(result.stderr.split())


def test_blocks_stay_where_what_is_known_of_their_process_is_damaged(whole, tmp_path):
    data = bytearray(whole.read_bytes())
    data[next(frames(data)) + FRAME + 5] ^= 0xFF  # at the end it stands once more
    file = tmp_path / "damaged.trace"
    file.write_bytes(data)
    before, after = traces.read(whole).main(), traces.read(file)
    assert f"damaged at byte {HEADER}" in after.damage
    assert after.main().size == before.size and after.main().head == before.head


def content(trace):
    return [(p.head, p.maps, b"".join(trace.blocks(p))) for p in trace.processes], trace.summary


@pytest.fixture(scope="session")
def short(compile_program, tmp_path_factory):
    """A trace of some KiB with a frame of each kind."""
    trace = tmp_path_factory.mktemp("trace") / "short.trace"
    program = compile_program(CALLS, "-fno-builtin", "-pthread")
    subprocess.run([MASU, "record", "--stacks", "-o", trace, "--", program], check=False, capture_output=True)
    data = trace.read_bytes()
    assert {data[at + 4] for at in frames(data)} == {traces.PROCESS, traces.BLOCKS, traces.MAPS, traces.END}
    return trace


def test_a_damaged_head_of_a_frame_is_said(short, tmp_path):
    """The CRC doesn't cover it: each bit of each is changed in turn."""
    data, before = bytearray(short.read_bytes()), content(traces.read(short))
    file = tmp_path / "damaged.trace"
    for at in frames(data):
        for bit in range(8 * FRAME):
            data[at + bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            data[at + bit // 8] ^= 1 << bit % 8
            try:
                after = traces.read(file)
            except Problem:
                continue
            assert after.damage or content(after) == before, (at, bit)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_file_holds_reading_it_ends_or_says_why(short, tmp_path, seed):
    draw, whole_one, file = random.Random(seed), short.read_bytes(), tmp_path / "fuzzed.trace"
    starts = list(frames(whole_one))
    for _ in range(250):
        data = bytearray(whole_one)
        for _ in range(draw.randint(1, 6)):
            at = draw.choice((draw.randrange(len(data)), draw.choice(starts) + draw.randrange(FRAME)))
            data[at] = draw.randrange(256)
        for at in frames(bytes(data)) if draw.random() < 0.5 else ():  # as one that means it would
            stored = struct.unpack_from("<I", data, at + 16)[0]
            if at + FRAME <= len(data):
                struct.pack_into("<I", data, at + 20, zlib.crc32(data[at + FRAME : at + FRAME + stored]))
        file.write_bytes(data[: draw.randrange(len(data))] if draw.random() < 0.2 else data)
        try:
            trace = traces.read(file)
            for process in trace.processes:
                trace.extract(process, tmp_path / "blocks")
        except Problem:
            pass


def test_the_process_with_most_recorded_is_not_the_one_that_compresses_worst(whole, tmp_path):
    """Nor one that lies in its spool file yet, as it is."""
    page, sizes = traces.read(whole).main().page, {1: 200, 2: 50, 3: 100}  # by the process, in pages
    pages = {process: page[:16] + struct.pack("<I", process) + page[20:] for process in sizes}
    trace, folder = tmp_path / "it.trace", tmp_path / "it.trace.spool"
    writer = traces.Writer(trace)
    for process, content in ((1, bytes), (2, os.urandom)):
        writer.frame(traces.PROCESS, process, pages[process])
        writer.frame(traces.BLOCKS, process, content(sizes[process] * traces.PAGE))
    writer.close()
    folder.mkdir()
    (folder / "3-0.spool").write_bytes(pages[3] + os.urandom(sizes[3] * traces.PAGE))
    found = traces.read(trace)
    assert {p.head.process for p in found.processes} == set(sizes) and found.main().head.process == 1


def test_files_that_are_no_traces(masu, whole, tmp_path):
    trace = tmp_path / "no.trace"
    one_line(masu("replay", trace), "No such file")
    trace.write_bytes(b"")
    one_line(masu("replay", trace), "not a trace")
    trace.write_bytes(b"\x7fELF" * 100)
    one_line(masu("replay", trace), "not a trace")
    data = bytearray(whole.read_bytes())
    data[8] = 99
    trace.write_bytes(data)
    one_line(masu("replay", trace), "format 99")
    trace.write_bytes(whole.read_bytes()[:HEADER])
    one_line(masu("replay", trace), "nothing was recorded")
    one_line(masu("replay", tmp_path), "without a recording")


def test_a_process_of_another_version_is_refused_with_its_file(masu, whole, tmp_path):
    page = traces.read(whole).main().page
    other = page[:8] + struct.pack("<I", 99) + page[12:]
    trace, spool = tmp_path / "it.trace", tmp_path / "other.trace.spool/1-0.spool"
    writer = traces.Writer(trace)
    writer.frame(traces.PROCESS, 0, other)
    writer.close()
    spool.parent.mkdir()
    spool.write_bytes(other)
    one_line(masu("replay", trace), f"{trace}: a process was recorded by another version of masu: format 99")
    one_line(masu("replay", spool.parent), f"{spool}: a process was recorded by another version of masu: format 99")


# ---- With hardly a call ----

NOTHING = "int main(void) { return 0; }"
FAILS = "#include <stdint.h>\n#include <stdlib.h>\nint main(void) { return malloc(PTRDIFF_MAX) != NULL; }"
ONE = "#include <stdlib.h>\nint main(void) { return !malloc(100); }"
ONE_OF_FIVE_THREADS = """
#include <pthread.h>
#include <stdlib.h>
static void *body(void *allocates) { return allocates ? malloc(1000) : NULL; }
int main(void) {
  pthread_t t[4];
  for (int i = 0; i < 4; i++) if (pthread_create(&t[i], NULL, body, i == 2 ? t : NULL)) return 1;
  for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
  return 0;
}
"""
COMMANDS = {"replay": ("-n", "1", "--settle", "0"), "report": ("-n", "1"), "tune": ("-n", "5")}


def run_on_trace_of(masu, compile_program, folder, source, command):
    trace, program = folder / "it.trace", compile_program(source, "-fno-builtin", "-pthread")
    masu("record", "-o", trace, "--", program, check=True)
    return masu(command, *COMMANDS[command], trace, timeout=200)


@pytest.mark.parametrize(("source", "command"), [*((NOTHING, command) for command in COMMANDS), (FAILS, "replay")])
def test_a_trace_without_a_call_to_replay_is_said_to_be_one(masu, compile_program, tmp_path, source, command):
    result = run_on_trace_of(masu, compile_program, tmp_path, source, command)
    assert result.returncode == 125 and result.stdout == ""
    (error,) = re.findall("^masu: error: .*", result.stderr, re.MULTILINE)
    assert "it.trace: process" in error
    assert re.search("made no call|allocated nothing|made only calls that failed", error)
    assert "Traceback" not in result.stderr and "it.trace.html" not in os.listdir(tmp_path)


@pytest.mark.parametrize(("source", "command"), [(ONE, "report"), (ONE_OF_FIVE_THREADS, "replay"), (ONE_OF_FIVE_THREADS, "tune")])
def test_a_trace_of_next_to_nothing(masu, compile_program, tmp_path, source, command):
    result = run_on_trace_of(masu, compile_program, tmp_path, source, command)
    assert result.returncode == 0, result.stderr
    said = {"replay": "In the replay:", "report": "In the replay:", "tune": "nothing is written"}[command]
    assert said in " ".join(result.stdout.split())
    assert not re.search(r"\b(nan|inf|None)\b", result.stdout)
    assert all(line.startswith("masu: ") for line in result.stderr.splitlines() if line), result.stderr
    if command == "report":
        page = (tmp_path / "it.trace.html").read_text()
        assert "Lifetimes" in page and not re.search(r">(nan|inf|None)\b", page)
