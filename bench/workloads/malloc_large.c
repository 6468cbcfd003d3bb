/* malloc_large [ROUNDS]
 *
 * 20 blocks of 5 to 25 MiB; ROUNDS (1,000) times a random one is freed and another
 * allocated in its place, and one word is written in each of its pages. Each page
 * carries its number and the round, checked before the block is freed; at the end two
 * of the smallest are filled. */
#include "workload.h"

enum { BLOCKS = 20, PAGE = 4096 };

static const size_t SMALLEST = 5u << 20, LARGEST = 25u << 20;

static struct {
  char *block;
  size_t size, round;
} large[BLOCKS];

static void large_fill(size_t i, size_t size, size_t round) {
  large[i].block = got(malloc(size));
  large[i].size = size;
  large[i].round = round;
  for (size_t at = 0; at < size; at += PAGE) {
    size_t word = at + round;
    memcpy(large[i].block + at, &word, sizeof word);
  }
}

static void large_drop(size_t i) {
  for (size_t at = 0; at < large[i].size; at += PAGE) {
    size_t word = at + large[i].round;
    if (memcmp(large[i].block + at, &word, sizeof word) != 0)
      fail("byte %zu of a block of %zu was overwritten", at, large[i].size);
  }
  free(large[i].block);
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t rounds = argument(argc, argv, 1, 1000, "ROUNDS");
  uint32_t random = random_seed(0);
  uint64_t start = now_ns();
  for (size_t i = 0; i < BLOCKS; i++)
    large_fill(i, random_between(&random, SMALLEST, LARGEST) / 8 * 8, i);
  for (size_t round = 0; round < rounds; round++) {
    size_t victim = xorshift32(&random) % BLOCKS;
    large_drop(victim);
    large_fill(victim, random_between(&random, SMALLEST, LARGEST) / 8 * 8, BLOCKS + round);
  }
  double time = seconds_since(start);
  size_t live = 0;
  for (size_t i = 0; i < BLOCKS; i++)
    live += large[i].size;
  long resident = status_kib("VmRSS"), peak = status_kib("VmHWM");
  for (size_t i = 0; i < BLOCKS; i++)
    large_drop(i);
  blocks_check(SMALLEST, SMALLEST);
  printf("malloc_large: %d blocks of 5 to 25 MiB, %zu replaced: %.3f s, %.1f us each, %ld KiB resident for %zu KiB, "
         "peak %ld KiB\n",
         BLOCKS, rounds, time, time * 1e6 / (double)rounds, resident, live / 1024, peak);
  figure("wall_s", time);
  figure("rss_kib", (double)resident);
  figure("live_kib", (double)live / 1024);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
