#include "pages/pagemap.h"

#define LEAF_ENTRIES ((size_t)1 << (MAP_LEAF_SHIFT - SLICE_SHIFT))
#define LEAF_BYTES (LEAF_ENTRIES * sizeof(map_entry))

internal_def atomic_word map_top[MAP_TOP_SIZE];

/* Two threads may both make the leaf; the loser's is unmapped. */
static bool make_leaf(size_t top_index) {
  uintptr_t expected = 0;
  if (load_acquire(&map_top[top_index]))
    return true;
  char *leaf = os_map(LEAF_BYTES, os_page());
  if (!leaf)
    return false;
  os_avoid_huge_pages(leaf, LEAF_BYTES);
  uintptr_t biased = (uintptr_t)leaf - top_index * LEAF_BYTES;
  if (!cas_acq_rel(&map_top[top_index], &expected, biased))
    os_unmap(leaf, LEAF_BYTES);
  return true;
}

internal bool map_prepare(const void *start, size_t size) {
  size_t first = (uintptr_t)start >> MAP_LEAF_SHIFT;
  size_t last = ((uintptr_t)start + size - 1) >> MAP_LEAF_SHIFT;
  for (size_t i = first; i <= last; i++)
    if (!make_leaf(i))
      return false;
  return true;
}

internal void map_set(const void *start, size_t slices, map_entry entry) {
  uintptr_t slice = (uintptr_t)start >> SLICE_SHIFT;
  for (size_t i = slice; i < slice + slices; i++) {
    uintptr_t leaf = load_relaxed(&map_top[i >> (MAP_LEAF_SHIFT - SLICE_SHIFT)]);
    store_relaxed((atomic_u64 *)(leaf + i * sizeof(map_entry)), entry);
  }
}

internal size_t map_for_each(size_t (*visit)(char *start, map_entry entry, void *context),
                             void *context) {
  const size_t page = os_page(), in_page = page / sizeof(map_entry);
  size_t resident = 0, next = 0; /* slices before `next` are seen to */
  for (size_t top = 0; top < MAP_TOP_SIZE; top++) {
    uintptr_t leaf = load_acquire(&map_top[top]);
    size_t first = top * LEAF_ENTRIES;
    for (size_t at = first; leaf && at < first + LEAF_ENTRIES; at += in_page) {
      const void *entries = (const void *)(leaf + at * sizeof(map_entry));
      if (!os_resident_in(entries, page)) /* nothing was ever entered */
        continue;
      resident += page;
      for (size_t i = max_size(at, next); i < at + in_page; i = next) {
        char *start = (char *)(i << SLICE_SHIFT);
        map_entry e = map_get_in(leaf, start);
        next = i + (e == MAP_NONE ? 1 : visit(start, e, context));
      }
    }
  }
  return resident;
}
