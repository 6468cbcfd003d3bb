"""What the tests of heap profiles share: a program with things to be found, and what the command makes of it."""

import contextlib
import os
import subprocess

import pytest

# With `grows N` MiB that stay; `peaks` and `churns` leave nothing.
PLANTED = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline)) void
static void *kept[64][1024];
static void *used(void *p) { __asm__ volatile("" : "+r"(p) : : "memory"); return p; }
APART leaks(int mib) { for (int i = 0; i < mib; i++) for (int j = 0; j < 1024; j++) kept[i][j] = used(malloc(1024)); }
APART peaks(void) {
  void *all[32];
  for (int i = 0; i < 32; i++) all[i] = used(calloc(1, 1 << 20));
  for (int i = 0; i < 32; i++) free(all[i]);
}
APART churns(void) { for (int i = 0; i < 50000; i++) free(used(malloc(2048))); }
APART works(void) { for (int i = 0; i < 100; i++) kept[63][i] = used(malloc(4096)); }
static void *thread(void *nothing) { pthread_setname_np(pthread_self(), "worker"); works(); return nothing; }
int main(int count, char **arguments) {
  pthread_t t;
  peaks();
  churns();
  leaks(count > 1 ? atoi(arguments[1]) : 4);
  if (pthread_create(&t, NULL, thread, NULL)) return 1;
  pthread_join(t, NULL);
  return 3;
}
"""
# Uses the processor, but for when it has an argument, and loses blocks.
HOT_AND_LOST = r"""
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define APART __attribute__((noinline)) void
static volatile unsigned sum;
static void *volatile lost;
APART burns(void) { for (int i = 0; i < 30000; i++) sum = sum * 69069 + 1; }
APART warms(void) { for (int i = 0; i < 10000; i++) sum = sum * 69069 + 3; }
APART loses(void) { for (int i = 0; i < 100; i++) lost = malloc(10240); lost = NULL; }
APART drops(void) { for (int i = 0; i < 10; i++) lost = malloc(10240); lost = NULL; }
static APART scrub(void) { char bytes[1 << 14]; memset(bytes, 0, sizeof bytes); __asm__ volatile("" : : "r"(bytes) : "memory"); }
int main(int count, char **arguments) {
  loses();
  drops();
  scrub();
  while (count == 1 && clock() < CLOCKS_PER_SEC) { burns(); warms(); }
  return 0;
}
"""
# Allocates so often from code that it makes itself; with a second argument it loses that.
JIT = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static void *kept[1 << 16];
typedef void *allocates(void *(*)(size_t), size_t);
__attribute__((noinline, optimize("no-omit-frame-pointer"))) void runs_code(allocates *code, int times) {
  for (int i = 0; i < times; i++) kept[i] = code(malloc, 1024);
  __asm__ volatile("");
}
int main(int count, char **arguments) {
  /* push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret */
  static const unsigned char bytes[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, bytes, sizeof bytes);
  runs_code((allocates *)page, atoi(arguments[1]));
  if (count > 2) memset(kept, 0, sizeof kept);
  char scrubbed[1 << 14];
  memset(scrubbed, 0, sizeof scrubbed);
  __asm__ volatile("" : : "r"(scrubbed) : "memory");
  return 0;
}
"""
OF_EACH_KIND = {"heap": ("leaks", "works"), "cpu": ("burns", "warms"), "leaks": ("loses", "drops")}
"""The function that has most in the profile of that kind, and one that has less."""
APART = ("-fno-builtin", "-fno-ipa-icf", "-fno-optimize-sibling-calls", "-pthread", "-Wl,--build-id")
EXACT = ("--interval", "2")
"""So small that practically every block is a sample: estimates are truths."""


def profiled(masu, tmp_path, *words, **options):
    """Runs it in tmp_path, with its profile in `it`."""
    return masu("run", "--profile", "heap", *EXACT, "-o", "it", "--", *words, cwd=tmp_path, **options)


def folded(masu, *words):
    """Stack -> KiB."""
    lines = masu("profile", "--folded", *words, check=True).stdout.splitlines()
    return {tuple(line.rsplit(" ", 1)[0].split(";")): int(line.rsplit(" ", 1)[1]) for line in lines}


def inside(stacks, function):
    """KiB of the stacks that have this function."""
    return sum(kib for frames, kib in stacks.items() if function in frames)


def first_row(result):
    lines = result.stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.rstrip().endswith(("function", "thread")))
    return lines[heading + 1].strip()


def one_error(result, *texts, status=125):
    assert result.returncode == status
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("masu: error: ")
    assert all(text in result.stderr for text in texts), result.stderr


def one_usage_error(result, text):
    assert result.returncode == 2
    assert text in result.stderr.splitlines()[-1]


def raw_profile(masu, program, folder, *words):
    """As the library writes it."""
    masu("run", "--options", "profile:2", "--", program, *words, env={"MASU_PROFILE": str(folder)})
    (path,) = folder.glob("*.heap.pb")
    return path


def profiled_at(masu, output, *words, **options):
    return masu("run", "--profile", "heap", *EXACT, "-o", output, "--", *words, **options)


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def full_disk(folder):
    """With an old file `it` of one page, and no room for another."""
    with small_disk(folder, "8k") as disk:
        (disk / "it").write_text("old")
        (disk / "filler").write_bytes(bytes(4096))
        yield disk
        assert (disk / "it").read_text() == "old"
        assert sorted(os.listdir(disk)) == ["filler", "it"]
