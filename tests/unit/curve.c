/* curve: memory over time, against a list of all that was added. */
#include "unit.h"

#include "observe/curve.h"

enum { EVENTS = 20000 };

/* The highest value from a step's beginning to its end, by looking at all. */
static double highest_in(const uint64_t *at, const double *value, size_t count, uint64_t from, uint64_t to) {
  double before = 0, most = 0;
  for (size_t i = 0; i < count && at[i] < to; i++) {
    if (at[i] < from)
      before = value[i];
    else if (value[i] > most)
      most = value[i];
  }
  return before > most ? before : most;
}

static void a_point_has_the_highest_of_its_step(void **state) {
  static uint64_t at[EVENTS];
  static double value[EVENTS];
  static curve c;
  uint64_t now = 0, seed = 1;
  (void)state;
  for (size_t i = 0; i < EVENTS; i++) {
    now += random_next(&seed) % (i % 1000 ? 300000 : 3000000000); /* at times nothing happens for long */
    at[i] = now;
    value[i] = (double)(random_next(&seed) % 1000000);
    curve_add(&c, at[i], (curve_point){value[i], 2 * value[i]});
    assert_int_equal(c.count, now / c.step + 1);
    assert_true(c.count <= CURVE_POINTS);
    if (i % 997 && i + 1 < EVENTS)
      continue;
    for (size_t k = 0; k < c.count; k++) {
      double most = highest_in(at, value, i + 1, k * c.step, (k + 1) * c.step);
      assert_true(c.points[k].in_use == most && c.points[k].held == 2 * most);
    }
  }
  assert_true(c.count > CURVE_POINTS / 2 && c.step > CURVE_STEP_LEAST);
}

/* The clock was read before the lock was taken. */
static void what_comes_late_counts_in_the_last_point(void **state) {
  static curve c;
  (void)state;
  curve_add(&c, 5 * CURVE_STEP_LEAST, (curve_point){1, 1});
  curve_add(&c, 4 * CURVE_STEP_LEAST, (curve_point){7, 7});
  assert_int_equal(c.count, 6);
  assert_true(c.points[4].in_use == 0 && c.points[5].in_use == 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_point_has_the_highest_of_its_step),
      cmocka_unit_test(what_comes_late_counts_in_the_last_point),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
