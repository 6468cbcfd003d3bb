/* sleeping_threads [THREADS] [KIB] [SECONDS]
 *
 * THREADS (200) threads allocate about KIB (1,024) KiB each, of 16 to 16,384 bytes, all
 * orders of magnitude alike, free all but 5 blocks, and sleep. After SECONDS (2) more
 * the first thread reads resident memory: what has been kept for threads that do
 * nothing. Each block carries its size, checked before it is freed. */
#include "threads.h"

enum { KEPT = 5, SHIFT_MIN = 4, SHIFT_MAX = 13 };

static size_t kib;
static void *(*kept)[KEPT];
static pthread_barrier_t asleep, awake;

static void *block_of_any_size(uint32_t *random) {
  size_t half = (size_t)1 << random_between(random, SHIFT_MIN, SHIFT_MAX);
  return sealed_new(random_between(random, half, 2 * half));
}

static void work(size_t number) {
  uint32_t random = random_seed(number);
  size_t most = kib * 1024 / SEALED_MIN, count = 0, bytes = 0;
  void **block = got(malloc(most * sizeof *block));
  while (bytes < kib * 1024 && count < most) {
    block[count] = block_of_any_size(&random);
    bytes += sealed_size(block[count++]);
  }
  for (size_t i = 0; i < KEPT; i++) {
    size_t chosen = xorshift32(&random) % count;
    kept[number][i] = block[chosen];
    block[chosen] = NULL;
  }
  for (size_t i = 0; i < count; i++)
    sealed_free(block[i]);
  free(block);
}

static void *run(void *number) {
  work((size_t)number);
  pthread_barrier_wait(&asleep);
  pthread_barrier_wait(&awake);
  return NULL;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t threads = argument(argc, argv, 1, 200, "THREADS");
  kib = argument(argc, argv, 2, 1024, "KIB");
  size_t seconds = argument(argc, argv, 3, 2, "SECONDS");
  kept = got(calloc(threads, sizeof *kept));
  pthread_t *thread = got(malloc(threads * sizeof *thread));
  pthread_barrier_init(&asleep, NULL, (unsigned)threads + 1);
  pthread_barrier_init(&awake, NULL, (unsigned)threads + 1);
  for (size_t i = 0; i < threads; i++)
    thread[i] = thread_new(run, (void *)i);
  pthread_barrier_wait(&asleep);
  long early = status_kib("VmRSS");
  sleep_until(now_ns() + seconds * 1000000000u);
  long resident = status_kib("VmRSS"), peak = status_kib("VmHWM");
  pthread_barrier_wait(&awake);
  for (size_t i = 0; i < threads; i++)
    thread_join(thread[i]);
  free(thread);

  size_t live = threads * (sizeof *kept + sizeof *thread);
  for (size_t i = 0; i < threads * KEPT; i++)
    live += sealed_free(kept[i / KEPT][i % KEPT]);
  free(kept);
  printf("sleeping_threads: %zu threads that had %zu KiB each: %ld KiB resident at once, %ld KiB after %zu s, "
         "for %zu KiB; peak %ld KiB\n",
         threads, kib, early, resident, seconds, live / 1024, peak);
  figure("rss_kib", (double)resident);
  figure("rss_early_kib", (double)early);
  figure("live_kib", (double)live / 1024);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
