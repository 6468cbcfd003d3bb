/* The floor below the floor: what a pair of malloc and free takes when both are inlined
 * and free is told the size. A benchmark calls floor_malloc(n) and floor_free(p, n); that
 * is malloc and free, of whatever allocator is preloaded, unless it is compiled with
 * -DFLOOR, which shows what the loop itself and the least of memory management take:
 *
 *   cc -O2 -DFLOOR ...
 *
 * A list of free blocks per class and thread, and a pointer that is moved on when the list
 * is empty. With a size known to the compiler, a pair is four loads and stores. Nothing is
 * given back, to the system or to another thread: a block goes to the list of whoever
 * frees it. For C and C++, up to FLOOR_MOST bytes; every source file that includes this
 * has lists of its own, which does no harm. */
#ifndef MASU_FLOORS_INLINE_H
#define MASU_FLOORS_INLINE_H

#include <stddef.h>
#include <stdlib.h>

#ifndef FLOOR

static inline void *floor_malloc(size_t n) { return malloc(n); }
static inline void floor_free(void *p, size_t n) {
  (void)n;
  free(p);
}

#else

#include <sys/mman.h>

#define FLOOR_MOST ((size_t)64 << 10)
#define FLOOR_CHUNK ((size_t)64 << 20)

typedef struct floor_block {
  struct floor_block *next;
} floor_block;

/* Classes in steps of 16 bytes: to 64 KiB that is one shift. */
static __thread struct {
  floor_block *free[FLOOR_MOST / 16 + 1];
  char *fresh, *end;
} floor_own;

/* Processors hand what was stored on to a load at once when both name the place by one
 * register alone; see least.c. */
static inline floor_block **floor_list(size_t n) {
  floor_block **list = &floor_own.free[(n + 15) / 16];
  __asm__("" : "+r"(list));
  return list;
}

static __attribute__((noinline, unused)) void *floor_chunk(size_t size) {
  void *chunk = mmap(NULL, FLOOR_CHUNK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (chunk == MAP_FAILED) abort();
  floor_own.fresh = (char *)chunk + size;
  floor_own.end = (char *)chunk + FLOOR_CHUNK;
  return chunk;
}

static inline void *floor_malloc(size_t n) {
  if (__builtin_expect(n > FLOOR_MOST, 0)) abort();
  floor_block **list = floor_list(n), *p = *list;
  if (__builtin_expect(p != NULL, 1)) {
    *list = p->next;
    return p;
  }
  size_t size = n == 0 ? 16 : (n + 15) & ~(size_t)15;
  if (size > (size_t)(floor_own.end - floor_own.fresh)) return floor_chunk(size);
  p = (floor_block *)(void *)floor_own.fresh;
  floor_own.fresh += size;
  return p;
}

static inline void floor_free(void *pointer, size_t n) {
  floor_block **list = floor_list(n), *p = (floor_block *)pointer;
  if (p == NULL) return;
  p->next = *list;
  *list = p;
}

#endif
#endif
