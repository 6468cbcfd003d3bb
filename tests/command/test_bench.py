"""masu bench: short runs with the real workloads."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy")

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def bench(masu, tmp_path):
    def run(*arguments):
        files = ("--json", tmp_path / "r.json", "--html", tmp_path / "r.html", "--state", tmp_path / "state.json")
        result = masu("bench", *map(str, files), *map(str, arguments))
        content = json.loads((tmp_path / "r.json").read_text()) if (tmp_path / "r.json").exists() else None
        return result, content

    return run


def compiled(folder, name, text):
    library = folder / f"{name}.so"
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run([shutil.which("cc"), "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


# Blocks overlap: each is 16 bytes behind the one before, whatever its size.
OVERLAPPING = """
#include <stddef.h>
static _Alignas(16) char memory[1 << 28];
static size_t used;
void *malloc(size_t n) { (void)n; return memory + (used += 16); }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) { (void)p; return malloc(n); }
"""

# Answers everything, and hands out a block that is in use, once in 1,000 times. It
# frees nothing, so that only the workload can notice.
TWICE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <string.h>
void *__libc_malloc(size_t), *__libc_memalign(size_t, size_t);
static _Atomic unsigned count;
static _Atomic(void *) last;
void *malloc(size_t n) {
  unsigned turn = ++count;
  if (turn > 5000 && turn % 1000 == 0 && n == 1024)
    return last;
  void *p = __libc_malloc(n);
  if (n == 1024)
    last = p;
  return p;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) {
  void *p;
  return !__builtin_mul_overflow_p(a, b, (size_t)0) && (p = __libc_malloc(a * b)) ? memset(p, 0, a * b) : NULL;
}
size_t malloc_usable_size(void *p) { return p ? (((size_t *)p)[-1] & ~7ul) - 8 : 0; }
void *realloc(void *p, size_t n) {
  void *q = __libc_malloc(n);
  size_t old = malloc_usable_size(p);
  return q && p ? memcpy(q, p, old < n ? old : n) : q;
}
void *memalign(size_t a, size_t n) { return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return __libc_memalign(a, n); }
int posix_memalign(void **out, size_t a, size_t n) {
  void *p = __libc_memalign(a, n);
  return p ? (*out = p, 0) : ENOMEM;
}
"""


def test_cases_are_listed(masu):
    result = masu("bench", "--list")
    assert result.returncode == 0
    assert "kmalloc-round" in result.stdout


def test_an_unknown_case_gets_the_nearest_name(bench):
    result, content = bench("--only", "stackprob")
    assert result.returncode == 125 and "stackprobe" in result.stderr and content is None


def test_one_case(bench, tmp_path):
    result, content = bench("--only", "handover", "--quick", "--seconds", "1")
    assert result.returncode == 0, result.stderr
    rows = [r for r in content["rows"] if r["figure"] == "block_ns"]
    medians = {r["allocator"]: r for r in rows if "allocator" in r}
    assert set(medians) == {"masu", "masu-again", "system"}
    assert all(r["low"] <= r["median"] <= r["high"] and r["rounds"] >= 5 for r in medians.values())
    assert any(r.get("ratio_to") == "best" and r["of"] == "system" for r in rows)
    page = (tmp_path / "r.html").read_text()
    assert "handover" in page and "<svg" in page
    assert not (tmp_path / "state.json").exists()


def test_a_bundled_trace(bench, tmp_path):
    result, content = bench("--only", "trace-recoll", "--quick", "--seconds", "1")
    assert result.returncode == 0, result.stderr
    medians = {(r["allocator"], r["figure"]): r["median"] for r in content["rows"] if "median" in r and "allocator" in r}
    for name in ("masu", "masu-again", "system"):
        found = {figure: medians[name, figure] for figure in ("calls_s", "wall_s", "p9999_ns", "peak_rss_kib", "mean_rss_kib", "end_rss_kib")}
        assert all(value > 0 for value in found.values())
        assert found["calls_s"] < 7 * found["wall_s"]  # of seven threads
        assert found["peak_rss_kib"] > 2.8 * 1024  # 5.6 MiB were live when it was recorded
        assert found["peak_rss_kib"] >= found["mean_rss_kib"]
    assert "trace-recoll" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(("text", "reason"), [(OVERLAPPING, ""), (TWICE, "FAILED: ")])
def test_wrong_memory_is_missing_and_the_rest_goes_on(bench, tmp_path, text, reason):
    wrong = compiled(tmp_path, "wrong", text)
    result, content = bench("--only", "kmalloc-round", "--quick", "--seconds", "1", "--with", f"wrong={wrong}")
    assert result.returncode == 0, result.stderr
    found = {r["allocator"]: r for r in content["rows"] if "allocator" in r}
    assert reason in found["wrong"]["missing"] and "median" in found["masu"]
    assert "missing" in result.stdout


def test_what_is_counted(bench, tmp_path):
    result, content = bench("--only", "pairs-live1", "--seconds", "1")
    assert result.returncode == 0, result.stderr
    found = {(r["allocator"], r["figure"]): r for r in content["rows"] if "allocator" in r and "median" in r}
    for name in ("masu", "system"):
        assert found[name, "instructions"]["median"] > 10
        assert found[name, "system_calls"]["median"] == sum(content["system calls"]["pairs-live1"][name].values()) > 20
        assert found[name, "sampled_rss_kib"]["median"] >= found[name, "sampled_pss_kib"]["median"] > 100
    assert found
    assert content["not counted"] == {}


def test_what_got_worse_is_named(bench, tmp_path):
    bench("--only", "handover", "--quick", "--seconds", "1")
    saved = json.loads((tmp_path / "r.json").read_text())
    for row in saved["rows"]:
        if "ratio_to" in row:
            row.update(median=row["median"] / 100, low=row["low"] / 100, high=row["high"] / 100)
    (tmp_path / "saved.json").write_text(json.dumps(saved))
    result, _ = bench("--only", "handover", "--quick", "--seconds", "1", "--baseline", tmp_path / "saved.json")
    assert "got worse handover, block_ns" in result.stdout


def test_it_goes_on_where_it_stopped(bench, tmp_path):
    measured = {"handover": {"case": "handover", "values": {"masu": {"block_ns": [1.0] * 5, "peak_rss_kib": [1.0] * 5}}}}
    (tmp_path / "state.json").write_text(json.dumps(measured))
    result, content = bench("--only", "handover", "--quick")
    assert "going on" in result.stdout
    assert [r["median"] for r in content["rows"] if r["figure"] == "block_ns"] == [1.0]


def test_a_state_that_is_none(bench, tmp_path):
    (tmp_path / "state.json").write_text("{]")
    result, _ = bench("--only", "handover", "--quick")
    assert result.returncode == 125 and "state.json" in result.stderr


def test_what_others_published_is_compared_with_the_committed_run():
    """The table of docs/benchmark.md is the one that bench/published.py makes."""
    subprocess.run([sys.executable, ROOT / "bench/published.py", "--check"], check=True)


def test_a_baseline_that_is_not_there(bench, tmp_path):
    result, _ = bench("--only", "handover", "--quick", "--baseline", tmp_path / "none.json")
    assert result.returncode == 125 and "none.json: No such file" in " ".join(result.stderr.split())


def test_a_peers_folder_without_peers(bench, tmp_path):
    result, _ = bench("--only", "handover", "--peers", tmp_path)
    assert result.returncode == 125 and "script/peers" in result.stderr
