"""Where the resident memory of a process is: what masu measured, and the rest by /proc/PID/smaps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from masu import live
from masu.shown import size

MIB = 1 << 20
TRANSPARENT = "/sys/kernel/mm/transparent_hugepage/enabled"


@dataclass
class Part:
    name: str
    bytes: int
    meaning: str


@dataclass
class Kernel:
    """Bytes of resident memory, as smaps counts them."""

    total: int = 0
    huge: int = 0
    asked: int = 0
    """Of the huge ones: in memory for which they were asked for (madvise)."""
    files: int = 0
    stacks: int = 0
    shared: int = 0
    heap: int = 0


@dataclass
class Diagnosis:
    figures: live.Figures
    kernel: Kernel
    parts: list[Part]

    def part(self, name: str) -> int:
        return next(p.bytes for p in self.parts if p.name == name)


def read_smaps(pid: int) -> Kernel:
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        return parse_smaps(file)


def parse_smaps(lines: Iterable[str]) -> Kernel:
    found, kind, huge = Kernel(), "", 0
    for line in lines:
        words = line.split(None, 5)
        if not words[0].endswith(":"):
            kind, huge = _kind(words[1], words[5].strip() if len(words) > 5 else ""), 0
        elif words[0] == "Rss:":
            bytes_ = int(words[1]) * 1024
            found.total += bytes_
            if kind:
                setattr(found, kind, getattr(found, kind) + bytes_)
        elif words[0] == "AnonHugePages:":
            huge = int(words[1]) * 1024
            found.huge += huge
        elif words[0] == "VmFlags:" and "hg" in line.split():  # the last of a mapping
            found.asked += huge
    return found


def _kind(permissions: str, name: str) -> str:
    """Of a mapping that can't be masu's; "" if it may be."""
    if name.startswith("[stack"):
        return "stacks"
    if name == "[heap]":
        return "heap"
    if "s" in permissions or name.startswith(("/dev/shm/", "/memfd:", "/SYSV")):
        return "shared"
    return "files" if name.startswith(("/", "[v")) else ""


def diagnose(page: live.Page) -> Diagnosis:
    """The parts sum up to what the kernel counts. What masu measured is of a moment before; what
    changed in between, and pages that were only read, which the kernel leaves out, go to or from
    the first part that can take it."""
    page.request(live.MEASURE)
    figures = page.read(measured=True)
    try:
        kernel = read_smaps(page.pid)
    except OSError:
        raise live.NotLive(f"process {page.pid} has ended") from None
    r = figures.rows["resident"][0]
    parts = [
        Part("live", r["live"], "blocks in use, and blocks that threads hold ready"),
        Part("half-empty slabs", r["slab_free"], "free blocks between blocks in use: only their size class can use them"),
        Part("kept for reuse", r["slab_spare"] + r["idle"], "freed, and not given back yet"),
        Part("masu itself", r["own"], "descriptors and tables"),
        Part("files", kernel.files, "not malloc's: code and data of the program and its libraries, mapped files"),
        Part("stacks", kernel.stacks, "not malloc's: the initial thread's"),
        Part("shared memory", kernel.shared, "not malloc's: shared with other processes"),
        Part("brk", kernel.heap, "not masu's: the classic heap, of who calls sbrk itself"),
    ]
    rest = kernel.total - sum(p.bytes for p in parts)
    parts.append(Part("other mappings", max(rest, 0), "not malloc's: other threads' stacks, mmap of the program's own, .bss"))
    for part in parts:
        taken = min(part.bytes, max(-rest, 0))
        part.bytes -= taken
        rest += taken
    return Diagnosis(figures, kernel, parts)


def slack(d: Diagnosis) -> tuple[str, str, str, str]:
    """What is lost to size classes: how much, and what it is."""
    meaning = "of live: what blocks are larger than what was asked for"
    sampled = d.figures.rows.get("sampled")
    if not sampled:
        return "unknown", "", "", f"{meaning}; estimated while samples are taken: masu profile --live {d.figures.pid} --start"
    s = sampled[0]
    return size(s["slack"]), "", "", f"{meaning}; {size(s['slack_low'])} to {size(s['slack_high'])} of the {size(s['in_use'])} that were allocated while samples were taken"


# ---- What would help ----


def _in_slack(d: Diagnosis) -> int:
    sampled = d.figures.rows.get("sampled")
    return sampled[0]["slack"] if sampled else 0


def advice(d: Diagnosis) -> list[str]:
    pid, total, said = d.figures.pid, max(d.kernel.total, 1), []
    kept, lost, alive = d.part("kept for reuse"), d.part("half-empty slabs"), d.part("live")
    foreign = sum(p.bytes for p in d.parts[4:])
    if kept > total / 10 and kept > 4 * MIB:
        said.append(f"{size(kept)} are free and kept for reuse: masu purge {pid} gives them back now; "
                    "a smaller purge_delay does it sooner")  # fmt: skip
    if lost > total / 10 and lost > 2 * MIB:
        said.append(f"{size(lost)} are free between blocks in use{_worst(d)}: blocks that live long and short lie side by "
                    "side; named heaps or arenas keep them apart")  # fmt: skip
    if (in_slack := _in_slack(d)) >= total / 7 and in_slack > 2 * MIB:
        program = d.figures.program
        said.append(f"{size(in_slack)} are lost to size classes, by estimate: masu record -- {program} and masu tune {program}.trace "
                    "find classes that fit its sizes")  # fmt: skip
    if d.kernel.huge > total / 4 and alive < total / 2:
        said.append(f"{size(d.kernel.huge)} are huge pages, which are resident as a whole: {_fewer_huge_pages(d.kernel)}")
    if foreign > total / 2:
        said.append(f"{size(foreign)} are not from malloc: no allocator changes them")
    if d.figures.process["heaps"] > 64:
        said.append(f"{d.figures.process['heaps']} heaps, one for each thread that ever ran at the same time: fewer threads keep less ready")
    if not said:
        said.append("nothing stands out: most of it is in use")
    return said


def _fewer_huge_pages(kernel: Kernel) -> str:
    """Whose wish they are decides who can do something."""
    if kernel.asked > kernel.huge / 2:
        return "they were asked for, which masu does by its option huge_pages alone"
    return f"the system gives them unasked; as root: echo madvise >{TRANSPARENT}"


def _worst(d: Diagnosis) -> str:
    worst = sorted(d.figures.rows["class"], key=lambda row: -row["free"])[:3]
    named = ", ".join(f"{row['size']:,}" for row in worst if row["free"] > MIB / 4)
    return f", most of them in blocks of {named} bytes" if named else ""
