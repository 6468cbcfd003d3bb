"""Profiles of all kinds in tools of others."""

import base64
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from conftest import tool
from profiling import OF_EACH_KIND, folded, inside

FLAMEGRAPH = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl"
"""As Debian's libdevel-nytprof-perl brings it."""


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_flamegraph_draws_the_folded_stacks(masu, of_each_kind, tmp_path, kind):
    masu("profile", "--folded", "-o", tmp_path / "it", of_each_kind[kind], check=True)
    drawn = subprocess.run(["perl", tool(FLAMEGRAPH), tmp_path / "it"], capture_output=True, text=True, check=True).stdout
    wide = Counter()
    for name, width in re.findall(r"<title>(\w+) \(([\d,]+) samples", drawn):
        wide[name] += int(width.replace(",", ""))
    stacks, (most, less) = folded(masu, of_each_kind[kind]), OF_EACH_KIND[kind]
    assert (wide[most], wide[less]) == (inside(stacks, most), inside(stacks, less))
    assert wide[most] > 2 * wide[less] > 0


@pytest.mark.parametrize("form", ["pprof", "folded"])
@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_speedscope_opens_it(browser, masu, of_each_kind, tmp_path, kind, form):
    command = shutil.which("speedscope")
    if not command:
        pytest.skip("no speedscope")
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    page = Path(command).resolve().parent.parent / "dist" / "release" / "index.html"
    if form == "folded":
        masu("profile", "--folded", "-o", tmp_path / "it", of_each_kind[kind], check=True)
    else:
        shutil.copy(of_each_kind[kind], tmp_path / "it")
    data = json.dumps(base64.b64encode((tmp_path / "it").read_bytes()).decode())
    (tmp_path / "it.js").write_text(f'speedscope.loadFileFromBase64("it", {data})')
    browser.get_log("browser")
    browser.get("about:blank")  # else only what is behind the # changes
    browser.get(f"{page.as_uri()}#localProfilePath={tmp_path / 'it.js'}")
    WebDriverWait(browser, 30).until(lambda b: b.title.startswith("it"))
    log = list(browser.get_log("browser"))
    assert not [entry for entry in log if entry["level"] == "SEVERE"]
    if form == "pprof":
        assert any("Importing as protobuf encoded pprof file" in entry["message"] for entry in log)
    ActionChains(browser).send_keys("3").perform()  # its table of functions, those first that have most themselves
    names = "return [...document.querySelectorAll('td')].map(cell => cell.textContent)"
    found = WebDriverWait(browser, 30).until(lambda b: set(OF_EACH_KIND[kind]).issubset(told := b.execute_script(names)) and told)
    most, less = map(found.index, OF_EACH_KIND[kind])
    assert most < less
