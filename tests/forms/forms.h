/* forms: what the tests of the special forms share. Each test ends with masu_check(). */
#ifndef MASU_TESTS_FORMS_H
#define MASU_TESTS_FORMS_H

#include <gtest/gtest.h>
#include <masu.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
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

/* From now on this process is killed by every system call but exit_group. */
inline void forbid_system_calls() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  sock_fprog program = {sizeof code / sizeof *code, code};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* f returns whether all else went well. */
template <class F> bool makes_no_system_call(F f) {
  return in_forked_child([&] {
    forbid_system_calls();
    syscall(SYS_exit_group, !f()); /* masu's _exit asks for the process's number */
  });
}

/* Page faults of this process so far. */
inline long page_faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

#endif
