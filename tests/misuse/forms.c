/* One mistake with a special form, by name. Compiled as checked code (MASU_CHECKED). */
#include <masu/arena.h>
#include <masu/fixed.h>
#include <masu/scope.h>
#include <masu/sized.h>

#include "misuse.h"

static masu_pool *pool_with(void **block, unsigned flags) {
  masu_pool *pool = masu_pool_create(48, 0, flags);
  *block = masu_pool_alloc(pool);
  return pool;
}

static void pool_double_free(void) {
  void *p;
  masu_pool *pool = pool_with(&p, 0);
  masu_pool_free(pool, announce(p));
  masu_pool_free(pool, hide(p));
}

/* By code that isn't compiled as checked. */
static void pool_of_heap_double_free(void) {
  masu_pool *pool = (masu_pool_create_in)(masu_heap_create("home"), "inhabitant", 48, 0, 0);
  void *p = masu_pool_alloc(pool);
  masu_pool_free(pool, announce(p));
  masu_pool_free(pool, hide(p));
}

static void pool_wrong_pool(void) {
  void *p, *q;
  pool_with(&p, 0);
  masu_pool_free(pool_with(&q, 0), announce(p));
}

static void pool_inside_block(void) {
  void *p;
  masu_pool *pool = pool_with(&p, MASU_POOL_SHARED);
  masu_pool_free(pool, announce((char *)p + 4));
}

static void pool_write_after_free(void) {
  void *p;
  masu_pool *pool = pool_with(&p, 0);
  masu_pool_free(pool, announce(p));
  memset(hide(p), 0xff, 48);
  masu_pool_alloc(pool);
}

static void pool_foreign(void) {
  void *p;
  masu_pool_free(pool_with(&p, 0), announce(malloc(48)));
}

/* The first block of a pool: none of the heap begins there. */
static void pool_to_free(void) {
  void *p;
  pool_with(&p, 0);
  free(announce(p));
}

static void pool_aligned_to_free(void) { free(announce(masu_pool_alloc(masu_pool_create(4096, 4096, 0)))); }

static void pool_destroyed(void) {
  void *p;
  masu_pool *pool = pool_with(&p, 0);
  masu_pool_destroy(announce(pool));
  masu_pool_alloc(hide(pool));
}

static void pool_destroyed_reset(void) {
  masu_pool *pool = masu_pool_create(48, 0, 0);
  masu_pool_destroy(announce(pool));
  masu_pool_reset(hide(pool));
}

static void fixed_inside_block(void) {
  masu_fixed *f = masu_fixed_create(100, 10, MASU_FIXED_FALLBACK);
  masu_fixed_free(f, announce((char *)masu_fixed_alloc(f, 100) + 16));
}

static void fixed_double_free(void) {
  masu_fixed *f = masu_fixed_create(100, 10, 0);
  void *p = announce(masu_fixed_alloc(f, 100)), *q = masu_fixed_alloc(f, 100);
  masu_fixed_free(f, p);
  masu_fixed_free(f, q);
  masu_fixed_free(f, hide(p));
}

static void fixed_destroyed(void) {
  masu_fixed *f = masu_fixed_create(100, 10, MASU_FIXED_FALLBACK);
  masu_fixed_destroy(announce(f));
  masu_fixed_alloc(hide(f), 10);
}

static void fixed_foreign(void) {
  masu_fixed *f = masu_fixed_create(100, 10, 0);
  masu_fixed_free(f, announce(malloc(100)));
}

static void fixed_to_free(void) { free(announce(masu_fixed_alloc(masu_fixed_create(100, 10, 0), 100))); }

static void fixed_wrong_pool(void) {
  masu_fixed *a = masu_fixed_create(100, 10, 0), *b = masu_fixed_create(100, 10, MASU_FIXED_FALLBACK);
  masu_fixed_free(b, announce(masu_fixed_alloc(a, 100)));
}

static void ladder_wrong_ladder(void) {
  masu_ladder *a = masu_ladder_create(NULL, 0), *b = masu_ladder_create(NULL, 0);
  masu_ladder_free(b, announce(masu_ladder_alloc(a, 100)));
}

static void ladder_double_free(void) {
  masu_ladder *l = masu_ladder_create(NULL, 0);
  void *p = announce(masu_ladder_alloc(l, 100)), *q = masu_ladder_alloc(l, 100);
  masu_ladder_free(l, p);
  masu_ladder_free(l, q);
  masu_ladder_free(l, hide(p));
}

/* In the step of the smallest blocks. */
static void ladder_double_free_small(void) {
  static const size_t steps[] = {8, 64};
  masu_ladder *l = masu_ladder_create(steps, 2);
  void *p = announce(masu_ladder_alloc(l, 8)), *q = masu_ladder_alloc(l, 8);
  masu_ladder_free(l, p);
  masu_ladder_free(l, q);
  masu_ladder_free(l, hide(p));
}

/* Nothing is mapped at the start of the chunk that it would lie in. */
static void ladder_foreign(void) {
  static char outside[64];
  masu_ladder_free(masu_ladder_create(NULL, 0), announce(outside + 16));
}

static void ladder_from_malloc(void) {
  masu_ladder_free(masu_ladder_create(NULL, 0), announce((char *)malloc(2000000) + 64));
}

static void ladder_inside_block(void) {
  masu_ladder *l = masu_ladder_create(NULL, 0);
  masu_ladder_free(l, announce((char *)masu_ladder_alloc(l, 100) + 16));
}

static void ladder_before_first_block(void) {
  masu_ladder *l = masu_ladder_create(NULL, 0);
  char *chunk = (char *)((uintptr_t)masu_ladder_alloc(l, 10) & ~(uintptr_t)((1 << 20) - 1));
  masu_ladder_free(l, announce(chunk + 16));
}

static void ladder_realloc_wrong_ladder(void) {
  masu_ladder *a = masu_ladder_create(NULL, 0), *b = masu_ladder_create(NULL, 0);
  masu_ladder_realloc(b, announce(masu_ladder_alloc(a, 100)), 50);
}

static void ladder_realloc_freed(void) {
  masu_ladder *l = masu_ladder_create(NULL, 0);
  void *p = announce(masu_ladder_alloc(l, 100));
  masu_ladder_free(l, p);
  masu_ladder_realloc(l, hide(p), 50);
}

static void fixed_realloc_freed(void) {
  masu_fixed *f = masu_fixed_create(100, 10, 0);
  void *p = announce(masu_fixed_alloc(f, 100));
  masu_fixed_free(f, p);
  masu_fixed_realloc(f, hide(p), 50);
}

static void fixed_realloc_inside_block(void) {
  masu_fixed *f = masu_fixed_create(100, 10, MASU_FIXED_FALLBACK);
  masu_fixed_realloc(f, announce((char *)masu_fixed_alloc(f, 100) + 16), 1000);
}

static void ladder_destroyed_free(void) {
  masu_ladder *l = masu_ladder_create(NULL, 0);
  void *p = masu_ladder_alloc(l, 1 << 20); /* above its steps */
  masu_ladder_destroy(announce(l));
  masu_ladder_free(hide(l), p);
}

static void arena_destroyed(void) {
  masu_arena *a = masu_arena_create(100);
  masu_arena_destroy(announce(a));
  masu_arena_alloc(hide(a), 10);
}

static void arena_destroyed_reset(void) {
  masu_arena *a = masu_arena_create(100);
  masu_arena_destroy(announce(a));
  masu_arena_reset(hide(a));
}

static void arena_of_caller_destroyed(void) {
  static char memory[1000];
  masu_arena *a = masu_arena_init(memory, sizeof memory);
  masu_arena_destroy(announce(a));
  masu_arena_alloc(hide(a), 10);
}

static void arena_mark_of_another(void) {
  masu_arena *a = masu_arena_create(100), *b = masu_arena_create(100);
  masu_arena_rewind(announce(b), masu_arena_mark(a));
}

/* In a run that came after the mark that was rewound to. */
static void arena_mark_void(void) {
  masu_arena *a = masu_arena_create(100);
  masu_mark first = masu_arena_mark(a);
  masu_arena_alloc(a, 1000);
  masu_mark second = masu_arena_mark(a);
  masu_arena_rewind(a, first);
  masu_arena_rewind(announce(a), second);
}

/* A form that lived in the heap is destroyed with it. */
static masu_heap *home(void) { return masu_heap_create("home"); }
static void *left_homeless(masu_heap *heap, void *form) {
  masu_heap_destroy(heap);
  for (int i = 0; i < 1000; i++)
    memset(malloc(4000), 0, 4000); /* the memory is used again */
  return announce(form);
}

static void pool_of_destroyed_heap(void) {
  masu_heap *h = home();
  masu_pool *pool = masu_pool_create_in(h, NULL, 48, 0, 0);
  masu_pool_alloc(pool);
  masu_pool_alloc(left_homeless(h, pool));
}

static void fixed_of_destroyed_heap(void) {
  masu_heap *h = home();
  masu_fixed *f = masu_fixed_create_in(h, NULL, 100, 10, 0);
  masu_fixed_alloc(left_homeless(h, f), 100);
}

static void ladder_of_destroyed_heap(void) {
  masu_heap *h = home();
  masu_ladder *l = masu_ladder_create_in(h, NULL, NULL, 0);
  masu_ladder_alloc(l, 100);
  masu_ladder_alloc(left_homeless(h, l), 100);
}

static void arena_of_destroyed_heap(void) {
  masu_heap *h = home();
  masu_arena *a = masu_arena_create_in(h, NULL, 1000);
  masu_arena_alloc(left_homeless(h, a), 10);
}

static void heap_destroyed(void) {
  masu_heap *h = masu_heap_create("short-lived");
  masu_heap_destroy(announce(h));
  masu_heap_malloc(hide(h), 10);
}

static void heap_destroyed_twice(void) {
  masu_heap *h = home();
  masu_heap_destroy(announce(h));
  masu_heap_destroy(hide(h));
}

static void heap_double_free(void) {
  masu_heap *h = home();
  void *p = announce(masu_heap_malloc(h, 100));
  masu_heap_free(h, p);
  masu_heap_free(h, hide(p));
}

static void heap_inside_block(void) {
  masu_heap *h = home();
  masu_heap_free(h, announce((char *)masu_heap_malloc(h, 100) + 16));
}

/* Of a small and of a large block. */
static void heap_block_outlives(size_t size) {
  masu_heap *h = home();
  void *p = announce(masu_heap_malloc(h, size));
  masu_heap_destroy(h);
  free(hide(p));
}
static void heap_small_block_outlives(void) { heap_block_outlives(100); }
static void heap_large_block_outlives(void) { heap_block_outlives(500000); }

static void heap_block_outlives_realloc(void) {
  masu_heap *h = home();
  void *p = announce(masu_heap_malloc(h, 100));
  masu_heap_destroy(h);
  hide(realloc(hide(p), 200));
}

static void scope_block_freed(void) {
  masu_scope scope;
  masu_scope_open(&scope, NULL);
  free(announce(masu_scope_alloc(100)));
  masu_scope_close(&scope);
}

static void sized_double_free(void) {
  void *p = announce(masu_sized_alloc(24));
  masu_sized_free(p, 24);
  masu_sized_free(hide(p), 24);
}

static void sized_wrong_size(void) { masu_sized_free(announce(masu_sized_alloc(24)), 40); }
static void sized_from_malloc(void) { masu_sized_free(announce(malloc(24)), 24); }
static void sized_to_free(void) { free(announce(masu_sized_alloc(24))); }

#define CASE(name) {#name, name}
static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    CASE(pool_double_free),  CASE(pool_wrong_pool),   CASE(pool_inside_block),
    CASE(pool_foreign),      CASE(pool_destroyed),    CASE(fixed_inside_block),
    CASE(pool_write_after_free),
    CASE(fixed_double_free), CASE(fixed_foreign),     CASE(ladder_wrong_ladder),
    CASE(ladder_double_free),
    CASE(arena_destroyed),   CASE(heap_destroyed),    CASE(sized_double_free),
    CASE(arena_of_caller_destroyed), CASE(arena_mark_of_another), CASE(arena_mark_void),
    CASE(heap_destroyed_twice), CASE(heap_double_free), CASE(heap_inside_block),
    CASE(heap_small_block_outlives), CASE(heap_large_block_outlives),
    CASE(heap_block_outlives_realloc), CASE(scope_block_freed),
    CASE(sized_wrong_size),  CASE(sized_from_malloc), CASE(sized_to_free),
    CASE(pool_of_heap_double_free), CASE(pool_destroyed_reset), CASE(fixed_destroyed),
    CASE(ladder_destroyed_free),    CASE(arena_destroyed_reset),
    CASE(pool_to_free),      CASE(pool_aligned_to_free), CASE(fixed_to_free),
    CASE(fixed_wrong_pool),  CASE(pool_of_destroyed_heap), CASE(fixed_of_destroyed_heap),
    CASE(ladder_of_destroyed_heap), CASE(arena_of_destroyed_heap),
    CASE(ladder_double_free_small), CASE(ladder_foreign), CASE(ladder_from_malloc),
    CASE(ladder_inside_block), CASE(ladder_before_first_block), CASE(ladder_realloc_wrong_ladder),
    CASE(ladder_realloc_freed), CASE(fixed_realloc_freed), CASE(fixed_realloc_inside_block),
};

int main(int argc, char **argv) {
  for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
    if (!strcmp(argv[1], cases[i].name)) {
      cases[i].run();
      return 0;
    }
  return 2;
}
