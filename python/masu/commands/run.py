"""masu run"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import NoReturn

import click

from masu.help import Command
from masu.library import library_path
from masu.messages import CANNOT_EXECUTE, MASU_FAILED, fail, say, warn
from masu.program import environment_at_start, execute, find_or_fail, why_preload_fails


class Size(click.ParamType):
    """Bytes, also as 64K or 2M."""

    name = "size"

    def convert(self, value, param, ctx) -> int:
        match = re.fullmatch(r"(\d+)([KMG]?)", str(value))
        # To the library 1 is "on", with its usual interval.
        if not match or not 2 <= int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] <= 1 << 40:
            self.fail(f"'{value}' is no number of bytes from 2 on, such as 4096, 64K or 2M.", param, ctx)
        return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


@click.command(
    cls=Command,
    example="masu run --stats -- python3 -c 'print(6 * 7)'",
    context_settings={"allow_interspersed_args": False},
    runs=True,
)
@click.option("--stats", is_flag=True, help="Write a summary to stderr when the program ends.")
@click.option("--live", is_flag=True, help="Show its figures to masu top, stat, doctor, purge and export.")
@click.option("--verbose", is_flag=True, help="Say on stderr that the program runs on masu.")
@click.option("--options", metavar="NAME:VALUE,...", help="Options of the library, as in MASU_OPTIONS.")
@click.option("--options-file", type=click.Path(path_type=Path), metavar="FILE",
              help="Options and size classes, as masu tune writes them; --options win.")  # fmt: skip
@click.option("--profile", type=click.Choice(["heap", "cpu"]),
              help="Find out which code allocates, and what of it stays; or which uses CPU time. See masu profile.")  # fmt: skip
@click.option("--leaks", is_flag=True, help="Find the blocks that no pointer leads to at the end; the exit status is 23 if there are some.")
@click.option("--suppressions", type=click.Path(path_type=Path), metavar="FILE", help="Leaks not to be told of: lines leak:FUNCTION or leak:LIBRARY.")
@click.option("-o", "output", type=click.Path(path_type=Path), help="The profile, else PROGRAM.PID.heap.pb.gz or .cpu.pb.gz here; or the leaks.")
@click.option("--interval", type=Size(), metavar="SIZE", help="Heap: a sample every so many bytes on average; else 512K.")
@click.option("--hz", type=click.IntRange(2, 1000), metavar="NUMBER", help="CPU: so many samples in a second of a thread's CPU time; else 100.")
@click.option("--every", type=click.IntRange(1, 86400), metavar="SECONDS", help="Also keep the profile as it is every so often.")
@click.option("--growth", type=Size(), metavar="SIZE", help="Also keep the profile each time that so much more is in use.")
@click.option("--signal", "number", type=click.Choice(["HUP", "USR1", "USR2"]), help="Also keep the profile as it is when the program gets this signal.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    stats: bool, live: bool, verbose: bool, options: str, options_file, profile, leaks: bool, suppressions, output, interval, hz,
    every, growth, number, program: str, arguments: tuple,
) -> None:  # fmt: skip
    """Runs PROGRAM on masu. The exit status is the program's own; 127 when there is
    no such program, 126 when it cannot be executed, 125 when masu itself fails or it succeeded
    but was not checked for leaks, 23 when it succeeded but has leaks."""
    if profile and leaks:
        raise click.UsageError("--profile and --leaks are two runs: choose one.")
    if not profile and (every or (output and not leaks)):
        raise click.UsageError("-o and --every are for --profile heap or --profile cpu; -o also for --leaks.")
    if profile != "heap" and (interval or growth or number):
        raise click.UsageError("--interval, --growth and --signal are for --profile heap.")
    if hz and profile != "cpu":
        raise click.UsageError("--hz is for --profile cpu.")
    if suppressions and not leaks:
        raise click.UsageError("--suppressions is for --leaks.")
    rules = _suppressions(suppressions) if leaks else None
    library = library_path()
    path = find_or_fail(program)
    reason = why_preload_fails(path, library)
    if reason:
        warn(f"{reason}: LD_PRELOAD has no effect, it runs on its own allocator")
    added = [options] * bool(options) + ["verbose"] * verbose + ["live"] * live
    environment = _environment(library, added)
    if options_file:
        environment["MASU_OPTIONS_FILE"] = _readable(options_file)
    words = [program, *arguments]
    observed = functools.partial(_run_observed, path, words, environment, stats)
    if profile:
        _run_profiled(observed, program, output, profile, interval or hz, _when(every, growth, number), bool(reason))
    if leaks:
        _run_for_leaks(observed, program, output, rules, bool(reason))
    if stats:
        _ask_for_stats(environment)
    _restore_signals()
    try:
        execute(path, words, environment)
    except OSError as error:
        fail(f"{program}: {error.strerror}", CANNOT_EXECUTE)


def _environment(library: Path, options: list) -> dict:
    """What the program would have got without us, plus the preload and the options."""
    environment = environment_at_start()
    _join(environment, "LD_PRELOAD", ":", [str(library)], first=True)
    _join(environment, "MASU_OPTIONS", ",", options, first=False)
    return environment


def _readable(file: Path) -> str:
    """Its absolute path: programs change their folder."""
    try:
        with file.open("rb"):
            return str(file.absolute())
    except OSError as error:
        fail(f"{file}: {error.strerror}", MASU_FAILED)


def _join(environment: dict, name: str, separator: str, added: list, first: bool) -> None:
    present = [environment[name]] if environment.get(name) else []
    values = added + present if first else present + added
    if values:
        environment[name] = separator.join(values)


def _ask_for_stats(environment: dict) -> None:
    """Of this process, whatever it executes, and of no other."""
    _join(environment, "MASU_OPTIONS", ",", [f"stats:{os.getpid()}"], first=False)


def _restore_signals() -> None:
    """Python ignores these, and what is ignored stays so in the program."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


# ---- With a profile ----


def _run_observed(path: str, argv: list, environment: dict, stats: bool, options: list, inside: Path | None, **how):
    """Of all that the program and its processes write what there is to take. inside: where their folder is made."""
    from tempfile import gettempdir

    from masu import profile_run as profiling

    try:
        folder = profiling.folder_for(argv[0], inside)
    except OSError as error:
        fail(f"{inside or gettempdir()}: {error.strerror}", MASU_FAILED)
    environment["MASU_PROFILE"] = str(folder)
    _join(environment, "MASU_OPTIONS", ",", options, first=False)

    def start(in_child) -> subprocess.Popen:
        def popen(file: str, arguments: list, variables: dict) -> subprocess.Popen:
            def become_it() -> None:  # the process, whose id is known only there
                in_child()
                if stats:
                    _ask_for_stats(variables)
                os.environ.clear()
                os.environ.update(variables)

            return subprocess.Popen(arguments, executable=file, close_fds=False, preexec_fn=become_it)

        return execute(path, argv, environment, popen)

    try:
        return profiling.run(start, folder, **how)
    except KeyboardInterrupt:
        fail(f"interrupted; what was written is in {folder}", 130)
    except OSError as error:
        os.rmdir(folder)
        fail(f"{argv[0]}: {error.strerror}", CANNOT_EXECUTE)


def _when(every, growth, number) -> list:
    """Options of the library for the profiles that are kept from meanwhile."""
    when = [f"profile_every:{every}"] * bool(every)
    if growth:
        when.append(f"profile_growth:{-(-growth >> 20)}")  # MiB, rounded up
    if number:
        when.append(f"profile_signal:{signal.Signals[f'SIG{number}'].value}")
    return when


def _profiler_options(kind: str, rate, when: list) -> list:
    from masu.profile_run import KEPT_S

    return [f"{'profile' if kind == 'heap' else 'cpu'}:{rate or 1}", *(when or [f"profile_every:{KEPT_S[kind]}"])]


def _run_profiled(observed, program: str, output, kind: str, rate, when: list, reached_by_none: bool) -> NoReturn:
    from masu.profile_run import beside

    inside = beside(output) if output else Path.cwd()
    taken = observed(_profiler_options(kind, rate, when), inside, output=output, keep_all=bool(when))
    if not reached_by_none or taken.files:
        _tell(program, taken)
    raise SystemExit(_status(taken))


def _status(taken) -> int:
    """As a shell has it."""
    return taken.status if taken.status >= 0 else 128 - taken.status


def _signal_name(number: int) -> str:
    """Most real-time signals have none."""
    return signal.Signals(number).name if number in iter(signal.Signals) else str(number)


TOLD_MOST = 10


def _tell_problems(program: str, taken, what: str) -> None:
    ended = f"signal {_signal_name(-taken.status)} ended it" if taken.status < 0 else ""
    if not taken.own:
        warn(f"{program} {what}: "
             + (ended or "it has another allocator linked in, cleared its environment, could not write or left without exit"))  # fmt: skip
    elif not taken.at_end:
        warn(f"{program} {what} at its end{', ' * bool(ended)}{ended}: its last one before is taken")
    for problem in taken.problems:
        warn(problem)
    if taken.others:
        warn(f"no names of functions from {', '.join(sorted(taken.others))}: replaced since the program ran")


def _tell_left(taken) -> None:
    if taken.left:
        say(f"{taken.left} has " + (f"what {taken.running} process{'es' * (taken.running > 1)} still running will write"
                                    if taken.running else "what could not be taken from it"))  # fmt: skip


def _tell(program: str, taken) -> None:
    from masu.profile_tables import sites, summary

    _tell_problems(program, taken, "wrote no profile")
    for path, heap in taken.files[:TOLD_MOST]:
        say(f"{path}: {summary(heap)}")
    if len(taken.files) > TOLD_MOST:
        say(f"and {len(taken.files) - TOLD_MOST} more, of other processes")
    if taken.numbered:
        say(f"and {taken.numbered} from before, with numbers")
    if taken.empty:
        say(f"and none of {taken.empty} process{'es' * (taken.empty > 1)} without samples")
    _tell_left(taken)
    if taken.files:
        _table(taken.files, sites)


def _table(files: list, sites) -> None:
    """Of the process that has most; said where it is not the program's own."""
    from rich.console import Console

    from masu.profile_cpu import unsampled, verdict

    def most(file) -> int:
        return file[1].total("cpu" if file[1].is_cpu else "peak_space")

    console = Console(stderr=True, highlight=False)
    console = console if console.is_terminal else Console(stderr=True, highlight=False, width=200)
    path, heap = max(files, key=most)
    if not heap.stacks and heap.is_cpu:
        say("no sample: less CPU time was used than --hz has samples for")
    elif not heap.stacks:
        say(f"no sample: less was allocated than about {heap.interval:,} bytes; --interval takes more")
    if not heap.stacks:
        return
    if path != files[0][0]:
        say(f"of {path}:")
    console.print(sites(heap, heap.telling(), 5))
    if heap.is_cpu:
        say(verdict(heap))
        if unsampled(heap):
            say(unsampled(heap))


# ---- With leaks ----

LEAKS_FOUND = 23


def _suppressions(path: Path | None):
    """Before the program runs: a mistake in them must not cost a run."""
    from masu.leaks import Suppressions, read_suppressions

    try:
        return read_suppressions(path) if path else Suppressions()
    except OSError as error:
        fail(f"{path}: {error.strerror}", MASU_FAILED)


def _run_for_leaks(observed, program: str, output, rules, reached_by_none: bool) -> NoReturn:
    from masu.leaks import leaks
    from masu.profile_run import Kind, beside

    taken = observed(["leaks"], output and beside(output),
                     output=output, keep_all=False, kind=Kind(("leaks",), leaks), keep=bool(output))  # fmt: skip
    taken.own &= not reached_by_none  # its own malloc is another's: the library is there, and saw nothing
    _tell_problems(program, taken, "was not checked for leaks")
    found = _tell_leaks(taken.files, rules, bool(output))
    is_checked = taken.own and not taken.problems
    if taken.files and is_checked and not found:
        checked = len(taken.files) + taken.empty
        other = "other " * any(r.blocks for r in rules.rules)
        say(f"no {other}leaks" + (f", in {checked} processes" if checked > 1 else ""))
    _tell_left(taken)
    raise SystemExit(_status(taken) or (LEAKS_FOUND if found else 0 if is_checked else MASU_FAILED))


def _tell_leaks(files: list, rules, kept: bool) -> bool:
    """Those that no rule suppresses; were there any?"""
    from masu.leaks import amount, report, summary

    any_shown = False
    for path, process in files:
        name = path.name.removesuffix(".leaks.pb.gz")
        shown = rules.without(process.leaks)
        for note in process.notes:
            warn(f"{name}: {note}")
        for line in report(shown):
            click.echo(line, err=True)
        if shown:
            say(f"{path if kept else name}: {summary(shown)}")
        any_shown |= bool(shown)
    for rule in rules.rules:
        if rule.blocks:
            say(f"suppressed by leak:{rule.pattern}: {amount(rule.size, rule.blocks)}")
    return any_shown
