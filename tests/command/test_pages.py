"""The pages, in a real browser: they are drawn, readable on narrow and wide screens, and need no
network."""

import json
import os
import subprocess
import sys

import pytest
from conftest import MASU
from test_report import PLANTED

WIDTHS = (400, 1400)
LEAST_TEXT = 8
"""Pixels, of the height of a line."""

# Of each plot what shows data: no axis, no legend, not the background and the two spines.
MARKS = """
return [...document.querySelectorAll("svg")].map(svg => {
  const parts = [...svg.querySelector("#axes_1").children].filter(g => !/^(matplotlib.axis|legend)/.test(g.id));
  const boxes = parts.map(g => g.getBoundingClientRect());
  return boxes.filter(b => b.width > 1 || b.height > 1).length - 3;
});
"""
# Of each text of a plot the height of its line, which for one that is turned is the less.
TEXTS = """
return [...document.querySelectorAll("svg text")].map(text => {
  const box = text.getBBox(), to = text.getScreenCTM();
  return box.height * Math.hypot(to.c, to.d);
});
"""
BROKEN_LINKS = """
return [...document.querySelectorAll("a[href^='#']")].map(a => a.getAttribute("href").slice(1))
  .filter(id => !document.getElementById(id));
"""


@pytest.fixture(scope="session")
def pages(compile_program, tmp_path_factory):
    """The page of each command that writes one, and how many plots it has at least."""
    folder = tmp_path_factory.mktemp("pages")
    program = compile_program(PLANTED, "-fno-builtin", "-pthread", "-rdynamic")

    def run(*words):
        subprocess.run([MASU, *map(str, words)], check=True, capture_output=True)

    run("record", "--stacks", "-o", folder / "it.trace", "--", program)
    run("report", "-n", "2", "-o", folder / "report.html", folder / "it.trace")
    # Long enough for a curve of its memory.
    work = "x = [[str(i) for i in range(20000)] for _ in range(10)]"
    run("compare", "-n", "2", "--html", folder / "compare.html", "--", os.path.realpath(sys.executable), "-c", work)
    (folder / "peers.json").write_text("[]")
    day = {name: {f"rss_{when}_kib": [2.0] * 5 for when in ("mean", "peak", "end")} for name in ("masu", "system")}
    curves = {name: [[0.1, 2, 1], [0.2, 3, 1]] for name in day}
    measured = {"case": "server-day", "command": "server_day curve", "values": day, "curves": curves}
    (folder / "state.json").write_text(json.dumps({"server-day": measured}))
    run("bench", "--only", "handover,stackprobe-tail,server-day", "--quick", "--seconds", "1", "--html", folder / "bench.html",
        "--state", folder / "state.json", "--peers", folder)  # fmt: skip
    return {"report": (folder / "report.html", 8), "compare": (folder / "compare.html", 2), "bench": (folder / "bench.html", 5)}


def shown(browser, page, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    )
    browser.get(page.as_uri())


def requests(browser):
    """What was asked for since the last look."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


@pytest.mark.parametrize("name", ["report", "compare", "bench"])
def test_a_page_is_drawn_and_needs_no_network(browser, pages, name):
    page, plots = pages[name]
    requests(browser)
    shown(browser, page, WIDTHS[-1])
    assert [url for url in requests(browser) if not url.startswith("data:")] == [page.as_uri()]
    assert browser.get_log("browser") == []
    marks = browser.execute_script(MARKS)
    assert len(marks) >= plots and all(n > 0 for n in marks), marks
    assert browser.execute_script(BROKEN_LINKS) == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["report", "compare", "bench"])
def test_a_page_can_be_read_without_scrolling_sideways(browser, pages, name, width):
    shown(browser, pages[name][0], width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert min(browser.execute_script(TEXTS)) >= LEAST_TEXT


def test_a_call_site_unfolds_to_its_stack(browser, pages):
    shown(browser, pages["report"][0], WIDTHS[-1])
    site = browser.find_element("css selector", "details")
    callers = site.find_element("css selector", "div")
    assert not callers.is_displayed()
    site.find_element("css selector", "summary").click()
    assert callers.is_displayed() and "main" in callers.text
