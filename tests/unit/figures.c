#include "unit.h"

#include "base/figures.h"

/* Once without the last two. */
typedef struct counts {
  uint64_t first, second, third, fourth;
} counts;

static void sizes_of_versions_fit(void **state) {
  (void)state;
  for (size_t size = 0; size < 100; size++)
    assert_int_equal(FIGURES_FIT(size, counts, second), size >= 16 && size % 8 == 0);
}

static void who_knows_less_or_more_gets_what_both_know(void **state) {
  const counts known = {1, 2, 3, 4};
  (void)state;
  for (size_t fields = 2; fields <= 7; fields++) {
    uint64_t out[8];
    memset(out, 0xff, sizeof out);
    figures_give(out, fields * 8, &known, sizeof known);
    for (size_t i = 0; i < 8; i++)
      assert_int_equal(out[i], i >= fields ? UINT64_MAX : i < 4 ? i + 1 : 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_of_versions_fit),
      cmocka_unit_test(who_knows_less_or_more_gets_what_both_know),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
