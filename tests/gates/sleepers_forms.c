/* Gate: shared pools and threads that sleep, with the option `sleepers`. Some sleepers hold free blocks of a pool ready;
 * the heaps of others are taken while they sleep, and new threads have them. Whoever wakes finds what it held ready, or
 * comes to the pool anew: no block is lost, none is given twice. */
#include <masu/pool.h>
#include <masu/stats.h>

#include <sys/syscall.h>

#include "gate.h"

enum { HOLDERS = 8, OTHERS = 8, SLEEPERS = HOLDERS + OTHERS, NEW = 12, SIZE = 64, KEPT = 50, READY = 100, TAKEN = 500, DEADLINE_S = 100 };

typedef struct worker {
  pthread_t thread;
  pid_t number;
  int wake[2];
  unsigned char *kept[KEPT], *ready[READY], *taken[TAKEN];
} worker;

static worker sleepers[SLEEPERS], newcomers[NEW];
static masu_pool *pool;
static pthread_barrier_t asleep, took, all_took;

static unsigned char mark_of(const worker *w) {
  return (unsigned char)(w >= newcomers && w < newcomers + NEW ? 1 + w - newcomers : 101 + w - sleepers);
}

static void take(const worker *w, unsigned char **blocks, size_t count) {
  for (size_t i = 0; i < count; i++) {
    CHECK((blocks[i] = masu_pool_alloc(pool)), "no memory");
    stamp(blocks[i], SIZE, mark_of(w));
  }
}

static void give(const worker *w, unsigned char **blocks, size_t count) {
  for (size_t i = 0; i < count; i++) {
    CHECK(stamped(blocks[i], SIZE, mark_of(w)), "another thread has this block");
    masu_pool_free(pool, blocks[i]);
  }
}

static bool is_among(const void *b, unsigned char *const *blocks, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (blocks[i] == b)
      return true;
  return false;
}

/* Asleep in `read`, which is what the library wants to know. */
static bool sleeps(const worker *w) {
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)w->number);
  if (!read_file(path, text, sizeof text))
    skip("the system doesn't say what threads do");
  return strtol(text, NULL, 10) == SYS_read && text[0] != 'r';
}

static bool has_heap(const worker *w) {
  masu_stats_heap rows[1000];
  size_t count = COUNT(rows);
  CHECK(masu_stats_heaps(rows, &count, sizeof *rows) == 0 && count < COUNT(rows), "masu_stats_heaps");
  for (size_t i = 0; i < count; i++)
    if (rows[i].thread == (uint64_t)w->number)
      return true;
  return false;
}

static void *sleeper(void *argument) {
  worker *w = argument;
  bool holds = w < sleepers + HOLDERS;
  void *keeps = malloc(100);
  char c;
  w->number = (pid_t)syscall(SYS_gettid);
  CHECK(keeps && has_heap(w), "the statistics don't say whose heap it is");
  if (holds) {
    take(w, w->kept, KEPT);
    take(w, w->ready, READY);
    give(w, w->ready, READY);
  }
  pthread_barrier_wait(&asleep);
  CHECK(read(w->wake[0], &c, 1) == 1, "read");
  take(w, w->taken, TAKEN);
  for (size_t i = 0; holds && !MASU_CHECKED_HERE && i < READY; i++) /* checked pools hold nothing ready for threads */
    CHECK(is_among(w->ready[i], w->taken, TAKEN), "what the thread held ready is gone");
  pthread_barrier_wait(&all_took);
  give(w, w->kept, holds ? KEPT : 0);
  give(w, w->taken, TAKEN);
  free(keeps);
  return NULL;
}

static void *newcomer(void *argument) {
  worker *w = argument;
  take(w, w->taken, TAKEN);
  pthread_barrier_wait(&took);
  pthread_barrier_wait(&all_took);
  give(w, w->taken, TAKEN);
  return NULL;
}

static void wait_until_taken(const worker *w) {
  double since = now_s();
  while (has_heap(w)) {
    CHECK(now_s() < since + DEADLINE_S, "a sleeping thread keeps its heap");
    sleep_ms(5);
  }
}

int main(void) {
  gate_begin(300);
  CHECK((pool = masu_pool_create(SIZE, 0, MASU_POOL_SHARED)), "no memory");
  pthread_barrier_init(&asleep, NULL, SLEEPERS + 1);
  pthread_barrier_init(&took, NULL, NEW + 1);
  pthread_barrier_init(&all_took, NULL, NEW + SLEEPERS);
  for (worker *w = sleepers; w < sleepers + SLEEPERS; w++) {
    CHECK(pipe(w->wake) == 0, "pipe");
    w->thread = start(sleeper, w);
  }
  pthread_barrier_wait(&asleep);
  for (const worker *w = sleepers; w < sleepers + SLEEPERS; w++)
    while (!sleeps(w))
      sleep_ms(1);
  for (const worker *w = sleepers + HOLDERS; w < sleepers + SLEEPERS; w++)
    wait_until_taken(w);
  for (worker *w = newcomers; w < newcomers + NEW; w++)
    w->thread = start(newcomer, w);
  pthread_barrier_wait(&took);
  for (worker *w = sleepers; w < sleepers + SLEEPERS; w++)
    CHECK(write(w->wake[1], "", 1) == 1, "write");
  for (worker *w = newcomers; w < newcomers + NEW; w++)
    finish(w->thread);
  for (worker *w = sleepers; w < sleepers + SLEEPERS; w++)
    finish(w->thread);
  masu_pool_figures f;
  CHECK(masu_pool_read(pool, &f, sizeof f) == 0 && f.live == 0, "%zu blocks are lost", (size_t)f.live);
  masu_pool_trim(pool);
  CHECK(masu_pool_read(pool, &f, sizeof f) == 0 && f.held == 0, "%zu bytes stay held", (size_t)f.held);
  return 0;
}
