/* stop: holds the other threads of the process where they are, and says where their
 * stacks begin.
 *
 * Each gets a signal that the program has no use for; in the handler it says where it is
 * and waits. So none of a debugger's rights are needed. Threads that start meanwhile are
 * found by looking again until there is none that is new. A thread that keeps signals
 * blocked, or hangs in the system, does not answer and runs on. masu's own threads take no
 * signals and are left alone.
 *
 * A system call that a held thread was in goes on afterwards, or returns EINTR, as after
 * any handler with SA_RESTART.
 *
 * Threads: one at a time. Whoever holds others must own every lock that it will want: a
 * thread that is held may have any other.
 */
#ifndef MASU_OS_STOP_H
#define MASU_OS_STOP_H

#include "base/attr.h"

typedef struct stopped_thread {
  unsigned id;     /* as the system knows it */
  uintptr_t self;  /* its os_thread_self */
  uintptr_t stack; /* its stack pointer, or lower */
  /* Its registers are above that, or else on the alternate signal stack, of which this part
   * is in use; 0: none is. */
  uintptr_t other, other_end;
} stopped_thread;

/* Holds them until stop_end. *unanswered: so many run on, masu's own not counted. False:
 * the system does not say which threads there are, and none is held. */
internal bool stop_threads(size_t *unanswered);
/* Those that are held. */
internal void stop_for_each(void (*visit)(const stopped_thread *t, void *context), void *context);
internal void stop_end(void);

#endif
