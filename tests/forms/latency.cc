/* Prepared memory: no page fault, no memory given back. */
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>

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

TEST_F(Latency, BlocksThatDoNotTileAHugePage) {
  for (masu_prewarm_class c : {masu_prewarm_class{1200000, 8}, masu_prewarm_class{200000, 60}}) {
    std::vector<masu_prewarm_class> classes = {c};
    std::vector<void *> blocks(c.count);
    ASSERT_EQ(masu_prewarm(0, &c, 1), 0);
    masu_prewarm_class none = {MIB, 0};
    EXPECT_EQ(masu_prewarm(0, &none, 1), 0); /* which ends nothing */
#if EXACT_MEMORY
    EXPECT_EQ(faults_of_rounds(classes, blocks), 0) << c.size;
#endif
    ASSERT_EQ(masu_prewarm(0, nullptr, 0), 0);
  }
}

#if EXACT_MEMORY
TEST_F(Latency, NoMoreThanIsAskedFor) {
  std::vector<void *> blocks;
  for (int i = 0; i < 400; i++)
    memset(blocks.emplace_back(masu_malloc(400 * KIB)), 1, 400 * KIB);
  for (void *p : blocks)
    masu_free(p);
  masu_malloc_trim(0);
  size_t before = resident_kib();
  ASSERT_EQ(masu_prewarm(64 * KIB, nullptr, 0), 0);
  EXPECT_LT(resident_kib(), before + 20 * KIB);
  ASSERT_EQ(masu_prewarm(0, nullptr, 0), 0);
  masu_malloc_trim(0);
  before = resident_kib();
  masu_malloc_trim(0); /* makes nothing resident */
  EXPECT_LE(resident_kib(), before + 100);
}
#endif

/* Generators of code make blocks read-only. */
TEST_F(Latency, ReadOnlyBlocksStayAsTheyAre) {
  void *p = masu_aligned_alloc(4096, 8192);
  pattern_write(p, 8192, 3);
  ASSERT_EQ(mprotect(p, 8192, PROT_READ), 0);
  EXPECT_EQ(masu_prewarm(MIB, nullptr, 0), 0);
  EXPECT_EQ(pattern_mismatch(p, 8192, 3), 8192u);
  ASSERT_EQ(mprotect(p, 8192, PROT_READ | PROT_WRITE), 0);
  masu_free(p);
}

TEST_F(Latency, WhileOthersGiveBack) {
  std::atomic<bool> stop{false};
  std::thread trimmer([&] {
    while (!stop)
      masu_malloc_trim(0);
  });
  for (int i = 0; i < 100; i++) {
    masu_free(masu_malloc(MIB));
    masu_prewarm(4 * MIB, nullptr, 0);
  }
  stop = true;
  trimmer.join();
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
