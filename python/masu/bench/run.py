"""Runs the cases: interleaved rounds in random order, as many as it takes, kept on disk.

Every measurement is a fresh process. A case ends when the intervals are tight enough
or its time is up. What was measured is written after each case, so that a run which
was interrupted goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from masu import replay
from masu import trace as traces
from masu.bench import counted, programs
from masu.bench.allocators import AGAIN, INLINE, OURS, Contender
from masu.bench.cases import Case, Figure
from masu.json_text import json_text
from masu.measuring.measure import SYSTEM, Usage, measure
from masu.measuring.rounds import Answers, add_answers, differing, is_finite, own_figures, settled
from masu.measuring.statistics import LEAST_ROUNDS, ratio
from masu.messages import Problem

TIGHT = 0.02
"""Half of the interval of the ratio to the best: tight enough."""

TIMED = 0.6
"""Of a case's time, about, where it is also counted."""

HUGE_OFF = "huge pages off"
MOST_AT_ONCE = 4
"""Processes, of more than a GiB each, of a case that waits."""
MUCH_HUGE_KIB = 32 << 10
"""So much in huge pages, on any allocator: then a case is measured without them as well."""


@dataclass(frozen=True)
class Plan:
    """How much time there is."""

    seconds_a_case: float
    least_rounds: int = LEAST_ROUNDS
    most_rounds: int = 30
    count: bool = False
    """Also what is counted, most of it in runs of its own, and cases without huge pages?"""


@dataclass
class Measured:
    """One case on all allocators: for each the values of every figure, round by round."""

    case: str
    command: str = ""
    """As Case.text has it."""
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    process: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """What the system counted: CPU time, switches, faults."""
    counted: dict[str, dict[str, float]] = field(default_factory=dict)
    """In runs that are not timed: memory by kind, system calls, instructions."""
    system_calls: dict[str, dict[str, float]] = field(default_factory=dict)
    uncounted: dict[str, list[str]] = field(default_factory=dict)
    """What could not be counted, and why."""
    missing: dict[str, str] = field(default_factory=dict)
    curves: dict[str, list[list[float]]] = field(default_factory=dict)
    """Samples of the last round: time, resident, live."""
    answers: dict[str, Answers] = field(default_factory=dict)
    took_s: float = 0
    of: str = ""
    """Digest of what ran: see Runner.digest. "" where it isn't known."""

    @property
    def rounds(self) -> int:
        return max((len(v) for f in self.values.values() for v in f.values()), default=0)

    @property
    def right(self) -> dict[str, str]:
        """The answers of the system's allocator."""
        return settled(self.answers.get(SYSTEM.name, {}))


def variants(cases: Sequence[Case], huge_off: bool, done: dict[str, Measured]) -> Iterator[tuple[Case, str]]:
    """Each case, and once more without huge pages where they matter: the case says so, or what was counted of it."""
    for case in cases:
        yield case, case.name
        if huge_off and (case.no_huge or case.name in done and _much_huge(done[case.name])):
            yield case, f"{case.name}, {HUGE_OFF}"


def _much_huge(measured: Measured) -> bool:
    most = max((found.get("sampled_huge_kib", 0) for found in measured.counted.values()), default=0)
    return most >= MUCH_HUGE_KIB


def bundled() -> Path:
    """The traces: in the package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "traces", here.parent.parent.parent / "bench/traces"):
        if folder.is_dir():
            return folder
    raise Problem("the traces are missing; install the package: pip install .")


class Runner:
    def __init__(self, workloads: Path, made: Path, contenders: Sequence[Contender], plan: Plan, console: Console):
        self.workloads, self.made, self.plan, self.console = workloads, made, plan, console
        self.contenders = list(contenders)
        self.order = random.Random()
        made.mkdir(parents=True, exist_ok=True)
        programs.generate(made)

    def digest(self, case: Case) -> str:
        """Of all libraries, and of the program, with what it reads, as far as they are not the machine's."""
        digest = hashlib.sha256()
        files = [c.allocator.library for c in self.contenders if c.allocator]
        files += [replay.program(case.command[0]), bundled() / case.trace] if case.trace else []
        files += sorted(programs.HERE.iterdir()) if case.program else [self.workloads / case.command[0]] if not case.trace else []
        for c in self.contenders:
            digest.update(f"{c.name} {c.missing} {c.allocator and c.allocator.settings}".encode())
        for file in files:
            digest.update(file.read_bytes() if file and file.is_file() else b"")
        return digest.hexdigest()[:16]

    def measured_before(self, state: Path, cases: Sequence[Case]) -> dict[str, Measured]:
        """What a state has of these cases, if the same was run and all figures are there."""
        wanted = {case.name: (case, self.digest(case)) for case in cases}
        done = {}
        for name, measured in read_state(state).items():
            case, digest = wanted.get(name.removesuffix(f", {HUGE_OFF}"), (None, ""))
            if case and measured.command == case.text and measured.of in ("", digest):
                figures = {figure.key for figure in case.figures}
                if all(figures <= values.keys() for values in measured.values.values()):
                    done[name] = measured
        return done

    def run(self, cases: Sequence[Case], state: Path, done: dict[str, Measured]) -> dict[str, Measured]:
        """Adds to `done`, and writes it after every case."""

        def todo() -> Iterator[tuple[Case, str]]:
            return ((case, name) for case, name in variants(cases, self.plan.count, done) if name not in done)

        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f} cases"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        # Cases differ fifty-fold: what the last half minute was like says little of the rest.
        with Progress(*columns, console=self.console, transient=True, speed_estimate_period=24 * 3600) as progress:
            task = progress.add_task("", total=0)
            for index, (case, name) in enumerate(todo()):
                progress.update(task, total=index + len(list(todo())))  # what is counted may add to it
                start = time.monotonic()
                done[name] = self._case(
                    case, name, lambda said, part, at=index: progress.update(task, description=said, completed=at + part)
                )
                done[name].took_s = time.monotonic() - start
                write_state(state, done)
        return done

    def _case(self, case: Case, name: str, tell) -> Measured:
        result = Measured(name, case.text, of=self.digest(case))
        if case.trace:
            self._plan(case)
        if missing := case.missing():
            result.missing = {c.name: f"{missing} is not installed" for c in self.contenders}
            return result
        running = []
        for contender in self.contenders:
            if contender.floor and not case.floor or contender.name == INLINE and not self._inline(case):
                continue
            if contender.allocator is None:
                result.missing[contender.name] = contender.missing
            else:
                running.append(contender)
        most = case.rounds or self.plan.most_rounds
        least = min(self.plan.least_rounds, most)
        # The same program ran just before; but what a real one writes to a file is compared in the warm-up only.
        warm = case.rounds or name.endswith(HUGE_OFF) and not case.program
        start, first = time.monotonic(), 0 if warm else -1
        round_ = first
        counts = self.plan.count and not name.endswith(HUGE_OFF)

        def leave_out(contender: str, why: str) -> None:
            result.missing[contender] = why
            for found in (result.values, result.process, result.answers, result.curves, result.counted, result.uncounted):
                found.pop(contender, None)

        def once(contender: Contender) -> tuple[Contender, str]:
            """With why it failed."""
            used = time.monotonic() - start
            both = min(used / self.plan.seconds_a_case, (round_ + 1) / least)
            part = min(0.99, max(both, (round_ + 1) / most))
            tell(f"{name}: {contender.name}", part * (TIMED if counts else 1))
            try:
                sampled = counts and round_ == first and contender.name != AGAIN
                self._once(case, name, contender, result, warm_up=round_ < 0, sampled=sampled)
            except Problem as problem:
                return contender, str(problem)
            return contender, ""

        while running and round_ < most:
            with _mapping(case) as to_each:
                for contender, why in to_each(once, self.order.sample(running, len(running))):
                    if why:
                        leave_out(contender.name, why)
                        running.remove(contender)
            round_ += 1
            if round_ >= least and (time.monotonic() - start > self.plan.seconds_a_case or tight(case, result)):
                break
        for wrong, why in differing(result.answers, SYSTEM.name).items():
            leave_out(wrong, why)
        running = [contender for contender in running if contender.name not in result.missing]
        for index, contender in enumerate(running):
            if counts and contender.name != AGAIN:
                tell(f"{name}: counting {contender.name}", TIMED + (1 - TIMED) * index / len(running))
                self._count(case, name, contender, result)
        return result

    def _plan(self, case: Case) -> None:
        """Made once, and the same for all."""
        folder = self._plan_of(case).parent
        if not folder.exists():
            folder.mkdir()
            recorded = traces.read(bundled() / case.trace)
            replay.plan(recorded, recorded.main(), folder)

    def _plan_of(self, case: Case) -> Path:
        return self.made / case.trace / "plan"

    def _count(self, case: Case, name: str, contender: Contender, result: Measured) -> None:
        allocator, environment = contender.allocator, _environment(name)
        found = result.counted.setdefault(contender.name, {})

        def system_calls() -> None:
            brief = replace(case, command=case.short or case.command)
            calls = counted.system_calls(self._command(brief, contender, environment), allocator, environment)
            result.system_calls[contender.name] = calls
            found["system_calls"] = sum(calls.values())

        def instructions() -> None:
            bare = replace(case, cores=0)
            command = self._command(bare, contender, environment)
            found["instructions"] = counted.instructions(command, allocator, environment)

        # malloc and free that are compiled into the program are not outside of it.
        counted_outside = case.instructions and contender.name != INLINE
        for count in (system_calls, *([instructions] if counted_outside else [])):
            try:
                count()
            except Problem as problem:
                result.uncounted.setdefault(contender.name, []).append(str(problem))

    def _inline(self, case: Case) -> bool:
        return (self.workloads / f"{case.command[0]}-{INLINE}").exists()

    def _once(
        self, case: Case, name: str, contender: Contender, result: Measured, *, warm_up: bool = False, sampled: bool = False
    ) -> None:
        environment = _environment(name)
        command = self._command(case, contender, environment)
        kept = self.made / "kept"
        if warm_up:  # what the timed rounds throw away is kept once, to be compared
            kept.unlink(missing_ok=True)
            command = [word.replace(os.devnull, str(kept)) for word in command]
        found: dict[str, float] = {}
        with counted.memory(found) if sampled else contextlib.nullcontext() as watch:
            usage = measure(command, contender.allocator, environment=environment, started=watch)
        if usage.status or "cannot be preloaded" in usage.errors:
            raise Problem(_why(usage))
        if found:
            result.counted[contender.name] = found
        elif sampled:
            result.uncounted.setdefault(contender.name, []).append("memory: it ended before it was looked at")
        own = own_figures(usage.output)
        answers = dict(own)
        if case.program and usage.output and not own:
            answers["output"] = _digest(usage.output.encode())
        if warm_up and kept.exists():
            answers["file"] = _digest(kept.read_bytes())
        add_answers(result.answers.setdefault(contender.name, {}), answers)
        if warm_up:
            return
        values = result.values.setdefault(contender.name, {})
        for figure in case.figures:
            values.setdefault(figure.key, []).append(_value(figure, usage, own))
        process = result.process.setdefault(contender.name, {})
        for key in ("wall_s", "cpu_s", "peak_rss_kib", "page_faults", "voluntary_switches", "involuntary_switches"):
            process.setdefault(key, []).append(float(getattr(usage, key)))
        if "curve" in own:
            result.curves[contender.name] = own["curve"]

    def _command(self, case: Case, contender: Contender, environment: dict[str, str]) -> list[str]:
        command = [word.format(made=self.made, plan=self._plan_of(case)) for word in case.command]
        if case.trace:
            command[0] = str(replay.program(command[0]))
        elif not case.program:
            inline = f"-{INLINE}" if contender.name == INLINE else ""
            command[0] = str(self.workloads / f"{command[0]}{inline}")
        if environment and (case.program or case.trace):
            command = [str(self.workloads / "no_huge"), *command]
        if case.cores and shutil.which("taskset"):
            cores = sorted(os.sched_getaffinity(0))[-case.cores :]
            command = ["taskset", "-c", ",".join(map(str, cores)), *command]
        return command


@contextlib.contextmanager
def _mapping(case: Case) -> Iterator[Callable]:
    """`map`, one after the other; where a case waits most of its time, two at once on each core, up to MOST_AT_ONCE."""
    if not case.waits:
        yield map
        return
    pool = ThreadPoolExecutor(min(MOST_AT_ONCE, 2 * len(os.sched_getaffinity(0))))
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)


def _environment(name: str) -> dict[str, str]:
    return {"MASU_BENCH_HUGE": "0"} if name.endswith(HUGE_OFF) else {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _why(usage: Usage) -> str:
    said = usage.errors.strip().splitlines()
    how = f"exit status {usage.status}" if usage.status >= 0 else f"signal {-usage.status}"
    return f"{how}: {said[-1][:200]}" if said else how


def _value(figure: Figure, usage: Usage, own: dict) -> float:
    found = getattr(usage, figure.key) if figure.process else own.get(figure.key)
    if not is_finite(found):
        raise Problem(f"the program prints no {figure.key}")
    return float(found)


def best_of(figure: Figure, measured: Measured, names: Sequence[str]) -> str:
    """The name with the best median; '' when none was measured."""

    def median(name: str) -> float:
        return statistics.median(measured.values[name][figure.key])

    there = [name for name in names if figure.key in measured.values.get(name, {})]
    return (max if figure.more else min)(there, key=median) if there else ""


def tight(case: Case, measured: Measured) -> bool:
    """Is masu's ratio to the best of the others known well enough, in each judged figure?"""
    if OURS not in measured.values:
        return True
    others = [name for name in measured.values if name not in (OURS, AGAIN)]
    for figure in case.figures:
        best = best_of(figure, measured, others)
        if figure.judged and best:
            ours, theirs = measured.values[OURS][figure.key], measured.values[best][figure.key]
            if not ratio(ours, theirs).spread <= TIGHT:
                return False
    return True


# ---- What is kept ----


def write_state(path: Path, done: dict[str, Measured]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json_text({name: vars(m) for name, m in done.items()}))
    fresh.replace(path)


def read_state(path: Path) -> dict[str, Measured]:
    if not path.exists():
        return {}
    try:
        return {name: Measured(**m) for name, m in json.loads(path.read_text()).items()}
    except (ValueError, TypeError, AttributeError):
        raise Problem(f"{path} is no state of a run; remove it") from None
