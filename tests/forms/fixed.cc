/* Fixed-capacity pools and ladders. */
#include <masu/fixed.h>

#include <sys/mman.h>

#include <numeric>
#include <set>

#include "forms.h"

class Fixed : public FormTest {};

TEST_F(Fixed, FullMeansNull) {
  masu_fixed *f = masu_fixed_create(100, 50, 0);
  std::set<void *> seen;
  for (int i = 0; i < 50; i++) {
    void *p = masu_fixed_alloc(f, 100);
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(multiple_of(p, 16));
    EXPECT_TRUE(seen.insert(p).second);
    EXPECT_TRUE(masu_fixed_owns(f, p));
  }
  EXPECT_FAILS_WITH(ENOMEM, masu_fixed_alloc(f, 1));
  masu_fixed_free(f, *seen.begin());
  EXPECT_EQ(masu_fixed_alloc(f, 1), *seen.begin());
  EXPECT_EQ(masu_fixed_live(f), 50u);
  EXPECT_EQ(f->missed, 1u);
  masu_fixed_reset(f);
  EXPECT_FAILS_WITH(ENOMEM, masu_fixed_alloc(f, 1000)); /* too large */
  void *p = masu_fixed_alloc(f, 10);
  EXPECT_FAILS_WITH(ENOMEM, masu_fixed_realloc(f, p, 1000));
  EXPECT_EQ(masu_fixed_live(f), 1u); /* p is still there */
  masu_fixed_destroy(f);
  masu_fixed_destroy(nullptr);
}

TEST_F(Fixed, FallsBackAndComesHome) {
  masu_fixed *f = masu_fixed_create(10000, 20, MASU_FIXED_FALLBACK);
  random_numbers random(3);
  struct block {
    void *p = nullptr;
    size_t size = 0, seed = 0;
  };
  std::vector<block> blocks(60);
  for (size_t i = 0; i < 60000; i++) {
    block &b = blocks[random.below(blocks.size())];
    size_t size = random.below(12000) + 1;
    ASSERT_EQ(pattern_mismatch(b.p, b.p ? b.size : 0, b.seed), b.p ? b.size : 0);
    if (!b.p) {
      b.p = masu_fixed_alloc(f, size);
    } else if (random.below(2)) {
      masu_fixed_free(f, b.p);
      b.p = nullptr;
      continue;
    } else {
      void *p = masu_fixed_realloc(f, b.p, size);
      ASSERT_EQ(pattern_mismatch(p, std::min(size, b.size), b.seed), std::min(size, b.size));
      bool fits = masu_fixed_owns(f, b.p) && size <= f->block;
      ASSERT_EQ(p == b.p || !fits, true); /* it stays in its block */
      b.p = p;
    }
    ASSERT_NE(b.p, nullptr);
    b.size = size;
    b.seed = i;
    pattern_write(b.p, size, i);
  }
  size_t own = 0;
  for (block &b : blocks)
    own += b.p && masu_fixed_owns(f, b.p);
  EXPECT_EQ(masu_fixed_live(f), own);
  for (block &b : blocks)
    masu_fixed_free(f, b.p); /* NULL included */
  EXPECT_EQ(masu_fixed_live(f), 0u);
  for (int i = 0; i < 20; i++)
    EXPECT_TRUE(masu_fixed_owns(f, masu_fixed_alloc(f, 1)));
  masu_fixed_destroy(f);
}

TEST_F(Fixed, ReallocToNothingFreesNothing) {
  masu_fixed *f = masu_fixed_create(100, 1, MASU_FIXED_FALLBACK);
  void *own = masu_fixed_alloc(f, 10), *other = masu_fixed_alloc(f, 1000);
  EXPECT_EQ(masu_fixed_realloc(f, own, 0), own);
  other = masu_fixed_realloc(f, other, 0);
  EXPECT_NE(other, nullptr);
  masu_fixed_free(f, other);
  masu_fixed_free(f, own);
  masu_fixed_destroy(f);
}

TEST_F(Fixed, OverTheCallersMemory) {
  alignas(16) static char memory[1000];
  masu_fixed f;
  EXPECT_EQ(masu_fixed_init(&f, memory, sizeof memory, 90, 0), 10u);
  for (int i = 0; i < 10; i++)
    memset(masu_fixed_alloc(&f, 96), i, 96);
  EXPECT_EQ(masu_fixed_alloc(&f, 1), nullptr);
  errno = 0;
  EXPECT_EQ(masu_fixed_init(&f, memory + 8, 900, 90, 0), 0u);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(masu_fixed_init(&f, nullptr, 900, 90, 0), 0u);
  EXPECT_EQ(masu_fixed_init(&f, memory, 80, 90, 0), 0u);
  EXPECT_EQ(masu_fixed_init(&f, memory, 900, 0, 0), 0u);
  EXPECT_EQ(masu_fixed_init(&f, memory, 900, 10, 8), 0u);
  EXPECT_EQ(masu_fixed_init(&f, memory, 900, SIZE_MAX, 0), 0u);
  /* Shared memory: the pool's blocks are seen by the child. */
  size_t size = 64 * KIB;
  void *shared = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(masu_fixed_init(&f, shared, size, 1000, 0), size / 1008);
  auto *text = static_cast<char *>(masu_fixed_alloc(&f, 100));
  EXPECT_TRUE(in_forked_child([&] { snprintf(text, 100, "from the child"); }));
  EXPECT_STREQ(text, "from the child");
  munmap(shared, size);
}

/* One that is reserved, or, if the system has none, one that it may make. */
TEST_F(Fixed, OverAHugePage) {
  size_t size = 2 * MIB;
  int how = MAP_PRIVATE | MAP_ANONYMOUS;
  auto *start = static_cast<char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, how | MAP_HUGETLB, -1, 0)), *page = start;
  size_t mapped = size;
  if (start == MAP_FAILED) {
    mapped = 2 * size;
    start = static_cast<char *>(mmap(nullptr, mapped, PROT_READ | PROT_WRITE, how, -1, 0));
    ASSERT_NE(start, MAP_FAILED);
    page = start + (-reinterpret_cast<uintptr_t>(start) & (size - 1));
    madvise(page, size, MADV_HUGEPAGE);
  }
  masu_fixed f;
  size_t count = masu_fixed_init(&f, page, size, 1000, 0);
  ASSERT_EQ(count, size / 1008);
  std::set<void *> seen;
  while (void *p = masu_fixed_alloc(&f, 1000))
    EXPECT_TRUE(seen.insert(memset(p, 1, 1000)).second);
  EXPECT_EQ(seen.size(), count);
  EXPECT_GE(*seen.begin(), page);
  EXPECT_LE(static_cast<char *>(*seen.rbegin()) + 1000, page + size);
  munmap(start, mapped);
}

#if EXACT_MEMORY
/* Nothing here forks: a page that a child shares faults when it is first written, be it this function's own stack. */
TEST_F(Fixed, NoPageFaultAfterCreate) {
  for (size_t size : {100ul, 4000ul, 8192ul, 10000ul}) {
    masu_fixed *f = masu_fixed_create(size, 50, 0);
    void *blocks[50] = {};
    long before = page_faults();
    for (void *&p : blocks)
      memset(p = masu_fixed_alloc(f, size), 1, size);
    EXPECT_EQ(page_faults(), before) << size;
    masu_fixed_destroy(f);
  }
}

TEST_F(Fixed, NoSystemCallAfterCreate) {
  for (size_t size : {100ul, 4000ul, 8192ul, 10000ul}) {
    masu_fixed *f = masu_fixed_create(size, 50, 0);
    void *blocks[50];
    EXPECT_TRUE(makes_no_system_call([&] {
      for (void *&p : blocks) {
        p = masu_fixed_alloc(f, size / 2);
        if (!p || masu_fixed_realloc(f, p, size) != p)
          return false;
      }
      if (masu_fixed_alloc(f, 1))
        return false;
      for (void *p : blocks)
        masu_fixed_free(f, p);
      return true;
    })) << size;
    masu_fixed_destroy(f);
  }
}
#endif

TEST_F(Fixed, BadArguments) {
  EXPECT_FAILS_WITH(EINVAL, masu_fixed_create(0, 10, 0));
  EXPECT_FAILS_WITH(EINVAL, masu_fixed_create(10, 0, 0));
  EXPECT_FAILS_WITH(EINVAL, masu_fixed_create(10, 10, 2));
  EXPECT_FAILS_WITH(ENOMEM, masu_fixed_create(1000, SIZE_MAX / 100, 0));
  EXPECT_FAILS_WITH(ENOMEM, masu_fixed_create(SIZE_MAX, 1, 0));
}

TEST_F(Fixed, FallsBackToItsHeap) {
  masu_heap *heap = masu_heap_create("home");
  masu_fixed *f = masu_fixed_create_in(heap, "inhabitant", 100, 5, MASU_FIXED_FALLBACK);
  void *p = masu_fixed_alloc(f, 1000);
  EXPECT_EQ(masu_heap_of(p), heap);
  EXPECT_EQ(masu_heap_of(masu_fixed_realloc(f, masu_fixed_alloc(f, 10), 2000)), heap);
  masu_heap_destroy(heap);
}

/* ---- Ladders ---- */

class Ladder : public FormTest {};

TEST_F(Ladder, AgainstAnOracle) {
  static const size_t own[] = {4, 20, 48, 1000, 70000};
  for (auto [steps, count] : {std::pair<const size_t *, size_t>{nullptr, 0}, {own, 5}}) {
    masu_ladder *l = masu_ladder_create(steps, count);
    ASSERT_NE(l, nullptr);
    struct block {
      void *p = nullptr;
      size_t size = 0, seed = 0;
    };
    std::vector<block> blocks(300);
    random_numbers random(5);
    for (size_t i = 0; i < 20000; i++) {
      block &b = blocks[random.below(blocks.size())];
      size_t size = random.below(size_t{2} << random.below(19));
      ASSERT_EQ(pattern_mismatch(b.p, b.p ? b.size : 0, b.seed), b.p ? b.size : 0);
      if (!b.p) {
        b.p = masu_ladder_alloc(l, size);
      } else if (random.below(2)) {
        masu_ladder_free(l, b.p);
        b.p = nullptr;
        continue;
      } else {
        b.p = masu_ladder_realloc(l, b.p, size);
        ASSERT_EQ(pattern_mismatch(b.p, std::min(size, b.size), b.seed), std::min(size, b.size));
      }
      ASSERT_NE(b.p, nullptr);
      ASSERT_TRUE(multiple_of(b.p, size > 8 ? 16 : 8));
      b.size = size;
      b.seed = i;
      pattern_write(b.p, size, i);
      if (i % 5000 == 0)
        masu_ladder_trim(l);
    }
    for (block &b : blocks)
      masu_ladder_free(l, b.p);
    EXPECT_GT(masu_ladder_trim(l), 0u);
    EXPECT_EQ(masu_ladder_trim(l), 0u);
    EXPECT_NE(masu_ladder_alloc(l, 100), nullptr);
    masu_ladder_destroy(l);
  }
  masu_ladder_destroy(nullptr);
}

TEST_F(Ladder, ManyBlocksOfEachStep) {
  for (size_t size : {8ul, 16ul, 48ul, 64ul, 4096ul, 65536ul}) {
    masu_ladder *l = masu_ladder_create(&size, 1);
    std::set<char *> blocks; /* several chunks of them */
    for (size_t i = 0; i < 3 * MIB / size; i++) {
      auto *p = static_cast<char *>(masu_ladder_alloc(l, size));
      memset(p, 1, size);
      ASSERT_TRUE(blocks.insert(p).second);
    }
    for (auto b = blocks.begin(), next = std::next(b); next != blocks.end(); b++, next++)
      ASSERT_GE(*next - *b, static_cast<ptrdiff_t>(size));
    for (char *p : blocks)
      masu_ladder_free(l, p);
    EXPECT_GE(masu_ladder_trim(l), 3 * MIB);
    masu_ladder_destroy(l);
  }
}

/* Where there is no room for a step's first chunk. */
TEST_F(Ladder, ABlockThatCannotMoveDownStays) {
  masu_heap *heap = masu_heap_create("home");
  masu_ladder *l = masu_ladder_create_in(heap, "inhabitant", nullptr, 0);
  void *p = masu_ladder_alloc(l, MIB);
  masu_heap_set_budget(heap, 0, MIB + 512 * KIB);
  errno = 0;
  EXPECT_EQ(masu_ladder_realloc(l, p, 100), p);
  EXPECT_EQ(errno, 0);
  masu_heap_destroy(heap);
}

TEST_F(Ladder, BadArguments) {
  static const size_t falling[] = {16, 8}, twice[] = {8, 8}, large[] = {16, MIB}, none[] = {0};
  EXPECT_FAILS_WITH(EINVAL, masu_ladder_create(falling, 2));
  EXPECT_FAILS_WITH(EINVAL, masu_ladder_create(twice, 2));
  EXPECT_FAILS_WITH(EINVAL, masu_ladder_create(large, 2));
  EXPECT_FAILS_WITH(EINVAL, masu_ladder_create(none, 1));
  EXPECT_FAILS_WITH(EINVAL, masu_ladder_create(falling, 0));
  std::vector<size_t> many(65);
  std::iota(many.begin(), many.end(), 16);
  EXPECT_FAILS_WITH(EINVAL, masu_ladder_create(many.data(), 65));
  masu_ladder *l = masu_ladder_create(nullptr, 0);
  EXPECT_FAILS_WITH(ENOMEM, masu_ladder_alloc(l, SIZE_MAX - 5));
  masu_ladder_destroy(l);
}
