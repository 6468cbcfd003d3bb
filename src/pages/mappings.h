/* mappings: memory for blocks above a huge page, each a mapping of its own.
 *
 * A range that was given back is kept for a while, resident, for whoever comes next.
 * A smaller mapping is cut from the smallest kept range that is large enough; a
 * larger one grows out of the largest, which the system moves without copying.
 * Neighbours join. Kept ranges age as the supply's slices do, and purge.h bounds
 * their sum.
 *
 *     kept == sum of the bytes of all entries
 *     used == sum of the bytes of all mappings taken and not given back
 *     the pagemap is prepared for every range, its entries are the caller's business
 *
 * Sizes are in slices. Threads: any; a mapping is resized by the one who has it.
 * Locks: takes LOCK_MAPPINGS, LOCK_SUPPLY, LOCK_META, one at a time.
 */
#ifndef MASU_PAGES_MAPPINGS_H
#define MASU_PAGES_MAPPINGS_H

#include "pages/slice.h"

/* align: in bytes, a power of two, at least SLICE_SIZE. NULL: out of memory.
 * *zeroed: all bytes are known to be zero. */
internal char *mapping_take(size_t slices, size_t align, bool *zeroed);
/* A whole mapping, or the end of one. */
internal void mapping_give(char *start, size_t slices);
/* Makes a mapping longer where it stands; false: what follows is not free. */
internal bool mapping_extend(char *start, size_t from, size_t to);
/* Makes it longer somewhere else; NULL: refused, nothing changed. The system refuses
 * to move what has become of two mappings side by side. */
internal char *mapping_move(char *start, size_t from, size_t to);

/* Returns the ranges kept unused for the purge delay, or all. Bytes returned. */
internal size_t mappings_purge(uint64_t now, bool all);
internal size_t mappings_kept(void);

#endif
