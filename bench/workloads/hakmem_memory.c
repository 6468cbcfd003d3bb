/* hakmem_memory [BLOCKS] [SIZE]
 *
 * Allocates BLOCKS (1,000,000) blocks of SIZE (16) bytes, keeps their addresses in
 * an array, and prints the resident memory. From HAKMEM phase 8.1. Each block
 * carries its number as far as it fits, and is filled; checked after the figure is taken. */
#include "workload.h"

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t blocks = argument(argc, argv, 1, 1000000, "BLOCKS");
  size_t size = argument(argc, argv, 2, 16, "SIZE");
  size_t mark = size < sizeof(size_t) ? size : sizeof(size_t);

  uint64_t cpu = cpu_ns();
  char **block = got(malloc(blocks * sizeof *block));
  for (size_t i = 0; i < blocks; i++) {
    block[i] = got(malloc(size));
    memcpy(block[i], &i, mark);
    whole_fill(block[i] + mark, size - mark, i);
  }
  long resident = status_kib("VmRSS");
  for (size_t i = 0; i < blocks; i++) {
    if (memcmp(block[i], &i, mark) != 0)
      fail("block %zu was overwritten", i);
    whole_check(block[i] + mark, size - mark, i);
    free(block[i]);
  }
  free(block);
  double cpu_time = (double)(cpu_ns() - cpu);
  double asked = (double)(blocks * size) / 1024;
  printf("hakmem_memory: %zu x malloc(%zu) with their addresses: %ld KiB resident, %.0f %% over what was asked for\n",
         blocks, size, resident, 100 * ((double)resident / asked - 1));
  figure("rss_kib", (double)resident);
  figure("live_kib", asked + (double)(blocks * sizeof *block) / 1024);
  figure("cpu_ns", cpu_time);
  figures_end();
  return 0;
}
