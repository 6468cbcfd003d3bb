#include "unit.h"

#include "base/atomic.h"
#include "os/lock.h"
#include "os/os.h"

static void start(pthread_t *thread, void *(*body)(void *), void *argument) {
  assert_int_equal(pthread_create(thread, NULL, body, argument), 0);
}

/* The test ends the program if a lock is never to be had. */
static int before(void **state) {
  (void)state;
  alarm(300);
  return 0;
}

/* ---- Mutual exclusion ---- */

enum { THREADS = 8, ROUNDS = 20000 };

/* Guarded by the lock of that rank. */
static struct {
  volatile uint64_t count, copy;
} guarded[LOCK_COUNT];

static void *add_many(void *number) {
  run_on((unsigned)(uintptr_t)number);
  for (unsigned i = 0; i < ROUNDS; i++) {
    lock_rank rank = i % LOCK_COUNT;
    lock_take(rank);
    REQUIRE(guarded[rank].count == guarded[rank].copy);
    guarded[rank].count++;
    if (i % 64 == 0)
      sched_yield(); /* with the lock held, so that others run into it */
    guarded[rank].copy++;
    lock_drop(rank);
  }
  return NULL;
}

static void one_at_a_time(void **state) {
  pthread_t threads[THREADS];
  uint64_t total = 0;
  (void)state;
  for (uintptr_t i = 0; i < THREADS; i++)
    start(&threads[i], add_many, (void *)i);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  for (lock_rank r = 0; r < LOCK_COUNT; r++) {
    assert_int_equal(guarded[r].count, guarded[r].copy);
    total += guarded[r].count;
  }
  assert_int_equal(total, (uint64_t)THREADS * ROUNDS);
}

static void ranks_do_not_share_a_lock(void **state) {
  (void)state;
  for (lock_rank r = 0; r < LOCK_COUNT; r++)
    lock_take(r);
  for (lock_rank r = LOCK_COUNT; r-- > 0;)
    lock_drop(r);
}

/* ---- Waiters ---- */

/* progress: 1 about to take the lock, 2 has had it. */
typedef struct waiter {
  pthread_t thread;
  lock_rank rank;
  atomic_u32 progress;
} waiter;

static void *take_once(void *argument) {
  waiter *w = argument;
  store_release(&w->progress, 1);
  lock_take(w->rank);
  lock_drop(w->rank);
  store_release(&w->progress, 2);
  return NULL;
}

static void waiters_start(waiter *waiters, int count, lock_rank rank) {
  for (int i = 0; i < count; i++) {
    waiters[i].rank = rank;
    store_relaxed(&waiters[i].progress, 0);
    start(&waiters[i].thread, take_once, &waiters[i]);
    while (load_acquire(&waiters[i].progress) == 0)
      sched_yield();
  }
}

static void a_waiter_sleeps_and_is_woken(void **state) {
  enum { WAITERS = 3 };
  waiter waiters[WAITERS];
  uint64_t cpu_ms[WAITERS];
  clockid_t clock;
  (void)state;
  lock_take(LOCK_SUPPLY);
  waiters_start(waiters, WAITERS, LOCK_SUPPLY);
  sleep_ms(300);
  for (int i = 0; i < WAITERS; i++) {
    assert_int_equal(load_acquire(&waiters[i].progress), 1);
    assert_int_equal(pthread_getcpuclockid(waiters[i].thread, &clock), 0);
    cpu_ms[i] = clock_ms(clock);
  }
  lock_drop(LOCK_SUPPLY);
  for (int i = 0; i < WAITERS; i++) {
    pthread_join(waiters[i].thread, NULL); /* each wakes the next */
    assert_int_equal(load_acquire(&waiters[i].progress), 2);
    assert_in_range(cpu_ms[i], 0, 60); /* a spinning one would have used 300 */
  }
}

/* ---- Fork ---- */

static void the_forking_thread_is_never_stopped(void **state) {
  waiter other;
  (void)state;
  locks_fork_prepare(false);
  for (int twice = 0; twice < 2; twice++)
    for (lock_rank r = 0; r < LOCK_COUNT; r++) {
      lock_take(r);
      lock_drop(r);
    }
  lock_take(LOCK_META); /* against the ranks: no-ops have none */
  lock_take(LOCK_ROSTER);
  lock_drop(LOCK_META);
  lock_drop(LOCK_ROSTER);
  /* What it dropped is not open to anybody else. */
  waiters_start(&other, 1, LOCK_ROSTER);
  sleep_ms(50);
  assert_int_equal(load_acquire(&other.progress), 1);
  locks_fork_release();
  pthread_join(other.thread, NULL);
  ranks_do_not_share_a_lock(NULL);
}

/* A signal handler that interrupted masu may fork: what its thread held before it
 * holds after. */
static void a_fork_by_who_holds_a_lock(void **state) {
  waiter other;
  (void)state;
  lock_take(LOCK_MAPPINGS);
  locks_fork_prepare(true);
  lock_take(LOCK_MAPPINGS);
  lock_drop(LOCK_MAPPINGS);
  locks_fork_release();
  lock_take(LOCK_SUPPLY); /* those are open again */
  lock_drop(LOCK_SUPPLY);
  waiters_start(&other, 1, LOCK_MAPPINGS);
  sleep_ms(50);
  assert_int_equal(load_acquire(&other.progress), 1);
  lock_drop(LOCK_MAPPINGS);
  pthread_join(other.thread, NULL);
  locks_fork_prepare(false); /* and the next fork knows nothing of it */
  locks_fork_release();
  ranks_do_not_share_a_lock(NULL);
}

/* A signal handler that comes inside a fork may fork as well. */
static void a_fork_inside_a_fork(void **state) {
  waiter other;
  (void)state;
  locks_fork_prepare(false);
  locks_fork_prepare(false);
  locks_fork_release();
  waiters_start(&other, 1, LOCK_SUPPLY);
  sleep_ms(50);
  assert_int_equal(load_acquire(&other.progress), 1); /* the outer one has them yet */
  locks_fork_release();
  pthread_join(other.thread, NULL);
  ranks_do_not_share_a_lock(NULL);
}

/* What another thread holds it waits for all the same. */
static void *hold_for_a_while(void *held) {
  lock_take(LOCK_META);
  store_release((atomic_u32 *)held, 1);
  sleep_ms(60);
  store_release((atomic_u32 *)held, 2);
  lock_drop(LOCK_META);
  return NULL;
}

static void an_interrupting_fork_waits_for_others(void **state) {
  pthread_t thread;
  waiter other;
  static atomic_u32 held;
  (void)state;
  start(&thread, hold_for_a_while, &held);
  while (!load_acquire(&held))
    sched_yield();
  locks_fork_prepare(true);
  assert_int_equal(load_acquire(&held), 2);
  waiters_start(&other, 1, LOCK_META); /* it has it now */
  sleep_ms(20);
  assert_int_equal(load_acquire(&other.progress), 1);
  locks_fork_release();
  pthread_join(other.thread, NULL);
  pthread_join(thread, NULL);
  ranks_do_not_share_a_lock(NULL);
}

static void a_fork_waits_for_the_holder(void **state) {
  waiter other;
  (void)state;
  for (lock_rank r = 0; r < LOCK_COUNT; r++) {
    locks_fork_prepare(false);
    waiters_start(&other, 1, r);
    sleep_ms(5);
    assert_int_equal(load_acquire(&other.progress), 1);
    locks_fork_release();
    pthread_join(other.thread, NULL);
  }
}

static atomic_u32 stop;

static void *keep_busy(void *unused) {
  (void)unused;
  for (unsigned i = 0; !load_relaxed(&stop); i++) {
    lock_take(LOCK_MAPPINGS);
    lock_take(LOCK_META);
    lock_drop(LOCK_META);
    lock_drop(LOCK_MAPPINGS);
  }
  return NULL;
}

/* The handlers around a real fork; in the child the threads that held or waited
 * for a lock are gone. */
static void a_child_has_every_lock(void **state) {
  pthread_t threads[3];
  (void)state;
  if (SANITIZED)
    skip(); /* the sanitizer's own locks would be held in the child */
  for (int i = 0; i < 3; i++)
    start(&threads[i], keep_busy, NULL);
  for (int round = 0; round < 30; round++) {
    locks_fork_prepare(false);
    pid_t child = _Fork();
    if (child == 0) {
      alarm(20);
      locks_fork_release();
      for (lock_rank r = 0; r < LOCK_COUNT; r++) {
        lock_take(r);
        lock_drop(r);
      }
      _exit(0);
    }
    locks_fork_release();
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
  store_relaxed(&stop, 1);
  for (int i = 0; i < 3; i++)
    pthread_join(threads[i], NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_at_a_time),
      cmocka_unit_test(ranks_do_not_share_a_lock),
      cmocka_unit_test(a_waiter_sleeps_and_is_woken),
      cmocka_unit_test(the_forking_thread_is_never_stopped),
      cmocka_unit_test(a_fork_by_who_holds_a_lock),
      cmocka_unit_test(a_fork_inside_a_fork),
      cmocka_unit_test(an_interrupting_fork_waits_for_others),
      cmocka_unit_test(a_fork_waits_for_the_holder),
      cmocka_unit_test(a_child_has_every_lock),
  };
  return cmocka_run_group_tests(tests, before, NULL);
}
