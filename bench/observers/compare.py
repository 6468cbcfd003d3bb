"""What observing costs: masu's profilers, other allocators' and tools', on the same programs in one run.

    script/bench-observers [--quick | --cases] [--only PROGRAM,...] [--observers NAME,...] [--json FILE] [--publish]

Every measurement is a fresh process; the contenders take turns in random order within each round. Time, CPU time and
peak memory are compared with the same allocator (tools: the system's) without an observer, in pairs of the same round.
What samples runs a long input five times, programs of one thread on one processor. What of it has a limit then runs
together with what it is compared with, all at once on one processor, of which they take turns (`larson` one after the
other on all processors), until the intervals are a quarter as wide as what the limits leave, or there is no more time (of
the cases those have more whose intervals are wide); their CPU time is compared, of the benchmark's shortest cases that of
what they time. The recorder runs fifteen times an input of seconds; what else looks at every allocation a short one, three
times. A program that finds or prints something wrong under an observer, or an observer that was not on, counts as missing.
Last, each names the functions of one program that keep most, and of redis-server.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from masu.bench.report import machine
from masu.bench.session import workloads
from masu.library import library_path
from masu.messages import Problem
from observers import calls, contenders, programs, published, results, running, sites, tables
from observers.contenders import Contender
from observers.programs import Program
from observers.results import Measured

MOST_ROUNDS = 2000
LOOKS = frozenset(round(20 * 1.2**n) for n in range(30))
"""After how many rounds it is asked whether they are enough: few of them, since asking takes as long as a short round."""
Tell = Callable[[str, float], None]
"""What is being done, and which part of it is done."""


@dataclass(frozen=True)
class Plan:
    seconds: float
    """For the rounds together, of each program."""
    rounds: int
    recorded_rounds: int
    short_rounds: int
    most_seconds: float = 0
    """In place of `seconds` where the intervals are wide by then; 0: no longer than others."""


FULL = Plan(140, 5, 15, 3)
CASES = Plan(60, 2, 0, 0, most_seconds=180)
QUICK = Plan(8, 3, 3, 1)


# ---- Measuring ----


class Runner:
    def __init__(self, all_: list[Contender], plan: Plan, folder: Path):
        self.contenders, self.plan, self.folder = all_, plan, folder
        self.kept, self.number = folder / "kept", itertools.count()
        self.kept.mkdir(exist_ok=True)
        self.order = random.Random()
        self.outputs: dict[tuple[str, ...], str] = {}
        """What a command prints; its first run, without an observer, says so."""

    def measured(self, program: Program, tell: Tell) -> Measured:
        result = Measured(program.name, program.allocates)
        if program.missing:
            result.missing = {c.name: program.missing for c in self.contenders if c.of}
            return result
        result.missing = {c.name: c.missing for c in self.contenders if c.of and c.missing}
        self._long(program, result, lambda text, part: tell(text, 0.5 * part))
        self._counted(program, "recorded", self.plan.recorded_rounds, result, lambda text, part: tell(text, 0.5 + 0.2 * part))
        self._counted(program, "short", self.plan.short_rounds, result, lambda text, part: tell(text, 0.7 + 0.3 * part))
        return result

    def _taking_part(self, program: Program, input_: str) -> list[Contender]:
        """Those that observe, and whom they are compared with."""
        able = [c for c in self.contenders if not c.missing and (program.python or not c.python)]
        observers = [c for c in able if c.of and c.input == input_]
        bases = {c.of for c in observers}
        if without := bases - {c.name for c in able}:
            raise Problem(f"{', '.join(without)} can't run, but those that are compared with it")
        return [c for c in able if c.name in bases] + observers

    def _long(self, program: Program, result: Measured, tell: Tell) -> None:
        """A warm-up and the rounds; then those that have a limit, together."""
        taking_part = self._taking_part(program, "long")
        for number in range(-1, self.plan.rounds if any(c.of for c in taking_part) else -1):
            self._round(program, "long", number, taking_part, result, lambda text, n=number: tell(text, 0.3 * n / self.plan.rounds))
        start, judged, most = time.monotonic(), _judged(taking_part), self.plan.seconds
        for number in range(MOST_ROUNDS):
            passed = time.monotonic() - start
            if number and most <= passed < self.plan.most_seconds and not results.narrow(result, judged, 1 / 2):
                most = self.plan.most_seconds
            if not judged or (number and passed >= most):
                break
            tell(f"{program.name}: together, round {number + 1}", 0.3 + 0.7 * min(passed / most, 0.99))
            self._together(program, judged, result)
            judged = _judged(judged)
            if number + 1 in LOOKS and results.narrow(result, judged, 1 / 4):
                break

    def _together(self, program: Program, judged: list[Contender], result: Measured) -> None:
        """One that fails has no figures; the others keep theirs."""
        order = self.order.sample(judged, len(judged))
        with futures.ThreadPoolExecutor(1 if program.in_turns else len(order)) as threads:
            runs = {c: threads.submit(self._once, program, "long", c, pinned=not program.in_turns) for c in order}
        for contender, run in runs.items():
            try:
                result.add_together(contender.name, run.result(), program.timed)
            except Problem as problem:
                self._failed(program, "long", contender, problem, judged, result)

    def _counted(self, program: Program, input_: str, rounds: int, result: Measured, tell: Tell) -> None:
        taking_part = self._taking_part(program, input_)
        for number in range(rounds if any(c.of for c in taking_part) else 0):
            now = [c for c in taking_part if not c.most_rounds or number < c.most_rounds]
            self._round(program, input_, number, now, result, lambda text, n=number: tell(text, n / rounds))
            taking_part = [c for c in taking_part if c.name not in result.missing]

    def _round(self, program, length, number, taking_part: list[Contender], result: Measured, tell) -> None:
        order = self.order.sample(taking_part, len(taking_part))
        if number == (-1 if length == "long" else 0):
            order.sort(key=lambda c: bool(c.of))
        for contender in order:
            tell(f"{program.name}, {length}: {contender.name}")
            try:
                done = self._once(program, length, contender)
            except Problem as problem:
                self._failed(program, length, contender, problem, taking_part, result)
            else:
                if number >= 0:
                    result.add(length, contender.name, done)

    def _failed(self, program, length, contender, problem, taking_part: list[Contender], result: Measured) -> None:
        if not contender.of:
            raise Problem(f"{program.name} on {contender.name}: {problem}") from None
        taking_part.remove(contender)
        result.drop(length, contender.name, str(problem))

    def _once(self, program: Program, length: str, contender: Contender, pinned: bool = False) -> running.Run:
        words = program.words(length)
        pinned |= length == "long" and not program.threads
        with self._folder_of(contender) as folder:
            if program.requests:
                done = running.serve(program.requests[length], contender, folder, pinned)
            else:
                done = running.run(words, contender, folder, pinned)
            running.checked(contender, done, folder)
        if program.answers and not program.requests:
            self._same(contender, words, done.output)
        return done

    @contextlib.contextmanager
    def _folder_of(self, contender: Contender) -> Iterator[Path]:
        """Empty, but not new in each run, which a user's is not either: for the first file in one ext4 takes 10 to 80 us longer.
        Nor is a profile removed before the end: for minutes an ext4 without a journal looks past each file that was, to make a new one."""
        folder = self.folder / f"run-{self.contenders.index(contender)}"
        folder.mkdir(exist_ok=True)
        try:
            yield folder
        finally:
            for path in folder.iterdir():
                if contender.samples:
                    path.rename(self.kept / str(next(self.number)))
                else:
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def _same(self, contender: Contender, words: tuple[str, ...], output: str) -> None:
        """Some tools print lines of their own around it."""
        expected = self.outputs.setdefault(words, output)
        if not expected.strip() or (expected not in output if contender.of else expected != output):
            raise Problem("it prints something else than before")


def _judged(taking_part: list[Contender]) -> list[Contender]:
    """Those with a limit, what shows their noise, and whom they are compared with; none if none has one."""
    some = [c for c in taking_part if c.of and (c.name in contenders.LIMITS or c.name == contenders.AGAIN)]
    bases = {c.of for c in some}
    return [c for c in taking_part if c in some or c.name in bases]


def measure(all_: list[Contender], some: list[Program], plan: Plan, folder: Path, state: Path, peers: Path, console: Console):
    """By program what was measured, and twice the call sites; of the benchmark's cases none. What the state has is not
    measured again."""
    done = read_state(state)
    if done:
        console.print(f"going on from {state}: {len(done)} programs are measured", highlight=False)
    runner = Runner(all_, plan, folder)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f}"),
               TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(some) + 1)
        for index, program in enumerate(some):
            tell = lambda text, part, at=index: progress.update(task, description=text, completed=at + part)  # noqa: E731
            if program.name not in done:
                done[program.name] = runner.measured(program, tell)
                write_state(state, done)
        if not plan.recorded_rounds:
            return [done[program.name] for program in some], {"truth": [], "named": {}}, {"program": "", "measure": "", "named": {}}
        tell = lambda text: progress.update(task, description=text, completed=len(some))  # noqa: E731
        observers = [c for c in all_ if c.of]
        named = sites.compare(observers, sites.build(folder), folder, peers, tell)
        called = calls.compare(observers, folder, peers, tell)
    return [done[program.name] for program in some], named, called


def write_state(path: Path, done: dict[str, Measured]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({name: vars(one) for name, one in done.items()}))
    fresh.replace(path)


def read_state(path: Path) -> dict[str, Measured]:
    if not path.exists():
        return {}
    try:
        return {name: Measured(**one) for name, one in json.loads(path.read_text()).items()}
    except (ValueError, TypeError):
        raise Problem(f"{path} is no state of a run; remove it") from None


def key_of(all_: list[Contender], some: list[Program], plan: Plan) -> str:
    """A run goes on only with the same library, programs, contenders and plan."""
    digest = hashlib.sha256(repr((plan, [p.name for p in some], [(c.name, c.missing) for c in all_])).encode())
    digest.update(library_path().read_bytes())
    return digest.hexdigest()[:12]


# ---- The command ----


def picked(names: str, there: list[str], what: str) -> set[str]:
    found = {name.strip() for name in names.split(",") if name.strip()}
    if unknown := found - set(there):
        raise Problem(f"no {what} {', '.join(sorted(unknown))}; there are: {', '.join(there)}")
    return found


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four programs, few rounds (some four minutes)")
    parser.add_argument("--cases", action="store_true", help="the benchmark's cases, each as it runs it, with the heap profiler (some 90 minutes)")
    parser.add_argument("--only", default="", metavar="PROGRAM,...", help="some programs")
    parser.add_argument("--observers", default="", metavar="NAME,...", help="some observers, such as 'masu heap,heaptrack'")
    parser.add_argument("--seconds", type=float, metavar="S", help="at most, for what runs together, of each program (140; of cases 60, and 180 where the intervals are wide)")
    parser.add_argument("--json", type=Path, default=Path("build/bench/observers.json"), metavar="FILE")
    parser.add_argument("--publish", action="store_true", help=f"also as {published.RESULTS.name}, and into {published.PAGE.name}")
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    given = arguments(argv)
    plan = CASES if given.cases else QUICK if given.quick else FULL
    plan = replace(plan, seconds=given.seconds, most_seconds=0) if given.seconds else plan
    peers, console = given.peers.resolve(), tables.console()
    if given.publish and (given.quick or given.only or given.observers):
        raise Problem("--publish is for all of it")
    if given.cases and given.quick:
        raise Problem("--quick and --cases are two different runs")
    with tempfile.TemporaryDirectory(prefix="masu-observers-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        all_ = contenders.found(peers, folder)
        names = given.observers or (f"masu heap,{contenders.AGAIN}" if given.cases else "")
        all_ = contenders.chosen(all_, picked(names, [c.name for c in all_ if c.of], "observer"))
        some = (programs.cases_of_the_benchmark if given.cases else programs.found)(workloads(), folder / "made")
        only = picked(given.only, [p.name for p in some], "program")
        some = [p for p in some if (p.name in only if only else p.quick or not given.quick)]
        here = machine()  # what is checked out now, and not at the end
        state = given.json.parent / f"observers-{key_of(all_, some, plan)}.state"
        measured, named, called = measure(all_, some, plan, folder, state, peers, console)
    rows = results.rows(measured, all_)
    content = {
        "machine": here,
        "versions": contenders.versions(peers),
        "observers": {c.name: {"of": c.of, "what": c.what, "missing": c.missing} for c in all_ if c.of},
        "rows": rows,
        "sums": results.sums(rows),
        "sites": named,
        "calls": called,
        **({} if given.cases else {"rounds": [vars(one) for one in measured]}),
    }
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(content, indent=1) + "\n")
    tables.show(content, console)
    console.print(f"figures in {given.json}", style="dim", highlight=False)
    state.unlink(missing_ok=True)
    if given.publish:
        results_file = published.CASES if given.cases else published.RESULTS
        published.publish(content, results_file)
        console.print(f"{results_file} and {published.PAGE} are new", style="dim", highlight=False)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Problem as problem:
        sys.exit(f"bench-observers: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
