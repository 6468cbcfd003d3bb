#include "unit.h"

#include "pages/purge.h"

static void due_after_the_delay(void **state) {
  (void)state;
  assert_false(purge_is_due(1000, 1000, 500));
  assert_false(purge_is_due(1000, 1499, 500));
  assert_true(purge_is_due(1000, 1500, 500));
  assert_true(purge_is_due(1000, 1501, 500));
  assert_true(purge_is_due(1000, 1000, 0));
  assert_true(purge_is_due(0, UINT64_MAX, 3600000));
}

static void the_cap_without_regret(void **state) {
  (void)state;
  purge_policy p = {0};
  assert_int_equal(purge_cap(&p, 0, 100), PURGE_KEEP_LEAST);
  assert_int_equal(purge_cap(&p, 4 * PURGE_KEEP_LEAST, 100), PURGE_KEEP_LEAST);
  assert_int_equal(purge_cap(&p, 400 * MIB, 100), 100 * MIB);
  assert_int_equal(purge_cap(&p, (size_t)1 << 46, 5000), (size_t)1 << 44);
}

static void only_what_is_needed_soon_is_regretted(void **state) {
  (void)state;
  purge_policy p = {.halved_at = 10000};
  purge_note_reuse(&p, 8 * MIB, 10000, 10000 + PURGE_REGRET_MS);
  assert_int_equal(p.regretted, 0);
  purge_note_reuse(&p, 8 * MIB, 10000, 10000 + PURGE_REGRET_MS - 1);
  assert_int_equal(p.regretted, 8 * MIB);
  purge_note_reuse(&p, 1 * MIB, 10000, 10000);
  assert_int_equal(purge_cap(&p, 0, 10000), PURGE_KEEP_LEAST + 9 * MIB);
}

static void regret_halves(void **state) {
  (void)state;
  purge_policy p = {.regretted = 64 * MIB, .halved_at = 5000};
  assert_int_equal(purge_cap(&p, 0, 5000 + PURGE_HALVING_MS - 1),
                   PURGE_KEEP_LEAST + 64 * MIB);
  assert_int_equal(purge_cap(&p, 0, 5000 + PURGE_HALVING_MS),
                   PURGE_KEEP_LEAST + 32 * MIB);
  assert_int_equal(purge_cap(&p, 0, 5000 + PURGE_HALVING_MS),
                   PURGE_KEEP_LEAST + 32 * MIB);
  assert_int_equal(purge_cap(&p, 0, 5000 + 3 * PURGE_HALVING_MS),
                   PURGE_KEEP_LEAST + 8 * MIB);
}

/* Asking often or seldom comes to the same. */
static void regret_does_not_depend_on_who_asks(void **state) {
  (void)state;
  purge_policy often = {.regretted = 1024 * MIB}, seldom = often;
  for (uint64_t now = 0; now < 8 * PURGE_HALVING_MS; now += 37)
    purge_cap(&often, 0, now);
  for (uint64_t now = 0; now < 8 * PURGE_HALVING_MS; now += 2 * PURGE_HALVING_MS + 1)
    purge_cap(&seldom, 0, now);
  assert_int_equal(purge_cap(&often, 0, 8 * PURGE_HALVING_MS),
                   purge_cap(&seldom, 0, 8 * PURGE_HALVING_MS));
  assert_int_equal(often.regretted, 4 * MIB);
}

static void regret_passes(void **state) {
  (void)state;
  purge_policy p = {.regretted = SIZE_MAX / 2, .halved_at = 0};
  assert_int_equal(purge_cap(&p, 0, 63 * PURGE_HALVING_MS), PURGE_KEEP_LEAST);
  p = (purge_policy){.regretted = SIZE_MAX / 2};
  assert_int_equal(purge_cap(&p, 0, 64 * PURGE_HALVING_MS), PURGE_KEEP_LEAST);
  p = (purge_policy){.regretted = SIZE_MAX / 2};
  assert_int_equal(purge_cap(&p, 0, UINT64_MAX), PURGE_KEEP_LEAST);
}

/* Callers read the clock before they wait for the lock: the time that they bring
 * may lie before what another one brought. */
static void a_clock_that_lags(void **state) {
  (void)state;
  assert_false(purge_is_due(1001, 1000, 500));
  purge_policy p = {.regretted = 64 * MIB, .halved_at = 5000};
  assert_int_equal(purge_cap(&p, 0, 4999), PURGE_KEEP_LEAST + 64 * MIB);
  assert_int_equal(purge_cap(&p, 0, 5999), PURGE_KEEP_LEAST + 64 * MIB);
  purge_note_reuse(&p, 1 * MIB, 5000, 4999);
  assert_int_equal(p.regretted, 65 * MIB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(due_after_the_delay),
      cmocka_unit_test(the_cap_without_regret),
      cmocka_unit_test(only_what_is_needed_soon_is_regretted),
      cmocka_unit_test(regret_halves),
      cmocka_unit_test(regret_does_not_depend_on_who_asks),
      cmocka_unit_test(regret_passes),
      cmocka_unit_test(a_clock_that_lags),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
