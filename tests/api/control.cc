/* masu_ctl and masu_version. */
#include "api.h"

class Control : public testing::Test {
protected:
  void TearDown() override { EXPECT_EQ(masu_check(), 0); }
  static uint64_t get(const char *name) {
    uint64_t value = ~0ull;
    EXPECT_EQ(masu_ctl(name, &value, nullptr), 0) << name;
    return value;
  }
};

TEST_F(Control, Version) {
  EXPECT_EQ(std::string(masu_version()), std::to_string(MASU_VERSION_MAJOR) + "." +
                                             std::to_string(MASU_VERSION_MINOR) + "." +
                                             std::to_string(MASU_VERSION_PATCH));
}

TEST_F(Control, OptionsAreReadAndSet) {
  const uint64_t old = get("purge_delay"), mine = old + 7;
  uint64_t seen = 0;
  EXPECT_EQ(KEEPS_ERRNO(masu_ctl("purge_delay", &seen, &mine)), 0);
  EXPECT_EQ(seen, old) << "the old value comes back when a new one is set";
  EXPECT_EQ(get("purge_delay"), mine);
  EXPECT_EQ(masu_ctl("purge_delay", nullptr, &old), 0);
  EXPECT_EQ(get("purge_delay"), old);
  EXPECT_EQ(masu_ctl("purge_delay", nullptr, nullptr), 0);
}

TEST_F(Control, Errors) {
  uint64_t value = 77;
  const uint64_t absurd = UINT64_MAX, old = get("purge_delay");
  for (const char *name : {"", "nonsense", "purge_dela", "purge_delayx", "stats.",
                           "stats.lives", "purge_delay:1"})
    EXPECT_EQ(masu_ctl(name, &value, nullptr), ENOENT) << name;
  for (const char *name :
       {"stats.live", "stats.peak", "stats.resident", "stats.returned", "stats.heaps"})
    EXPECT_EQ(masu_ctl(name, nullptr, &absurd), EPERM) << name;
  const uint64_t none = 0;
  for (const char *name : {"verbose", "profile", "profile_signal", "cpu", "leaks"}) {
    EXPECT_EQ(masu_ctl(name, nullptr, &none), EPERM) << name;
    EXPECT_EQ(get(name), 0U) << name;
  }
  EXPECT_EQ(masu_ctl("purge_delay", nullptr, &absurd), EINVAL);
  EXPECT_EQ(get("purge_delay"), old);
}

TEST_F(Control, FiguresMove) {
  const size_t live = get("stats.live"), returned = get("stats.returned");
  void *p = masu_malloc(50 * MIB);
  memset(p, 1, 50 * MIB);
  EXPECT_GE(get("stats.live"), live + 50 * MIB);
  EXPECT_GE(get("stats.peak"), get("stats.live"));
  EXPECT_GE(get("stats.resident"), 50 * MIB);
  EXPECT_NEAR((double)get("stats.resident"), (double)resident_kib() * KIB, 8.0 * MIB);
  EXPECT_GE(get("stats.heaps"), 1u);
  masu_free(p);
  EXPECT_LE(get("stats.live"), live + 1 * MIB);
  EXPECT_GE(get("stats.peak"), live + 50 * MIB);
  masu_malloc_trim(0);
  EXPECT_GE(get("stats.returned"), returned + 50 * MIB);
}
