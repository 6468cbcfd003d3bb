"""What the tests of the live view share: a program that runs and does as it is told."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from conftest import MASU

from masu import live

# Keeps 32 MiB of blocks, does what it is told by lines on stdin, and says so.
PROGRAM = r"""
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { N = 8192, SIZE = 4096 };
static char *block[N];
static void *wait_here(void *unused) { malloc(100); pause(); return unused; }
static pthread_barrier_t all;
static void *allocates(void *unused) {
  for (int i = 0; i < 100; i++) memset(malloc(1000), 1, 1000);
  pthread_barrier_wait(&all);
  pause();
  return unused;
}
static void *churns(void *unused) {
  for (void *kept[64] = {0};;)
    for (int i = 0; i < 64; i++) { free(kept[i]); kept[i] = malloc(100u << i % 12); }
  return unused;
}
static void say(const char *what) { printf("%s\n", what); fflush(stdout); }
int main(void) {
  char line[64];
  for (int i = 0; i < N; i++) memset(block[i] = malloc(SIZE), 1, SIZE);
  say("ready");
  while (fgets(line, sizeof line, stdin)) {
    if (!strcmp(line, "thread\n")) {
      pthread_t thread;
      pthread_create(&thread, NULL, wait_here, NULL);
    } else if (!strcmp(line, "churn\n")) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, churns, NULL)) return 1;
    } else if (!strcmp(line, "500\n")) {
      pthread_t thread;
      pthread_barrier_init(&all, NULL, 501);
      for (int i = 0; i < 500; i++) if (pthread_create(&thread, NULL, allocates, NULL)) return 1;
      pthread_barrier_wait(&all);
    } else if (!strcmp(line, "free\n")) {
      for (int i = 0; i < N; i++) { free(block[i]); block[i] = NULL; }
      char *large = malloc(48 << 20);
      memset(large, 1, 48 << 20);
      free(large);
    } else if (!strcmp(line, "half\n")) {
      for (int i = 0; i < N; i += 2) { free(block[i]); block[i] = NULL; }
    } else if (!strcmp(line, "fork\n")) {
      pid_t child = fork();
      if (!child) { pause(); _exit(0); }
      printf("%d\n", (int)child); fflush(stdout); continue;
    } else if (!strcmp(line, "exec\n")) {
      execlp("sleep", "sleep", "60", (char *)NULL);
    } else if (!strcmp(line, "lonely\n")) {
      say("done");
      pthread_exit(NULL);
    } else if (!strcmp(line, "quick\n")) {
      _exit(0);
    }
    say("done");
  }
  return 0;
}
"""


# A named heap, a pool in it and an arena, all of them with names that are no plain text. With an argument it prints the statistics.
NAMED = r"""
#include <masu/arena.h>
#include <masu/heap.h>
#include <masu/pool.h>
#include <masu/stats.h>
int main(int count, char **arguments) {
  masu_heap *heap = masu_heap_create("[b]x[/b]"), *other = masu_heap_create("caf\xc3\xa9 \"\\\n\x81");
  masu_pool *pool = masu_pool_create_in(heap, "[red]pool", 1024, 0, 0);
  for (int i = 0; i < 100; i++) if (!masu_pool_alloc(pool)) return 1;
  if (!masu_arena_alloc(masu_arena_create_in(NULL, "a[/]rena", 1 << 20), 300 << 10)) return 1;
  if (!masu_heap_malloc(heap, 5000) || !masu_heap_malloc(other, 5000)) return 1;
  if (count > 1) return masu_stats_print(stdout, MASU_STATS_JSON);
  puts("ready");
  fflush(stdout);
  return getchar() == 'x';
}
"""


class Running:
    def __init__(self, process):
        self.process, self.pid = process, process.pid

    def tell(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def program(compile_program):
    return compile_program(PROGRAM, "-pthread", "-fno-builtin")


@pytest.fixture
def named(compile_program, library):
    """Of the program NAMED."""
    return compile_program(NAMED, "-I", Path(__file__).parent.parent.parent / "include", library, f"-Wl,-rpath,{os.path.dirname(library)}")


@pytest.fixture
def start(program):
    """start("--live", command...) gives a running program that has said its first word."""
    running = []

    def start_(*options, command=None):
        line = [MASU, "run", *options, "--", *(command or [program])]
        process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout.readline() == "ready\n"
        return Running(process)

    yield start_
    for process in running:
        process.kill()
        process.wait()
    live.sweep()


def pages_of(pid):
    return list(Path("/dev/shm").glob(f"masu-*-{pid}-*"))


def one_error(result, text):
    assert result.returncode == 125
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("masu: error: ")
    assert text in result.stderr


def eventually(condition):
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return condition()
