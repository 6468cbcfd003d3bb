"""One run of the benchmark, from the command line's wishes to the report."""

from __future__ import annotations

import difflib
import hashlib
import json
from dataclasses import replace
from pathlib import Path

from masu.bench import allocators, cases, hit_path, page, report
from masu.bench.run import Plan, Runner, variants
from masu.measuring.rounds import wide
from masu.messages import Problem

HERE = Path(__file__).resolve().parent
QUICK = Plan(seconds_a_case=10, least_rounds=5, most_rounds=8)
FULL = Plan(seconds_a_case=20, count=True)


def list_cases() -> None:
    console = wide()
    family = None
    for case in cases.ALL:
        if case.family != family:
            family = case.family
            console.print(f"[bold]{family}[/]")
        console.print(f"  {case.name:<24}{'quick  ' if case.quick else '       '}{' '.join(case.command).format(made='{made}', plan=case.trace)}", highlight=False)


def chosen(only: str, quick: bool) -> list[cases.Case]:
    wanted = [word.strip() for word in only.split(",") if word.strip()]
    names = {c.name for c in cases.ALL} | {c.family for c in cases.ALL}
    for word in wanted:
        if word not in names:
            near = difflib.get_close_matches(word, names, 1)
            raise Problem(f"no case '{word}'" + (f"; the nearest is '{near[0]}'" if near else "; see --list"))
    found = [c for c in cases.ALL if not wanted or c.name in wanted or c.family in wanted]
    if not quick:
        return found
    found = found if wanted else [c for c in found if c.quick]
    return [replace(c, command=c.short or c.command, rounds=c.short_rounds or c.rounds) for c in found]


def workloads() -> Path:
    """Built into the package, or beside it in a checkout."""
    for folder in (HERE / "bin", HERE.parent.parent.parent / "build/release/bench"):
        if (folder / "pairs").exists():
            return folder
    raise Problem("the workloads are not built; install the package: pip install .")


def run(
    only: str,
    *,
    quick: bool,
    peers: Path | None,
    extra: tuple[str, ...],
    library: Path,
    folder: Path,
    seconds: float | None,
    json_file: Path | None,
    html_file: Path | None,
    baseline: Path | None,
    state: Path | None,
) -> report.Summary:
    console = wide()
    picked = chosen(only, quick)
    programs = workloads()
    found = allocators.found(library, peers, extra, folder)
    found = [allocators.proven(c) for c in found]
    for c in found:
        if c.name in (allocators.OURS, allocators.AGAIN) and not c.allocator:
            raise Problem(f"{c.name}, {library}: {c.missing}")
    plan = QUICK if quick else FULL
    if seconds:
        plan = replace(plan, seconds_a_case=seconds)
    before = _saved(baseline) if baseline else None
    state = state or Path("build/bench") / f"state-{_key(plan, picked)}.json"
    runner = Runner(programs, folder / "made", found, plan, console)
    done = runner.measured_before(state, picked)
    if done:
        console.print(f"going on from {state}: {len(done)} cases are measured", highlight=False)
    machine = report.machine(library)  # what is checked out now, and not at the end
    measured = runner.run(picked, state, done)
    lines = report.lines(list(variants(picked, plan.count, measured)), measured, found)
    summary = report.summary(lines, before, machine["cpu"])
    report.tell(lines, summary, found, console)
    about = {
        "machine": machine,
        "library": report.measured_library(library),
        "programs": report.versions(picked),
        "plan": {"quick": quick, **vars(plan)},
        "took_s": report.took(measured),
        "hit path": _hit_paths(found) if plan.count and any(c.instructions for c in picked) else {},
    }
    if json_file:
        report.write_json(json_file, report.as_json(lines, found, measured, about))
    if html_file:
        page.write(html_file, lines, summary, found, measured, about)
    state.unlink(missing_ok=True)
    return summary


def _hit_paths(found: list[allocators.Contender]) -> dict[str, dict[str, int]]:
    """Of masu and of the floor: in others a way without a call may be one that only refuses."""
    libraries = {c.name: c.allocator.library for c in found if c.name in (allocators.OURS, allocators.LEAST) and c.allocator}
    return {name: hit_path.lengths(library) for name, library in libraries.items()}


def _saved(file: Path) -> dict:
    """Read before all is measured: what is no saved run is said at once."""
    try:
        content = json.loads(file.read_text())
        report.summary([], {**content})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Problem(f"{file} is not the JSON of a run of masu bench") from None
    return content


def _key(plan: Plan, picked: list[cases.Case]) -> str:
    """A run of the same plan goes on; which of its cases are still good, Runner.measured_before says."""
    return hashlib.sha256(repr((plan, [c.name for c in picked])).encode()).hexdigest()[:12]
