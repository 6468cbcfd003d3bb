/* aligned [PAIRS] [LARGEST]
 *
 * PAIRS (3,000,000) times: a random one of 1,000 blocks is freed, and another comes by
 * aligned_alloc: alignment 16 to 4,096, size 1 to LARGEST (4,096) bytes, rounded up to
 * the alignment. Address and tag of each block are checked; at the end all are filled. */
#include "workload.h"

enum { BLOCKS = 1000, SHIFT_MIN = 4, SHIFT_MAX = 12 };

static struct {
  void *block;
  size_t size;
} slot[BLOCKS];

static void slot_fill(size_t i, size_t largest, uint32_t *random) {
  size_t alignment = (size_t)1 << random_between(random, SHIFT_MIN, SHIFT_MAX);
  slot[i].size = (random_between(random, 1, largest) + alignment - 1) & -alignment;
  slot[i].block = got(aligned_alloc(alignment, slot[i].size));
  if ((uintptr_t)slot[i].block % alignment)
    fail("%p is not aligned to %zu", slot[i].block, alignment);
  block_mark(slot[i].block, slot[i].size, i);
}

static void slot_drop(size_t i) {
  block_check(slot[i].block, slot[i].size, i);
  free(slot[i].block);
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t pairs = argument(argc, argv, 1, 3000000, "PAIRS");
  size_t largest = argument(argc, argv, 2, 4096, "LARGEST");
  uint32_t random = random_seed(0);
  for (size_t i = 0; i < BLOCKS; i++)
    slot_fill(i, largest, &random);
  uint64_t start = now_ns();
  for (size_t i = 0; i < pairs; i++) {
    size_t victim = xorshift32(&random) % BLOCKS;
    slot_drop(victim);
    slot_fill(victim, largest, &random);
  }
  double time = seconds_since(start);
  size_t live = 0;
  for (size_t i = 0; i < BLOCKS; i++)
    live += slot[i].size;
  long resident = status_kib("VmRSS");
  for (size_t i = 0; i < BLOCKS; i++)
    whole_fill(slot[i].block, slot[i].size, i);
  for (size_t i = 0; i < BLOCKS; i++) {
    whole_check(slot[i].block, slot[i].size, i);
    slot_drop(i);
  }
  printf("aligned: %zu pairs of 1 to %zu bytes, aligned to 16 to 4096: %.3f s, %.1f ns per pair, %ld KiB resident\n",
         pairs, largest, time, time * 1e9 / (double)pairs, resident);
  figure("pair_ns", time * 1e9 / (double)pairs);
  figure("rss_kib", (double)resident);
  figure("live_kib", (double)live / 1024);
  figures_end();
  return 0;
}
