/* reading READER [SECONDS] [PATHS]
 *
 * What it costs a thread that allocates that another one reads masu's figures. One thread replaces blocks of 16 to
 * 8,000 bytes in 10,000 places, through PATHS (1,000) call stacks, for SECONDS (5), with the heap profiler on, a sample
 * every 64 KiB; each of its calls is timed. READER is what another thread does meanwhile, again and again:
 *
 *     nobody     nothing: what shows then is the machine's
 *     stats      masu_stats_read, the walk that the live page is made by as well
 *     measure    masu_stats_measure
 *     profile    masu_profile_write
 *
 * Calls in which the system took the processor away from the thread are set apart: who waits for a lock gives it
 * away himself. Two processors should have nothing else to do. */
#include <masu/profile.h>
#include <masu/stats.h>

#include <sys/resource.h>

#include "../workloads/threads.h"

enum { PLACES = 10000, SMALLEST = 16, LARGEST = 8000, INTERVAL = 64 << 10, LATE_NS = 5000 };

static const char *const READERS[] = {"nobody", "stats", "measure", "profile", NULL};
static size_t reader, reads;
static double seconds;
static unsigned path_bits;
static volatile bool over;

/* ---- The times of calls ---- */

static struct {
  uint64_t calls, apart, late_10, late_100, late_1000, longest; /* late: more than so many microseconds */
} times;

/* Did the system take the processor away since the last question? */
static bool was_switched(void) {
  static long before;
  struct rusage now;
  getrusage(RUSAGE_THREAD, &now);
  bool more = now.ru_nivcsw != before;
  before = now.ru_nivcsw;
  return more;
}

static uint64_t last; /* when the last call ended */

static void call_begins(uint64_t at) {
  if (at - last > LATE_NS)
    was_switched(); /* in between */
}

static void call_ends(uint64_t begin) {
  uint64_t took = now_ns() - begin;
  times.calls++;
  if (took > LATE_NS && was_switched()) {
    times.apart++;
  } else {
    times.late_10 += took > 10000;
    times.late_100 += took > 100000;
    times.late_1000 += took > 1000000;
    times.longest = took > times.longest ? took : times.longest;
  }
  last = now_ns();
}

/* ---- The thread that allocates ---- */

static struct place {
  void *block;
  size_t size;
} places[PLACES];

static void *by_one(unsigned path, unsigned bits, size_t size);
static void *by_other(unsigned path, unsigned bits, size_t size);

/* Each bit of the path is one of two calls. */
static __attribute__((noinline)) void *take(unsigned path, unsigned bits, size_t size) {
  if (bits)
    return path & 1 ? by_one(path >> 1, bits - 1, size) : by_other(path >> 1, bits - 1, size);
  uint64_t begin = now_ns();
  call_begins(begin);
  void *p = malloc(size);
  call_ends(begin);
  return got(p);
}

static __attribute__((noinline)) void *by_one(unsigned path, unsigned bits, size_t size) {
  void *p = take(path, bits, size);
  __asm__ volatile("# one" : : "r"(p) : "memory");
  return p;
}

static __attribute__((noinline)) void *by_other(unsigned path, unsigned bits, size_t size) {
  void *p = take(path, bits, size);
  __asm__ volatile("# other" : : "r"(p) : "memory");
  return p;
}

static void drop(void *block) {
  uint64_t begin = now_ns();
  call_begins(begin);
  free(block);
  call_ends(begin);
}

static void replace(uint32_t *random) {
  size_t i = xorshift32(random) % PLACES;
  struct place *p = &places[i];
  if (p->block) {
    block_check(p->block, p->size, i);
    drop(p->block);
  }
  p->size = random_between(random, SMALLEST, LARGEST);
  p->block = take(xorshift32(random), path_bits, p->size);
  block_mark(p->block, p->size, i);
}

static void *allocate(void *nothing) {
  uint32_t random = random_seed(0);
  for (size_t i = 0; i < 20 * PLACES; i++) /* all places are full, all memory is there */
    replace(&random);
  times = (__typeof__(times)){0};
  for (uint64_t start = now_ns(); seconds_since(start) < seconds;)
    for (size_t i = 0; i < 1000; i++)
      replace(&random);
  over = true;
  return nothing;
}

/* ---- The reader ---- */

static int read_once(void) {
  masu_stats stats;
  masu_resident resident;
  switch (reader) {
  case 1: return masu_stats_read(&stats, sizeof stats);
  case 2: return masu_stats_measure(&resident, sizeof resident);
  case 3: return masu_profile_write("/dev/null");
  default: usleep(1000); return 0;
  }
}

int main(int argc, char **argv) {
  reader = choice(argc, argv, 1, READERS);
  seconds = (double)argument(argc, argv, 2, 5, "SECONDS");
  for (size_t paths = argument(argc, argv, 3, 1000, "PATHS"); (size_t)1 << path_bits < paths;)
    path_bits++;
  if (masu_profile_start(INTERVAL))
    fail("no profiler");
  pthread_t thread = thread_new(allocate, NULL);
  uint64_t start = now_ns();
  for (; !over; reads++)
    if (read_once())
      fail("reading failed");
  double read_ms = seconds_since(start) * 1e3 / (double)reads;
  thread_join(thread);
  masu_profile_figures profile;
  masu_profile_read(&profile, sizeof profile);
  printf("reading: %s: of %.1f million calls the longest took %.0f us; more than 10, 100, 1000 us: %.1f, %.2f, %.3f in a million\n",
         READERS[reader], (double)times.calls * 1e-6, (double)times.longest * 1e-3, (double)times.late_10 * 1e6 / (double)times.calls,
         (double)times.late_100 * 1e6 / (double)times.calls, (double)times.late_1000 * 1e6 / (double)times.calls);
  figure("calls", (double)times.calls);
  figure("apart", (double)times.apart);
  figure("longest_ns", (double)times.longest);
  figure("late_10", (double)times.late_10);
  figure("late_100", (double)times.late_100);
  figure("late_1000", (double)times.late_1000);
  figure("reads", reader ? (double)reads : 0);
  figure("read_ns", reader ? read_ms * 1e6 : 0);
  figure("stacks", (double)profile.stacks);
  figure("samples", (double)profile.samples);
  figures_end();
  return 0;
}
