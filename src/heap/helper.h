/* helper: the thread that gives memory back while the program sleeps.
 *
 * Only a process that has threads gets one: started from the wrapped thread
 * creation, never from malloc or free, because the C library may hold the lock that
 * creating a thread needs. It sleeps on the bell while nothing is idle. It stays to
 * the end of the process: once gone nothing but another thread creation could bring
 * it back (docs/decisions/0004-helper-stays.md).
 *
 * A process whose initial thread has ended ends with its last thread, which must not
 * be the helper waiting: from then on it looks whether it is alone, and leaves.
 */
#ifndef MASU_HEAP_HELPER_H
#define MASU_HEAP_HELPER_H

#include "base/atomic.h"

/* Starts the helper unless it runs or the option `helper` is 0. Not with locks. */
internal void helper_ensure(void);
/* It will tidy the heaps that are parked from now on. */
internal bool helper_is_running(void);
/* The initial thread is ending, and not by leaving main. */
internal void helper_initial_thread_ends(void);
/* For other threads of masu's own, which must not keep the process either: are they, with
 * the helper, all that is left; how long one that waits sleeps at most, in ms (0: no limit);
 * called when that changes. */
internal bool helper_is_last_thread(void);
internal uint32_t helper_step_ms(void);
internal_data _Atomic(void (*)(void)) helper_lonely_hook;
/* In a forked child, which has no helper. */
internal void helper_fork_child(void);

/* Gives everything idle back to the system now; returns bytes. Any thread. */
internal size_t helper_give_back_all(size_t keep);

#endif
