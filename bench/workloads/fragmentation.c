/* fragmentation [whole|random90] [MIB] [SECONDS] [threaded]
 *
 * MIB (1,024) MiB of blocks of 16 to 4,096 bytes, freed whole, or 90 % of them at
 * random. Resident memory when all are allocated, right after they were freed, after
 * SECONDS (2) of little activity (3 small pairs per ms), and after as long of none.
 * `threaded` makes a thread first. Each block carries its size, checked before it is
 * freed. */
#include "threads.h"

enum { SMALLEST = 16, LARGEST = 4096 };
enum { WHOLE, RANDOM90 };

static const char *const MODES[] = {"whole", "random90", NULL};
static const char *const THREADED[] = {"", "threaded", NULL};

static void **block;
static size_t blocks;

static void *once(void *unused) {
  sealed_free(sealed_new(1000));
  return unused;
}

static void fill(size_t bytes) {
  uint32_t random = random_seed(0);
  block = got(malloc(bytes / SMALLEST * sizeof *block));
  for (size_t sum = 0; sum < bytes; blocks++) {
    block[blocks] = sealed_new(random_between(&random, SMALLEST, LARGEST));
    sum += sealed_size(block[blocks]);
  }
  block = got(realloc(block, blocks * sizeof *block));
}

static void drop(size_t mode) {
  uint32_t random = random_seed(1);
  for (size_t i = 0; i < blocks; i++)
    if (mode == WHOLE || xorshift32(&random) % 10) {
      if (!sealed_free(block[i]))
        fail("block %zu was lost", i);
      block[i] = NULL;
    }
}

static void little_activity(size_t seconds) {
  uint32_t random = random_seed(2);
  uint64_t start = now_ns();
  for (size_t ms = 0; ms < seconds * 1000; ms++) {
    void *pair[3];
    for (size_t i = 0; i < 3; i++)
      pair[i] = sealed_new(random_between(&random, SMALLEST, 500));
    for (size_t i = 0; i < 3; i++)
      sealed_free(pair[i]);
    sleep_until(start + (ms + 1) * 1000000u);
  }
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t mode = choice(argc, argv, 1, MODES);
  size_t mib = argument(argc, argv, 2, 1024, "MIB");
  size_t seconds = argument(argc, argv, 3, 2, "SECONDS");
  bool threaded = choice(argc, argv, 4, THREADED);
  if (threaded)
    thread_join(thread_new(once, NULL));

  uint64_t start = now_ns();
  fill(mib << 20);
  long full = status_kib("VmRSS");
  uint64_t middle = now_ns();
  drop(mode);
  double free_time = seconds_since(middle), fill_time = (double)(middle - start) * 1e-9;
  long freed = status_kib("VmRSS");
  little_activity(seconds);
  long little = status_kib("VmRSS");
  sleep_until(now_ns() + seconds * 1000000000u);
  long none = status_kib("VmRSS");

  size_t live = blocks * sizeof *block;
  for (size_t i = 0; i < blocks; i++)
    live += sealed_free(block[i]);
  free(block);
  printf("fragmentation: %zu MiB in %zu blocks, %s%s: filled in %.3f s, freed in %.3f s; KiB resident: %ld full, "
         "%ld freed, %ld after %zu s of little activity, %ld after %zu s of none, for %zu KiB\n",
         mib, blocks, MODES[mode], threaded ? ", threaded" : "", fill_time, free_time, full, freed, little, seconds,
         none, seconds, live / 1024);
  figure("fill_s", fill_time);
  figure("free_s", free_time);
  figure("rss_full_kib", (double)full);
  figure("rss_freed_kib", (double)freed);
  figure("rss_little_kib", (double)little);
  figure("rss_none_kib", (double)none);
  figure("live_kib", (double)live / 1024);
  figures_end();
  return 0;
}
