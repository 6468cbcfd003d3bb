/* stop: threads of all kinds are held, and go on. */
#include "unit.h"

#include <signal.h>

#include "os/os.h"
#include "os/stop.h"
#include "trap.h"

enum { DEADLINE_MS = 60000 };

static void wait_for(atomic_u32 *word, uint32_t least) {
  for (int ms = 0; load_acquire(word) < least; ms++) {
    REQUIRE(ms < DEADLINE_MS);
    os_sleep_ms(1);
  }
}

static atomic_u32 ready, leave;
static atomic_u64 turns;

static void *turns_round(void *unused) {
  (void)unused;
  add_relaxed(&ready, 1);
  while (!load_acquire(&leave))
    add_relaxed(&turns, 1);
  return NULL;
}

static int pipe_ends[2];

static void *reads(void *unused) {
  char c;
  (void)unused;
  add_relaxed(&ready, 1);
  REQUIRE(read(pipe_ends[0], &c, 1) == 1); /* not EINTR */
  return NULL;
}

static void *is_deaf(void *unused) {
  sigset_t all;
  (void)unused;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  add_relaxed(&ready, 1);
  while (!load_acquire(&leave))
    os_sleep_ms(1);
  return NULL;
}

static pthread_t started(void *(*body)(void *)) {
  pthread_t thread;
  uint32_t before = load_relaxed(&ready);
  assert_int_equal(pthread_create(&thread, NULL, body, NULL), 0);
  wait_for(&ready, before + 1);
  return thread;
}

static void let_go(pthread_t *threads, size_t count) {
  store_release(&leave, 1);
  for (size_t i = 0; i < count; i++)
    pthread_join(threads[i], NULL);
  store_relaxed(&leave, 0);
}

typedef struct seen {
  size_t count, own_stacks;
  uintptr_t self[64];
} seen;

static void note(const stopped_thread *t, void *any) {
  seen *s = any;
  REQUIRE(s->count < 64);
  s->self[s->count++] = t->self;
  s->own_stacks += t->stack < t->self && t->self - t->stack < 64 * MIB;
}

static bool has(const seen *s, pthread_t thread) {
  for (size_t i = 0; i < s->count; i++)
    if (s->self[i] == (uintptr_t)thread) /* which it is, in glibc */
      return true;
  return false;
}

static void test_alone(void **state) {
  (void)state;
  size_t unanswered = 1;
  seen s = {0};
  assert_true(stop_threads(&unanswered));
  stop_for_each(note, &s);
  stop_end();
  assert_int_equal(s.count, 0);
  assert_int_equal(unanswered, 0);
}

static void test_they_stand_still_and_go_on(void **state) {
  (void)state;
  pthread_t threads[4];
  for (size_t i = 0; i < 4; i++)
    threads[i] = started(turns_round);
  for (int round = 0; round < 20; round++) {
    size_t unanswered;
    seen s = {0};
    assert_true(stop_threads(&unanswered));
    uint64_t before = load_acquire(&turns);
    stop_for_each(note, &s);
    os_sleep_ms(2);
    assert_int_equal(load_acquire(&turns), before);
    stop_end();
    assert_int_equal(unanswered, 0);
    assert_int_equal(s.count, 4);
    assert_int_equal(s.own_stacks, 4);
    for (size_t i = 0; i < 4; i++)
      assert_true(has(&s, threads[i]));
    for (int ms = 0; load_acquire(&turns) == before; ms++) {
      assert_true(ms < DEADLINE_MS);
      os_sleep_ms(1);
    }
  }
  let_go(threads, 4);
}

static void test_a_system_call_goes_on(void **state) {
  (void)state;
  size_t unanswered;
  assert_int_equal(pipe(pipe_ends), 0);
  pthread_t thread = started(reads);
  for (int round = 0; round < 10; round++) {
    assert_true(stop_threads(&unanswered));
    stop_end();
    assert_int_equal(unanswered, 0);
  }
  assert_int_equal(write(pipe_ends[1], "x", 1), 1);
  pthread_join(thread, NULL);
}

/* It is left alone, does not get the signal later, and the others are held. */
static void test_a_thread_that_takes_no_signals(void **state) {
  (void)state;
  size_t unanswered;
  seen s = {0};
  pthread_t threads[] = {started(is_deaf), started(turns_round)};
  assert_true(stop_threads(&unanswered));
  stop_for_each(note, &s);
  stop_end();
  assert_int_equal(unanswered, 1);
  assert_int_equal(s.count, 1);
  assert_true(has(&s, threads[1]));
  let_go(threads, 2);
}

/* Signals that were on their way when the program did not take them would end it. */
static void test_the_signal_is_the_programs_again(void **state) {
  (void)state;
  size_t unanswered;
  pthread_t thread = started(turns_round);
  assert_true(stop_threads(&unanswered));
  stop_end();
  let_go(&thread, 1);
  for (int n = SIGRTMIN; n <= SIGRTMAX; n++) {
    struct sigaction now;
    assert_int_equal(sigaction(n, NULL, &now), 0);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
  }
}

/* Its program blocks it, in all threads, and reads it when it likes. */
static void test_a_signal_that_is_waited_for_stays(void **state) {
  (void)state;
  const struct timespec none = {0, 0};
  size_t unanswered;
  sigset_t read, before;
  siginfo_t info;
  sigemptyset(&read);
  sigaddset(&read, SIGRTMAX - 1);
  assert_int_equal(pthread_sigmask(SIG_BLOCK, &read, &before), 0);
  pthread_t thread = started(turns_round);
  assert_int_equal(sigqueue(getpid(), SIGRTMAX - 1, (union sigval){.sival_int = 77}), 0);
  assert_true(stop_threads(&unanswered));
  stop_end();
  assert_int_equal(unanswered, 0);
  assert_int_equal(sigtimedwait(&read, &info, &none), SIGRTMAX - 1);
  assert_int_equal(info.si_value.sival_int, 77);
  let_go(&thread, 1);
  assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}

static void own_handler(int number) { (void)number; }

static void test_a_handler_that_the_program_sets_meanwhile_stays(void **state) {
  (void)state;
  size_t unanswered;
  struct sigaction now, own = {.sa_handler = own_handler};
  int number = SIGRTMAX;
  pthread_t thread = started(turns_round);
  assert_true(stop_threads(&unanswered));
  do
    assert_int_equal(sigaction(--number, NULL, &now), 0);
  while (now.sa_handler == SIG_DFL);
  assert_int_equal(sigaction(number, &own, NULL), 0);
  stop_end();
  let_go(&thread, 1);
  assert_ptr_equal(signal(number, SIG_DFL), own_handler);
}

/* It waits for signals when it is looked at first, and no more when it is looked at again. */
static struct {
  pthread_t thread;
  atomic_u32 id, is_outside, may_end;
} waiter;

static void *waits_for_a_signal(void *unused) {
  const struct timespec none = {0, 0};
  sigset_t all;
  int number;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  store_release(&waiter.id, os_thread_id());
  REQUIRE(sigwait(&all, &number) == 0 && number == SIGUSR1);
  store_release(&waiter.is_outside, 1);
  wait_for(&waiter.may_end, 1);
  REQUIRE(sigtimedwait(&all, NULL, &none) == -1); /* nobody else sent it one */
  return unused;
}

static bool waiter_waits(void) {
  char path[64], text[256];
  int why;
  snprintf(path, sizeof path, "/proc/self/task/%u/syscall", load_relaxed(&waiter.id));
  text[os_file_read(path, text, sizeof text - 1, &why)] = 0;
  return strtol(text, NULL, 10) == SYS_rt_sigtimedwait && *text;
}

static long open_when_it_is_outside(long number, const long *arguments) {
  const char *path = (const char *)arguments[1], *slash = strrchr(path, '/');
  (void)number;
  if (slash && !strcmp(slash, "/syscall")) {
    if (!load_relaxed(&waiter.is_outside))
      REQUIRE(pthread_kill(waiter.thread, SIGUSR1) == 0);
    wait_for(&waiter.is_outside, 1);
  }
  long file = syscall(SYS_open, path, arguments[2], arguments[3]);
  return file < 0 ? -errno : file;
}

static void stop_one_that_stops_waiting(void) {
  size_t unanswered;
  REQUIRE(pthread_create(&waiter.thread, NULL, waits_for_a_signal, NULL) == 0);
  wait_for(&waiter.id, 1);
  for (int ms = 0; !waiter_waits(); ms++) {
    REQUIRE(ms < DEADLINE_MS);
    os_sleep_ms(1);
  }
  trap_calls(SYS_openat, SYS_openat, open_when_it_is_outside);
  REQUIRE(stop_threads(&unanswered) && unanswered == 1);
  store_release(&waiter.may_end, 1);
  pthread_join(waiter.thread, NULL);
  stop_end();
}

static void test_a_thread_that_waits_for_signals(void **state) {
  (void)state;
  in_child(stop_one_that_stops_waiting);
}

static void *starts_another(void *unused) {
  pthread_t next;
  (void)unused;
  add_relaxed(&ready, 1);
  os_sleep_ms(1);
  if (load_acquire(&leave))
    return NULL;
  REQUIRE(pthread_create(&next, NULL, starts_another, NULL) == 0);
  pthread_detach(next);
  return NULL;
}

/* One follows another, and there is never one that is not held. */
static void test_threads_that_start_meanwhile(void **state) {
  (void)state;
  pthread_t first = started(starts_another);
  pthread_detach(first);
  for (int round = 0; round < 30; round++) {
    size_t unanswered;
    assert_true(stop_threads(&unanswered));
    assert_int_equal(unanswered, 0);
    uint32_t before = load_acquire(&ready);
    os_sleep_ms(3);
    assert_int_equal(load_acquire(&ready), before);
    stop_end();
    wait_for(&ready, before + 1);
  }
  store_release(&leave, 1);
  while (os_thread_count() > 1)
    os_sleep_ms(1);
  store_relaxed(&leave, 0);
}

/* A thread on an alternate stack says where both are. */
static char alternate[64 * 1024];
static atomic_u32 in_handler;

static void waits_in_handler(int number) {
  (void)number;
  store_release(&in_handler, 1);
  while (!load_acquire(&leave))
    os_sleep_ms(1);
}

static void *has_alternate_stack(void *unused) {
  stack_t usual, s = {.ss_sp = alternate, .ss_size = sizeof alternate};
  struct sigaction a = {.sa_handler = waits_in_handler, .sa_flags = SA_ONSTACK};
  (void)unused;
  REQUIRE(sigaltstack(&s, &usual) == 0 && sigaction(SIGUSR1, &a, NULL) == 0);
  add_relaxed(&ready, 1);
  while (!load_acquire(&leave))
    os_sleep_ms(1);
  REQUIRE(sigaltstack(&usual, NULL) == 0); /* a sanitizer has one */
  return NULL;
}

static void note_alternate(const stopped_thread *t, void *any) {
  uintptr_t low = (uintptr_t)alternate, high = low + sizeof alternate;
  assert_true(t->other > low && t->other < high);
  assert_int_equal(t->other_end, high);
  *(bool *)any = t->stack > low && t->stack < high;
}

static void test_alternate_stacks(void **state) {
  (void)state;
  size_t unanswered;
  bool inside = true;
  pthread_t thread = started(has_alternate_stack);
  assert_true(stop_threads(&unanswered));
  stop_for_each(note_alternate, &inside);
  stop_end();
  assert_false(inside);
  assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
  wait_for(&in_handler, 1);
  assert_true(stop_threads(&unanswered));
  stop_for_each(note_alternate, &inside);
  stop_end();
  assert_true(inside);
  let_go(&thread, 1);
}

int main(void) {
#ifdef __SANITIZE_THREAD__
  return 77; /* it holds signals back */
#endif
  alarm(300);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_alone),
      cmocka_unit_test(test_they_stand_still_and_go_on),
      cmocka_unit_test(test_a_system_call_goes_on),
      cmocka_unit_test(test_a_thread_that_takes_no_signals),
      cmocka_unit_test(test_the_signal_is_the_programs_again),
      cmocka_unit_test(test_a_signal_that_is_waited_for_stays),
      cmocka_unit_test(test_a_handler_that_the_program_sets_meanwhile_stays),
      cmocka_unit_test(test_a_thread_that_waits_for_signals),
      cmocka_unit_test(test_threads_that_start_meanwhile),
      cmocka_unit_test(test_alternate_stacks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
