/* pagemap: from any address to the descriptor of the block there, and its owner.
 *
 * One entry of 64 bits for each slice of the user address space:
 *
 *     entry = descriptor address << 16 | tag
 *
 * An entry that is not MAP_NONE says that the whole slice is masu's. The tag tells
 * a thread in one compare whether the slab is its own. The map has two levels: a
 * static top with one word per 4 GiB, and leaves of 512 KiB and a page made when needed
 * and kept. A leaf's address is stored minus the offset of its first slice, so that
 * the full slice number indexes it.
 *
 *     top[a >> 32] == 0  or  top[a >> 32] + (a >> 16) * 8 is the entry of a
 *
 * Why two levels and not one flat array: docs/decisions/0001-two-level-map.md.
 *
 * Threads: reading takes no lock and may happen at any time. A slice's entry is
 * written only by who owns the run at that moment; entries are cleared before the
 * run is given back or unmapped.
 */
#ifndef MASU_PAGES_PAGEMAP_H
#define MASU_PAGES_PAGEMAP_H

#include "base/atomic.h"
#include "os/os.h"
#include "pages/slice.h"

typedef uint64_t map_entry;
typedef uint16_t map_tag;

/* Tags. Threads' own heaps get those from TAG_FIRST_HEAP on, limbs of named heaps those
 * from TAG_FIRST_LIMB on. TAG_NONE is that of an entry for
 * memory which isn't masu's, TAG_SHARED that of large blocks; TAG_NO_HEAP is what a thread
 * without a heap compares with and stands in no entry. */
enum {
  TAG_NONE,
  TAG_SHARED,
  TAG_NO_HEAP,
  TAG_FIRST_HEAP,
  TAG_FIRST_LIMB = 1 << 15,
  TAG_LIMIT = 1 << 16
};
#define MAP_NONE ((map_entry)0)

#define MAP_LEAF_SHIFT 32
#define MAP_TOP_SIZE ((size_t)1 << (OS_ADDRESS_BITS - MAP_LEAF_SHIFT))

internal_data atomic_word map_top[MAP_TOP_SIZE];

static inline map_entry map_entry_of(const void *descriptor, map_tag tag) {
  return (uint64_t)(uintptr_t)descriptor << 16 | tag;
}
static inline map_tag map_entry_tag(map_entry e) { return (map_tag)e; }
/* Of a slab of small blocks slab_of_entry says which it is (heap/slab.h): another descriptor may stand in for its own. */
static inline void *map_entry_descriptor(map_entry e) {
  return (void *)(uintptr_t)(e >> 16);
}

/* p may be anything below the top of the address space, NULL and foreign memory
 * included. The two steps apart, for the hot path: 0 means there is no entry. */
static ALWAYS_INLINE uintptr_t map_leaf(const void *p) {
  return load_relaxed(&map_top[(uintptr_t)p >> MAP_LEAF_SHIFT]);
}
static ALWAYS_INLINE map_entry map_get_in(uintptr_t leaf, const void *p) {
  uintptr_t slice = (uintptr_t)p >> SLICE_SHIFT;
  return load_relaxed((atomic_u64 *)(leaf + slice * sizeof(map_entry)));
}

static inline map_entry map_get(const void *p) {
  uintptr_t leaf = map_leaf(p);
  return LIKELY(leaf != 0) ? map_get_in(leaf, p) : MAP_NONE;
}

/* Makes the leaves for a range; false: no memory. Needed before map_set there. */
internal bool map_prepare(const void *start, size_t size);
/* Calls visit with the entries there are, in order, resident or swapped out; it says how many
 * slices, at least 1, it has seen to. Any thread, while entries may change. */
internal void map_for_each(size_t (*visit)(char *start, map_entry entry, void *context), void *context);
/* Bytes of the map's leaves that are resident. */
internal size_t map_resident(void);
/* start: a multiple of the slice size; slices >= 1. */
internal void map_set(const void *start, size_t slices, map_entry entry);

#endif
