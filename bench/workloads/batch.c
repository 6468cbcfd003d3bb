/* batch [LOW] [HIGH] [LIVE] [ROUNDS] [THREADS]
 *
 * A round: allocate LIVE (50) blocks of LOW to HIGH (40,000 to 100,000) bytes, then
 * free them in the same order. Each of THREADS (1) threads makes ROUNDS (20,000). A
 * block carries its number, checked before it is freed; at the end some are filled.
 * THREADS 1 is the program's first thread alone. */
#include "threads.h"

static size_t low, high, live, rounds;

static void *run(void *number) {
  uint32_t state = (uint32_t)(uintptr_t)number * 2654435761u + 1;
  size_t **block = got(malloc(live * sizeof *block));
  for (size_t round = 0; round < rounds; round++) {
    for (size_t i = 0; i < live; i++) {
      block[i] = got(malloc(low + xorshift32(&state) % (high - low + 1)));
      *block[i] = i;
    }
    for (size_t i = 0; i < live; i++) {
      if (*block[i] != i)
        fail("block %zu was overwritten", i);
      free(block[i]);
    }
  }
  free(block);
  return NULL;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  low = argument(argc, argv, 1, 40000, "LOW");
  high = argument(argc, argv, 2, 100000, "HIGH");
  live = argument(argc, argv, 3, 50, "LIVE");
  rounds = argument(argc, argv, 4, 20000, "ROUNDS");
  size_t threads = argument(argc, argv, 5, 1, "THREADS");
  if (low < sizeof(size_t) || high < low || high - low > UINT32_MAX - 1)
    fail("LOW is at least %zu, HIGH at least LOW", sizeof(size_t));
  uint64_t cpu = cpu_ns(), start = now_ns();
  if (threads == 1)
    run(NULL);
  else
    threads_run(threads, run);
  double time = (double)(now_ns() - start), cpu_time = (double)(cpu_ns() - cpu), pairs = (double)rounds * (double)live * (double)threads;
  long peak = status_kib("VmHWM");
  blocks_check(low, high);
  printf("batch: %zu rounds of %zu x %zu to %zu bytes, %zu threads: %.3f s, %.2f ns per pair\n", rounds, live, low,
         high, threads, time * 1e-9, time / pairs);
  figure("wall_s", time * 1e-9);
  figure("pair_ns", time / pairs);
  figure("cpu_ns", cpu_time);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
