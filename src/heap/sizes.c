#include "heap/sizes.h"

#define STEPS_OF(c, below, size, slices)                                       \
  [(below) / CLASS_STEP + ((below) != 0) ... (size) / CLASS_STEP] = (c) * sizeof(void *),
internal_def const uint16_t class_by_step[TABLE_MAX / CLASS_STEP + 1] = {
    TABLE_CLASSES(STEPS_OF)};
#undef STEPS_OF

#define SIZE_OF(c, below, size, slices) [c] = size,
internal_def const uint32_t class_sizes[CLASS_COUNT] = {TABLE_CLASSES(SIZE_OF)
                                                        UPPER_CLASSES(SIZE_OF)};
#undef SIZE_OF

#define SLICES_OF(c, below, size, slices) [c] = slices,
internal_def const uint8_t class_slices[CLASS_COUNT] = {TABLE_CLASSES(SLICES_OF)
                                                        UPPER_CLASSES(SLICES_OF)};
#undef SLICES_OF

internal unsigned class_aligned(size_t size, size_t align) {
  if (size > SMALL_MAX || align > TABLE_MAX)
    return CLASS_COUNT;
  /* The next power of two always serves, so this ends within a few steps. */
  unsigned c = class_of(max_size(size, align));
  while (c < CLASS_COUNT && class_size(c) & (align - 1))
    c++;
  return c;
}
