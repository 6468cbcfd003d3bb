/* System calls that a test answers itself, so that what else happens just then is no chance. */
#ifndef MASU_UNIT_TRAP_H
#define MASU_UNIT_TRAP_H

#include "unit.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <ucontext.h>

/* Returns what the call returns: a negative errno value if it fails. */
typedef long trap_answer(long number, const long *arguments);
static trap_answer *trapped;

static void on_trap(int signal, siginfo_t *info, void *context) {
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  const long arguments[] = {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10]};
  int saved = errno;
  (void)signal;
  r[REG_RAX] = trapped(info->si_syscall, arguments);
  errno = saved;
}

/* In a child, for as long as it lives, in this thread and in those that it starts. */
static inline void trap_calls(long one, long other, trap_answer *answer) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)one, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)other, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
  trapped = answer;
  REQUIRE(sigaction(SIGSYS, &action, NULL) == 0);
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

#endif
