/* false_sharing [scratch|thrash] [THREADS] [ROUNDS] [SIZE] [WRITES]
 *
 * Each of THREADS (2) threads makes ROUNDS (200,000) rounds: allocate a block of SIZE
 * (8) bytes, write to it WRITES (1,000) times, free it. It takes long when two threads
 * get blocks of one cache line. `scratch` begins with a block for each thread that the
 * first thread allocated, one right after the other: an allocator that gives it to its
 * new thread again makes the false sharing last. After Hoard's cache-scratch and
 * cache-thrash. A block's bytes are checked after they were written. */
#include "threads.h"

enum { SCRATCH, THRASH };

static const char *const MODES[] = {"scratch", "thrash", NULL};
static size_t rounds, size, writes;
static unsigned char **first;
static pthread_barrier_t all_started;

static void work(unsigned char *block, unsigned char tag) {
  volatile unsigned char *bytes = block;
  memset(block, tag, size);
  for (size_t i = 0, at = 0; i < writes; i++, at = at + 1 == size ? 0 : at + 1)
    bytes[at]++;
  size_t sum = 0, expected = 0;
  for (size_t i = 0; i < size; i++) {
    sum += (unsigned char)(bytes[i] - tag);
    expected += (unsigned char)(writes / size + (i < writes % size));
  }
  if (sum != expected)
    fail("a block of %zu bytes was overwritten", size);
}

static void *run(void *number) {
  pthread_barrier_wait(&all_started);
  if (first[(size_t)number]) {
    work(first[(size_t)number], (unsigned char)(size_t)number);
    free(first[(size_t)number]);
  }
  for (size_t round = 0; round < rounds; round++) {
    unsigned char *block = got(malloc(size));
    work(block, (unsigned char)(size_t)number);
    free(block);
  }
  return NULL;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t mode = choice(argc, argv, 1, MODES);
  size_t threads = argument(argc, argv, 2, 2, "THREADS");
  rounds = argument(argc, argv, 3, 200000, "ROUNDS");
  size = argument(argc, argv, 4, 8, "SIZE");
  writes = argument(argc, argv, 5, 1000, "WRITES");
  first = got(calloc(threads, sizeof *first));
  for (size_t i = 0; mode == SCRATCH && i < threads; i++)
    first[i] = got(malloc(size));
  pthread_barrier_init(&all_started, NULL, (unsigned)threads);
  uint64_t start = now_ns();
  threads_run(threads, run);
  double time = seconds_since(start), all = (double)threads * (double)rounds * (double)writes;
  free(first);
  blocks_check(size, size);
  printf("false_sharing: %s, %zu threads, %zu rounds of %zu writes to %zu bytes: %.3f s, %.2f ns per write\n",
         MODES[mode], threads, rounds, writes, size, time, time * 1e9 / all);
  figure("wall_s", time);
  figure("write_ns", time * 1e9 / all);
  figures_end();
  return 0;
}
