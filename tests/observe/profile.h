/* What the tests of the heap profiler share: estimates are compared with truths. */
#ifndef MASU_TESTS_PROFILE_H
#define MASU_TESTS_PROFILE_H

#include <gtest/gtest.h>
#include <masu/profile.h>

#include <cmath>
#include <functional>
#include <vector>

inline masu_profile_figures read_profile() {
  masu_profile_figures f{};
  EXPECT_EQ(masu_profile_read(&f, sizeof f), 0);
  return f;
}

inline double usable(void *p) { return static_cast<double>(masu_malloc_usable_size(p)); }

/* Estimates divided by truths: their mean must be 1, within what chance allows. */
inline void expect_unbiased(const std::vector<double> &ratios) {
  double mean = 0, square = 0, count = static_cast<double>(ratios.size());
  for (double r : ratios)
    mean += r / count, square += r * r / count;
  double error = std::sqrt((square - mean * mean) / count);
  EXPECT_NEAR(mean, 1, 5 * error);
  EXPECT_LT(error, 0.05) << "too few samples to tell";
  EXPECT_GT(error, 0) << "no estimate was made";
}

/* An interval at which every thread takes as many samples as there are: see heap/budget.h. */
static constexpr size_t BELOW_PACE = 500000;

/* `allocate` returns the bytes of the blocks that it took. */
inline void expect_seen(int rounds, size_t interval, const std::function<double()> &allocate) {
  std::vector<double> ratios;
  ASSERT_EQ(masu_profile_start(interval), 0);
  for (int i = 0; i < rounds; i++) {
    double before = read_profile().allocated;
    double truth = allocate();
    ratios.push_back((read_profile().allocated - before) / truth);
  }
  masu_profile_stop();
  expect_unbiased(ratios);
}

#endif
