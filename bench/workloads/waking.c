/* waking [THREADS] [MS] [TIMES]
 *
 * THREADS (4) threads sleep MS (1,500) ms and then allocate and free 400 blocks of 16 to 8,192 bytes,
 * TIMES (15) times: how long that takes, and how long at once again. What an allocator took from them
 * while they slept, they fetch then. Each block carries its size, checked before it is freed. */
#include "threads.h"

enum { BLOCKS = 400, SHIFT_MIN = 4, SHIFTS = 10 };

static size_t sleep_ms, times;
static double *after_sleep, *at_once; /* seconds, of all threads */

static double burst(void) {
  void *block[BLOCKS];
  uint64_t start = now_ns();
  for (size_t i = 0; i < BLOCKS; i++)
    block[i] = sealed_new((size_t)1 << (SHIFT_MIN + i % SHIFTS));
  for (size_t i = 0; i < BLOCKS; i++)
    sealed_free(block[i]);
  return seconds_since(start);
}

static void *run(void *number) {
  size_t at = (size_t)number * times;
  burst();
  for (size_t i = 0; i < times; i++) {
    sleep_until(now_ns() + sleep_ms * 1000000u);
    after_sleep[at + i] = burst();
    at_once[at + i] = burst();
  }
  return NULL;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *value, size_t count) {
  qsort(value, count, sizeof *value, by_size);
  return value[count / 2];
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t threads = argument(argc, argv, 1, 4, "THREADS");
  sleep_ms = argument(argc, argv, 2, 1500, "MS");
  times = argument(argc, argv, 3, 15, "TIMES");
  size_t count = threads * times;
  after_sleep = got(malloc(count * sizeof *after_sleep));
  at_once = got(malloc(count * sizeof *at_once));
  threads_run(threads, run);
  double woken = median(after_sleep, count), awake = median(at_once, count);
  printf("waking: %zu threads, %zu times: %d blocks take %.0f us after %zu ms of sleep, then %.0f us\n", threads, times,
         BLOCKS, woken * 1e6, sleep_ms, awake * 1e6);
  figure("woken_s", woken);
  figure("awake_s", awake);
  figures_end();
  free(after_sleep);
  free(at_once);
  return 0;
}
