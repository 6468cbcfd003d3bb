/* Prepared memory: no page fault, no memory given back. */
#include <masu/heap.h>
#include <masu/stats.h>

#include <sys/mman.h>

#include <atomic>

#include "forms.h"

class Latency : public FormTest {
protected:
  void TearDown() override {
    EXPECT_EQ(masu_prewarm(0, nullptr, 0), 0);
    FormTest::TearDown();
  }
};

static bool play_rounds(const std::vector<masu_prewarm_class> &classes, std::vector<void *> &blocks) {
  for (int round = 0; round < 3; round++) {
    size_t n = 0;
    for (auto [size, count] : classes)
      for (size_t i = 0; i < count; i++) {
        if (!(blocks[n] = masu_malloc(size)))
          return false;
        memset(blocks[n++], 1, size);
      }
    while (n > 0)
      masu_free(blocks[--n]);
  }
  return true;
}

static long faults_of_rounds(const std::vector<masu_prewarm_class> &classes,
                             std::vector<void *> &blocks) {
  long before = page_faults();
  bool played = play_rounds(classes, blocks);
  long faults = page_faults() - before;
  EXPECT_TRUE(played);
  return faults;
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
  masu_stats s;
  EXPECT_EQ(masu_stats_read(&s, sizeof s), 0);
  EXPECT_GE(s.prepared, 14 * MIB); /* what the blocks take, and MIB */
  masu_malloc_trim(0); /* ends it */
  EXPECT_EQ(masu_stats_read(&s, sizeof s), 0);
  EXPECT_EQ(s.prepared, 0u);
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
TEST_F(Latency, NoSystemCalls) {
  std::vector<masu_prewarm_class> classes = {{100, 10000}, {5000, 2000}, {300 * KIB, 10}, {MIB, 60}};
  std::vector<void *> blocks(12070);
  EXPECT_FALSE(makes_no_system_call([&] { return play_rounds(classes, blocks); }));
  ASSERT_EQ(masu_prewarm(0, classes.data(), classes.size()), 0);
  EXPECT_TRUE(makes_no_system_call([&] { return play_rounds(classes, blocks); }));
}

TEST_F(Latency, AmountsOfSeveralCallsAddUp) {
  std::vector<masu_prewarm_class> classes = {{300 * KIB, 60}, {300 * KIB, 60}, {300 * KIB, 60}};
  std::vector<void *> blocks(180);
  masu_malloc_trim(0);
  for (const masu_prewarm_class &c : classes)
    ASSERT_EQ(masu_prewarm(0, &c, 1), 0);
  EXPECT_EQ(faults_of_rounds(classes, blocks), 0);
}

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

/* What can't be had at all is not looked for. */
TEST_F(Latency, ImpossibleRequestsEndNothing) {
  ASSERT_EQ(masu_prewarm(MIB, nullptr, 0), 0);
  void *p = nullptr;
  EXPECT_EQ(masu_posix_memalign(&p, size_t{1} << 50, 8), ENOMEM);
  EXPECT_EQ(masu_malloc(PTRDIFF_MAX), nullptr);
  masu_heap *heap = masu_heap_create("impossible");
  EXPECT_EQ(masu_heap_aligned_alloc(heap, size_t{1} << 50, 8), nullptr);
  masu_heap_destroy(heap);
  masu_stats s;
  EXPECT_EQ(masu_stats_read(&s, sizeof s), 0);
  EXPECT_GE(s.prepared, MIB);
}

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

/* What the kernel says is locked of this process. */
static size_t locked_kib() {
  size_t kib = SIZE_MAX;
  char line[256];
  FILE *f = fopen("/proc/self/status", "r");
  EXPECT_NE(f, nullptr);
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "VmLck: %zu kB", &kib) == 1)
      break;
  if (f)
    fclose(f);
  return kib;
}

TEST_F(Latency, LockedOrSaidWhyNot) {
  size_t at_first = locked_kib();
  masu_free(masu_malloc(100));
  int why = masu_lock(1);
  EXPECT_TRUE(why == 0 || why == ENOMEM || why == EPERM) << why;
  if (why)
    EXPECT_EQ(locked_kib(), at_first);
  else
    EXPECT_GE(locked_kib(), at_first + 2 * MIB / KIB);
  void *p = masu_malloc(100 * KIB);
  EXPECT_NE(p, nullptr);
  masu_free(p);
  masu_malloc_trim(0); /* refused by the system, not an error */
  EXPECT_EQ(masu_lock(0), 0);
  EXPECT_EQ(locked_kib(), at_first);
  rlimit before, none = {0, 0};
  getrlimit(RLIMIT_MEMLOCK, &before);
  none.rlim_max = before.rlim_max;
  setrlimit(RLIMIT_MEMLOCK, &none);
  if (geteuid() != 0) { /* root may lock whatever the limit says */
    EXPECT_TRUE(masu_lock(1) != 0);
  }
  setrlimit(RLIMIT_MEMLOCK, &before);
}
