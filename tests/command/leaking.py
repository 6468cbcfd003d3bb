"""What the tests of the leak checker share: a program of known leaks, and what is said of it."""

import re
import subprocess
from collections import Counter

import pytest
from masu.pprof import read

# Each case has sizes of its own, so that what is found tells which case it is.
PLANTED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline)) void

static void *volatile global;
static __thread void *volatile variable;
static uintptr_t volatile mask = 0x5a5a5a5a5a5a5a5a, hidden;

static APART scrub(void) {
  char bytes[1 << 16];
  memset(bytes, 0, sizeof bytes);
  __asm__ volatile("" : : "r"(bytes) : "memory");
}
static APART lose(void *p) { global = p; global = NULL; }
static void *block(size_t size) { return memset(malloc(size), 0, size); }

/* ---- Lost ---- */

APART simple(void) { lose(block(101)); }
APART thrice(void) { for (int i = 0; i < 3; i++) lose(block(203)); }
APART sizes(void) {
  static const size_t of[] = {1, 9, 305, 4007, 33001, 70003, 200005, 300007, 3000001, 20000003};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) lose(block(of[i]));
}
APART zeroed(void) { lose(calloc(7, 59)); }
APART resized(void) { lose(realloc(block(11), 507)); lose(realloc(block(600), 611)); lose(realloc(block(800), 713)); }
APART aligned(void) {
  void *p;
  lose(aligned_alloc(64, 64 * 13));
  if (!posix_memalign(&p, 4096, 5009)) lose(p);
  p = NULL;
}
APART chain(void) {
  void *head = NULL;
  for (int i = 0; i < 5; i++) { void **link = block(907); link[3] = head; head = link; }
  lose(head);
}
APART ring(void) {
  void **first = block(1013), **last = first;
  for (int i = 0; i < 3; i++) { void **next = block(1013); last[0] = next; last = next; }
  last[0] = first;
}
APART disguised(void) { hidden = (uintptr_t)block(1103) ^ mask; }
APART behind(void) { global = (char *)block(1201) + 1201; }
static void *in_thread(void *nothing) { variable = block(1301); return nothing; }
APART in_ended_thread(void) { pthread_t t; if (!pthread_create(&t, NULL, in_thread, NULL)) pthread_join(t, NULL); }
APART part_of_a_list(void) {
  void **first = block(1409), **second = block(1409), **third = block(1409);
  first[0] = second; second[0] = third; third[0] = NULL;
  global = first;
  first[0] = NULL;
}

/* ---- Kept ---- */

APART kept_by_global(void) { global = block(2003); }
APART kept_by_chain(void) {
  void *head = NULL;
  for (int i = 0; i < 100; i++) { void **link = block(2111); link[2] = head; head = link; }
  global = head;
}
APART kept_inside(void) { global = (char *)block(2203) + 2202; }
APART kept_by_large(void) { void **p = block(5000011); p[600000] = block(2309); global = (char *)p + 4900000; }
APART kept_by_thread_local(void) { variable = block(2411); }
APART kept_by_specific(void) {
  pthread_key_t key;
  for (int i = 0; i < 40; i++) {
    pthread_key_create(&key, NULL);
    if (i == 3 || i == 39) pthread_setspecific(key, block(2503));
  }
}
static const char *library;
APART kept_by_dynamic_thread_local(void) {
  void **(*variables)(void);
  *(void **)&variables = dlsym(dlopen(library, RTLD_NOW), "dynamic_tls");
  variables()[63] = block(2609);
}

/* Waits for ever, with a block in some place. */
static volatile int waiting;
static int never[2];
static APART wait_for_ever(void) { char c; waiting = 1; while (read(never[0], &c, 1) < 0); }
static void *on_stack(void *nothing) { void *volatile here = block(2707); wait_for_ever(); free(here); return nothing; }
static void *in_variable(void *nothing) { variable = block(2801); scrub(); wait_for_ever(); return nothing; }
static void *in_specific(void *nothing) {
  pthread_key_t key;
  pthread_key_create(&key, free);
  pthread_setspecific(key, block(2903));
  scrub();
  wait_for_ever();
  return nothing;
}
static void *in_dynamic(void *nothing) {
  void **(*variables)(void);
  *(void **)&variables = dlsym(dlopen(library, RTLD_NOW), "dynamic_tls");
  variables()[5] = block(3001);
  scrub();
  wait_for_ever();
  return nothing;
}
static void *in_register(void *nothing) {
  hidden = (uintptr_t)block(3109) ^ mask;
  scrub();
  __asm__ volatile("mov %1, %%r12\n xor %2, %%r12\n movl $1, %0\n 1: pause\n cmpl $1, %0\n je 1b\n"
                   : "+m"(waiting) : "m"(hidden), "m"(mask) : "r12", "memory", "cc");
  return nothing;
}
static APART by_thread(void *(*body)(void *)) {
  pthread_t t;
  waiting = 0;
  if (pthread_create(&t, NULL, body, NULL)) abort();
  while (!waiting) usleep(1000);
}
APART kept_on_stack_of_thread(void) { by_thread(on_stack); }
APART kept_by_variable_of_thread(void) { by_thread(in_variable); }
APART kept_by_specific_of_thread(void) { by_thread(in_specific); }
APART kept_by_dynamic_of_thread(void) { by_thread(in_dynamic); }
APART kept_by_register_of_thread(void) { by_thread(in_register); }

#define CASE(name) {#name, name}
static const struct { const char *name; void (*plant)(void); } cases[] = {
  CASE(simple), CASE(thrice), CASE(sizes), CASE(zeroed), CASE(resized), CASE(aligned), CASE(chain), CASE(ring), CASE(disguised),
  CASE(behind), CASE(in_ended_thread), CASE(part_of_a_list), CASE(kept_by_global), CASE(kept_by_chain), CASE(kept_inside),
  CASE(kept_by_large), CASE(kept_by_thread_local), CASE(kept_by_specific), CASE(kept_by_dynamic_thread_local),
  CASE(kept_on_stack_of_thread), CASE(kept_by_variable_of_thread), CASE(kept_by_specific_of_thread),
  CASE(kept_by_dynamic_of_thread), CASE(kept_by_register_of_thread),
};

int main(int count, char **arguments) {
  void *volatile here = block(3203);
  if (pipe(never)) return 9;
  library = arguments[1];
  for (int k = 2; k < count; k++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      if (!strcmp(cases[i].name, arguments[k])) { cases[i].plant(); scrub(); }
  if (getenv("ENDS_BY__EXIT")) { scrub(); _exit(atoi(getenv("ENDS_BY__EXIT"))); }
  exit(here == NULL);
}
"""
LOST = ("simple", "thrice", "sizes", "zeroed", "resized", "aligned", "chain", "ring", "disguised", "behind", "in_ended_thread", "part_of_a_list")
KEPT = (
    "kept_by_global", "kept_by_chain", "kept_inside", "kept_by_large", "kept_by_thread_local", "kept_by_specific",
    "kept_by_dynamic_thread_local", "kept_on_stack_of_thread", "kept_by_variable_of_thread", "kept_by_specific_of_thread",
    "kept_by_dynamic_of_thread", "kept_by_register_of_thread",
)  # fmt: skip
DYNAMIC = r"""
static __thread void *variables[64];
void **dynamic_tls(void) { return variables; }
"""
FLAGS = ("-g", "-fno-builtin", "-fno-ipa-icf", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer", "-pthread", "-Wl,--build-id")
LEAK = re.compile(r"^(Direct|Indirect) leak of ([\d,]+) byte(?:s|\(s\)) in ([\d,]+) (?:blocks?|object\(s\))")


@pytest.fixture(scope="session")
def library(compile_program):
    return compile_program(DYNAMIC, "-fPIC", "-shared", "-ftls-model=global-dynamic")


@pytest.fixture(scope="session")
def planted(compile_program):
    return compile_program(PLANTED, *FLAGS)


@pytest.fixture(scope="session")
def sanitized(compile_program, library):
    """The same program with LeakSanitizer in it."""
    try:
        program = compile_program(PLANTED, *FLAGS, "-fsanitize=leak")
    except subprocess.CalledProcessError:
        pytest.skip("this compiler has no LeakSanitizer")
    run = subprocess.run([program, library, "simple"], capture_output=True, text=True, timeout=60, check=False)
    if run.returncode != 23 or "Direct leak of 101 byte" not in run.stderr:
        pytest.skip(f"LeakSanitizer does not work here: {run.stderr[-200:]}")
    return program


def listed(text):
    """(direct, bytes, blocks) of each entry."""
    found = [LEAK.match(line) for line in text.splitlines()]
    return Counter((m[1] == "Direct", *(int(m[n].replace(",", "")) for n in (2, 3))) for m in found if m)


def filed(path):
    """The same of a file, in which calls from different places of one function are apart, as LeakSanitizer has them."""
    profile = read(path)
    types = [profile.string_table[t.type].decode() for t in profile.sample_type]
    sums = Counter()
    for sample in profile.sample:
        values = dict(zip(types, sample.value))
        for direct, kind in ((True, "direct"), (False, "indirect")):
            sums[direct, tuple(sample.location_id), "bytes"] += values[f"{kind}_space"]
            sums[direct, tuple(sample.location_id), "blocks"] += values[f"{kind}_objects"]
    return Counter((direct, n, sums[direct, stack, "blocks"]) for (direct, stack, what), n in sums.items() if what == "bytes" and n)


def totals(entries):
    return tuple(sum(entry[n] * count for entry, count in entries.items()) for n in (1, 2))


def run_for_leaks(masu, *words, options=(), **how):
    return masu("run", "--leaks", *options, "--", *words, **how)
