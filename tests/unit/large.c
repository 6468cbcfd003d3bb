#include "unit.h"

#include "base/options.h"
#include "heap/large.h"
#include "os/os.h"

enum { DELAY = 1000 };

static void count_one(slab *s, void *count) {
  (void)s;
  ++*(size_t *)count;
}

/* Beyond what a test that failed left behind. */
static size_t blocks_before, used_before, direct_before;

static size_t blocks_now(void) {
  size_t blocks = 0;
  slab_for_each(count_one, &blocks);
  return blocks - blocks_before;
}
static size_t used_now(void) { return supply_figures_now().used - used_before; }
static size_t direct_now(void) { return supply_figures_now().direct - direct_before; }

static int begin(void **state) {
  (void)state;
  alarm(300);
  option_set(OPTION_purge_delay, DELAY);
  supply_set_helped(true);
  blocks_before += blocks_now();
  used_before += used_now();
  direct_before += direct_now();
  return 0;
}

static int end(void **state) {
  (void)state;
  assert_int_equal(blocks_now(), 0);
  assert_int_equal(used_now(), 0);
  assert_int_equal(direct_now(), 0);
  assert_int_equal(supply_check(), 0);
  supply_purge_all(SIZE_MAX);
  supply_purge_all(0);
  assert_int_equal(supply_figures_now().kept, 0);
  return 0;
}

/* Checked builds enter all slices of a block into the pagemap, so it stays in place. */
static void skip_if_checked(void) {
  if (CHECKED)
    skip();
}

/* Checks what holds for every large block, and writes all of it. */
static slab *take_aligned(size_t size, size_t align, size_t *dirty) {
  slab *s = large_take(size, align, dirty);
  assert_non_null(s);
  assert_true(s->kind == SLAB_RUN || s->kind == SLAB_DIRECT);
  assert_true(s->block_size >= size);
  assert_int_equal(s->block_size, s->slices * SLICE_SIZE);
  assert_int_equal((uintptr_t)s->start % SLICE_SIZE, 0);
  assert_int_equal((uintptr_t)s->start % align, 0);
  assert_int_equal(s->capacity, 1);
  map_entry e = map_get(s->start);
  assert_ptr_equal(map_entry_descriptor(e), s);
  assert_int_equal(map_entry_tag(e), TAG_SHARED);
  if (s->slices > 1) /* inside it is foreign */
    assert_int_equal(map_get(s->start + SLICE_SIZE), CHECKED ? e : MAP_NONE);
  if (!*dirty)
    assert_true(all_bytes(s->start, s->block_size, 0));
  memset(s->start, 0x5a, s->block_size);
  return s;
}

static slab *take(size_t size) {
  size_t dirty;
  return take_aligned(size, 1, &dirty);
}

static void give(slab *s) {
  char *start = s->start;
  large_give(s);
  assert_int_equal(map_get(start), MAP_NONE);
}

/* Every byte tells where it is. */
static void fill(slab *s, size_t size) {
  for (size_t i = 0; i < size / 8; i++)
    ((uint64_t *)s->start)[i] = i * 0x9e3779b97f4a7c15;
}

static bool is_filled(const slab *s, size_t size) {
  for (size_t i = 0; i < size / 8; i++)
    if (((uint64_t *)s->start)[i] != i * 0x9e3779b97f4a7c15)
      return false;
  return true;
}

/* ---- Run or mapping ---- */

static void up_to_a_huge_page_it_is_a_run(void **state) {
  static const size_t sizes[] = {
      1, 32769, SLICE_SIZE, SLICE_SIZE + 1, HUGE_SIZE - 1, HUGE_SIZE};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    slab *s = take(sizes[i]);
    assert_int_equal(s->kind, SLAB_RUN);
    assert_true(s->block_size - sizes[i] < SLICE_SIZE);
    assert_int_equal(used_now(), s->block_size);
    assert_int_equal(direct_now(), 0);
    give(s);
    assert_int_equal(used_now(), 0);
  }
}

static void above_it_is_a_mapping(void **state) {
  static const size_t sizes[] = {HUGE_SIZE + 1, 3 * MIB, 40 * MIB + 5};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    slab *s = take(sizes[i]);
    assert_int_equal(s->kind, SLAB_DIRECT);
    assert_true(s->block_size - sizes[i] < SLICE_SIZE);
    assert_int_equal(used_now(), 0);
    assert_int_equal(direct_now(), s->block_size);
    give(s);
    assert_int_equal(direct_now(), 0);
  }
}

static void alignment(void **state) {
  (void)state;
  for (size_t align = 1; align <= 64 * MIB; align *= 4)
    for (size_t size = 5000; size <= 8 * MIB; size *= 6) {
      size_t dirty;
      slab *a = take_aligned(size, align, &dirty),
           *b = take_aligned(size, align, &dirty);
      assert_int_equal(a->kind,
                       size <= HUGE_SIZE && align <= HUGE_SIZE ? SLAB_RUN : SLAB_DIRECT);
      give(a);
      give(b);
    }
}

static void too_large(void **state) {
  size_t dirty;
  (void)state;
  assert_null(large_take(SIZE_MAX, 1, &dirty));
  assert_null(large_take(LARGE_MOST + 1, 1, &dirty));
  assert_null(large_take(LARGE_MOST, 1, &dirty));
  assert_null(large_take((size_t)1 << 50, 1, &dirty));
  assert_null(large_take(1, (size_t)1 << 63, &dirty));
  assert_null(large_take(1, (size_t)1 << 50, &dirty));
}

/* ---- Zero ---- */

static void what_is_said_to_be_zero_is(void **state) {
  size_t dirty;
  (void)state;
  slab *small = take_aligned(300000, 1, &dirty);
  assert_int_equal(dirty, 0);
  slab *mapping = take_aligned(3 * MIB, 1, &dirty);
  assert_int_equal(dirty, 0);
  give(small);
  give(mapping);
  small = take_aligned(300000, 1, &dirty);
  assert_int_not_equal(dirty, 0);
  mapping = take_aligned(3 * MIB, 1, &dirty);
  assert_int_not_equal(dirty, 0); /* a kept one */
  give(small);
  give(mapping);
  supply_purge_all(SIZE_MAX);
  supply_purge_all(1);
  small = take_aligned(300000, 1, &dirty);
  assert_int_equal(dirty, 0);
  mapping = take_aligned(3 * MIB, 1, &dirty);
  assert_int_equal(dirty, 0);
  give(small);
  give(mapping);
}

/* ---- Resizing ---- */

static void the_same_size_changes_nothing(void **state) {
  (void)state;
  slab *small = take(200000), *mapping = take(5 * MIB);
  assert_ptr_equal(large_resize(small, 196609), small->start);
  assert_ptr_equal(large_resize(small, small->block_size), small->start);
  assert_ptr_equal(large_resize(mapping, 5 * MIB - 100), mapping->start);
  give(small);
  give(mapping);
}

static void a_run_grows_where_it_stands(void **state) {
  (void)state;
  skip_if_checked();
  slab *s = take(4 * SLICE_SIZE);
  char *start = s->start;
  fill(s, 4 * SLICE_SIZE);
  assert_ptr_equal(large_resize(s, 9 * SLICE_SIZE - 5), start);
  assert_int_equal(s->slices, 9);
  assert_int_equal(s->block_size, 9 * SLICE_SIZE);
  assert_int_equal(used_now(), 9 * SLICE_SIZE);
  assert_true(is_filled(s, 4 * SLICE_SIZE));
  fill(s, 9 * SLICE_SIZE);
  slab *behind = take(SLICE_SIZE);
  assert_ptr_equal(behind->start, start + 9 * SLICE_SIZE);
  assert_null(large_resize(s, 10 * SLICE_SIZE)); /* no room */
  assert_int_equal(s->slices, 9);
  assert_true(is_filled(s, 9 * SLICE_SIZE));
  assert_null(large_resize(s, HUGE_SIZE + 1)); /* no run is so large */
  assert_null(large_resize(s, SIZE_MAX));
  give(behind);
  give(s);
}

static void a_run_shrinks(void **state) {
  (void)state;
  skip_if_checked();
  slab *s = take(HUGE_SIZE);
  char *start = s->start;
  fill(s, HUGE_SIZE);
  assert_ptr_equal(large_resize(s, 10 * SLICE_SIZE), start);
  assert_int_equal(s->block_size, 10 * SLICE_SIZE);
  assert_int_equal(used_now(), 10 * SLICE_SIZE);
  assert_int_equal(supply_check(), 0);
  slab *behind = take(22 * SLICE_SIZE);
  assert_ptr_equal(behind->start, start + 10 * SLICE_SIZE);
  assert_true(is_filled(s, 10 * SLICE_SIZE));
  give(s);
  give(behind);
}

static void a_mapping_shrinks(void **state) {
  (void)state;
  skip_if_checked();
  slab *s = take(8 * MIB);
  char *start = s->start;
  fill(s, 8 * MIB);
  assert_ptr_equal(large_resize(s, 3 * MIB), start);
  assert_int_equal(s->block_size, 3 * MIB);
  assert_int_equal(direct_now(), 3 * MIB);
  assert_true(is_filled(s, 3 * MIB));
  assert_int_equal(supply_figures_now().kept, 5 * MIB);
  assert_null(large_resize(s, 200000)); /* better copied to a run */
  assert_true(is_filled(s, 3 * MIB));
  give(s);
}

static void a_mapping_grows_in_place(void **state) {
  (void)state;
  skip_if_checked();
  slab *s = take(16 * MIB);
  char *start = s->start;
  fill(s, 16 * MIB);
  assert_ptr_equal(large_resize(s, 4 * MIB), start); /* leaves room behind */
  assert_ptr_equal(large_resize(s, 12 * MIB), start);
  assert_int_equal(s->block_size, 12 * MIB);
  assert_int_equal(direct_now(), 12 * MIB);
  assert_true(is_filled(s, 4 * MIB));
  assert_int_equal(supply_figures_now().kept, 4 * MIB);
  give(s);
}

static void a_mapping_moves(void **state) {
  (void)state;
  skip_if_checked();
  slab *s = take(4 * MIB);
  char *start = s->start;
  fill(s, 4 * MIB);
  /* Somebody stands right behind. */
  char *behind = mmap(start + 4 * MIB, 4096, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  char *moved = large_resize(s, 20 * MIB);
  assert_non_null(moved);
  assert_ptr_not_equal(moved, start);
  assert_ptr_equal(s->start, moved);
  assert_int_equal((uintptr_t)moved % SLICE_SIZE, 0);
  assert_int_equal(s->block_size, 20 * MIB);
  assert_int_equal(direct_now(), 20 * MIB);
  assert_true(is_filled(s, 4 * MIB));
  assert_true(all_bytes(moved + 4 * MIB, 16 * MIB, 0));
  assert_int_equal(map_get(start), MAP_NONE);
  assert_ptr_equal(map_entry_descriptor(map_get(moved)), s);
  assert_int_equal(map_entry_tag(map_get(moved)), TAG_SHARED);
  memset(moved, 1, 20 * MIB);
  give(s);
  if (behind != MAP_FAILED)
    munmap(behind, 4096);
}

static void a_mapping_that_cannot_grow(void) {
  size_t dirty;
  slab *s = large_take(16 * MIB, 1, &dirty);
  char *start = s->start;
  fill(s, 16 * MIB);
  mmap(start + 16 * MIB, 4096, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  limit_address_space(8 * MIB);
  REQUIRE(large_resize(s, 64 * MIB) == NULL);
  REQUIRE(s->start == start && s->block_size == 16 * MIB);
  REQUIRE(map_entry_descriptor(map_get(start)) == s);
  REQUIRE(direct_now() == 16 * MIB);
  REQUIRE(is_filled(s, 16 * MIB));
  unlimit_address_space();
  /* The reservation is to be had, the memory isn't. */
  struct rlimit little = {20 * MIB, RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_DATA, &little) == 0);
  REQUIRE(large_resize(s, 128 * MIB) == NULL);
  REQUIRE(s->start == start && s->block_size == 16 * MIB);
  REQUIRE(map_entry_descriptor(map_get(start)) == s);
  REQUIRE(is_filled(s, 16 * MIB));
  large_give(s);
}

static void a_refused_resize_changes_nothing(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(a_mapping_that_cannot_grow);
}

/* ---- Blocks for a signal handler ---- */

static slab *nested(size_t size, size_t align) {
  char *p = large_take_nested(size, align);
  assert_non_null(p);
  assert_int_equal((uintptr_t)p % align, 0);
  slab *s = map_entry_descriptor(map_get(p));
  assert_int_equal(map_entry_tag(map_get(p)), TAG_SHARED);
  assert_int_equal(s->kind, SLAB_NESTED);
  assert_ptr_equal(s->start, p);
  assert_true(s->block_size >= size);
  assert_true(all_bytes(p, s->block_size, 0));
  memset(p, 1, s->block_size);
  return s;
}

static void nested_blocks(void **state) {
  (void)state;
  for (size_t align = 8; align <= SLICE_SIZE / 2; align *= 2)
    for (size_t size = 1; size <= 3 * MIB; size = size * 5 + 1) {
      slab *s = nested(size, align);
      char *last = s->start + s->block_size - 1;
      large_give(s);
      assert_int_equal(map_get(last), MAP_NONE);
      assert_false(is_mapped(last));
    }
  assert_null(large_take_nested(SIZE_MAX, 1));
  assert_null(large_take_nested(LARGE_MOST, 1));
  assert_null(large_take_nested(100, 4 * MIB));
}

/* Its descriptor takes some of the mapping: as many slices are not as many bytes. */
static void a_nested_block_resized(void **state) {
  (void)state;
  slab *s = nested(60000, 1);
  size_t room = s->block_size;
  if (large_resize(s, room))
    assert_true(s->block_size >= room);
  if (large_resize(s, room + 1)) /* or it can't, and is copied */
    assert_true(s->block_size >= room + 1);
  if (large_resize(s, SLICE_SIZE))
    assert_true(s->block_size >= SLICE_SIZE);
  large_give(s);
}

/* ---- Threads ---- */

static void *take_resize_give(void *argument) {
  enum { HELD = 12 };
  slab *held[HELD] = {0};
  uint64_t seed = (uintptr_t)argument;
  run_on((unsigned)seed);
  for (int i = 0; i < 3000; i++) {
    slab **s = &held[random_next(&seed) % HELD];
    size_t size = random_next(&seed) % (random_next(&seed) % 4 ? HUGE_SIZE : 6 * MIB) + 1;
    size_t dirty;
    if (!*s) {
      *s = large_take(size, 1, &dirty);
      REQUIRE(*s != NULL);
      REQUIRE(dirty || *(uintptr_t *)(*s)->start == 0);
      *(uintptr_t *)(*s)->start = (uintptr_t)*s;
      continue;
    }
    REQUIRE(*(uintptr_t *)(*s)->start == (uintptr_t)*s);
    if (random_next(&seed) % 2) {
      large_give(*s);
      *s = NULL;
    } else {
      char *p = large_resize(*s, size);
      REQUIRE(!p || (p == (*s)->start && (*s)->block_size >= size));
      REQUIRE(*(uintptr_t *)(*s)->start == (uintptr_t)*s);
      if (i % 64 == 0)
        supply_purge_all(i % 128 ? SIZE_MAX : 0);
    }
  }
  for (int i = 0; i < HELD; i++)
    if (held[i])
      large_give(held[i]);
  return NULL;
}

static void many_threads(void **state) {
  pthread_t threads[3];
  (void)state;
  for (uintptr_t i = 0; i < 3; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, take_resize_give, (void *)(i + 1)),
                     0);
  for (int i = 0; i < 3; i++)
    pthread_join(threads[i], NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(up_to_a_huge_page_it_is_a_run),
      TEST(above_it_is_a_mapping),
      TEST(alignment),
      TEST(too_large),
      TEST(what_is_said_to_be_zero_is),
      TEST(the_same_size_changes_nothing),
      TEST(a_run_grows_where_it_stands),
      TEST(a_run_shrinks),
      TEST(a_mapping_shrinks),
      TEST(a_mapping_grows_in_place),
      TEST(a_mapping_moves),
      TEST(a_refused_resize_changes_nothing),
      TEST(nested_blocks),
      TEST(a_nested_block_resized),
      TEST(many_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
