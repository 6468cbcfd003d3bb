/* calloc_zero [CALLS]
 *
 * CALLS (3,000) times: a random one of 16 blocks is freed, and another comes by calloc:
 * 4 KiB to 16 MiB, all orders of magnitude alike. Of one in four a word in every 512
 * bytes is used, of the others one in every 64 KiB: what calloc cleared without need is
 * time and memory. A word that is used has to be 0 first, and what was written there
 * when the block is freed. Timed are calloc and free alone, and beside that the whole. */
#include "workload.h"

enum { BLOCKS = 16, SHIFT_MIN = 12, SHIFT_MAX = 23, DENSE = 512, SPARSE = 65536, PAGE = 4096 };

static struct {
  char *block;
  size_t size, first, stride; /* a word is used at first, first + stride, ... */
} slot[BLOCKS];

static uint64_t timed_ns;

/* Each word that is used has to be `before`, and becomes `after`. */
static void slot_use(size_t i, size_t before, size_t after) {
  for (size_t at = slot[i].first; at + sizeof after <= slot[i].size; at += slot[i].stride) {
    if (memcmp(slot[i].block + at, &before, sizeof before) != 0)
      fail("byte %zu of %zu from calloc is not what it was", at, slot[i].size);
    memcpy(slot[i].block + at, &after, sizeof after);
  }
}

static size_t slot_pages(size_t i) {
  size_t unit = slot[i].stride < PAGE ? PAGE : slot[i].stride;
  return slot[i].size <= slot[i].first ? 0 : (slot[i].size - slot[i].first + unit - 1) / unit;
}

static void slot_fill(size_t i, uint32_t *random) {
  size_t half = (size_t)1 << random_between(random, SHIFT_MIN, SHIFT_MAX);
  size_t first = xorshift32(random) % PAGE & ~(size_t)7;
  bool dense = xorshift32(random) % 4 == 0;
  slot[i].size = random_between(random, half, 2 * half) & ~(size_t)15;
  slot[i].first = dense ? 0 : first;
  slot[i].stride = dense ? DENSE : SPARSE;
  uint64_t start = now_ns();
  slot[i].block = got(calloc(slot[i].size / 16, 16));
  timed_ns += now_ns() - start;
  slot_use(i, 0, ~i);
}

static void slot_drop(size_t i) {
  slot_use(i, ~i, ~i);
  uint64_t start = now_ns();
  free(slot[i].block);
  timed_ns += now_ns() - start;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t calls = argument(argc, argv, 1, 3000, "CALLS");
  uint32_t random = random_seed(0);
  size_t used = 0;
  uint64_t start = now_ns();
  for (size_t i = 0; i < BLOCKS; i++)
    slot_fill(i, &random);
  timed_ns = 0;
  for (size_t i = 0; i < calls; i++) {
    size_t victim = xorshift32(&random) % BLOCKS;
    slot_drop(victim);
    slot_fill(victim, &random);
  }
  double time = seconds_since(start), call_ns = (double)timed_ns / (double)calls;
  long resident = status_kib("VmRSS"), peak = status_kib("VmHWM");
  for (size_t i = 0; i < BLOCKS; i++) {
    used += slot_pages(i) * (PAGE / 1024);
    slot_drop(i);
  }
  printf("calloc_zero: %zu times calloc and free of 4 KiB to 16 MiB: %.0f ns each, with their use %.3f s, "
         "%ld KiB resident for %zu KiB used, peak %ld KiB\n",
         calls, call_ns, time, resident, used, peak);
  figure("wall_s", time);
  figure("call_ns", call_ns);
  figure("rss_kib", (double)resident);
  figure("live_kib", (double)used);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
