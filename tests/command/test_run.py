"""masu run: the program gets the library, and everything else stays its own."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

PRINT_MAPS = "print(open('/proc/self/maps').read())"
NO_EFFECT = "LD_PRELOAD has no effect"


# ---- The library is there --------------------------------------------------------


def test_python_runs_on_masu(masu, library):
    result = masu("run", "--", sys.executable, "-c", PRINT_MAPS)
    assert library in result.stdout
    assert result.stderr == ""


def test_so_do_the_programs_of_a_shell(masu, library):
    result = masu("run", "--", "sh", "-c", "cat /proc/$$/maps; grep -c libmasu.so /proc/self/maps")
    assert library in result.stdout
    assert int(result.stdout.splitlines()[-1]) > 0


def test_without_the_dashes(masu, library):
    result = masu("run", "cat", "-s", "/proc/self/maps")
    assert library in result.stdout


def test_verbose(masu):
    result = masu("run", "--verbose", "--", "cat", "/dev/null")
    assert "allocates from masu" in result.stderr


def test_stats(masu):
    result = masu("run", "--stats", "--", sys.executable, "-c", "")
    assert result.returncode == 0
    assert len(result.stderr.splitlines()) > 1


def tables(result):
    return sum("masu:   class " in line for line in result.stderr.splitlines())


def test_stats_of_a_program_that_ends_by__exit(masu):
    result = masu("run", "--stats", "--", sys.executable, "-c", "import os; os._exit(3)")
    assert result.returncode == 3
    assert tables(result) == 1


def test_stats_of_the_program_only(masu):
    # The id survives exec, so the second program is the one that was asked about.
    result = masu("run", "--stats", "--", "sh", "-c", "cat /dev/null; exec ls /")
    assert tables(result) == 1
    assert "masu: ls, process" in result.stderr


def test_stats_once_for_a_program_that_forks(masu):
    forks = "import os\nfor i in range(3):\n if os.fork() == 0: os._exit(0)\nfor i in range(3): os.wait()"
    assert tables(masu("run", "--stats", "--", sys.executable, "-c", forks)) == 1


@pytest.mark.parametrize("how", [["--profile", "heap", "-o", "it"], ["--profile", "cpu", "-o", "it"], ["--leaks"]])
def test_stats_beside_what_else_is_observed(masu, tmp_path, how):
    result = masu("run", "--stats", *how, "--", "sh", "-c", "cat /dev/null; exec ls /", cwd=tmp_path)
    assert tables(result) == 1
    assert "masu: ls, process" in result.stderr


# ---- The environment -------------------------------------------------------------


def test_the_preload_comes_before_others(masu, library):
    others = "libpthread.so.0"
    result = masu("run", "--", "sh", "-c", "echo $LD_PRELOAD", env={"LD_PRELOAD": others})
    assert result.stdout.strip() == f"{library}:{others}"


def test_options_come_after_others(masu):
    result = masu(
        "run", "--options", "purge_delay:7", "--verbose", "--", "sh", "-c", "echo $MASU_OPTIONS",
        env={"MASU_OPTIONS": "helper:0"},
    )
    assert result.stdout.strip() == "helper:0,purge_delay:7,verbose"


def test_an_unknown_option_gets_the_nearest_name(masu):
    result = masu("run", "--options", "verbos", "--", "cat", "/dev/null")
    assert "verbose" in result.stderr
    assert result.returncode == 0


@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "C"}, {"LC_ALL": "C.UTF-8"}])
def test_nothing_else_changes(masu, library, locale):
    before = {"LANG": "C", "EMPTY": "", "ODD": "a\nb=\udcff", **locale}
    result = masu("run", "--", "cat", "/proc/self/environ", env=before, errors="surrogateescape")
    after = dict(entry.split("=", 1) for entry in result.stdout.split("\0") if entry)
    assert after.pop("LD_PRELOAD") == library
    outer = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "MASU_OPTIONS")}
    assert after == {**outer, **before}


def test_arguments_arrive_as_they_are(masu):
    arguments = ["--stats", "--", "-x", "", "a b", "*", "$HOME"]
    code = "import sys; print(sys.argv[1:])"
    result = masu("run", "--", sys.executable, "-c", code, *arguments)
    assert result.stdout.strip() == repr(arguments)


def test_the_name_of_the_program_stays(masu):
    assert masu("run", "--", "sh", "-c", "echo $0").stdout.strip() == "sh"


def test_no_signal_is_ignored(masu):
    result = masu("run", "--", "grep", "SigIgn", "/proc/self/status")
    ignored = int(result.stdout.split()[1], 16)
    assert not ignored & 1 << signal.SIGPIPE - 1
    assert not ignored & 1 << signal.SIGXFSZ - 1


# ---- How it ends -----------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 3, 125, 127, 255])
def test_the_exit_status_is_the_programs(masu, status):
    assert masu("run", "--", "sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_so_is_the_signal(masu, number):
    assert masu("run", "--", "sh", "-c", f"kill -{number.value} $$").returncode == -number


def one_error(result, status, text):
    assert result.returncode == status
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("masu: error: ")
    assert text in result.stderr


def test_no_such_command(masu):
    one_error(masu("run", "--", "no-such-command"), 127, "no-such-command: command not found")


def test_no_such_file(masu):
    one_error(masu("run", "--", "./no/such/file"), 127, "./no/such/file: no such file")


def test_not_executable(masu, script):
    one_error(masu("run", "--", script("#!/bin/sh\n", mode=0o644)), 126, "permission denied")


def test_a_directory(masu, tmp_path):
    one_error(masu("run", "--", tmp_path), 126, "is a directory")


def test_an_interpreter_that_is_gone(masu, script):
    one_error(masu("run", "--", script("#!/no/such/interpreter\n")), 126, "No such file")


def test_no_program_at_all(masu):
    result = masu("run")
    assert result.returncode == 2
    assert "PROGRAM" in result.stderr


# ---- Scripts ---------------------------------------------------------------------


def test_a_script(masu, library, script):
    result = masu("run", "--", script("#!/bin/sh\ncat /proc/$$/maps\nexit $1\n"), "9")
    assert library in result.stdout
    assert result.returncode == 9
    assert result.stderr == ""


def test_a_script_by_env(masu, library, script):
    result = masu("run", "--", script(f"#!/usr/bin/env python3\n{PRINT_MAPS}\n"))
    assert library in result.stdout
    assert result.stderr == ""


def test_a_script_without_interpreter(masu, library, script):
    result = masu("run", "--", script("cat /proc/$$/maps\necho $1\n"), "last")
    assert library in result.stdout
    assert result.stdout.splitlines()[-1] == "last"


# ---- Where LD_PRELOAD has no effect ----------------------------------------------

HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 4; }\n'


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie"]])
def test_a_static_program_runs_with_a_warning(masu, compile_program, flags):
    program = compile_program(HELLO, *flags)
    result = masu("run", "--", program)
    assert (result.returncode, result.stdout) == (4, "hello\n")
    assert result.stderr.startswith("masu: warning: ")
    assert "statically linked" in result.stderr and NO_EFFECT in result.stderr
    assert result.stderr.count("\n") == 1


def test_so_does_a_script_of_one(masu, compile_program, script):
    program = compile_program(HELLO, "-static")
    result = masu("run", "--", script(f"#!{program}\n"))
    assert (result.returncode, result.stdout) == (4, "hello\n")
    assert "statically linked" in result.stderr


def test_so_does_a_program_with_its_own_malloc(masu, own_malloc):
    result = masu("run", "--", own_malloc)
    assert result.returncode == 3
    assert "has its own malloc" in result.stderr and NO_EFFECT in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_program_that_only_calls_malloc_runs_without_a_warning(masu, compile_program):
    program = compile_program("#include <stdlib.h>\nint main(void) { void *(*volatile f)(size_t) = malloc; return !f(1); }\n", "-no-pie")
    result = masu("run", "--", program)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_dynamic_linker_itself(masu, library):
    result = masu("run", "--", "/lib64/ld-linux-x86-64.so.2", "/bin/cat", "/proc/self/maps")
    assert library in result.stdout
    assert result.stderr == ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a program of someone else")
def test_a_setuid_program_runs_with_a_warning(masu, compile_program):
    program = compile_program(HELLO)
    shutil.chown(program, user="nobody")
    program.chmod(0o4755)
    result = masu("run", "--", program)
    assert (result.returncode, result.stdout) == (4, "hello\n")
    assert "setuid" in result.stderr and NO_EFFECT in result.stderr


def test_a_program_for_another_processor(masu, script, library):
    program = script("")
    head = bytearray(Path(library).read_bytes()[:4096])
    head[18] = 0xF3  # RISC-V
    program.write_bytes(head)
    result = masu("run", "--", program)
    assert result.returncode == 126
    assert "another kind of processor" in result.stderr
