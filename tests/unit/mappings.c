#include "unit.h"

#include "os/os.h"
#include "pages/mappings.h"
#include "pages/pagemap.h"

enum { DELAY = 1000 };

static int begin(void **state) {
  (void)state;
  alarm(300);
  return 0;
}

static int end(void **state) {
  (void)state;
  mappings_unmap(SIZE_MAX, os_now_ms(), 0);
  assert_int_equal(mappings_kept(), 0);
  return 0;
}

static char *take_dirty(size_t slices, size_t align, size_t *dirty) {
  char *p = mapping_take_kept(slices, align);
  *dirty = slices * SLICE_SIZE;
  return p ? p : mapping_take_fresh(slices, align, dirty);
}

static char *take_aligned(size_t slices, size_t align) {
  size_t dirty, size = slices * SLICE_SIZE;
  char *p = take_dirty(slices, align, &dirty);
  assert_non_null(p);
  assert_int_equal((uintptr_t)p % align, 0);
  if (dirty < size)
    assert_true(all_bytes(p + dirty, size - dirty, 0));
  memset(p, 1, size);
  return p;
}

static char *take(size_t slices) { return take_aligned(slices, SLICE_SIZE); }

/* ---- Reuse ---- */

static void a_mapping_is_used_again(void **state) {
  (void)state;
  char *p = take(64);
  mapping_give(p, 64);
  assert_int_equal(mappings_kept(), 64 * SLICE_SIZE);
  assert_ptr_equal(take(64), p);
  assert_int_equal(mappings_kept(), 0);
  mapping_give(p, 64);
}

static void a_smaller_one_is_cut_off_and_joins_again(void **state) {
  (void)state;
  char *p = take(100);
  mapping_give(p, 100);
  char *a = take(40), *b = take(50);
  assert_ptr_equal(a, p);
  assert_ptr_equal(b, p + 40 * SLICE_SIZE);
  assert_int_equal(mappings_kept(), 10 * SLICE_SIZE);
  mapping_give(a, 40);
  mapping_give(b, 50);
  assert_ptr_equal(take(100), p);
  mapping_give(p + 60 * SLICE_SIZE, 40); /* and in parts */
  mapping_give(p, 60);
  assert_ptr_equal(take(100), p);
  mapping_give(p, 100);
}

static void the_smallest_that_fits_is_used(void **state) {
  (void)state;
  char *whole = take(200);
  /* Ranges of 50, 40 and 45, kept apart by what stays in use. */
  mapping_give(whole, 50);
  mapping_give(whole + 70 * SLICE_SIZE, 40);
  mapping_give(whole + 140 * SLICE_SIZE, 45);
  char *p = take(38);
  assert_ptr_equal(p, whole + 70 * SLICE_SIZE);
  mapping_give(p, 38);
  mapping_give(whole + 50 * SLICE_SIZE, 20);
  mapping_give(whole + 110 * SLICE_SIZE, 30);
  mapping_give(whole + 185 * SLICE_SIZE, 15);
  assert_int_equal(mappings_kept(), 200 * SLICE_SIZE);
}

/* The contents tell whether the memory is the old one: only the rest is fresh. */
static void a_larger_one_grows_out_of_what_is_kept(void **state) {
  size_t dirty;
  (void)state;
  char *p = take(64);
  memset(p, 0x5a, 64 * SLICE_SIZE);
  mapping_give(p, 64);
  assert_null(mapping_take_kept(96, SLICE_SIZE));
  char *q = mapping_take_fresh(96, SLICE_SIZE, &dirty);
  assert_non_null(q);
  assert_int_equal(dirty, 64 * SLICE_SIZE);
  assert_true(all_bytes(q, 64 * SLICE_SIZE, 0x5a));
  assert_true(all_bytes(q + 64 * SLICE_SIZE, 32 * SLICE_SIZE, 0));
  assert_int_equal(mappings_kept(), 0);
  mapping_give(q, 96);
}

static void alignment(void **state) {
  (void)state;
  for (int i = 0; i < 6; i++) {
    char *a = take_aligned(64, 2 * MIB), *b = take_aligned(64, 16 * MIB);
    mapping_give(a, 64);
    char *c = take_aligned(70, 32 * MIB);
    mapping_give(b, 64);
    mapping_give(c, 70);
  }
}

/* ---- Giving to the system ---- */

static void ranges_age(void **state) {
  (void)state;
  char *p = take(200);
  uint64_t before = os_now_ms();
  mapping_give(p, 64);
  mapping_give(p + 100 * SLICE_SIZE, 100);
  uint64_t after = os_now_ms();
  assert_int_equal(mappings_unmap(SIZE_MAX, before + DELAY - 1, DELAY), 0);
  assert_int_equal(mappings_kept(), 164 * SLICE_SIZE);
  assert_int_equal(mappings_unmap(SIZE_MAX, after + DELAY, DELAY), 164 * SLICE_SIZE);
  assert_int_equal(mappings_kept(), 0);
  assert_false(is_mapped(p) || is_mapped(p + 100 * SLICE_SIZE));
  assert_true(is_mapped(p + 64 * SLICE_SIZE));
  mapping_give(p + 64 * SLICE_SIZE, 36);
}

static void so_much_is_unmapped(void **state) {
  (void)state;
  char *p = take(200);
  mapping_give(p, 64);
  sleep_ms(20); /* the clock is coarse, the first is to be the oldest */
  mapping_give(p + 100 * SLICE_SIZE, 100);
  assert_int_equal(mappings_unmap(30 * SLICE_SIZE - 1, os_now_ms(), 0), 30 * SLICE_SIZE);
  assert_false(is_mapped(p + 29 * SLICE_SIZE));
  assert_true(is_mapped(p + 30 * SLICE_SIZE));
  assert_int_equal(mappings_unmap(44 * SLICE_SIZE, os_now_ms(), 0), 44 * SLICE_SIZE);
  assert_int_equal(mappings_unmap(SIZE_MAX / 2, os_now_ms(), 0), 90 * SLICE_SIZE);
  assert_int_equal(mappings_unmap(SLICE_SIZE, os_now_ms(), 0), 0);
  mapping_give(p + 64 * SLICE_SIZE, 36);
}

/* No more pieces are kept than there are entries, and none is lost. */
static void pieces_are_bounded(void **state) {
  enum { PIECES = 100 };
  (void)state;
  char *p = take(2 * PIECES);
  for (size_t i = 0; i < PIECES; i++)
    mapping_give(p + 2 * i * SLICE_SIZE, 1);
  size_t mapped = 0;
  for (size_t i = 0; i < PIECES; i++)
    mapped += is_mapped(p + 2 * i * SLICE_SIZE);
  assert_true(mapped < PIECES);
  assert_int_equal(mappings_kept(), mapped * SLICE_SIZE);
  for (size_t i = 0; i < PIECES; i++)
    mapping_give(p + (2 * i + 1) * SLICE_SIZE, 1);
}

static void very_large_ones_are_not_kept(void **state) {
  size_t dirty;
  (void)state;
  char *p = take_dirty(1025, SLICE_SIZE, &dirty); /* 64 MiB and a slice */
  assert_non_null(p);
  assert_int_equal(mapping_give(p, 1025), 1025 * SLICE_SIZE);
  assert_int_equal(mappings_kept(), 0);
  assert_false(is_mapped(p));
}

/* ---- Resizing ---- */

static void a_mapping_extends_into_what_is_kept(void **state) {
  (void)state;
  char *p = take(200);
  mapping_give(p + 100 * SLICE_SIZE, 100);
  assert_true(mapping_extend_kept(p, 100, 160));
  assert_false(mapping_extend_kept(p, 160, 201));
  assert_int_equal(mappings_kept(), 40 * SLICE_SIZE);
  assert_true(all_bytes(p, 160 * SLICE_SIZE, 1));
  mapping_give(p, 160);
  assert_int_equal(mappings_kept(), 200 * SLICE_SIZE);
}

static void a_mapping_moves(void **state) {
  (void)state;
  char *p = take(100);
  char *q = mapping_move(p, 100, 150);
  assert_non_null(q);
  assert_ptr_not_equal(q, p);
  assert_false(is_mapped(p));
  assert_true(all_bytes(q, 100 * SLICE_SIZE, 1));
  assert_true(all_bytes(q + 100 * SLICE_SIZE, 50 * SLICE_SIZE, 0));
  mapping_give(q, 150);
}

static void refusals_change_nothing(void **state) {
  size_t huge = ((size_t)1 << 46) / SLICE_SIZE, dirty;
  (void)state;
  char *p = take(100);
  assert_false(mapping_extend_fresh(p, 100, huge));
  assert_null(mapping_move(p, 100, 2 * huge));
  assert_true(all_bytes(p, 100 * SLICE_SIZE, 1));
  assert_null(mapping_take_fresh(4 * huge, SLICE_SIZE, &dirty));
  mapping_give(p, 100);
}

/* 4 GiB of address space share a leaf of the pagemap. Between two of them there is room, and nothing was above. */
static char *leaf_border(size_t below, size_t above) {
  for (uintptr_t at = (uintptr_t)1 << 36; at < (uintptr_t)1 << 46; at += (uintptr_t)1 << MAP_LEAF_SHIFT) {
    char *start = (char *)at - below;
    if (map_leaf((void *)at) || mmap(start, below + above, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
      continue;
    munmap((char *)at, above);
    return (char *)at;
  }
  return NULL;
}

static void what_a_mapping_grows_into_is_in_the_pagemap(void **state) {
  enum { BELOW = 16, ABOVE = 32 };
  (void)state;
  if (SANITIZED)
    skip(); /* they divide the address space */
  char *border = leaf_border(BELOW * SLICE_SIZE, ABOVE * SLICE_SIZE), *p = border - BELOW * SLICE_SIZE;
  assert_non_null(border);
  assert_true(map_prepare(p, BELOW * SLICE_SIZE));
  assert_true(mapping_extend_fresh(p, BELOW, BELOW + ABOVE));
  assert_int_not_equal(map_leaf(border), 0);
  mapping_give(border, ABOVE);
  assert_ptr_equal(mapping_take_kept(ABOVE, SLICE_SIZE), border);
  map_set(border, 1, 1);
  assert_int_equal(map_get(border), 1);
  map_set(border, 1, MAP_NONE);
  mapping_give(p, BELOW + ABOVE);
}

/* There is address space for the block, but not for its part of the pagemap. */
static void move_beyond_the_pagemap(void) {
  const size_t much = 5 * 1024 * MIB; /* of which a part was never asked for */
  char *p = take(100);
  limit_address_space(much + 128 * KIB);
  REQUIRE(!mapping_move(p, 100, much / SLICE_SIZE));
  REQUIRE(all_bytes(p, 100 * SLICE_SIZE, 1));
  void *again = os_reserve(much, SLICE_SIZE);
  REQUIRE(again);
}

static void a_refused_move_costs_no_address_space(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(move_beyond_the_pagemap);
}

/* ---- Threads ---- */

static void *take_resize_give(void *number) {
  uint64_t seed = (uintptr_t)number;
  for (int i = 0; i < 300; i++) {
    size_t dirty, n = 33 + random_next(&seed) % 60, more = n + random_next(&seed) % 60;
    char *p = take_dirty(n, SLICE_SIZE, &dirty);
    REQUIRE(p && (dirty >= n * SLICE_SIZE || (!p[dirty] && !p[n * SLICE_SIZE - 1])));
    *(uintptr_t *)p = *(uintptr_t *)(p + (n - 1) * SLICE_SIZE) = (uintptr_t)number;
    if (mapping_extend_kept(p, n, more) || mapping_extend_fresh(p, n, more)) {
      n = more;
    } else if (i % 3 == 0) { /* refused where two mappings have become neighbours */
      char *q = mapping_move(p, n, more + 1);
      if (q)
        p = q, n = more + 1;
    }
    REQUIRE(*(uintptr_t *)p == (uintptr_t)number);
    size_t kept = i % 2 ? 20 : 0;
    mapping_give(p + kept * SLICE_SIZE, n - kept);
    if (kept)
      mapping_give(p, kept);
    if (i % 32 == 0)
      mappings_unmap(SIZE_MAX, os_now_ms(), i % 64 ? DELAY : 0);
  }
  return NULL;
}

static void many_threads(void **state) {
  pthread_t threads[4];
  (void)state;
  for (uintptr_t i = 0; i < 4; i++)
    assert_int_equal(
        pthread_create(&threads[i], NULL, take_resize_give, (void *)(i + 1)), 0);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_mapping_is_used_again),
      TEST(a_smaller_one_is_cut_off_and_joins_again),
      TEST(the_smallest_that_fits_is_used),
      TEST(a_larger_one_grows_out_of_what_is_kept),
      TEST(alignment),
      TEST(ranges_age),
      TEST(so_much_is_unmapped),
      TEST(pieces_are_bounded),
      TEST(very_large_ones_are_not_kept),
      TEST(a_mapping_extends_into_what_is_kept),
      TEST(a_mapping_moves),
      TEST(what_a_mapping_grows_into_is_in_the_pagemap),
      TEST(a_refused_move_costs_no_address_space),
      TEST(refusals_change_nothing),
      TEST(many_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
