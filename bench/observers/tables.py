"""The tables of a run, for the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from observers.published import missing
from observers.results import BROKEN, HELD, OPEN, limited

KINDS = {True: "programs that do little but allocate", False: "other programs"}


def console() -> Console:
    """Tables in a file or a pipe are not cut."""
    return Console() if Console().is_terminal else Console(width=200)


def show(content: dict, out: Console) -> None:
    for allocates, kind in KINDS.items():
        some = [one for one in content["sums"] if one["allocates"] == allocates and one["programs"]]
        if some:
            out.print(_sums(some, content["observers"], kind))
    for row in content["rows"]:
        if "verdict" in row and row["verdict"] != HELD:
            middle, low, high = limited(row)
            between = f"{low:.3f} to {high:.3f}" if low is not None else "too few rounds"
            out.print(f"{row['observer']}, {row['program']}: limit {row['limit']:.2f} {row['verdict']}: {middle:.3f}, {between}",
                          style="bold red" if row["verdict"] == BROKEN else None, highlight=False)  # fmt: skip
    out.print(_sites(content["sites"]))
    out.print(_calls(content["calls"]))
    for line in missing(content):
        out.print(f"missing: {line}", style="dim", highlight=False)


def _sums(some: list[dict], observers: dict, kind: str) -> Table:
    table = Table(title=kind, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("observer", no_wrap=True)
    for heading in ("beside", "time, mean", "worst", "", "memory, mean", "most added", "", "limit", HELD, OPEN, BROKEN):
        table.add_column(heading, justify="left" if heading in ("beside", "") else "right", no_wrap=True)
    for one in some:
        table.add_row(
            one["observer"],
            observers[one["observer"]]["of"],
            f"{one['time']:.3f}",
            f"{one['time_worst']:.3f}",
            one["time_worst_program"],
            f"{one['memory']:.2f}",
            f"{one['kib_added_most'] / 1024:.1f} MiB",
            one["kib_added_most_program"],
            *((f"{one['limit']:.2f}", *(str(one[word]) for word in (HELD, OPEN, BROKEN))) if "limit" in one else ("",) * 4),
            style="bold" if one["observer"].startswith("masu") else None,
        )
    return table


def _sites(sites: dict) -> Table:
    table = Table(title="finds the functions that keep most", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("observer", "of five", "names"):
        table.add_column(heading, no_wrap=heading == "observer")
    table.add_row("the truth", "", ", ".join(sites["truth"]))
    for name, one in sites["named"].items():
        table.add_row(name, "" if one["missing"] else str(one["same"]), one["missing"] or ", ".join(one["top"]))
    return table


def _calls(called: dict) -> Table:
    table = Table(title=f"functions of {called['program']} with most in use", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("observer", f"as {called['measure'] or 'nobody'}", "share"):
        table.add_column(heading, no_wrap=heading == "observer")
    for name, one in called["named"].items():
        shares = ", ".join(f"{function} {share:.0%}" for function, share in one["top"].items())
        table.add_row(name, "" if one["missing"] else str(one["same"]), one["missing"] or shares)
    return table
