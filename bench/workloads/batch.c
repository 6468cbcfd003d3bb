/* batch [LOW] [HIGH] [LIVE] [ROUNDS] [THREADS]
 *
 * A round: allocate LIVE (50) blocks of LOW to HIGH (40,000 to 100,000) bytes, then
 * free them in the same order. Each of THREADS (1) threads makes ROUNDS (20,000). A
 * block carries its number, checked before it is freed. THREADS 1 is the program's
 * first thread alone. */
#include <pthread.h>

#include "workload.h"

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
  low = argument(argc, argv, 1, 40000, "LOW");
  high = argument(argc, argv, 2, 100000, "HIGH");
  live = argument(argc, argv, 3, 50, "LIVE");
  rounds = argument(argc, argv, 4, 20000, "ROUNDS");
  size_t threads = argument(argc, argv, 5, 1, "THREADS");
  if (low < sizeof(size_t) || high < low || high - low > UINT32_MAX - 1)
    fail("LOW is at least %zu, HIGH at least LOW", sizeof(size_t));
  pthread_t *thread = got(malloc(threads * sizeof *thread));
  uint64_t start = now_ns();
  if (threads == 1)
    run(NULL);
  for (size_t i = 0; threads > 1 && i < threads; i++)
    if (pthread_create(&thread[i], NULL, run, (void *)i))
      fail("a thread cannot be made");
  for (size_t i = 0; threads > 1 && i < threads; i++)
    pthread_join(thread[i], NULL);
  double time = (double)(now_ns() - start);
  printf("batch: %zu rounds of %zu x %zu to %zu bytes, %zu threads: %.3f s, %.2f ns per pair\n", rounds, live, low,
         high, threads, time * 1e-9, time / ((double)rounds * (double)live * (double)threads));
  free(thread);
  return 0;
}
