/* mappings: memory for blocks above a huge page, each a mapping of its own.
 *
 * A range that was given back is kept for a while, resident, for whoever comes next.
 * A smaller mapping is cut from the smallest kept range that is large enough; a
 * larger one grows out of the largest, which the system moves without copying.
 * Neighbours join. How much is kept, and how long, is the supply's business.
 *
 *     kept == sum of the bytes of all ranges
 *     the pagemap is prepared for every range, its entries are the caller's business
 *
 * Sizes are in slices where not said otherwise. Threads: any; a mapping is resized
 * by the one who has it. Locks: takes LOCK_MAPPINGS, LOCK_META, one at a time.
 */
#ifndef MASU_PAGES_MAPPINGS_H
#define MASU_PAGES_MAPPINGS_H

#include "pages/slice.h"

/* align: in bytes, a power of two, at least SLICE_SIZE. */

/* Out of what is kept; NULL: no range is large enough. */
internal char *mapping_take_kept(size_t slices, size_t align);
/* With the help of the system; NULL: out of memory. *dirty: so many bytes at the
 * start may not be zero. */
internal char *mapping_take_fresh(size_t slices, size_t align, size_t *dirty);
/* A whole mapping, or the end of one. Returns the bytes that were not kept. */
internal size_t mapping_give(char *start, size_t slices);

/* Makes a mapping longer where it stands, out of what is kept, or with the help of
 * the system; false: what follows is not free, or memory is short. */
internal bool mapping_extend_kept(char *start, size_t from, size_t to);
internal bool mapping_extend_fresh(char *start, size_t from, size_t to);
/* Makes it longer somewhere else; NULL: refused, nothing changed. The system refuses
 * to move what has become of two mappings side by side. */
internal char *mapping_move(char *start, size_t from, size_t to);

/* Returns the oldest ranges to the system, as far as they were unused for `delay` ms,
 * about `size` bytes of them. The bytes returned. */
internal size_t mappings_unmap(size_t size, uint64_t now, uint64_t delay);
/* In bytes. */
internal size_t mappings_kept(void);
internal size_t mappings_resident(void);

#endif
