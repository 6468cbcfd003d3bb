"""What the tests of heap profiles share: a program with things to be found, and what the command makes of it."""

import contextlib
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
