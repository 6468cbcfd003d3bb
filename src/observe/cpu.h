/* cpu: the CPU profiler of masu/cpu.h: where the threads spend their time.
 *
 * Each thread has a timer on the clock of its CPU time, which fires once, and which the handler
 * sets again: whoever takes the signal away has quiet after one more. A thread's samples are due
 * at a random moment within its first period and a period apart from then on, so that short
 * threads have their chance as well; a handler that comes late counts all that are due.
 *
 * Who gives a thread its timer: those that are there when the profiler is started get theirs from
 * it; a thread that is made by pthread_create or thrd_create has its own as the first it does
 * (cpu_thread_begins), and one that was made otherwise when it gets a heap (thread_join_hook). All
 * others are found by a thread, masu-cpu, which looks five times a second, and which also drops the
 * timers of those that have ended. It is started when there are threads to look for: a program
 * without threads stays one.
 *
 * Files meanwhile are written by masu-cpu or, in a program without threads, by the handler, where it did not
 * interrupt masu. Else the handler takes no lock and allocates nothing. It counts in a table with room for a fixed
 * number of stacks, made at the start:
 *
 *     a bin points at a stack or at none; what it points at never changes but for its counts
 *     samples of all stacks + lost == samples taken
 *
 * Threads: any; LOCK_CPU guards the list of timers. docs/decisions/0014-*.md says why so.
 */
#ifndef MASU_OBSERVE_CPU_H
#define MASU_OBSERVE_CPU_H

#include "base/attr.h"

/* What the options ask for, at start and when the process ends. */
internal void cpu_begin(void);
internal void cpu_end(void);
/* Bytes of the table that are resident. */
internal size_t cpu_resident(void);
/* Is a thread that is about to be made to call cpu_thread_begins? */
internal bool cpu_wants_threads(void);
internal void cpu_thread_begins(void);
/* In its creator, when it was made. The C library holds no lock. */
internal void cpu_thread_made(void);

#endif
