"""What others published, beside what the committed run shows, as the table of docs/benchmark.md, and masu beside the
system's allocator, as that of README.md.

    bench/published.py [RESULTS]      prints them; RESULTS: bench/results/reference.json
    bench/published.py --check        exit status 1 when the pages have others, or a verdict
                                      (`agrees`, `differs`) is not what the rows say
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "bench/results/reference.json"
PAGE, README = ROOT / "docs/benchmark.md", ROOT / "README.md"
BEGIN, END = "<!-- bench/published.py -->", "<!-- end -->"


@dataclass(frozen=True)
class Before:
    """The first is better than each of the others, by this factor at least."""

    better: str
    worse: tuple[str, ...]
    factor: float = 1

    def holds(self, medians: dict[str, float]) -> bool:
        return all(medians[self.better] * self.factor < medians[name] for name in self.worse)


@dataclass(frozen=True)
class Within:
    """The figure itself, from low to high in its own unit: for what does not depend on the machine."""

    name: str
    low: float
    high: float

    def holds(self, medians: dict[str, float]) -> bool:
        return self.low <= medians[self.name] <= self.high


@dataclass(frozen=True)
class Claim:
    source: str
    says: str
    case: str
    figure: str
    holds: tuple[Before | Within, ...]
    """What has to be so in the rows for the claim to agree."""
    comes_to: str
    """`agrees` or `differs`, and why. --check looks whether the rows say the same."""
    names: tuple[str, ...] = ()
    """The allocators that the source compares; none: all."""


MIMALLOC = "[mimalloc's README](https://github.com/microsoft/mimalloc#performance) (16 cores, 2021), larson"
SNMALLOC = "[snmalloc's paper](https://doi.org/10.1145/3315573.3329980) (Liétar and others, ISMM 2019), producer and consumer"
MIB = 1024

CLAIMS = (
    Claim(MIMALLOC, "mimalloc clearly before tcmalloc and jemalloc", "larson", "replacements_per_s",
          (Before("mimalloc2", ("gperftools", "jemalloc"), 1.1),),
          "agrees; Google's tcmalloc of today, which is not in their table, is beside it"),
    Claim("the same, xmalloc-test", "mimalloc far ahead; of the others rpmalloc, TBB and glibc scale", "xmalloc", "objects_per_s",
          (Before("mimalloc2", ("rpmalloc", "tbb", "system", "jemalloc", "gperftools", "snmalloc"), 1.1),),
          "differs but for gperftools, which is among the last: on two cores nobody waits for a central list, so those that hand over in large batches lead"),
    Claim("the same, cache-scratch", "gperftools shares cache lines between threads, glibc does so less", "cache-scratch", "write_ns",
          (Before("mimalloc2", ("gperftools",), 1.5), Before("system", ("gperftools",), 1.1)),
          "agrees, though glibc is nearly as bad"),
    Claim("[HAKMEM](mission.md), a million blocks of 16 bytes", "mimalloc 25.0 MB, glibc 39.6 MB", "resident-1000K-x-16, huge pages off", "rss_kib",
          (Within("mimalloc2", 24 * MIB, 26 * MIB), Within("system", 38 * MIB, 41 * MIB)),
          "agrees; what is resident hardly depends on the machine", ("system", "mimalloc2", "mimalloc3")),
    Claim("the same, five million", "glibc 192.4 MB", "resident-5000K-x-16, huge pages off", "rss_kib",
          (Within("system", 185 * MIB, 200 * MIB),), "agrees", ("system",)),
    Claim("[KMalloc](mission.md), 10,000 blocks of 1,024 bytes", "malloc and free 352 ns a pair (glibc's default settings)", "kmalloc-round", "pair_ns",
          (Within("system", 352 / 2, 352 * 2),), "agrees: as slow, within a factor of two, on another machine", ("system",)),
    Claim("[a lecture on TCMalloc](mission.md), one block of 256 KB", "TCMalloc (gperftools) before ptmalloc2", "single-256K", "pair_ns",
          (Before("gperftools", ("system",)),), "agrees", ("system", "gperftools")),
    Claim("the same, 512 KB", "ptmalloc2 before TCMalloc", "single-512K", "pair_ns",
          (Before("system", ("gperftools",)),), "agrees: the same border", ("system", "gperftools")),
    Claim("the same, finite elements, 70^3", "ptmalloc2 before TCMalloc from 70^3 on", "solver-70", "wall_s",
          (Before("system", ("gperftools",)),), "differs: this TCMalloc (2.10, theirs is older) is ahead", ("system", "gperftools")),
    Claim("[butterfly](mission.md), 32 threads", "twice as fast with mimalloc", "indexer-32", "step1_wall_s",
          (Before("mimalloc2", ("system",)),),
          "agrees in the order; less than twice with two cores, where less of the time is waiting for locks", ("system", "mimalloc2", "mimalloc3")),
    Claim("[rpmalloc's README](https://github.com/mjansson/rpmalloc), random sizes of 16 to 8,000 bytes", "rpmalloc first", "random-sizes", "operations_per_s",
          (Before("rpmalloc", ("gperftools", "jemalloc", "tbb", "system", "mimalloc2", "mimalloc3", "snmalloc", "tcmalloc-google")),),
          "differs: gperftools and Google's tcmalloc before it, in both of its versions"),
    Claim(SNMALLOC, "snmalloc first", "handover", "block_ns",
          (Before("snmalloc", ("jemalloc", "rpmalloc", "mimalloc2", "mimalloc3", "tcmalloc-google", "gperftools", "tbb", "system")),),
          "agrees among the allocators of that table; on an Intel Xeon jemalloc and rpmalloc were a little before it"),
)  # fmt: skip


def shown(value: float, unit: str) -> str:
    if unit == "KiB":
        return f"{value / 1024:.1f} MiB"
    if unit == "per s":
        return f"{value / 1e6:.1f} M/s"
    return f"{value:.3g} {unit}"


def of(rows: list[dict], claim: Claim) -> list[dict]:
    """The rows of what is compared; the copy of masu and the floors are not."""
    left_out = ("masu-again", "least", "inline")
    found = [r for r in rows if r["case"] == claim.case and r["figure"] == claim.figure and r.get("allocator", left_out[0]) not in left_out]
    if not any("median" in r for r in found):
        sys.exit(f"published.py: the results have no {claim.case}, {claim.figure}")
    return [r for r in found if "median" in r]


def ours(rows: list[dict], claim: Claim) -> str:
    found = [r for r in of(rows, claim) if not claim.names or r["allocator"] in claim.names]
    found.sort(key=lambda r: -r["median"] if r["unit"] == "per s" else r["median"])
    return ", ".join(f"{r['allocator']} {shown(r['median'], r['unit'])}" for r in found)


def verdict(rows: list[dict], claim: Claim) -> str:
    """Of the rows alone. Where more is better, the inverse is compared."""
    medians = {r["allocator"]: 1 / r["median"] if r["unit"] == "per s" else r["median"] for r in of(rows, claim)}
    try:
        return "agrees" if all(condition.holds(medians) for condition in claim.holds) else "differs"
    except KeyError as name:
        sys.exit(f"published.py: the results have no {name} in {claim.case}")


def wrong(results: dict) -> list[str]:
    """The claims whose text is not what the rows say."""
    found = [(claim, verdict(results["rows"], claim)) for claim in CLAIMS]
    return [f"{c.case}, {c.figure}: '{c.comes_to}', but it {said}" for c, said in found if not c.comes_to.startswith(said)]


def table(results: dict) -> str:
    lines = ["| source | what it says | here, the best first | |", "|---|---|---|---|"]
    for claim in CLAIMS:
        lines.append(f"| {claim.source} | {claim.says} | `{claim.case}`: {ours(results['rows'], claim)} | {claim.comes_to} |")
    return "\n".join(lines)


# What is better and what is worse, side by side.
BESIDE_THE_SYSTEMS = (
    ("10,000 blocks of 1,024 bytes taken, then freed, time of a pair of `malloc` and `free`", "kmalloc-round", "pair_ns"),
    ("one thread allocates, another frees, time of a block", "handover", "block_ns"),
    ("servers replace blocks and hand them on", "larson", "replacements_per_s"),
    ("random `malloc`, `realloc`, `free` over 14,000 places, time of a step", "stackprobe", "step_ns"),
    ("its peak memory", "stackprobe", "peak_rss_kib"),
    ("10,000 threads that allocate 100 blocks and end", "short-threads", "wall_s"),
    ("32 threads on two cores, peak memory", "32-threads", "peak_rss_kib"),
    ("200 sleeping threads that once had 1 MiB each, resident", "sleeping-threads", "rss_kib"),
    ("threads that exchange random live sets, peak memory", "mstress", "peak_rss_kib"),
    ("a million blocks of 16 bytes and their addresses, resident", "resident-1000K-x-16", "rss_kib"),
    ("sqlite, time", "sqlite", "wall_s"),
    ("its peak memory", "sqlite", "peak_rss_kib"),
)


def beside_the_systems(results: dict) -> str:
    medians = {(r["case"], r["figure"], r["allocator"]): r for r in results["rows"] if "median" in r and "allocator" in r}
    ratios = {(r["case"], r["figure"]): r for r in results["rows"] if r.get("ratio_to") == "system"}
    lines = ["| case | what | glibc | masu | masu : glibc, less is better |", "|---|---|---|---|---|"]
    for says, case, figure in BESIDE_THE_SYSTEMS:
        theirs, own = (shown(medians[case, figure, name]["median"], medians[case, figure, name]["unit"]) for name in ("system", "masu"))
        r = ratios[case, figure]
        lines.append(f"| `{case}` | {says} | {theirs} | {own} | {r['median']:.2f}, {r['low']:.2f} to {r['high']:.2f} |")
    return "\n".join(lines)


def on_the_page(page: Path) -> str:
    return page.read_text().split(BEGIN)[1].split(END)[0].strip()


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        results = json.loads(REFERENCE.read_text())
        if mistakes := wrong(results):
            sys.exit("\n".join(f"published.py: {mistake}" for mistake in mistakes))
        for page, made in ((PAGE, table(results)), (README, beside_the_systems(results))):
            if on_the_page(page) != made:
                sys.exit(f"{page.relative_to(ROOT)}: the table is not that of bench/published.py")
        return
    path = Path(sys.argv[1]) if sys.argv[1:] else REFERENCE
    results = json.loads(path.read_text())
    print(table(results), beside_the_systems(results), sep="\n\n")


if __name__ == "__main__":
    main()
