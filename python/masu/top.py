"""The screen of masu top."""

from __future__ import annotations

from collections import deque

from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Sparkline, Static, TabbedContent, TabPane
from textual.worker import get_current_worker

from masu import live, profile, profile_live
from masu.shown import heading, shown, size

EVERY_S = 0.5
SITES_EVERY_S = 5.0
"""Call sites: a profile is more work, for the process as well."""
SITES_MOST = 50
MOST = 120
"""Samples that are kept, and shown: a minute."""
RATE_S = 2.0
"""Over so many seconds."""

TABS = {
    "class": "Size classes",
    "heap": "Threads",
    "named_heap": "Named heaps",
    "form": "Pools, arenas",
    "sized": "Sized blocks",
}
SORTED_BY = {"class": "live", "heap": "live", "named_heap": "used", "form": "held", "sized": "held"}

FIGURES = [
    ("free in slabs", "slab_free"),
    ("empty slabs", "slab_spare"),
    ("front", "front"),
    ("idle", "idle"),
    ("mappings kept", "kept"),
    ("masu itself", "own"),
]


class Top(App):
    """Ends with why the process shows no more, or None."""

    CSS = """
    #title { height: 1; padding: 0 1; text-style: bold; }
    #curves { height: auto; }
    .curve { width: 1fr; height: auto; padding: 0 1; }
    Sparkline { height: 3; }
    .-tall Sparkline { height: 5; }
    #live > .sparkline--max-color { color: $success; }
    #live > .sparkline--min-color { color: $success-darken-2; }
    #resident > .sparkline--max-color { color: $primary; }
    #resident > .sparkline--min-color { color: $primary-darken-2; }
    #figures { height: auto; padding: 0 1; }
    .-tall #figures { margin: 1 0 0 0; }
    #sites-told { height: auto; padding: 0 1; }
    TabbedContent { height: 1fr; }
    DataTable { height: 1fr; }
    """
    BINDINGS = [("p", "purge", "Give memory back"), ("space", "pause", "Pause"), ("q", "quit", "Quit")]
    ENABLE_COMMAND_PALETTE = False
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]

    def __init__(self, page: live.Page):
        super().__init__()
        self._page = page
        self._samples: deque[live.Figures] = deque(maxlen=MOST)
        self._paused = False
        self._message = ""
        self._takes_sites = False

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with Horizontal(id="curves"):
            for name in ("live", "resident"):
                with Vertical(classes="curve"):
                    yield Static(id=f"{name}-now")
                    yield Sparkline([], summary_function=max, id=name)
        yield Static(id="figures")
        with TabbedContent():
            for name, title in TABS.items():
                with TabPane(title, id=f"tab-{name}"):
                    yield DataTable(id=name, cursor_type="row", zebra_stripes=True)
            with TabPane("Call sites", id="tab-sites"):
                yield Static(id="sites-told")
                yield DataTable(id="sites", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        for name in TABS:
            table = self.query_one(f"#{name}", DataTable)
            for column in self._page.tables[name].columns:
                table.add_column(_justified(heading(column.name), column))
        sites = self.query_one("#sites", DataTable)
        for title in ("in use", "share", "blocks", "of samples"):
            sites.add_column(Text(title, justify="right"))
        sites.add_column("call site, and who called it")
        self.refresh_figures()
        self.set_interval(EVERY_S, self.refresh_figures)
        self.set_interval(SITES_EVERY_S, self.refresh_sites)

    def on_tabbed_content_tab_activated(self) -> None:
        self.refresh_sites()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._message = "paused" if self._paused else ""
        self._show_title()

    def action_purge(self) -> None:
        try:
            self._message = f"{size(self._page.request(live.PURGE))} given back"
        except live.NotLive as why:
            self._message = str(why)
        self._show_title()
        self.refresh_figures()

    def refresh_figures(self) -> None:
        if self._paused or not self.query("#title"):  # it ends just now
            return
        try:
            self._samples.append(self._page.read())
        except live.NotLive as why:
            self.exit(str(why))
            return
        self._show_title()
        self._show_curves()
        self._show_figures()
        for name in TABS:
            self._show_table(name)

    def refresh_sites(self) -> None:
        """Only while somebody looks at them."""
        if self._paused or self._takes_sites or self.query_one(TabbedContent).active != "tab-sites":
            return
        self._takes_sites = True
        self.run_worker(self._take_sites, thread=True)

    def _take_sites(self) -> None:
        """In a thread: names of functions take their time."""
        heap, told = None, ""
        try:
            _, found, _ = profile_live.take(self._page.pid)
            heap = profile.heap(found)
        except (live.NotLive, profile.BadProfile) as why:
            told = str(why)
        if not get_current_worker().is_cancelled:
            self.call_from_thread(self._show_sites, heap, told)

    # ---- The parts ----

    def _show_title(self) -> None:
        page, message = self._page, f"   {self._message}" if self._message else ""
        self.query_one("#title", Static).update(Text(f"{page.program}   process {page.pid}   masu {page.masu}{message}"))

    def _rate(self, name: str) -> float:
        """A second, over the last ones."""
        last = self._samples[-1]
        first = next(s for s in self._samples if last.time_s - s.time_s <= RATE_S)
        seconds = last.time_s - first.time_s
        return (last.process[name] - first.process[name]) / seconds if seconds > 0 else 0.0

    def _show_curves(self) -> None:
        now = self._samples[-1].process
        peaks = {"live": now["peak_live"], "resident": max(s.process["resident"] for s in self._samples)}
        for name, peak in peaks.items():
            rate = self._rate(name)
            change = f"{'+' if rate >= 0 else ''}{size(rate)}/s"
            text = Text.assemble((name, "bold"), f"  {size(now[name])}   {change}\nmost seen {size(peak)}")
            self.query_one(f"#{name}-now", Static).update(text)
            values = [float(s.process[name]) for s in self._samples]
            # It is drawn from the least value on, so there always is a 0: a curve that exaggerates small changes is of no use.
            self.query_one(f"#{name}", Sparkline).data = [0.0] * (MOST + 1 - len(values)) + values

    def _show_figures(self) -> None:
        now = self._samples[-1].process
        cells = [f"{label:<13} {size(now[name]):>10}" for label, name in FIGURES]
        lines = [
            "   ".join(cells[:3]),
            "   ".join(cells[3:]),
            f"{now['blocks']:,} blocks, {self._rate('blocks'):+,.0f}/s   {now['slabs']:,} slabs   {now['heaps']:,} heaps",
            f"external fragmentation {self._samples[-1].fragmentation:.0%}   given back {size(now['returned'])}, {size(self._rate('returned'))}/s",
            f"live is exact but for {size(now['ready_most'])} at most that threads hold ready",
        ]
        self.query_one("#figures", Static).update(Text("\n".join(lines)))

    def _show_table(self, name: str) -> None:
        figures = self._samples[-1]
        columns = figures.tables[name].columns
        rows = sorted(figures.rows[name], key=lambda r: -r[SORTED_BY[name]])
        self._fill(name, [[_justified(shown(row[c.name], c), c) for c in columns] for row in rows])

    def _show_sites(self, heap: profile.Heap | None, told: str) -> None:
        self._takes_sites = False
        rows = []
        if heap:
            samples, whole = heap.samples("in-use") or (lambda _: 0), heap.total("inuse_space")
            told = "; ".join([f"{size(whole)} in use", f"estimates, from a sample every {size(heap.interval)} on average", *heap.notes])
            for frames, values in sorted(heap.sites().items(), key=lambda site: -site[1]["inuse_space"])[:SITES_MOST]:
                if (held := values["inuse_space"]) > 0:
                    cells = [size(held), f"{held / whole:.1%}", f"{values['inuse_objects']:,}", f"{samples(values):,}"]
                    rows.append([*(Text(cell, justify="right") for cell in cells), Text(" < ".join(reversed(frames)))])
        self.query_one("#sites-told", Static).update(Text(told))
        self._fill("sites", rows)

    def _fill(self, name: str, rows: list[list[Text]]) -> None:
        """Where the reader is in the table stays."""
        table = self.query_one(f"#{name}", DataTable)
        at, scroll = table.cursor_row, table.scroll_y
        table.clear()
        for row in rows:
            table.add_row(*row)
        if at < table.row_count:
            table.move_cursor(row=at, animate=False)
        table.scroll_y = scroll


def _justified(text: str, column: live.Column) -> Text:
    return Text(text, justify="left" if column.unit == live.TEXT else "right")
