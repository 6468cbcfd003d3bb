"""masu top, on real processes."""

import asyncio
import html
import re

import pytest
from living import one_error, program, start  # noqa: F401, fixtures

from masu import live

MIB = 1 << 20


def on_screen(app):
    from textual.widgets import Static

    return {s.id: str(s.render()) for s in app.query(Static) if s.id}


def lines_on(app):
    """The texts of the screen as they are drawn, a line for each row."""
    rows = {}
    for x, y, text in re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', app.export_screenshot()):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    return [" ".join(text.strip() for _, text in sorted(parts)).strip() for _, parts in sorted(rows.items())]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
def test_what_matters_fits_on_the_screen(start, size):
    from textual.widgets import DataTable, TabbedContent

    from masu.top import TABS, Top

    running = start("--live", "--options", "profile:2")

    async def look():
        with live.Page(running.pid) as page:
            app = Top(page)
            async with app.run_test(size=size) as pilot:
                for name in [*TABS, "sites"]:
                    app.query_one(TabbedContent).active = f"tab-{name}"
                    await pilot.pause()
                    await app.workers.wait_for_complete()
                    await pilot.pause()
                    lines = lines_on(app)
                    (curves,) = [line for line in lines if re.match(r"live +3\d\.\d MiB   [+-]", line)]
                    assert re.search(r"/s +resident +\d+\.\d MiB   [+-][\d.]+ \w*B/s$", curves)
                    assert [line.count("most seen") for line in lines if "most seen" in line] == [2]
                    for said in ("free in slabs", "masu itself", " heaps", "external fragmentation", "threads hold ready"):
                        assert [line for line in lines if said in line], (said, lines)
                    (tabs,) = [line for line in lines if "Size classes" in line]
                    assert all(title in tabs for title in (*TABS.values(), "Call sites"))
                    assert [line for line in lines if "Give memory back" in line and "Quit" in line]
                    table = app.query_one(f"#{name}", DataTable)
                    assert table.region.bottom < size[1] and table.region.height >= 9
                    assert table.virtual_size.width <= size[0] or name == "sites", "its columns"

    asyncio.run(look())


def test_curves_begin_at_0(start):
    from textual.widgets import Sparkline

    from masu.top import MOST, Top

    async def look():
        with live.Page(start("--live").pid) as page:
            app = Top(page)
            async with app.run_test() as pilot:
                for _ in range(2 * MOST):
                    app.refresh_figures()
                await pilot.pause()
                return [app.query_one(f"#{name}", Sparkline).data for name in ("live", "resident")]

    for values in asyncio.run(look()):
        assert min(values) == 0 and min(values[1:]) > 30 * MIB


def test_the_screen(start):
    from textual.widgets import DataTable, TabbedContent

    from masu.top import Top

    running = start("--live", "--options", "purge_delay:3600000")
    running.tell("thread")

    async def look():
        with live.Page(running.pid) as page:
            app = Top(page)
            async with app.run_test(size=(120, 40)) as pilot:
                await pilot.pause()
                shown = on_screen(app)
                assert f"process {running.pid}" in shown["title"]
                assert re.match(r"live  3\d\.\d MiB", shown["live-now"])
                assert "heaps" in shown["figures"]
                classes = app.query_one("#class", DataTable)
                assert str(classes.get_row_at(0)[0]) == "4,096", "the largest first"
                app.query_one(TabbedContent).active = "tab-heap"
                await pilot.pause()
                tids = {str(row[1]) for row in map(app.query_one("#heap", DataTable).get_row_at, range(2))}
                assert str(running.pid) in tids
                running.tell("free")
                app.refresh_figures()
                assert re.match(r"live  \d+\.\d KiB|live  [0-3]\.\d MiB", on_screen(app)["live-now"])
                await pilot.press("p")
                await pilot.pause()
                assert "given back" in on_screen(app)["title"]
                await pilot.press("space")
                assert "paused" in on_screen(app)["title"]
                await pilot.press("space")
                running.process.kill()
                running.process.wait()
                app.refresh_figures()
            return app.return_value

    assert "has ended" in asyncio.run(look())


def test_the_biggest_call_sites(start):
    from textual.widgets import DataTable, TabbedContent

    from masu.top import Top

    async def look(running):
        with live.Page(running.pid) as page:
            app = Top(page)
            async with app.run_test(size=(120, 40)) as pilot:
                await pilot.pause()
                app.query_one(TabbedContent).active = "tab-sites"
                await pilot.pause()
                await app.workers.wait_for_complete()
                await pilot.pause()
                table = app.query_one("#sites", DataTable)
                return on_screen(app)["sites-told"], [[str(cell) for cell in table.get_row_at(n)] for n in range(table.row_count)]

    told, rows = asyncio.run(look(start("--live", "--options", "profile:2")))
    assert "a sample every 2 B" in told
    assert rows[0][0] == "32.0 MiB" and rows[0][2:4] == ["8,192", "8,192"] and rows[0][4].startswith("main")
    told, rows = asyncio.run(look(start("--live")))
    assert "takes no samples" in told and "--start" in told
    assert rows == []


def test_top_without_a_terminal(masu, start):
    one_error(masu("top", str(start("--live").pid)), "it draws on a terminal")


def test_top_finds_the_process_itself_and_says_which_when_there_are_several(masu, start):
    one = start("--live")
    two = start("--live")
    result = masu("top")
    one_error(result, "which one?")
    assert {one.pid, two.pid} <= set(map(int, re.findall(r"(\d+) program", result.stderr)))
