/* masu: a memory allocator. Public interface of the drop-in part.
 *
 * Every standard function below exists twice: under its own name, which replaces
 * the C library's when libmasu is preloaded or linked, and as masu_NAME, which is
 * the same code under a name that nothing else uses. Sizes are bytes. Unless a
 * comment says otherwise, every function may be called from any thread at any
 * time, and a block may be freed by another thread than the one that got it.
 *
 * Alignment: 16; 8 where 8 bytes or less are asked for.
 * Errors: NULL with errno ENOMEM (sizes that overflow included). A call that
 * succeeds, and every free, leaves errno as it was.
 */
#ifndef MASU_H
#define MASU_H

#include <malloc.h> /* struct mallinfo, struct mallinfo2 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MASU_VERSION_MAJOR 0
#define MASU_VERSION_MINOR 1
#define MASU_VERSION_PATCH 0

#define MASU_API __attribute__((visibility("default")))

/* The version of the library that runs, "MAJOR.MINOR.PATCH". */
MASU_API const char *masu_version(void);

/* ---- Allocation ---------------------------------------------------------- */

/* At least `size` bytes, contents undefined. size 0 gives a unique block. */
MASU_API void *masu_malloc(size_t size);
/* count * size bytes, all zero; ENOMEM when the product overflows. */
MASU_API void *masu_calloc(size_t count, size_t size);
/* Resizes in place or moves; p NULL is malloc. Size 0 frees p and returns NULL,
 * as glibc does (C23 leaves it undefined). On failure p stays as it was. */
MASU_API void *masu_realloc(void *p, size_t size);
/* realloc to count * size bytes; ENOMEM and p untouched when that overflows. */
MASU_API void *masu_reallocarray(void *p, size_t count, size_t size);
/* As realloc, but p is freed when the call fails (BSD). */
MASU_API void *masu_reallocf(void *p, size_t size);
/* p is NULL or a block of any function here. */
MASU_API void masu_free(void *p);
/* C23: as free; `size` is the size that was asked for. Undefined otherwise;
 * checked builds report it. */
MASU_API void masu_free_sized(void *p, size_t size);
MASU_API void masu_free_aligned_sized(void *p, size_t alignment, size_t size);

/* Alignment must be a power of two, or EINVAL. Follows C17 (any size), not the
 * C11 text that wanted size to be a multiple of it. */
MASU_API void *masu_aligned_alloc(size_t alignment, size_t size);
/* As aligned_alloc, but an alignment that is no power of two is rounded up, as
 * glibc does. */
MASU_API void *masu_memalign(size_t alignment, size_t size);
/* Returns 0, EINVAL (alignment no power of two or no multiple of
 * sizeof(void*)) or ENOMEM, in which cases *out is untouched. POSIX leaves errno
 * open; as in glibc it is ENOMEM after ENOMEM and untouched after EINVAL. */
MASU_API int masu_posix_memalign(void **out, size_t alignment, size_t size);
/* Aligned to the system's page; pvalloc also rounds the size up to whole pages. */
MASU_API void *masu_valloc(size_t size);
MASU_API void *masu_pvalloc(size_t size);

/* ---- Questions ----------------------------------------------------------- */

/* Bytes that may be used at p, at least what was asked for; 0 for NULL. */
MASU_API size_t masu_malloc_usable_size(void *p);
/* The usable size that malloc(size) would give. */
MASU_API size_t masu_malloc_good_size(size_t size);
MASU_API struct mallinfo masu_mallinfo(void);
MASU_API struct mallinfo2 masu_mallinfo2(void);
/* Writes XML; options must be 0 (EINVAL). Returns 0, or an errno value. */
MASU_API int masu_malloc_info(int options, FILE *stream);
/* Writes a readable summary to stderr. */
MASU_API void masu_malloc_stats(void);
/* Gives free memory back to the system now. Returns 1 if any was, else 0.
 * `pad` bytes may be kept. */
MASU_API int masu_malloc_trim(size_t pad);
/* M_PURGE (-101): as malloc_trim(0). M_TRIM_THRESHOLD, M_TOP_PAD,
 * M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX, M_ARENA_TEST, M_MXFAST, M_PERTURB and M_CHECK_ACTION are
 * accepted and have no effect. Returns 1, or 0 for a parameter not known. */
MASU_API int masu_mallopt(int parameter, int value);

/* ---- Control ------------------------------------------------------------- */

/* Reads and sets one value. Names: those of MASU_OPTIONS (docs/options.md), and
 * the read-only figures "stats.live", "stats.peak", "stats.resident",
 * "stats.returned" (bytes), "stats.heaps" (count).
 * old_value and new_value may be NULL. Returns 0, ENOENT (name), EPERM
 * (read-only, or for the start only) or EINVAL (value); for a figure ENOMEM, or EAGAIN from a signal handler
 * that interrupted the allocator. */
MASU_API int masu_ctl(const char *name, uint64_t *old_value, const uint64_t *new_value);

/* ---- Latency ---- */

typedef struct masu_prewarm_class {
  size_t size;  /* bytes of a block, up to 2 MiB */
  size_t count; /* so many at the same time */
} masu_prewarm_class;

/* Prepares memory, so that allocation makes no system call and takes no page fault: room
 * for so many blocks of each class and for `bytes` more, in blocks of up to 2 MiB. The
 * memory is made resident now and stays so when it is freed, until malloc_trim or
 * masu_prewarm(0, NULL, 0), which ends it; the amounts of several calls add up. Holds for
 * threads that have allocated before, as long as the whole program stays within what is
 * prepared; how the blocks of different threads and sizes share slabs costs up to 1 MiB
 * for each thread and class. A free may still wake the helper thread (option `helper`).
 * classes may be NULL if n is 0. Returns 0, EINVAL (a size above 2 MiB) or ENOMEM, in
 * which case nothing is kept that was not before. */
MASU_API int masu_prewarm(size_t bytes, const masu_prewarm_class *classes, size_t n);
/* Locks what masu has made accessible so far for blocks of up to 2 MiB, and its
 * descriptors, in memory (mlock), or unlocks it if `lock` is 0; mlockall locks all of the
 * process. Locked memory doesn't go back to the system. Returns 0 or what mlock said (ENOMEM,
 * EPERM: RLIMIT_MEMLOCK), in which case nothing is locked. */
MASU_API int masu_lock(int lock);

/* Walks every structure and compares it with the invariants in the headers.
 * Returns 0, or prints the violations to stderr and returns 1. Other
 * threads must not call the library meanwhile. Meant for tests; slow. */
MASU_API int masu_check(void);

#ifdef __cplusplus
}
#endif
#endif
