"""What a run says: rows for machines, a table for terminals, a page for browsers."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from masu.bench.allocators import AGAIN, LEAST, OURS, Contender
from masu.bench.cases import Case, Figure
from masu.bench.run import HUGE_OFF, Measured, best_of
from masu.json_text import json_text
from masu.measuring.rounds import shown
from masu.measuring.statistics import Estimate, estimate, geometric_mean, ratio


@dataclass(frozen=True)
class Line:
    """One figure of one case. Ratios are turned so that less is better."""

    case: str
    family: str
    figure: Figure
    published: str
    medians: dict[str, Estimate]
    missing: dict[str, str]
    rounds: int
    command: str
    """"" where it isn't known."""
    best: str
    """The best of the peers and the system's."""
    to_best: Estimate | None
    to_system: Estimate | None
    to_floor: Estimate | None
    noise: Estimate | None
    """masu to its own copy."""

    @property
    def failed(self) -> str:
        """Why masu or its copy has no figure where another has one; '' where both have."""
        return (self.missing.get(OURS) or self.missing.get(AGAIN, "")) if self.best else ""

    @property
    def verdict(self) -> str:
        """`best`, `even` or `worse`: the interval says which; without one it is `open`. To fail is worse."""
        if self.failed:
            return "worse"
        if not self.to_best:
            return ""
        if not self.to_best.has_interval:
            return "open"
        return "best" if self.to_best.high < 1 else "worse" if self.to_best.low > 1 else "even"


def lines(cases: Sequence[tuple[Case, str]], measured: dict[str, Measured], contenders: Sequence[Contender]) -> list[Line]:
    rivals = [c.name for c in contenders if c.is_peer]
    return [
        _line(case, name, figure, measured[name], rivals)
        for case, name in cases
        if name in measured
        for figure in case.figures
    ]


def _line(case: Case, name: str, figure: Figure, m: Measured, rivals: list[str]) -> Line:
    def values(contender: str) -> list[float]:
        return m.values.get(contender, {}).get(figure.key, [])

    def to(other: str) -> Estimate | None:
        ours, theirs = values(OURS), values(other)
        if not ours or not theirs:
            return None
        return ratio(theirs, ours) if figure.more else ratio(ours, theirs)

    best = best_of(figure, m, rivals)
    return Line(
        name, case.family, figure, case.published,
        {contender: estimate(values(contender)) for contender in m.values if values(contender)},
        m.missing, m.rounds, m.command, best, to(best), to("system"),
        None if figure.memory else to(LEAST), to(AGAIN),
    )  # fmt: skip


def judged(all_lines: Sequence[Line]) -> list[Line]:
    return [line for line in all_lines if line.figure.judged and line.verdict]


# ---- For machines ----


def rows(all_lines: Sequence[Line]) -> Iterator[dict]:
    for line in all_lines:
        head = {"case": line.case, "figure": line.figure.key, "unit": line.figure.unit}
        for name, e in line.medians.items():
            yield {**head, "allocator": name, "median": e.median, "low": e.low, "high": e.high, "rounds": line.rounds}
        for name, reason in line.missing.items():
            yield {**head, "allocator": name, "missing": reason}
        for other, e in (("best", line.to_best), ("system", line.to_system), ("floor", line.to_floor)):
            if e:
                yield {**head, "ratio_to": other, "of": line.best if other == "best" else other, "median": e.median,
                       "low": e.low, "high": e.high, "rounds": line.rounds}  # fmt: skip


def counted_rows(measured: dict[str, Measured]) -> Iterator[dict]:
    """Counted once, so there is no interval."""
    for case, m in measured.items():
        for name, figures in m.counted.items():
            for key, value in figures.items():
                unit = "KiB" if key.endswith("_kib") else ""
                yield {"case": case, "figure": key, "unit": unit, "allocator": name, "median": value, "low": None,
                       "high": None, "rounds": 1}  # fmt: skip


def _said(*command: str, folder: Path | None = None) -> str:
    """The first line of what it prints; '' without one."""
    try:
        run = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:  # it isn't there
        return ""
    return next(iter(run.stdout.strip().splitlines()), "") if run.returncode == 0 else ""


def _said_by(file: str, key: str) -> str:
    for text in Path(file).read_text().splitlines():
        name, _, value = text.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def processor(file: str = "/proc/cpuinfo") -> str:
    """Its name; a virtual machine's may be that of many, so also the family and model, which x86 has."""
    family, model = (_said_by(file, key) for key in ("cpu family", "model"))
    return _said_by(file, "model name") + (f" (family {family}, model {model})" if family != "unknown" else "")


def machine(library: Path | None = None) -> dict[str, str]:
    """What was measured, and where; `library`: the commit is that of the checkout in which it lies."""
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    folder = (library or Path(__file__).resolve()).parent
    return {
        "when": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _said("git", "describe", "--always", "--dirty", folder=folder) or "unknown",
        "cpu": f"{processor()}, {len(os.sched_getaffinity(0))} cores",
        "memory": _said_by("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "compiler": _said("cc", "--version") or "none",
        "huge pages": huge.read_text().strip() if huge.exists() else "none",
        "pinning": "by taskset" if shutil.which("taskset") else "none: taskset is not installed",
    }


def measured_library(library: Path) -> dict[str, str]:
    """Which file: its path, from here where it lies below, and its digest."""
    here = Path.cwd()
    path = library.relative_to(here) if library.is_relative_to(here) else library
    return {"library": str(path), "sha256": hashlib.sha256(library.read_bytes()).hexdigest()}


def versions(cases: Sequence[Case]) -> dict[str, str]:
    """Of the machine's programs that are measured."""
    names = {name: None for case in cases if case.program for name in (case.command[0], case.starts) if name}
    return {Path(name).name: _said(name, "-v" if "lua" in name else "--version") for name in names if shutil.which(name)}


def took(measured: dict[str, Measured]) -> float:
    """Seconds, of all parts of a run that was interrupted."""
    return sum(m.took_s for m in measured.values())


def facts(about: dict) -> dict[str, str]:
    """What the page says first."""
    plan = about["plan"]
    rounds = f"{plan['least_rounds']} to {plan['most_rounds']} rounds, {plan['seconds_a_case']:g} s a case"
    minutes = round(about["took_s"] / 60)
    return {
        **about["machine"], **about["library"],
        "plan": f"{'quick' if plan['quick'] else 'full'}, {rounds}",
        "took": f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{about['took_s'] / 60:.1f} min",
        **about["programs"],
    }  # fmt: skip


def as_json(all_lines: Sequence[Line], contenders: Sequence[Contender], measured: dict[str, Measured], about: dict) -> dict:
    return {
        **about,
        "allocators": {c.name: c.version or c.missing for c in contenders},
        "rows": [*rows(all_lines), *counted_rows(measured)],
        "values": {line.case: measured[line.case].values for line in all_lines},
        "commands": {line.case: line.command for line in all_lines if line.command},
        "published": {line.case: line.published for line in all_lines if line.published},
        "answers": {name: m.right for name, m in measured.items() if m.right},
        "process": {name: m.process for name, m in measured.items()},
        "system calls": {name: m.system_calls for name, m in measured.items() if m.system_calls},
        "not counted": {name: m.uncounted for name, m in measured.items() if m.uncounted},
        "curves": {name: m.curves for name, m in measured.items() if m.curves},
    }


# ---- The summary ----


@dataclass(frozen=True)
class Summary:
    figures: int
    """Those that were judged: best, even or worse."""
    best: int
    even: int
    worse: int
    open: int
    """Those of too few rounds for an interval: in the means and among the worst, but not judged."""
    cases: int
    """Those that have a judged figure; with huge pages off they count once more."""
    best_cases: int
    """In which masu is best in every judged figure,"""
    good_cases: int
    """or best or even."""
    mean: float
    """Geometric mean of the ratios to the best of each case, whatever number of figures a case has."""
    mean_time: float
    mean_memory: float
    noise: float
    """Geometric mean of how far masu and its copy lie apart, in whichever direction."""
    worst: list[Line]
    """The worst figure of each of the five worst cases."""
    failed: dict[str, str]
    """The cases in which masu failed, and why. They count as worse, and are in no mean."""
    saved: str
    """The saved run that this one is compared with."""
    elsewhere: str
    """A line, if that was on other processors."""
    got_worse: list[str]
    not_compared: list[str]
    """Cases that the saved run doesn't have, whose commands weren't the same or aren't known, or whose best is missing now."""


def _mean_of_cases(ratios: Sequence[tuple[Line, float]]) -> float:
    cases: dict[str, list[float]] = {}
    for line, r in ratios:
        cases.setdefault(line.case, []).append(r)
    return geometric_mean([geometric_mean(r) for r in cases.values()])


def summary(all_lines: Sequence[Line], before: dict | None, cpu: str = "") -> Summary:
    """cpu: what machine() says of this run's processors."""
    js = judged(all_lines)
    ratios = [(line, line.to_best.median) for line in js if line.to_best and line.to_best.median > 0]
    apart = [line.noise.median for line in js if line.noise and line.noise.median > 0]
    commands = before.get("commands", {}) if before else {}
    same = {line.case for line in js if line.command and line.command == commands.get(line.case)}
    worst: dict[str, Line] = {}
    for line, _ in sorted(ratios, key=lambda pair: -pair[1]):
        worst.setdefault(line.case.removesuffix(f", {HUGE_OFF}"), line)
    verdicts: dict[str, set[str]] = {}
    for line in js:
        if line.verdict != "open":
            verdicts.setdefault(line.case, set()).add(line.verdict)
    return Summary(
        sum(line.verdict != "open" for line in js),
        *(sum(line.verdict == v for line in js) for v in ("best", "even", "worse", "open")),
        len(verdicts),
        sum(found == {"best"} for found in verdicts.values()),
        sum("worse" not in found for found in verdicts.values()),
        _mean_of_cases(ratios),
        _mean_of_cases([(line, r) for line, r in ratios if not line.figure.memory]),
        _mean_of_cases([(line, r) for line, r in ratios if line.figure.memory]),
        geometric_mean([max(r, 1 / r) for r in apart]),
        list(worst.values())[:5],
        {line.case: line.failed for line in js if line.failed},
        ", ".join(before["machine"].get(key, "") for key in ("when", "commit", "cpu")) if before else "",
        _elsewhere(before, cpu) if before else "",
        list(_worse_than([line for line in js if line.case in same], before)) if before else [],
        list(dict.fromkeys(line.case for line in js if line.case not in same or _is_gone(line, before))) if before else [],
    )  # fmt: skip


def _elsewhere(before: dict, cpu: str) -> str:
    was = before["machine"].get("cpu", cpu)
    return "" if was == cpu else f"Different processors: {was} then, {cpu} now. Ratios differ by that as well."


def _is_gone(line: Line, before: dict) -> bool:
    """The allocator that was the best then has no figure now: the ratio to another one says little."""
    best = next((r["of"] for r in before["rows"] if (r["case"], r["figure"], r.get("ratio_to")) == (line.case, line.figure.key, "best")), None)
    return best not in line.medians


MUCH = 1.1
"""A ratio that is worse by so much is named where there are too few rounds for intervals."""


def _worse_than(comparable: Sequence[Line], before: dict) -> Iterator[str]:
    """Ratios that are worse than in a saved run, outside both intervals."""
    old = {(r["case"], r["figure"], r["ratio_to"]): r for r in before["rows"] if "ratio_to" in r}
    for line in comparable:
        for kind, of, e in (("best", line.best, line.to_best), ("floor", "floor", line.to_floor)):
            was = old.get((line.case, line.figure.key, kind))
            if e and was and _is_worse(e, was):
                yield f"{line.case}, {line.figure.key}: {e.median:.2f} of {of}, was {was['median']:.2f} of {was['of']}"


def _is_worse(e: Estimate, was: dict) -> bool:
    if e.has_interval and was["high"] is not None:
        return e.low > was["high"]
    return e.median > MUCH * was["median"]


# ---- For terminals ----


def _ratio(e: Estimate | None, verdict: str = "") -> Text:
    if not e:
        return Text("–", "dim")
    if verdict == "open":
        return Text(f"{e.median:.2f}").append(" not judged", "dim")
    style = "green" if e.high < 1 else "red" if e.low > 1 else ""
    return Text(f"{e.median:.2f}", style).append(f" {e.low:.2f}–{e.high:.2f}" if e.has_interval else "", "dim")


def table(all_lines: Sequence[Line]) -> Table:
    t = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, justify in (
        ("case", "left"), ("figure", "left"), ("masu", "right"), ("best of the others", "right"), ("to the best", "right"),
        ("to the system", "right"), ("to the floor", "right"), ("masu : masu", "right"),
    ):  # fmt: skip
        t.add_column(title, justify=justify, no_wrap=True)
    family = None
    for line in all_lines:
        if not line.figure.judged:
            continue
        if line.family != family:
            t.add_section()
            t.add_row(Text(line.family, "bold"))
            family = line.family
        ours, best = line.medians.get(OURS), line.medians.get(line.best)
        t.add_row(
            line.case, line.figure.key.removesuffix("_kib").removesuffix("_ns").removesuffix("_s"),
            shown(ours.median, line.figure.unit) if ours else Text(line.missing.get(OURS, "–"), "red"),
            Text(f"{shown(best.median, line.figure.unit)} {line.best}") if best else "–",
            _ratio(line.to_best, line.verdict), _ratio(line.to_system), _ratio(line.to_floor), _ratio(line.noise),
        )  # fmt: skip
    return t


def tell(all_lines: Sequence[Line], s: Summary, contenders: Sequence[Contender], console: Console) -> None:
    _tell_summary(s, console)
    for c in contenders:
        if c.missing:
            console.print(Text.assemble(("missing", "yellow"), f" {c.name}: {c.missing}"))
    absent = {c.name for c in contenders if c.missing}
    for line in {line.case: line for line in all_lines}.values():
        for name, reason in line.missing.items():
            if name not in absent:
                console.print(Text.assemble(("missing", "yellow"), f" {line.case}, {name}: {reason}"))
    console.print(table(all_lines))


def _tell_summary(s: Summary, console: Console) -> None:
    for case, why in s.failed.items():
        console.print(Text.assemble(("masu failed", "bold red"), f" in {case}: {why}"))
    console.print(
        f"masu is best in {s.best} of {s.figures} figures, even with the best in {s.even}, worse in {s.worse}"
        f"{f'; {s.open} have too few rounds to be judged' if s.open else ''}.\n"
        f"Of {s.cases} cases it is best in every figure in {s.best_cases}, best or even in {s.good_cases}.\n"
        f"Geometric mean against the best of each case: {s.mean:.2f} "
        f"(time {s.mean_time:.2f}, memory {s.mean_memory:.2f}); masu against itself {s.noise:.2f}.",
        highlight=False,
    )
    console.print("The five worst:", highlight=False)
    for line in s.worst:
        console.print(Text(f"  {line.case}, {line.figure.key}: {line.to_best.median:.2f} of {line.best}"))
    if s.saved:
        console.print(Text(f"Compared with the run of {s.saved}:"))
    if s.elsewhere:
        console.print(Text(s.elsewhere, "yellow"))
    for text in s.got_worse:
        console.print(Text.assemble(("got worse", "red"), f" {text}"))
    if s.not_compared:
        console.print(f"[yellow]not compared[/], not there with the same command and the allocator that was best: {', '.join(s.not_compared)}", highlight=False)


def write_json(path: Path, content: dict) -> None:
    path.write_text(json_text(content, separators=(",", ":")) + "\n")
