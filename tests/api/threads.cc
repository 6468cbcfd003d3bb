/* Blocks that cross threads: contents, and memory that comes home. */
#include "api.h"
#include "queue.h"

#include <masu/stats.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

class Threads : public ApiTest {};
FOR_BOTH_NAMES(Threads);

struct parcel {
  void *p = nullptr;
  size_t n = 0, seed = 0;
};

static size_t size_of(size_t i) {
  switch (i % 32) {
  case 0:
    return 100000 + i % 5000;
  case 1:
    return 5000 + i % 20000;
  case 2:
    return 600000;
  default:
    return 1 + i * 13 % 700;
  }
}
static parcel make(const api &a, size_t i) {
  parcel made{a.malloc(size_of(i)), size_of(i), i};
  EXPECT_NE(made.p, nullptr);
  pattern_write(made.p, std::min(made.n, 4 * KIB), i);
  return made;
}
static void check_and_free(const api &a, parcel b) {
  size_t looked_at = std::min(b.n, 4 * KIB);
  EXPECT_EQ(pattern_mismatch(b.p, looked_at, b.seed), looked_at) << b.n << " bytes";
  switch (b.seed % 3) {
  case 0:
    a.free(b.p);
    break;
  case 1:
    a.free_sized(b.p, b.n);
    break;
  default:
    a.free(a.realloc(b.p, b.n / 2 + 1));
  }
}

template <class F> static void run_threads(int count, F body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; i++)
    threads.emplace_back(body, i);
  for (auto &t : threads)
    t.join();
}

TEST_P(Threads, ProducersAndConsumers) {
  constexpr int pairs = 3;
  queue<parcel> q;
  run_threads(2 * pairs, [&](int me) {
    for (size_t i = 0; i < 20000; i++)
      if (me < pairs)
        q.put(make(a, i * pairs + me));
      else
        check_and_free(a, q.take());
  });
}

/* A ring: everybody allocates for the next and frees what the previous sent. */
TEST_P(Threads, Ring) {
  constexpr int count = 4;
  queue<parcel> ring[count];
  run_threads(count, [&](int me) {
    for (size_t i = 0; i < 15000; i++) {
      ring[(me + 1) % count].put(make(a, i));
      check_and_free(a, ring[me].take());
    }
  });
}

TEST_P(Threads, FreedByManyAfterTheOwnerIsGone) {
  std::vector<parcel> parcels;
  std::thread owner([&] {
    for (size_t i = 0; i < 20000; i++)
      parcels.push_back(make(a, i));
  });
  owner.join();
  run_threads(4, [&](int me) {
    for (size_t i = me; i < parcels.size(); i += 4) {
      check_and_free(a, parcels[i]);
      check_and_free(a, make(a, i));
    }
  });
}

/* Threads come and go while others free their blocks: at most one round's blocks
 * stay resident. */
TEST_P(Threads, GenerationsDoNotGrow) {
  std::vector<parcel> inherited;
  auto generation = [&] {
    std::thread([&] {
      std::vector<parcel> fresh;
      for (size_t i = 0; i < 3000; i++) {
        fresh.push_back(make(a, i));
        if (i < inherited.size())
          check_and_free(a, inherited[i]);
      }
      inherited = std::move(fresh);
    }).join();
  };
  for (int i = 0; i < 10; i++)
    generation();
  size_t before = resident_kib();
  for (int i = 0; i < 40; i++)
    generation();
  EXPECT_LE(resident_kib(), before + 60 * KIB); /* as much as one has */
  for (parcel &b : inherited)
    check_and_free(a, b);
}

/* Same block back and forth, with realloc on either side. */
TEST_P(Threads, PingPongRealloc) {
  queue<parcel> there, back;
  std::thread other([&] {
    for (int i = 0; i < 3000; i++) {
      parcel b = there.take();
      size_t n = size_of(i * 7);
      void *p = a.realloc(b.p, n);
      ASSERT_EQ(pattern_mismatch(p, std::min({b.n, n, 4 * KIB}), b.seed),
                std::min({b.n, n, 4 * KIB}));
      pattern_write(p, std::min(n, 4 * KIB), i);
      back.put({p, n, (size_t)i});
    }
  });
  parcel b = make(a, 5);
  for (int i = 0; i < 3000; i++) {
    there.put(b);
    b = back.take();
    size_t n = size_of(i * 5);
    b.p = a.realloc(b.p, n);
    EXPECT_EQ(pattern_mismatch(b.p, std::min({b.n, n, 4 * KIB}), b.seed),
              std::min({b.n, n, 4 * KIB}));
    pattern_write(b.p, std::min(n, 4 * KIB), i + 1);
    b.n = n, b.seed = i + 1;
  }
  other.join();
  check_and_free(a, b);
}

/* Aligned blocks freed elsewhere: interior pointers find their block. */
TEST_P(Threads, AlignedBlocksCross) {
  std::vector<void *> blocks;
  for (size_t i = 0; i < 5000; i++)
    blocks.push_back(a.aligned_alloc((size_t)16 << (i % 10), i % 3000));
  run_threads(3, [&](int me) {
    for (size_t i = me; i < blocks.size(); i += 3)
      a.free(blocks[i]);
  });
}

/* Reading stops nobody and races with nobody: ThreadSanitizer looks on. */
TEST_P(Threads, FiguresWhileOthersAllocate) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  queue<parcel> q;
  std::thread giver([&] {
    for (size_t i = 0; i < 20000; i++)
      q.put(make(a, i));
    for (int i = 0; i < 2; i++)
      q.put({});
  });
  for (int t = 0; t < 2; t++)
    threads.emplace_back([&] {
      for (parcel b; (b = q.take()).p;)
        check_and_free(a, b);
      over = true;
    });
  for (int n = 0; n < 20 || !over; n++) {
    masu_stats s;
    masu_resident r;
    ASSERT_EQ(masu_stats_read(&s, sizeof s), 0);
    ASSERT_LT(s.live, 4096 * MIB) << "a count went below 0";
    if (n % 4 == 0) {
      ASSERT_EQ(masu_stats_measure(&r, sizeof r), 0);
    }
  }
  giver.join();
  for (std::thread &t : threads)
    t.join();
}

static size_t blocks_out() {
  masu_stats s{};
  masu_stats_read(&s, sizeof s);
  return s.blocks;
}

/* So that blocks travel in batches; one that frees a few never has a heap. */
TEST_P(Threads, OneThatFreesMuchGetsAHeap) {
  constexpr size_t FEW = 10, MUCH = 56;
  uint64_t delay, hour = 3600000; /* or what waits is sent when the clock says so */
  ASSERT_EQ(masu_ctl("purge_delay", &delay, &hour), 0);
  for (size_t count : {FEW, MUCH}) {
    std::vector<void *> blocks(count);
    for (void *&p : blocks)
      p = a.malloc(64);
    int step = 0;
    std::mutex mutex;
    std::condition_variable changed;
    auto reach = [&](int next) {
      std::lock_guard lock(mutex);
      step = next;
      changed.notify_all();
    };
    auto wait_for = [&](int reached) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return step >= reached; });
    };
    std::thread freeing([&] {
      wait_for(1);
      for (void *p : blocks)
        a.free(p);
      reach(2);
      wait_for(3);
    });
    size_t before = blocks_out();
    reach(1);
    wait_for(2);
    size_t waiting = count - (before - blocks_out());
    reach(3);
    freeing.join();
    if (count == FEW)
      EXPECT_EQ(waiting, 0u);
    else
      EXPECT_GT(waiting, MUCH / 2);
    EXPECT_GE(before - blocks_out() + FEW, count); /* the rest came with its end */
  }
  EXPECT_EQ(masu_ctl("purge_delay", nullptr, &delay), 0);
}
