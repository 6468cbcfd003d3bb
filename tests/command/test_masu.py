"""masu: version, path and help."""

import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from masu.cli import main


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


@pytest.mark.parametrize("name", main.list_commands(None))
def test_each_command_has_help_that_opens_with_an_example_of_it(name):
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert f"masu {name}" in result.output.splitlines()[0]
    assert "Usage:" in result.output


@pytest.mark.parametrize("command", [["run"], ["record", "-o", "it.trace"]])
def test_a_program_does_not_wait_for_what_other_commands_import(tmp_path, command):
    words = [sys.executable, "-X", "importtime", "-m", "masu", *command, "--", "true"]
    result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")}
    assert "masu.program" in imported
    assert not imported & {"rich", "numpy", "scipy", "matplotlib", "jinja2", "textual", "tempfile"}


@pytest.mark.parametrize("command", [[], ["run"], ["path"]])
def test_help_opens_with_a_line_that_runs(masu, command):
    result = masu(*command, "--help")
    assert result.returncode == 0
    example = result.stdout.splitlines()[0]
    assert example.startswith(("masu ", "LD_PRELOAD="))
    shown = masu("run", "--", "sh", "-c", example, stdin=subprocess.DEVNULL)
    assert shown.returncode == 0, shown.stderr
