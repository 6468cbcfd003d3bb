/* sleepers: whose heap is taken, and whose is not. Each test looks by itself, without the
 * helper, at threads that were seen to be where they should be. */
#include "unit.h"

#include <signal.h>

#include "api/thread.h"
#include "base/options.h"
#include "heap/roster.h"
#include "heap/sleepers.h"
#include "masu.h"
#include "masu/heap.h"
#include "masu/scope.h"
#include "os/os.h"

enum { DEADLINE_MS = 60000, LOOKS = 200 };

/* What a thread of a test does: it gets a heap, gets where the test wants it, waits there in a
 * system call, and goes on when it is told. */
typedef struct sleeper {
  void (*where)(struct sleeper *s);
  pthread_t thread;
  heap *its, *its_later;
  char *kept;
  int wake[2], rounds;
  atomic_u32 is_there, goes;
} sleeper;

static void wait_until(atomic_u32 *word) {
  for (int ms = 0; !load_acquire(word); ms++) {
    REQUIRE(ms < DEADLINE_MS);
    os_sleep_ms(1);
  }
}

static void is_there(sleeper *s) { store_release(&s->is_there, 1); }

static void sleeps(sleeper *s) {
  char c;
  is_there(s);
  while (read(s->wake[0], &c, 1) != 1)
    REQUIRE(errno == EINTR);
}

/* Enough that the upkeep has come by, which makes the thread's number known. */
static void uses_its_heap(void) {
  for (int i = 0; i < 10 * UPKEEP_TICKS; i++)
    thread_leave(thread_enter());
}

static void *sleeper_main(void *argument) {
  sleeper *s = argument;
  s->kept = masu_malloc(100);
  memset(s->kept, 'k', 100);
  uses_its_heap();
  s->its = thread_heap();
  s->where(s);
  void *p = masu_malloc(100);
  s->its_later = thread_heap();
  masu_free(p);
  REQUIRE(all_bytes(s->kept, 100, 'k'));
  masu_free(s->kept);
  return NULL;
}

static void start_sleeper(sleeper *s, void (*where)(sleeper *s)) {
  memset(s, 0, sizeof *s);
  s->where = where;
  assert_int_equal(pipe(s->wake), 0);
  assert_int_equal(pthread_create(&s->thread, NULL, sleeper_main, s), 0);
  wait_until(&s->is_there);
}

static void end_sleeper(sleeper *s) {
  store_release(&s->goes, 1);
  assert_int_equal(write(s->wake[1], "", 1), 1);
  pthread_join(s->thread, NULL);
  close(s->wake[0]);
  close(s->wake[1]);
}

/* It may not be asleep yet. */
static bool taken_within(int looks, sleeper *s) {
  for (int i = 0; i < looks; i++) {
    if (sleeper_take(s->its))
      return true;
    os_sleep_ms(1);
  }
  return false;
}

static int begin(void **state) {
  (void)state;
  alarm(300);
  option_set(OPTION_purge_delay, 0);
  option_set(OPTION_sleepers, 1);
  return 0;
}

/* ---- Who is taken ---- */

static void who_sleeps_is_taken_and_finds_its_heap_again(void **state) {
  sleeper s;
  (void)state;
  start_sleeper(&s, sleeps);
  assert_true(taken_within(DEADLINE_MS, &s));
  assert_true(s.its->is_parked);
  assert_false(sleeper_take(s.its)); /* it is nobody's */
  end_sleeper(&s);
  assert_ptr_equal(s.its_later, s.its);
}

/* Returned from long ago, and beside it what is no flags or no segments. */
static void on_a_used_stack(sleeper *s) {
  uintptr_t code = (uintptr_t)on_a_used_stack;
  volatile uintptr_t left[] = {code, 6, 0x33, code, 0x202, code | 3, code, 0x202, 0x30};
  sleeps(s);
  REQUIRE(left[0] == code);
}

static void old_return_addresses_are_no_interruption(void **state) {
  sleeper s;
  (void)state;
  start_sleeper(&s, on_a_used_stack);
  assert_true(taken_within(DEADLINE_MS, &s));
  end_sleeper(&s);
}

static void the_helper_may_tidy_it_meanwhile(void **state) {
  sleeper s;
  (void)state;
  start_sleeper(&s, sleeps);
  assert_true(taken_within(DEADLINE_MS, &s));
  roster_tidy_parked();
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    assert_null(s.its->hot.hand[c]);
  end_sleeper(&s);
}

static void who_wakes_while_another_has_it_gets_another(void **state) {
  sleeper s;
  (void)state;
  start_sleeper(&s, sleeps);
  assert_true(taken_within(DEADLINE_MS, &s));
  heap *taken = roster_join_again(s.its);
  assert_ptr_equal(taken, s.its);
  end_sleeper(&s);
  assert_non_null(s.its_later);
  assert_ptr_not_equal(s.its_later, s.its);
  roster_leave(taken);
}

static void sleeps_and_ends(sleeper *s) {
  sleeps(s);
  pthread_exit(NULL);
}

static void who_ends_right_after_leaves_nothing(void **state) {
  sleeper s;
  (void)state;
  start_sleeper(&s, sleeps_and_ends);
  assert_true(taken_within(DEADLINE_MS, &s));
  end_sleeper(&s);
  assert_true(s.its->is_parked);
  assert_null(load_relaxed(&s.its->seat));
  masu_free(s.kept);
}

static void turns_round(sleeper *s) {
  is_there(s);
  while (!load_acquire(&s->goes))
    ;
}

/* Every slow path puts it off, and there is an end to looking at what is not asleep. */
static void one_look_is_not_enough(void **state) {
  sleeper s;
  (void)state;
  start_sleeper(&s, sleeps);
  for (int i = 0; i < LOOKS; i++) {
    add_relaxed(&s.its->slow_paths, 1);
    sleepers_take();
    assert_false(s.its->is_parked);
    assert_true(sleepers_to_come());
    os_sleep_ms(1);
  }
  for (int ms = 0; !s.its->is_parked; ms++) {
    assert_true(ms < DEADLINE_MS);
    s.its->looks = 0;
    sleepers_take();
    os_sleep_ms(1);
  }
  end_sleeper(&s);
  start_sleeper(&s, turns_round);
  for (int i = 0; i < LOOKS; i++)
    sleepers_take();
  assert_false(sleepers_to_come());
  end_sleeper(&s);
}

/* ---- Who is not ---- */

static void busy(sleeper *s) {
  heap *h = thread_enter();
  sleeps(s);
  thread_leave(h);
}

static void in_a_scope(sleeper *s) {
  masu_scope scope;
  REQUIRE(masu_scope_open(&scope, NULL) == 0);
  sleeps(s);
  masu_scope_close(&scope);
}

static void with_a_limb(sleeper *s) {
  masu_heap *named = masu_heap_create("limb");
  masu_free(masu_heap_malloc(named, 10));
  sleeps(s);
  masu_heap_destroy(named);
}

static void deep_down(sleeper *s) {
  volatile char frame[3 << 19];
  frame[0] = frame[sizeof frame - 1] = 1;
  sleeps(s);
  frame[0] = 2;
}

static sleeper *waits_in_handler;
static void sleeps_in_handler(int number) {
  (void)number;
  sleeps(waits_in_handler);
}

/* Here masu's code and the test's are one program, so this interrupts masu's. */
static void in_a_handler(sleeper *s) {
  waits_in_handler = s;
  signal(SIGTRAP, sleeps_in_handler);
#ifdef __x86_64__
  __asm__ volatile("int3");
#else
  turns_round(s);
#endif
}

static _Alignas(16) char other_stack[1 << 16];
static void on_another_stack(sleeper *s) {
  stack_t other = {.ss_sp = other_stack, .ss_size = sizeof other_stack}, none = {.ss_flags = SS_DISABLE};
  struct sigaction act = {.sa_handler = sleeps_in_handler, .sa_flags = SA_ONSTACK};
  waits_in_handler = s;
  sigaltstack(&other, NULL);
  sigaction(SIGUSR1, &act, NULL);
  raise(SIGUSR1);
  sigaltstack(&none, NULL);
}

/* The child has the thread's memory, and its seat, while the thread waits for it. */
static void for_a_child(sleeper *s) {
  pid_t child = vfork();
  if (child == 0) {
    char c;
    is_there(s);
    while (read(s->wake[0], &c, 1) != 1)
      ;
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

static void nobody_else_is(void **state) {
  static void (*const where[])(sleeper *s) = {turns_round,  busy,         in_a_scope,       with_a_limb,
                                               deep_down,    in_a_handler, on_another_stack, for_a_child};
  (void)state;
  for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
    sleeper s;
    start_sleeper(&s, where[i]);
    if (taken_within(LOOKS, &s))
      fail_msg("number %zu was taken", i);
    end_sleeper(&s);
    assert_ptr_equal(s.its_later, s.its);
  }
}

static pthread_key_t round_key;

static void round_ends(void *argument) {
  sleeper *s = argument;
  if (s->rounds++ == 0) {
    pthread_setspecific(round_key, s);
    return;
  }
  masu_free(masu_malloc(100));
  uses_its_heap();
  s->its = thread_heap();
  sleeps(s);
}

static void until_a_later_round(sleeper *s) { pthread_setspecific(round_key, s); }

/* The rounds would be counted anew if its thread had to join again, and in the last one nobody would leave. */
static void a_heap_of_a_later_round_is_not(void **state) {
  sleeper s;
  (void)state;
  assert_int_equal(pthread_key_create(&round_key, round_ends), 0);
  start_sleeper(&s, until_a_later_round);
  assert_non_null(s.its);
  assert_false(taken_within(LOOKS, &s));
  end_sleeper(&s);
  assert_true(s.its->is_parked);
  pthread_key_delete(round_key);
}

/* ---- Many that sleep and wake all the time ---- */

enum { NAPPERS = 6, NAPS = 400, BLOCKS = 64, NAP_US = 300 };
static atomic_u32 naps_left;

static size_t size_of_block(uint64_t random) { return 1 + random % ((size_t)1 << (4 + random % 9)); }

static void nap(int number) {
  int saved = errno;
  (void)number;
  usleep(NAP_US);
  errno = saved;
}

static void *naps(void *number) {
  uint64_t random = (uintptr_t)number + 1;
  unsigned char *held[BLOCKS] = {0};
  size_t size[BLOCKS] = {0};
  for (int i = 0; i < NAPS; i++) {
    for (int k = 0; k < 200; k++) {
      size_t at = random_next(&random) % BLOCKS;
      REQUIRE(!held[at] || all_bytes(held[at], size[at], (int)(at ^ (uintptr_t)number)));
      masu_free(held[at]);
      size[at] = size_of_block(random_next(&random));
      held[at] = masu_malloc(size[at]);
      REQUIRE(held[at] != NULL);
      memset(held[at], (int)(at ^ (uintptr_t)number), size[at]);
    }
    usleep(NAP_US);
  }
  for (size_t at = 0; at < BLOCKS; at++)
    masu_free(held[at]);
  sub_relaxed(&naps_left, 1);
  return NULL;
}

static uint64_t taken_in_all;
static void take_if_asleep(heap *h, void *unused) {
  (void)unused;
  taken_in_all += sleeper_take(h);
}

/* Looked at without a pause, also in handlers that sleep over whatever they interrupted; what is taken is
 * tidied at once. */
static void nappers_keep_what_is_theirs(void **state) {
  pthread_t thread[NAPPERS];
  uint64_t random = 9;
  (void)state;
  signal(SIGUSR1, nap);
  taken_in_all = 0;
  store_relaxed(&naps_left, NAPPERS);
  for (uintptr_t i = 0; i < NAPPERS; i++)
    assert_int_equal(pthread_create(&thread[i], NULL, naps, (void *)i), 0);
  while (load_relaxed(&naps_left)) {
    roster_for_each(take_if_asleep, NULL);
    roster_tidy_parked();
    roster_give_back_spares();
    if (random_next(&random) % 4 == 0 && load_relaxed(&naps_left) == NAPPERS)
      pthread_kill(thread[random_next(&random) % NAPPERS], SIGUSR1);
  }
  for (int i = 0; i < NAPPERS; i++)
    pthread_join(thread[i], NULL);
  assert_true(taken_in_all > NAPPERS);
  assert_int_equal(roster_check(), 0);
}

#define TEST(f) cmocka_unit_test_setup(f, begin)

int main(void) {
#ifdef __SANITIZE_THREAD__
  return 77; /* no heap is taken there */
#endif
  const struct CMUnitTest tests[] = {
      TEST(who_sleeps_is_taken_and_finds_its_heap_again),
      TEST(old_return_addresses_are_no_interruption),
      TEST(the_helper_may_tidy_it_meanwhile),
      TEST(who_wakes_while_another_has_it_gets_another),
      TEST(who_ends_right_after_leaves_nothing),
      TEST(one_look_is_not_enough),
      TEST(nobody_else_is),
      TEST(a_heap_of_a_later_round_is_not),
      TEST(nappers_keep_what_is_theirs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
