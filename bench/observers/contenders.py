"""Who takes part: allocators as they are, and each with what observes it."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from masu.library import library_path
from masu.measuring.answers import why_not
from masu.measuring.measure import Allocator, clean_environment


AGAIN = "masu again"
"""A copy of the library: what differs is noise."""
LIMITS = {"masu live": (1.01, 1.01), "masu heap": (1.03, 1.01), "masu cpu": (1.02, 1.02), "masu record": (3.0, 1.2)}
"""What the time may at most be: of programs that do little but allocate, and of others."""


@dataclass(frozen=True)
class Contender:
    name: str
    of: str = ""
    """Whom it is compared with; "": it observes nothing, others are compared with it."""
    what: str = ""
    library: Path | None = None
    settings: tuple[str, ...] = ()
    """NAME=VALUE, with {folder} for a folder that each run has for itself."""
    prefix: tuple[str, ...] = ()
    """Words before those of the program; {folder} as above."""
    writes: str = ""
    """Which files it leaves there. If it leaves none, it was not on."""
    samples: bool = True
    """Not every allocation: fit for long runs and many rounds."""
    records: bool = False
    """Every allocation, but fast enough for long runs: in rounds of its own, as many as an interval takes."""
    says_own: bool = False
    """Its files say what it took itself."""
    helpers: bool = False
    """Starts processes beside the program, whose memory counts."""
    python: bool = False
    """Takes a script of Python for a program, and no other."""
    most_rounds: int = 0
    missing: str = ""

    @property
    def input(self) -> str:
        """Which rounds it takes part in, under the name that these have in the results."""
        return "recorded" if self.records else "long" if self.samples else "short"

    def allocator(self, folder: Path) -> Allocator:
        return Allocator(self.name, self.library, tuple(s.format(folder=folder) for s in self.settings))

    def command(self, words: tuple[str, ...], folder: Path) -> list[str]:
        """Those of a program, with what has to stand before."""
        return [*(word.format(folder=folder) for word in self.prefix), *(words[1:] if self.python else words)]


def found(peers: Path, folder: Path) -> list[Contender]:
    """All, also those that can't run here. `folder`: for a copy of masu."""
    return [*_ours(folder), *_jemalloc(peers), *_gperftools(), *_google(peers), *_of_the_system()]


def chosen(all_: list[Contender], names: set[str]) -> list[Contender]:
    """Of those names, and whom they are compared with; no name: all."""
    bases = {c.of for c in all_ if c.name in names}
    return [c for c in all_ if not names or c.name in names | bases]


# ---- masu ----


def _ours(folder: Path) -> list[Contender]:
    library = library_path()
    again = folder / "masu-again.so"
    shutil.copyfile(library, again)
    profile = ("MASU_PROFILE={folder}",)
    masu = Contender("masu", library=library)
    record = (sys.executable, "-m", "masu", "record", "-o", "{folder}/it.trace", "--")
    contenders = [
        masu,
        Contender(AGAIN, "masu", "a copy of the library, nothing on: what differs is noise", again),
        Contender("masu live", "masu", "live page, and nobody looks", library, ("MASU_OPTIONS=live",)),
        Contender("masu heap", "masu", "heap profile, a sample every 512 KiB, a file every 5 s", library,
                  ("MASU_OPTIONS=profile,profile_every:5", *profile), writes="*.heap.pb*", says_own=True),
        Contender("masu cpu", "masu", "CPU profile, 100 samples a second, a file every 2 s", library,
                  ("MASU_OPTIONS=cpu,profile_every:2", *profile), writes="*.cpu.pb*", says_own=True),
        Contender("masu leaks", "masu", "leak check at the end", library,
                  ("MASU_OPTIONS=leaks", *profile), writes="*.leaks.pb*", samples=False),
        Contender("masu record", "masu", "every call, for masu replay",
                  prefix=record, writes="*.trace", samples=False, records=True, helpers=True),
    ]  # fmt: skip
    return [replace(c, missing=_why_not_known(library, c)) for c in contenders]


def _why_not_known(library: Path, contender: Contender) -> str:
    """The library says so about options that it does not know."""
    options = next((s.partition("=")[2] for s in contender.settings if s.startswith("MASU_OPTIONS=")), "")
    if not options:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        environment = clean_environment(Allocator("", library, (f"MASU_OPTIONS={options}", f"MASU_PROFILE={folder}")))
        run = subprocess.run(["true"], env=environment, capture_output=True, text=True, check=False)
    return f"this masu has no option {options}" if f"'{options}'" in run.stderr else ""


# ---- Allocators that sample ----


def _jemalloc(peers: Path) -> list[Contender]:
    library = peers / "jemalloc-profiling.so"
    reason = "" if library.is_file() else f"{library} is not built: script/bench-observers does it"
    reason = reason or why_not(Allocator("jemalloc", library))
    on = "MALLOC_CONF=prof:true,prof_active:true,lg_prof_sample:19,prof_final:true,prof_prefix:{folder}/jeprof"
    return [
        Contender("jemalloc", library=library, missing=reason),
        Contender("jemalloc heap", "jemalloc", "heap profile, a sample every 512 KiB", library, (on,),
                  writes="jeprof*.heap", missing=reason),
    ]  # fmt: skip


def _gperftools() -> list[Contender]:
    name, both = ctypes.util.find_library("tcmalloc"), ctypes.util.find_library("tcmalloc_and_profiler")
    reason = "" if name and both else "libgoogle-perftools4 is not installed"
    library = Path(name or "libtcmalloc.so.4")
    return [
        Contender("gperftools", library=library, missing=reason),
        Contender("gperftools sampling", "gperftools", "heap profile, a sample every 512 KiB, for the program to ask for",
                  library, ("TCMALLOC_SAMPLE_PARAMETER=524288",), missing=reason),
        Contender("gperftools heap", "gperftools", "heap profile of every allocation", library,
                  ("HEAPPROFILE={folder}/heap",), writes="heap*.heap", samples=False, missing=reason),
        Contender("gperftools cpu", "gperftools", "CPU profile, 100 samples a second", Path(both or ""),
                  ("CPUPROFILE={folder}/cpu",), writes="cpu*", missing=reason),
    ]  # fmt: skip


def _google(peers: Path) -> list[Contender]:
    """Its names are hidden as script/peers builds it, so its interval cannot be changed from outside."""
    reason = "samples every 2 MiB of any program that it runs; nothing from outside can change that in the library as it is built here"
    return [Contender("tcmalloc-google sampling", "tcmalloc-google", "heap profile, a sample every 2 MiB", missing=reason)]


# ---- Tools for any program ----


def _of_the_system() -> list[Contender]:
    memray = (sys.executable, "-m", "memray", "run", "--native", "-q", "-o", "{folder}/memray.bin")
    massif = ("valgrind", "--tool=massif", "-q", "--massif-out-file={folder}/massif.out")
    return [
        Contender("system"),
        Contender("heaptrack", "system", "every allocation", prefix=("heaptrack", "-o", "{folder}/heaptrack"),
                  writes="heaptrack*", samples=False, helpers=True, missing=_not_installed("heaptrack")),
        Contender("memray", "system", "every allocation of a Python program, --native", prefix=memray, writes="memray.bin",
                  samples=False, python=True,
                  missing="" if importlib.util.find_spec("memray") else "the Python package memray is not installed"),
        Contender("massif", "system", "every allocation, in valgrind", prefix=massif, writes="massif.out*", samples=False,
                  most_rounds=1, missing=_not_installed("valgrind")),
    ]  # fmt: skip


def _not_installed(program: str) -> str:
    return "" if shutil.which(program) else f"{program} is not installed"


def versions(peers: Path) -> dict[str, str]:
    """Of those that are there."""
    described = {"masu": _package("masu"), "memray": _package("memray"), "system": os.confstr("CS_GNU_LIBC_VERSION") or "",
                 "heaptrack": _said("heaptrack", "--version"), "massif": _said("valgrind", "--version"),
                 "gperftools": _said("dpkg-query", "-W", "-f", "${Version}", "libgoogle-perftools4")}  # fmt: skip
    jemalloc = peers / "jemalloc-profiling.version"
    described["jemalloc"] = jemalloc.read_text().strip() if jemalloc.is_file() else ""
    return {name: text for name, text in described.items() if text}


def _package(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _said(*command: str) -> str:
    if not shutil.which(command[0]):
        return ""
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else ""
