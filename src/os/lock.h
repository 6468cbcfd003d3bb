/* lock: every lock of masu, in one table of ranks.
 *
 * A thread that holds a lock takes only locks of higher rank; that makes deadlock
 * impossible, but for signal handlers that fork, and it is the order in which fork takes them all. A waiter spins
 * a moment and then sleeps, so with many threads on few processors nobody burns
 * the time that the holder needs. No system call that takes long is made with a
 * lock held, but those by which masu gets memory for its own tables.
 *
 * Between locks_fork_prepare and locks_fork_release the forking thread owns every
 * lock, and taking or dropping one is for that thread a no-op: fork handlers
 * of the program may run on either side of ours and may allocate.
 */
#ifndef MASU_OS_LOCK_H
#define MASU_OS_LOCK_H

#include "base/attr.h"

typedef enum lock_rank {
  LOCK_POOLS,    /* shared pools that grow or get a hand; like the next held while memory is allocated */
  LOCK_SIZED,    /* the depots of sized blocks */
  LOCK_ORPHAN,   /* the heap of threads past their last destructor */
  LOCK_SAMPLES,  /* the heap of sampled blocks, and the records of them */
  LOCK_FORMS,    /* named heaps and what lives in them; held while limbs are parked or a heap
                    ends, and so while their memory goes back */
  LOCK_SETTINGS, /* while they are read, and a file with them: before there is any heap */
  LOCK_ROSTER,   /* the lists of heaps */
  LOCK_SUPPLY,   /* regions, free runs, purging */
  LOCK_MAPPINGS, /* ranges kept for blocks above a huge page */
  LOCK_META,     /* masu's own memory */
  LOCK_CPU,      /* the timers of the CPU profiler; a thread that gets its heap takes it with any
                    other held */
  LOCK_COUNT
} lock_rank;

internal void lock_take(lock_rank rank);
internal void lock_drop(lock_rank rank);

/* interrupted: the caller may be a signal handler that interrupted masu. Its thread may have a lock
 * already and takes lower ones here, so another thread that has one of them must not wait for
 * that. Also for who stops all other threads, and wants none of them to have a lock. */
internal void locks_fork_prepare(bool interrupted);
/* In the parent and in the child. */
internal void locks_fork_release(void);

#endif
