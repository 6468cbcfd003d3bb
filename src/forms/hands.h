/* hands: the free blocks of a shared pool, a part of them with each thread that uses it.
 *
 * A thread takes from its hand's runs and gives to them as the owner of a plain pool does. A block that
 * comes back when they are `most` bytes makes them its spare, and the spare before it goes on the pool's list as
 * a batch, where a thread without blocks finds it. So a thread that only takes, or only gives, comes to the list,
 * which is a compare-and-swap, once for `most` bytes of blocks, but for batches that are smaller.
 *
 * A batch is a block, in which are the other runs, the number of blocks, and the number of the next
 * batch: 16 bytes.
 *
 *     made == bytes in use + in all hands + waiting on the list
 *
 * Threads: a hand is its owner's alone, but for functions that have the pool for themselves. It is never
 * removed while the pool lives: the end of its thread empties it, and another takes it over. Hands get and lose
 * owners under LOCK_POOLS, which those functions hold as well: a thread may end that is done with the pool.
 * Figures are read while it changes. What threads that fork cut off held ready is lost to the child.
 */
#ifndef MASU_FORMS_HANDS_H
#define MASU_FORMS_HANDS_H

#include "forms/pool.h"

enum { BATCH_HEAD = 16 }; /* bytes of a block that is a batch */

/* A shared pool that is being created gets hands, if its blocks are large enough. */
internal void hands_init(pool *p);
/* It is destroyed. */
internal void hands_end(pool *p);
/* Blocks side by side that were never used go on the list. */
internal void hands_add(pool *p, char *start, char *end);
/* Bytes of all free blocks, for other threads as well. */
internal size_t hands_bytes(const pool *p);

/* The following have the pool for themselves, with the lock, and do nothing where there are no hands. */

internal void hands_hold(const pool *p);
internal void hands_let_go(const pool *p);

/* All that hands hold goes on the list. */
internal void hands_gather(pool *p);
/* No block is free. */
internal void hands_forget(pool *p);
/* The list, which is empty, gets these. Hands are empty. */
internal void hands_restart(pool *p, masu_runs runs);
/* The blocks of a batch. */
internal free_run batch_runs(const pool *p, char *b);

/* What the calling thread's hands hold goes on the lists. */
internal void hands_thread_ends(void);

#endif
