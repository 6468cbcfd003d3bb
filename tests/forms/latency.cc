/* Prepared memory: no page fault, no memory given back. */
#include <sys/resource.h>

#include "forms.h"

class Latency : public FormTest {
protected:
  void TearDown() override {
    EXPECT_EQ(masu_prewarm(0, nullptr, 0), 0);
    FormTest::TearDown();
  }
};

static long faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

static long faults_of_rounds(const std::vector<masu_prewarm_class> &classes,
                             std::vector<void *> &blocks) {
  long before = faults();
  for (int round = 0; round < 3; round++) {
    size_t n = 0;
    for (auto [size, count] : classes)
      for (size_t i = 0; i < count; i++)
        memset(blocks[n++] = masu_malloc(size), 1, size);
    while (n > 0)
      masu_free(blocks[--n]);
  }
  return faults() - before;
}

TEST_F(Latency, NoPageFaults) {
  std::vector<masu_prewarm_class> classes = {{100, 10000}, {5000, 2000}, {300 * KIB, 10}};
  std::vector<void *> blocks(12010);
  ASSERT_EQ(masu_prewarm(MIB, classes.data(), classes.size()), 0);
#if EXACT_MEMORY
  EXPECT_EQ(faults_of_rounds(classes, blocks), 0);
#endif
  uint64_t resident;
  masu_ctl("stats.resident", &resident, nullptr);
  EXPECT_GT(resident, 10 * MIB);
  masu_malloc_trim(0); /* ends it */
  EXPECT_GT(faults_of_rounds(classes, blocks), 1000);
}

TEST_F(Latency, BadArguments) {
  masu_prewarm_class large = {3 * MIB, 1}, many = {1000, SIZE_MAX / 10};
  EXPECT_EQ(masu_prewarm(0, &large, 1), EINVAL);
  EXPECT_EQ(masu_prewarm(0, &many, 1), ENOMEM);
  EXPECT_EQ(masu_prewarm(SIZE_MAX, nullptr, 0), ENOMEM);
}

TEST_F(Latency, LockedOrSaidWhyNot) {
  masu_free(masu_malloc(100));
  int why = masu_lock(1);
  EXPECT_TRUE(why == 0 || why == ENOMEM || why == EPERM) << why;
  void *p = masu_malloc(100 * KIB);
  EXPECT_NE(p, nullptr);
  masu_free(p);
  masu_malloc_trim(0); /* refused by the system, not an error */
  EXPECT_EQ(masu_lock(0), 0);
  rlimit before, none = {0, 0};
  getrlimit(RLIMIT_MEMLOCK, &before);
  none.rlim_max = before.rlim_max;
  setrlimit(RLIMIT_MEMLOCK, &none);
  if (geteuid() != 0) { /* root may lock whatever the limit says */
    EXPECT_TRUE(masu_lock(1) != 0);
  }
  setrlimit(RLIMIT_MEMLOCK, &before);
}
