/* mstress [THREADS] [ROUNDS] [STEPS]
 *
 * ROUNDS (20) times: THREADS (8) new threads make STEPS (100,000) steps each. A step
 * allocates a block, or frees one of the thread's own at random, or exchanges one for
 * another of an array of 1,000 that all threads share, also across rounds. Sizes are
 * mostly small; few go to 256 KiB. A thread frees what it has when it ends; after each
 * round a quarter of the shared array is freed. After the description of mimalloc's
 * stress test. Each block carries its size, checked before it is freed. */
#include <stdatomic.h>

#include "threads.h"

enum { SHARED = 1000, OWN = 4000 };

static _Atomic(void *) shared[SHARED];
static size_t steps, round_number, threads;

/* Half of all below 64 bytes, a quarter to 128, and so on to 256 KiB. */
static size_t random_size(uint32_t *random) {
  unsigned doublings = (unsigned)__builtin_ctz(xorshift32(random) | 1u << 12);
  size_t high = (size_t)64 << doublings;
  return random_between(random, doublings ? high / 2 : SEALED_MIN, high);
}

static void *run(void *number) {
  uint32_t random = random_seed(round_number * threads + (size_t)number);
  void **own = got(malloc(OWN * sizeof *own));
  size_t count = 0;
  for (size_t i = 0; i < steps; i++) {
    uint32_t dice = xorshift32(&random) % 8;
    if (count < OWN && (dice < 4 || !count)) {
      own[count++] = sealed_new(random_size(&random));
    } else if (dice < 7) {
      size_t victim = xorshift32(&random) % count;
      sealed_free(own[victim]);
      own[victim] = own[--count];
    } else {
      size_t mine = xorshift32(&random) % count;
      own[mine] = atomic_exchange(&shared[xorshift32(&random) % SHARED], own[mine]);
      if (!own[mine])
        own[mine] = own[--count];
    }
  }
  while (count)
    sealed_free(own[--count]);
  free(own);
  return NULL;
}

static void shared_free(size_t part) {
  for (size_t i = 0; i < SHARED; i += part)
    sealed_free(atomic_exchange(&shared[i], NULL));
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  threads = argument(argc, argv, 1, 8, "THREADS");
  size_t rounds = argument(argc, argv, 2, 20, "ROUNDS");
  steps = argument(argc, argv, 3, 100000, "STEPS");
  uint64_t start = now_ns();
  for (round_number = 0; round_number < rounds; round_number++) {
    threads_run(threads, run);
    shared_free(4);
  }
  double time = seconds_since(start), all = (double)threads * (double)rounds * (double)steps;
  shared_free(1);
  long resident = status_kib("VmRSS"), peak = status_kib("VmHWM");
  printf("mstress: %zu rounds of %zu threads, %zu steps each: %.3f s, %.2f million steps per second, "
         "peak %ld KiB, at the end %ld KiB\n",
         rounds, threads, steps, time, all * 1e-6 / time, peak, resident);
  figure("wall_s", time);
  figure("steps_per_s", all / time);
  figure("peak_rss_kib", (double)peak);
  figure("rss_kib", (double)resident);
  figures_end();
  return 0;
}
