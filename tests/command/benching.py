"""What the tests of the benchmark share: a case, and allocators that give wrong memory."""

import pytest

pytest.importorskip("numpy")

from masu.bench import cases  # noqa: E402

CASE = cases.Case("it", "family", ("it", "10"), (cases.ns("pair_ns"),))

# Blocks overlap: each is 16 bytes behind the one before, whatever its size.
OVERLAPPING = """
#include <stddef.h>
static _Alignas(16) char memory[1 << 28];
static size_t used;
void *malloc(size_t n) { (void)n; return memory + (used += 16); }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) { (void)p; return malloc(n); }
"""

# Each block has half of the bytes that were asked for. It frees nothing.
SHORT = """
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
static _Atomic uintptr_t next;
static void *take(size_t n, size_t alignment) {
  if (!next)
    next = (uintptr_t)mmap(0, 1ul << 38, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  size_t room = n > 16 ? (n / 2 + 15) & -16ul : n > 1 ? n / 2 : 1;
  uintptr_t at = next, p;
  do
    p = (at + alignment - 1) & -alignment;
  while (!atomic_compare_exchange_weak(&next, &at, p + room));
  return (void *)p;
}
void *malloc(size_t n) { return take(n, n > 16 ? 16 : 1); }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
void *realloc(void *p, size_t n) { return p ? memmove(malloc(n), p, n) : malloc(n); }
void *aligned_alloc(size_t a, size_t n) { return take(n, a); }
void *memalign(size_t a, size_t n) { return take(n, a); }
int posix_memalign(void **out, size_t a, size_t n) { return *out = take(n, a), 0; }
"""

# Answers everything, and hands out a block that is in use, once in 1,000 times. It
# frees nothing, so that only the workload can notice.
TWICE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <string.h>
void *__libc_malloc(size_t), *__libc_memalign(size_t, size_t);
static _Atomic unsigned count;
static _Atomic(void *) last;
void *malloc(size_t n) {
  unsigned turn = ++count;
  if (turn > 5000 && turn % 1000 == 0 && n == 1024)
    return last;
  void *p = __libc_malloc(n);
  if (n == 1024)
    last = p;
  return p;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) {
  void *p;
  return !__builtin_mul_overflow_p(a, b, (size_t)0) && (p = __libc_malloc(a * b)) ? memset(p, 0, a * b) : NULL;
}
size_t malloc_usable_size(void *p) { return p ? (((size_t *)p)[-1] & ~7ul) - 8 : 0; }
void *realloc(void *p, size_t n) {
  void *q = __libc_malloc(n);
  size_t old = malloc_usable_size(p);
  return q && p ? memcpy(q, p, old < n ? old : n) : q;
}
void *memalign(size_t a, size_t n) { return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return __libc_memalign(a, n); }
int posix_memalign(void **out, size_t a, size_t n) {
  void *p = __libc_memalign(a, n);
  return p ? (*out = p, 0) : ENOMEM;
}
"""
