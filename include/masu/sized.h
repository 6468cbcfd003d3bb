/* Sized calls: a family of its own, for callers that know the size when they free.
 *
 *     point *p = masu_sized_alloc(sizeof *p);
 *     masu_sized_free(p, sizeof *p);
 *
 * Nothing is stored with a block and nothing is looked up: 4 bytes cost 4 bytes. Sizes are
 * 4, 8, 12 ... 32 bytes, then four to every doubling (at most 20 % are lost above 16 bytes)
 * up to 32 KiB; what is larger comes from malloc. A block is aligned to the largest power
 * of two that divides its size class, at most 64: 4 bytes for 4, 12, 20 and 28, 16 for 48.
 *
 * Contract: a block goes back with a size of the same class, to masu_sized_free and not to
 * free; malloc's blocks do not come here. Checked builds of the library report a breach
 * in one line and abort; otherwise it is undefined.
 *
 * Blocks are never joined to larger ones. Memory of freed blocks serves their own class
 * until masu_sized_trim gives back the pieces (512 KiB) in which nothing is left.
 *
 * Threads: any function from any thread; a block may be freed by another thread than the
 * one that got it. Not for signal handlers. Errors: NULL with ENOMEM. Not zeroed.
 */
#ifndef MASU_SIZED_H
#define MASU_SIZED_H

#include "../masu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* size 0 counts as 1. */
MASU_API void *masu_sized_alloc(size_t size);
/* p NULL: nothing happens. */
MASU_API void masu_sized_free(void *p, size_t size);

enum { MASU_SIZE_INDEXES = 48, MASU_SIZED_MAX = 32768 };

/* The class of a size, 0 to 47, for a caller that always asks for the same: it saves
 * looking it up. MASU_SIZE_INDEXES: larger than MASU_SIZED_MAX, no class. */
MASU_API unsigned masu_size_index(size_t size);
/* Bytes of a block of the class. */
MASU_API size_t masu_size_of_index(unsigned index);
/* As above; index < MASU_SIZE_INDEXES, p not NULL. */
MASU_API void *masu_sized_alloc_index(unsigned index);
MASU_API void masu_sized_free_index(void *p, unsigned index);

/* Where the compiler knows the size, it knows the class as well. */
static inline __attribute__((always_inline)) unsigned masu_size_index_known(size_t size) {
  unsigned doubling = size > 32 ? 63 - (unsigned)__builtin_clzll(size - 1) : 0;
  if (size <= 32)
    return size ? (unsigned)(size - 1) / 4 : 0;
  return 8 + (doubling - 5) * 4 + ((unsigned)(size - 1) >> (doubling - 2) & 3);
}
static inline __attribute__((always_inline)) void *masu_sized_alloc_here(size_t size) {
  if (__builtin_constant_p(size) && size <= MASU_SIZED_MAX)
    return masu_sized_alloc_index(masu_size_index_known(size));
  return masu_sized_alloc(size);
}
static inline __attribute__((always_inline)) void masu_sized_free_here(void *p, size_t size) {
  if (!__builtin_constant_p(size) || size > MASU_SIZED_MAX)
    masu_sized_free(p, size);
  else if (p)
    masu_sized_free_index(p, masu_size_index_known(size));
}
/* Variadic for commas in template arguments and compound literals. */
#define masu_sized_alloc(...) masu_sized_alloc_here(__VA_ARGS__)
#define masu_sized_free(...) masu_sized_free_here(__VA_ARGS__)

/* Gives the pieces back to the system in which no block is in use or held ready by another
 * thread (at most 64 KiB a class, 16 blocks of those above 4 KiB), and other idle memory with them. Returns the bytes of
 * the pieces. */
MASU_API size_t masu_sized_trim(void);

typedef struct masu_sized_figures {
  size_t live; /* blocks of the class in use, or held ready by other threads */
  size_t made; /* blocks made ready so far, some at a time, in the pieces held */
  size_t held; /* bytes of address space; what was never used is not resident */
} masu_sized_figures;
/* size: sizeof *figures; others as in masu/stats.h. Returns 0 or EINVAL. */
MASU_API int masu_sized_read(unsigned index, masu_sized_figures *figures, size_t size);

#ifdef __cplusplus
}
#endif
#endif
