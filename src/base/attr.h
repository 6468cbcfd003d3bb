/* attr: the words of C that differ between compilers, and the linkage of masu's
 * own names.
 *
 * masu ships as one translation unit (src/masu.c), where every internal name is
 * static. The files also compile one by one (MASU_SEPARATE), where internal names
 * are hidden externs. `internal` marks both the declaration and the definition of
 * an internal function; `internal_data` marks the declaration of a variable and
 * `internal_def` its definition.
 */
#ifndef MASU_BASE_ATTR_H
#define MASU_BASE_ATTR_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* before any header that needs it */
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef MASU_UNITY
#define internal __attribute__((unused)) static
#define internal_data static
#define internal_def static
#else
#define internal __attribute__((visibility("hidden")))
#define internal_data extern __attribute__((visibility("hidden")))
#define internal_def __attribute__((visibility("hidden")))
#endif

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NOINLINE __attribute__((noinline))
#define COLD __attribute__((noinline, cold))
#define ALWAYS_INLINE __attribute__((always_inline)) inline
/* A function at the start of a cache line, all of them side by side: far apart they would compete, by luck, for the same
 * sets of what the processor keeps of code. */
#define HOT __attribute__((aligned(64), section(".text.hot.masu")))
/* Zeroed, large, and used by few programs: behind the variables that every one uses, so that those
 * lie on few pages. */
#define SELDOM __attribute__((section(".bss.seldom")))
#define PUBLIC __attribute__((visibility("default")))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

/* Checked builds find misuse (double frees, wrong sizes, writes after free) at
 * the price of speed. Code under `if (CHECKED)` vanishes from release builds. */
#ifdef MASU_CHECKED
#define CHECKED 1
#else
#define CHECKED 0
#endif

#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * 1024)

#define ROUND_UP(x, to) (((x) + ((to) - 1)) & ~((to) - 1)) /* to: a power of two */

static inline size_t max_size(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* The block and list a pointer to a member belongs to. */
#define CONTAINER_OF(member_ptr, type, member)                                 \
  ((type *)(void *)((char *)(member_ptr) - offsetof(type, member)))

#endif
