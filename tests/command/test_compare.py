"""masu compare and masu allocators, with real programs and real libraries."""

import io
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import MASU, as_in_a_terminal, compiled, is_shown_though
from rich.console import Console

from masu import compare, installed
from masu.commands.compare import compare as compare_command
from masu.comparison import cells, page, spark, table
from masu.measuring import statistics
from masu.measuring.measure import SYSTEM, Allocator, Usage
from masu.measuring.rounds import Sample, own_rows

PYTHON = os.path.realpath(sys.executable)
WORK = "x = [str(i) for i in range(20000)]"


# ---- allocators ----


def test_allocators_lists_the_systems_and_masu(masu, library):
    result = masu("allocators", env={"COLUMNS": "200"})
    assert result.returncode == 0
    assert "the C library's own" in result.stdout
    assert library in result.stdout
    system, ours = (next(line for line in result.stdout.splitlines() if line.split()[:1] == [name]) for name in ("system", "masu"))
    assert system.rstrip().endswith("not tried: what programs have by themselves")
    assert ours.rstrip().endswith("answers")


def test_a_library_that_is_no_allocator_is_told_apart(masu, tmp_path):
    library = compiled(tmp_path, "none", "int nothing;")
    result = masu("allocators", "--with", f"none={library}", env={"COLUMNS": "200"})
    assert "not usable: malloc is not the library's" in result.stdout


@pytest.mark.parametrize("given", ["nope", "x=/nowhere/lib.so", "x=libnowhere.so"])
def test_with_what_is_not_there(masu, given):
    result = masu("allocators", "--with", given)
    assert result.returncode == 125
    assert result.stderr.count("\n") == 1


def test_in_a_pipe_no_path_is_folded(monkeypatch, masu, library):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert library in masu("allocators").stdout


def test_without_another_allocator_a_line_says_so_and_masu_is_compared(monkeypatch, capsys):
    monkeypatch.setattr(installed, "_loader_paths", dict)
    compare_command.callback(  # no exit: status 0
        rounds=1, metric="", less=False, lasting=None, extra=(), json_file=None, html_file=None, program="true", arguments=()
    )
    said = capsys.readouterr()
    assert said.err.count("no other allocator on this machine") == 1
    assert "wall time" in said.out and "masu" in said.out


SETTINGS = {"MASU_OPTIONS": "purge_delay:1", "MALLOC_ARENA_MAX": "1", "MALLOC_CONF": "narenas:1", "MIMALLOC_SHOW_ERRORS": "0",
            "TCMALLOC_SAMPLE_PARAMETER": "0", "TBB_MALLOC_USE_HUGE_PAGES": "0",
            "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.pthread.rseq=1"}  # fmt: skip


def test_settings_of_allocators_are_left_out_and_named(masu, tmp_path):
    seen = tmp_path / "seen"
    result = masu("compare", "-n", "1", "--", "sh", "-c", f"env >>{seen}", env={**SETTINGS, "MALLOCS": "none"})
    assert result.returncode == 0, result.stderr
    assert f"{', '.join(sorted(SETTINGS))} are not used" in " ".join(result.stderr.split())
    there = set(seen.read_text().splitlines())
    assert {line.partition("=")[0] for line in there} & set(SETTINGS) == {"GLIBC_TUNABLES"}
    assert {"GLIBC_TUNABLES=glibc.pthread.rseq=1", "MALLOCS=none"} <= there


def test_settings_in_the_command_are_the_programs(masu):
    result = masu("compare", "-n", "1", "--metric", r"\d", "--", "env", "MALLOC_ARENA_MAX=2", "sh", "-c", "echo $MALLOC_ARENA_MAX")
    assert result.returncode == 0 and "not used" not in result.stderr, result.stderr


def test_an_allocator_that_answers_badly_is_used_with_a_warning(monkeypatch, capsys, library):
    monkeypatch.setattr(installed, "why_not", lambda allocator, *how: "" if how else "memory is not aligned")
    found = installed.usable(Path(library), (f"other={library}",))
    assert "other" in {f.name for f in found}
    assert "other answers, but memory is not aligned" in " ".join(capsys.readouterr().err.split())


# ---- compare ----


def test_a_table_and_advice(masu, tmp_path):
    result = masu("compare", "-n", "3", "--json", tmp_path / "r.json", "--html", tmp_path / "r.html", "--", PYTHON, "-c", WORK)
    assert result.returncode == 0, result.stderr
    assert "wall time" in result.stdout and "peak memory" in result.stdout
    assert "Too few rounds to say" in result.stdout and "95 %" not in result.stdout
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["rounds"] == 3 and content["interrupted"] is False
    assert {"system", "masu"} <= {row["allocator"] for row in content["rows"]}
    assert content["advice"] in " ".join(result.stdout.split())
    page = (tmp_path / "r.html").read_text()
    assert "<svg" in page and "interrupted after" not in page
    assert 'src="http' not in page and '<link' not in page


def test_json_has_no_number_that_is_none(masu, tmp_path):
    program = "print('{\"a\": NaN, \"b\": Infinity}')"
    result = masu("compare", "-n", "1", "--json", tmp_path / "r.json", "--", PYTHON, "-c", program)
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    ratios = [row["ratio"] for row in content["rows"] if row["ratio"]]
    assert ratios and all(ratio[1:] == [None, None] for ratio in ratios)


def test_without_a_number_of_rounds_it_ends_by_itself(masu, tmp_path):
    result = masu("compare", "--json", tmp_path / "r.json", "--", "/bin/true")
    assert result.returncode == 0
    assert 5 <= json.loads((tmp_path / "r.json").read_text())["rounds"] <= 30


def test_a_metric_of_the_programs_own(masu, tmp_path):
    program = "import os; print('rate:', 200 if 'masu' in os.environ.get('LD_PRELOAD', '') else 100, 'per s')"
    result = masu("compare", "-n", "5", "--metric", r"rate: (\d+)", "--json", tmp_path / "r.json", "--", PYTHON, "-c", program)
    assert "masu, 2.00 times the system's" in " ".join(result.stdout.split())


def test_a_metric_that_is_nowhere(masu):
    result = masu("compare", "-n", "1", "--metric", "requests", "--", "/bin/true")
    assert result.returncode == 125
    assert "nothing that matches requests" in result.stderr


def test_a_metric_that_is_no_number(masu):
    result = masu("compare", "-n", "1", "--metric", r"(\d+)? ops", "--", "echo", "no ops")
    assert result.returncode == 125
    assert "' ops' is no number" in result.stderr


def test_names_and_figures_are_shown_as_they_are(masu, library):
    result = masu("compare", "-n", "1", "--metric", r"[/a]+ (\d+)", "--with", f"[b]={library}", "--", "echo", "a/ 12")
    assert result.returncode == 0, result.stderr
    assert r"[/a]+ (\d+)" in result.stdout and " [b]" in result.stdout


def test_a_text_that_is_another_each_time_is_no_result(masu, tmp_path):
    program = "import json, os; print(json.dumps({'id': os.urandom(8).hex(), 'sum': 'right', os.urandom(8).hex(): os.getpid()}))"
    result = masu("compare", "-n", "1", "--json", tmp_path / "r.json", "--", PYTHON, "-c", program)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "r.json").read_text())["failed"] == {}


def test_a_result_that_is_another_on_one_allocator_is_wrong(masu, tmp_path):
    program = "import json, os; print(json.dumps({'sum': 'wrong' if 'masu' in os.environ.get('LD_PRELOAD', '') else 'right'}))"
    result = masu("compare", "-n", "2", "--json", tmp_path / "r.json", "--", PYTHON, "-c", program)
    assert json.loads((tmp_path / "r.json").read_text())["failed"] == {"masu": "sum differs: right on system, wrong on masu"}


def test_only_numbers_of_every_run_are_figures():
    runs = {"system": [Sample(None, {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1})],
            "masu": [Sample(None, {"a": 2, "b": [1], "c": math.nan, "d": "1", "e": 10**400})]}  # fmt: skip
    assert [row.label for row in own_rows(runs)] == ["a"]


@pytest.mark.parametrize("rounds", range(2, 7))
def test_equals_are_rarely_said_to_differ(rounds):
    draw = np.random.default_rng(rounds)
    ratios = [statistics.ratio(draw.normal(100, 3, rounds), draw.normal(100, 3, rounds)) for _ in range(400)]
    assert sum(r.high < 1 or r.low > 1 for r in ratios) < 0.09 * len(ratios)


def test_each_run_reads_the_file_that_masu_was_given(masu, tmp_path):
    (tmp_path / "lines").write_text("one\ntwo\nthree\n")
    with (tmp_path / "lines").open() as file:
        result = masu("compare", "-n", "2", "--metric", r"\d+", "--json", tmp_path / "r.json", "--", "wc", "-l", stdin=file)
    assert result.returncode == 0 and "is empty" not in result.stderr
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert {value for row in rows if row["figure"] == r"\d+" for value in row["values"]} == {3}


def test_what_comes_by_a_pipe_is_read_by_none(masu):
    result = masu("compare", "-n", "1", "--", "sh", "-c", "! read line", input="one\n")
    assert result.returncode == 0, result.stderr
    assert "the input of sh is empty" in " ".join(result.stderr.split())


def test_one_allocator_fails_and_the_rest_go_on(masu, tmp_path):
    broken = compiled(
        tmp_path,
        "broken",
        """#include <stddef.h>
           #include <stdlib.h>
           #include <string.h>
           static _Alignas(16) char memory[1 << 28];
           static size_t used;
           void *malloc(size_t n) { size_t at = used; used += (n + 15) / 16 * 16;
             if (getenv("FAIL_NOW")) abort(); return memory + at; }
           void free(void *p) { (void)p; }
           void *calloc(size_t a, size_t b) { return malloc(a * b); }
           void *realloc(void *p, size_t n) { void *q = malloc(n); if (p) memcpy(q, p, n); return q; }
           void *memalign(size_t a, size_t n) { (void)a; return malloc(n); }
           void *aligned_alloc(size_t a, size_t n) { (void)a; return malloc(n); }
           int posix_memalign(void **p, size_t a, size_t n) { (void)a; *p = malloc(n); return 0; }
           size_t malloc_usable_size(void *p) { (void)p; return 0; }""",
    )
    result = masu(
        "compare", "-n", "2", "--with", f"broken={broken}", "--json", tmp_path / "r.json", "--", "env", "FAIL_NOW=1", "sort", "/dev/null"
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "failed on broken" in result.stderr
    content = json.loads((tmp_path / "r.json").read_text())
    assert "broken" in content["failed"]
    assert "masu" in {row["allocator"] for row in content["rows"]}


def test_without_the_systems_there_is_nothing_to_compare_with(masu, library):
    result = masu("compare", "-n", "5", "--with", f"other={library}", "--", "sh", "-c", 'test -n "$LD_PRELOAD" || kill -9 $$')
    assert result.returncode == 0, result.stderr
    assert "Nothing to compare: the system allocator did not run." in result.stdout


def test_a_program_that_fails_everywhere(masu):
    for how in ("kill -11 $$", "no-such-program"):
        result = masu("compare", "-n", "1", "--", "sh", "-c", how)
        assert result.returncode == 125
        assert "failed on system: " in result.stderr and "ran on no allocator to its end" in result.stderr


def test_the_exit_status_on_the_systems_is_that_of_a_success(masu, library, tmp_path):
    program = 'echo "2 findings" >&2; case "$LD_PRELOAD" in *masu*) exit 0;; *) exit 3;; esac'
    result = masu("compare", "-n", "1", "--with", f"other={shutil.copy(library, tmp_path / 'other.so')}",
                  "--json", tmp_path / "r.json", "--", "sh", "-c", program)  # fmt: skip
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["notes"] == ["it ends with exit status 3 on the system's allocator, and so it has to on the others: 2 findings"]
    assert result.stderr.count("ends with exit status 3") == 1
    assert content["failed"] == {"masu": "exit status 0 instead of 3: 2 findings"}
    assert {"system", "other"} <= {row["allocator"] for row in content["rows"]}


def test_what_cannot_be_run(masu, script):
    for program, status in (("no-such-program", 127), ("/", 126), (script("text", mode=0o644), 126)):
        assert masu("compare", "-n", "1", "--", program).returncode == status


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_results_that_cannot_be_written_are_named_before_anything_runs(masu, tmp_path, option):
    result = masu("compare", option, "/nowhere/results", "--", "touch", tmp_path / "ran")
    assert result.returncode == 125
    assert result.stderr.count("\n") == 1 and "/nowhere/results" in result.stderr
    assert not (tmp_path / "ran").exists()


def test_a_path_with_an_equals_sign(masu, script, tmp_path):
    path = script(f"#!/bin/sh\necho >>{tmp_path}/ran\n", name="a=b")
    assert masu("compare", "-n", "1", "--", path).returncode == 0
    assert (tmp_path / "ran").exists()


def test_a_static_program_would_say_nothing(masu, tmp_path):
    source = tmp_path / "p.c"
    source.write_text("int main(void) { return 0; }")
    subprocess.run(["cc", "-static", "-o", tmp_path / "p", source], check=True)
    result = masu("compare", "-n", "1", "--", tmp_path / "p")
    assert result.returncode == 125
    assert "statically linked" in result.stderr


def test_so_would_one_with_its_own_malloc_or_rights(masu, own_malloc, of_another_user):
    for program, why in ((own_malloc, "has its own malloc"), (of_another_user, "is setuid")):
        result = masu("compare", "-n", "1", "--", program)
        assert result.returncode == 125
        assert result.stderr.count("masu: error") == 1 and why in result.stderr


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    process = subprocess.Popen(
        [MASU, "compare", "--json", tmp_path / "r.json", "--html", tmp_path / "r.html",
         "--", PYTHON, "-c", f"{WORK}; open({str(tmp_path / 'runs')!r}, 'a').write('x')"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (tmp_path / "runs").exists() and (tmp_path / "runs").stat().st_size > 25:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["interrupted"] is True and content["rounds"] >= 1
    for text in (errors, (tmp_path / "r.html").read_text()):
        assert f"interrupted after {content['rounds']} round" in text
    assert "wall time" in output


def test_ctrl_c_in_the_warm_up_ends_it_with_one_line(tmp_path):
    process = subprocess.Popen([MASU, "compare", "--", "sh", "-c", f"touch {tmp_path}/began; exec sleep 1000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal)  # fmt: skip
    while not (tmp_path / "began").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors.strip().splitlines()[-1]) == (130, "", "masu: compare: interrupted")


def test_ctrl_c_before_a_run_has_begun_keeps_the_rounds_before_it(monkeypatch):
    """A part of every run of a short program is spent before it starts."""
    measure, runs = compare.measure, []

    def interrupted(*arguments, **options):
        runs.append(arguments)
        if len(runs) == 6:  # in the second round, after the warm-up and the first
            raise KeyboardInterrupt
        return measure(*arguments, **options)

    monkeypatch.setattr(compare, "measure", interrupted)
    result = compare.compare(["true"], [SYSTEM, Allocator("other")], Console(quiet=True), rounds=5)
    assert result.interrupted and result.rounds == 1


@pytest.mark.parametrize(
    ("made", "rounds", "used", "part"),
    [
        (0, 0, 0.0, 0),
        (3, 0, 180.0, 3 / 6),  # a minute a round: the least rounds take longer than there is time
        (5.5, 0, 330.0, 5.5 / 6),
        (9, 0, 90.0, 1 / 2),  # ten seconds a round: the time decides
        (10, 0, 10.0, 10 / 31),  # a second a round: the most rounds do
        (5.5, 10, 1000.0, 1 / 2),  # as many as are asked for, however long they take
        (6, 0, 360.0, 0.99),
    ],
)
def test_the_bar_shows_the_part_of_the_rounds_that_there_will_be(made, rounds, used, part):
    assert compare._part(made, rounds, used, 180.0) == pytest.approx(part)


# ---- What it says ----


def compared(walls, peaks=(), curve=((0.01, 50.0),)):
    """A comparison with these times in s and peaks in MiB, by allocator: noise of a thousandth, ten rounds."""
    draw = random.Random(1)

    def run(wall, peak):
        near = [draw.uniform(0.999, 1.001) for _ in range(2)]
        return compare.Run(Usage(wall * near[0], wall, 0, int(1024 * peak * near[1]), 1000, 5, 5, 0), curve=list(curve))

    return compare.Comparison(["it"], {n: [run(w, dict(peaks).get(n, 50.0)) for _ in range(10)] for n, w in walls.items()})


@pytest.mark.parametrize(
    ("walls", "peaks", "said"),
    [
        ({"system": 1, "masu": 1.0005}, {}, "No difference beyond noise by time: this program can stay on the system's allocator."),
        ({"system": 1, "masu": 1.2, "jemalloc": 1.0005}, {},
         "No gain beyond noise by time: this program can stay on the system's allocator. Slower here: masu."),
        ({"system": 1, "masu": 0.5, "jemalloc": 0.5, "tcmalloc": 2}, {"system": 50, "masu": 50, "jemalloc": 60},
         "Best by time: {best}, 2.00 times the system's. As good within noise: {even}."),
        ({"system": 1, "masu": 1.0005}, {"masu": 25},
         "No difference beyond noise by time: this program can stay on the system's allocator. "
         "masu takes 50% less memory at its peak than the system's."),
        ({"system": 1, "masu": 0.5}, {"masu": 75},
         "Best by time: masu, 2.00 times the system's. masu takes 50% more memory at its peak than the system's."),
        ({"system": 1}, {}, "Nothing to compare: no other allocator ran."),
    ],
)  # fmt: skip
def test_the_advice(walls, peaks, said):
    advice = compare.advice(compared(walls, peaks))
    assert advice in (said.format(best=best, even=even) for best, even in (("masu", "jemalloc"), ("jemalloc", "masu")))


def test_the_advice_on_a_server_is_by_cpu_time():
    c = compared({"system": 1, "masu": 0.5})
    c.counted = compare.LASTING
    assert compare.advice(c) == "Best by CPU time: masu, 2.00 times the system's."


@pytest.mark.parametrize(
    ("less", "said"),
    [
        (True, "Best by p99 (less is better): masu, 0.50 times the system's."),
        (False, "No gain beyond noise by p99 (more is better): this program can stay on the system's allocator. Slower here: masu."),
    ],
)
def test_a_metric_says_which_way_it_is_judged(less, said):
    c = compared({"system": 1, "masu": 1})
    c.metric, c.less = "p99", less
    for name, value in (("system", 20.0), ("masu", 10.0)):
        for n, run in enumerate(c.runs[name]):
            run.metric = value + n / 1000
    assert compare.advice(c) == said
    way = "less is better" if less else "more is better"
    console = Console(width=80, file=io.StringIO())
    console.print(table(c, {}))
    assert way in console.file.getvalue() and f"p99 ({way})" in page(c, {})
    rows = compare.as_json(c)["rows"]
    assert {row["better"] for row in rows if row["figure"] == "p99"} == {way.split()[0]}


def test_less_is_of_a_metric(masu):
    result = masu("compare", "--less", "--", "true")
    assert result.returncode == 2 and "--less is for --metric" in result.stderr


def test_rounds_are_interleaved_and_the_first_is_a_warm_up():
    order = []

    def once(command, allocator, pattern):
        order.append(allocator.name)
        return compare.Run(Usage(len(order), 0, 0, 1, 1, 1, 1, 0))

    names = [SYSTEM.name, "a", "b", "c"]
    result = compare.compare(["it"], [Allocator(n) for n in names], Console(quiet=True), rounds=8, once=once)
    turns = [order[i : i + 4] for i in range(0, len(order), 4)]
    assert len(turns) == 9 and all(sorted(t) == sorted(names) for t in turns)
    assert len(set(map(tuple, turns))) > 1
    walls = {r.usage.wall_s for runs in result.runs.values() for r in runs}
    assert walls == set(range(5, 37))  # none of the first four


def test_what_ends_before_the_first_sample_has_no_mean_memory(recwarn):
    short, long = compared({"system": 0.002, "masu": 0.001}, curve=()), compared({"system": 2, "masu": 1})
    assert "mean memory" in {f.label for f in long.figures}
    assert "mean memory" not in {f.label for f in short.figures}
    assert "Memory over time" in page(long, {}) and "Memory over time" not in page(short, {})
    assert [str(w.message) for w in recwarn] == []


@pytest.mark.parametrize("others", [5, 6, 7, 12])
@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_figure_is_cut_on_a_narrow_screen(others, width):
    names = ["system", *(f"allocator{n}" for n in range(others))]
    c = compared({n: 1234.5 + i for i, n in enumerate(names)}, {n: 12345 + i for i, n in enumerate(names)}, curve=[(0, 1000), (9, 9999)])
    console = Console(width=width, file=io.StringIO())
    console.print(table(c, {n: "2021.8.0-2" for n in names}))
    said = console.file.getvalue()
    assert "…" not in said and all(len(line) <= width for line in said.splitlines())
    words = said.split()
    for name in names:
        assert name in words
        for figure in c.figures:
            median, ratio, _ = cells(c, name, figure)
            assert set(median.split() + ratio.split()) <= set(words)


def test_compare_heeds_the_width_of_the_screen(masu, library):
    more = [word for n in range(6) for word in ("--with", f"allocator{n}={library}")]
    result = masu("compare", "-n", "5", *more, "--", "true", env={"COLUMNS": "80"})
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout and result.stdout.count("wall time") > 1


@pytest.mark.parametrize(
    ("curve", "shown"),
    [
        ([(0, 800.0), (9, 800.0)], "█████████"),
        ([(0, 0.0), (8, 800.0)], "▁▂▃▄▅▆▇██"),
        ([(1, 90.0)], "▁▁▁▁▁▁▁▁▁"),
        ([(0, 800.0), (0.1, 0.0), (9, 0.0)], "█▁▁▁▁▁▁▁▁"),
    ],
)
def test_memory_over_time_in_a_line(curve, shown):
    assert spark(curve, 800.0) == shown


def test_memory_over_time_is_by_one_measure_for_all():
    c = compared({"system": 1, "masu": 1})
    for name, mib in (("system", 800.0), ("masu", 100.0)):
        c.runs[name][-1].curve = [(0, mib), (1, mib)]
    console = Console(width=140, file=io.StringIO())
    console.print(table(c, {}))
    line = next(line for line in console.file.getvalue().splitlines() if "memory over time" in line)
    assert line.split()[3:] == ["█████████", "▂▂▂▂▂▂▂▂▂"]


@pytest.mark.parametrize(
    ("noise", "seconds", "rounds"),
    [(0.0, 1e9, 5), (0.5, 1e9, compare.MOST_ROUNDS), (0.5, 0.0, 5)],
    ids=["tight", "as many as there are", "the time is over"],
)
def test_when_rounds_end(noise, seconds, rounds):
    draw = random.Random(1)

    def once(command, allocator, pattern):
        return compare.Run(Usage(1 + noise * draw.random(), 0, 0, 1000, 1, 1, 1, 0))

    result = compare.compare(["it"], [SYSTEM, Allocator("other")], Console(quiet=True), seconds=seconds, once=once)
    assert result.rounds == rounds


# ---- What can't be written ----


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_on_a_full_disk_the_table_is_there(masu, option):
    is_shown_though(masu("compare", "-n", "1", option, "/dev/full", "--", "true"), "/dev/full", "wall time")


def test_of_two_files_the_one_that_can_be_written_is(masu, tmp_path):
    result = masu("compare", "-n", "1", "--json", "/dev/full", "--html", tmp_path / "r.html", "--", "true")
    is_shown_though(result, "/dev/full", "wall time")
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_files_are_written_when_nobody_reads_the_table(masu, tmp_path):
    with open("/dev/full", "w") as full:
        masu("compare", "-n", "1", "--json", tmp_path / "r.json", "--", "true", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert json.loads((tmp_path / "r.json").read_text())["rounds"] == 1
