"""masu top, on real processes."""

import asyncio
import fcntl
import html
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from conftest import MASU
from living import eventually, named, one_error, program, start  # noqa: F401, fixtures

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


def test_forms_and_heaps_by_name(start, named):
    from textual.widgets import DataTable, TabbedContent

    from masu.top import Top

    async def look():
        with live.Page(start("--live", command=[named]).pid) as page:
            app = Top(page)
            async with app.run_test(size=(120, 40)) as pilot:
                lines = []
                for name in ("named_heap", "form"):
                    app.query_one(TabbedContent).active = f"tab-{name}"
                    await pilot.pause()
                    table = app.query_one(f"#{name}", DataTable)
                    assert table.row_count == 2
                    lines += lines_on(app)
                return lines

    lines = asyncio.run(look())
    assert [line for line in lines if line.startswith("[b]x[/b] ")]
    assert [line for line in lines if re.match(r"pool +\[red\]pool +100\.0 KiB .* \[b\]x\[/b\]$", line)], lines
    assert [line for line in lines if re.match(r"arena +a\[/\]rena +300\.0 KiB ", line)], lines


PURGES = """
import asyncio, sys
from masu import live
from masu.top import Top
from textual.widgets import Static
async def look(pid):
    with live.Page(pid) as page:
        app = Top(page)
        async with app.run_test() as pilot:
            for _ in range(20):
                await pilot.press("p")
                await pilot.pause()
                said = str(app.query_one("#title", Static).render())
                assert "given back" in said, said
        assert app.return_value is None
asyncio.run(look(int(sys.argv[1])))
"""


def test_two_at_once_give_memory_back(start):
    running = start("--live")
    running.tell("churn")
    tops = [subprocess.Popen([sys.executable, "-c", PURGES, str(running.pid)], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for top in tops:
        _, said = top.communicate(timeout=120)
        assert top.returncode == 0, said
    assert running.tell("half") == "done"


def in_a_terminal(*words, until, key):
    """What was on the screen, without its colours, and the exit status."""
    pid, screen = pty.fork()
    if pid == 0:
        os.execve(words[0], words, {**os.environ, "TERM": "xterm-256color"})
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
    shown, pressed, deadline = b"", False, time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            if not select.select([screen], [], [], 1)[0]:
                continue
            try:
                read = os.read(screen, 65536)
            except OSError:  # who had it open has ended
                break
            shown += read
            if not pressed and re.search(until, text_of(shown)):
                os.write(screen, key)
                pressed = True
        else:
            os.kill(pid, signal.SIGKILL)
        return text_of(shown), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(screen)


def text_of(shown):
    return re.sub(r"\x1b\[[0-9;?<>=]*[A-Za-z]", "", shown.decode(errors="replace"))


def test_in_a_terminal(start):
    running = start("--live")
    shown, status = in_a_terminal(str(MASU), "top", str(running.pid), until="Give memory back", key=b"q")
    assert status == 0 and f"process {running.pid}" in shown and re.search(r"live +3\d\.\d MiB", shown), shown


def test_in_a_terminal_without_a_pid():
    """In a namespace where nobody else shows figures."""
    there = 'mount -t tmpfs none /dev/shm; "$0" run --live -- sleep 100 & until ls /dev/shm/masu-* >&2; do sleep 0.1; done; "$0" top; s=$?; kill $!; exit $s'
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/dev/shm"], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    shown, status = in_a_terminal("/usr/bin/unshare", "-rm", "sh", "-c", there, str(MASU), until="Give memory back", key=b"q")
    assert status == 0 and re.search(r"sleep +process \d+", shown), shown


def test_top_without_a_terminal(masu, start):
    one_error(masu("top", str(start("--live").pid)), "it draws on a terminal")


def test_top_finds_the_process_itself_and_says_which_when_there_are_several(masu, start):
    one = start("--live")
    two = start("--live")
    result = masu("top")
    one_error(result, "which one?")
    assert {one.pid, two.pid} <= set(map(int, re.findall(r"(\d+) program", result.stderr)))
