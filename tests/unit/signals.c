/* signals: they are taken where nobody has a use for them, and given back. */
#include "unit.h"

#include "os/signals.h"

static volatile sig_atomic_t caught;
static void note_signal(int number, siginfo_t *info, void *context) {
  caught = info && context ? number : -1;
}
static void another(int number, siginfo_t *info, void *context) {
  (void)number, (void)info, (void)context;
}
static void of_the_program(int number) { (void)number; }

/* Tests end with all as it was at first. */
static int begin(void **state) {
  (void)state;
  errno = 77;
  caught = 0;
  return 0;
}
static int end(void **state) {
  (void)state;
  signal(SIGUSR1, SIG_DFL);
  return errno == 77 ? 0 : -1;
}

static bool is_default(int number) {
  struct sigaction now;
  return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_DFL;
}

static void signals_that_are_never_taken(void **state) {
  static const int never[] = {0, 65, SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGABRT};
  taken_signal t = {0};
  (void)state;
  for (size_t i = 0; i < sizeof never / sizeof *never; i++)
    assert_int_equal(signal_take(&t, never[i], note_signal, true), EINVAL);
  assert_false(signal_is_ours(&t));
  signal_give_back(&t);
}

static void a_signal_that_nobody_has_a_use_for(void **state) {
  taken_signal t = {0}, other = {0};
  (void)state;
  assert_int_equal(signal_take(&t, SIGUSR1, note_signal, false), 0);
  assert_true(signal_is_ours(&t));
  raise(SIGUSR1);
  assert_int_equal(caught, SIGUSR1);
  assert_int_equal(signal_take(&t, SIGUSR1, note_signal, false), 0);
  assert_int_equal(signal_take(&other, SIGUSR1, another, true), EBUSY);
  signal_give_back(&t);
  assert_false(signal_is_ours(&t));
  assert_true(is_default(SIGUSR1));
}

static void a_signal_that_is_ignored(void **state) {
  taken_signal t = {0};
  (void)state;
  signal(SIGUSR1, SIG_IGN);
  assert_int_equal(signal_take(&t, SIGUSR1, note_signal, false), EBUSY);
  assert_int_equal(signal_take(&t, SIGUSR1, note_signal, true), 0);
  raise(SIGUSR1);
  assert_int_equal(caught, SIGUSR1);
  signal_give_back(&t);
  assert_ptr_equal(signal(SIGUSR1, SIG_DFL), SIG_IGN);
}

/* It may also come back: who sets a handler for a while puts there again what was before. */
static void a_handler_that_the_program_sets_meanwhile(void **state) {
  taken_signal t = {0};
  struct sigaction own = {.sa_handler = of_the_program}, ours;
  (void)state;
  assert_int_equal(signal_take(&t, SIGUSR1, note_signal, false), 0);
  assert_int_equal(sigaction(SIGUSR1, &own, &ours), 0);
  assert_false(signal_is_ours(&t));
  signal_give_back(&t);
  assert_int_equal(signal_take(&t, SIGUSR1, note_signal, false), EBUSY);
  assert_int_equal(sigaction(SIGUSR1, &ours, &own), 0);
  assert_ptr_equal(own.sa_handler, of_the_program);
  assert_int_equal(signal_take(&t, SIGUSR1, note_signal, false), 0);
  signal_give_back(&t);
  assert_true(is_default(SIGUSR1));
}

/* By default it would end the program when it is let through. */
static void what_is_pending_goes_too(void **state) {
  taken_signal t = {0};
  sigset_t one;
  (void)state;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  assert_int_equal(signal_take(&t, SIGUSR1, note_signal, false), 0);
  pthread_sigmask(SIG_BLOCK, &one, NULL);
  raise(SIGUSR1);
  signal_give_back(&t);
  pthread_sigmask(SIG_UNBLOCK, &one, NULL);
  assert_int_equal(caught, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void) {
#ifdef __SANITIZE_THREAD__
  return 77; /* it holds signals back */
#endif
  const struct CMUnitTest tests[] = {
      TEST(signals_that_are_never_taken),
      TEST(a_signal_that_nobody_has_a_use_for),
      TEST(a_signal_that_is_ignored),
      TEST(a_handler_that_the_program_sets_meanwhile),
      TEST(what_is_pending_goes_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
