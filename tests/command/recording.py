"""What the tests of masu record share: a program that makes calls of known numbers, and what its trace says."""

import struct
from pathlib import Path

from masu import replay
from masu import trace as traces

HEADER, FRAME = 16, 24

CALLS = r"""
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
enum { N = 1000 };
static void *block[N];
static void *give(void *unused) {
  for (int i = 0; i < N; i++) free(block[i]);
  return unused;
}
int main(void) {
  void *volatile p;
  for (int i = 0; i < N; i++) block[i] = malloc(i + 1);
  pthread_t thread;
  if (pthread_create(&thread, NULL, give, NULL)) return 1;
  pthread_join(thread, NULL);
  for (int i = 0; i < N; i++) { p = calloc(3, i + 1); free(p); }
  for (int i = 0; i < N; i++) { p = realloc(NULL, 10); p = realloc(p, 5000); free(p); }
  for (int i = 0; i < N; i++) { p = memalign(256, 100); free(p); }
  _exit(7);
}
"""


def summary(trace, number=None):
    """What a replay says that the trace holds, of one of its processes."""
    found = traces.read(trace)
    return replay.plan(found, found.process(number), trace.parent).summary


def recorded(masu, tmp_path, *command, **options):
    trace = tmp_path / "it.trace"
    result = masu("record", "-o", trace, "--", *command, **options)
    assert not Path(f"{trace}.spool").exists()
    return trace, result


def frames(data):
    """Offsets of a trace's frames."""
    at = HEADER
    while at + FRAME <= len(data):
        yield at
        at += FRAME + struct.unpack_from("<I", data, at + 16)[0]


def one_line(result, *words):
    assert result.returncode == 125
    text = " ".join(result.stderr.split())
    assert result.stderr.count("masu: error") == 1
    assert all(word in text for word in words), text
