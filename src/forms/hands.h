/* hands: the free blocks of a shared pool, a part of them with each thread that uses it.
 *
 * A thread takes from its hand's runs and gives to them as the owner of a plain pool does. When they come to
 * `most` bytes they become its spare, and the spare before it goes on the pool's list as a batch, where
 * a thread without blocks finds it. So a thread comes to the list, which is a compare-and-swap, at most once for
 * `most` bytes of blocks.
 *
 * A batch is a block, in which are the other runs, the number of blocks, and the number of the next
 * batch: 16 bytes.
 *
 *     made == bytes in use + in all hands + waiting on the list
 *
 * Threads: a hand is its owner's alone, but for functions that have the pool for themselves. It is never
 * removed while the pool lives: the end of its thread empties it, and another takes it over. Figures are read
 * while it changes.
 */
#ifndef MASU_FORMS_HANDS_H
#define MASU_FORMS_HANDS_H

#include "forms/pool.h"

/* A shared pool that is being created gets hands, if its blocks are large enough. */
internal void hands_init(pool *p);
/* It is destroyed. */
internal void hands_end(pool *p);
/* Blocks side by side that were never used go on the list. */
internal void hands_add(pool *p, char *start, char *end);
/* Bytes of all free blocks, for other threads as well. */
internal size_t hands_bytes(const pool *p);

/* The following have the pool for themselves, and do nothing where there are no hands. */

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
