/* sized: blocks whose size the caller gives back (masu/sized.h).
 *
 * Blocks of a class lie in pieces of 512 KiB, aligned to that, whose first 64 bytes
 * describe them. A thread holds free blocks of a class in a list of up to BATCH and in a
 * full spare; so at most one exchange with the class's depot for every BATCH calls.
 *
 *     made == in use + in threads' lists + in the depot         of each class
 *
 * Links are addresses; in blocks of 4 bytes numbers: piece << 17 | index, plus 1.
 *
 * Threads: a thread's lists are its own. The depot and the pieces are guarded by
 * LOCK_SIZED; what a thread takes out it alone touches.
 */
#ifndef MASU_FORMS_SIZED_H
#define MASU_FORMS_SIZED_H

#include "masu/sized.h"
#include "base/attr.h"

/* Empties the calling thread's lists, which ends. */
internal void sized_thread_ends(void);

#endif
