/* sizes: the size classes of small blocks.
 *
 * 8 bytes, then steps of 16 up to 64, then four classes in every doubling up to
 * 256 KiB: at most 15 bytes are lost up to 64, at most 20 % above. The least slab of a class
 * has as many slices as it takes for at least 4 blocks and a tail of at most 1/32.
 * A block is aligned to the largest power of two that divides its class's size.
 *
 * Up to TABLE_MAX a size's class stands in a table, above it is calculated. Those in the
 * table are the default: sizes_set puts others in their place, once, before there is any
 * heap. Of these as well the first is 8, the others are multiples of 16, and every power
 * of two is among them, so that an aligned block is never more than twice as large; only
 * how much is lost between two of them is up to who chose them. The tables lie on pages
 * of their own, which are written by sizes_set only and are read-only otherwise.
 *
 * Threads: sizes_set while no other thread uses a class; everything else from any.
 */
#ifndef MASU_HEAP_SIZES_H
#define MASU_HEAP_SIZES_H

#include "base/attr.h"
#include "base/bits.h"
#include "pages/slice.h"

/* X(class, size of the class below, size, slices of its least slab) */
#define TABLE_CLASSES(X)                                                       \
  X(0, 0, 8, 1) \
  X(1, 8, 16, 1) \
  X(2, 16, 32, 1) \
  X(3, 32, 48, 1) \
  X(4, 48, 64, 1) \
  X(5, 64, 80, 1) \
  X(6, 80, 96, 1) \
  X(7, 96, 112, 1) \
  X(8, 112, 128, 1) \
  X(9, 128, 160, 1) \
  X(10, 160, 192, 1) \
  X(11, 192, 224, 1) \
  X(12, 224, 256, 1) \
  X(13, 256, 320, 1) \
  X(14, 320, 384, 1) \
  X(15, 384, 448, 1) \
  X(16, 448, 512, 1) \
  X(17, 512, 640, 1) \
  X(18, 640, 768, 1) \
  X(19, 768, 896, 1) \
  X(20, 896, 1024, 1) \
  X(21, 1024, 1280, 1) \
  X(22, 1280, 1536, 1) \
  X(23, 1536, 1792, 1) \
  X(24, 1792, 2048, 1) \
  X(25, 2048, 2560, 1) \
  X(26, 2560, 3072, 1) \
  X(27, 3072, 3584, 1) \
  X(28, 3584, 4096, 1) \
  X(29, 4096, 5120, 2) \
  X(30, 5120, 6144, 2) \
  X(31, 6144, 7168, 1) \
  X(32, 7168, 8192, 1) \
  X(33, 8192, 10240, 3) \
  X(34, 10240, 12288, 3) \
  X(35, 12288, 14336, 2) \
  X(36, 14336, 16384, 1) \
  X(37, 16384, 20480, 5) \
  X(38, 20480, 24576, 3) \
  X(39, 24576, 28672, 4) \
  X(40, 28672, 32768, 2)
#define UPPER_CLASSES(X)                                                       \
  X(41, 32768, 40960, 5) \
  X(42, 40960, 49152, 3) \
  X(43, 49152, 57344, 7) \
  X(44, 57344, 65536, 4) \
  X(45, 65536, 81920, 5) \
  X(46, 81920, 98304, 6) \
  X(47, 98304, 114688, 7) \
  X(48, 114688, 131072, 8) \
  X(49, 131072, 163840, 10) \
  X(50, 163840, 196608, 12) \
  X(51, 196608, 229376, 14) \
  X(52, 229376, 262144, 16)

enum {
  TABLE_COUNT = 41, /* classes up to TABLE_MAX */
  TABLE_SHIFT = 15,
  TABLE_MAX = 1 << TABLE_SHIFT,
  CLASS_COUNT = 53,
  SMALL_MAX = 262144,
  CLASS_STEP = 8,
  CLASS_PAGE = 4096 /* the smallest page that a system has */
};

/* by_step: by (size + 7) / 8, the class times the size of a pointer, which is what it
 * takes to find its place in an array of pointers. It does not begin a page: else the steps of powers of two would
 * compete for the cache with the first lines of their blocks' pages. */
typedef struct class_tables {
  _Alignas(CLASS_PAGE) uint32_t sizes[CLASS_COUNT];
  uint8_t slices[CLASS_COUNT]; /* of its least slab */
  _Alignas(64) uint16_t by_step[TABLE_MAX / CLASS_STEP + 1];
} class_tables;
_Static_assert(offsetof(class_tables, by_step) % CLASS_PAGE != 0, "see above");
internal_data class_tables class_table;

/* size <= TABLE_MAX; 0 counts as 1. */
static ALWAYS_INLINE size_t class_offset(size_t size) {
  return class_table.by_step[(size + CLASS_STEP - 1) / CLASS_STEP];
}
static inline unsigned class_in_table(size_t size) {
  return (unsigned)(class_offset(size) / sizeof(void *));
}
/* TABLE_MAX < size <= SMALL_MAX. */
static inline unsigned class_above_table(size_t size) {
  unsigned doubling = bit_high64(size - 1);
  return TABLE_COUNT + (doubling - TABLE_SHIFT) * 4 + ((size - 1) >> (doubling - 2) & 3);
}
/* size <= SMALL_MAX. */
static inline unsigned class_of(size_t size) {
  return size <= TABLE_MAX ? class_in_table(size) : class_above_table(size);
}
/* The least size for which realloc leaves a block where it is, of whatever class that size is. From 1 KiB on a
 * copy costs more than the room. */
static inline size_t least_kept(size_t block_size) {
  return block_size / (block_size < KIB ? 2 : 4);
}
static inline size_t class_size(unsigned c) { return class_table.sizes[c]; }
static inline unsigned class_slices(unsigned c) { return class_table.slices[c]; }

/* Blocks in the least slab of the class. */
static inline unsigned class_capacity(unsigned c) {
  return (unsigned)(class_slices(c) * SLICE_SIZE / class_size(c));
}

/* The smallest class whose blocks hold `size` bytes at multiples of `align`, a
 * power of two; CLASS_COUNT when there is none, as above TABLE_MAX: a run costs
 * less than a block that is large only to be aligned. */
internal unsigned class_aligned(size_t size, size_t align);

typedef enum sizes_fault {
  SIZES_FIT,
  SIZES_BAD,       /* neither 8 nor a multiple of 16 up to TABLE_MAX */
  SIZES_ORDER,     /* not above the one before */
  SIZES_TOO_MANY,  /* with 8 and the powers of two more than TABLE_COUNT */
  SIZES_READ_ONLY, /* the system does not let the tables be written */
} sizes_fault;

/* Makes these the classes up to TABLE_MAX, with 8 and the powers of two. What is missing
 * to TABLE_COUNT are default ones, those first of which a block would be largest for its
 * size without. Nothing of a class was handed out before. Any fault changes nothing;
 * *at: which of the sizes it is about. */
internal sizes_fault sizes_set(const uint32_t *sizes, size_t count, size_t *at);

#endif
