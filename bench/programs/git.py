"""git gc on a real repository."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from masu.messages import Problem

from .harness import Program, Run, download, empty_folder, quietly, unpack

REPOSITORY = os.environ.get("MASU_PROGRAMS_REPOSITORY", "https://github.com/lua/lua")
RELEASES = "https://pypi.org/pypi/jinja2/json"

# The user's settings must not matter.
SETTINGS = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "pack.threads",
    "GIT_CONFIG_VALUE_0": "2",
    "GIT_CONFIG_KEY_1": "gc.auto",
    "GIT_CONFIG_VALUE_1": "0",
    "GIT_CONFIG_KEY_2": "safe.directory",
    "GIT_CONFIG_VALUE_2": "*",
    "GIT_TERMINAL_PROMPT": "0",
}


def prepare(folder: Path) -> None:
    try:
        quietly("git", "clone", "--quiet", "--mirror", REPOSITORY, folder / "repository.git", environment=SETTINGS)
    except Problem:
        print(f"(no {REPOSITORY}: the releases of a package instead)", end=" ", flush=True)
        commit_releases(folder / "repository.git")


def commit_releases(repository: Path) -> None:
    """Where no git host can be reached: every release of a package as a commit."""
    releases = json.loads(download(RELEASES))["releases"]
    urls = [file["url"] for files in releases.values() for file in files if file["packagetype"] == "sdist"]
    who = {f"GIT_{role}_{what}": f"release@{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    tree = repository.with_suffix(".tree")
    where = ("git", f"--git-dir={repository}", f"--work-tree={tree}")
    quietly("git", "init", "--quiet", "--bare", repository, environment=SETTINGS)
    for number, url in enumerate(sorted((u for u in urls if u.endswith(".tar.gz")), key=version_of)):
        unpack(download(url), empty_folder(tree))
        (top,) = tree.iterdir()
        top.rename(tree / "package")
        date = f"{1_200_000_000 + number * 5_000_000} +0000"
        commit = {**SETTINGS, **who, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        quietly(*where, "add", "--all", "--force", environment=commit)
        quietly(*where, "commit", "--quiet", "--allow-empty", "-m", url.rpartition("/")[2], environment=commit)


def version_of(url: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", url.rpartition("/")[2])]


def run_git(run: Run) -> None:
    def git(*words: str) -> str:
        return run.command("git", "-C", "copy.git", *words, environment=SETTINGS).output

    source = run.prepared / "repository.git"
    run.command("git", "clone", "--quiet", "--mirror", "--no-local", source, "copy.git", environment=SETTINGS)
    git("gc", "--quiet", "--aggressive", "--prune=now")
    run.record("git fsck", git("fsck", "--full", "--strict") or "clean")
    # Which delta is made of which object depends on the threads' timing; the objects do not.
    run.record_digest("objects", git("cat-file", "--batch-check", "--batch-all-objects"))
    run.record_digest("history", git("log", "--all", "--stat", "--format=%H %an %s", "--date-order"))
    run.record_digest("patches", git("log", "-p", "-300", "--all", "--date-order", "--no-color"))


PROGRAMS = (
    Program(
        "git",
        "git gc --aggressive, fsck and log on a real repository; objects and logs compared",
        packages=("git", "ca-certificates"),
        probe=("git", "--version"),
        prepare=prepare,
        run=run_git,
        quick=True,
    ),
)
