"""What is measured: every case, by family. `masu bench --list` prints them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from masu.bench.programs import HERE


@dataclass(frozen=True)
class Figure:
    """One number of a case. Less is better, unless `more` says otherwise."""

    key: str
    """In the JSON object that the program prints last, or of the process."""
    unit: str
    more: bool = False
    memory: bool = False
    process: bool = False
    judged: bool = True
    """Does it count in the summary, or does it only stand there?"""


@dataclass(frozen=True)
class Case:
    name: str
    family: str
    command: tuple[str, ...]
    """A workload of bench/workloads and its arguments, a program of the machine, or the player of a trace."""
    figures: tuple[Figure, ...]
    quick: bool = False
    """One case of each family makes up the quick run,"""
    short: tuple[str, ...] = ()
    """with this instead of the command where that takes long,"""
    short_rounds: int = 0
    """and so many rounds of it where most of its time is waiting."""
    floor: bool = False
    """Can the least-work library run it? It never gives memory back."""
    instructions: bool = False
    """Are they counted? The last argument is the number of pairs."""
    no_huge: bool = False
    """Measured once more with huge pages off for the process."""
    rounds: int = 0
    """So many and no warm-up; 0: as many as the interval asks for."""
    waits: bool = False
    """Most of its time is waiting and only memory is judged: one process for each of the machine's cores at once, up to four."""
    cores: int = 0
    """Pinned to so many cores; 0: not pinned."""
    published: str = ""
    """What the source says, on its own machine."""
    program: bool = False
    """The command is the machine's own, not a workload."""
    starts: str = ""
    """That program starts this one."""
    trace: str = ""
    """The command is trace_play, and this is what it plays: a file of bench/traces, of which {plan} is the plan."""

    @property
    def text(self) -> str:
        """The command, the same wherever masu is installed."""
        return " ".join(self.command).replace(f"{HERE}/", "")

    def missing(self) -> str:
        """The program of the machine that is not there, if any."""
        wanted = [self.command[0], self.starts] if self.program else []
        return next((name for name in wanted if name and not shutil.which(name)), "")


def ns(key: str) -> Figure:
    return Figure(key, "ns")


def rate(key: str) -> Figure:
    return Figure(key, "per s", more=True)


WALL = Figure("wall_s", "s")
STEADY = Figure("wall_s", "s", process=True)
PEAK = Figure("peak_rss_kib", "KiB", memory=True, process=True)


LIVE = Figure("live_kib", "KiB", memory=True, judged=False)
"""What the program itself has in use when it reads its resident memory."""


def kib(key: str) -> Figure:
    return Figure(key, "KiB", memory=True)


def _hit_path() -> list[Case]:
    cases = []
    for pattern in ("live1", "lifo100", "fifo10k", "random10k"):
        cases.append(
            Case(f"pairs-{pattern}", "hit path", ("pairs", "64", pattern, "20000000"), (ns("pair_ns"),),
                 quick=pattern == "lifo100", floor=True, instructions=True, cores=1)
        )  # fmt: skip
        cases.append(
            Case(f"sized-{pattern}", "hit path", ("sized_delete", "64", pattern, "20000000"), (ns("pair_ns"),),
                 floor=True, instructions=True, cores=1)
        )  # fmt: skip
    return cases


def _batches() -> list[Case]:
    kmalloc = "10,000 rounds of 10,000 x 1,024 bytes: malloc 35.2 s, KMalloc 2.8 s (12.5 times faster)"
    cases = [
        Case("kmalloc-round", "batches", ("kmalloc_round", "300"), (ns("pair_ns"), PEAK), quick=True,
             short=("kmalloc_round", "40"), floor=True, cores=1, published=kmalloc)
    ]  # fmt: skip
    hakmem = {16: 45.9, 64: 46.4, 256: 47.7, 1024: 59.7}
    for size, published in hakmem.items():
        cases.append(
            Case(f"recycle-{size}", "batches", ("recycle", str(size), "100000", "20"), (ns("operation_ns"), PEAK),
                 floor=True, cores=1, published=f"HAKMEM {published} ns per operation")
        )  # fmt: skip
    cases.append(Case("medium-batches", "batches", ("batch", "40000", "100000", "500", "400"), (ns("pair_ns"),), cores=1))
    cases.append(Case("medium-batches-16", "batches", ("batch", "40000", "100000", "50", "500", "16"), (ns("pair_ns"),)))
    return cases


def _single_sizes() -> list[Case]:
    cases = []
    for power in range(4, 23):
        size = 1 << power
        name = f"{size}" if size < 1024 else f"{size >> 10}K" if size < 1 << 20 else f"{size >> 20}M"
        untouched = 2_000_000 if size < 1 << 20 else 400_000
        touched = min(2_000_000, max(500, (1 << 32) // size))
        published = "TCMalloc wins up to 256 KB and loses to ptmalloc2 from 512 KB up"
        cases.append(
            Case(f"single-{name}", "single size", ("single_size", str(size), str(untouched), "untouched"),
                 (ns("pair_ns"),), quick=size == 512 << 10, floor=size <= 1 << 20, cores=1, published=published)
        )  # fmt: skip
        cases.append(
            Case(f"single-{name}-touched", "single size", ("single_size", str(size), str(touched), "touched"),
                 (ns("pair_ns"),), cores=1, published=published)
        )  # fmt: skip
    return cases


def _tails() -> list[Case]:
    tail = []
    for call in ("malloc", "realloc", "free"):
        tail += [ns(f"all_{call}_p9999_ns"), ns(f"calls_{call}_p9999_ns")]
        tail += [
            Figure(f"{group}_{call}_{part}_ns", "ns", judged=False)
            for group in ("all", "calls", "apart")
            for part in ("p50", "p90", "p99", "p999", "p9999", "p99999", "worst")
            if part != "p9999" or group == "apart"
        ]
        tail += [Figure(f"{group}_{call}", "", judged=False) for group in ("all", "apart")]
    published = "10,000,000 steps: malloc 3,225 ms, fixed blocks 141 ms (23 times faster)"
    return [
        Case("stackprobe", "game frames", ("stackprobe", "throughput", "10000000"), (ns("step_ns"), PEAK), quick=True,
             short=("stackprobe", "throughput", "600000"), no_huge=True, cores=1, published=published),
        Case("stackprobe-tail", "game frames", ("stackprobe", "latency", "10000000"),
             (*tail, Figure("calls_empty_worst_ns", "ns", judged=False)), short=("stackprobe", "latency", "100000"),
             no_huge=True, cores=1),
    ]  # fmt: skip


def _indexer() -> list[Case]:
    figures = (Figure("step1_wall_s", "s"), Figure("step2_wall_s", "s"), Figure("step1_cpu_s", "s", judged=False),
               Figure("step1_voluntary_switches", "", judged=False), PEAK)  # fmt: skip
    published = "mimalloc twice as fast in all, up to 7 times in a part; STEP 2 slower after many threads"
    return [
        Case(f"indexer-{threads}", "indexer", ("indexer", "--threads", str(threads), "--megabytes", "50"), figures,
             quick=threads == 8, short=("indexer", "--threads", str(threads), "--megabytes", "12"), published=published)
        for threads in (1, 2, 8, 32)
    ]  # fmt: skip


def _handing_over() -> list[Case]:
    memory = (PEAK,)
    return [
        Case("handover", "hand-over", ("handover",), (ns("block_ns"), *memory)),
        Case("one-to-many", "hand-over", ("xmalloc", "1", "4"), (rate("objects_per_s"), *memory), short=("xmalloc", "1", "4", "5000")),
        Case("many-to-one", "hand-over", ("xmalloc", "4", "1"), (rate("objects_per_s"), *memory), short=("xmalloc", "4", "1", "5000")),
        Case("xmalloc", "hand-over", ("xmalloc", "2", "2"), (rate("objects_per_s"), *memory), quick=True,
             short=("xmalloc", "2", "2", "15000")),
        Case("larson", "hand-over", ("larson_like", "2"), (rate("replacements_per_s"), *memory)),
        Case("mstress", "hand-over", ("mstress", "2"), (rate("steps_per_s"), *memory)),
        Case("random-sizes", "hand-over", ("random_sizes", "2"), (rate("operations_per_s"), *memory)),
        Case("random-sizes-small", "hand-over", ("random_sizes", "2", "1000"), (rate("operations_per_s"), *memory)),
        Case("free-only", "hand-over", ("free_only",), (rate("objects_per_s"), kib("rss_kib"))),
    ]


def _threads() -> list[Case]:
    return [
        Case("threadtest", "threads", ("threadtest", "2"), (rate("pairs_per_s"), PEAK), quick=True, floor=True,
             short=("threadtest", "2", "80")),
        Case("32-threads", "threads", ("many_threads", "32"), (rate("operations_per_s"), PEAK)),
        Case("short-threads", "threads", ("short_threads", "10000"), (WALL, kib("rss_kib"), LIVE)),
        Case("sleeping-threads", "threads", ("sleeping_threads", "200"), (kib("rss_kib"), LIVE), no_huge=True, rounds=5, waits=True),
        Case("cache-scratch", "false sharing", ("false_sharing", "scratch", "2"), (ns("write_ns"),), quick=True, floor=True),
        Case("cache-thrash", "false sharing", ("false_sharing", "thrash", "2"), (ns("write_ns"),), floor=True),
    ]


def _large() -> list[Case]:
    return [
        Case("malloc-large", "large blocks", ("malloc_large",), (WALL, PEAK), quick=True, short=("malloc_large", "100"), no_huge=True, cores=1),
        Case("realloc-growth", "large blocks", ("realloc_growth",), (WALL, PEAK), no_huge=True, cores=1),
        Case("calloc-zero", "large blocks", ("calloc_zero",), (ns("call_ns"), WALL, kib("rss_kib")), no_huge=True, cores=1),
        Case("aligned", "large blocks", ("aligned",), (ns("pair_ns"), kib("rss_kib")), floor=True, cores=1),
        *(
            Case(f"solver-{n}", "numeric solver", ("solver", str(n), str(steps)), (WALL, PEAK), quick=n == 50,
                 short=("solver", str(n), "2"),
                 no_huge=n == 70, cores=1,
                 published="no difference up to 50^3 elements, ptmalloc2 better than TCMalloc from 70^3")
            for n, steps in ((30, 20), (50, 6), (70, 3))
        ),
    ]  # fmt: skip


def _resident() -> list[Case]:
    cases = []
    hakmem = {"100000": "HAKMEM 5.4 MB", "500000": "HAKMEM 15.5 MB", "1000000": "HAKMEM 31.0 MB, mimalloc 25.0, "
              "system 39.6", "2000000": "HAKMEM 62.4 MB", "5000000": "HAKMEM 146.5 MB, system 192.4"}  # fmt: skip
    for blocks, published in hakmem.items():
        cases.append(
            Case(f"resident-{int(blocks) // 1000}K-x-16", "resident memory", ("hakmem_memory", blocks, "16"),
                 (kib("rss_kib"),), quick=blocks == "1000000", no_huge=True, rounds=5, published=published)
        )  # fmt: skip
    cases.append(
        Case("resident-1000K-x-4", "resident memory", ("hakmem_memory", "1000000", "4"), (kib("rss_kib"),),
             no_huge=True, rounds=5, published="malloc(4) 15,956 KB, KMalloc 4,236 KB")
    )  # fmt: skip
    return cases


def _over_time() -> list[Case]:
    cases = []
    after = (*(kib(f"rss_{when}_kib") for when in ("full", "freed", "little", "none")), LIVE)
    for mode in ("whole", "random90"):
        for threaded in ((), ("threaded",)):
            cases.append(
                Case("-".join(("freed", mode, *threaded)), "memory over time",
                     ("fragmentation", mode, "1024", "2", *threaded), after, short=("fragmentation", mode, "256", "1", *threaded),
                     short_rounds=2, quick=mode == "random90" and not threaded, no_huge=True, rounds=5, waits=True)
            )  # fmt: skip
    cases.append(
        Case("server-day", "memory over time", ("server_day", "curve"),
             (kib("rss_mean_kib"), kib("rss_peak_kib"), kib("rss_end_kib")), no_huge=True, rounds=2, waits=True)
    )  # fmt: skip
    return cases


def _programs() -> list[Case]:
    """Real programs of Debian. {made} is the folder of what programs.generate makes."""

    def case(name: str, *command: str, figures: tuple[Figure, ...] = (STEADY, PEAK), starts: str = "", short: tuple[str, ...] = ()) -> Case:
        return Case(name, "real programs", command, figures, no_huge=True, program=True, starts=starts, short=short, quick=name == "lua")

    python = "/usr/bin/python3"
    redis = (rate("requests_per_s"), kib("server_peak_kib"))
    return [
        case("z3", "z3", "{made}/pigeons.smt2"),
        case("ghostscript", "gs", "-q", "-dNOPAUSE", "-dBATCH", "-dSAFER", "-sDEVICE=ppmraw", "-r300",
             "-sOutputFile=/dev/null", str(HERE / "pages.ps")),
        case("cc1", "cc", "-O2", "-S", "-o", "/dev/null", "{made}/much.c"),
        case("sqlite", "sqlite3", ":memory:", f".read {HERE / 'speed.sql'}"),
        case("redis", python, str(HERE / "redis.py"), figures=redis, starts="redis-server", short=(python, str(HERE / "redis.py"), "20000")),
        case("lua", "lua5.4", str(HERE / "objects.lua")),
        case("ruby", "ruby", str(HERE / "objects.rb")),
        case("python", python, "-S", "-E", str(HERE / "objects.py")),
    ]  # fmt: skip


# In the order of bench/traces/README.md, which says what each is. Quick: one thread, and some with blocks handed over.
TRACES = ("python", "lua", "perl", "javascript", "cc1plus", "sqlite", "redis", "nginx", "minetest", "recoll", "vips", "z3", "cmake")
QUICK_TRACES = ("sqlite", "javascript")


def _traces() -> list[Case]:
    """Real programs as they were recorded, without the time between their calls."""
    figures = (
        Figure("calls_s", "s"), WALL, ns("p9999_ns"),
        kib("whole_peak_kib"), kib("whole_mean_kib"), kib("whole_end_kib"),
    )  # fmt: skip
    return [
        Case(f"trace-{name}", "traces", ("trace_play", "{plan}", "touch=first", "latency"), figures,
             quick=name in QUICK_TRACES, floor=True, trace=f"{name}.trace")
        for name in TRACES
    ]  # fmt: skip


ALL: tuple[Case, ...] = (
    *_hit_path(), *_batches(), *_single_sizes(), *_tails(), *_indexer(), *_handing_over(), *_threads(), *_large(),
    *_resident(), *_programs(), *_traces(), *_over_time(),
)  # fmt: skip
