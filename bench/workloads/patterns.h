/* Pairs of an allocation and its release, in four patterns of what is live. The
 * including file defines ALLOCATE(size) and RELEASE(block, size) before. Each block
 * carries a tag in its first and last byte, checked before it is released; at the end
 * some are filled whole. */
#ifndef PATTERNS_H
#define PATTERNS_H

#include "workload.h"

enum pattern { LIVE1, LIFO100, FIFO10K, RANDOM10K };
enum { FEW = 100, MANY = 10000, WARM_UP = 100000 };

static const char *const PATTERNS[] = {"live1", "lifo100", "fifo10k", "random10k", NULL};

static void *slot[MANY];

static inline void slot_fill(size_t i, size_t size) {
  slot[i] = got(ALLOCATE(size));
  block_mark(slot[i], size, i);
}

static inline void slot_drop(size_t i, size_t size) {
  block_check(slot[i], size, i);
  RELEASE(slot[i], size);
}

static void run_live1(size_t size, size_t pairs) {
  for (size_t i = 0; i < pairs; i++) {
    slot_fill(0, size);
    slot_drop(0, size);
  }
}

static void run_lifo100(size_t size, size_t pairs) {
  for (size_t round = 0; round < pairs / FEW; round++) {
    for (size_t i = 0; i < FEW; i++)
      slot_fill(i, size);
    for (size_t i = FEW; i--;)
      slot_drop(i, size);
  }
}

static void run_fifo10k(size_t size, size_t pairs) {
  for (size_t i = 0, at = 0; i < pairs; i++, at = at + 1 == MANY ? 0 : at + 1) {
    slot_drop(at, size);
    slot_fill(at, size);
  }
}

static void run_random10k(size_t size, size_t pairs) {
  uint32_t random = random_seed(0);
  for (size_t i = 0; i < pairs; i++) {
    size_t at = ((uint64_t)xorshift32(&random) * MANY) >> 32;
    slot_drop(at, size);
    slot_fill(at, size);
  }
}

static double pattern_seconds(enum pattern pattern, size_t size, size_t pairs) {
  bool many = pattern == FIFO10K || pattern == RANDOM10K;
  for (size_t i = 0; many && i < MANY; i++)
    slot_fill(i, size);
  uint64_t start = now_ns();
  if (pattern == LIVE1)
    run_live1(size, pairs);
  else if (pattern == LIFO100)
    run_lifo100(size, pairs);
  else if (pattern == FIFO10K)
    run_fifo10k(size, pairs);
  else
    run_random10k(size, pairs);
  double time = seconds_since(start);
  for (size_t i = 0; many && i < MANY; i++)
    slot_drop(i, size);
  return time;
}

static void pattern_check(size_t size) {
  for (size_t i = 0; i < FEW; i++) {
    slot[i] = got(ALLOCATE(size));
    whole_fill(slot[i], size, i);
  }
  for (size_t i = 0; i < FEW; i++) {
    whole_check(slot[i], size, i);
    RELEASE(slot[i], size);
  }
}

/* The program: NAME [SIZE] [PATTERN] [PAIRS]. */
static int patterns_main(const char *name, int argc, char **argv) {
  size_t size = argument(argc, argv, 1, 64, "SIZE");
  size_t pattern = choice(argc, argv, 2, PATTERNS);
  size_t pairs = argument(argc, argv, 3, 50000000, "PAIRS");
  if (pattern == LIFO100)
    pairs = (pairs + FEW - 1) / FEW * FEW;
  /* As long whatever PAIRS is: what two runs differ by is pairs, and so are their instructions. */
  pattern_seconds((enum pattern)pattern, size, WARM_UP);
  double time = pattern_seconds((enum pattern)pattern, size, pairs);
  pattern_check(size);
  printf("%s: %zu x %zu bytes, %s: %.3f s, %.2f ns per pair\n", name, pairs, size, PATTERNS[pattern], time,
         time * 1e9 / (double)pairs);
  figure("pair_ns", time * 1e9 / (double)pairs);
  figures_end();
  return 0;
}

#endif
