/* Gate: a signal handler that forks, reads the statistics and allocates from a named heap while
 * the interrupted code is in a special form, under one of the forms' locks. No deadlock
 * is what we demand. */
#include <masu/heap.h>
#include <masu/pool.h>
#include <masu/sized.h>
#include <masu/stats.h>

#include "sender.h"

enum { SIGNALS = 3000, EVERY = 16, TENANTS = 300 };

/* Which the thread has allocated nothing from. */
static masu_heap *fresh[SIGNALS / EVERY + 1];

static void handler(int number) {
  int saved = errno, turn = atomic_load(&handled);
  masu_stats s;
  (void)number;
  pid_t pid = fork();
  if (pid == 0)
    _exit(0);
  wait_for(pid, "child");
  if (turn % EVERY == 0 && turn < SIGNALS) {
    int why = masu_stats_read(&s, sizeof s);
    CHECK(why == 0 || why == EAGAIN, "masu_stats_read: %d", why);
    uint64_t live = 0;
    why = masu_ctl("stats.live", &live, NULL);
    CHECK(why == EAGAIN || (why == 0 && live > 0), "masu_ctl: %d", why);
    void *p = masu_heap_malloc(fresh[turn / EVERY], 100);
    touch(p, p ? 100 : 0);
  }
  errno = saved;
  atomic_fetch_add(&handled, 1);
}

static void sized_blocks(void) {
  static void *blocks[5000];
  for (size_t i = 0; i < COUNT(blocks); i++)
    blocks[i] = masu_sized_alloc(24);
  for (size_t i = 0; i < COUNT(blocks); i++)
    masu_sized_free(blocks[i], 24);
  masu_sized_trim();
}

static void shared_pool_that_grows(void) {
  masu_pool *pool = masu_pool_create(4096, 0, MASU_POOL_SHARED);
  for (int i = 0; i < 500; i++)
    CHECK(masu_pool_alloc(pool), "no memory");
  masu_pool_destroy(pool);
}

static void pools_come_and_go(void) {
  for (int i = 0; i < 200; i++)
    masu_pool_destroy(masu_pool_create(24, 0, 0));
}

/* Looks each of the many pools up in the list of all. */
static void statistics(void) {
  masu_stats s;
  CHECK(masu_stats_read(&s, sizeof s) == 0, "masu_stats_read");
}

int main(void) {
  gate_begin(120);
  for (size_t i = 0; i < COUNT(fresh); i++)
    CHECK((fresh[i] = masu_heap_create("fresh")), "no memory");
  for (int i = 0; i < TENANTS; i++)
    CHECK(masu_pool_create(24, 0, 0), "no memory");
  sender_start(handler, SIGNALS);
  while (atomic_load(&handled) < SIGNALS) {
    sized_blocks();
    shared_pool_that_grows();
    pools_come_and_go();
    statistics();
  }
  sender_finish();
  return 0;
}
