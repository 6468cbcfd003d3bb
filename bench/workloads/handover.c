/* handover [BLOCKS] [SIZE]
 *
 * One thread allocates BLOCKS (5,000,000) blocks of SIZE (64) bytes and passes them
 * through a ring of 1,024 places to another, which checks and frees them. At the end
 * some more are filled and checked whole. */
#include <sched.h>
#include <stdatomic.h>

#include "threads.h"

enum { PLACES = 1024, LINE = 64 };

static struct {
  _Alignas(LINE) atomic_size_t put;   /* written by the producer */
  _Alignas(LINE) atomic_size_t taken; /* written by the consumer */
  _Alignas(LINE) unsigned char *place[PLACES];
} ring;

static size_t blocks, size;

static void *produce(void *unused) {
  (void)unused;
  for (size_t i = 0; i < blocks; i++) {
    unsigned char *block = got(malloc(size));
    *block = (unsigned char)i;
    while (i - atomic_load_explicit(&ring.taken, memory_order_acquire) == PLACES)
      sched_yield();
    ring.place[i % PLACES] = block;
    atomic_store_explicit(&ring.put, i + 1, memory_order_release);
  }
  return NULL;
}

static void consume(void) {
  for (size_t i = 0; i < blocks; i++) {
    while (atomic_load_explicit(&ring.put, memory_order_acquire) == i)
      sched_yield();
    unsigned char *block = ring.place[i % PLACES];
    if (*block != (unsigned char)i)
      fail("block %zu was overwritten", i);
    atomic_store_explicit(&ring.taken, i + 1, memory_order_release);
    free(block);
  }
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  blocks = argument(argc, argv, 1, 5000000, "BLOCKS");
  size = argument(argc, argv, 2, 64, "SIZE");
  uint64_t start = now_ns();
  pthread_t producer = thread_new(produce, NULL);
  consume();
  thread_join(producer);
  double time = (double)(now_ns() - start);
  long peak = status_kib("VmHWM");
  blocks_check(size, size);
  printf("handover: %zu blocks of %zu bytes: %.3f s, %.1f ns per block, peak %ld KiB\n", blocks, size, time * 1e-9,
         time / (double)blocks, peak);
  figure("block_ns", time / (double)blocks);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
