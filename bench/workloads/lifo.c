/* lifo [SIZE] [ROUNDS]
 *
 * A round: allocate 100 blocks of SIZE (64) bytes, free them in reverse order.
 * ROUNDS: 1,000,000. Each block carries its number, checked before it is freed; at the
 * end some are filled. */
#include "workload.h"

enum { LIVE = 100 };

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t size = argument(argc, argv, 1, 64, "SIZE");
  size_t rounds = argument(argc, argv, 2, 1000000, "ROUNDS");
  unsigned char *block[LIVE];
  uint64_t start = now_ns();
  for (size_t round = 0; round < rounds; round++) {
    for (size_t i = 0; i < LIVE; i++) {
      block[i] = got(malloc(size));
      *block[i] = (unsigned char)i;
    }
    for (size_t i = LIVE; i--;) {
      if (*block[i] != i)
        fail("block %zu was overwritten", i);
      free(block[i]);
    }
  }
  double time = (double)(now_ns() - start);
  blocks_check(size, size);
  printf("lifo: %zu rounds of %d x %zu bytes: %.3f s, %.2f ns per pair\n", rounds, LIVE, size, time * 1e-9,
         time / ((double)rounds * LIVE));
  figure("pair_ns", time / ((double)rounds * LIVE));
  figures_end();
  return 0;
}
