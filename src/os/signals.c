#include "os/signals.h"

#include <errno.h>

static bool is_of_a_fault(int number) {
  return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGTRAP ||
         number == SIGSYS || number == SIGABRT;
}

static bool is_handler(const struct sigaction *now, signal_handler *handler) {
  return (now->sa_flags & SA_SIGINFO) && now->sa_sigaction == handler;
}

static bool is_free(const struct sigaction *now, bool may_be_ignored) {
  return !(now->sa_flags & SA_SIGINFO) &&
         (now->sa_handler == SIG_DFL || (may_be_ignored && now->sa_handler == SIG_IGN));
}

static int take_signal(taken_signal *t, int number, signal_handler *handler, bool may_be_ignored) {
  struct sigaction now, ours = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
  sigfillset(&ours.sa_mask);
  if (is_of_a_fault(number))
    return EINVAL;
  if (sigaction(number, NULL, &now) != 0)
    return errno;
  if (!is_handler(&now, handler)) { /* else it was given away, and came back */
    if (!is_free(&now, may_be_ignored))
      return EBUSY;
    if (sigaction(number, &ours, NULL) != 0)
      return errno;
    t->before = now;
  }
  t->handler = handler;
  t->number = number;
  return 0;
}

internal int signal_take(taken_signal *t, int number, signal_handler *handler, bool may_be_ignored) {
  int saved = errno, why = take_signal(t, number, handler, may_be_ignored);
  errno = saved;
  return why;
}

internal bool signal_is_ours(const taken_signal *t) {
  int saved = errno;
  struct sigaction now;
  bool ours = t->number && sigaction(t->number, NULL, &now) == 0 && is_handler(&now, t->handler);
  errno = saved;
  return ours;
}

/* A signal that is ignored is pending no more: by default it would end the program, where a
 * thread lets it through later. */
internal void signal_give_back(taken_signal *t) {
  int saved = errno;
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  if (signal_is_ours(t)) {
    sigaction(t->number, &ignore, NULL);
    sigaction(t->number, &t->before, NULL);
  }
  t->number = 0;
  errno = saved;
}
