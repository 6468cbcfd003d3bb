"""The allocators that this machine has: masu's own, the system's, and those from packages."""

from __future__ import annotations

import ctypes.util
import functools
import importlib.metadata
import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from masu.measuring.answers import why_not
from masu.measuring.measure import SYSTEM, Allocator, settings_left_out
from masu.messages import Problem, say, warn

# Name, and the libraries that packages install it as; of those that are there the first.
KNOWN = {
    "mimalloc": ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"),
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so"),
    "tbb": ("libtbbmalloc_proxy.so.2", "libtbbmalloc_proxy.so"),
    "snmalloc": ("libsnmallocshim.so",),
    "rpmalloc": ("librpmallocwrap.so",),
    "hoard": ("libhoard.so",),
}


@dataclass(frozen=True)
class Found:
    allocator: Allocator
    version: str = ""
    wrong: str = ""
    """Why it can't be used."""
    flaw: str = ""
    """It answers, but not as it should."""

    @property
    def name(self) -> str:
        return self.allocator.name


@functools.cache
def _loader_paths() -> dict[str, str]:
    """What the dynamic linker knows: name of a library and its path."""
    try:
        out = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    found: dict[str, str] = {}
    for name, kind, path in re.findall(r"^\s*(\S+) \(([^)]*)\) => (\S+)$", out, re.MULTILINE):
        if "x86-64" in kind or "64" not in os.uname().machine:
            found.setdefault(name, path)
    return found


def _version_of(path: Path) -> str:
    """As the package says; else as the file's own name does."""
    real = path.resolve()
    for candidate in dict.fromkeys((real, path)):
        try:
            owner = subprocess.run(["dpkg", "-S", str(candidate)], capture_output=True, text=True, check=False).stdout
        except OSError:
            break
        package = owner.partition(": ")[0].split(",")[0]
        if package:
            said = subprocess.run(
                ["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True, check=False
            ).stdout
            if said:
                return said
    match = re.search(r"\.so\.([0-9.]+)$", real.name)
    return match.group(1) if match else ""


def given(text: str) -> Allocator:
    """NAME=LIBRARY, the library a path or what the dynamic linker calls it."""
    if "=" not in text:
        raise Problem(f"{text}: not NAME=LIBRARY")
    allocator = Allocator.parse(text)
    if allocator.library and not allocator.library.is_file():
        known = _loader_paths().get(str(allocator.library)) or ctypes.util.find_library(str(allocator.library))
        if not known or not Path(known).is_file():
            raise Problem(f"{allocator.library}: no such library")
        allocator = Allocator(allocator.name, Path(known))
    return allocator


def allocators(masu: Path, extra: tuple[str, ...] = ()) -> list[Found]:
    """The system's first, then masu, then the others; each but the system's was tried."""
    found = [
        Found(SYSTEM, (os.confstr("CS_GNU_LIBC_VERSION") or "").strip()),
        Found(Allocator("masu", masu), importlib.metadata.version("masu")),
    ]
    paths = _loader_paths()
    for name, libraries in KNOWN.items():
        path = next((paths[library] for library in libraries if library in paths), None)
        if path:
            found.append(Found(Allocator(name, Path(path)), _version_of(Path(path))))
    for text in extra:
        allocator = given(text)
        found = [f for f in found if f.name != allocator.name]
        found.append(Found(allocator, _version_of(allocator.library)))
    return [_tried(f) if f.allocator.library else f for f in found]


def usable(masu: Path, extra: tuple[str, ...] = ()) -> list[Found]:
    """Those that can be used; a warning for each that can't, or not as it should."""
    found = allocators(masu, extra)
    for f in found:
        if f.wrong:
            warn(f"{f.name} is left out: {f.wrong}")
        elif f.flaw:
            warn(f"{f.name} answers, but {f.flaw}")
    if unused := settings_left_out():
        warn(f"{', '.join(unused)} {'are' if len(unused) > 1 else 'is'} not used: each allocator is measured with its defaults")
    if len(found) == 2:
        say("no other allocator on this machine; Debian has libjemalloc2, libmimalloc2.0 and libtcmalloc-minimal4, "
            "and --with NAME=LIBRARY takes any")  # fmt: skip
    return [f for f in found if not f.wrong]


def _tried(f: Found) -> Found:
    wrong = why_not(f.allocator, "loaded")
    return replace(f, wrong=wrong, flaw="" if wrong else why_not(f.allocator))
