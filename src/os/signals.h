/* signals: handlers of masu's, on signals that the program has no use for.
 *
 * A signal is taken only from the system's default, or where it is ignored, and given back only if it
 * is still masu's: a handler that the program sets meanwhile stays. (Nobody can look and set at
 * once: of two who do so in the same moment one is lost.)
 *
 * Handlers run on the alternate stack of the thread, if it has one: its own may be small, or at its end.
 * With all signals blocked: a handler that leaves by longjmp would take ours along. System calls that
 * are interrupted go on.
 *
 * Threads: any; who takes a signal gives it back.
 */
#ifndef MASU_OS_SIGNALS_H
#define MASU_OS_SIGNALS_H

#include "base/attr.h"

#include <signal.h>

typedef void signal_handler(int number, siginfo_t *info, void *context);

/* All zero: none. */
typedef struct taken_signal {
  int number; /* 0: none is taken */
  signal_handler *handler;
  struct sigaction before;
} taken_signal;

/* 0, also if it is masu's already, or an errno value: EBUSY if somebody handles it, or ignores it and that
 * matters; EINVAL if there is no such signal, none that can be caught, or one by which a thread hears of
 * its own faults. */
internal int signal_take(taken_signal *t, int number, signal_handler *handler, bool may_be_ignored);
internal bool signal_is_ours(const taken_signal *t);
/* As it was before, and pending no more. */
internal void signal_give_back(taken_signal *t);

#endif
