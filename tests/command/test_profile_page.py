"""The page of a profile, in a real browser."""

import json
import re
import subprocess

import pytest
from conftest import MASU
from profiling import OF_EACH_KIND


@pytest.fixture(scope="session")
def pages(profiles, of_each_kind, tmp_path_factory):
    """Of one profile of each kind, and of the growth between two."""
    folder = tmp_path_factory.mktemp("pages")
    files = {**{kind: [file] for kind, file in of_each_kind.items()}, "growth": [profiles[4], profiles[12]]}
    for name, of in files.items():
        subprocess.run([MASU, "profile", "--html", "-o", folder / f"{name}.html", *of], check=True, capture_output=True)
    return {name: folder / f"{name}.html" for name in files}


@pytest.fixture
def opened(browser, pages):
    def open_(name, width=1400):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        )
        browser.get(pages[name].as_uri())
        return browser

    return open_


WIDTHS = """
const whole = document.getElementById("graph").clientWidth;
return Object.fromEntries([...document.querySelectorAll("#graph [data-node]")]
  .map(e => [e.getAttribute("aria-label").split(":")[0], e.getBoundingClientRect().width / whole]));
"""


def widths(browser):
    """Of the frames, as parts of the whole."""
    return browser.execute_script(WIDTHS)


def choose(browser, view):
    browser.find_element("css selector", f"input[value='{view}']").click()


def frame(browser, name):
    return browser.find_element("css selector", f"#graph [aria-label^='{name}:']")


def pressed(browser, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()
    return browser.switch_to.active_element


@pytest.mark.parametrize("name", [*OF_EACH_KIND, "growth"])
def test_the_page_needs_no_network(browser, opened, pages, name):
    browser.get_log("performance")
    opened(name)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [pages[name].as_uri()]
    assert [entry for entry in browser.get_log("browser") if pages[name].name in entry["message"]] == []


def test_a_frame_is_as_wide_as_its_bytes(opened):
    page = opened("heap")
    drawn = widths(page)
    assert drawn["all"] == pytest.approx(1, abs=0.01)
    # 4 MiB of leaks, 400 KiB of works, and little else.
    assert drawn["leaks"] / drawn["works"] == pytest.approx(4096 / 400, rel=0.05)
    assert "peaks" not in drawn and "churns" not in drawn
    choose(page, "peak")
    assert widths(page)["peaks"] > 0.95
    choose(page, "allocated")
    drawn = widths(page)
    assert drawn["churns"] / drawn["peaks"] == pytest.approx(50000 * 2 / 32768, rel=0.05)


CURVE = """
const box = document.querySelector("#curve svg").getBoundingClientRect();
return ["polygon", "polyline"].map(name => {
  const at = document.querySelector("#curve " + name), to = at.getScreenCTM();
  return [...at.points].map(p => p.matrixTransform(to)).map(p => [(p.x - box.left) / box.width, (box.bottom - p.y) / box.height]);
});
"""


def test_it_opens_with_memory_over_time(opened):
    """32 MiB at the peak, 4.4 in use at the end; held is never less than in use."""
    page = opened("heap")
    in_use, held = page.execute_script(CURVE)
    top = float(re.match(r"([\d.]+) MiB", page.find_element("css selector", "#curve .axis").text)[1])
    assert max(y for _, y in in_use) * top == pytest.approx(32, rel=0.02)
    assert in_use[-2][1] * top == pytest.approx(4 + 400 / 1024, rel=0.1)
    assert max(y for _, y in held) == pytest.approx(1, abs=0.02)
    assert all(above >= below - 0.01 for (_, below), (_, above) in zip(in_use[1:], held))
    for line in (in_use, held):
        places = [x for x, _ in line]
        assert places == sorted(places) and (places[0], places[-1]) == pytest.approx((0, 1), abs=0.01)


def test_growth_is_a_view_of_the_page_of_two(opened):
    page = opened("growth")
    assert page.find_element("css selector", "input[value='growth']").is_selected()
    assert "+8.0 MiB" in frame(page, "leaks").get_attribute("aria-label")
    assert widths(page)["leaks"] > 0.95
    assert not opened("heap").find_elements("css selector", "input[value='growth']")


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_a_frame_can_be_zoomed_into_and_left(opened, kind):
    page, (most, less) = opened(kind), OF_EACH_KIND[kind]
    before = widths(page)
    assert before[less] < before[most] / 2
    frame(page, less).click()
    assert widths(page)[less] == pytest.approx(1, abs=0.01)
    assert most not in widths(page)
    page.find_element("id", "reset").click()
    assert widths(page) == pytest.approx(before)


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_what_is_searched_is_marked_and_summed_up(opened, kind):
    page, most = opened(kind), OF_EACH_KIND[kind][0]
    page.find_element("id", "search").send_keys(most[:-1].upper())
    marked = [e.get_attribute("aria-label").split(":")[0] for e in page.find_elements("css selector", "#graph .hit")]
    assert marked == [most]
    found = re.fullmatch(r"found: ([\d.]+ \w+), ([\d.]+) %", page.find_element("id", "found").text)
    assert float(found[2]) / 100 == pytest.approx(widths(page)[most], abs=0.01)
    assert kind != "heap" or found[1] == "4.0 MiB"
    assert [row.text.split()[-1] for row in page.find_elements("css selector", "#functions tbody tr")] == [most]


def test_keys_do_it_all(opened):
    from selenium.webdriver.common.keys import Keys

    page = opened("heap")
    page.execute_script("document.querySelector('#graph [tabindex=\"0\"]').focus()")
    names = [page.switch_to.active_element.text]
    while names[-1] not in ("leaks", ""):
        names.append(pressed(page, Keys.ARROW_DOWN).text)
    assert names[0] == "all" and names[-2:] == ["main", "leaks"]
    assert "4.0 MiB" in page.find_element("id", "detail").text
    pressed(page, Keys.ENTER)
    assert widths(page)["leaks"] == pytest.approx(1, abs=0.01) and "works" not in widths(page)
    for _ in names[1:]:
        pressed(page, Keys.ESCAPE)
    assert "works" in widths(page)
    assert pressed(page, "/").get_attribute("id") == "search"


def test_the_table_can_be_sorted(opened):
    page = opened("heap")
    choose(page, "allocated")

    def first():
        return page.find_element("css selector", "#functions tbody tr").text.split()[-1]

    assert first() == "churns"
    page.find_element("css selector", "[data-sort=cum]").click()
    assert first() in ("main", "_start", "__libc_start_main", "__libc_start_call_main")


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", [*OF_EACH_KIND, "growth"])
def test_it_can_be_read_without_scrolling_sideways(opened, name, width):
    assert opened(name, width).execute_script("return document.documentElement.scrollWidth") <= width


COLOURS = """
const all = {};
for (const element of [document.body, ...document.querySelectorAll("#graph div"), document.querySelector(".facts")]) {
  let behind = element;
  while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentNode;
  all[getComputedStyle(element).color + " on " + getComputedStyle(behind).backgroundColor] = 1;
}
return Object.keys(all);
"""


def contrast(pair):
    """As WCAG 2 has it."""

    def luminance(colour):
        parts = [float(n) / 255 for n in re.findall(r"[\d.]+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear))

    light, dark = sorted(map(luminance, pair.split(" on ")), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_the_light_and_in_the_dark(opened, scheme):
    page = opened("heap")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    page.find_element("id", "search").send_keys("leaks")
    pairs = page.execute_script(COLOURS)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(pairs) > 3
    assert min(map(contrast, pairs)) >= 4.5, pairs
