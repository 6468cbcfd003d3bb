"""masu report: what is planted in a program is on its page."""

import html
import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import MASU, is_shown_though
from rich.console import Console
from test_replay import interrupted

from masu import replay, report
from masu import trace as traces
from masu.commands.report import report as command
from masu.measuring.measure import SYSTEM, Allocator

BUSY = 60
"""So many sites have more calls than the one with the largest block."""
PLANTED = r"""
#include <pthread.h>
#include <stdlib.h>
#define KEPT(p) __asm__ volatile("" : "+r"(p))
__attribute__((noinline)) void *one_large(void) { void *p = malloc(8 << 20); KEPT(p); return p; }
""" + "".join(
    f"__attribute__((noinline)) void busy_{n}(void) {{ for (int i = 0; i < 30; i++) {{ void *p = malloc({n + 1}); KEPT(p); free(p); }} }}\n"
    for n in range(BUSY)
) + r"""
enum { POOL = 3000, ROUNDS = 20, ARENA = 500, HANDED = 2000, DEPTH = 10 };
static void *pool[POOL], *arena[ARENA], *handed[HANDED], *frame[DEPTH];
__attribute__((noinline)) void *from_pool(void) { void *p = malloc(48); KEPT(p); return p; }
__attribute__((noinline)) void *from_arena(int i) { void *p = malloc(16 + i % 200); KEPT(p); return p; }
__attribute__((noinline)) void *from_scope(int i) { void *p = malloc(1000 + i % 7 * 100); KEPT(p); return p; }
__attribute__((noinline)) void *from_frames(int i) { void *p = malloc(20 + i * 37); KEPT(p); return p; }
__attribute__((noinline)) void *for_another(void) { void *p = malloc(300); KEPT(p); return p; }
static void *give(void *unused) { for (int i = 0; i < HANDED; i++) free(handed[i]); return unused; }
int main(void) {
  void *large = one_large();
""" + "".join(f"  busy_{n}();\n" for n in range(BUSY)) + r"""
  for (int i = 0; i < POOL; i++) pool[i] = from_pool();
  for (int i = 0; i < 10 * POOL; i++) { int k = i * 7919 % POOL; free(pool[k]); pool[k] = from_pool(); }
  for (int r = 0; r < ROUNDS; r++) {
    for (int i = 0; i < ARENA; i++) arena[i] = from_arena(i);
    for (int i = 0; i < ARENA; i++) free(arena[i]);
  }
  for (int i = 0; i < 3000; i++) free(from_scope(i));
  for (int r = 0; r < 300; r++) {
    for (int i = 0; i < DEPTH; i++) frame[i] = from_frames(i);
    for (int i = DEPTH; i--;) free(frame[i]);
  }
  for (int i = 0; i < HANDED; i++) handed[i] = for_another();
  pthread_t thread;
  if (pthread_create(&thread, NULL, give, NULL)) return 1;
  pthread_join(thread, NULL);
  free(large);
  return 0;
}
"""


@pytest.fixture(scope="session")
def pages(compile_program, tmp_path_factory):
    """The page with call stacks and the one without, and its trace."""
    program = compile_program(PLANTED, "-fno-builtin", "-pthread", "-rdynamic")
    folder = tmp_path_factory.mktemp("report")
    found = {}
    for name, options in (("stacks", ["--stacks"]), ("plain", [])):
        trace = folder / f"{name}.trace"
        subprocess.run([MASU, "record", *options, "-o", trace, "--", program], check=True, capture_output=True)
        run = subprocess.run([MASU, "report", "-n", "2", trace], check=True, capture_output=True, text=True)
        found[name] = ((folder / f"{name}.trace.html").read_text(), run)
        found["trace"] = trace
    return found


def row(page, site):
    """The cells of the row of gains that this site is in."""
    gains = page.split("What would gain", 1)[1].split("</table>", 1)[0]
    for text in gains.split("<tr>"):
        if site in text.split("</summary>")[0]:
            return re.sub(r"<[^>]*>", " ", text.split("</td>", 1)[1])
    raise AssertionError(f"{site} is in no row")


def test_sites_that_would_gain_by_a_form_are_named(pages):
    page, _ = pages["stacks"]
    assert "pool" in row(page, "from_pool")
    assert "arena" in row(page, "from_arena")
    assert "500 at a time" in row(page, "from_arena")
    assert "scope" in row(page, "from_scope")
    assert "scope" in row(page, "from_frames")
    assert "shared" in row(page, "for_another")


def test_the_table_of_sites_has_those_with_most_bytes_however_few_their_calls(pages):
    page, _ = pages["stacks"]
    table = page.split("<h2>Call sites</h2>", 1)[1]
    assert "from_pool" in table and "busy_" in table
    assert "one_large" in table


def test_the_page_says_what_was_replayed_and_what_it_means_for_the_program(pages):
    page, run = pages["stacks"]
    assert re.search(r"calls of 2 threads; [0-9.]+ MiB live at most; [0-9,]+ blocks handed from thread to thread", page)
    assert re.search(r"Of each block (all of it|a byte of each page) is written\.", page)
    for text in (html.unescape(page), run.stdout):
        assert "Predicted time of the program" in text and "Predicted peak memory of the program" in text
    assert "not whole" not in page
    assert "masu with huge pages" in page  # names stand in lists


def test_the_page_of_a_cut_trace_says_so(masu, pages, tmp_path):
    trace = tmp_path / "cut.trace"
    trace.write_bytes(pages["trace"].read_bytes()[:-10])  # of its end
    result = masu("report", "-n", "1", trace)
    assert result.returncode == 0, result.stderr
    assert "cut at byte" in " ".join(result.stderr.split())
    assert "The trace is not whole: cut at byte" in Path(f"{trace}.html").read_text()


def test_after_ctrl_c_there_is_a_page_without_what_was_not_measured(monkeypatch, pages, tmp_path, library):
    found = traces.read(pages["trace"])
    process = found.main()
    analysis = report.analyse(found, process, tmp_path)
    made = replay.plan(found, process, tmp_path)
    once = replay._once

    def stopped(made, command, allocator, settle_s=0.0):
        if "latency" in command and allocator.name == "masu":
            raise KeyboardInterrupt
        return once(made, command, allocator, settle_s)

    monkeypatch.setattr(replay, "_once", stopped)
    masu = Allocator("masu", Path(library))
    replayed = replay.replay(made, [SYSTEM, masu], Console(quiet=True), rounds=1, touch="none", settle_s=0)
    page = report.page(found, process, analysis, made.summary, replayed, {}, {})
    assert "The replay was interrupted after 1 round." in page
    assert "from_pool" in page or "blocks of 48 bytes" in page
    assert "saves, about" not in page and "Saved is time" not in page


def test_ctrl_c_in_its_rounds_keeps_those_that_were_measured(compile_program, whole, tmp_path):
    output, _ = interrupted(compile_program, tmp_path, "report", "-o", tmp_path / "it.html", whole)
    page = (tmp_path / "it.html").read_text()
    assert "In the replay: " in output and "The replay was interrupted after" in page and "Replayed on" in page


def test_ctrl_c_before_the_first_round_keeps_what_the_trace_says(monkeypatch, pages, tmp_path):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(replay, "rounds_on", stopped)
    page = tmp_path / "it.html"
    result = CliRunner().invoke(command, ["-o", str(page), str(pages["trace"])])
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "The replay was interrupted before its first round." in text
    assert "Lifetimes" in text and "blocks of 48 bytes" in text
    assert "Replayed on" not in text and "In the replay" not in text


def test_live_bytes_are_those_of_each_allocator_and_tune_is_named(pages):
    page, run = pages["stacks"]
    assert "resident : live" in page
    assert "masu tune" in run.stdout and "masu tune" in page


def test_without_stacks_sizes_take_their_place(pages):
    page, _ = pages["plain"]
    assert "pool" in row(page, "blocks of 48 bytes")
    assert "masu record --stacks" in page


def test_the_page_needs_no_network_and_the_advice_is_also_printed(pages):
    page, run = pages["stacks"]
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "@import" not in page
    first = run.stdout.splitlines()[0]
    assert first.startswith("In the replay: Too few rounds to say")
    assert first.split(".")[0] in html.unescape(page)
    assert "From thread to thread" in page
    assert page.count("<svg") >= 8


def site(**figures):
    return report.Site({"stack": 1, "size": 0, "taken": 1000, "of_usual": 1000, "usual": 48, "given": 1000, "resized": 0, "runs": 1000, "lifo": 0,
                        "handed": 0, "life_ns": 1e9, "blocks_most": 9, **figures})  # fmt: skip


@pytest.mark.parametrize(("all_", "worth"), [(20_000, True), (40_000, False)])
def test_a_site_is_worth_a_form_by_its_part_of_all_allocations(all_, worth):
    """Few of the sites are in the report."""
    found = report.Analysis({"sizes": [[48, 300, 0, 0], [64, all_ - 300, 0, 0]]}, [site(taken=300, of_usual=300, given=300, runs=300)])
    assert [gain.form for gain in report.gains(found, 10.0)] == ["pool"] * worth


def test_what_a_form_saves_is_a_pair_of_calls_less_that_form():
    calls = {"malloc": {"count": 300, "p50_ns": 10}, "calloc": {"count": 100, "p50_ns": 30}, "free": {"count": 400, "p50_ns": 4}}
    replayed = replay.Replayed(None, {"masu": {"calls": calls}}, 0, 0, {}, "full", {}, {})
    pair_ns = report.pair_ns(replayed, "masu")
    assert pair_ns == 15 + 4 and report.pair_ns(replayed, "other") == report.pair_ns(None, "masu") == 0
    sites = [site(), site(handed=500), site(runs=10), site(lifo=1000, life_ns=1e3)]
    found = report.gains(report.Analysis({"sizes": [[48, 4000, 0, 0]]}, sites), pair_ns)
    taking = {"pool": 2.31, "shared": 3.98, "arena": 1.85, "scope": 3.44}
    saved = {"shared" if "shared" in gain.why else gain.form: gain.saved_s for gain in found}
    assert saved == pytest.approx({form: (19 - ns) * 1e-9 * 1000 for form, ns in taking.items()})
    assert {gain.saved_s for gain in report.gains(report.Analysis({"sizes": [[48, 4000, 0, 0]]}, sites), 1.0)} == {0}


def test_what_the_forms_take_is_what_was_published():
    """Within a fifth: another run need not change the report."""
    rows = json.loads((Path(__file__).resolve().parents[2] / "bench/results/forms.json").read_text())["rows"]
    medians = {(row["workload"], row["form"]): row["median"] for row in rows}
    for ns, row in ((report.POOL_NS, ("replace", "masu pool")), (report.SHARED_POOL_NS, ("replace", "masu shared pool")),
                    (report.ARENA_NS, ("frame", "masu arena")), (report.SCOPE_NS, ("frame", "masu scope"))):  # fmt: skip
        assert ns == pytest.approx(medians[row], rel=0.2)


def test_waste_is_what_the_classes_of_an_allocator_add_to_what_is_live():
    """glibc's with the header of each block, which its answers leave out."""
    sizes = [[48, 9, 432, 2], [100, 9, 900, 10], [110, 9, 990, 3], [3000, 9, 27000, 0], [5000, 9, 45000, 1]]
    found = report.Analysis({"sizes": sizes}, [], {"masu": [48, 112, 112, 3072, 5120], "system": [56, 104, 120, 3000, 5000]})
    assert found.waste_by_class("masu") == [(48, 0), (112, 126), (5120, 120)]
    assert found.waste_by_class("system") == [(64, 32), (112, 120), (128, 54), (5008, 8)]
    assert found.waste("masu") == pytest.approx(246 / 6426)
    assert found.waste("system") == pytest.approx(214 / 6426)


def test_24_bytes_take_32_of_glibc():
    found = report.Analysis({"sizes": [[24, 9, 216, 5]]}, [])
    report.measure_usable(found, [SYSTEM])
    assert found.waste_by_class("system") == [(32, 40)]


def test_the_last_row_of_many_threads_is_that_of_the_others():
    assert report.thread_names(2, 2) == {0: "0", 1: "1"}
    assert report.thread_names(33, 33)[30] == "30" and "others" not in report.thread_names(33, 33).values()
    assert report.thread_names(33, 34)[32] == "others"


def test_a_trace_that_is_none(masu, tmp_path):
    (tmp_path / "it").write_text("nothing")
    result = masu("report", tmp_path / "it")
    assert result.returncode == 125
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "it.html").exists()


def test_a_page_that_cannot_be_written_is_named_before_allocators_are_tried(masu, tmp_path):
    masu("record", "-o", tmp_path / "it.trace", "--", "true", check=True)
    (tmp_path / "it.trace.html").mkdir()
    result = masu("report", "--with", "none=/nowhere/lib.so", tmp_path / "it.trace")
    assert result.returncode == 125
    assert "Is a directory" in result.stderr


def test_on_a_full_disk_the_sentences_are_there(masu, whole):
    is_shown_though(masu("report", "-n", "1", "-o", "/dev/full", whole), "/dev/full", "In the replay: ")
