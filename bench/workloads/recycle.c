/* recycle [SIZE] [BLOCKS] [CYCLES]
 *
 * CYCLES (100) times: allocate BLOCKS (100,000) blocks of SIZE (64) bytes, free them
 * all, allocate them again, free them. After HAKMEM's re-allocation cycles. Each block
 * carries its number's low byte at both ends, checked before it is freed; at the end
 * some are filled. */
#include "../floors/inline.h"
#include "workload.h"

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t size = argument(argc, argv, 1, 64, "SIZE");
  size_t blocks = argument(argc, argv, 2, 100000, "BLOCKS");
  size_t cycles = argument(argc, argv, 3, 100, "CYCLES");
  void **block = got(malloc(blocks * sizeof *block));
  uint64_t start = now_ns();
  for (size_t turn = 0; turn < 2 * cycles; turn++) {
    for (size_t i = 0; i < blocks; i++) {
      block[i] = got(floor_malloc(size));
      block_mark(block[i], size, i + turn);
    }
    for (size_t i = 0; i < blocks; i++) {
      block_check(block[i], size, i + turn);
      floor_free(block[i], size);
    }
  }
  double time = seconds_since(start), operations = 4.0 * (double)cycles * (double)blocks;
  free(block);
  long peak = status_kib("VmHWM");
  blocks_check(size, size);
  printf("recycle: %zu cycles of 2 x %zu x %zu bytes: %.3f s, %.2f ns per operation\n", cycles, blocks, size, time,
         time * 1e9 / operations);
  figure("operation_ns", time * 1e9 / operations);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
