/* free_only [BLOCKS] [LARGEST] [BEHIND]
 *
 * One thread only allocates, another only frees: BLOCKS (5,000,000) blocks of 16 to
 * LARGEST (256) bytes go through a ring, the reader at most BEHIND (20,000) places
 * behind. Resident memory is read at the end, when all blocks are free and both
 * threads still live. Each block carries its size, checked before it is freed. */
#include <sched.h>
#include <stdatomic.h>

#include "threads.h"

enum { LINE = 64, SPINS = 100 };

static struct {
  _Alignas(LINE) atomic_size_t put;   /* written by the allocating thread */
  _Alignas(LINE) atomic_size_t taken; /* written by the freeing thread */
  void **place;
} ring;

static size_t blocks, largest, behind;
static pthread_barrier_t measured;

static void wait_while(atomic_size_t *word, size_t value) {
  for (size_t spins = 0; atomic_load_explicit(word, memory_order_acquire) == value; spins++)
    if (spins > SPINS)
      sched_yield();
}

static void *produce(void *unused) {
  uint32_t random = random_seed(0);
  for (size_t i = 0; i < blocks; i++) {
    void *block = sealed_new(random_between(&random, SEALED_MIN, largest));
    if (i >= behind)
      wait_while(&ring.taken, i - behind);
    ring.place[i % behind] = block;
    atomic_store_explicit(&ring.put, i + 1, memory_order_release);
  }
  pthread_barrier_wait(&measured);
  return unused;
}

static void consume(void) {
  for (size_t i = 0; i < blocks; i++) {
    wait_while(&ring.put, i);
    void *block = ring.place[i % behind];
    atomic_store_explicit(&ring.taken, i + 1, memory_order_release);
    sealed_free(block);
  }
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  blocks = argument(argc, argv, 1, 5000000, "BLOCKS");
  largest = argument(argc, argv, 2, 256, "LARGEST");
  behind = argument(argc, argv, 3, 20000, "BEHIND");
  if (largest < SEALED_MIN || largest > UINT32_MAX / 2)
    fail("LARGEST is at least %d", SEALED_MIN);
  ring.place = got(malloc(behind * sizeof *ring.place));
  pthread_barrier_init(&measured, NULL, 2);
  uint64_t start = now_ns();
  pthread_t producer = thread_new(produce, NULL);
  consume();
  double time = seconds_since(start);
  long resident = status_kib("VmRSS"), peak = status_kib("VmHWM");
  pthread_barrier_wait(&measured);
  thread_join(producer);
  free(ring.place);
  printf("free_only: %zu blocks of 16 to %zu bytes: %.3f s, %.2f million per second, %ld KiB resident at the end, "
         "peak %ld KiB\n",
         blocks, largest, time, (double)blocks * 1e-6 / time, resident, peak);
  figure("wall_s", time);
  figure("objects_per_s", (double)blocks / time);
  figure("rss_kib", (double)resident);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
