/* Named heaps: whose block is whose, budgets, figures, and the end of a heap. */
#include <masu/arena.h>
#include <masu/fixed.h>
#include <masu/pool.h>

#include <sys/resource.h>

#include <atomic>
#include <cstdio>

#include "forms.h"

class Heap : public FormTest {
protected:
  masu_heap *heap = masu_heap_create("tested");
  masu_heap_figures read() const {
    masu_heap_figures f = {};
    EXPECT_EQ(masu_heap_read(heap, &f, sizeof f), 0);
    return f;
  }
  void TearDown() override {
    masu_heap_destroy(heap);
    FormTest::TearDown();
  }
};

TEST_F(Heap, BlocksOfEverySizeAreTheHeaps) {
  for (size_t size = 0; size < 6 * MIB; size = size * 3 + 1) {
    void *p = masu_heap_malloc(heap, size);
    ASSERT_NE(p, nullptr);
    pattern_write(p, size, size);
    EXPECT_EQ(masu_heap_of(p), heap) << size;
    EXPECT_GE(masu_malloc_usable_size(p), size);
    EXPECT_EQ(pattern_mismatch(p, size, size), size);
    masu_free(p);
  }
  EXPECT_EQ(read().blocks, 0u);
  void *general = masu_malloc(100);
  int local;
  EXPECT_EQ(masu_heap_of(general), nullptr);
  EXPECT_EQ(masu_heap_of(nullptr), nullptr);
  EXPECT_EQ(masu_heap_of(&local), nullptr);
  masu_free(general);
}

TEST_F(Heap, ReallocStaysInTheHeap) {
  auto *p = static_cast<char *>(masu_heap_realloc(heap, nullptr, 10));
  pattern_write(p, 10, 1);
  for (size_t size : {100ul, 5000ul, 300 * KIB, 3 * MIB, 9 * MIB, 300 * KIB, 20ul}) {
    p = static_cast<char *>(masu_heap_realloc(nullptr, p, size));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(pattern_mismatch(p, 10, 1), 10u) << size;
    EXPECT_EQ(masu_heap_of(p), heap) << size;
    EXPECT_GE(read().used, size);
  }
  p = static_cast<char *>(masu_realloc(p, 100 * KIB)); /* the plain name, too */
  EXPECT_EQ(masu_heap_of(p), heap);
  masu_heap_free(heap, p);
  EXPECT_EQ(read().blocks, 0u);
}

TEST_F(Heap, CallocIsZeroAndAlignmentHolds) {
  for (size_t round = 0; round < 3; round++)
    for (size_t size : {8ul, 100ul, 5000ul, 50 * KIB, 400 * KIB, 3 * MIB}) {
      void *p = masu_heap_calloc(heap, size / 4, 4);
      ASSERT_NE(p, nullptr);
      EXPECT_TRUE(all_zero(p, size));
      memset(p, 0xff, size);
      masu_free(p);
    }
  for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2) {
    void *p = masu_heap_aligned_alloc(heap, alignment, 1000);
    EXPECT_TRUE(multiple_of(p, alignment)) << alignment;
    EXPECT_EQ(masu_heap_of(p), heap);
    masu_free(p);
  }
  EXPECT_FAILS_WITH(EINVAL, masu_heap_aligned_alloc(heap, 24, 100));
  EXPECT_FAILS_WITH(ENOMEM, masu_heap_calloc(heap, SIZE_MAX / 2, 3));
  EXPECT_FAILS_WITH(ENOMEM, masu_heap_malloc(heap, SIZE_MAX - 100));
}

TEST_F(Heap, NoHeapIsTheGeneralMemory) {
  void *p = masu_heap_malloc(nullptr, 100);
  EXPECT_EQ(masu_heap_of(p), nullptr);
  p = masu_heap_realloc(nullptr, p, 1000);
  masu_heap_free(nullptr, p);
  p = masu_heap_calloc(nullptr, 10, 10);
  EXPECT_TRUE(all_zero(p, 100));
  masu_free(p);
  masu_heap_destroy(nullptr);
  masu_heap_figures f;
  EXPECT_EQ(masu_heap_read(nullptr, &f, sizeof f), EINVAL);
  EXPECT_EQ(masu_heap_read(heap, &f, 1), EINVAL);
}

TEST_F(Heap, TheHardLimitHolds) {
  EXPECT_FAILS_WITH(ENOMEM, masu_heap_malloc(heap, SIZE_MAX - 100));
  masu_heap_set_budget(heap, 0, MIB);
  EXPECT_EQ(read().refused, 0u); /* what there is no memory for no limit refuses */
  std::vector<void *> blocks;
  while (void *p = masu_heap_malloc(heap, 1000))
    blocks.push_back(p);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_GT(blocks.size(), 1000u); /* 1,024 bytes each */
  EXPECT_LE(read().used, MIB);
  EXPECT_GT(read().refused, 0u);
  EXPECT_FAILS_WITH(ENOMEM, masu_heap_malloc(heap, 2 * MIB));
  EXPECT_FAILS_WITH(ENOMEM, masu_realloc(blocks[0], 2 * MIB));
  /* What one size class has freed serves another, and single large blocks. */
  for (void *p : blocks)
    masu_free(p);
  void *large = masu_heap_malloc(heap, 900 * KIB);
  EXPECT_NE(large, nullptr);
  masu_free(large);
  masu_heap_set_budget(heap, 0, 0);
  large = masu_heap_malloc(heap, 3 * MIB);
  EXPECT_NE(large, nullptr);
}

TEST_F(Heap, TheSoftLimitCallsOnceUntilBelow) {
  struct context {
    int calls = 0;
    size_t used = 0;
  } said;
  masu_heap_on_soft(
      heap,
      [](masu_heap *h, size_t used, void *c) {
        static_cast<context *>(c)->calls++;
        static_cast<context *>(c)->used = used;
        masu_free(masu_heap_malloc(h, 100)); /* it may use the heap */
      },
      &said);
  masu_heap_set_budget(heap, MIB, 0);
  void *a = masu_heap_malloc(heap, 900 * KIB);
  EXPECT_EQ(said.calls, 0);
  void *b = masu_heap_malloc(heap, 900 * KIB), *c = masu_heap_malloc(heap, 900 * KIB);
  EXPECT_NE(c, nullptr);
  EXPECT_EQ(said.calls, 1);
  EXPECT_GT(said.used, MIB);
  masu_free(b);
  masu_free(c);
  masu_free(masu_heap_malloc(heap, 10)); /* below: armed again */
  b = masu_heap_malloc(heap, 900 * KIB);
  EXPECT_EQ(said.calls, 2);
  masu_free(a);
  masu_free(b);
}

TEST_F(Heap, TheSoftLimitIsArmedByFreeing) {
  int calls = 0;
  masu_heap_on_soft(heap, [](masu_heap *, size_t, void *n) { ++*static_cast<int *>(n); }, &calls);
  masu_heap_set_budget(heap, 300 * KIB, 0);
  for (int i = 1; i <= 3; i++) {
    masu_free(masu_heap_malloc(heap, 400 * KIB));
    EXPECT_EQ(calls, i);
  }
}

/* The callback comes when a form is in order again, and may use it. */
TEST_F(Heap, TheCallbackMayUseTheFormThatGrew) {
  struct forms {
    masu_pool *plain, *shared;
    masu_arena *arena;
    masu_ladder *ladder;
    int calls = 0;
    std::vector<void *> blocks;
    void add(void *p) {
      blocks.push_back(p);
      pattern_write(p, 1000, blocks.size());
    }
    void take() {
      add(masu_pool_alloc(plain));
      add(masu_pool_alloc(shared));
      add(masu_arena_alloc(arena, 1000));
      add(masu_ladder_alloc(ladder, 1000));
    }
  } f;
  f.plain = masu_pool_create_in(heap, nullptr, 1000, 0, 0);
  f.shared = masu_pool_create_in(heap, nullptr, 1000, 0, MASU_POOL_SHARED);
  f.arena = masu_arena_create_in(heap, nullptr, 1000);
  f.ladder = masu_ladder_create_in(heap, nullptr, nullptr, 0);
  masu_heap_on_soft(
      heap,
      [](masu_heap *h, size_t used, void *context) {
        auto *all = static_cast<forms *>(context);
        all->calls++;
        masu_heap_set_budget(h, used + 5 * KIB, 0); /* and again soon */
        for (int i = 0; i < 3; i++)
          all->take();
      },
      &f);
  masu_heap_set_budget(heap, 20 * KIB, 0);
  for (int i = 0; i < 300; i++)
    f.take();
  EXPECT_GT(f.calls, 3);
  for (size_t i = 0; i < f.blocks.size(); i++)
    ASSERT_EQ(pattern_mismatch(f.blocks[i], 1000, i + 1), 1000u) << i;
}

/* Here it makes the arena go on to another run, above or below the one that calloc's block is in. */
TEST_F(Heap, ZeroedMemoryIsZeroWhateverTheCallbackAllocates) {
  random_numbers random(1);
  for (int round = 0; round < 100; round++) {
    std::vector<void *> written;
    for (int i = 0; i < 300; i++) {
      size_t size = random.below(12000);
      written.push_back(memset(masu_heap_malloc(heap, size), 0xff, size));
    }
    for (void *p : written)
      masu_free(p);
    size_t size = 100 + random.below(3000);
    masu_arena *arena = masu_arena_create_in(heap, nullptr, size);
    masu_arena_alloc(arena, size);
    masu_heap_on_soft(
        heap, [](masu_heap *, size_t, void *a) { masu_arena_alloc(static_cast<masu_arena *>(a), 5000); }, arena);
    masu_heap_set_budget(heap, 1, 0);
    void *p = masu_arena_calloc(arena, 1, size);
    EXPECT_TRUE(all_zero(p, size)) << size;
    masu_heap_set_budget(heap, 0, 0);
    masu_arena_destroy(arena);
    masu_heap_destroy(heap);
    heap = masu_heap_create("again");
  }
}

TEST_F(Heap, WhatIsFreeIsFoundWhenTheBudgetIsUsedUp) {
  masu_heap_set_budget(heap, 0, 1000000);
  std::vector<void *> blocks;
  while (void *p = masu_heap_malloc(heap, 48))
    blocks.push_back(p);
  EXPECT_EQ(read().refused, 1u);
  size_t freed = 0, again = 0;
  for (size_t i = 0; i < blocks.size(); i += 2, freed++)
    masu_free(blocks[i]);
  while (masu_heap_malloc(heap, 48))
    again++;
  EXPECT_EQ(again, freed);
}

TEST_F(Heap, ALargeBlockMayHaveWhatSmallOnesKeep) {
  masu_heap_set_budget(heap, 0, MIB);
  std::vector<void *> blocks;
  while (void *p = masu_heap_malloc(heap, 1000))
    blocks.push_back(p);
  for (void *p : blocks)
    masu_free(p);
  EXPECT_NE(masu_heap_malloc(heap, 600 * KIB), nullptr);
}

TEST_F(Heap, ALoweredLimitLetsTheHeapShrink) {
  void *p = masu_heap_malloc(heap, 4 * MIB);
  masu_heap_set_budget(heap, 0, MIB);
  EXPECT_EQ(masu_realloc(p, 4 * MIB), p);
#ifndef MASU_CHECKED /* there large blocks are resized by copying */
  p = masu_realloc(p, 3 * MIB);
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(read().used, 3 * MIB);
#endif
  EXPECT_FAILS_WITH(ENOMEM, masu_realloc(p, 5 * MIB));
}

/* No more address space from now on. */
static void limit_address_space() {
  unsigned long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  ASSERT_TRUE(f && fscanf(f, "%lu", &pages) == 1);
  fclose(f);
  rlimit limit = {pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)), RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

TEST_F(Heap, WhatMallocKeepsServesItBeforeItFails) {
  if (!EXACT_MEMORY)
    GTEST_SKIP();
  for (size_t size : {60 * KIB, 300 * KIB})
    EXPECT_TRUE(in_forked_child([&] {
      masu_free(masu_heap_malloc(heap, 10));
      void *idle = masu_malloc(12 * MIB);
      limit_address_space();
      while (masu_malloc(16))
        ;
      masu_free(idle);
      EXPECT_NE(masu_heap_malloc(heap, size), nullptr);
    })) << size;
}

TEST_F(Heap, WhatOthersFreedIsNotChargedAnyMore) {
  std::vector<void *> blocks(4000);
  std::atomic<int> step{0};
  std::thread owner([&] {
    for (void *&p : blocks)
      p = masu_heap_malloc(heap, 1000);
    step = 1;
    while (step != 2)
      std::this_thread::yield();
  });
  while (step != 1)
    std::this_thread::yield();
  size_t before = read().used;
  for (void *p : blocks)
    masu_free(p);
  EXPECT_LT(read().used, before / 10); /* the owner has not looked */
  step = 2;
  owner.join();
  masu_heap_trim(heap);
  EXPECT_EQ(read().live, 0u);
}

TEST_F(Heap, DestroyGivesEverythingBack) {
  size_t before = resident_kib();
  for (int round = 0; round < 20; round++) {
    masu_heap *h = masu_heap_create(nullptr);
    for (size_t i = 0; i < 20000; i++) {
      void *p = masu_heap_malloc(h, i % 700);
      pattern_write(p, i % 700, i);
    }
    for (size_t i = 0; i < 10; i++)
      memset(masu_heap_malloc(h, 500 * KIB), 1, 500 * KIB);
    masu_heap_destroy(h);
  }
  masu_malloc_trim(0);
  EXPECT_TRUE(!EXACT_MEMORY || resident_kib() < before + 8 * KIB) << resident_kib();
}

TEST_F(Heap, ManyHeapsUsedInTurn) {
  std::vector<masu_heap *> heaps;
  std::vector<void *> blocks;
  for (int i = 0; i < 50; i++)
    heaps.push_back(masu_heap_create("one of many"));
  for (int round = 0; round < 20; round++)
    for (size_t i = 0; i < heaps.size(); i++) {
      blocks.push_back(masu_heap_malloc(heaps[i], 10 + i));
      EXPECT_EQ(masu_heap_of(blocks.back()), heaps[i]);
    }
  for (void *p : blocks)
    masu_free(p);
  for (masu_heap *h : heaps) {
    masu_heap_figures f;
    masu_heap_read(h, &f, sizeof f);
    EXPECT_EQ(f.live, 0u);
    masu_heap_destroy(h);
  }
}

static void churn(masu_heap *heap, uint64_t seed, std::atomic<void *> *shared, size_t slots) {
  random_numbers random(seed);
  for (int i = 0; i < 40000; i++) {
    size_t size = random.below(20) ? random.below(600) : random.below(400 * KIB);
    auto *p = static_cast<size_t *>(masu_heap_malloc(heap, size + 2 * sizeof(size_t)));
    ASSERT_NE(p, nullptr);
    p[0] = size;
    p[1] = ~size;
    auto *other = static_cast<size_t *>(shared[random.below(slots)].exchange(p));
    if (!other)
      continue;
    ASSERT_EQ(other[0], ~other[1]);
    ASSERT_EQ(masu_heap_of(other), heap);
    if (random.below(4))
      masu_free(other); /* another thread's, more often than not */
    else
      masu_free(masu_realloc(other, random.below(2000) + 1));
  }
}

TEST_F(Heap, ThreadsShareIt) {
  std::vector<std::atomic<void *>> shared(500);
  for (int round = 0; round < 3; round++) { /* later threads inherit what ended ones left */
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; t++)
      threads.emplace_back(churn, heap, round * 4 + t + 1, shared.data(), shared.size());
    for (auto &t : threads)
      t.join();
  }
  for (auto &slot : shared)
    masu_free(slot.load());
  masu_heap_trim(heap);
  EXPECT_EQ(read().live, 0u);
  EXPECT_LT(read().used, MIB);
}

TEST_F(Heap, DestroyedWhileOtherThreadsLive) {
  std::atomic<int> step{0};
  masu_heap *first = masu_heap_create("first");
  std::thread user([&] {
    for (int i = 0; i < 1000; i++)
      masu_heap_malloc(first, 100);
    step = 1;
    while (step != 2)
      std::this_thread::yield();
    void *p = masu_heap_malloc(heap, 100); /* its part of the first is blank now */
    EXPECT_EQ(masu_heap_of(p), heap);
    masu_free(p);
  });
  while (step != 1)
    std::this_thread::yield();
  masu_heap_destroy(first);
  masu_heap *second = masu_heap_create("second"); /* takes the descriptor of the first */
  void *p = masu_heap_malloc(second, 100);
  EXPECT_EQ(masu_heap_of(p), second);
  step = 2;
  user.join();
  masu_heap_destroy(second);
}

/* What each thread gives back is nobody else's to end: its heap is destroyed at once. */
TEST_F(Heap, HeapsOfSeveralThreadsComeAndGo) {
  auto live = [] {
    for (int round = 0; round < (EXACT_MEMORY ? 20000 : 2000); round++) {
      masu_heap *own = masu_heap_create("own");
      std::vector<void *> blocks;
      for (size_t size = 16; size <= 32 * KIB; size += size / 4)
        blocks.push_back(masu_heap_malloc(own, size));
      for (void *p : blocks)
        masu_free(p);
      masu_heap_trim(own);
      masu_heap_destroy(own);
    }
  };
  std::thread one(live), other(live);
  one.join();
  other.join();
}

TEST_F(Heap, AChildHasItToo) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop)
      masu_free(masu_heap_malloc(heap, 1000));
  });
  void *before = masu_heap_malloc(heap, 200);
  pattern_write(before, 200, 9);
  auto child = [&] {
    EXPECT_EQ(pattern_mismatch(before, 200, 9), 200u);
    masu_free(before);
    for (int k = 0; k < 2000; k++)
      masu_free(masu_heap_malloc(heap, 1000));
#ifndef MASU_NO_OVERRIDE /* ThreadSanitizer's children can't have threads */
    std::thread([&] { masu_free(masu_heap_malloc(heap, 1000)); }).join();
#endif
    masu_heap_trim(heap);
    masu_heap_destroy(heap);
    EXPECT_EQ(masu_check(), 0);
  };
  for (int i = 0; i < 20; i++)
    EXPECT_TRUE(in_forked_child(child));
  stop = true;
  busy.join();
  masu_free(before);
}

TEST_F(Heap, FiguresAndNames) {
  void *p = masu_heap_malloc(heap, 1000), *q = masu_heap_malloc(heap, MIB);
  EXPECT_EQ(read().blocks, 2u);
  EXPECT_EQ(read().live, 1024 + MIB);
  EXPECT_GE(read().used, read().live);
  masu_free(p);
  masu_free(q);
  EXPECT_EQ(read().blocks, 0u);
  EXPECT_GE(read().peak, MIB);
  EXPECT_STREQ(masu_heap_name(heap), "tested");
  masu_heap *longer = masu_heap_create("a name of more than thirty-one characters");
  EXPECT_STREQ(masu_heap_name(longer), "a name of more than thirty-one ");
  size_t seen = 0;
  masu_heap_for_each([](masu_heap *, void *n) { ++*static_cast<size_t *>(n); }, &seen);
  EXPECT_EQ(seen, 2u);
  masu_heap_destroy(longer);
}

TEST_F(Heap, EachOfManyIsVisitedOnce) {
  std::vector<masu_heap *> heaps = {heap}, seen;
  while (heaps.size() < 300)
    heaps.push_back(masu_heap_create(nullptr));
  masu_heap_for_each(
      [](masu_heap *h, void *s) { static_cast<std::vector<masu_heap *> *>(s)->push_back(h); }, &seen);
  EXPECT_EQ(seen, heaps); /* in the order of their coming */
  for (size_t i = 1; i < heaps.size(); i++)
    masu_heap_destroy(heaps[i]);
}

TEST_F(Heap, TrimGivesBackWhatIsFree) {
  std::vector<void *> blocks;
  for (int i = 0; i < 10000; i++)
    blocks.push_back(masu_heap_malloc(heap, 500));
  for (void *p : blocks)
    masu_free(p);
  size_t before = read().used, given = masu_heap_trim(heap);
  EXPECT_EQ(read().used, before - given);
  EXPECT_LT(read().used, 128 * KIB);
}
