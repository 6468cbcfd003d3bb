/* malloc and free of every size: alignment, distinct blocks, usable size, good
 * size, contents. */
#include "api.h"

#include <random>

class Sizes : public ApiTest {};
FOR_BOTH_NAMES(Sizes);

TEST_P(Sizes, EverySmallSizeIsAlignedAndWhole) {
  for (size_t n = 0; n <= 4 * KIB; n++) {
    auto *p = static_cast<unsigned char *>(KEEPS_ERRNO(a.malloc(n)));
    ASSERT_NE(p, nullptr) << n;
    ASSERT_TRUE(well_aligned(p, n)) << n << " bytes at " << static_cast<void *>(p);
    size_t usable = KEEPS_ERRNO(a.usable_size(p));
    ASSERT_GE(usable, n);
    pattern_write(p, usable, n);
    ASSERT_EQ(pattern_mismatch(p, usable, n), usable) << n;
    KEEPS_ERRNO_VOID(a.free(p));
  }
}

TEST_P(Sizes, ClassBorders) {
  for (size_t n : class_borders(a, 64 * MIB)) {
    auto *p = static_cast<unsigned char *>(KEEPS_ERRNO(a.malloc(n)));
    ASSERT_NE(p, nullptr) << n;
    ASSERT_TRUE(well_aligned(p, n)) << n;
    size_t usable = a.usable_size(p);
    ASSERT_GE(usable, n);
    ASSERT_EQ(usable, a.good_size(n)) << n;
    if (usable) {
      p[0] = 1;
      p[usable / 2] = 2;
      p[usable - 1] = 3;
    }
    KEEPS_ERRNO_VOID(a.free(p));
  }
}

TEST_P(Sizes, NeighboursDoNotOverlap) {
  std::vector<std::pair<unsigned char *, size_t>> blocks;
  size_t seed = 1;
  for (size_t n : class_borders(a, 256 * KIB))
    for (int copy = 0; copy < 3; copy++) {
      auto *p = static_cast<unsigned char *>(a.malloc(n));
      ASSERT_NE(p, nullptr);
      pattern_write(p, a.usable_size(p), seed++);
      blocks.push_back({p, n});
    }
  seed = 1;
  for (auto &[p, n] : blocks) {
    size_t usable = a.usable_size(p);
    ASSERT_EQ(pattern_mismatch(p, usable, seed++), usable) << n << " bytes";
  }
  for (auto &block : blocks)
    a.free(block.first);
}

TEST_P(Sizes, FreedInRandomOrder) {
  std::mt19937 random(7);
  struct block {
    void *p;
    size_t n, seed;
  };
  std::vector<block> blocks;
  for (size_t step = 0; step < 60000; step++) {
    if (blocks.size() < 3000 || random() % 2) {
      size_t n = random() % (1u << (random() % 15));
      void *p = a.malloc(n);
      ASSERT_NE(p, nullptr);
      pattern_write(p, n, step);
      blocks.push_back({p, n, step});
    }
    if (blocks.size() >= 3000) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      auto [p, n, seed] = blocks.back();
      blocks.pop_back();
      ASSERT_EQ(pattern_mismatch(p, n, seed), n) << n << " bytes, step " << seed;
      a.free(p);
    }
  }
  for (auto &b : blocks)
    a.free(b.p);
}

TEST_P(Sizes, ZeroGivesUniqueBlocks) {
  std::vector<void *> blocks;
  for (int i = 0; i < 100; i++) {
    void *p = i % 2 ? a.malloc(0) : a.calloc(i % 3 ? 0 : 5, 0);
    ASSERT_NE(p, nullptr);
    for (void *other : blocks)
      ASSERT_NE(p, other);
    blocks.push_back(p);
  }
  for (void *p : blocks)
    a.free(p);
}

TEST_P(Sizes, FreeNull) {
  KEEPS_ERRNO_VOID(a.free(nullptr));
  KEEPS_ERRNO_VOID(a.free_sized(nullptr, 0));
  KEEPS_ERRNO_VOID(a.free_sized(nullptr, 100));
  KEEPS_ERRNO_VOID(a.free_aligned_sized(nullptr, 64, 100));
  EXPECT_EQ(KEEPS_ERRNO(a.usable_size(nullptr)), 0u);
}

TEST_P(Sizes, SizedFree) {
  for (size_t n : class_borders(a, 8 * MIB)) {
    void *p = a.malloc(n);
    ASSERT_NE(p, nullptr);
    KEEPS_ERRNO_VOID(a.free_sized(p, n));
    void *q = a.calloc(1, n);
    ASSERT_NE(q, nullptr);
    KEEPS_ERRNO_VOID(a.free_sized(q, n));
  }
}

/* What sized free got is really free: memory must not grow. */
TEST_P(Sizes, SizedFreeFrees) {
  auto churn = [&](size_t rounds) {
    for (size_t i = 0; i < rounds; i++) {
      void *p = a.malloc(100 * KIB);
      memset(p, 1, 100 * KIB);
      a.free_sized(p, 100 * KIB);
      void *q = a.aligned_alloc(4096, 100 * KIB);
      memset(q, 1, 100 * KIB);
      a.free_aligned_sized(q, 4096, 100 * KIB);
    }
  };
  churn(10);
  size_t before = resident_kib();
  churn(1000);
  EXPECT_LE(resident_kib(), before + 20 * KIB);
}

TEST_P(Sizes, HugeBlocksHoldTheirContents) {
  for (size_t n : {65 * MIB, 300 * MIB, 1024 * MIB + 1}) {
    auto *p = static_cast<unsigned char *>(KEEPS_ERRNO(a.malloc(n)));
    ASSERT_NE(p, nullptr) << n;
    ASSERT_TRUE(aligned_to(p, 16));
    for (size_t i = 0; i < n; i += 16 * MIB)
      p[i] = pattern_at(n, i);
    p[n - 1] = pattern_at(n, n - 1);
    for (size_t i = 0; i < n; i += 16 * MIB)
      ASSERT_EQ(p[i], pattern_at(n, i));
    ASSERT_GE(a.usable_size(p), n);
    KEEPS_ERRNO_VOID(a.free(p));
  }
}
