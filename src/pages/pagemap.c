#include "pages/pagemap.h"

#define LEAF_ENTRIES ((size_t)1 << (MAP_LEAF_SHIFT - SLICE_SHIFT))
#define LEAF_BYTES (LEAF_ENTRIES * sizeof(map_entry))

/* Behind its entries a leaf has a bit for each part of them: was anything ever written there? What was not is
 * never read, which would take memory. The system can't tell: to it, what is swapped out is not there either. */
enum { PART_ENTRIES = 512, LEAF_PARTS = LEAF_ENTRIES / PART_ENTRIES };

static size_t leaf_size(void) { return LEAF_BYTES + os_page(); }

/* leaf: biased, as in map_top. */
static char *leaf_start(uintptr_t leaf, size_t top_index) { return (char *)(leaf + top_index * LEAF_BYTES); }

/* The word with the bit of a slice's part. */
static atomic_u64 *parts_word(uintptr_t leaf, size_t slice, uint64_t *bit) {
  size_t part = slice / PART_ENTRIES % LEAF_PARTS;
  char *words = leaf_start(leaf, slice / LEAF_ENTRIES) + LEAF_BYTES;
  *bit = (uint64_t)1 << part % 64;
  return (atomic_u64 *)(void *)words + part / 64;
}

internal_def atomic_word map_top[MAP_TOP_SIZE];

/* Two threads may both make the leaf; the loser's is unmapped. */
static bool make_leaf(size_t top_index) {
  uintptr_t expected = 0;
  if (load_acquire(&map_top[top_index]))
    return true;
  char *leaf = os_map(leaf_size(), os_page());
  if (!leaf)
    return false;
  os_avoid_huge_pages(leaf, leaf_size());
  uintptr_t biased = (uintptr_t)leaf - top_index * LEAF_BYTES;
  if (!cas_acq_rel(&map_top[top_index], &expected, biased))
    os_unmap(leaf, leaf_size());
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

static void note_part(uintptr_t leaf, size_t slice) {
  uint64_t bit;
  atomic_u64 *word = parts_word(leaf, slice, &bit);
  if (UNLIKELY(!(load_relaxed(word) & bit)))
    or_relaxed(word, bit);
}

static bool part_is_noted(uintptr_t leaf, size_t slice) {
  uint64_t bit;
  return load_relaxed(parts_word(leaf, slice, &bit)) & bit;
}

internal void map_set(const void *start, size_t slices, map_entry entry) {
  uintptr_t slice = (uintptr_t)start >> SLICE_SHIFT;
  for (size_t i = slice; i < slice + slices; i++) {
    uintptr_t leaf = load_relaxed(&map_top[i >> (MAP_LEAF_SHIFT - SLICE_SHIFT)]);
    note_part(leaf, i);
    store_relaxed((atomic_u64 *)(leaf + i * sizeof(map_entry)), entry);
  }
}

internal void map_for_each(size_t (*visit)(char *start, map_entry entry, void *context), void *context) {
  size_t next = 0; /* slices before it are seen to */
  for (size_t top = 0; top < MAP_TOP_SIZE; top++) {
    uintptr_t leaf = load_acquire(&map_top[top]);
    size_t first = top * LEAF_ENTRIES;
    for (size_t at = first; leaf && at < first + LEAF_ENTRIES; at += PART_ENTRIES) {
      if (!part_is_noted(leaf, at))
        continue;
      for (size_t i = max_size(at, next); i < at + PART_ENTRIES; i = next) {
        char *start = (char *)(i << SLICE_SHIFT);
        map_entry e = map_get_in(leaf, start);
        next = i + (e == MAP_NONE ? 1 : visit(start, e, context));
      }
    }
  }
}

internal size_t map_resident(void) {
  size_t resident = 0;
  for (size_t top = 0; top < MAP_TOP_SIZE; top++) {
    uintptr_t leaf = load_acquire(&map_top[top]);
    resident += leaf ? os_resident_in(leaf_start(leaf, top), leaf_size()) : 0;
  }
  return resident;
}
