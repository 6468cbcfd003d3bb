/* stackprobe [throughput|latency] [STEPS]
 *
 * STEPS (10,000,000) steps over 14,000 slots. Each step picks a slot: an empty one
 * gets 1 to 10,000 bytes; a full one is resized to 1 to 10,000 bytes or freed, with
 * probability 1/2 each. From "malloc/free is slow" (stackprobe), whose point is the
 * tail: `latency` times every call and prints that instead. First and last byte of each
 * block carry its slot, checked whenever it is resized or freed; at the end some are
 * filled.
 *
 * For `latency` the calls are made in groups of 8, with nothing else between them. Three
 * lists: `all` calls; `apart`, those of groups during which the thread took a page fault
 * or was switched; `calls`, the others. A page fault within a call is often the
 * allocator's own doing, so `calls` alone would spare who gives memory back too early.
 * What the clock itself takes is measured beforehand and left out. `empty` is a call of
 * nothing in each group: what the machine interrupts without a page fault or a switch
 * (its interrupts, and other guests of its host) shows there as well. STEPS may come
 * before the mode. */
#include <sys/resource.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "workload.h"

enum { SLOTS = 14000, LARGEST = 10000 };

static struct slot {
  unsigned char *block;
  size_t size;
} slot[SLOTS];

/* ---- The steps ---- */

enum { MALLOC, REALLOC, FREE, EMPTY, CALLS };

typedef struct step {
  size_t slot, size;
  int call;
} step;

static step step_next(uint32_t *random) {
  size_t i = xorshift32(random) % SLOTS;
  if (!slot[i].block)
    return (step){i, xorshift32(random) % LARGEST + 1, MALLOC};
  if (xorshift32(random) & 1)
    return (step){i, xorshift32(random) % LARGEST + 1, REALLOC};
  return (step){i, 0, FREE};
}

static void step_before(step s) {
  if (s.call != MALLOC)
    block_check(slot[s.slot].block, slot[s.slot].size, s.slot);
}

/* The call alone. */
static inline void *step_call(step s) {
  if (s.call == MALLOC)
    return malloc(s.size);
  if (s.call == REALLOC)
    return realloc(slot[s.slot].block, s.size);
  free(slot[s.slot].block);
  return NULL;
}

static void step_after(step s, void *block) {
  slot[s.slot].block = block;
  if (s.call == FREE)
    return;
  if (*(unsigned char *)got(block) != (unsigned char)s.slot && s.call == REALLOC)
    fail("realloc lost the contents of slot %zu", s.slot);
  slot[s.slot].size = s.size;
  block_mark(block, s.size, s.slot);
}

static void play(size_t steps) {
  uint32_t random = 2463534242u;
  for (size_t i = 0; i < steps; i++) {
    step s = step_next(&random);
    step_before(s);
    step_after(s, step_call(s));
  }
}

/* ---- The clock of `latency` ---- */

static double tick_ns = 1;
static uint64_t clock_overhead;

static inline uint64_t ticks_begin(void) {
#if defined(__x86_64__)
  _mm_lfence();
  uint64_t t = __rdtsc();
  _mm_lfence();
  return t;
#else
  return now_ns();
#endif
}

static inline uint64_t ticks_end(void) {
#if defined(__x86_64__)
  unsigned processor;
  uint64_t t = __rdtscp(&processor);
  _mm_lfence();
  return t;
#else
  return now_ns();
#endif
}

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* The length of a tick, and the median time between two readings of the clock. */
static void clock_calibrate(void) {
  static uint64_t empty[10001];
  enum { READINGS = sizeof empty / sizeof *empty };
#if defined(__x86_64__)
  uint64_t start_ns = now_ns(), start = ticks_begin();
  while (now_ns() - start_ns < 50000000)
    ;
  tick_ns = (double)(now_ns() - start_ns) / (double)(ticks_end() - start);
#endif
  for (size_t i = 0; i < READINGS; i++) {
    uint64_t begin = ticks_begin();
    empty[i] = ticks_end() - begin;
  }
  qsort(empty, READINGS, sizeof *empty, by_value);
  clock_overhead = empty[READINGS / 2];
}

/* ---- The times of single calls: histograms with 32 steps per doubling ---- */

enum { CALM, APART, ALL, LISTS, STEP_BITS = 5, BINS = 64 << STEP_BITS, GROUP = 8 };

static const char *const LIST_NAMES[LISTS] = {"calls", "apart", "all"};
static const char *const CALL_NAMES[CALLS] = {"malloc", "realloc", "free", "empty"};

static struct times {
  uint64_t count, worst;
  uint64_t bin[BINS];
} times[LISTS][CALLS];

static long fault_groups, switch_groups;

static size_t bin_of(uint64_t ticks) {
  if (ticks < 1u << STEP_BITS)
    return ticks;
  unsigned shift = 63u - (unsigned)__builtin_clzll(ticks) - STEP_BITS;
  return ((shift + 1) << STEP_BITS) + ((ticks >> shift) & ((1u << STEP_BITS) - 1));
}

static uint64_t bin_last(size_t bin) {
  if (bin < 1u << STEP_BITS)
    return bin;
  unsigned shift = (unsigned)(bin >> STEP_BITS) - 1;
  return (((bin & ((1u << STEP_BITS) - 1)) + (1u << STEP_BITS) + 1) << shift) - 1;
}

static void times_add(struct times *t, uint64_t ticks) {
  ticks = ticks > clock_overhead ? ticks - clock_overhead : 0;
  t->count++;
  t->bin[bin_of(ticks)]++;
  if (ticks > t->worst)
    t->worst = ticks;
}

/* Made of the other two at the end: while calls are timed each adds to one list only. */
static void times_join(void) {
  for (int call = 0; call < CALLS; call++)
    for (int list = CALM; list <= APART; list++) {
      const struct times *t = &times[list][call];
      struct times *all = &times[ALL][call];
      all->count += t->count;
      all->worst = t->worst > all->worst ? t->worst : all->worst;
      for (size_t bin = 0; bin < BINS; bin++)
        all->bin[bin] += t->bin[bin];
    }
  if (!times[CALM][EMPTY].count)
    fail("no group of calls without a page fault or a switch");
}

static double times_quantile_ns(const struct times *t, double part) {
  uint64_t below = 0, ticks = t->worst;
  for (size_t bin = 0; bin < BINS; bin++)
    if ((double)(below += t->bin[bin]) >= part * (double)t->count) {
      ticks = bin_last(bin) < t->worst ? bin_last(bin) : t->worst;
      break;
    }
  return (double)ticks * tick_ns;
}

/* In which list a group's calls belong. */
static int group_list(const struct rusage *before, const struct rusage *after) {
  bool faults = after->ru_minflt + after->ru_majflt != before->ru_minflt + before->ru_majflt;
  bool switches = after->ru_nvcsw + after->ru_nivcsw != before->ru_nvcsw + before->ru_nivcsw;
  fault_groups += faults;
  switch_groups += switches;
  return faults || switches ? APART : CALM;
}

/* Steps of one group have different slots. */
static void group_choose(step group[GROUP], uint32_t *random) {
  for (size_t i = 0; i < GROUP; i++) {
    bool again = false;
    do {
      group[i] = step_next(random);
      again = false;
      for (size_t j = 0; j < i; j++)
        again |= group[j].slot == group[i].slot;
    } while (again);
    step_before(group[i]);
  }
}

static void group_play(uint32_t *random) {
  step group[GROUP];
  void *block[GROUP];
  uint64_t ticks[GROUP];
  struct rusage before, after;
  group_choose(group, random);
  getrusage(RUSAGE_THREAD, &before);
  for (size_t i = 0; i < GROUP; i++) {
    uint64_t begin = ticks_begin();
    block[i] = step_call(group[i]);
    ticks[i] = ticks_end() - begin;
  }
  uint64_t begin = ticks_begin(), empty = ticks_end() - begin;
  getrusage(RUSAGE_THREAD, &after);
  int list = group_list(&before, &after);
  times_add(&times[list][EMPTY], empty);
  for (size_t i = 0; i < GROUP; i++) {
    times_add(&times[list][group[i].call], ticks[i]);
    step_after(group[i], block[i]);
  }
}

static void times_figures(int list, int call) {
  static const struct {
    const char *name;
    double part;
  } QUANTILES[] = {{"p50", 0.5},     {"p90", 0.9},       {"p99", 0.99},      {"p999", 0.999},
                   {"p9999", 0.9999}, {"p99999", 0.99999}, {"worst", 1}};
  const struct times *t = &times[list][call];
  char name[64];
  snprintf(name, sizeof name, "%s_%s", LIST_NAMES[list], CALL_NAMES[call]);
  figure(name, (double)t->count);
  for (size_t i = 0; i < sizeof QUANTILES / sizeof *QUANTILES; i++) {
    snprintf(name, sizeof name, "%s_%s_%s_ns", LIST_NAMES[list], CALL_NAMES[call], QUANTILES[i].name);
    figure(name, times_quantile_ns(t, QUANTILES[i].part));
  }
}

static void latency(size_t steps) {
  uint32_t random = 2463534242u;
  clock_calibrate();
  for (size_t i = 0; i < steps; i += GROUP)
    group_play(&random);
}

static void latency_print(void) {
  times_join();
  for (int list = 0; list < LISTS; list++) {
    printf("stackprobe: %s, ns per call, median / 99.9 %% / 99.99 %% / worst:", LIST_NAMES[list]);
    for (int call = 0; call < CALLS; call++)
      printf("%s %s %.0f / %.0f / %.0f / %.0f", call ? "," : "", CALL_NAMES[call],
             times_quantile_ns(&times[list][call], 0.5), times_quantile_ns(&times[list][call], 0.999),
             times_quantile_ns(&times[list][call], 0.9999), times_quantile_ns(&times[list][call], 1));
    putchar('\n');
  }
  for (int list = 0; list < LISTS; list++)
    for (int call = 0; call < CALLS; call++)
      times_figures(list, call);
  figure("fault_groups", (double)fault_groups);
  figure("switch_groups", (double)switch_groups);
  figure("clock_ns", (double)clock_overhead * tick_ns);
}

int main(int argc, char **argv) {
  static const char *const MODES[] = {"throughput", "latency", NULL};
  huge_pages_as_asked(argv);
  int first = argc > 1 && argv[1][0] >= '0' && argv[1][0] <= '9';
  bool timed = choice(argc, argv, first ? 2 : 1, MODES);
  size_t steps = argument(argc, argv, first ? 1 : 2, 10000000, "STEPS");
  uint64_t start = now_ns();
  if (timed)
    latency(steps);
  else
    play(steps);
  double time = seconds_since(start);
  for (size_t i = 0; i < SLOTS; i++)
    if (slot[i].block) {
      block_check(slot[i].block, slot[i].size, i);
      free(slot[i].block);
    }
  blocks_check(1, LARGEST);
  if (timed) {
    latency_print();
  } else {
    printf("stackprobe: %zu steps over %d slots: %.1f ms\n", steps, SLOTS, time * 1e3);
    figure("wall_s", time);
    figure("step_ns", time * 1e9 / (double)steps);
  }
  figures_end();
  return 0;
}
