/* short_threads [THREADS] [AT_ONCE]
 *
 * THREADS (10,000) threads, AT_ONCE (8) at a time: each allocates 100 blocks of 16 to
 * 1,000 bytes, frees all but one, and ends. The remaining ones live to the end, when
 * resident memory is read. Each block carries its size, checked before it is freed. */
#include "threads.h"

enum { BLOCKS = 100, LARGEST = 1000 };

static void **kept;

static void *run(void *number) {
  uint32_t random = random_seed((size_t)number);
  void *block[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++)
    block[i] = sealed_new(random_between(&random, SEALED_MIN, LARGEST));
  size_t keep = xorshift32(&random) % BLOCKS;
  kept[(size_t)number] = block[keep];
  block[keep] = NULL;
  for (size_t i = 0; i < BLOCKS; i++)
    sealed_free(block[i]);
  return NULL;
}

static void threads_play(size_t threads, size_t at_once) {
  pthread_t *thread = got(malloc(at_once * sizeof *thread));
  for (size_t i = 0; i < threads + at_once; i++) {
    if (i >= at_once && i - at_once < threads)
      thread_join(thread[i % at_once]);
    if (i < threads)
      thread[i % at_once] = thread_new(run, (void *)i);
  }
  free(thread);
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t threads = argument(argc, argv, 1, 10000, "THREADS");
  size_t at_once = argument(argc, argv, 2, 8, "AT_ONCE");
  kept = got(calloc(threads, sizeof *kept));
  uint64_t start = now_ns();
  threads_play(threads, at_once);
  double time = seconds_since(start);
  long resident = status_kib("VmRSS"), peak = status_kib("VmHWM");
  size_t live = threads * sizeof *kept;
  for (size_t i = 0; i < threads; i++)
    live += sealed_free(kept[i]);
  free(kept);
  printf("short_threads: %zu threads, %zu at a time: %.3f s, %.1f us each, %ld KiB resident for %zu KiB, "
         "peak %ld KiB\n",
         threads, at_once, time, time * 1e6 / (double)threads, resident, live / 1024, peak);
  figure("wall_s", time);
  figure("rss_kib", (double)resident);
  figure("live_kib", (double)live / 1024);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
