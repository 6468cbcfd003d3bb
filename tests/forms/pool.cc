/* Pools: plain, shared, tiny and checked ones, against a list of what is live. */
#include <masu/pool.h>

#include <limits.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "forms.h"
#include "queue.h"

struct pool_case {
  size_t size, alignment;
  unsigned flags;
};

class Pool : public FormTest, public testing::WithParamInterface<pool_case> {
protected:
  masu_pool *pool = masu_pool_create(GetParam().size, GetParam().alignment, GetParam().flags);
  size_t size = GetParam().size;
  size_t written = std::min<size_t>(size, 600); /* of each block */

  masu_pool_figures read() const {
    masu_pool_figures f = {};
    EXPECT_EQ(masu_pool_read(pool, &f, sizeof f), 0);
    return f;
  }
  std::set<void *> live_blocks() const {
    std::set<void *> seen;
    EXPECT_EQ(masu_pool_for_each(
                  pool, [](void *p, void *s) { static_cast<std::set<void *> *>(s)->insert(p); },
                  &seen),
              0);
    return seen;
  }
  void TearDown() override {
    masu_pool_destroy(pool);
    FormTest::TearDown();
  }
};

INSTANTIATE_TEST_SUITE_P(
    kinds, Pool,
    testing::Values(pool_case{1, 0, 0}, pool_case{4, 4, 0}, pool_case{8, 0, 0}, pool_case{12, 0, 0},
                    pool_case{24, 0, 0}, pool_case{100, 64, 0}, pool_case{5000, 0, 0},
                    pool_case{200000, 4096, 0}, pool_case{4, 0, MASU_POOL_SHARED},
                    pool_case{12, 0, MASU_POOL_SHARED}, pool_case{16, 0, MASU_POOL_SHARED},
                    pool_case{20, 0, MASU_POOL_SHARED}, pool_case{48, 0, MASU_POOL_SHARED},
                    pool_case{5000, 0, MASU_POOL_SHARED}, pool_case{200000, 4096, MASU_POOL_SHARED}, pool_case{4, 0, MASU_POOL_CHECKED},
                    pool_case{40, 0, MASU_POOL_CHECKED | MASU_POOL_SHARED}),
    [](const auto &info) {
      return std::to_string(info.param.size) + "_" + std::to_string(info.param.alignment) +
             "_flags" + std::to_string(info.param.flags);
    });

TEST_P(Pool, BlocksAreApartAlignedAndKeepTheirContents) {
  struct block {
    void *p;
    size_t seed;
  };
  std::vector<block> live;
  random_numbers random(7);
  size_t most = size > 10000 ? 60 : 5000;
  size_t alignment = GetParam().alignment ? GetParam().alignment : std::min<size_t>(size & -size, 16);
  for (size_t i = 0; i < 100000; i++) {
    if (live.size() < most && random.below(100) < (i / 20000 % 2 ? 40 : 70)) {
      void *p = masu_pool_alloc(pool);
      ASSERT_NE(p, nullptr);
      ASSERT_TRUE(multiple_of(p, alignment));
      pattern_write(p, written, i);
      live.push_back({p, i});
    } else if (!live.empty()) {
      std::swap(live[random.below(live.size())], live.back());
      ASSERT_EQ(pattern_mismatch(live.back().p, written, live.back().seed), written);
      masu_pool_free(pool, live.back().p);
      live.pop_back();
    }
    if (i % 9999 == 0) {
      std::set<void *> expected;
      for (const block &b : live)
        expected.insert(b.p);
      ASSERT_EQ(live_blocks(), expected);
      ASSERT_EQ(read().live, live.size());
      masu_pool_trim(pool);
    }
  }
}

TEST_P(Pool, TrimKeepsWhatIsLive) {
  std::vector<void *> blocks;
  size_t n = size > 10000 ? 100 : 20000;
  for (size_t i = 0; i < n; i++) {
    blocks.push_back(masu_pool_alloc(pool));
    pattern_write(blocks.back(), written, i);
  }
  size_t held = read().held;
  for (size_t i = n / 100; i < n; i++)
    masu_pool_free(pool, blocks[i]);
  size_t given = masu_pool_trim(pool);
  EXPECT_GT(given, held / 2);
  EXPECT_EQ(read().held, held - given);
  for (size_t i = 0; i < n / 100; i++) {
    ASSERT_EQ(pattern_mismatch(blocks[i], written, i), written);
    masu_pool_free(pool, blocks[i]);
  }
  masu_pool_trim(pool);
  EXPECT_EQ(read().held, 0u);
  EXPECT_EQ(read().live, 0u);
  EXPECT_NE(masu_pool_alloc(pool), nullptr); /* and it goes on */
}

TEST_P(Pool, ResetFreesAllAndKeepsTheMemory) {
  size_t n = size > 10000 ? 50 : 3000;
  for (int round = 0; round < 5; round++) {
    std::set<void *> seen;
    for (size_t i = 0; i < n; i++)
      ASSERT_TRUE(seen.insert(masu_pool_alloc(pool)).second);
    EXPECT_EQ(read().live, n);
    size_t held = read().held;
    masu_pool_reset(pool);
    EXPECT_EQ(read().live, 0u);
    EXPECT_EQ(read().held, held);
    EXPECT_TRUE(live_blocks().empty());
  }
}

TEST_P(Pool, ReserveMakesBlocksReady) {
  size_t n = size > 10000 ? 50 : 3000;
  masu_pool_free(pool, masu_pool_alloc(pool));
  ASSERT_EQ(masu_pool_reserve(pool, n), 0);
  size_t held = read().held;
  std::set<void *> seen;
  for (size_t i = 0; i < n; i++)
    ASSERT_TRUE(seen.insert(masu_pool_alloc(pool)).second);
  EXPECT_EQ(read().held, held); /* no chunk was added */
  EXPECT_EQ(masu_pool_reserve(pool, SIZE_MAX / 2), ENOMEM);
  void *p = masu_pool_alloc(pool);
  ASSERT_NE(p, nullptr); /* still usable */
  EXPECT_TRUE(seen.insert(p).second);
}

class PoolApi : public FormTest {};

#if EXACT_MEMORY
class PoolReserved : public FormTest {
protected:
  static constexpr unsigned FLAGS[] = {0, MASU_POOL_SHARED};
  static constexpr size_t SIZES[] = {4, 24, 3000, 9000, 65536};
  static constexpr int COUNT = 100;
  void *blocks[COUNT] = {};

  /* Some blocks are free already; to none was anything ever written. */
  masu_pool *reserved(size_t size, unsigned flags) {
    masu_malloc_trim(0);
    masu_pool *pool = masu_pool_create(size, 0, flags);
    for (int i = 0; i < COUNT / 5; i++)
      blocks[i] = masu_pool_alloc(pool);
    for (int i = 0; i < COUNT / 5; i++)
      masu_pool_free(pool, blocks[i]);
    EXPECT_EQ(masu_pool_reserve(pool, COUNT), 0);
    return pool;
  }
};

/* Nothing here forks: a page that a child shares faults when it is first written, be it this function's own stack. */
TEST_F(PoolReserved, NoPageFaults) {
  for (unsigned flags : FLAGS)
    for (size_t size : SIZES) {
      masu_pool *pool = reserved(size, flags);
      long before = page_faults();
      for (void *&p : blocks)
        memset(p = masu_pool_alloc(pool), 1, size);
      EXPECT_EQ(page_faults(), before) << size << ", flags " << flags;
      masu_pool_destroy(pool);
    }
}

TEST_F(PoolReserved, NoSystemCalls) {
  for (unsigned flags : FLAGS)
    for (size_t size : SIZES) {
      masu_pool *pool = reserved(size, flags);
      EXPECT_TRUE(makes_no_system_call([&] {
        for (void *&p : blocks)
          if (!(p = masu_pool_alloc(pool)))
            return false;
        for (void *p : blocks)
          masu_pool_free(pool, p);
        return true;
      })) << size << ", flags " << flags;
      masu_pool_destroy(pool);
    }
}
#endif

TEST_F(PoolApi, BadArguments) {
  EXPECT_FAILS_WITH(EINVAL, masu_pool_create(0, 0, 0));
  EXPECT_FAILS_WITH(EINVAL, masu_pool_create(10, 3, 0));
  EXPECT_FAILS_WITH(EINVAL, masu_pool_create(10, 128 * KIB, 0));
  EXPECT_FAILS_WITH(EINVAL, masu_pool_create(10, 8, 64));
  EXPECT_FAILS_WITH(EINVAL, masu_pool_create(SIZE_MAX, 0, 0));
  masu_pool_destroy(nullptr);
  masu_pool *pool = masu_pool_create(10, 0, 0);
  masu_pool_figures f;
  EXPECT_EQ(masu_pool_read(pool, &f, 3), EINVAL);
  EXPECT_EQ(masu_pool_read(pool, &f, sizeof f), 0);
  EXPECT_EQ(f.block, 12u);
  masu_pool_destroy(pool);
}

TEST_F(PoolApi, AMillionBlocksOfFourBytes) {
  masu_pool *pool = masu_pool_create(4, 0, 0);
  size_t before = resident_kib();
  std::vector<int *> blocks(1000000); /* resident already */
  size_t vector = resident_kib() - before;
  for (int i = 0; i < 1000000; i++)
    *(blocks[i] = static_cast<int *>(masu_pool_alloc(pool))) = i;
#if EXACT_MEMORY
  EXPECT_LE(resident_kib() - before - vector, 4100000 / KIB);
#endif
  (void)vector;
  for (int i = 0; i < 1000000; i++)
    ASSERT_EQ(*blocks[i], i);
  masu_pool_destroy(pool);
}

/* Whatever the order in which they come back; what they hold is not looked at. */
TEST_F(PoolApi, BlocksSideBySideStaySo) {
  masu_pool *pool = masu_pool_create(24, 0, 0);
  std::vector<void *> blocks(100), again(100);
  for (void *&p : blocks)
    p = masu_pool_alloc(pool);
  for (bool upwards : {true, false}) {
    for (void *p : blocks)
      memset(p, 0xff, 24);
    for (size_t i = 0; i < blocks.size(); i++) {
      masu_pool_free(pool, blocks[upwards ? i : blocks.size() - 1 - i]);
      EXPECT_EQ(masu_pool_live(pool), blocks.size() - 1 - i);
    }
    for (void *&p : again)
      p = masu_pool_alloc(pool);
    if (!upwards) /* the block that came back first is the first to go */
      std::rotate(again.begin(), again.begin() + 1, again.end());
#if EXACT_MEMORY
    EXPECT_EQ(again, blocks);
#endif
    EXPECT_EQ(masu_pool_live(pool), blocks.size());
  }
  masu_pool_destroy(pool);
}

TEST_F(PoolApi, LivesInItsHeap) {
  masu_heap *heap = masu_heap_create("home");
  masu_pool *pool = masu_pool_create_in(heap, "inhabitant", 100, 0, 0);
  for (int i = 0; i < 1000; i++)
    masu_pool_alloc(pool);
  masu_heap_figures f;
  masu_heap_read(heap, &f, sizeof f);
  EXPECT_GE(f.used, 100000u);
  masu_heap_set_budget(heap, 0, f.used + 100 * KIB);
  int more = 0;
  while (masu_pool_alloc(pool))
    ASSERT_LT(++more, 10000);
  EXPECT_EQ(errno, ENOMEM);
  masu_heap_destroy(heap); /* the pool with it */
}

TEST_F(PoolApi, SharedByThreads) {
  for (unsigned flags : {0, static_cast<int>(MASU_POOL_CHECKED)}) {
    masu_pool *pool = masu_pool_create(64, 0, MASU_POOL_SHARED | flags);
    std::vector<std::atomic<uint64_t *>> shared(64);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; t++)
      threads.emplace_back([&, t] {
        random_numbers random(t + 1);
        for (uint64_t i = 0; i < 50000; i++) {
          auto *p = static_cast<uint64_t *>(masu_pool_alloc(pool));
          ASSERT_NE(p, nullptr);
          for (int k = 0; k < 8; k++)
            p[k] = i * 4 + t;
          if (uint64_t *other = shared[random.below(64)].exchange(p)) {
            for (int k = 1; k < 8; k++)
              ASSERT_EQ(other[k], other[0]); /* nobody else has it */
            masu_pool_free(pool, other);
          }
        }
      });
    for (auto &t : threads)
      t.join();
    size_t left = 0;
    for (auto &slot : shared)
      left += slot.load() != nullptr;
    masu_pool_figures f;
    masu_pool_read(pool, &f, sizeof f);
    EXPECT_EQ(f.live, left);
    masu_pool_destroy(pool);
  }
}

class SharedPool : public FormTest {
protected:
  masu_pool *pool = masu_pool_create(64, 0, MASU_POOL_SHARED);

  masu_pool_figures read(const masu_pool *of) const {
    masu_pool_figures f = {};
    EXPECT_EQ(masu_pool_read(of, &f, sizeof f), 0);
    return f;
  }
  void TearDown() override {
    masu_pool_destroy(pool);
    FormTest::TearDown();
  }
};

/* One thread takes, another gives back: the blocks find their way to the first one. */
TEST_F(SharedPool, BlocksComeBackFromAnotherThread) {
  queue<void *> handed;
  constexpr int COUNT = 200000;
  std::thread other([&] {
    for (int i = 0; i < COUNT; i++)
      masu_pool_free(pool, handed.take());
  });
  for (int i = 0; i < COUNT; i++)
    handed.put(masu_pool_alloc(pool));
  other.join();
  EXPECT_EQ(read(pool).live, 0u);
  EXPECT_LE(read(pool).held, 256 * KIB);
}

/* A thread that gives two for each that it takes keeps little of them. */
TEST_F(SharedPool, WhoGivesMoreThanHeTakesKeepsLittle) {
  std::vector<void *> blocks(100000);
  for (void *&p : blocks)
    p = masu_pool_alloc(pool);
  size_t held = read(pool).held;
  std::atomic<int> step{0};
  std::thread other([&] {
    for (void *b : blocks) {
      masu_pool_free(pool, masu_pool_alloc(pool));
      masu_pool_free(pool, b);
    }
    step = 1;
    while (step != 2)
      std::this_thread::yield();
  });
  while (step != 1)
    std::this_thread::yield();
  for (size_t i = 0; i < blocks.size() - 2000; i++)
    ASSERT_NE(masu_pool_alloc(pool), nullptr);
  EXPECT_LE(read(pool).held, held);
  step = 2;
  other.join();
}

#ifndef __SANITIZE_THREAD__ /* which lets no child have threads */
/* The child's threads begin anew; what the forking one holds ready is its own there as well. */
TEST_F(SharedPool, ServesAChildOfFork) {
  std::atomic<bool> ends{false};
  std::thread other([&] {
    while (!ends)
      masu_pool_free(pool, masu_pool_alloc(pool));
  });
  for (int round = 0; round < 20; round++) {
    masu_pool_free(pool, masu_pool_alloc(pool));
    pid_t child = fork();
    if (!child) {
      std::set<void *> seen;
      bool good = true;
      auto take = [&] {
        for (int i = 0; i < 1000; i++)
          good &= seen.insert(masu_pool_alloc(pool)).second;
      };
      take();
      std::thread(take).join();
      _exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ends = true;
  other.join();
}

#ifndef MASU_CHECKED /* whose pools hold nothing ready for threads */
/* What a thread that fork cut off held ready is lost to the child: that thread may have been in the middle of a call.
 * A thread of the child takes over its heap, by its first malloc, but not its hand. */
TEST_F(SharedPool, LosesTheHandsOfThreadsThatForkCutOff) {
  std::set<void *> held;
  std::atomic<int> step{0};
  std::thread other([&] {
    for (int i = 0; i < 100; i++)
      held.insert(masu_pool_alloc(pool));
    for (void *b : held)
      masu_pool_free(pool, b);
    step = 1;
    while (step != 2)
      std::this_thread::yield();
  });
  while (step != 1)
    std::this_thread::yield();
  EXPECT_TRUE(in_forked_child([&] {
    std::thread([&] {
      masu_free(masu_malloc(100));
      for (int i = 0; i < 1000; i++)
        ASSERT_EQ(held.count(masu_pool_alloc(pool)), 0u);
    }).join();
  }));
  step = 2;
  other.join();
}
#endif
#endif

/* Workers that are done with the pool, but not joined yet, end while others trim it. */
TEST_F(SharedPool, ThreadsEndWhileItIsTrimmed) {
  for (int round = 0; round < 300; round++) {
    std::atomic<bool> done{false};
    std::thread worker([&] {
      void *blocks[500];
      for (void *&p : blocks)
        p = masu_pool_alloc(pool);
      for (void *p : blocks)
        masu_pool_free(pool, p);
      done = true;
    });
    while (!done)
      std::this_thread::yield();
    EXPECT_GT(masu_pool_trim(pool), 0u);
    EXPECT_EQ(read(pool).held, 0u);
    worker.join();
    EXPECT_EQ(read(pool).live, 0u);
  }
}

/* A thread that ends leaves what it held ready to the others. */
TEST_F(SharedPool, AThreadsEndKeepsNothing) {
  for (int round = 0; round < 50; round++)
    std::thread([&] {
      std::vector<void *> blocks(1000);
      for (void *&p : blocks)
        p = masu_pool_alloc(pool);
      EXPECT_EQ(read(pool).live, 1000u);
      for (void *p : blocks)
        masu_pool_free(pool, p);
    }).join();
  EXPECT_EQ(read(pool).live, 0u);
  EXPECT_LE(read(pool).held, 256 * KIB);
  EXPECT_GT(masu_pool_trim(pool), 0u);
  EXPECT_EQ(read(pool).held, 0u);
}

/* What another thread holds ready is free, and goes with reset, trim and the others. */
TEST_F(SharedPool, AThreadThatWaitsHoldsNothingBack) {
  std::atomic<int> step{0};
  void *kept = nullptr;
  std::thread other([&] {
    void *p = masu_pool_alloc(pool);
    kept = masu_pool_alloc(pool);
    masu_pool_free(pool, p);
    step = 1;
    while (step != 2)
      std::this_thread::yield();
    EXPECT_NE(p = masu_pool_alloc(pool), nullptr);
    EXPECT_NE(p, kept);
    masu_pool_free(pool, p);
  });
  while (step != 1)
    std::this_thread::yield();
  std::vector<void *> live;
  EXPECT_EQ(masu_pool_for_each(
                pool, [](void *p, void *all) { static_cast<std::vector<void *> *>(all)->push_back(p); }, &live),
            0);
  EXPECT_EQ(live, std::vector<void *>{kept});
  EXPECT_EQ(masu_pool_trim(pool), 0u);
  masu_pool_free(pool, kept);
  EXPECT_GT(masu_pool_trim(pool), 0u);
  EXPECT_EQ(read(pool).held, 0u);
  kept = nullptr;
  step = 2;
  other.join();
}

/* More than a thread remembers hands of, and some where another one was. */
TEST_F(SharedPool, ManyInOneThread) {
  std::vector<masu_pool *> pools(40);
  std::vector<std::vector<uint64_t *>> blocks(pools.size());
  for (int round = 0; round < 3; round++) {
    for (masu_pool *&p : pools)
      p = masu_pool_create(32, 0, MASU_POOL_SHARED);
    for (uint64_t i = 0; i < 100; i++)
      for (size_t k = 0; k < pools.size(); k++) {
        blocks[k].push_back(static_cast<uint64_t *>(masu_pool_alloc(pools[k])));
        *blocks[k].back() = i * pools.size() + k;
      }
    for (size_t k = 0; k < pools.size(); k++) {
      for (uint64_t i = 0; i < 100; i++) {
        ASSERT_EQ(*blocks[k][i], i * pools.size() + k);
        masu_pool_free(pools[k], blocks[k][i]);
      }
      EXPECT_EQ(read(pools[k]).live, 0u);
      EXPECT_LE(read(pools[k]).held, 16 * KIB);
      blocks[k].clear();
      masu_pool_destroy(pools[k]);
    }
  }
}

#ifndef __SANITIZE_THREAD__ /* it takes the thread for ended before its last destructors */
/* In the last destructors of a thread nothing tells its end any more. */
TEST_F(SharedPool, ServesAThreadsLastDestructors) {
  struct late {
    masu_pool *pool;
    pthread_key_t key;
    int rounds;
    void *block;
  } l = {pool, 0, 0, nullptr};
  auto again = [](void *at) {
    auto *l = static_cast<late *>(at);
    if (l->block)
      masu_pool_free(l->pool, l->block);
    l->block = masu_pool_alloc(l->pool);
    if (++l->rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
      pthread_setspecific(l->key, at);
  };
  ASSERT_EQ(pthread_key_create(&l.key, again), 0);
  std::thread([&] { pthread_setspecific(l.key, &l); }).join();
  EXPECT_EQ(l.rounds, PTHREAD_DESTRUCTOR_ITERATIONS);
  EXPECT_EQ(read(pool).live, 1u);
  masu_pool_free(pool, l.block);
  EXPECT_GT(masu_pool_trim(pool), 0u);
  EXPECT_EQ(read(pool).held, 0u);
  pthread_key_delete(l.key);
}
#endif
