#include "heap/sizes.h"

#include "os/os.h"

/* The section is one that the loader makes read-only after it has relocated the library,
 * so that default tables are as safe as constants, and shared by all processes. */
#define STEPS_OF(c, below, size, slices)                                       \
  [(below) / CLASS_STEP + ((below) != 0) ... (size) / CLASS_STEP] = (c) * sizeof(void *),
#define SIZE_OF(c, below, size, slices) [c] = size,
#define SLICES_OF(c, below, size, slices) [c] = slices,
__attribute__((section(".data.rel.ro"))) internal_def class_tables class_table = {
    .by_step = {TABLE_CLASSES(STEPS_OF)},
    .sizes = {TABLE_CLASSES(SIZE_OF) UPPER_CLASSES(SIZE_OF)},
    .slices = {TABLE_CLASSES(SLICES_OF) UPPER_CLASSES(SLICES_OF)},
};
#undef STEPS_OF
#undef SIZE_OF
#undef SLICES_OF

internal unsigned class_aligned(size_t size, size_t align) {
  if (size > SMALL_MAX || align > TABLE_MAX)
    return CLASS_COUNT;
  /* The first one serves, where classes are the default ones: those of a doubling are multiples of a
   * fourth of it, and what has to be a multiple of more is a class itself. Of others the
   * next power of two does at the latest. */
  unsigned c = class_of(ROUND_UP(max_size(size, 1), align));
  while (c < CLASS_COUNT && class_size(c) & (align - 1))
    c++;
  return c;
}

/* ---- Other classes ---- */

enum { GRAIN = 16, GRAINS = TABLE_MAX / GRAIN };

#define SIZE_OF(c, below, size, slices) size,
static const uint16_t default_sizes[TABLE_COUNT] = {TABLE_CLASSES(SIZE_OF)};
#undef SIZE_OF

/* Which multiples of 16 are classes. */
typedef struct chosen {
  bool is[GRAINS + 1];
  unsigned count;
} chosen;

static void choose(chosen *set, size_t size) {
  set->count += !set->is[size / GRAIN];
  set->is[size / GRAIN] = true;
}

/* The smallest chosen one that holds a multiple of 16. */
static size_t smallest_for(const chosen *set, size_t size) {
  size_t i = size / GRAIN;
  while (!set->is[i])
    i++;
  return i * GRAIN;
}

/* TABLE_MAX is in the set. One is always found: there are TABLE_COUNT default sizes. */
static void choose_default(chosen *set) {
  size_t best = 0, loses = 0;
  for (unsigned c = 1; c < TABLE_COUNT; c++) {
    size_t size = default_sizes[c], now = smallest_for(set, size);
    if (now > size && (!best || now * best > loses * size)) {
      best = size;
      loses = now;
    }
  }
  choose(set, best);
}

static sizes_fault choose_listed(chosen *set, const uint32_t *sizes, size_t count, size_t *at) {
  for (size_t i = 0; i < count; i++) {
    *at = i;
    if (sizes[i] != CLASS_STEP && (!sizes[i] || sizes[i] % GRAIN || sizes[i] > TABLE_MAX))
      return SIZES_BAD;
    if (i && sizes[i] <= sizes[i - 1])
      return SIZES_ORDER;
    if (sizes[i] != CLASS_STEP)
      choose(set, sizes[i]);
    if (set->count >= TABLE_COUNT) /* 8 is one more */
      return SIZES_TOO_MANY;
  }
  return SIZES_FIT;
}

/* At least 4 blocks and a tail of at most 1/32; 16 slices are enough for any size. */
static uint8_t slices_of_slab(size_t size) {
  unsigned slices = 0;
  size_t bytes;
  do
    bytes = ++slices * SLICE_SIZE;
  while (bytes / size < 4 || bytes % size * 32 > bytes);
  return (uint8_t)slices;
}

static void write_class(unsigned c, size_t below, size_t size) {
  class_table.sizes[c] = (uint32_t)size;
  class_table.slices[c] = slices_of_slab(size);
  for (size_t step = below ? below / CLASS_STEP + 1 : 0; step <= size / CLASS_STEP; step++)
    class_table.by_step[step] = (uint16_t)(c * sizeof(void *));
}

static void write_tables(const chosen *set) {
  unsigned c = 0;
  size_t below = CLASS_STEP;
  write_class(c++, 0, CLASS_STEP);
  for (size_t i = 1; i <= GRAINS; i++)
    if (set->is[i]) {
      write_class(c++, below, i * GRAIN);
      below = i * GRAIN;
    }
}

internal sizes_fault sizes_set(const uint32_t *sizes, size_t count, size_t *at) {
  chosen set = {0};
  for (size_t size = GRAIN; size <= TABLE_MAX; size *= 2)
    choose(&set, size);
  sizes_fault fault = choose_listed(&set, sizes, count, at);
  if (fault)
    return fault;
  while (set.count < TABLE_COUNT - 1)
    choose_default(&set);
  /* Whole pages: with larger ones neighbours would be on them, which stay writable. */
  char *page = (char *)((uintptr_t)&class_table & ~(os_page() - 1));
  size_t length = ROUND_UP((uintptr_t)(&class_table + 1) - (uintptr_t)page, os_page());
  if (!os_commit(page, length))
    return SIZES_READ_ONLY;
  write_tables(&set);
  if (os_page() <= CLASS_PAGE)
    os_protect(page, length);
  return SIZES_FIT;
}
