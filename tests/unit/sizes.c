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
    assert_int_equal(class_slices[c], slices);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_gets_the_smallest_class),
      cmocka_unit_test(little_is_lost),
      cmocka_unit_test(classes_ascend),
      cmocka_unit_test(slabs_waste_little),
      cmocka_unit_test(aligned_classes),
      cmocka_unit_test(beyond_the_classes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
