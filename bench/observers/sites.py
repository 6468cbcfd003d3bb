"""Which functions each observer names for the same program, whose shares are known: sites.c.

Of the functions of that program the five with most in use at the end, as a set: samplers estimate, so that the order
of near ones may differ. Allocators' and the tools' own frames are left out for all alike."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from masu import profile as profiles
from masu.messages import Problem

from observers.contenders import Contender
from observers.running import checked, run

HERE = Path(__file__).resolve().parent
TOP = 5


@dataclass(frozen=True)
class Planted:
    """The program, the same as a script of Python that loads it, and the truth."""

    program: Path
    script: Path
    truth: dict[str, int]

    def top(self, found: Counter[str]) -> list[str]:
        return [name for name, _ in found.most_common(TOP) if found[name] > 0]


@dataclass
class Named:
    top: list[str] = field(default_factory=list)
    same: int = 0
    """So many of them are among the true ones."""
    missing: str = ""


def build(folder: Path) -> Planted:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Problem("the program of known shares needs a C compiler")
    program, library, script = folder / "sites", folder / "sites.so", folder / "sites_of_library.py"
    flags = ["-O2", "-g", "-fno-builtin", "-fno-optimize-sibling-calls", "-fno-ipa-icf", "-Wl,--build-id"]
    subprocess.run([compiler, *flags, "-o", program, HERE / "sites.c"], check=True)
    subprocess.run([compiler, *flags, "-shared", "-fPIC", "-o", library, HERE / "sites.c"], check=True)
    script.write_text(f"import ctypes\nctypes.CDLL({str(library)!r}).main(1, None)\n")
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return Planted(program, script, json.loads(said))


def compare(contenders: list[Contender], planted: Planted, folder: Path, peers: Path, tell) -> dict:
    """{"truth": [...], "named": {observer: ...}}"""
    named = {}
    for contender in contenders:
        if contender.name in READERS:
            tell(f"call sites: {contender.name}")
            named[contender.name] = vars(_named(contender, planted, folder / f"sites-{contender.name.replace(' ', '-')}", peers))
    return {"truth": planted.top(Counter(planted.truth)), "named": named}


def _named(contender: Contender, planted: Planted, folder: Path, peers: Path) -> Named:
    if contender.missing:
        return Named(missing=contender.missing)
    words = (sys.executable, str(planted.script)) if contender.python else (str(planted.program),)
    folder.mkdir()
    try:
        checked(contender, run(words, contender, folder), folder)
        found = READERS[contender.name](folder, planted, peers)
    except (Problem, OSError, profiles.BadProfile, subprocess.CalledProcessError) as problem:
        return Named(missing=str(problem))
    top = planted.top(Counter({name: found[name] for name in planted.truth}))
    return Named(top, len({*top} & {*planted.top(Counter(planted.truth))}))


# ---- What each of them writes ----


def of_masu(folder: Path, planted: Planted, peers: Path) -> Counter[str]:
    profile, _ = profiles.load(max(folder.glob("*.heap.pb*")))
    found = Counter()
    for row in profiles.heap(profile).rows():
        found[row.name] += row.total["inuse_space"]
    return found


TEXT_OF_PPROF = re.compile(r"^\s*-?[\d.]+\s+-?[\d.]+%\s+-?[\d.]+%\s+(-?[\d.]+)\s+-?[\d.]+%\s+(\S+)")
"""flat, flat %, sum %, cumulated, cumulated %, function."""


def of_pprof_text(text: str) -> Counter[str]:
    """Of what a function allocated, with those that it called: allocators' own frames may be among these."""
    found = Counter()
    for line in text.splitlines():
        if match := TEXT_OF_PPROF.match(line):
            found[match[2]] = max(found[match[2]], round(float(match[1]) * 1000))
    return found


def of_jemalloc(folder: Path, planted: Planted, peers: Path) -> Counter[str]:
    return _by(peers / "jeprof", folder, planted)


def of_gperftools(folder: Path, planted: Planted, peers: Path) -> Counter[str]:
    """Its reader, or that of jemalloc, which was made from it."""
    return _by(shutil.which("google-pprof") or peers / "jeprof", folder, planted)


def _by(reader: str | Path, folder: Path, planted: Planted) -> Counter[str]:
    """The last file that it wrote."""
    last = max(folder.glob("*.heap"), key=lambda path: path.stat().st_mtime_ns)
    words = ["perl", reader, "--text", "--cum", "--inuse_space", planted.program, last]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem(f"{Path(reader).name}: {(done.stderr or 'failed').strip().splitlines()[-1]}")
    return of_pprof_text(done.stdout)


def of_folded(text: str, names: set[str]) -> Counter[str]:
    """Frames, maybe with their file, semicolons between them, and a number. Those names don't call each other."""
    found = Counter()
    for line in text.splitlines():
        frames, _, number = line.rpartition(" ")
        for name in names.intersection(frame.partition(" (")[0] for frame in frames.split(";")):
            found[name] += int(number)
    return found


def of_heaptrack(folder: Path, planted: Planted, peers: Path) -> Counter[str]:
    return of_folded(folded_by_heaptrack(folder), set(planted.truth))


def folded_by_heaptrack(folder: Path) -> str:
    output = folder / "folded"
    quiet = ("--print-peaks=0", "--print-allocators=0", "--print-temporary=0")
    words = ["heaptrack_print", *quiet, "--flamegraph-cost-type=peak", "-F", output, "-f", max(folder.glob("heaptrack*"))]
    subprocess.run(words, capture_output=True, check=True)
    return output.read_text()


PEAK_OF_MASSIF = re.compile(r"^heap_tree=peak\n(.*?)(?=^#-|\Z)", re.M | re.S)
NODE_OF_MASSIF = re.compile(r"^ n\d+: (\d+) 0x[0-9A-Fa-f]+: (\S+)", re.M)


def of_massif(text: str) -> Counter[str]:
    """The callers of malloc, as ms_print shows them."""
    found = Counter()
    for bytes_, name in NODE_OF_MASSIF.findall(peak_of_massif(text)):
        found[name] += int(bytes_)
    return found


def of_memray(folder: Path, planted: Planted, peers: Path) -> Counter[str]:
    import memray

    found = Counter()
    for record in memray.FileReader(folder / "memray.bin").get_high_watermark_allocation_records(merge_threads=True):
        for name in {function for function, *_ in record.hybrid_stack_trace()}:
            found[name] += record.size
    return found


def peak_of_massif(text: str) -> str:
    """Its detailed snapshot."""
    peaks = PEAK_OF_MASSIF.findall(text)
    if not peaks:
        raise Problem("massif wrote no peak")
    return peaks[-1]


READERS = {
    "masu heap": of_masu,
    "jemalloc heap": of_jemalloc,
    "gperftools heap": of_gperftools,
    "heaptrack": of_heaptrack,
    "memray": of_memray,
    "massif": lambda folder, planted, peers: of_massif((folder / "massif.out").read_text()),
}
"""gperftools' sampling is not among them: a program has to ask for its profile."""
