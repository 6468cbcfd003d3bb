#include "unit.h"

#include "heap/sizes.h"

/* The table against a search. */
static unsigned class_by_looking(size_t size, size_t align) {
  unsigned c = 0;
  while (c < CLASS_COUNT && (class_size(c) < size || class_size(c) % align))
    c++;
  return c;
}

static void every_size_gets_the_smallest_class(void **state) {
  (void)state;
  for (size_t size = 0; size <= SMALL_MAX; size++)
    assert_int_equal(class_of(size), class_by_looking(size, 1));
  assert_int_equal(class_size(class_of(SMALL_MAX)), SMALL_MAX);
}

static void little_is_lost(void **state) {
  (void)state;
  for (size_t size = 1; size <= SMALL_MAX; size++) {
    size_t block = class_size(class_of(size));
    if (size <= 64)
      assert_true(block - size <= 15);
    else
      assert_true((block - size) * 5 <= block); /* 20 % of what is used */
  }
}

static void classes_ascend(void **state) {
  (void)state;
  assert_int_equal(class_size(0), 8);
  for (unsigned c = 1; c < CLASS_COUNT; c++) {
    assert_true(class_size(c) > class_size(c - 1));
    assert_int_equal(class_size(c) % 16, 0); /* what malloc promises */
  }
}

/* At least 4 blocks, a tail of at most 1/32, and no more slices than that takes. */
static void slabs_waste_little(void **state) {
  (void)state;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    unsigned slices = 0;
    size_t bytes;
    do
      bytes = ++slices * SLICE_SIZE;
    while (bytes / class_size(c) < 4 || bytes % class_size(c) * 32 > bytes);
    assert_int_equal(class_slices(c), slices);
    assert_int_equal(class_capacity(c), bytes / class_size(c));
    assert_true(slices <= HUGE_SLICES);
  }
}

static void aligned_classes(void **state) {
  (void)state;
  for (size_t align = 1; align <= TABLE_MAX; align *= 2)
    for (size_t size = 0; size <= SMALL_MAX; size += size < 2048 ? 1 : 61) {
      unsigned c = class_aligned(size, align);
      assert_int_equal(c, class_by_looking(size, align));
      assert_true(c < CLASS_COUNT);
      /* All blocks of a slab are aligned, since slabs start at slices. */
      for (unsigned i = 0; i < 5; i++)
        assert_int_equal(i * class_size(c) % align, 0);
    }
}

static void beyond_the_classes(void **state) {
  (void)state;
  assert_int_equal(class_aligned(SMALL_MAX + 1, 1), CLASS_COUNT);
  assert_int_equal(class_aligned(SIZE_MAX, 1), CLASS_COUNT);
  assert_int_equal(class_aligned(1, 2 * TABLE_MAX), CLASS_COUNT);
  assert_int_equal(class_aligned(1, (size_t)1 << 63), CLASS_COUNT);
  assert_int_equal(class_size(class_aligned(1, TABLE_MAX)), TABLE_MAX);
  assert_int_equal(class_size(class_aligned(SMALL_MAX, TABLE_MAX)), SMALL_MAX);
  assert_int_equal(class_size(class_aligned(0, 1)), 8);
}

/* ---- Other classes ---- */

enum { OTHERS = 28 }; /* that fit beside 8 and the powers of two */

static void check_all(void **state) {
  every_size_gets_the_smallest_class(state);
  classes_ascend(state);
  slabs_waste_little(state);
  aligned_classes(state);
  beyond_the_classes(state);
}

static bool has_class(size_t size) {
  return class_size(class_of(size)) == size;
}

static void set(const uint32_t *sizes, size_t count) {
  size_t at;
  assert_int_equal(sizes_set(sizes, count, &at), SIZES_FIT);
  for (size_t i = 0; i < count; i++)
    assert_true(has_class(sizes[i]));
}

static int restore_sizes(void **state) {
  (void)state;
  set(NULL, 0);
  return 0;
}

static void none_given_are_the_default_ones(void **state) {
  class_tables before = class_table;
  (void)state;
  set((const uint32_t[]){8, 48, 1040}, 3);
  assert_memory_not_equal(&before, &class_table, sizeof before);
  set(NULL, 0);
  assert_memory_equal(&before, &class_table, sizeof before);
}

/* First those that follow a power of two: a block for 1280 bytes would be 1.6 times as
 * large. */
static void what_is_missing_is_filled_up(void **state) {
  (void)state;
  set((const uint32_t[]){1040, 4112}, 2);
  unsigned defaults = 0;
  for (unsigned c = 0; c < TABLE_COUNT; c++)
    defaults += class_size(c) != 1040 && class_size(c) != 4112;
  assert_int_equal(defaults, TABLE_COUNT - 2);
  for (size_t size = 64; size < TABLE_MAX; size *= 2)
    assert_true(has_class(size + size / 4));
  assert_true(has_class(48));
}

static void random_lists(void **state) {
  uint64_t seed = 1;
  for (int round = 0; round < 30; round++) {
    uint32_t sizes[OTHERS];
    size_t count = 0;
    unsigned wanted = (unsigned)(random_next(&seed) % OTHERS) + 1;
    uint32_t room = (uint32_t)(TABLE_MAX / 16 / wanted);
    for (uint32_t i = 0; i < wanted; i++)
      sizes[count++] = 16 * (i * room + 1 + (uint32_t)(random_next(&seed) % room));
    set(sizes, count);
    check_all(state);
  }
}

/* Slabs of every size that can be: at most as many slices as the table holds. */
static void every_size_can_be_a_class(void **state) {
  for (uint32_t first = 16; first <= TABLE_MAX; first += 16 * OTHERS) {
    uint32_t sizes[OTHERS];
    size_t count = 0;
    for (uint32_t size = first; size < first + 16 * OTHERS && size <= TABLE_MAX; size += 16)
      sizes[count++] = size;
    set(sizes, count);
    slabs_waste_little(state);
  }
}

static void refused(sizes_fault fault, size_t where, const uint32_t *sizes, size_t count) {
  class_tables before = class_table;
  size_t at;
  assert_int_equal(sizes_set(sizes, count, &at), fault);
  assert_int_equal(at, where);
  assert_memory_equal(&before, &class_table, sizeof before);
}
#define REFUSED(fault, at, ...)                                \
  refused(fault, at, (const uint32_t[]){__VA_ARGS__},          \
          sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void bad_lists(void **state) {
  (void)state;
  REFUSED(SIZES_BAD, 0, 0);
  REFUSED(SIZES_BAD, 1, 8, 24);
  REFUSED(SIZES_BAD, 2, 8, 16, TABLE_MAX + 16);
  REFUSED(SIZES_BAD, 0, UINT32_MAX - 15);
  REFUSED(SIZES_ORDER, 1, 16, 8);
  REFUSED(SIZES_ORDER, 2, 16, 1040, 1040);
  uint32_t many[OTHERS + 1];
  for (uint32_t i = 0; i <= OTHERS; i++)
    many[i] = 1040 + 16 * i;
  refused(SIZES_TOO_MANY, OTHERS, many, OTHERS + 1);
  set(many, OTHERS);
}

/* Nothing but sizes_set writes the tables. */
static void tables_are_read_only(void **state) {
  (void)state;
  for (int written = 0; written < 2; written++) {
    pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);
      *(volatile uint32_t *)&class_table.sizes[3] = 1;
      _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
    set((const uint32_t[]){1040}, 1);
  }
}

#define TEST_SET(f) cmocka_unit_test_teardown(f, restore_sizes)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_gets_the_smallest_class),
      cmocka_unit_test(little_is_lost),
      cmocka_unit_test(classes_ascend),
      cmocka_unit_test(slabs_waste_little),
      cmocka_unit_test(aligned_classes),
      cmocka_unit_test(beyond_the_classes),
      TEST_SET(none_given_are_the_default_ones),
      TEST_SET(what_is_missing_is_filled_up),
      TEST_SET(random_lists),
      TEST_SET(every_size_can_be_a_class),
      TEST_SET(bad_lists),
      TEST_SET(tables_are_read_only),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
