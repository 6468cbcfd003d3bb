// forms: the ways to get a block that are compared here, each a class with
//
//   static void *alloc(size_t n)        n bytes, or NULL
//   static void free(void *p, size_t n)
//   static void *realloc(void *p, size_t old, size_t n)   where the workload needs it
//   static void start(size_t n)         before the first; n: the usual size
//   static void reset()                 everything at once, where the form can
//
// With WITH_MASU those of masu, in a program linked with it; without, malloc of whatever is
// preloaded and the nearest peers of each form.
#ifndef MASU_BENCH_FORMS_H
#define MASU_BENCH_FORMS_H

#include <cstdlib>
#include <cstring>

#include "../workloads/workload.h"

#ifdef WITH_MASU
#include <masu/arena.h>
#include <masu/fixed.h>
#include <masu/scope.h>
#include <masu/sized.h>
#else
#include <dlfcn.h>
#include <obstack.h>

#include <memory_resource>
#if __has_include(<boost/pool/pool.hpp>)
#include <boost/pool/pool.hpp>
#define HAVE_BOOST 1
#endif
#if __has_include(<talloc.h>)
#include <talloc.h>
#define HAVE_TALLOC 1
#endif
#define FLOOR
#include "../floors/inline.h"
#endif

struct form_malloc {
  static void start(size_t) {}
  static void *alloc(size_t n) { return ::malloc(n); }
  static void free(void *p, size_t) { ::free(p); }
  static void *realloc(void *p, size_t, size_t n) { return ::realloc(p, n); }
};

#ifdef WITH_MASU

struct form_sized {
  static void start(size_t) {}
  static void *alloc(size_t n) { return masu_sized_alloc(n); }
  static void free(void *p, size_t n) { masu_sized_free(p, n); }
};

template <unsigned FLAGS> struct form_pool {
  static inline masu_pool *pool;
  static void start(size_t n) { pool = masu_pool_create(n, 0, FLAGS); }
  static void *alloc(size_t) { return masu_pool_alloc(pool); }
  static void free(void *p, size_t) { masu_pool_free(pool, p); }
  static void reset() { masu_pool_reset(pool); }
};

// With room for COUNT blocks made beforehand.
template <size_t COUNT> struct form_reserved : form_pool<0> {
  static void start(size_t n) {
    form_pool<0>::start(n);
    if (masu_pool_reserve(pool, COUNT))
      fail("no memory to reserve");
  }
};
template <size_t COUNT> struct form_prepared : form_malloc {
  static void start(size_t n) {
    masu_prewarm_class blocks = {n, COUNT};
    if (masu_prewarm(0, &blocks, 1))
      fail("no memory to prepare");
  }
};

template <size_t COUNT> struct form_fixed {
  static inline masu_fixed *pool;
  static void start(size_t n) { pool = masu_fixed_create(n, COUNT, MASU_FIXED_FALLBACK); }
  static void *alloc(size_t n) { return masu_fixed_alloc(pool, n); }
  static void free(void *p, size_t) { masu_fixed_free(pool, p); }
  static void *realloc(void *p, size_t, size_t n) { return masu_fixed_realloc(pool, p, n); }
};

struct form_ladder {
  static inline masu_ladder *ladder;
  static void start(size_t) { ladder = masu_ladder_create(nullptr, 0); }
  static void *alloc(size_t n) { return masu_ladder_alloc(ladder, n); }
  static void free(void *p, size_t) { masu_ladder_free(ladder, p); }
  static void *realloc(void *p, size_t, size_t n) { return masu_ladder_realloc(ladder, p, n); }
};

// The caller's own list: multiples of 16 up to 512.
struct form_ladder_of_32 : form_ladder {
  static void start(size_t) {
    size_t steps[32];
    for (size_t i = 0; i < 32; i++)
      steps[i] = 16 * (i + 1);
    ladder = masu_ladder_create(steps, 32);
  }
};

// A game's: each step four times the one before.
struct form_ladder_of_8 : form_ladder {
  static void start(size_t) {
    static const size_t steps[] = {16, 64, 256, 1024, 4096, 16384, 65536, 262144};
    ladder = masu_ladder_create(steps, 8);
  }
};

struct form_arena {
  static inline masu_arena *arena;
  static void start(size_t) { arena = masu_arena_create(0); }
  static void *alloc(size_t n) { return masu_arena_alloc(arena, n); }
  static void free(void *, size_t) {}
  static void reset() { masu_arena_reset(arena); }
};

struct form_heap {
  static inline masu_heap *heap;
  static void start(size_t) { heap = masu_heap_create("bench"); }
  static void *alloc(size_t n) { return masu_heap_malloc(heap, n); }
  static void free(void *p, size_t) { masu_heap_free(heap, p); }
};

// A scope is a frame.
struct form_scope {
  static inline masu_scope scope;
  static void start(size_t) { masu_scope_open(&scope, nullptr); }
  static void *alloc(size_t n) { return masu_scope_temp(n); }
  static void free(void *, size_t) {}
  static void reset() {
    masu_scope_close(&scope);
    masu_scope_open(&scope, nullptr);
  }
};

#else

// The least that a list of free blocks can cost, inlined.
struct form_floor_list {
  static void start(size_t) {}
  static void *alloc(size_t n) { return floor_malloc(n); }
  static void free(void *p, size_t n) { floor_free(p, n); }
};

// The least that moving a pointer can cost, inlined.
struct form_floor_bump {
  static inline char *memory, *at, *end;
  static void start(size_t) {
    size_t size = size_t{64} << 20;
    memory = at = static_cast<char *>(::malloc(size));
    end = memory + size;
  }
  static void *alloc(size_t n) {
    char *p = at;
    n = (n + 15) & ~size_t{15};
    if (__builtin_expect(n > size_t(end - p), 0))
      return nullptr;
    at = p + n;
    return p;
  }
  static void free(void *, size_t) {}
  static void reset() { at = memory; }
};

struct form_pmr_pool {
  static inline std::pmr::unsynchronized_pool_resource *pool;
  static void start(size_t) { pool = new std::pmr::unsynchronized_pool_resource; }
  static void *alloc(size_t n) { return pool->allocate(n, 16); }
  static void free(void *p, size_t n) { pool->deallocate(p, n, 16); }
};

struct form_pmr_monotonic {
  static inline std::pmr::monotonic_buffer_resource *arena;
  static inline char *memory;
  static void start(size_t) {
    memory = static_cast<char *>(::malloc(size_t{64} << 20)); /* so that release keeps it */
    arena = new std::pmr::monotonic_buffer_resource(memory, size_t{64} << 20);
  }
  static void *alloc(size_t n) { return arena->allocate(n, 16); }
  static void free(void *, size_t) {}
  static void reset() { arena->release(); }
};

struct form_obstack {
  static inline struct obstack stack;
  static inline void *first;
  static void *chunk(size_t n) { return ::malloc(n); }
  static void start(size_t) {
    obstack_specify_allocation(&stack, 1 << 20, 16, chunk, ::free);
    first = obstack_alloc(&stack, 1);
  }
  static void *alloc(size_t n) { return obstack_alloc(&stack, n); }
  static void free(void *, size_t) {}
  static void reset() {
    obstack_free(&stack, first);
    first = obstack_alloc(&stack, 1);
  }
};

#ifdef HAVE_BOOST
struct form_boost_pool {
  static inline boost::pool<> *pool;
  static void start(size_t n) { pool = new boost::pool<>(n); }
  static void *alloc(size_t) { return pool->malloc(); }
  static void free(void *p, size_t) { pool->free(p); }
};
#endif

#ifdef HAVE_TALLOC
struct form_talloc_pool {
  static inline void *pool;
  static void start(size_t) { pool = talloc_pool(nullptr, size_t{64} << 20); }
  static void *alloc(size_t n) { return talloc_size(pool, n); }
  static void free(void *p, size_t) { talloc_free(p); }
  static void reset() { talloc_free_children(pool); }
};
#endif

// A heap of the mimalloc that is preloaded.
struct form_mi_heap {
  static inline void *heap;
  static inline void *(*malloc_of)(void *, size_t);
  static inline void (*free_of)(void *);
  template <class F> static void find(F &f, const char *name) {
    f = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
    if (!f)
      fail("mimalloc is not preloaded: there is no %s", name);
  }
  static void start(size_t) {
    void *(*make)(void);
    find(make, "mi_heap_new");
    find(malloc_of, "mi_heap_malloc");
    find(free_of, "mi_free");
    heap = make();
  }
  static void *alloc(size_t n) { return malloc_of(heap, n); }
  static void free(void *p, size_t) { free_of(p); }
};

#endif
#endif
