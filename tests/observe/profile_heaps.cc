/* The heap profiler and named heaps: their blocks are seen, stay on their account, and leave the record with it. */
#include "profile.h"

#include <masu/arena.h>
#include <masu/heap.h>
#include <masu/pool.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pattern.h"

class ProfileHeaps : public testing::Test {
protected:
  masu_heap *heap = masu_heap_create("tested");
  masu_heap_figures figures() const {
    masu_heap_figures f = {};
    EXPECT_EQ(masu_heap_read(heap, &f, sizeof f), 0);
    return f;
  }
  void TearDown() override {
    masu_profile_stop();
    masu_heap_destroy(heap);
    EXPECT_EQ(masu_check(), 0) << "masu_check found a broken invariant";
  }
};

/* What the program's other parts have on record comes and goes. */
static constexpr double OTHERS = 64;

static double live() { return static_cast<double>(read_profile().live); }

#ifndef MASU_CHECKED /* numbers, which take long there and are the same */

TEST_F(ProfileHeaps, PingPongIsSeen) {
  for (size_t n : {16u, 100u, 1000u, 9000u, 40000u, 300000u, 1000000u})
    expect_seen(40, std::min<size_t>(8 * n + 100, BELOW_PACE), [&] {
      double sum = 0;
      for (int i = 0; i < 4000; i++) {
        void *p = masu_heap_malloc(heap, n);
        sum += usable(p);
        if (i % 2)
          masu_heap_free(heap, p);
        else
          masu_free(p);
      }
      return sum;
    });
}

TEST_F(ProfileHeaps, SoAreBatchesOfEveryWayToAllocate) {
  std::vector<void *> blocks;
  blocks.reserve(20000);
  expect_seen(40, 40000, [&] {
    double sum = 0;
    for (size_t i = 0; i < 5000; i++) {
      blocks.push_back(masu_heap_malloc(heap, 1 + i * 7 % 300));
      blocks.push_back(masu_heap_calloc(heap, 3, i % 50));
      blocks.push_back(masu_heap_aligned_alloc(heap, 64, 1 + i % 200));
      blocks.push_back(masu_heap_malloc(heap, i % 500 ? 500 : 300000));
    }
    for (void *p : blocks) {
      sum += usable(p);
      masu_free(p);
    }
    blocks.clear();
    return sum;
  });
}

TEST_F(ProfileHeaps, SoIsGrowthInPlace) {
  std::vector<double> ratios;
  for (int round = 0; round < 400; round++) {
    ASSERT_EQ(masu_profile_start(4 * MIB + round % 2), 0); /* another one: no pace yet */
    double estimate = 0, truth = 0;
    for (int i = 0; i < 10; i++) {
      double before = read_profile().in_use;
      void *p = masu_heap_malloc(heap, 300000);
      for (size_t n = 400000; n < 5 * MIB; n += n / 2)
        p = masu_realloc(p, n);
      EXPECT_EQ(masu_heap_of(p), heap);
      estimate += read_profile().in_use - before;
      truth += usable(p);
      masu_free(p);
    }
    ratios.push_back(estimate / truth);
  }
  masu_profile_stop();
  expect_unbiased(ratios);
}

/* Pools and arenas are seen where they take their memory. */
TEST_F(ProfileHeaps, FormsAreSeenInTheirHeap) {
  double before = read_profile().in_use;
  ASSERT_EQ(masu_profile_start(1), 0);
  masu_pool *pool = masu_pool_create_in(heap, "pool", 100, 0, 0);
  ASSERT_NE(pool, nullptr);
  ASSERT_EQ(masu_pool_reserve(pool, 10000), 0);
  masu_arena *arena = masu_arena_create_in(heap, "arena", 1 * MIB);
  ASSERT_NE(arena, nullptr);
  EXPECT_NE(masu_arena_alloc(arena, 1000), nullptr);
  EXPECT_GT(read_profile().in_use, before + 1e6 + 1 * MIB);
  masu_profile_stop();
  masu_heap_destroy(heap);
  EXPECT_NEAR(read_profile().in_use, before, OTHERS * KIB);
  heap = masu_heap_create("another");
}

#endif

/* Of sizes of all kinds; returns how many. */
static size_t fill(masu_heap *heap, std::vector<void *> &blocks, size_t rounds) {
  static const size_t sizes[] = {8, 24, 100, 100, 100, 1000, 5000, 40000, 300000};
  size_t count = 0;
  for (size_t i = 0; i < rounds; i++)
    for (size_t n : sizes) {
      void *p = masu_heap_malloc(heap, n);
      EXPECT_NE(p, nullptr);
      pattern_write(p, 8, n);
      blocks.push_back(p);
      count++;
    }
  return count;
}

TEST_F(ProfileHeaps, WhoeverFreesABlockTakesItOffTheRecord) {
  std::vector<void *> blocks;
  blocks.reserve(2000);
  ASSERT_EQ(masu_profile_start(1), 0);
  double before = live();
  size_t count = fill(heap, blocks, 100);
  EXPECT_NEAR(live(), before + static_cast<double>(count), OTHERS);
  for (void *p : blocks)
    EXPECT_EQ(masu_heap_of(p), heap);
  EXPECT_GE(figures().blocks, count);
  std::thread([&] {
    for (size_t i = 0; i < count; i += 3)
      masu_free(blocks[i]);
  }).join();
  for (size_t i = 0; i < count; i++)
    if (i % 3)
      masu_heap_free(heap, blocks[i]);
  EXPECT_NEAR(live(), before, OTHERS);
  masu_heap_trim(heap);
  EXPECT_EQ(figures().live, 0u);
  EXPECT_EQ(figures().used, 0u) << "what was charged for samples is not discharged";
}

TEST_F(ProfileHeaps, ADestroyedHeapsBlocksLeaveTheRecordAndOthersStay) {
  masu_heap *other = masu_heap_create("other");
  std::vector<void *> blocks, others;
  blocks.reserve(1000);
  others.reserve(1000);
  ASSERT_EQ(masu_profile_start(1), 0);
  double before = live(), bytes = read_profile().in_use;
  auto kept = static_cast<double>(fill(other, others, 30));
  for (int round = 0; round < 20; round++) {
    blocks.clear();
    fill(heap, blocks, 50);
    for (size_t i = 0; i < blocks.size(); i += 2)
      masu_free(blocks[i]);
    masu_heap_destroy(heap);
    EXPECT_NEAR(live(), before + kept, OTHERS) << round;
    heap = masu_heap_create("again");
  }
  for (size_t i = 0; i < others.size(); i++)
    EXPECT_EQ(masu_heap_of(others[i]), other);
  masu_heap_destroy(other);
  EXPECT_NEAR(live(), before, OTHERS);
  EXPECT_NEAR(read_profile().in_use, bytes, OTHERS * KIB);
}

TEST_F(ProfileHeaps, AlsoWhereAllOfThemAreLarge) {
  ASSERT_EQ(masu_profile_start(1), 0);
  double before = live(), bytes = read_profile().in_use;
  for (size_t n = 300000; n < 40 * MIB; n *= 2)
    EXPECT_NE(masu_heap_malloc(heap, n), nullptr);
  EXPECT_GT(read_profile().in_use, bytes + 70e6);
  masu_heap_destroy(heap);
  EXPECT_NEAR(live(), before, 4);
  EXPECT_NEAR(read_profile().in_use, bytes, OTHERS * KIB);
  heap = masu_heap_create("again");
}

/* The profiler is stopped: what is on record leaves it all the same. */
TEST_F(ProfileHeaps, AlsoAfterTheEndOfSampling) {
  std::vector<void *> blocks;
  blocks.reserve(1000);
  ASSERT_EQ(masu_profile_start(1), 0);
  double before = live();
  fill(heap, blocks, 20);
  masu_profile_stop();
  fill(heap, blocks, 20);
  masu_heap_destroy(heap);
  EXPECT_NEAR(live(), before, OTHERS);
  heap = masu_heap_create("again");
}

/* What the thread holds back for the next sample is free. */
TEST_F(ProfileHeaps, FiguresKnowWhatIsHeldBack) {
  int known = 0;
  ASSERT_EQ(masu_profile_start(3000), 0);
  for (int round = 0; round < 200; round++) {
    masu_heap *fresh = masu_heap_create("fresh");
    masu_heap_figures f;
    size_t samples = read_profile().samples;
    void *p = masu_heap_malloc(fresh, 100);
    masu_heap_read(fresh, &f, sizeof f);
    if (read_profile().samples == samples) { /* else what samples come from is ready as well */
      EXPECT_EQ(f.blocks, 1u);
      EXPECT_EQ(f.live, masu_malloc_usable_size(p));
      known++;
    }
    masu_heap_destroy(fresh);
  }
  EXPECT_GT(known, 100);
}

/* Samples count for the budget, and what they leave free can be had again. */
TEST_F(ProfileHeaps, TheBudgetHolds) {
  enum { HARD = 256 * KIB };
  masu_heap_set_budget(heap, 0, HARD);
  ASSERT_EQ(masu_profile_start(1), 0);
  std::vector<void *> blocks;
  blocks.reserve(20000);
  for (size_t n : {48u, 1000u, 300u, 5000u, 100u, 17u}) {
    size_t bytes = 0;
    for (void *p; (p = masu_heap_malloc(heap, n)); bytes += masu_malloc_usable_size(p))
      blocks.push_back(p);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_LE(figures().used, size_t{HARD});
    EXPECT_GT(bytes, size_t{HARD} * 6 / 10) << n;
    for (void *b : blocks)
      masu_heap_free(heap, b);
    blocks.clear();
  }
  EXPECT_LE(figures().peak, size_t{HARD});
}

/* Threads hand blocks of two heaps round, while the profile is written; then the heaps end with blocks in use. */
TEST_F(ProfileHeaps, ManyThreadsAndTheEndOfTheirHeaps) {
  enum { THREADS = 4 };
  std::string path = "/tmp/masu-profile-heaps-test." + std::to_string(getpid());
  for (int round = 0; round < 5; round++) {
    masu_heap *heaps[] = {masu_heap_create("one"), masu_heap_create("two")};
    std::atomic<void *> slots[256] = {};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    ASSERT_EQ(masu_profile_start(2000), 0);
    for (unsigned t = 0; t < THREADS; t++)
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        for (int i = 0; i < 5000; i++) {
          size_t n = 1 + random() % (i % 64 ? 600 : 400000);
          void *p = masu_heap_malloc(heaps[i % 2], n);
          pattern_write(p, std::min<size_t>(n, 64), n);
          masu_free(slots[random() % 256].exchange(p));
        }
      });
    std::thread writer([&] {
      while (!stop)
        EXPECT_EQ(masu_profile_write(path.c_str()), 0);
    });
    for (auto &t : threads)
      t.join();
    stop = true;
    writer.join();
    masu_profile_stop();
    double before = live();
    masu_heap_destroy(heaps[0]);
    masu_heap_destroy(heaps[1]);
    EXPECT_LT(live(), before) << "256 blocks were in use, of 76 KiB in all";
    EXPECT_EQ(masu_check(), 0);
  }
  unlink(path.c_str());
}

#ifndef __SANITIZE_THREAD__ /* which forbids threads in the child */

TEST_F(ProfileHeaps, AForkedChildGoesOn) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  ASSERT_EQ(masu_profile_start(500), 0);
  for (int t = 0; t < 3; t++)
    threads.emplace_back([&] {
      while (!stop)
        masu_free(masu_heap_malloc(heap, 100));
    });
  for (int i = 0; i < 30; i++) {
    pid_t child = fork();
    if (child == 0) {
      size_t before = read_profile().samples;
      for (int k = 0; k < 1000; k++)
        masu_free(masu_heap_malloc(heap, 100));
      bool seen = read_profile().samples > before + 50;
      masu_heap_destroy(heap);
      _exit(seen ? 0 : 1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  for (auto &t : threads)
    t.join();
}

#endif
