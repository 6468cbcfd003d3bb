/* server_day [figures|curve] [THREADS]
 *
 * A day in 200 ticks of 50 ms. In each tick THREADS (4) workers serve requests (some
 * temporary blocks, one that replaces another, sometimes a result that goes to a shared
 * cache and is freed by whoever replaces it there) and bring their live blocks to what
 * the hour asks for: load rises and falls, and sizes change. The first thread reads
 * resident memory and live bytes at the end of each tick; `curve` prints them all. The
 * work depends on the ticks, not on the time it takes. Each block carries its size,
 * checked before it is freed. */
#include <stdatomic.h>

#include "threads.h"

enum { TICKS = 200, CACHE = 4096, TEMPORARY = 5, CACHED = 8 };

static const uint64_t TICK_NS = 50000000;

/* Until a tick: what is live changes evenly to live_mib, by blocks of these sizes. */
static const struct hour {
  size_t tick, live_mib, low, high, requests;
} DAY[] = {
    {40, 120, 16, 512, 4000},    /* the morning: many small ones */
    {60, 120, 16, 1024, 8000},   /* busy */
    {80, 20, 16, 1024, 2000},    /* noon */
    {120, 200, 512, 16000, 1500}, /* the afternoon: larger ones */
    {140, 200, 64, 32000, 2000}, /* busy */
    {160, 30, 64, 4096, 1000},   /* the evening */
    {170, 100, 1000, 200000, 50}, /* reports */
    {184, 15, 16, 4096, 500},    /* they are done */
    {TICKS, 15, 16, 512, 100},   /* the night */
};

typedef struct worker {
  void **block;
  size_t count, capacity;
  uint32_t random;
} worker;

static const char *const MODES[] = {"figures", "curve", NULL};
static _Atomic(void *) cache[CACHE];
static atomic_size_t live_bytes;
static atomic_bool ended;
static size_t threads;
static uint64_t day_start;

static struct sample {
  double time;
  long rss_kib;
  double live_kib;
} sample[TICKS];

static const struct hour *hour_of(size_t tick) {
  const struct hour *h = DAY;
  while (tick >= h->tick)
    h++;
  return h;
}

/* What a worker has to have live at the end of a tick. */
static size_t target_bytes(size_t tick) {
  const struct hour *h = hour_of(tick);
  double from = h == DAY ? 0 : (double)h[-1].live_mib, first = h == DAY ? 0 : (double)h[-1].tick;
  double part = ((double)tick + 1 - first) / ((double)h->tick - first);
  return (size_t)((from + ((double)h->live_mib - from) * part) * 1048576 / (double)threads);
}

static void *counted_new(worker *w, const struct hour *h) {
  void *block = sealed_new(random_between(&w->random, h->low, h->high));
  atomic_fetch_add_explicit(&live_bytes, sealed_size(block), memory_order_relaxed);
  return block;
}

static size_t counted_free(void *block) {
  size_t size = sealed_free(block);
  atomic_fetch_sub_explicit(&live_bytes, size, memory_order_relaxed);
  return size;
}

static size_t worker_add(worker *w, const struct hour *h) {
  if (w->count == w->capacity) {
    size_t more = w->capacity ? w->capacity : 1024;
    w->block = got(realloc(w->block, (w->capacity += more) * sizeof *w->block));
    atomic_fetch_add(&live_bytes, more * sizeof *w->block);
  }
  w->block[w->count] = counted_new(w, h);
  return sealed_size(w->block[w->count++]);
}

static size_t worker_drop(worker *w) {
  size_t victim = xorshift32(&w->random) % w->count;
  size_t size = counted_free(w->block[victim]);
  w->block[victim] = w->block[--w->count];
  return size;
}

/* Returns by how many bytes the worker's own blocks grew. */
static size_t request(worker *w, const struct hour *h, size_t number) {
  void *temporary[TEMPORARY];
  for (size_t i = 0; i < TEMPORARY; i++)
    temporary[i] = counted_new(w, h);
  size_t grown = worker_add(w, h);
  if (number % CACHED == 0)
    counted_free(atomic_exchange(&cache[xorshift32(&w->random) % CACHE], counted_new(w, h)));
  for (size_t i = TEMPORARY; i--;)
    counted_free(temporary[i]);
  return grown - worker_drop(w);
}

static void *run(void *number) {
  worker w = {.random = random_seed((size_t)number)};
  size_t own = 0;
  for (size_t tick = 0; tick < TICKS; tick++) {
    const struct hour *h = hour_of(tick);
    size_t target = target_bytes(tick);
    while (own > target && w.count)
      own -= worker_drop(&w);
    while (own < target)
      own += worker_add(&w, h);
    for (size_t i = 0; i < h->requests / threads; i++)
      own += request(&w, h, i);
    sleep_until(day_start + (tick + 1) * TICK_NS);
  }
  while (!atomic_load(&ended))
    sleep_until(now_ns() + TICK_NS);
  while (w.count)
    worker_drop(&w);
  free(w.block);
  return NULL;
}

static void watch(void) {
  for (size_t tick = 0; tick < TICKS; tick++) {
    sleep_until(day_start + (tick + 1) * TICK_NS - TICK_NS / 20);
    double live_kib = (double)atomic_load(&live_bytes) / 1024;
    sample[tick] = (struct sample){seconds_since(day_start), status_kib("VmRSS"), live_kib};
  }
  atomic_store(&ended, true);
}

static void print_curve(void) {
  figure_name("curve");
  for (size_t i = 0; i < TICKS; i++)
    printf("%s[%.3f, %ld, %.0f]", i ? ", " : "[", sample[i].time, sample[i].rss_kib, sample[i].live_kib);
  putchar(']');
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  bool curve = choice(argc, argv, 1, MODES);
  threads = argument(argc, argv, 2, 4, "THREADS");
  pthread_t *thread = got(malloc(threads * sizeof *thread));
  day_start = now_ns();
  for (size_t i = 0; i < threads; i++)
    thread[i] = thread_new(run, (void *)i);
  watch();
  for (size_t i = 0; i < threads; i++)
    thread_join(thread[i]);
  free(thread);
  for (size_t i = 0; i < CACHE; i++)
    counted_free(cache[i]);

  double rss = 0, live = 0, ratio = 0, peak = 0;
  for (size_t i = 0; i < TICKS; i++) {
    rss += (double)sample[i].rss_kib / TICKS;
    live += sample[i].live_kib / TICKS;
    ratio += (double)sample[i].rss_kib / sample[i].live_kib / TICKS;
    peak = (double)sample[i].rss_kib > peak ? (double)sample[i].rss_kib : peak;
  }
  printf("server_day: %zu threads: %.0f KiB resident in the mean, %.0f KiB at most, for %.0f KiB in the mean; "
         "mean of their ratio %.3f, at the end %ld KiB\n",
         threads, rss, peak, live, ratio, sample[TICKS - 1].rss_kib);
  figure("rss_mean_kib", rss);
  figure("rss_peak_kib", peak);
  figure("rss_end_kib", (double)sample[TICKS - 1].rss_kib);
  figure("live_mean_kib", live);
  figure("rss_per_live", ratio);
  if (curve)
    print_curve();
  figures_end();
  return 0;
}
