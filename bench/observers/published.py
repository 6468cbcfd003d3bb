"""The committed runs as the tables of docs/observers.md, and what docs/leaks.md says of them.

    bench/observers/published.py           writes them into the pages
    bench/observers/published.py --check   exit status 1 when a page has others
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from observers.contenders import AGAIN, LIMITS
from observers.results import BROKEN, HELD, OPEN, limited, limits, verdict

RESULTS, SOAK = ROOT / "bench/results/observers.json", ROOT / "bench/results/soak.json"
CASES = ROOT / "bench/results/observers-cases.json"
PAGE, LEAKS = ROOT / "docs/observers.md", ROOT / "docs/leaks.md"
BEGIN, BEGIN_SOAK, END = "<!-- bench/observers/published.py -->", "<!-- bench/observers/published.py: the soak -->", "<!-- end -->"
BEGIN_CASES = "<!-- bench/observers/published.py: the cases -->"
NONE = "No run is committed yet: `script/{} --publish` makes one and fills this in."


def publish(content: dict, results: Path = RESULTS) -> None:
    """results: RESULTS, CASES or SOAK."""
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(content, indent=1) + "\n")
    write()


def committed() -> list[dict | None]:
    return [json.loads(path.read_text()) if path.exists() else None for path in (RESULTS, CASES, SOAK)]


def pages() -> dict[Path, str]:
    """With the committed runs in them."""
    run, cases, soak = committed()
    leaks = leak_checks(run) if run else NONE.format("bench-observers")
    return {PAGE: page(PAGE.read_text(), run, cases, soak), LEAKS: _put(LEAKS.read_text(), BEGIN, leaks)}


def write() -> None:
    for path, text_ in pages().items():
        path.write_text(text_)


def page(before: str, run: dict | None, cases: dict | None, soak: dict | None) -> str:
    """That page with these tables in it."""
    between = _put(before, BEGIN, text(run) if run else NONE.format("bench-observers"))
    between = _put(between, BEGIN_CASES, text_of_cases(cases) if cases else NONE.format("bench-observers --cases"))
    return _put(between, BEGIN_SOAK, soaked(soak) if soak else NONE.format("soak-observers"))


def _put(before: str, begin: str, text_: str) -> str:
    head, rest = before.split(f"{begin}\n")
    return f"{head}{begin}\n{text_}\n{END}{rest.split(END, 1)[1]}"


def text(content: dict) -> str:
    parts = [_machine(content), _limits(content), _sums(content), _own(content), _recorded(content),
             _samplers(content, "cpu", "CPU time"), _samplers(content, "time", "time"), _sites(content), _calls(content), _missing(content)]
    return "\n\n".join(part for part in parts if part)


def _machine(content: dict) -> str:
    machine, versions = content["machine"], content.get("versions", {})
    where = f"{machine['cpu']}, Linux {machine['kernel']}, {machine['when']}, commit {machine['commit']}"
    return "; ".join([where, ", ".join(f"{name}: {version}" for name, version in versions.items())][: 1 + bool(versions)]) + "."


def _limits(content: dict) -> str:
    """The worst first, of each with its middle."""
    lines = []
    for one in limits(content["rows"]):
        what = "where little else is done" if one["allocates"] else "other programs"
        programs = [
            ", ".join(f"`{row['program']}` {limited(row)[0]:.3f}" for row in sorted(one[word], key=lambda row: -limited(row)[0]))
            for word in (HELD, OPEN, BROKEN)
        ]  # fmt: skip
        lines.append((f"{one['observer']}, {what}: {one['limit']:.2f}", f"**{one['verdict']}**", *programs))
    return _table(("limit of time", "", HELD, OPEN, BROKEN), lines) if lines else ""


# ---- The benchmark's cases ----


def text_of_cases(content: dict) -> str:
    """What is held, and of the others how long they are."""
    return "\n\n".join(part for part in (_machine(content), _limits(content), _not_held(content), _processes(content), _missing(content)) if part)


def _not_held(content: dict) -> str:
    rows = [row for row in content["rows"] if row.get("verdict", HELD) != HELD]
    copies = {row["program"]: row["cpu"] for row in content["rows"] if row["observer"] == AGAIN and "cpu" in row}
    lines = [
        (f"`{row['program']}`", f"{1000 * row['seconds_without']:.0f} ms", f"{row['limit']:.2f}, **{row['verdict']}**", _ratio(limited(row)),
         _ratio(copies[row["program"]]) if row["program"] in copies else "")
        for row in sorted(rows, key=lambda row: row["seconds_without"])
    ]  # fmt: skip
    return _table(("case", "takes", "limit", "CPU time with the profiler, 95 % interval", "a copy without"), lines) if lines else ""


def _processes(content: dict) -> str:
    """What a process pays once, where that is not in what its limit is about."""
    rows = [row for row in content["rows"] if "process" in row and row["observer"] != AGAIN]
    lines = [
        (f"`{row['program']}`", f"{1000 * row['seconds_without']:.0f} ms", _ratio(row["process"]),
         f"{1000 * row['seconds_without'] * (row['process'][0] - 1):.2f} ms", _ratio(row["cpu"]))
        for row in sorted(rows, key=lambda row: row["seconds_without"])
    ]  # fmt: skip
    heads = ("case", "takes", "CPU time of the whole process, 95 % interval", "more", "of what it times")
    return _table(heads, lines) if lines else ""


# ---- The soak ----

SOAK_LIMIT = LIMITS["masu heap"][1]
"""Of its cost."""


def soaked(content: dict) -> str:
    lines = []
    for name, one in content["programs"].items():
        for row in one["figures"]:
            off = row.get("off")
            lines.append((
                name, NAMES[row["figure"]], _figure(row, "level"), f"{_figure(row, 'growth')}, {_figure(row, 'low')} – {_figure(row, 'high')}",
                _figure(row, "limit"), f"**{row['verdict']}**", f"{_figure({**off, 'figure': row['figure']}, 'growth')}" if off else "",
            ))  # fmt: skip
    days = "; ".join(f"{name} {one['processes']} processes each, {one['figures'][0]['days']} days" for name, one in content["programs"].items())
    costs = "; ".join(f"{name} {_ratio(one['cost'])}, **{verdict(one['cost'], SOAK_LIMIT)}**" for name, one in content["programs"].items())
    return "\n\n".join([
        f"{_machine(content)} After the warm-up: {days}. CPU time with the sampler, which may be {SOAK_LIMIT:.2f}: {costs}.",
        _table(("program", "figure", "level", "growth over all days, 95 %", "limit", "", "growth without sampler"), lines),
    ])  # fmt: skip


NAMES = {"resident": "resident memory", "own": "masu's own memory", "profile": "size of the profile", "sites": "call sites in it"}


def _figure(row: dict, key: str) -> str:
    return f"{row[key]:,.0f}" if row["figure"] == "sites" else f"{row[key] / 1024:,.0f} KiB"


# ---- Tables ----


def _table(headings: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    rows = [headings, ("---",) * len(headings), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _sums(content: dict) -> str:
    """An observer has a line, with both kinds of programs."""
    found: dict[str, dict[bool, dict]] = {}
    for one in content["sums"]:
        if one["programs"]:
            found.setdefault(one["observer"], {})[one["allocates"]] = one
    lines = []
    for name, kinds in found.items():
        cells = [f"{name}: {content['observers'][name]['what']}", content["observers"][name]["of"]]
        for allocates in (True, False):
            one = kinds.get(allocates)
            cells.append(f"{one['time']:.3f}; {one['time_worst']:.3f} {one['time_worst_program']}" if one else "")
        memory = [one["memory"] for one in kinds.values()]
        added = max(one["kib_added_most"] for one in kinds.values()) / 1024
        cells.append(f"{min(memory):.2f} – {max(memory):.2f}; {added:.1f} MiB")
        lines.append(tuple(cells))
    return _table(
        ("observer", "beside", "time where little else is done: mean; worst", "time of other programs: mean; worst",
         "peak memory: means; most added"), lines)  # fmt: skip


def _own(content: dict) -> str:
    """A run of before has none."""
    rows = [row for row in content["rows"] if "own" in row]
    observers = list(dict.fromkeys(row["observer"] for row in rows))
    lines = []
    for program in dict.fromkeys(row["program"] for row in rows):
        cells = {row["observer"]: row["own"] for row in rows if row["program"] == program}
        lines.append((f"`{program}`", *(_percent(cells[name]) if name in cells else "" for name in observers)))
    return _table(("of the program's CPU time, what the profiler took itself, 95 %", *observers), lines) if lines else ""


def _percent(interval: list[float | None]) -> str:
    middle, low, high = interval
    return f"{middle:.2%}" if low is None else f"{middle:.2%}, {low:.2%} – {high:.2%}"


def _recorded(content: dict) -> str:
    """A run of before has none."""
    rows = [row for row in content["rows"] if "time_whole" in row]
    lines = [(f"`{row['program']}`", _ratio(row["time"]), _ratio(row["time_whole"])) for row in rows]
    return _table(("masu record, 95 % interval", "the program", "the whole command"), lines) if lines else ""


def _samplers(content: dict, figure: str, what: str) -> str:
    """By program, of what can stay on. A run of before has no CPU time."""
    rows = [row for row in content["rows"] if row.get("input") == "long" and figure in row]
    observers = list(dict.fromkeys(row["observer"] for row in rows))
    lines = []
    for program in dict.fromkeys(row["program"] for row in rows):
        cells = {row["observer"]: row for row in rows if row["program"] == program}
        lines.append((f"`{program}`", *(_ratio(cells[name][figure]) if name in cells else "" for name in observers)))
    return _table((f"{what}, 95 % interval", *observers), lines) if lines else ""


def _ratio(interval: list[float | None]) -> str:
    middle, low, high = interval
    return f"{middle:.3f}" if low is None else f"{middle:.3f}, {low:.3f} – {high:.3f}"


def _sites(content: dict) -> str:
    truth, lines = content["sites"]["truth"], []
    for name, one in content["sites"]["named"].items():
        lines.append((name, one["missing"] or f"{one['same']} of {len(truth)}", ", ".join(f"`{n}`" for n in one["top"])))
    if not lines:
        return ""
    return f"The functions of one program that keep most: {', '.join(f'`{n}`' for n in truth)}.\n\n" + _table(("observer", "found", "names"), lines)


def _calls(content: dict) -> str:
    """A run of before has none."""
    called = content.get("calls") or {"named": {}}
    lines = []
    for name, one in called["named"].items():
        shares = ", ".join(f"`{function}` {share:.0%}" for function, share in one["top"].items())
        lines.append((name, one["missing"] or f"{one['same']} of {len(one['top'])}", shares))
    if not lines:
        return ""
    measure = f", beside those of {called['measure']}" if called["measure"] else ""
    return f"The functions of {called['program']} that take most of what is in use{measure}.\n\n" + _table(("observer", "the same", "share"), lines)


def _missing(content: dict) -> str:
    lines = missing(content)
    return "Not measured:\n\n" + "\n".join(f"- {line}" for line in lines) if lines else ""


def leak_checks(content: dict) -> str:
    """What they cost, in a sentence."""
    said = []
    for one in content["sums"]:
        if one["observer"] == "masu leaks" and one["programs"]:
            programs = "programs that do little but allocate" if one["allocates"] else "other programs"
            said.append(f"{programs} took {one['time']:.1f} times as long on average and {one['time_worst']:.1f} times at most (`{one['time_worst_program']}`)")
    return f"Every allocation is recorded with its call stack: {', '.join(said)}. [What the observers cost](observers.md) has the run."


def missing(content: dict) -> list[str]:
    """A line for each reason why something was not measured."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in content["rows"]:
        if "missing" in row:
            found.setdefault((row["observer"], row["missing"]), []).append(row["program"])
    everywhere = {name for name, one in content["observers"].items() if one["missing"]}
    return [f"{name}{'' if name in everywhere else ', ' + ', '.join(programs)}: {why}" for (name, why), programs in found.items()]


def main() -> None:
    if sys.argv[1:] != ["--check"]:
        write()
    elif wrong := [path.name for path, text_ in pages().items() if path.read_text() != text_]:
        sys.exit(f"docs: {', '.join(wrong)}: not as bench/observers/published.py makes it of the committed runs")


if __name__ == "__main__":
    main()
