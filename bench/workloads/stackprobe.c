/* stackprobe [STEPS] [latency]
 *
 * STEPS (10,000,000) steps over 14,000 slots. Each step picks a slot: an empty one
 * gets 1 to 10,000 bytes; a full one is resized to 1 to 10,000 bytes or freed, with
 * probability 1/2 each. From "malloc/free is slow" (stackprobe), whose point is the
 * tail: `latency` times every call and prints that instead. First and last byte of
 * each block carry its slot, checked whenever it is resized or freed. */
#include <stdbool.h>

#include "workload.h"

enum { SLOTS = 14000, LARGEST = 10000 };

static struct slot {
  unsigned char *block;
  size_t size;
} slot[SLOTS];

/* ---- The time of single calls: a histogram with 16 steps per doubling ---- */

enum { MALLOC, REALLOC, FREE, CALLS, STEP_BITS = 4, BINS = 64 << STEP_BITS };

static struct calls {
  uint64_t count, worst;
  uint64_t bin[BINS];
} calls[CALLS];

static size_t bin_of(uint64_t ns) {
  if (ns < 1u << STEP_BITS)
    return ns;
  unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - STEP_BITS;
  return ((shift + 1) << STEP_BITS) + ((ns >> shift) & ((1u << STEP_BITS) - 1));
}

static uint64_t bin_end(size_t bin) {
  if (bin < 1u << STEP_BITS)
    return bin;
  unsigned shift = (unsigned)(bin >> STEP_BITS) - 1;
  return ((bin & ((1u << STEP_BITS) - 1)) + (1u << STEP_BITS) + 1) << shift;
}

static void calls_add(int call, uint64_t ns) {
  struct calls *c = &calls[call];
  c->count++;
  c->bin[bin_of(ns)]++;
  if (ns > c->worst)
    c->worst = ns;
}

static uint64_t calls_quantile(int call, double part) {
  const struct calls *c = &calls[call];
  uint64_t below = 0;
  for (size_t bin = 0; bin < BINS; bin++)
    if ((double)(below += c->bin[bin]) >= part * (double)c->count)
      return bin_end(bin) < c->worst ? bin_end(bin) : c->worst;
  return c->worst;
}

static void calls_print(void) {
  static const char *const NAMES[CALLS] = {"malloc", "realloc", "free"};
  printf("stackprobe: ns per call, median / 99.9 %% / 99.99 %% / worst:");
  for (int call = 0; call < CALLS; call++)
    printf(" %s %llu / %llu / %llu / %llu%s", NAMES[call], (unsigned long long)calls_quantile(call, 0.5),
           (unsigned long long)calls_quantile(call, 0.999), (unsigned long long)calls_quantile(call, 0.9999),
           (unsigned long long)calls[call].worst, call + 1 < CALLS ? "," : "\n");
}

/* ---- The steps ---- */

static void mark(size_t i, size_t size) {
  slot[i].size = size;
  slot[i].block[0] = slot[i].block[size - 1] = (unsigned char)i;
}

static void check(size_t i) {
  if (slot[i].block[0] != (unsigned char)i || slot[i].block[slot[i].size - 1] != (unsigned char)i)
    fail("the block of slot %zu was overwritten", i);
}

static void resize(size_t i, size_t size) {
  check(i);
  slot[i].block = got(realloc(slot[i].block, size));
  if (slot[i].block[0] != (unsigned char)i)
    fail("realloc lost the contents of slot %zu", i);
  mark(i, size);
}

static void drop(size_t i) {
  check(i);
  free(slot[i].block);
  slot[i].block = NULL;
}

static int step(uint32_t *random) {
  size_t i = xorshift32(random) % SLOTS;
  if (!slot[i].block) {
    size_t size = xorshift32(random) % LARGEST + 1;
    slot[i].block = got(malloc(size));
    mark(i, size);
    return MALLOC;
  }
  if (xorshift32(random) & 1) {
    resize(i, xorshift32(random) % LARGEST + 1);
    return REALLOC;
  }
  drop(i);
  return FREE;
}

int main(int argc, char **argv) {
  size_t steps = argument(argc, argv, 1, 10000000, "STEPS");
  bool latency = argc > 2 && !strcmp(argv[2], "latency");
  uint32_t random = 2463534242u;
  uint64_t start = now_ns();
  if (latency)
    for (uint64_t i = 0, before = now_ns(), after; i < steps; i++, before = after) {
      int call = step(&random);
      after = now_ns();
      calls_add(call, after - before);
    }
  else
    for (size_t i = 0; i < steps; i++)
      step(&random);
  uint64_t time = now_ns() - start;
  for (size_t i = 0; i < SLOTS; i++)
    if (slot[i].block)
      drop(i);
  if (latency)
    calls_print();
  else
    printf("stackprobe: %zu steps over %d slots: %.1f ms\n", steps, SLOTS, (double)time * 1e-6);
  return 0;
}
