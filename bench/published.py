"""What others published, beside what the committed run shows, as the table of docs/benchmark.md.

    bench/published.py [RESULTS]      prints it; RESULTS: bench/results/reference.json
    bench/published.py --check        exit status 1 when docs/benchmark.md has another one
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "bench/results/reference.json"
PAGE = ROOT / "docs/benchmark.md"
BEGIN, END = "<!-- bench/published.py -->", "<!-- end -->"

# Who says what; the case and figure that it is compared with; the allocators that the
# source compares (none: all); and what the comparison comes to.
CLAIMS = (
    ("[mimalloc's README](https://github.com/microsoft/mimalloc#performance) (16 cores, 2021), larson", "mimalloc clearly before tcmalloc and jemalloc", "larson", "replacements_per_s",
     (), "agrees; Google's tcmalloc of today, which is not in their table, is as good"),
    ("the same, xmalloc-test", "mimalloc far ahead; of the others rpmalloc, TBB and glibc scale", "xmalloc", "objects_per_s", (),
     "differs but for gperftools, which is among the last: on two cores nobody waits for a central list, so Google's tcmalloc and jemalloc, which hand over in large batches, lead"),
    ("the same, cache-scratch", "gperftools shares cache lines between threads, glibc does so less", "cache-scratch", "write_ns", (),
     "agrees, and glibc is as bad"),
    ("[HAKMEM](mission.md), a million blocks of 16 bytes", "mimalloc 25.0 MB, glibc 39.6 MB", "resident-1000K-x-16, huge pages off", "rss_kib",
     ("system", "mimalloc2", "mimalloc3"), "agrees"),
    ("the same, five million", "glibc 192.4 MB", "resident-5000K-x-16, huge pages off", "rss_kib", ("system",), "agrees"),
    ("[KMalloc](mission.md), 10,000 blocks of 1,024 bytes", "malloc and free 352 ns a pair (glibc's default settings)", "kmalloc-round", "pair_ns",
     ("system",), "agrees"),
    ("[a lecture on TCMalloc](mission.md), one block of 256 KB", "TCMalloc (gperftools) before ptmalloc2", "single-256K", "pair_ns",
     ("system", "gperftools"), "agrees"),
    ("the same, 512 KB", "ptmalloc2 before TCMalloc", "single-512K", "pair_ns", ("system", "gperftools"), "agrees: the same border"),
    ("the same, finite elements, 70^3", "ptmalloc2 before TCMalloc from 70^3 on", "solver-70", "wall_s", ("system", "gperftools"),
     "differs: this TCMalloc (2.10, theirs is older) is a tenth faster"),
    ("[butterfly](mission.md), 32 threads", "STEP 1 twice as fast with mimalloc", "indexer-32", "step1_wall_s", ("system", "mimalloc2", "mimalloc3"),
     "agrees in the order; 1.6 times with two cores, where less of the time is waiting for locks"),
    ("[rpmalloc's README](https://github.com/mjansson/rpmalloc), random sizes of 16 to 8,000 bytes", "rpmalloc first", "random-sizes", "operations_per_s", (),
     "differs: gperftools before it; the crate has an older rpmalloc (1.4)"),
    ("[snmalloc's paper](https://doi.org/10.1145/3315573.3329980) (Liétar and others, ISMM 2019), producer and consumer", "snmalloc first", "handover", "block_ns", (), "agrees"),
)  # fmt: skip


def shown(value: float, unit: str) -> str:
    if unit == "KiB":
        return f"{value / 1024:.1f} MiB"
    if unit == "per s":
        return f"{value / 1e6:.1f} M/s"
    return f"{value:.3g} {unit}"


def ours(rows: list[dict], case: str, figure: str, names: tuple[str, ...]) -> str:
    found = [r for r in rows if r["case"] == case and r["figure"] == figure and r.get("allocator", "masu-again") != "masu-again"]
    found = [r for r in found if "median" in r]
    found = [r for r in found if not names or r["allocator"] in names]
    if not found:
        sys.exit(f"published.py: the results have no {case}, {figure}")
    more = found[0]["unit"] == "per s"
    found.sort(key=lambda r: -r["median"] if more else r["median"])
    return ", ".join(f"{r['allocator']} {shown(r['median'], r['unit'])}" for r in found)


def table(results: dict) -> str:
    lines = ["| source | what it says | here, the best first | |", "|---|---|---|---|"]
    for source, says, case, figure, names, comes_to in CLAIMS:
        lines.append(f"| {source} | {says} | `{case}`: {ours(results['rows'], case, figure, names)} | {comes_to} |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        page = PAGE.read_text()
        if page.split(BEGIN)[1].split(END)[0].strip() != table(json.loads(REFERENCE.read_text())):
            sys.exit("docs/benchmark.md: the table is not that of bench/published.py")
        return
    path = Path(sys.argv[1]) if sys.argv[1:] else REFERENCE
    print(table(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
