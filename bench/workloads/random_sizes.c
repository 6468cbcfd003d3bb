/* random_sizes [THREADS] [LARGEST] [OPERATIONS] [BLOCKS]
 *
 * Each of THREADS (4) threads has a table of BLOCKS (5,000) places and makes OPERATIONS
 * (2,000,000): it picks a place at random; an empty one gets a block of 16 to LARGEST
 * (8,000; try 1,000) bytes, a full one is freed. Every 16th block goes through an array
 * of 256 that all threads share, and is freed by whoever finds it there. After the
 * description of rptest. Each block carries its size, checked before it is freed. */
#include <stdatomic.h>

#include "threads.h"

enum { SHARED = 256, HANDED_OVER = 16 };

static _Atomic(void *) shared[SHARED];
static size_t largest, operations, blocks;

static void *run(void *number) {
  uint32_t random = random_seed((size_t)number);
  void **block = got(calloc(blocks, sizeof *block));
  for (size_t i = 0; i < operations; i++) {
    size_t at = xorshift32(&random) % blocks;
    if (!block[at]) {
      block[at] = sealed_new(random_between(&random, SEALED_MIN, largest));
      continue;
    }
    if (xorshift32(&random) % HANDED_OVER == 0)
      block[at] = atomic_exchange(&shared[xorshift32(&random) % SHARED], block[at]);
    sealed_free(block[at]);
    block[at] = NULL;
  }
  for (size_t i = 0; i < blocks; i++)
    sealed_free(block[i]);
  free(block);
  return NULL;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t threads = argument(argc, argv, 1, 4, "THREADS");
  largest = argument(argc, argv, 2, 8000, "LARGEST");
  operations = argument(argc, argv, 3, 2000000, "OPERATIONS");
  blocks = argument(argc, argv, 4, 5000, "BLOCKS");
  if (largest < SEALED_MIN || largest > UINT32_MAX / 2)
    fail("LARGEST is at least %d", SEALED_MIN);
  uint64_t start = now_ns();
  threads_run(threads, run);
  double time = seconds_since(start), all = (double)threads * (double)operations;
  for (size_t i = 0; i < SHARED; i++)
    sealed_free(shared[i]);
  long peak = status_kib("VmHWM");
  printf("random_sizes: %zu threads, %zu operations on %zu blocks up to %zu bytes each: %.3f s, "
         "%.2f million per second, peak %ld KiB\n",
         threads, operations, blocks, largest, time, all * 1e-6 / time, peak);
  figure("wall_s", time);
  figure("operations_per_s", all / time);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
