"""What every command has: help that opens with a line one can run, failures that are one line, and an end by
signals that cleans up."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from masu.messages import failures_said, writable_or_fail

ENDING = (signal.SIGTERM, signal.SIGHUP)


class _OpensWithExample:
    def __init__(self, *args, example: str, **kwargs):
        super().__init__(*args, **kwargs)
        self.example = example

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(click.style(self.example, bold=True) + "\n\n")
        super().format_help(ctx, formatter)


def _end(number: int, _) -> NoReturn:
    for n in ENDING:  # what comes now is clean-up
        signal.signal(n, signal.SIG_IGN)
    raise SystemExit(128 + number)


class Command(_OpensWithExample, click.Command):
    """runs: it runs one program, which signals are meant for. Else they end the command and what it
    has started, and it cleans up."""

    def __init__(self, *args, runs: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.runs = runs

    def invoke(self, ctx: click.Context) -> object:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # see masu.__main__
        for number in () if self.runs else ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)
        with failures_said(self.name or ""):
            return super().invoke(ctx)


class Group(_OpensWithExample, click.Group):
    """Its commands are the modules of masu.commands that are named, each of which has one of its own name. Only the one
    that runs is imported: a program that masu runs waits for that."""

    def __init__(self, *args, names: Sequence[str], **kwargs):
        super().__init__(*args, **kwargs)
        self.names = sorted(names)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self.names

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return getattr(importlib.import_module(f"masu.commands.{name}"), name) if name in self.names else None


class ResultFile(click.Path):
    """The path of a file that will be written, known to be writable before anything is measured."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value, param, ctx) -> Path:
        path = super().convert(value, param, ctx)
        writable_or_fail(path)
        return path
