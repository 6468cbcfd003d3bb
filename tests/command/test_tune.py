"""masu tune: the size classes and options that fit a program, and what they save in it."""

import os
import random
import re
import signal
import subprocess
import time

import pytest
from conftest import MASU, as_in_a_terminal, is_shown_though

from masu import replay, tune
from masu.compare import Comparison, Run
from masu.messages import Problem
from masu.replay import program

ODD_SIZES = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { N = 30000 };
static char *small[N], *large[N];
int main(void) {
  char line[256];
  for (int i = 0; i < N; i++) {
    small[i] = memset(malloc(1040), 1, 1040);
    if (i % 2) large[i] = memset(malloc(4112), 1, 4112);
  }
  for (int i = 0; i < N; i++) free(small[i]), free(large[i]);
  for (FILE *status = fopen("/proc/self/status", "r"); fgets(line, sizeof line, status);)
    if (!strncmp(line, "VmHWM:", 6)) printf("%d\n", atoi(line + 6));
  return 0;
}
"""
USUAL_SIZES = r"""
#include <stdlib.h>
#include <string.h>
static char *held[40000];
int main(void) {
  for (int i = 0; i < 40000; i++) held[i] = memset(malloc(64), 1, 64);
  for (int i = 0; i < 40000; i++) free(held[i]);
  return 0;
}
"""


def recorded(program_path, folder):
    trace = folder / "it.trace"
    subprocess.run([MASU, "record", "-o", trace, "--", program_path], check=True, capture_output=True)
    return trace


def peak_kib(masu, program_path, *options):
    run = masu("run", *options, "--", program_path, check=True)
    assert run.stderr == ""
    return int(run.stdout)


def test_odd_sizes_get_their_classes_and_the_program_saves_what_was_promised(masu, compile_program, tmp_path):
    path = compile_program(ODD_SIZES, "-fno-builtin")
    trace = recorded(path, tmp_path)
    result = masu("tune", "-n", "5", trace, check=True, timeout=300)
    written = tmp_path / "it.trace.options"
    assert str(written) in result.stdout
    assert f"masu run --options-file {written} -- PROGRAM" in result.stdout
    text = written.read_text()
    assert "masu tune" in text and str(trace) in text and "5 rounds" in text
    classes = re.search(r"^classes: (.*)$", text, re.M)[1].split()
    assert {"1040", "4112"} <= set(classes)
    ratio = float(re.search(r"peak memory: .*; ([0-9.]+) \(", text)[1])
    assert ratio < 0.9
    before, after = peak_kib(masu, path), peak_kib(masu, path, "--options-file", written)
    assert abs(after / before - ratio) < 0.04  # the program itself is resident as well


def test_on_a_full_disk_the_table_is_there(masu, compile_program, tmp_path):
    trace = recorded(compile_program(ODD_SIZES, "-fno-builtin"), tmp_path)
    is_shown_though(masu("tune", "-n", "5", "-o", "/dev/full", trace, timeout=300), "/dev/full", "peak memory")


def test_where_nothing_is_to_be_gained_nothing_is_written(masu, compile_program, tmp_path):
    trace = recorded(compile_program(USUAL_SIZES, "-fno-builtin"), tmp_path)
    trace.write_bytes(trace.read_bytes()[:-10])  # its end is cut off: what is there counts
    result = masu("tune", "-n", "5", trace, timeout=300)
    assert result.returncode == 0
    assert "cut at byte" in " ".join(result.stderr.split())
    assert "No gain in memory beyond noise: nothing is written" in result.stdout
    assert "tried other size classes" in result.stderr
    assert not (tmp_path / "it.trace.options").exists()


def test_options_are_tried_for_time_and_delays_only_in_the_programs_own_time(masu, compile_program, tmp_path):
    trace = recorded(compile_program(USUAL_SIZES, "-fno-builtin"), tmp_path)
    plain = masu("tune", "--for", "time", "-n", "5", trace, timeout=300, check=True)
    assert "tried huge_pages:16" in plain.stderr
    assert "purge_delay" not in plain.stderr
    thinking = masu("tune", "--think", "-n", "5", trace, timeout=300, check=True)
    assert "tried purge_delay:0" in thinking.stderr
    assert "huge_pages" not in thinking.stderr


def test_a_trace_that_is_none_and_a_folder_that_is_none(masu, compile_program, tmp_path):
    (tmp_path / "it").write_text("nothing")
    result = masu("tune", tmp_path / "it")
    assert result.returncode == 125
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "it.options").exists()
    result = masu("tune", tmp_path / "missing")
    assert result.returncode == 125
    assert result.stderr.count("\n") == 1


def test_ctrl_c_ends_it_in_any_round():
    with pytest.raises(KeyboardInterrupt):
        tune._check(Comparison([], {tune.BEFORE: [None] * 6}, interrupted=True))


def test_ctrl_c_while_all_is_measured_anew_keeps_what_was_better(compile_program, tmp_path):
    trace, folder = recorded(compile_program(ODD_SIZES, "-fno-builtin"), tmp_path), tmp_path / "tmp"
    folder.mkdir()
    process = subprocess.Popen([MASU, "tune", "-n", "20", trace], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(folder)}, preexec_fn=as_in_a_terminal)  # fmt: skip
    while not list(folder.glob("*/tuned.options")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "tried other size classes: 0." in errors and "interrupted: this was better by then" in errors
    text = (tmp_path / "it.trace.options").read_text()
    assert "interrupted: not measured anew" in text and re.search("^classes: .* 1040 ", text, re.M)
    assert "it.trace.options is written" in output and os.listdir(folder) == []


def played(peaks, interrupted=False):
    """Five rounds of a replay, in which these take so much memory at their peak."""
    own = {"wall_s": 1, "cpu_s": 1, "mean_rss_kib": 1, "page_faults": 1, "voluntary_switches": 1}
    runs = {name: [Run(None, own={**own, "peak_rss_kib": peak})] * 5 for name, peak in peaks.items()}
    return Comparison([], runs, counted=replay.FIGURES, interrupted=interrupted)


def test_what_was_tried_is_told_at_once_and_by_its_name(tmp_path):
    """And what was better is not lost when Ctrl-C comes later."""
    options = [tune.Settings(classes=(8, 16)), tune.Settings(options=(("purge_delay", 0),))]
    answers = [played({tune.BEFORE: 100_000, "other size classes": 50_000, "purge_delay:0": 100_000}),
               played({tune.BEFORE: 50_000, "purge_delay:0": 50_000}, interrupted=True)]  # fmt: skip
    asked, told = [], {}

    def rounds(allocators):
        asked.append([a.name for a in allocators])
        return answers.pop(0)

    tuned = tune.search("memory", False, options, rounds, tmp_path / "lib.so", tmp_path, lambda name, ratio: told.setdefault(name, ratio.median),
                        pytest.fail)  # fmt: skip
    assert asked == [[tune.BEFORE, "other size classes", "purge_delay:0"], [tune.BEFORE, "purge_delay:0"]]
    assert told == {"other size classes": 0.5, "purge_delay:0": 1.0}
    assert tuned.interrupted and tuned.settings == options[0] and not tuned.comparison
    text = tune.options_file(tuned, tmp_path / "it.trace", "memory", "1", "5 rounds", "masu run")
    assert "interrupted: not measured anew" in text and "#   other size classes: 0.500 (" in text
    assert text.endswith("\nclasses: 8 16\n")


def test_ctrl_c_before_anything_proved_better_ends_it(tmp_path):
    def rounds(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune.search("memory", False, [tune.Settings(classes=(8, 16))], rounds, tmp_path / "lib.so", tmp_path, lambda *_: None, pytest.fail)


@pytest.mark.parametrize(("goal", "think", "threads", "tried"), [("memory", True, 8, True), ("memory", True, 7, False),
                                                                 ("memory", False, 100, False), ("time", True, 100, False)])  # fmt: skip
def test_sleepers_is_tried_where_many_threads_may_sleep(goal, think, threads, tried):
    options = [name for settings in tune.candidates(goal, (), think, threads) for name, _ in settings.options]
    assert ("sleepers" in options) == tried


def test_what_the_replay_fails_with_drops_out_and_the_rest_goes_on(tmp_path):
    options = [tune.Settings(classes=(8, 16)), tune.Settings(options=(("purge_delay", 0),)), tune.Settings(options=(("sleepers", 1),))]
    fails = played({tune.BEFORE: 100_000, "purge_delay:0": 50_000, "sleepers:1": 100_000})
    fails.failed["other size classes"] = "signal 11"
    answers = [fails, played({tune.BEFORE: 50_000, "sleepers:1": 50_000}), played({tune.BEFORE: 100_000, "tuned": 50_000})]
    asked, told, dropped = [], [], []

    def rounds(allocators):
        asked.append([a.name for a in allocators])
        return answers.pop(0)

    tuned = tune.search("memory", True, options, rounds, tmp_path / "lib.so", tmp_path,
                        lambda name, _: told.append(name), lambda *of: dropped.append(of))  # fmt: skip
    assert dropped == [("other size classes", "signal 11")] and told == ["purge_delay:0", "sleepers:1", "sleepers:1"]
    assert asked[1:] == [[tune.BEFORE, "sleepers:1"], [tune.BEFORE, "tuned"]]
    assert tuned.settings == options[1] and tuned.comparison


@pytest.mark.parametrize("name", [tune.BEFORE, "tuned"])
def test_without_a_replay_of_what_all_depends_on_there_is_nothing(name):
    with pytest.raises(Problem, match=rf"failed \({name}\): signal 11"):
        tune._check(Comparison([], {}, {name: "signal 11"}), tune.BEFORE, "tuned")


# ---- The choice ----


def is_list_of_classes(classes):
    return (
        len(classes) == tune.CLASSES
        and classes[0] == 8
        and set(tune.POWERS) <= set(classes)
        and all(a < b and b % 16 == 0 for a, b in zip(classes, classes[1:]))
        and classes[-1] == 32768
    )


def some_loads(seed):
    draw = random.Random(seed)
    return [{draw.randint(0, 40000): draw.choice((0, 1, 50, 20000)) * draw.random() for _ in range(draw.choice((0, 3, 200)))}
            for _ in range(2)]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_the_library_takes_whatever_is_chosen(masu, tmp_path, library, seed):
    loads = some_loads(seed)
    classes = tune.choose_classes(*loads)
    assert is_list_of_classes(classes)
    file = tmp_path / "it.options"
    file.write_text(tune.Settings(classes=tuple(classes)).text())
    sizes = [s for size in classes for s in (size, size + 1) if s <= 32768]
    run = subprocess.run(
        [program("trace_usable")], input="".join(f"{s}\n" for s in sizes), text=True, capture_output=True, check=True,
        env={"LD_PRELOAD": library, "MASU_OPTIONS_FILE": str(file)},
    )  # fmt: skip
    assert run.stderr == ""
    assert [int(n) for n in run.stdout.split()] == [min(c for c in classes if c >= s) for s in sizes]


def test_the_default_ones_are_the_librarys(library):
    sizes = "".join(f"{s}\n" for s in tune.DEFAULT)
    run = subprocess.run([program("trace_usable")], input=sizes, text=True, capture_output=True, check=True,
                         env={"LD_PRELOAD": library})  # fmt: skip
    assert tuple(map(int, run.stdout.split())) == tune.DEFAULT
    assert is_list_of_classes(tune.DEFAULT)


def test_more_odd_sizes_than_classes_lose_little():
    """200 sizes spread evenly: no list of 41 loses nothing, the default one loses much more. Of few blocks each, what is
    begun counts more: then classes that nothing needs are left out, though blocks are larger."""
    draw = random.Random(1)
    load = {draw.randrange(1000, 2000): 1000.0 for _ in range(200)}
    assert tune.added(tune.choose_classes(load), load) < 0.25 * tune.added(tune.DEFAULT, load)
    few = {size: 1.0 for size in load}
    assert tune.added(tune.choose_classes(few), few) < tune.added(tune.DEFAULT, few)


def test_a_few_blocks_get_no_slab_of_their_own():
    many, few = {1040: 50000.0}, {1056 + 16 * i: 1.0 for i in range(20)}
    classes = tune.choose_classes(many | few)
    assert 1040 in classes
    assert len([c for c in classes if 1040 < c < 1380]) < 4


# ---- masu run ----


def test_run_passes_the_file_on_by_its_absolute_path(masu, tmp_path):
    (tmp_path / "some.options").write_text("verbose:1\n")
    result = masu("run", "--options-file", "some.options", "--", "sh", "-c", "echo $MASU_OPTIONS_FILE", cwd=tmp_path)
    assert result.stdout == f"{tmp_path}/some.options\n"
    assert "allocates from masu" in result.stderr
    quiet = masu("run", "--options-file", "some.options", "--options", "verbose:0", "--", "true", cwd=tmp_path)
    assert quiet.stderr == ""


def test_run_with_a_file_that_cannot_be_read(masu, tmp_path):
    result = masu("run", "--options-file", tmp_path / "missing", "--", "true")
    assert result.returncode == 125
    assert result.stderr.count("\n") == 1


def test_what_a_file_says_that_is_not_understood_is_named_with_its_line(masu, tmp_path):
    (tmp_path / "it").write_text("# comment\nclasses: 8 17\nverbos:1\n")
    result = masu("run", "--options-file", tmp_path / "it", "--", "true")
    assert result.returncode == 0
    first, second = result.stderr.splitlines()
    assert f"{tmp_path}/it:2: classes: 17" in first
    assert f"{tmp_path}/it:3: unknown option 'verbos'" in second
