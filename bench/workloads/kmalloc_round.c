/* kmalloc_round [ROUNDS]
 *
 * A round: allocate 10,000 blocks of 1,024 bytes, then free them all, in the same
 * order. 10 rounds to warm up, then ROUNDS (10,000) timed ones. From KMalloc
 * (kclib1, note 4). Each block carries its number, checked before it is freed; at the
 * end some are filled. */
#include "../floors/inline.h"
#include "workload.h"

enum { BLOCKS = 10000, BLOCK_BYTES = 1024, WARM_UP = 10 };

static void *block[BLOCKS];

static void play_round(void) {
  for (size_t i = 0; i < BLOCKS; i++) {
    block[i] = got(floor_malloc(BLOCK_BYTES));
    *(size_t *)block[i] = i;
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    if (*(size_t *)block[i] != i)
      fail("block %zu was overwritten", i);
    floor_free(block[i], BLOCK_BYTES);
  }
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t rounds = argument(argc, argv, 1, 10000, "ROUNDS");
  for (size_t i = 0; i < WARM_UP; i++)
    play_round();
  uint64_t start = now_ns();
  for (size_t i = 0; i < rounds; i++)
    play_round();
  double time = (double)(now_ns() - start);
  blocks_check(BLOCK_BYTES, BLOCK_BYTES);
  printf("kmalloc_round: %zu rounds of %d x %d bytes: %.3f s, %.1f ns per pair\n", rounds, BLOCKS, BLOCK_BYTES,
         time * 1e-9, time / ((double)rounds * BLOCKS));
  figure("pair_ns", time / ((double)rounds * BLOCKS));
  figures_end();
  return 0;
}
