#include "unit.h"

#include <signal.h>

#include "os/report.h"

/* What body writes to stderr, and the status that it ends with; 0: it returned. */
static char written[8192];
static int status;

static void capture(void (*body)(void)) {
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  pid_t child = _Fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGABRT, SIG_DFL);
    dup2(fds[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(fds[1]);
  size_t length = 0;
  for (ssize_t n; (n = read(fds[0], written + length, sizeof written - 1 - length)) > 0;)
    length += (size_t)n;
  written[length] = 0;
  close(fds[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
}

static void say(void) {
  errno = 77;
  report("%d of %s", 5, "seven");
  report("done");
  REQUIRE(errno == 77);
}

static void one_line_each(void **state) {
  (void)state;
  capture(say);
  assert_string_equal(written, "masu: 5 of seven\nmasu: done\n");
  assert_int_equal(status, 0);
}

static size_t say_length;
static void say_much(void) {
  static char text[2000];
  memset(text, 'x', say_length);
  report("%s", text);
}

static void long_lines_are_cut_but_end(void **state) {
  (void)state;
  for (say_length = 490; say_length < 530; say_length++) {
    capture(say_much);
    size_t length = strlen(written);
    assert_in_range(length, 490, 512);
    assert_true(length == 6 + say_length + 1 || length > 500);
    assert_int_equal(written[length - 1], '\n');
    assert_int_equal(strspn(written + 6, "x"), length - 7);
  }
}

static void find_violations(void) {
  REQUIRE(report_violation(false, "never", NULL) == 0);
  REQUIRE(report_violation(true, "count", (void *)0x1234) == 1);
}

static void violations_are_counted(void **state) {
  (void)state;
  capture(find_violations);
  assert_string_equal(written, "masu: check: count: 0x1234\n");
  assert_int_equal(status, 0);
}

static void misuse(void) { report_misuse("double free", (void *)0xabc0); }

static void misuse_ends_the_program(void **state) {
  (void)state;
  capture(misuse);
  assert_string_equal(written, "masu: double free: 0xabc0\n");
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_line_each),
      cmocka_unit_test(long_lines_are_cut_but_end),
      cmocka_unit_test(violations_are_counted),
      cmocka_unit_test(misuse_ends_the_program),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
