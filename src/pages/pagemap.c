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
