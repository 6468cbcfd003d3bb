/* Sized calls: classes, contents, threads, what is given back. */
#include <masu/sized.h>

#include <atomic>
#include <memory>

#include "forms.h"

class Sized : public FormTest {
protected:
  void TearDown() override {
    masu_sized_trim();
    for (unsigned i = 0; i < MASU_SIZE_INDEXES; i++) { /* every test frees all */
      masu_sized_figures f = {};
      EXPECT_EQ(masu_sized_read(i, &f, sizeof f), 0);
      EXPECT_EQ(f.live, 0u) << masu_size_of_index(i);
      EXPECT_EQ(f.held, 0u) << masu_size_of_index(i);
    }
    FormTest::TearDown();
  }
};

TEST_F(Sized, ClassesLoseAtMostAFifth) {
  unsigned last = 0;
  for (size_t size = 1; size <= MASU_SIZED_MAX; size++) {
    unsigned i = masu_size_index(size);
    ASSERT_TRUE(i == last || i == last + 1) << size;
    ASSERT_EQ(i, masu_size_index_known(size)) << size;
    ASSERT_GE(masu_size_of_index(i), size);
    ASSERT_TRUE(size <= 16 || (masu_size_of_index(i) - size) * 5 <= masu_size_of_index(i)) << size;
    last = i;
  }
  EXPECT_EQ(last, MASU_SIZE_INDEXES - 1);
  EXPECT_EQ(masu_size_of_index(masu_size_index(4)), 4u);
  EXPECT_EQ(masu_size_index(0), 0u);
  EXPECT_EQ(masu_size_index_known(0), 0u);
  EXPECT_EQ(masu_size_index(MASU_SIZED_MAX + 1), +MASU_SIZE_INDEXES);
  EXPECT_EQ(masu_size_of_index(MASU_SIZE_INDEXES), 0u);
  masu_sized_figures f;
  EXPECT_EQ(masu_sized_read(MASU_SIZE_INDEXES, &f, sizeof f), EINVAL);
  EXPECT_EQ(masu_sized_read(0, &f, 1), EINVAL);
}

static size_t random_size(random_numbers &random) {
  return random.below(100) ? random.below(size_t{2} << random.below(12))
                           : random.below(100 * KIB);
}

static size_t alignment_of(size_t size) {
  size_t block = masu_size_of_index(masu_size_index(size));
  return block ? std::min<size_t>(block & -block, 64) : 16;
}

TEST_F(Sized, AgainstAnOracle) {
  struct block {
    void *p = nullptr;
    size_t size = 0, seed = 0;
  };
  std::vector<block> blocks(4000);
  random_numbers random(1);
  for (size_t i = 0; i < 200000; i++) {
    block &b = blocks[random.below(blocks.size())];
    if (b.p) {
      ASSERT_EQ(pattern_mismatch(b.p, b.size, b.seed), b.size);
      masu_sized_free(b.p, b.size);
      b.p = nullptr;
      continue;
    }
    b.size = random_size(random);
    b.seed = i;
    b.p = masu_sized_alloc(b.size);
    ASSERT_NE(b.p, nullptr);
    ASSERT_TRUE(multiple_of(b.p, alignment_of(b.size))) << b.size;
    pattern_write(b.p, b.size, i);
    if (i % 50000 == 0)
      masu_sized_trim(); /* what is live stays */
  }
  for (block &b : blocks)
    masu_sized_free(b.p, b.size); /* NULL included */
}

TEST_F(Sized, AMillionBlocksOfFourBytes) {
  size_t before = resident_kib();
  auto blocks = std::make_unique<int *[]>(1000000); /* resident: it is zeroed */
  size_t table = resident_kib() - before;
  for (int i = 0; i < 1000000; i++)
    *(blocks[i] = static_cast<int *>(masu_sized_alloc(3))) = i;
#if EXACT_MEMORY
  EXPECT_LE((resident_kib() - before - table) * KIB, 4100000u);
#endif
  (void)table;
  for (int i = 0; i < 1000000; i++)
    ASSERT_EQ(*blocks[i], i);
  for (int i = 0; i < 1000000; i++)
    masu_sized_free(blocks[i], 3);
  /* The warning of the first such allocator: small blocks that were freed starve a large
   * request. Here they don't. */
  EXPECT_GE(masu_sized_trim(), 4000000u);
  size_t now = resident_kib();
  void *large = masu_malloc(4000000);
  memset(large, 1, 4000000);
#if EXACT_MEMORY
  EXPECT_LE(resident_kib(), std::max(now, before + table + 4200) + 200);
#endif
  (void)now;
  masu_free(large);
}

/* What the compiler knows comes by the class, what it doesn't by the size. */
TEST_F(Sized, KnownSizes) {
  volatile size_t size = 100, large = MASU_SIZED_MAX + 1;
  void *p = masu_sized_alloc(100);
  masu_sized_free(p, size);
  EXPECT_EQ(masu_sized_alloc(size), p);
  masu_sized_free(p, 100);
  p = masu_sized_alloc(MASU_SIZED_MAX + 1);
  EXPECT_GT(masu_malloc_usable_size(p), size_t{MASU_SIZED_MAX});
  masu_sized_free(p, large);
  using pair = std::pair<int, int>;
  p = masu_sized_alloc(sizeof(std::pair<int, int>));
  masu_sized_free(static_cast<std::pair<int, int> *>(p), sizeof(pair)); /* commas are no macro's */
  masu_sized_free(nullptr, 100);
  masu_sized_free(nullptr, size);
}

TEST_F(Sized, ByIndex) {
  for (unsigned i = 0; i < MASU_SIZE_INDEXES; i++) {
    void *a = masu_sized_alloc_index(i), *b = masu_sized_alloc(masu_size_of_index(i));
    memset(a, 1, masu_size_of_index(i));
    memset(b, 2, masu_size_of_index(i));
    masu_sized_figures f;
    masu_sized_read(i, &f, sizeof f);
    EXPECT_EQ(f.live, 2u);
    masu_sized_free(a, masu_size_of_index(i));
    masu_sized_free_index(b, i);
  }
}

TEST_F(Sized, ThreadsHandBlocksOver) {
  struct block {
    size_t size;
    uint64_t seed;
  };
  std::vector<std::atomic<block *>> shared(300);
  for (int round = 0; round < 3; round++) {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; t++)
      threads.emplace_back([&, t] {
        random_numbers random(round * 4 + t + 1);
        for (uint64_t i = 0; i < 40000; i++) {
          size_t size = random.below(500) + sizeof(block);
          auto *b = static_cast<block *>(masu_sized_alloc(size));
          ASSERT_NE(b, nullptr);
          pattern_write(b, size, i);
          *b = {size, i};
          b = shared[random.below(shared.size())].exchange(b);
          if (!b)
            continue;
          size_t rest = b->size - sizeof(block);
          for (size_t k = 0; k < rest; k += 40)
            ASSERT_EQ(reinterpret_cast<unsigned char *>(b)[sizeof(block) + k],
                      pattern_at(b->seed, sizeof(block) + k));
          masu_sized_free(b, b->size);
        }
      });
    for (auto &t : threads)
      t.join();
  }
  for (auto &slot : shared)
    if (block *b = slot.load())
      masu_sized_free(b, b->size);
}

TEST_F(Sized, OneThreadFreesWhatAnotherAllocates) {
  std::vector<void *> blocks(50000);
  for (int round = 0; round < 5; round++) {
    for (void *&p : blocks)
      p = masu_sized_alloc(24);
    std::thread([&] {
      for (void *p : blocks)
        masu_sized_free(p, 24);
    }).join();
    masu_sized_figures f;
    masu_sized_read(masu_size_index(24), &f, sizeof f);
    EXPECT_EQ(f.live, 0u);
    EXPECT_LE(f.made, blocks.size() + 1000); /* they come back */
  }
}

TEST_F(Sized, AChildHasThemToo) {
  void *p = masu_sized_alloc(40);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    std::vector<void *> held(1000);
    while (!stop) {
      for (void *&q : held)
        q = masu_sized_alloc(40);
      for (void *q : held)
        masu_sized_free(q, 40);
    }
  });
  auto child = [&] {
    masu_sized_free(p, 40);
    std::vector<void *> held(5000);
    for (void *&q : held)
      memset(q = masu_sized_alloc(40), 1, 40);
    for (void *q : held)
      masu_sized_free(q, 40);
    masu_sized_trim();
  };
  for (int i = 0; i < 20; i++)
    EXPECT_TRUE(in_forked_child(child));
  stop = true;
  busy.join();
  masu_sized_free(p, 40);
}

TEST_F(Sized, Overflow) {
  EXPECT_FAILS_WITH(ENOMEM, masu_sized_alloc(SIZE_MAX));
  EXPECT_FAILS_WITH(ENOMEM, masu_sized_alloc(SIZE_MAX / 2));
}
