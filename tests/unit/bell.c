#include "unit.h"

#include "os/bell.h"
#include "os/os.h"

/* A ring that is lost leaves its sleeper for ever: the alarm ends the program. */
static int enable(void **state) {
  (void)state;
  alarm(300);
  bell_enable(true);
  return 0;
}

static int disable(void **state) {
  (void)state;
  bell_disarm();
  bell_enable(false);
  return 0;
}

/* ---- One sleeper ---- */

static atomic_u32 awake;

static void *sleep_once(void *unused) {
  (void)unused;
  bell_sleep(0);
  store_release(&awake, 1);
  return NULL;
}

static void sleeper_start(pthread_t *thread) {
  store_relaxed(&awake, 0);
  assert_int_equal(pthread_create(thread, NULL, sleep_once, NULL), 0);
  sleep_ms(50);
}

static void a_ring_after_arming_is_remembered(void **state) {
  (void)state;
  bell_arm();
  bell_ring();
  bell_sleep(0);
}

static void a_disarmed_bell_does_not_let_anybody_sleep(void **state) {
  (void)state;
  bell_arm();
  bell_disarm();
  bell_sleep(0);
}

static void it_sleeps_no_longer_than_it_is_told(void **state) {
  (void)state;
  uint64_t before = clock_ms(CLOCK_MONOTONIC);
  bell_arm();
  bell_sleep(60);
  assert_in_range(clock_ms(CLOCK_MONOTONIC) - before, 59, 5000);
  before = clock_ms(CLOCK_MONOTONIC);
  bell_sleep(10000); /* it is disarmed again */
  assert_in_range(clock_ms(CLOCK_MONOTONIC) - before, 0, 8000);
}

static void a_sleeper_sleeps_until_it_rings(void **state) {
  pthread_t thread;
  clockid_t clock;
  (void)state;
  bell_ring(); /* heard by nobody: not armed */
  bell_arm();
  sleeper_start(&thread);
  assert_int_equal(load_acquire(&awake), 0);
  sleep_ms(200);
  assert_int_equal(pthread_getcpuclockid(thread, &clock), 0);
  assert_in_range(clock_ms(clock), 0, 50);
  bell_ring();
  pthread_join(thread, NULL);
  assert_int_equal(load_acquire(&awake), 1);
}

static void without_a_helper_it_does_not_ring(void **state) {
  pthread_t thread;
  (void)state;
  bell_arm();
  bell_enable(false);
  sleeper_start(&thread);
  bell_ring();
  sleep_ms(50);
  assert_int_equal(load_acquire(&awake), 0);
  bell_enable(true);
  bell_ring();
  pthread_join(thread, NULL);
}

/* ---- No ring is lost ---- */

/* The two sides of the promise at the same moment, time and again: here the bell is
 * armed and work looked for, there work is made and the bell rung. If both miss, the
 * sleeper sleeps for ever. */
enum { ROUNDS = 150000, ENOUGH_MS = 5000 };
static atomic_u32 arrived;
static atomic_u32 last_round; /* sooner than ROUNDS where others take the cores */
static _Alignas(128) atomic_u32 work;

static void pause_a_little(uint64_t *seed) {
  for (volatile unsigned n = (unsigned)(random_next(seed) % 24); n; n--)
    ;
}

static void *arm_and_look(void *unused) {
  uint64_t seed = 1;
  (void)unused;
  run_on(1);
  for (uint32_t round = 1; round <= load_relaxed(&last_round); round++) {
    meet(&arrived, 2);
    pause_a_little(&seed);
    bell_arm();
    if (load_relaxed(&work) == round)
      bell_disarm();
    else
      bell_sleep(0);
  }
  return NULL;
}

static void no_ring_is_lost(void **state) {
  pthread_t thread;
  uint64_t seed = 2, start = os_now_ms();
  (void)state;
  store_relaxed(&last_round, ROUNDS);
  assert_int_equal(pthread_create(&thread, NULL, arm_and_look, NULL), 0);
  run_on(0);
  for (uint32_t round = 1; round <= load_relaxed(&last_round); round++) {
    if (os_now_ms() - start > ENOUGH_MS)
      store_relaxed(&last_round, round); /* seen by the other after they have met */
    meet(&arrived, 2);
    pause_a_little(&seed);
    store_relaxed(&work, round);
    bell_ring();
  }
  pthread_join(thread, NULL);
  run_anywhere();
}

/* The helper's loop: do the work, arm, look once more, sleep. */
static atomic_u64 made, seen;
static atomic_u32 stop;

static void *helper_body(void *unused) {
  (void)unused;
  run_on(0);
  while (!load_relaxed(&stop)) {
    store_release(&seen, load_acquire(&made));
    bell_arm();
    if (load_acquire(&made) != load_relaxed(&seen))
      bell_disarm();
    else
      bell_sleep(0);
  }
  return NULL;
}

/* Makes work and waits until it is seen: only a ring that arrives gets it further,
 * as soon as all others wait too. */
static void *ringer_body(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  run_on((unsigned)seed);
  for (int i = 0; i < 10000; i++) {
    uint64_t mine = add_relaxed(&made, 1) + 1;
    bell_ring();
    for (unsigned spins = 0; load_acquire(&seen) < mine; spins++)
      if (spins > 200)
        sched_yield();
    pause_a_little(&seed);
  }
  return NULL;
}

static void many_ring(void **state) {
  enum { RINGERS = 4 };
  pthread_t helper, ringers[RINGERS];
  (void)state;
  store_relaxed(&stop, 0);
  assert_int_equal(pthread_create(&helper, NULL, helper_body, NULL), 0);
  for (uintptr_t i = 0; i < RINGERS; i++)
    assert_int_equal(pthread_create(&ringers[i], NULL, ringer_body, (void *)(i + 1)), 0);
  for (int i = 0; i < RINGERS; i++)
    pthread_join(ringers[i], NULL);
  store_relaxed(&stop, 1);
  bell_ring();
  pthread_join(helper, NULL);
  assert_int_equal(load_acquire(&made), load_acquire(&seen));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enable, disable)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_ring_after_arming_is_remembered),
      TEST(a_disarmed_bell_does_not_let_anybody_sleep),
      TEST(it_sleeps_no_longer_than_it_is_told),
      TEST(a_sleeper_sleeps_until_it_rings),
      TEST(without_a_helper_it_does_not_ring),
      TEST(no_ring_is_lost),
      TEST(many_ring),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
