"""masu profile --view suspects: which call sites leak, in a program that goes on; and named heaps by name."""

import re

import pytest
from conftest import MASU
from profiling import APART, EXACT, folded, inside, one_usage_error

from masu import profile
from masu.pprof import message

# Runs for some rounds. What was made at the start stays, what is in work is replaced all the time, and of what is
# asked for a little is forgotten.
SERVES = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define APART __attribute__((noinline)) void
enum { WORK = 400 };
static void *table[2000], *work[WORK], *volatile lost;
static void *used(void *p) { __asm__ volatile("" : "+r"(p) : : "memory"); return p; }
APART starts(void) { for (int i = 0; i < 2000; i++) table[i] = used(malloc(2048)); }
APART works(int i) { free(work[i % WORK]); work[i % WORK] = used(malloc(4096)); }
APART leaks(int i) { void *p = used(malloc(1024)); if (i % 10 == 0) lost = p; else free(p); }
int main(int count, char **words) {
  starts();
  for (int i = 0; i < atoi(words[1]); i++) {
    works(i);
    leaks(i);
    if (i % 100 == 0) usleep(500);
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def profiles(compile_program, tmp_path_factory):
    """After so many rounds."""
    import subprocess

    program, folder = compile_program(SERVES, *APART), tmp_path_factory.mktemp("suspects")
    for rounds in (4000, 12000):
        run = [MASU, "run", "--profile", "heap", *EXACT, "-o", folder / f"{rounds}.gz", "--", program, str(rounds)]
        subprocess.run(run, capture_output=True, check=True)
    return {rounds: folder / f"{rounds}.gz" for rounds in (4000, 12000)}


def rows(result):
    """Call site -> its cells."""
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.rstrip().endswith("who called it"))
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines[heading + 1 :]]
    return {row[-1].split(" < ")[0]: row[:-1] for row in cells}


def test_what_is_older_than_its_kind_becomes_is_suspected(masu, profiles):
    found = rows(masu("profile", "--view", "suspects", profiles[12000]))
    # All of what was made at the start and never freed, most of what leaks, hardly anything of what is in work.
    assert list(found)[:2] == ["starts", "leaks"]
    assert found["starts"][:3] == ["3.9 MiB", "3.9 MiB", "2,000"] and found["starts"][5] == "never"
    suspected, held = (float(cell.split()[0]) for cell in found["leaks"][:2])
    assert found["leaks"][2] == "1,200" and suspected > 0.9 * held
    assert "works" not in found or float(found["works"][0].split()[0]) < 800  # KiB, of 1,600


def test_with_growth_what_leaks_comes_first(masu, profiles):
    result = masu("profile", "--view", "suspects", profiles[4000], profiles[12000])
    found = rows(result)
    assert list(found)[0] == "leaks" and "starts" not in found
    assert found["leaks"][2] == "+800.0 KiB"
    assert "growth of" not in result.stdout
    assert "leaks" not in rows(masu("profile", "--view", "suspects", profiles[12000], profiles[4000]))


def test_ages_are_on_the_page(masu, profiles, tmp_path):
    assert masu("profile", "--html", "-o", tmp_path / "it", "--view", "suspects", profiles[4000]).returncode == 0
    page = (tmp_path / "it").read_text()
    assert '"inuse_age"' in page and "mean age" in page


def test_words_that_do_not_go_together(masu, profiles):
    one_usage_error(masu("profile", "--view", "suspects", "--by", "thread", profiles[4000]), "call site")
    one_usage_error(masu("profile", "--view", "suspects", "--folded", profiles[4000]), "suspects")


# Each block is a site of its own, and stands for 1.16 blocks.
ALONE = r"""
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void *deeper(int n) { void *volatile p = malloc(1 << 17); return n ? deeper(n - 1) : p; }
int main(void) { void *p = deeper(20); usleep(200000); return p == NULL; }
"""


def test_no_block_is_older_than_its_program(masu, compile_program, tmp_path):
    program = compile_program(ALONE, *APART)
    result = masu("run", "--profile", "heap", "--interval", "64K", "-o", "it", "--", program, cwd=tmp_path)
    assert result.returncode == 0
    made = profile.heap(profile.load(tmp_path / "it")[0])
    ages = [profile.mean(values, "inuse_age", "inuse_objects") / 1e9 for frames, values in made.stacks.items() if "deeper" in frames]
    assert len(ages) > 5
    assert 0.2 <= min(ages) and max(ages) <= made.seconds


def site(**values):
    return {(name,): profile.Counter(v) for name, v in values.items()}


def found(stacks, growth=None):
    types = {"inuse_space"}
    grown = profile.Heap(growth, types, 1, 1) if growth else None
    return {s.frames[0]: s.bytes for s in profile.Heap(stacks, types, 1, 1).suspects(grown)}


def values(bytes_, blocks, age, freed=0, life=0):
    return {"inuse_space": bytes_, "inuse_objects": blocks, "inuse_age": age * blocks, "freed_objects": freed, "lifetime": life * freed}


def test_the_ranking():
    stacks = site(
        young=values(9000, 9, age=10, freed=50, life=10), leak=values(1000, 10, age=100, freed=50, life=10),
        kept=values(500, 5, age=100), gone=values(0, 0, age=0, freed=7, life=3), fresh=values(100, 1, age=0),
    )  # fmt: skip
    assert found(stacks) == {"leak": 900, "kept": 500}
    assert list(found(stacks)) == ["leak", "kept"]
    growth = site(leak={"inuse_space": 100}, kept={"inuse_space": 0}, young={"inuse_space": 8000})
    assert found(stacks, growth) == {"leak": 90}
    assert found(stacks, site(leak={"inuse_space": -5}, kept={"inuse_space": 900})) == {"kept": 500}


def test_a_profile_without_ages(masu, profiles, tmp_path):
    """Of another program, or an older masu."""
    plain, _ = profile.load(profiles[4000])
    types = [plain.string_table[type_.type].decode() for type_ in plain.sample_type]
    for n in reversed([n for n, name in enumerate(types) if name.endswith(("_age", "_samples"))]):
        del plain.sample_type[n]
        for sample in plain.sample:
            del sample.value[n]
    (tmp_path / "old").write_bytes(plain.SerializeToString())
    result = masu("profile", "--view", "suspects", tmp_path / "old")
    assert result.returncode == 125
    assert "has no view suspects, but in-use, allocated, peak, lifetime" in result.stderr
    assert masu("profile", tmp_path / "old").returncode == 0


# ---- Named heaps -----------------------------------------------------------------

NAMED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
static void *(*create)(const char *), *(*take)(void *, size_t);
static void (*destroy)(void *);
static void *sounds, *kept[3000];
__attribute__((noinline)) void loads(void) { for (int i = 0; i < 2000; i++) kept[i] = take(sounds, 1024); take(sounds, 1 << 20); }
__attribute__((noinline)) void general(void) { for (int i = 2000; i < 3000; i++) kept[i] = malloc(1024); }
__attribute__((noinline)) void passes(void) {
  void *level = create("level");
  for (int i = 0; i < 500; i++) take(level, 4096);
  destroy(level);
}
static void *in_thread(void *unused) { loads(); return unused; }
int main(void) {
  pthread_t t;
  *(void **)&create = dlsym(RTLD_DEFAULT, "masu_heap_create");
  *(void **)&take = dlsym(RTLD_DEFAULT, "masu_heap_malloc");
  *(void **)&destroy = dlsym(RTLD_DEFAULT, "masu_heap_destroy");
  sounds = create("sounds; of all kinds");
  pthread_create(&t, NULL, in_thread, NULL);
  pthread_join(t, NULL);
  general();
  passes();
  return 0;
}
"""


@pytest.fixture(scope="module")
def named(compile_program, tmp_path_factory):
    import subprocess

    program, file = compile_program(NAMED, *APART, "-ldl"), tmp_path_factory.mktemp("named") / "it.gz"
    subprocess.run([MASU, "run", "--profile", "heap", *EXACT, "-o", file, "--", program], capture_output=True, check=True)
    return file


def test_blocks_of_named_heaps_are_seen(masu, named):
    stacks = folded(masu, "--view", "in-use", named)
    assert inside(stacks, "loads") == 2000 + 1024
    assert inside(stacks, "general") == 1000
    assert inside(stacks, "passes") == 0, "the heap is destroyed"
    assert inside(folded(masu, "--view", "allocated", named), "passes") == 2000
    assert not [frame for stack in stacks for frame in stack if "limb" in frame or "masu" in frame]


def test_by_heap(masu, named):
    result = masu("profile", "--view", "in-use", "--by", "heap", named)
    assert re.search(r"3\.0 MiB +\d+\.\d % +2,001 +2,001 +heap sounds; of all kinds$", result.stdout, re.MULTILINE)
    assert re.search(r"\d KiB .* general memory *$", result.stdout, re.MULTILINE)
    outermost = {stack[0] for stack in folded(masu, "--view", "in-use", "--by", "heap", named)}
    assert outermost == {"heap sounds: of all kinds", "general memory"}
    assert re.search(r"heap level", masu("profile", "--view", "allocated", "--by", "heap", named).stdout)


def test_the_label_is_one_of_pprofs(named):
    import gzip

    found = message("Profile").FromString(gzip.decompress(named.read_bytes()))
    keys = {found.string_table[label.key] for sample in found.sample for label in sample.label}
    assert keys == {b"thread", b"heap"}
