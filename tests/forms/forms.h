/* forms: what the tests of the special forms share. Each test ends with masu_check(). */
#ifndef MASU_TESTS_FORMS_H
#define MASU_TESTS_FORMS_H

#include <gtest/gtest.h>
#include <masu.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "pattern.h"

/* Sanitizers and checked builds need memory of their own, and touch it. */
#if defined(MASU_NO_OVERRIDE) || defined(MASU_CHECKED)
#define EXACT_MEMORY 0
#else
#define EXACT_MEMORY 1
#endif

class FormTest : public testing::Test {
protected:
  void TearDown() override {
    EXPECT_EQ(masu_check(), 0) << "masu_check found a broken invariant";
  }
};

#define EXPECT_FAILS_WITH(why, expression)           \
  do {                                               \
    errno = 0;                                       \
    EXPECT_EQ((expression), nullptr) << #expression; \
    EXPECT_EQ(errno, why) << #expression;            \
  } while (0)

inline bool multiple_of(const void *p, size_t alignment) {
  return reinterpret_cast<uintptr_t>(p) % alignment == 0;
}

/* Runs f in a forked child; true when it came to its end without a failure. */
template <class F> bool in_forked_child(F f) {
  pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    f();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  return waitpid(pid, &status, 0) == pid && status == 0;
}

#endif
