"""masu: version, path and help."""

import os
import re
import subprocess

import pytest


def test_version(masu):
    assert re.fullmatch(r"masu \d+\.\d+\.\d+\n", masu("--version").stdout)


def test_the_version_is_the_librarys(masu):
    command, library = masu("--version"), masu("run", "--verbose", "--", "cat", "/dev/null")
    assert command.stdout.split()[1] in library.stderr


def test_path_is_the_library(masu):
    path = masu("path").stdout.rstrip("\n")
    assert os.path.isabs(path) and path.endswith("libmasu.so")
    with open(path, "rb") as file:
        assert file.read(4) == b"\x7fELF"


@pytest.mark.parametrize("command", [[], ["run"], ["path"]])
def test_help_opens_with_a_line_that_runs(masu, command):
    result = masu(*command, "--help")
    assert result.returncode == 0
    example = result.stdout.splitlines()[0]
    assert example.startswith(("masu ", "LD_PRELOAD="))
    shown = masu("run", "--", "sh", "-c", example, stdin=subprocess.DEVNULL)
    assert shown.returncode == 0, shown.stderr
