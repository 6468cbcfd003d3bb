/* Arenas: growth, marks, zeroed memory, given memory, ends. */
#include <masu/arena.h>

#include <algorithm>

#include "forms.h"

class Arena : public FormTest {
protected:
  masu_arena_figures read(masu_arena *a) const {
    masu_arena_figures f = {};
    EXPECT_EQ(masu_arena_read(a, &f, sizeof f), 0);
    return f;
  }
};

/* Random allocations and rewinds, against a list of what must still be there. */
TEST_F(Arena, AgainstAnOracle) {
  struct block {
    unsigned char *p;
    size_t size, seed;
  };
  struct moment {
    masu_mark mark;
    size_t blocks;
  };
  masu_arena *a = masu_arena_create(500);
  std::vector<block> blocks;
  std::vector<moment> marks;
  random_numbers random(11);
  for (size_t i = 0; i < 40000; i++) {
    size_t size = random.below(random.below(50) ? 300 : 20000), alignment = 1u << random.below(13);
    unsigned char *p = nullptr;
    switch (random.below(16)) {
    case 0:
      marks.push_back({masu_arena_mark(a), blocks.size()});
      continue;
    case 1:
      if (marks.empty())
        continue;
      masu_arena_rewind(a, marks.back().mark);
      blocks.resize(marks.back().blocks);
      marks.pop_back();
      continue;
    case 2:
      if (random.below(200) == 0) {
        masu_arena_reset(a);
        masu_arena_trim(a);
        blocks.clear();
        marks.clear();
      }
      continue;
    case 3: /* the last one grows or shrinks */
      if (blocks.empty() || (!marks.empty() && marks.back().blocks == blocks.size()))
        continue;
      p = static_cast<unsigned char *>(
          masu_arena_realloc(a, blocks.back().p, blocks.back().size, size));
      ASSERT_NE(p, nullptr);
      ASSERT_EQ(pattern_mismatch(p, std::min(size, blocks.back().size), blocks.back().seed),
                std::min(size, blocks.back().size));
      blocks.pop_back();
      break;
    case 4:
    case 5:
      p = static_cast<unsigned char *>(masu_arena_calloc(a, size, 1));
      ASSERT_TRUE(all_zero(p, size));
      break;
    case 6:
      p = static_cast<unsigned char *>(masu_arena_aligned_alloc(a, alignment, size));
      ASSERT_TRUE(multiple_of(p, alignment));
      break;
    default:
      p = static_cast<unsigned char *>(masu_arena_alloc(a, size));
      ASSERT_TRUE(multiple_of(p, 16));
    }
    ASSERT_NE(p, nullptr);
    pattern_write(p, size, i);
    blocks.push_back({p, size, i});
    for (size_t k = 0; k < blocks.size() && i % 500 == 0; k++)
      ASSERT_EQ(pattern_mismatch(blocks[k].p, blocks[k].size, blocks[k].seed), blocks[k].size);
  }
  EXPECT_GT(read(a).runs, 1u);
  EXPECT_LE(read(a).used, read(a).held);
  masu_arena_destroy(a);
  masu_arena_destroy(nullptr);
}

TEST_F(Arena, ResetKeepsTheMemory) {
  masu_arena *a = masu_arena_create(1000);
  for (int i = 0; i < 1000; i++)
    memset(masu_arena_alloc(a, 1000), 1, 1000);
  masu_arena_figures full = read(a);
  EXPECT_GE(full.used, 1000000u);
  for (int round = 0; round < 5; round++) {
    masu_arena_reset(a);
    EXPECT_EQ(read(a).used, 0u);
    for (int i = 0; i < 1000; i++)
      memset(masu_arena_alloc(a, 1000), 1, 1000);
    EXPECT_EQ(read(a).held, full.held);
    EXPECT_EQ(read(a).runs, full.runs);
  }
  masu_arena_reset(a);
  size_t given = masu_arena_trim(a);
  EXPECT_EQ(read(a).held, full.held - given);
  EXPECT_EQ(read(a).runs, 1u);
  masu_arena_destroy(a);
}

#if EXACT_MEMORY
TEST_F(Arena, WhatIsKnownToBeZeroIsNotTouched) {
  masu_malloc_trim(0); /* so that the arena's memory comes from the system */
  masu_arena *a = masu_arena_create(64 * MIB);
  size_t before = resident_kib();
  auto *p = static_cast<char *>(masu_arena_calloc(a, 60, MIB));
  EXPECT_LT(resident_kib(), before + KIB);
  memset(p, 1, 60 * MIB);
  EXPECT_GT(resident_kib(), before + 59 * KIB);
  masu_arena_destroy(a);
}
#endif

TEST_F(Arena, TheLastBlockGrowsInPlace) {
  masu_arena *a = masu_arena_create(10000);
  void *first = masu_arena_alloc(a, 100), *p = masu_arena_alloc(a, 100);
  EXPECT_EQ(masu_arena_realloc(a, p, 100, 5000), p);
  EXPECT_EQ(masu_arena_realloc(a, p, 5000, 10), p);
  EXPECT_NE(masu_arena_realloc(a, first, 100, 200), first); /* not the last */
  EXPECT_EQ(masu_arena_realloc(a, first, 100, 50), first);
  EXPECT_NE(masu_arena_realloc(a, nullptr, 0, 50), nullptr);
  EXPECT_STREQ(masu_arena_strdup(a, "text"), "text");
  masu_arena_destroy(a);
}

TEST_F(Arena, AnEmptyBlockIsNotTheNextOne) {
  masu_arena *a = masu_arena_create(10000);
  void *empty = masu_arena_alloc(a, 0), *next = masu_arena_alloc(a, 16);
  memset(next, 1, 16);
  void *p = masu_arena_realloc(a, empty, 0, 32);
  EXPECT_NE(p, next);
  memset(p, 2, 32);
  EXPECT_EQ(*static_cast<char *>(next), 1);
  masu_arena_destroy(a);
}

TEST_F(Arena, FixedCapacityEndsWithNull) {
  masu_arena *a = masu_arena_create_fixed(nullptr, "fixed", 1600);
  size_t n = 0;
  while (masu_arena_alloc(a, 16))
    n++;
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(n, 100u);
  masu_arena_reset(a);
  EXPECT_NE(masu_arena_alloc(a, 1600), nullptr);
  EXPECT_FAILS_WITH(ENOMEM, masu_arena_alloc(a, 1));
  masu_arena_destroy(a);
  EXPECT_FAILS_WITH(EINVAL, masu_arena_create_fixed(nullptr, nullptr, 0));
}

TEST_F(Arena, InTheCallersMemory) {
  static char memory[2000];
  for (size_t offset = 0; offset < 20; offset++)
    for (size_t size : {140ul, 500ul, 1900ul}) {
      memset(memory, 0x55, sizeof memory);
      masu_arena *a = masu_arena_init(memory + offset, size);
      ASSERT_NE(a, nullptr);
      auto *zero = masu_arena_calloc(a, 1, 1);
      ASSERT_NE(zero, nullptr);
      EXPECT_TRUE(all_zero(zero, 1));
      while (char *p = static_cast<char *>(masu_arena_alloc(a, 10))) {
        EXPECT_GE(p, memory + offset);
        EXPECT_LE(p + 10, memory + offset + size);
        memset(p, 1, 10);
      }
      EXPECT_EQ(memory[offset + size], 0x55);
      EXPECT_GE(read(a).used + 160, size);
      masu_arena_reset(a);
      EXPECT_EQ(masu_arena_trim(a), 0u);
      masu_arena_destroy(a);
    }
  EXPECT_FAILS_WITH(EINVAL, masu_arena_init(memory, 60));
  EXPECT_FAILS_WITH(EINVAL, masu_arena_init(nullptr, 1000));
}

TEST_F(Arena, BadSizes) {
  masu_arena *a = masu_arena_create(0);
  EXPECT_FAILS_WITH(ENOMEM, masu_arena_alloc(a, SIZE_MAX));
  EXPECT_FAILS_WITH(ENOMEM, masu_arena_alloc(a, SIZE_MAX - 15));
  EXPECT_FAILS_WITH(ENOMEM, masu_arena_calloc(a, SIZE_MAX / 2, 3));
  EXPECT_FAILS_WITH(EINVAL, masu_arena_aligned_alloc(a, 24, 10));
  EXPECT_FAILS_WITH(EINVAL, masu_arena_aligned_alloc(a, 0, 10));
  EXPECT_FAILS_WITH(ENOMEM, masu_arena_aligned_alloc(a, size_t{1} << 63, 10));
  EXPECT_NE(masu_arena_alloc(a, 0), nullptr);
  EXPECT_EQ(masu_arena_read(a, nullptr, 1), EINVAL);
  masu_arena_destroy(a);
  EXPECT_FAILS_WITH(ENOMEM, masu_arena_create(SIZE_MAX - 100));
}

TEST_F(Arena, LivesInItsHeap) {
  masu_heap *heap = masu_heap_create("home");
  masu_heap_set_budget(heap, 0, 2 * MIB);
  masu_arena *a = masu_arena_create_in(heap, "inhabitant", 1000);
  size_t n = 0;
  while (masu_arena_alloc(a, 1000))
    ASSERT_LT(++n, 10000u);
  EXPECT_GT(n, 500u);
  masu_heap_figures f;
  masu_heap_read(heap, &f, sizeof f);
  EXPECT_LE(f.used, 2 * MIB);
  masu_heap_destroy(heap);
}
