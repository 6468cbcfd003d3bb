#include "unit.h"

#include "base/bits.h"

static bool run_of_ones(uint32_t x, unsigned first, unsigned n) {
  for (unsigned i = first; i < first + n; i++)
    if (i >= 32 || !(x >> i & 1))
      return false;
  return true;
}

static unsigned longest_by_looking(uint32_t x) {
  unsigned longest = 0;
  for (unsigned first = 0; first < 32; first++)
    for (unsigned n = 1; n <= 32 - first; n++)
      if (run_of_ones(x, first, n) && n > longest)
        longest = n;
  return longest;
}

static uint32_t starts_by_looking(uint32_t x, unsigned n) {
  uint32_t starts = 0;
  for (unsigned first = 0; first < 32; first++)
    if (run_of_ones(x, first, n))
      starts |= (uint32_t)1 << first;
  return starts;
}

static void powers_of_two(void **state) {
  (void)state;
  assert_false(is_pow2(0));
  for (unsigned i = 0; i < 64; i++)
    assert_true(is_pow2((size_t)1 << i));
  for (size_t x = 3; x < 4096; x++)
    assert_int_equal(is_pow2(x), bit_count32((uint32_t)x) == 1);
  assert_false(is_pow2(SIZE_MAX));
  assert_int_equal(pow2_ceil(0), 1);
  assert_int_equal(pow2_ceil(1), 1);
  for (unsigned i = 1; i < 64; i++) {
    size_t power = (size_t)1 << i;
    assert_int_equal(pow2_ceil(power), power);
    assert_int_equal(pow2_ceil(power - 1), i == 1 ? 1 : power);
    assert_int_equal(pow2_ceil(power + 1), i == 63 ? 0 : power * 2);
  }
  assert_int_equal(pow2_ceil(SIZE_MAX), 0);
}

static void lowest_and_highest_bit(void **state) {
  (void)state;
  for (unsigned low = 0; low < 64; low++)
    for (unsigned high = low; high < 64; high++) {
      uint64_t x = (uint64_t)1 << low | (uint64_t)1 << high;
      assert_int_equal(bit_low64(x), low);
      assert_int_equal(bit_high64(x), high);
      if (high < 32)
        assert_int_equal(bit_low32((uint32_t)x), low);
    }
  for (unsigned n = 0; n < 64; n++)
    assert_int_equal(bit_ones_low64(~((uint64_t)1 << n)), n);
  assert_int_equal(bit_ones_low64(UINT64_MAX), 64);
  assert_int_equal(bit_count32(0), 0);
  assert_int_equal(bit_count32(UINT32_MAX), 32);
}

static void runs_are_made(void **state) {
  (void)state;
  for (unsigned first = 0; first < 32; first++)
    for (unsigned n = 1; n <= 32 - first; n++) {
      uint32_t x = bit_run32(first, n);
      assert_int_equal(bit_count32(x), n);
      assert_true(run_of_ones(x, first, n));
    }
}

static void runs_are_found(void **state) {
  uint64_t seed = 1;
  (void)state;
  for (int i = 0; i < 4000; i++) {
    /* And-ing and or-ing gives masks with few and with many bits. */
    uint32_t x = (uint32_t)random_next(&seed);
    if (i % 3 == 1)
      x |= (uint32_t)random_next(&seed) | (uint32_t)random_next(&seed);
    if (i % 3 == 2)
      x &= (uint32_t)random_next(&seed);
    if (i < 2)
      x = i ? UINT32_MAX : 0;
    assert_int_equal(bit_longest_run32(x), longest_by_looking(x));
    for (unsigned n = 1; n <= 32; n++)
      assert_int_equal(bit_run_starts32(x, n), starts_by_looking(x, n));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(powers_of_two),
      cmocka_unit_test(lowest_and_highest_bit),
      cmocka_unit_test(runs_are_made),
      cmocka_unit_test(runs_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
