/* threadtest [THREADS] [ROUNDS] [OBJECTS] [SIZE]
 *
 * Each of THREADS (4) threads makes ROUNDS (400) rounds: allocate OBJECTS (25,000)
 * blocks of SIZE (64) bytes, then free them all. No thread sees another's blocks.
 * After Hoard's threadtest. Each block carries its number's low byte at both ends; at
 * the end some more are filled. */
#include "threads.h"

static size_t rounds, objects, size;

static void *run(void *number) {
  void **object = got(malloc(objects * sizeof *object));
  for (size_t round = 0; round < rounds; round++) {
    for (size_t i = 0; i < objects; i++) {
      object[i] = got(malloc(size));
      block_mark(object[i], size, i + (size_t)number);
    }
    for (size_t i = 0; i < objects; i++) {
      block_check(object[i], size, i + (size_t)number);
      free(object[i]);
    }
  }
  free(object);
  return NULL;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t threads = argument(argc, argv, 1, 4, "THREADS");
  rounds = argument(argc, argv, 2, 400, "ROUNDS");
  objects = argument(argc, argv, 3, 25000, "OBJECTS");
  size = argument(argc, argv, 4, 64, "SIZE");
  uint64_t start = now_ns();
  threads_run(threads, run);
  double time = seconds_since(start), pairs = (double)threads * (double)rounds * (double)objects;
  long peak = status_kib("VmHWM");
  blocks_check(size, size);
  printf("threadtest: %zu threads, %zu rounds of %zu x %zu bytes: %.3f s, %.2f million pairs per second\n", threads,
         rounds, objects, size, time, pairs * 1e-6 / time);
  figure("wall_s", time);
  figure("pairs_per_s", pairs / time);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
