"""What masu compare does with the processes of a program: whose malloc they have, their memory, their end."""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import MASU, as_in_a_terminal, compiled, gone
from rich.console import Console

from masu import compare
from masu.measuring.measure import SYSTEM, Allocator, measure
from masu.messages import Problem

# ---- Which malloc the processes have ----

OTHER_MALLOC = """#include <stddef.h>
    void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
    void __libc_free(void *);
    void *malloc(size_t n) { return __libc_malloc(n); }
    void *calloc(size_t a, size_t b) { return __libc_calloc(a, b); }
    void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
    void free(void *p) { __libc_free(p); }"""
# Says which library answers malloc; takes MIB, and waits until FILE is there (anew).
WAITS = """#define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    int main(int count, char **words) {
      Dl_info info;
      if (dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info)) printf("in libc: %d\\n", strstr(info.dli_fname, "libc.so") != NULL);
      if (count < 3) return 0;
      size_t n = (size_t)atoi(words[2]) << 20;
      volatile char *p = malloc(n + 1);
      for (size_t i = 0; i <= n; i++) p[i] = 1;
      unlink(words[1]);
      while (access(words[1], F_OK)) usleep(1000);
      return 0;
    }"""


@pytest.fixture
def other_malloc(tmp_path):
    return compiled(tmp_path, "libother", OTHER_MALLOC)


@pytest.fixture
def linked(compile_program, other_malloc):
    """WAITS, with a malloc from a library of its own."""
    return compile_program(WAITS, "-Wl,--no-as-needed", other_malloc, f"-Wl,-rpath,{other_malloc.parent}")


@pytest.fixture
def waits(monkeypatch, tmp_path):
    """waits(ready, ...): the files that programs wait for, made when ready(curve) is true. One that was made before a
    program waited, it has removed."""

    def files(*names, ready=lambda curve: True):
        sample, paths = compare.Curve._sample, [tmp_path / name for name in names]

        def sampled(curve):
            mib = sample(curve)
            for path in paths if ready(curve) else ():
                path.touch()
            return mib

        monkeypatch.setattr(compare.Curve, "_sample", sampled)
        return paths

    return files


def beside_masu(library, *command, rounds=1, metric=""):
    allocators = [SYSTEM, Allocator("masu", Path(library))]
    return compare.compare(list(map(str, command)), allocators, Console(quiet=True), rounds=rounds, metric=metric)


@pytest.mark.parametrize("started", ["by masu", "by a script", "by another program"])
def test_the_systems_is_the_c_librarys(library, linked, other_malloc, script, waits, started):
    (file,) = waits("go")
    command = {
        "by masu": [linked],
        "by a script": [script(f"#!{linked}\n")],
        "by another program": ["sh", "-c", f"{linked} {file} 1; exit"],
    }[started]
    result = beside_masu(library, *command, metric=r"in libc: (\d)")
    assert {name: run[0].metric for name, run in result.runs.items()} == {"system": 1, "masu": 0}, result.failed
    assert compare.notes(result) == [f"{other_malloc} answers malloc in it: for `system` the C library is preloaded"]


def test_of_a_program_on_the_c_librarys_malloc_nothing_is_said(library, compile_program):
    result = beside_masu(library, "sh", "-c", f'echo "[$LD_PRELOAD]"; {compile_program(WAITS)}')
    assert compare.notes(result) == []
    assert result.runs["system"][0].usage.output.startswith("[]\n")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("env -i {dynamic} {file} 50", "{dynamic} did not load what was preloaded, as after `env -i`"),
        ("sh -c '{static} {file} 50; exit'", "{static} is statically linked"),
        ("sh -c '{own} {file} 50; exit'", "{own} has its own malloc"),
    ],
)
def test_where_the_work_is_not_reached_it_is_said(library, compile_program, waits, how, why):
    (file,) = waits("go")
    own = "void *malloc(size_t n) { return sbrk((n + 15) & ~15ul); }\nvoid free(void *p) { (void)p; }\n"
    source = WAITS.replace("dladdr(dlsym(RTLD_DEFAULT, \"malloc\"), &info)", "info.dli_fname = 0, 0")
    programs = {
        "dynamic": compile_program(source),
        "static": compile_program(source, "-static"),
        "own": compile_program(source.replace("int main", own + "int main"), "-fno-builtin", "-rdynamic"),
        "file": file,
    }
    result = beside_masu(library, *shlex.split(how.format(**programs)), rounds=5)
    (note,) = compare.notes(result)
    assert re.fullmatch(rf"no allocator reached (\d+)% of its memory: {re.escape(why.format(**programs))}", note), note
    assert compare.advice(result) == f"Nothing to compare: {note}."


# ---- Memory of all processes ----


def test_the_peak_is_that_of_all_processes_at_once(compile_program, waits):
    files = waits("a", "b", ready=lambda curve: curve.peak_mib > 190)
    program = compile_program(WAITS)
    run = compare.Program()(["sh", "-c", f"{program} {files[0]} 100 & {program} {files[1]} 100 & wait"], SYSTEM, None)
    assert run.usage.peak_rss_kib > 190 * 1024


def test_what_is_resident_for_one_sample_only_is_no_peak(monkeypatch):
    """As of a process that was just forked."""
    values = iter([10.0, 200.0, 10.0, 50.0, 60.0])

    def sample(curve):
        value = next(values, None)
        if value is None:
            curve.ended.set()
        return value or 0.0

    monkeypatch.setattr(compare.Curve, "_sample", sample)
    curve = compare.Curve()
    curve.watch(os.getpid())
    curve.join(timeout=60)
    assert curve.peak_mib == 50.0


# ---- A program that does not end ----


def test_a_program_that_does_not_end_is_ended(masu, tmp_path):
    result = masu("compare", "-n", "2", "--for", "0.3", "--json", tmp_path / "r.json", "--", "sleep", "1000")
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["failed"] == {} and content["notes"] == []
    figures = {row["figure"] for row in content["rows"]}
    assert {"CPU time", "peak memory"} <= figures and "wall time" not in figures


@pytest.mark.parametrize("memory", [True, False])
def test_what_a_program_prints_is_read_from_the_start(monkeypatch, memory):
    """Also where there are no files in memory."""
    if not memory:
        monkeypatch.delattr(os, "memfd_create")
    usage = measure(["sh", "-c", r"echo first; printf '\377\n' >&2; (echo second)"])
    assert (usage.status, usage.output, usage.errors) == (0, "first\nsecond\n", "\ufffd\n")


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_time_limit_holds_also_where_there_is_no_pidfd(monkeypatch, tmp_path, has_pidfd):
    def refused(_):
        raise PermissionError

    if not has_pidfd:
        monkeypatch.setattr(os, "pidfd_open", refused)
    assert measure(["sh", "-c", "exit 3"]).status == 3
    with pytest.raises(Problem, match="did not end within"):
        measure(["sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 1000"], timeout=2)
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("status", [0, 3, 143])
def test_a_server_ends_as_it_likes(status):
    program = compare.Program(lasting=0.2)
    run = program(["sh", "-c", f"trap 'exit {status}' TERM; while :; do sleep 0.05; done"], SYSTEM, None)
    assert run.usage.status == (0 if status == 143 else status)


def test_a_server_that_does_not_last_has_failed():
    with pytest.raises(Problem, match=r"ended by itself after .* with exit status 1: no port"):
        compare.Program(lasting=1000)(["sh", "-c", "echo no port >&2; exit 1"], SYSTEM, None)


def test_one_that_does_not_end_when_asked_has_failed(monkeypatch):
    monkeypatch.setattr(compare, "GRACE_S", 0.5)
    with pytest.raises(Problem, match="did not end within"):
        compare.Program(lasting=0.5)(["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"], SYSTEM, None)


def test_there_is_a_hint_while_a_program_does_not_end(monkeypatch, tmp_path):
    monkeypatch.setattr(compare, "HINT_S", 0.1)
    said = []

    def hint(text):
        said.append(text)
        (tmp_path / "go").touch()

    program = compare.Program(hint=hint)
    for _ in range(2):
        program(["sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"], SYSTEM, None)
    assert len(said) == 1 and "--for SECONDS" in said[0]


# ---- What is left ----


@pytest.mark.parametrize("where", ["", ">/dev/null 2>&1"])
def test_what_a_program_leaves_is_ended(masu, tmp_path, where):
    result = masu("compare", "-n", "1", "--", "sh", "-c", f"sleep 1000 {where} & echo $! >>{tmp_path}/pids")
    assert result.returncode == 0, result.stderr
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) >= 4 and all(map(gone, pids))


def test_what_left_the_session_is_ended_too(masu, tmp_path):
    """And what that started: it holds the program's output open."""
    daemon = f"setsid sh -c 'sleep 1000 & echo $! $$ >>{tmp_path}/pids; touch {tmp_path}/there; wait'"
    result = masu("compare", "-n", "1", "--metric", r"took (\d+)", "--", "sh", "-c",
                  f"({daemon} &); until [ -e {tmp_path}/there ]; do sleep 0.01; done; rm {tmp_path}/there; echo took 5")  # fmt: skip
    assert result.returncode == 0, result.stderr
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) >= 8 and all(map(gone, pids))


def test_so_it_is_when_the_program_is(tmp_path):
    def interrupted(_):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(["sh", "-c", f"(setsid sh -c 'echo $$ >{tmp_path}/pid; exec sleep 1000' &); exec sleep 1000"], started=interrupted)
    assert gone((tmp_path / "pid").read_text().strip())


def test_a_program_sees_what_it_left_end(masu, tmp_path):
    """It gives up after a while: nothing else would end it."""
    daemon = f"(true & echo $! >{tmp_path}/pid); i=0; while kill -0 $(cat {tmp_path}/pid) 2>/dev/null; do"
    result = masu("compare", "-n", "1", "--", "sh", "-c", f"{daemon} i=$((i + 1)); [ $i -lt 200 ] || exit 9; sleep 0.05; done; exit 3")
    assert result.returncode == 0 and "ends with exit status 3" in result.stderr, result.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)])
def test_nothing_is_left_when_masu_is_ended(tmp_path, number, status):
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen([MASU, "compare", "--", "sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 1000"],
                               env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}, stderr=subprocess.DEVNULL,
                               preexec_fn=as_in_a_terminal)  # fmt: skip
    while not (tmp_path / "pid").exists() or not (pid := (tmp_path / "pid").read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(timeout=30) == status
    assert gone(int(pid))
    assert number == signal.SIGKILL or os.listdir(tmp_path / "tmp") == []
