#include "unit.h"

#include "pages/pagemap.h"
#include "trap.h"

/* The map only names addresses, it never touches them: these need not exist. */
#define LEAF ((uintptr_t)1 << MAP_LEAF_SHIFT) /* what one leaf covers: 4 GiB */
static void *address(uintptr_t leaf, intptr_t offset) {
  return (void *)(leaf * LEAF + (uintptr_t)offset);
}

static char descriptors[4][128];

static void an_entry_holds_descriptor_and_tag(void **state) {
  static const uintptr_t pointers[] = {0x80, 0x7fffffffff80, 0x555555554000};
  (void)state;
  for (size_t i = 0; i < 3; i++)
    for (unsigned tag = TAG_NONE + 1; tag < TAG_LIMIT; tag = tag * 3 + 1) {
      map_entry e = map_entry_of((void *)pointers[i], (map_tag)tag);
      assert_int_equal(map_entry_tag(e), tag);
      assert_ptr_equal(map_entry_descriptor(e), (void *)pointers[i]);
      assert_int_not_equal(e, MAP_NONE);
    }
  assert_int_equal(map_entry_tag(MAP_NONE), TAG_NONE);
}

static void what_was_never_entered(void **state) {
  (void)state;
  int on_stack;
  assert_int_equal(map_get(NULL), MAP_NONE);
  assert_int_equal(map_get((void *)1), MAP_NONE);
  assert_int_equal(map_get(&on_stack), MAP_NONE);
  assert_int_equal(map_get(descriptors), MAP_NONE);
  assert_int_equal(map_leaf(address(100, 0)), 0);
  assert_int_equal(map_get(address(100, 12345)), MAP_NONE);
  assert_int_equal(map_get((void *)(((uintptr_t)1 << OS_ADDRESS_BITS) - 1)), MAP_NONE);
}

/* Sets the range, and sees it and nothing else. */
static void assert_range(uintptr_t first, size_t slices, map_entry e) {
  const char *start = (const char *)first;
  size_t size = slices * SLICE_SIZE;
  map_set(start, slices, e);
  for (size_t i = 0; i < slices; i++) {
    assert_int_equal(map_get(start + i * SLICE_SIZE), e);
    assert_int_equal(map_get(start + i * SLICE_SIZE + 4711), e);
    assert_int_equal(map_get(start + (i + 1) * SLICE_SIZE - 1), e);
  }
  assert_int_equal(map_get(start - 1), MAP_NONE);
  assert_int_equal(map_get(start - SLICE_SIZE), MAP_NONE);
  assert_int_equal(map_get(start + size), MAP_NONE);
  map_set(start, slices, MAP_NONE);
  for (size_t i = 0; i < slices; i++)
    assert_int_equal(map_get(start + i * SLICE_SIZE), MAP_NONE);
}

static void ranges(void **state) {
  (void)state;
  map_entry e = map_entry_of(descriptors[0], TAG_FIRST_HEAP);
  assert_true(map_prepare(address(200, 0), LEAF));
  assert_range(200 * LEAF + 1 * MIB, 1, e);
  assert_range(200 * LEAF + 1 * MIB, 2, e);
  assert_range(200 * LEAF + 64 * SLICE_SIZE, 300, e);
  assert_range(200 * LEAF + SLICE_SIZE, 1, e);
  assert_range(201 * LEAF - 2 * SLICE_SIZE, 1, e);
}

static void neighbours_keep_theirs(void **state) {
  (void)state;
  char *start = address(210, 77 * SLICE_SIZE);
  assert_true(map_prepare(start, 3 * SLICE_SIZE));
  for (unsigned i = 0; i < 3; i++)
    map_set(start + i * SLICE_SIZE, 1, map_entry_of(descriptors[i], (map_tag)(10 + i)));
  map_set(start + SLICE_SIZE, 1, MAP_NONE);
  assert_ptr_equal(map_entry_descriptor(map_get(start)), descriptors[0]);
  assert_int_equal(map_get(start + SLICE_SIZE), MAP_NONE);
  assert_ptr_equal(map_entry_descriptor(map_get(start + 2 * SLICE_SIZE)), descriptors[2]);
  assert_int_equal(map_entry_tag(map_get(start + 2 * SLICE_SIZE)), 12);
  map_set(start, 3, MAP_NONE);
}

/* A run on both sides of a multiple of 4 GiB lies in two leaves. */
static void the_borders_of_leaves(void **state) {
  (void)state;
  char *border = address(301, 0);
  assert_true(map_prepare(border - SLICE_SIZE, 2 * SLICE_SIZE));
  assert_int_not_equal(map_leaf(border - 1), 0);
  assert_int_not_equal(map_leaf(border), 0);
  assert_int_equal(map_leaf(border + LEAF), 0);
  assert_int_equal(map_leaf(address(299, 0)), 0);
  map_entry e = map_entry_of(descriptors[1], TAG_SHARED);
  assert_range(301 * LEAF - SLICE_SIZE, 2, e);
  assert_range(301 * LEAF - 5 * SLICE_SIZE, 40, e);
  assert_range(301 * LEAF - SLICE_SIZE, 1, e);
  assert_range(301 * LEAF, 1, e);
}

static void only_what_is_needed_is_prepared(void **state) {
  (void)state;
  char *border = address(401, 0);
  assert_true(map_prepare(border - SLICE_SIZE, SLICE_SIZE)); /* ends at the border */
  assert_int_equal(map_leaf(border), 0);
  assert_true(map_prepare(border, SLICE_SIZE)); /* starts there */
  assert_int_equal(map_leaf(border + LEAF), 0);
  assert_true(map_prepare(address(403, -1 * (intptr_t)SLICE_SIZE), 2 * LEAF));
  for (uintptr_t leaf = 402; leaf <= 404; leaf++) /* the middle one too */
    assert_int_not_equal(map_leaf(address(leaf, 5)), 0);
  assert_int_equal(map_leaf(address(405, 0)), 0);
}

static void the_ends_of_the_address_space(void **state) {
  (void)state;
  uintptr_t top = (uintptr_t)1 << OS_ADDRESS_BITS;
  map_entry e = map_entry_of(descriptors[2], TAG_LIMIT - 1);
  assert_true(map_prepare((void *)(top - SLICE_SIZE), SLICE_SIZE));
  map_set((void *)(top - SLICE_SIZE), 1, e);
  assert_int_equal(map_get((void *)(top - 1)), e);
  assert_int_equal(map_get((void *)(top - SLICE_SIZE - 1)), MAP_NONE);
  map_set((void *)(top - SLICE_SIZE), 1, MAP_NONE);
  assert_true(map_prepare((void *)SLICE_SIZE, SLICE_SIZE));
  map_set((void *)SLICE_SIZE, 1, e);
  assert_int_equal(map_get((void *)(2 * SLICE_SIZE - 1)), e);
  assert_int_equal(map_get(NULL), MAP_NONE);
  map_set((void *)SLICE_SIZE, 1, MAP_NONE);
}

static void preparing_again_keeps_the_entries(void **state) {
  (void)state;
  char *p = address(500, 9 * SLICE_SIZE);
  assert_true(map_prepare(p, SLICE_SIZE));
  uintptr_t leaf = map_leaf(p);
  map_set(p, 1, map_entry_of(descriptors[3], 9));
  assert_true(map_prepare(p - SLICE_SIZE, 100 * SLICE_SIZE));
  assert_int_equal(map_leaf(p), leaf);
  assert_ptr_equal(map_entry_descriptor(map_get(p)), descriptors[3]);
  map_set(p, 1, MAP_NONE);
}

/* ---- Threads that make the same leaves ---- */

enum { THREADS = 2, LEAVES = 400 };
static atomic_u32 arrived;

static void *prepare_and_set(void *argument) {
  uintptr_t id = (uintptr_t)argument;
  run_on((unsigned)id);
  for (uintptr_t i = 0; i < LEAVES; i++) {
    char *mine = address(600 + i, (intptr_t)(id * SLICE_SIZE));
    meet(&arrived, THREADS);
    REQUIRE(map_prepare(mine, SLICE_SIZE));
    map_set(mine, 1, map_entry_of(descriptors[id], (map_tag)(id + 10)));
  }
  return NULL;
}

static void one_leaf_for_all(void **state) {
  pthread_t threads[THREADS];
  (void)state;
  for (uintptr_t i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, prepare_and_set, (void *)i), 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  for (uintptr_t i = 0; i < LEAVES; i++)
    for (uintptr_t id = 0; id < THREADS; id++)
      assert_int_equal(map_get(address(600 + i, (intptr_t)(id * SLICE_SIZE))),
                       map_entry_of(descriptors[id], (map_tag)(id + 10)));
}

/* ---- All entries ---- */

static size_t count_entry(char *start, map_entry entry, void *count) {
  (void)start, (void)entry;
  ++*(size_t *)count;
  return 1;
}

static long nothing_is_resident(long number, const long *arguments) {
  (void)number;
  memset((void *)arguments[2], 0, (size_t)arguments[1] / os_page());
  return 0;
}

static size_t entries;

static void look_when_swapped_out(void) {
  size_t count = 0;
  trap_calls(SYS_mincore, SYS_mincore, nothing_is_resident);
  map_for_each(count_entry, &count);
  REQUIRE(count == entries && map_resident() == 0);
}

/* Also those that are not resident; and to look makes nothing resident. */
static void all_entries_are_visited(void **state) {
  char *some[] = {address(1100, 0), address(1100, 40 * MIB), address(1102, -(intptr_t)SLICE_SIZE)};
  size_t before = 0, count = 0;
  (void)state;
  map_for_each(count_entry, &count); /* also of leaves in which nothing was ever entered */
  map_for_each(count_entry, &before);
  size_t at_first = map_resident();
  count = 0;
  for (size_t i = 0; i < 3; i++) {
    assert_true(map_prepare(some[i], SLICE_SIZE));
    map_set(some[i], 1, map_entry_of(descriptors[i], 10));
  }
  map_for_each(count_entry, &entries);
  size_t resident = map_resident();
  assert_int_equal(entries, before + 3);
  if (!SANITIZED)
    assert_int_equal(resident, at_first + 5 * os_page()); /* three of entries, two of what was written */
  map_for_each(count_entry, &count);
  assert_int_equal(map_resident(), resident);
#ifdef __SANITIZE_THREAD__ /* which holds signals back */
  (void)look_when_swapped_out;
#else
  in_child(look_when_swapped_out);
#endif
  for (size_t i = 0; i < 3; i++)
    map_set(some[i], 1, MAP_NONE);
}

/* ---- Short of memory ---- */

static void run_out(void) {
  limit_address_space(2 * MIB); /* four leaves */
  REQUIRE(!map_prepare(address(1000, 0), 8 * LEAF));
  REQUIRE(map_get(address(1007, 0)) == MAP_NONE);
  unlimit_address_space();
  REQUIRE(map_prepare(address(1000, 0), 8 * LEAF));
  REQUIRE(map_leaf(address(1007, 0)) != 0);
}

static void when_memory_runs_out(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(run_out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_entry_holds_descriptor_and_tag),
      cmocka_unit_test(what_was_never_entered),
      cmocka_unit_test(ranges),
      cmocka_unit_test(neighbours_keep_theirs),
      cmocka_unit_test(the_borders_of_leaves),
      cmocka_unit_test(only_what_is_needed_is_prepared),
      cmocka_unit_test(the_ends_of_the_address_space),
      cmocka_unit_test(preparing_again_keeps_the_entries),
      cmocka_unit_test(one_leaf_for_all),
      cmocka_unit_test(all_entries_are_visited),
      cmocka_unit_test(when_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
