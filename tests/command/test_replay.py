"""masu replay, with traces of real programs: what it measures and predicts, and how it ends."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import MASU, as_in_a_terminal, gone, is_shown_though
from rich.console import Console
from recording import recorded

from masu import replay
from masu import trace as traces
from masu.measuring.measure import SYSTEM, Allocator
from masu.measuring.rounds import shown
from masu.messages import Problem


def test_the_predicted_peak_holds_what_is_not_from_malloc(masu, compile_program, tmp_path):
    program = compile_program(
        r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
  char *map = mmap(NULL, 40 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), line[200];
  memset(map, 1, 40 << 20);
  for (int i = 0; i < 200000; i++) memset(malloc(96), 1, 96);
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status)) if (!strncmp(line, "VmHWM", 5)) fputs(line, stdout);
}
""",
        "-fno-builtin",
    )
    real = int(subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()[1])
    trace, result = recorded(masu, tmp_path, program)
    file = tmp_path / "it.json"
    result = masu("replay", "-n", "2", "--settle", "0", "--json", file, trace)
    assert "Predicted peak memory of the program" in " ".join(result.stdout.split())
    assert json.loads(file.read_text())["predicted_peak_kib"]["system"] == pytest.approx(real, rel=0.1)


def test_what_the_replay_does_itself_is_not_predicted(masu, compile_program, tmp_path):
    """The program does nothing but call; the replay writes its blocks besides."""
    program = compile_program("#include <stdlib.h>\nint main(void) { for (int i = 0; i < 30000; i++) free(malloc(100000)); }", "-fno-builtin")
    trace, _ = recorded(masu, tmp_path, program)
    file = tmp_path / "it.json"
    result = masu("replay", "-n", "3", "--settle", "0", "--touch", "full", "--json", file, trace)
    assert result.returncode == 0, result.stderr
    said = json.loads(file.read_text())
    wall = next(r for r in said["rows"] if (r["allocator"], r["figure"]) == ("masu", "time"))
    assert said["predicted_s"]["masu"] == pytest.approx(wall["median"] - said["own_s"])


@pytest.mark.parametrize("writes, touches", [("memset(p, 1, 1 << 20)", "full"), ("*p = 1", "first")])
def test_the_replay_touches_what_the_program_can_have_touched(masu, compile_program, tmp_path, writes, touches):
    program = compile_program(
        r"""
#include <stdlib.h>
#include <string.h>
#include <time.h>
static long long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }
int main(void) {
  for (int i = 0; i < 1000; i++) {
    volatile char *p = malloc(1 << 20);
    WRITES;
    free((void *)p);
  }
  if (MORE) for (long long end = now() + 500000000; now() < end;); /* the replay has time for as much */
  return malloc(1) == NULL;
}
""",
        "-fno-builtin", "-Wno-discarded-qualifiers", f"-DWRITES={writes.replace('(p', '((void *)p')}", f"-DMORE={int(touches == 'full')}",
    )  # fmt: skip
    trace, result = recorded(masu, tmp_path, program)
    file = tmp_path / "it.json"
    result = masu("replay", "-n", "1", "--settle", "0", "--json", file, trace)
    assert result.returncode == 0, result.stderr
    touch = json.loads(file.read_text())["touch"]
    assert touch == touches
    assert {"full": "all of it is", "first": "a byte of each page is"}[touch] + " written" in " ".join(result.stdout.split())
    result = masu("replay", "-n", "1", "--settle", "0", "--touch", "full", "--json", file, trace)
    assert json.loads(file.read_text())["touch"] == "full"


def test_the_replay_itself_allocates_nothing_and_thinks_as_long_as_the_program(masu, compile_program, tmp_path):
    program = compile_program(
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) {\n"
        "for (int i = 0; i < 20000; i++) { void *volatile p = malloc(1000); if (i == 10000) usleep(400000); } return 0; }\n",
        "-fno-builtin",
    )
    trace, _ = recorded(masu, tmp_path, program)
    found = traces.read(trace)
    made = replay.plan(found, found.main(), tmp_path)
    null, thought = (replay._once(made, [*replay._words(made, "none", think), "null"], SYSTEM).own for think in (False, True))
    assert null["peak_rss_kib"] < 200  # of 20 MB that the program has
    assert null["wall_s"] < 0.2 and 0.38 < thought["wall_s"] < 1


def replayed(values, waits=0, single=()):
    summary = {"by_kind": {"waits": waits}, "calls": 10_000}
    return replay.Replayed(None, dict(single), 0, 0, summary, "full", values, {})


def test_a_prediction_has_an_interval_where_there_are_rounds_enough():
    (line,) = replay.prediction(replayed({"system": [2.0] * 5, "masu": [1.0, 1.0, 1.0, 1.0, 1.2]}))
    assert "masu 0.50 (0.50–0.60)" in line
    (line,) = replay.prediction(replayed({"system": [2.0], "masu": [1.0]}))
    assert line.endswith("masu 0.50")


def test_a_prediction_for_threads_that_wait_for_each_other_says_so():
    values = {"system": [2.0], "masu": [1.0]}
    assert len(replay.prediction(replayed(values, waits=10))) == 1
    *_, caveat = replay.prediction(replayed(values, waits=11))
    assert "wait for each other (11 times)" in caveat
    assert replay.prediction(replayed({}, waits=5000)) == []


def test_resident_against_live_is_shown_over_time_and_on_average(masu, compile_program, monkeypatch, tmp_path):
    """At the end every second block is free, and none that is left lies alone on a page."""
    program = compile_program(
        "#include <stdlib.h>\nenum { N = 20000 };\nstatic void *p[N];\nint main(void) {\n"
        "for (int i = 0; i < N; i++) p[i] = malloc(1000);\n"
        "for (int r = 0; r < 5; r++) for (int i = 1; i < N; i += 2) { free(p[i]); p[i] = r < 4 ? malloc(1000) : NULL; } return 0; }\n",
        "-fno-builtin",
    )
    trace, _ = recorded(masu, tmp_path, program)
    found = traces.read(trace)
    monkeypatch.setattr(replay, "_predicted", lambda *_: ({}, {}))
    said = replay.replay(replay.plan(found, found.main(), tmp_path), [SYSTEM], Console(quiet=True), rounds=1, touch="full", settle_s=0)
    figure = next(f for f in said.comparison.figures if f.label == "resident : live")
    assert 1 < said.comparison.values("system", figure)[0] < 1.9
    assert replay._resident_to_live_at([[0.1, 10, 10], [0.2, 30, 20], [0.3, 40, 0], [0.4, 30, 10]], 0.75) == 1.5
    console = Console(file=io.StringIO(), width=100)
    console.print(replay.SingleTables(said))
    assert re.search(r"resident : live +after 25% +1", console.file.getvalue())


def test_the_means_of_all_kinds_make_the_time_of_all_calls(whole, tmp_path):
    found = traces.read(whole)
    plan = replay.plan(found, found.main(), tmp_path)
    run = subprocess.run([replay.program("trace_play"), plan.path, "latency"], capture_output=True, text=True, check=True)
    said = json.loads(run.stdout)
    assert sum(of["count"] * of["mean_ns"] for of in said["calls"].values()) == pytest.approx(said["calls_s"] * 1e9, rel=0.02)
    assert all(0 <= of["mean_ns"] <= of["worst_ns"] for of in said["calls"].values())


def one_run(n):
    """What a run says in which every call was timed; each of its figures is there once."""
    kinds = {kind: {"count": 1_234_567, **{f"{p}_ns": 1e6 * n + 1e5 * i + k for i, p in enumerate(replay.POINTS)}}
             for k, kind in enumerate(("malloc", "free", "realloc"))}  # fmt: skip
    return {"calls": kinds, "curve": [[1, n + 1, 1]], "end_rss_kib": 1e7 + n * 1024, "later_rss_kib": 1e6 + n * 1024}


@pytest.mark.parametrize("others", [1, 5, 12])
@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_figure_of_single_calls_is_cut_on_a_narrow_screen(others, width):
    single = {"system": one_run(1), **{f"allocator{n}": one_run(n) for n in range(2, others + 2)}}
    console = Console(width=width, file=io.StringIO())
    console.print(replay.SingleTables(replayed({}, single=single)))
    said = console.file.getvalue()
    assert "…" not in said and all(len(line) <= width for line in said.splitlines())
    words = said.split()
    for name, own in single.items():
        assert words.count(name) == 1
        figures = [shown(ns, "ns") for of in own["calls"].values() for key, ns in of.items() if key != "count"]
        for figure in (*figures, shown(own["end_rss_kib"], "KiB"), shown(own["later_rss_kib"], "KiB")):
            assert words.count(figure.split()[0]) == 1, figure
    blocks = words.count("malloc")
    assert words.count("1,234,567") == 3 * blocks and said.count("at the end") == blocks


def test_replay_heeds_the_width_of_the_screen(masu, library, whole):
    more = [word for n in range(6) for word in ("--with", f"allocator{n}={library}")]
    result = masu("replay", "-n", "1", "--settle", "0", *more, whole, env={"COLUMNS": "80"})
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout and result.stdout.count("99.99 %") > 2


def test_the_other_processes_of_a_trace_are_named(masu, tmp_path):
    trace, _ = recorded(masu, tmp_path, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; exec /bin/ls")
    file = tmp_path / "it.json"
    result = masu("replay", "-n", "1", "--settle", "0", "--json", file, trace)
    assert result.returncode == 0, result.stderr
    processes = json.loads(file.read_text())["processes"]
    assert len(processes) == 11
    text = " ".join(result.stderr.split())
    line = text.split("The trace has other processes, for --process: ")[1].split(" more")[0]
    named = [int(word.split()[0]) for word in line.split(" and ")[0].split(", ")]
    assert len(named) == 8 and set(named) < {p["process"] for p in processes} and line.endswith("and 2")


def test_a_folder_with_another_masu_in_it_is_no_hindrance(masu, whole, tmp_path):
    (tmp_path / "masu.py").write_text("raise SystemExit('another one')\n")
    result = masu("replay", "-n", "1", "--settle", "0", whole, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Predicted time of the program" in result.stdout


def test_without_a_prediction_the_replay_is_what_it_is(monkeypatch, whole, tmp_path):
    def recorded(*_):
        raise Problem("the disk is full")

    monkeypatch.setattr(replay, "_recorded", recorded)
    found = traces.read(whole)
    made = replay.plan(found, found.main(), tmp_path)
    said = replay.replay(made, [SYSTEM], Console(quiet=True), rounds=1, settle_s=0)
    assert said.touch == "first" and said.comparison.rounds == 1 and said.single
    (line,) = replay.prediction(said)
    assert line.endswith("the disk is full")


def test_a_replay_may_take_as_long_as_its_program_and_what_it_settles(monkeypatch):
    given = []

    def measure(command, allocator=None, *, timeout, **_):
        given.append(timeout)
        raise Problem("enough")

    monkeypatch.setattr(replay, "measure", measure)
    long = replay.Plan(Path("plan"), {"duration_ns": 10_000 * 10**9})
    for call in (lambda: replay._once(long, ["play"], None, settle_s=5000), lambda: replay._recorded(long, ["play"], 1)):
        with pytest.raises(Problem, match="enough"):
            call()
    assert given[0] > 15_000 and given[1] > 10_000


def test_an_allocator_that_fails_is_told_apart(masu, whole, tmp_path):
    library = tmp_path / "bad.so"
    source = tmp_path / "bad.c"
    # A malloc that gives the same block to everybody.
    source.write_text(
        "#include <stddef.h>\n#include <string.h>\nstatic char block[1 << 22];\n"
        "void *malloc(size_t n) { (void)n; return block; }\nvoid free(void *p) { (void)p; }\n"
        "void *calloc(size_t n, size_t m) { return memset(block, 0, n * m); }\n"
        "void *realloc(void *p, size_t n) { (void)p; (void)n; return block; }\n"
        "void *aligned_alloc(size_t a, size_t n) { (void)a; (void)n; return block; }\n"
    )
    subprocess.run([shutil.which("cc"), "-shared", "-fPIC", "-fno-builtin", "-o", library, source], check=True)
    result = masu("replay", "-n", "1", "--settle", "0", "--with", f"bad={library}", whole)
    assert result.returncode == 0, result.stderr
    assert "bad" in result.stderr
    assert "masu" in result.stdout


COUNTED = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void __libc_free(void *), *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
void free(void *p) { __libc_free(p); }
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t a, size_t b) { return __libc_calloc(a, b); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { return (*p = __libc_memalign(a, n)) ? 0 : ENOMEM; }
size_t malloc_usable_size(void *p) { return (((size_t *)p)[-1] & ~7ul) - 8; }
__attribute__((constructor)) static void count(void) {
  int file = strcmp(program_invocation_short_name, "trace_play") ? -1 : open(getenv("COUNT"), O_WRONLY | O_APPEND);
  if (file >= 0 && write(file, "x", 1) == 1) close(file);
}
"""


def interrupted(compile_program, folder, *words):
    """Its output and errors, after Ctrl-C in its second round: one of the allocators counts its runs, a warm-up, a round, and one more."""
    library, count = compile_program(COUNTED, "-shared", "-fPIC", "-fno-builtin"), folder / "count"
    count.touch()
    process = subprocess.Popen(
        [MASU, *words, "-n", "1000", "--with", f"counted={library}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal,
        env={**os.environ, "COUNT": str(count)},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while count.stat().st_size < 3 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert "interrupted after" in errors
    return output, errors


def test_ctrl_c_while_replaying_keeps_what_was_measured(compile_program, whole, tmp_path):
    output, _ = interrupted(compile_program, tmp_path, "replay", "--touch", "none", "--json", tmp_path / "it.json", whole)
    assert "peak memory" in output
    assert "every call timed" not in output and "Predicted" not in output  # none of that was begun
    content = json.loads((tmp_path / "it.json").read_text())
    assert content["rounds"] >= 1 and content["interrupted"] is True


PLANS = """
import pathlib, sys
from masu import replay
from masu.cli import main
program, planner = replay.program, pathlib.Path(sys.argv.pop(1))
replay.program = lambda name: planner if name == "trace_plan" else program(name)
main()
"""


def test_ctrl_c_while_planning_ends_it_with_one_line(whole, script, tmp_path):
    planner, folder = script(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 1000\n"), tmp_path / "tmp"
    folder.mkdir()
    process = subprocess.Popen([sys.executable, "-c", PLANS, planner, "replay", whole], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, "TMPDIR": str(folder)}, preexec_fn=as_in_a_terminal)  # fmt: skip
    while not (tmp_path / "pid").exists() or not (pid := (tmp_path / "pid").read_text().strip()):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors.strip().splitlines()[-1]) == (130, "", "masu: replay: interrupted")
    assert gone(pid) and os.listdir(folder) == []


def test_ctrl_c_in_the_single_calls_ends_it_there(monkeypatch, whole, tmp_path):
    once, calls = replay._once, []

    def stopped(made, command, allocator, settle_s=0.0):
        if "latency" in command:
            calls.append(allocator.name)
            raise KeyboardInterrupt
        return once(made, command, allocator, settle_s)

    monkeypatch.setattr(replay, "_once", stopped)
    monkeypatch.setattr(replay, "_predicted", pytest.fail)
    found = traces.read(whole)
    made = replay.plan(found, found.main(), tmp_path)
    said = replay.replay(made, [SYSTEM, Allocator("other")], Console(quiet=True), rounds=1, touch="none", settle_s=0)
    assert calls == ["system"] and not said.single
    assert said.comparison.interrupted and said.comparison.rounds == 1


def test_on_a_full_disk_the_tables_are_there(masu, whole):
    result = masu("replay", "-n", "1", "--settle", "0", "--json", "/dev/full", whole)
    is_shown_though(result, "/dev/full", "In the replay: ")
