/* The heap profiler: its estimates, on sets of blocks that are known. */
#include "profile.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pattern.h"

/* First, while nothing was started. */
TEST(Profile, IsRefusedBeforeTheStart) {
  masu_profile_figures f;
  EXPECT_EQ(masu_profile_read(&f, sizeof f), EINVAL);
  EXPECT_EQ(masu_profile_write("/tmp/never.heap.pb"), EINVAL);
}

#ifndef MASU_CHECKED /* numbers, which take long there and are the same; threads are below */

/* Blocks that are `in_use` samples on average and are replaced again and again. What the peak says, as a part of what is true. */
static double peak_of_a_steady_set(size_t in_use, int times) {
  enum { SIZE = 1024, INTERVAL = 100 * KIB };
  std::vector<void *> blocks(in_use * INTERVAL / SIZE);
  if (masu_profile_start(INTERVAL) != 0)
    return 0;
  for (int i = 0; i <= times; i++)
    for (void *&p : blocks) {
      masu_free(p);
      p = masu_malloc(SIZE);
    }
  return read_profile().peak / static_cast<double>(blocks.size() * SIZE);
}

/* Each in a process of its own: the highest of many estimates is not what chance made of one of them. */
TEST(Profile, APeakIsNotMadeByChance) {
  enum { ROUNDS = 40, IN_USE = 10 };
  double sum = 0;
  for (int round = 0; round < ROUNDS; round++) {
    int ends[2];
    double peak = 0;
    ASSERT_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
      peak = peak_of_a_steady_set(IN_USE, 1000);
      _exit(write(ends[1], &peak, sizeof peak) == sizeof peak ? 0 : 1);
    }
    EXPECT_EQ(read(ends[0], &peak, sizeof peak), static_cast<ssize_t>(sizeof peak));
    close(ends[0]);
    close(ends[1]);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    sum += peak;
  }
  /* The highest of all estimates is 2.4 times as much, their standard deviation 0.3. */
  EXPECT_GT(sum / ROUNDS, 0.8);
  EXPECT_LT(sum / ROUNDS, 1.6);
}

struct seeded {
  double ratio;
  bool covered;
};

static seeded estimate_of_another_seed() {
  enum { COUNT = 20000, SIZE = 1024 };
  std::vector<void *> blocks(COUNT);
  double truth = 0;
  if (masu_profile_start(100 * KIB) != 0)
    return {};
  for (void *&p : blocks) {
    p = masu_malloc(SIZE);
    truth += usable(p);
  }
  masu_profile_figures f = read_profile();
  return {f.in_use / truth, f.in_use_low <= truth && truth <= f.in_use_high};
}

/* As 30 runs of a program would: each process draws a seed of its own, since nothing was started in their parent. */
TEST(Profile, IsTrueOverSeeds) {
  enum { SEEDS = 30, AT_LEAST = 24 };
  std::vector<double> ratios;
  int covered = 0;
  for (int seed = 0; seed < SEEDS; seed++) {
    int ends[2];
    seeded found = {};
    ASSERT_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
      found = estimate_of_another_seed();
      _exit(write(ends[1], &found, sizeof found) == sizeof found ? 0 : 1);
    }
    EXPECT_EQ(read(ends[0], &found, sizeof found), static_cast<ssize_t>(sizeof found));
    close(ends[0]);
    close(ends[1]);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ratios.push_back(found.ratio);
    covered += found.covered;
  }
  expect_unbiased(ratios);
  EXPECT_GE(covered, AT_LEAST); /* where each is covered in 95 %, fewer have a chance of 1 in 1,700 */
}

/* What was sampled before stands for what it stood for. */
TEST(Profile, IsTrueWhenTheIntervalChanges) {
  enum { ROUNDS = 200, COUNT = 3000, SIZE = 9000 };
  std::vector<double> ratios;
  std::vector<void *> blocks;
  ratios.reserve(ROUNDS);
  blocks.reserve(3 * COUNT);
  ASSERT_EQ(masu_profile_start(64 * KIB), 0);
  const double rest = read_profile().in_use;
  for (int round = 0; round < ROUNDS; round++) {
    double truth = rest;
    for (size_t interval : {64 * KIB, MIB, 64 * KIB}) {
      ASSERT_EQ(masu_profile_start(interval), 0);
      for (int i = 0; i < COUNT; i++) {
        blocks.push_back(masu_malloc(SIZE));
        truth += usable(blocks.back());
        if (i % 3 == 0) { /* of either interval */
          size_t k = static_cast<size_t>(i) * 7919 % blocks.size();
          truth -= usable(blocks[k]);
          masu_free(blocks[k]);
          blocks[k] = blocks.back();
          blocks.pop_back();
        }
      }
    }
    ratios.push_back(read_profile().in_use / truth);
    for (void *p : blocks)
      masu_free(p);
    blocks.clear();
    EXPECT_NEAR(read_profile().in_use, rest, 1) << "everything was freed";
  }
  masu_profile_stop();
  expect_unbiased(ratios);
}

/* Of few samples as of many: that part of what lies between two of them is in use. Nothing else is on record yet. */
TEST(Profile, TheIntervalOfFewSamplesIsTrue) {
  enum { ROUNDS = 2000, SIZE = 80, ASKED = 65 };
  std::vector<void *> blocks(5 * 16 * KIB / SIZE);
  ASSERT_EQ(masu_malloc_good_size(ASKED), SIZE);
  ASSERT_EQ(masu_profile_start(16 * KIB), 0);
  ASSERT_EQ(read_profile().live, 0U);
  for (double part : {0.1, 0.5, 2.0, 5.0}) {
    const size_t count = static_cast<size_t>(part * 16 * KIB / SIZE);
    const double truth = static_cast<double>(count * SIZE), requested = static_cast<double>(count * ASKED);
    int covered = 0;
    for (int round = 0; round < ROUNDS; round++) {
      for (size_t i = 0; i < count; i++)
        blocks[i] = masu_malloc(ASKED);
      masu_profile_figures f = read_profile();
      bool holds = f.in_use_low <= truth && truth <= f.in_use_high;
      covered += holds;
      EXPECT_TRUE(!holds || (f.requested_low <= requested && requested <= f.requested_high));
      EXPECT_TRUE(!holds || (f.slack_low <= truth - requested && truth - requested <= f.slack_high));
      for (size_t i = 0; i < count; i++)
        masu_free(blocks[i]);
    }
    EXPECT_GE(covered, ROUNDS * 93 / 100) << part;
  }
  masu_profile_stop();
}

TEST(Profile, SeesPingPong) {
  for (size_t n : {16u, 100u, 1000u, 9000u, 40000u, 300000u, 1000000u})
    expect_seen(40, std::min<size_t>(8 * n + 100, BELOW_PACE), [n] {
      double sum = 0;
      for (int i = 0; i < 4000; i++) {
        void *p = masu_malloc(n);
        sum += usable(p);
        masu_free(p);
      }
      return sum;
    });
}

/* A program that takes and frees the same block again and again, and did so before. */
TEST(Profile, SeesPingPongThatRunsWhenItStarts) {
  for (size_t n : {24u, 5000u, 1000000u}) {
    for (int i = 0; i < 4000; i++)
      masu_free(masu_malloc(n));
    ASSERT_EQ(masu_profile_start(std::min<size_t>(10 * n, BELOW_PACE)), 0);
    size_t before = read_profile().samples;
    for (int i = 0; i < 10000; i++)
      masu_free(masu_malloc(n));
    EXPECT_GT(read_profile().samples, before + 100);
    masu_profile_stop();
  }
}

/* Large blocks that wait in front when others are taken, of the same place there and of other ones. */
TEST(Profile, SeesLargeBlocksThatTakeTurns) {
  const size_t sizes[] = {300000, 1000000, 900000, 320 * KIB, 832 * KIB, 300000, 300000};
  expect_seen(60, BELOW_PACE, [&] {
    double sum = 0;
    for (int i = 0; i < 3000; i++) {
      void *p = masu_malloc(sizes[i % 7]), *q = masu_malloc(sizes[i % 5]);
      sum += usable(p) + usable(q);
      masu_free(p);
      masu_free(q);
    }
    return sum;
  });
}

TEST(Profile, SeesBatches) {
  std::vector<void *> blocks;
  blocks.reserve(20000);
  expect_seen(40, 20000, [&] {
    double sum = 0;
    for (size_t i = 0; i < 20000; i++) {
      blocks.push_back(masu_malloc(1 + i * 7 % 300));
      sum += usable(blocks.back());
    }
    for (void *p : blocks)
      masu_free(p);
    blocks.clear();
    return sum;
  });
}

TEST(Profile, SeesEveryWayToAllocate) {
  expect_seen(60, 30000, [] {
    double sum = 0;
    for (int i = 0; i < 300; i++) {
      void *some[] = {masu_calloc(3, 50), masu_aligned_alloc(64, 100), masu_aligned_alloc(4096, 5000),
                                  masu_calloc(1, 400000), masu_memalign(128 * KIB, 300000)};
      for (void *p : some) {
        sum += usable(p);
        masu_free(p);
      }
    }
    return sum;
  });
}

TEST(Profile, SeesThreads) {
  expect_seen(30, 50000, [] {
    std::atomic<size_t> sum{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
      threads.emplace_back([&] {
        for (size_t i = 0; i < 10000; i++) {
          void *p = masu_malloc(8 + i % 500);
          sum += masu_malloc_usable_size(p);
          masu_free(p);
        }
      });
    for (auto &t : threads)
      t.join();
    return static_cast<double>(sum);
  });
}

/* In use: the mean is right, and the interval covers the truth as often as it says. */
TEST(Profile, InUseIsUnbiasedAndItsIntervalTrue) {
  enum { ROUNDS = 200 };
  struct block {
    void *p;
    double asked;
  };
  std::mt19937 random(7);
  std::vector<block> blocks;
  int covered = 0, covered_slack = 0;
  double sum = 0, sum_requested = 0;
  blocks.reserve(3000);
  ASSERT_EQ(masu_profile_start(16 * KIB), 0);
  double rest = read_profile().in_use;
  for (int round = 0; round < ROUNDS; round++) {
    double truth = 0, requested = 0;
    for (int i = 0; i < 3000; i++) {
      size_t n = i % 100 ? 1 + random() % 2000 : 1 + random() % 600000;
      blocks.push_back({masu_malloc(n), static_cast<double>(n)});
      truth += usable(blocks.back().p); /* who learns it did not ask for it */
      requested += blocks.back().asked;
      if (i % 3 == 0) { /* what was freed counts no more */
        size_t k = random() % blocks.size();
        truth -= usable(blocks[k].p);
        requested -= blocks[k].asked;
        masu_free(blocks[k].p);
        blocks[k] = blocks.back();
        blocks.pop_back();
      }
    }
    masu_profile_figures f = read_profile();
    covered += f.in_use_low <= truth && truth <= f.in_use_high;
    covered_slack += f.slack_low <= truth - requested && truth - requested <= f.slack_high;
    EXPECT_NEAR(f.requested + f.slack, f.in_use, 1);
    sum += f.in_use / truth;
    sum_requested += f.requested / requested;
    EXPECT_LT(f.requested, f.in_use);
    for (const block &b : blocks)
      masu_free(b.p);
    blocks.clear();
    EXPECT_NEAR(read_profile().in_use, rest, 1) << "everything was freed";
  }
  masu_profile_stop();
  EXPECT_NEAR(sum / ROUNDS, 1, 0.01);
  EXPECT_NEAR(sum_requested / ROUNDS, 1, 0.01);
  EXPECT_GE(covered, ROUNDS * 88 / 100);
  EXPECT_GE(covered_slack, ROUNDS * 88 / 100);
}

/* The same of a thread that is sampled less often since it allocates too much: its samples stand for more than was asked
 * for, and each for something else. */
TEST(Profile, TheIntervalIsTrueAtAnyPace) {
  enum { ROUNDS = 300, COUNT = 4000, SIZE = 16000, MORE = 10, BURST = 1600000 };
  std::vector<void *> blocks(COUNT);
  int covered = 0;
  double sum = 0, squares = 0;
  ASSERT_EQ(masu_profile_start(512 * KIB), 0);
  const double rest = read_profile().in_use;
  for (int i = 0; i < BURST; i++) /* what it has saved is used up */
    masu_free(masu_malloc(SIZE));
  for (int round = 0; round < ROUNDS; round++) {
    double truth = rest;
    for (void *&p : blocks) {
      for (int i = 0; i < MORE; i++) {
        void *used = masu_malloc(SIZE);
        memset(used, i, SIZE / 4); /* so that also slow looks are some in each round */
        masu_free(used);
      }
      truth += usable(p = masu_malloc(SIZE));
    }
    masu_profile_figures f = read_profile();
    covered += f.in_use_low <= truth && truth <= f.in_use_high;
    sum += f.in_use / truth;
    squares += f.in_use / truth * f.in_use / truth;
    for (void *p : blocks)
      masu_free(p);
  }
  masu_profile_stop();
  const double mean = sum / ROUNDS, error = std::sqrt((squares / ROUNDS - mean * mean) / ROUNDS);
  EXPECT_NEAR(mean, 1, 5 * error);
  EXPECT_GE(covered, ROUNDS * 92 / 100);
}

/* Grown in steps or allocated at once, a block has the same chance. */
TEST(Profile, CountsGrowthInPlace) {
  enum { ROUNDS = 1500 };
  std::vector<double> ratios;
  ratios.reserve(ROUNDS);
  for (size_t round = 0; round < ROUNDS; round++) {
    ASSERT_EQ(masu_profile_start(4 * MIB + round % 2), 0); /* another interval has its first samples */
    double estimate = 0, truth = 0;
    for (int i = 0; i < 10; i++) {
      double before = read_profile().in_use;
      void *p = masu_malloc(300000);
      for (size_t n = 400000; n < 5 * MIB; n += n / 2)
        p = masu_realloc(p, n);
      estimate += read_profile().in_use - before;
      truth += usable(p);
      masu_free(p);
    }
    ratios.push_back(estimate / truth);
  }
  masu_profile_stop();
  expect_unbiased(ratios);
}

TEST(Profile, KnowsThePeak) {
  std::vector<void *> blocks;
  blocks.reserve(100000);
  ASSERT_EQ(masu_profile_start(4 * KIB), 0);
  double before = read_profile().in_use;
  for (int i = 0; i < 100000; i++)
    blocks.push_back(masu_malloc(200));
  double most = read_profile().in_use;
  for (void *p : blocks)
    masu_free(p);
  masu_profile_figures f = read_profile();
  masu_profile_stop();
  EXPECT_GE(f.peak, 0.9 * most);
  EXPECT_NEAR(f.in_use, before, 1);
}

/* Which enters no slow path before. All but the one that is in the hand. */
TEST(Profile, SeesFromTheStartOnWhatGoesToAndFro) {
  enum { TIMES = 100 };
  for (size_t size : {64 * KIB, 2 * MIB}) {
    for (int i = 0; i < TIMES; i++)
      masu_free(masu_malloc(size));
    ASSERT_EQ(masu_profile_start(1), 0);
    masu_profile_figures before = read_profile();
    for (int i = 0; i < TIMES; i++)
      masu_free(masu_malloc(size));
    EXPECT_GE(read_profile().samples, before.samples + TIMES - 1);
    masu_profile_stop();
  }
}

/* At least what the hand still has, which went there before anybody looked. */
static std::vector<void *> what_is_ready(size_t size) {
  std::vector<void *> blocks(2000);
  for (void *&p : blocks)
    p = masu_malloc(size);
  return blocks;
}

/* A sample of a small block may lie where there is more room: nobody is to notice. */
TEST(Profile, SmallSamplesAreAsLargeAsOthers) {
  enum { FIRST = 17, LAST = 1000, INTERVAL = 2 }; /* each is seen that wasn't ready before */
  std::vector<void *> ready;
  size_t seen = 0;
  for (size_t n = FIRST; n <= LAST; n++)
    if (n == FIRST || masu_malloc_good_size(n) != masu_malloc_good_size(n - 1))
      for (void *p : what_is_ready(n))
        ready.push_back(p);
  ASSERT_EQ(masu_profile_start(INTERVAL), 0);
  for (size_t n = FIRST; n <= LAST; n++) {
    masu_free(masu_malloc(n));
    masu_profile_figures before = read_profile();
    auto *p = static_cast<char *>(masu_malloc(n));
    size_t has = masu_malloc_usable_size(p);
    EXPECT_EQ(has, masu_malloc_good_size(n));
    memset(p, static_cast<int>(n), has);
    double more = read_profile().in_use - before.in_use;
    if (more > 0) {
      EXPECT_NEAR(more, static_cast<double>(has), 0.1 * static_cast<double>(has));
      seen++;
    }
    EXPECT_EQ(masu_realloc(p, has), p);
    auto *q = static_cast<char *>(masu_realloc(p, has + 1));
    EXPECT_EQ(masu_malloc_usable_size(q), masu_malloc_good_size(has + 1));
    EXPECT_EQ(std::count(q, q + has, static_cast<char>(n)), has);
    masu_free(q);
  }
  EXPECT_GT(seen, size_t{LAST - FIRST} / 2);
  masu_profile_stop();
  for (void *p : ready)
    masu_free(p);
}

TEST(Profile, EveryAllocationWithInterval1) {
  ASSERT_EQ(masu_profile_start(1), 0);
  std::vector<void *> ready = what_is_ready(24), more = what_is_ready(100);
  masu_profile_figures before = read_profile();
  for (int i = 0; i < 100; i++) {
    masu_free(masu_malloc(24));
    masu_free(masu_malloc(100));
  }
  masu_profile_figures after = read_profile();
  EXPECT_EQ(after.samples, before.samples + 200);
  EXPECT_EQ(after.live, before.live);
  for (void *p : ready)
    masu_free(p);
  for (void *p : more)
    masu_free(p);
  masu_profile_stop();
}

#endif

/* Threads hand blocks round, while the profile is read, written and switched on and off. */
TEST(Profile, ManyThreadsAndReaders) {
  enum { THREADS = 4 };
  std::atomic<bool> stop{false};
  std::atomic<void *> slots[256] = {};
  std::string path = "/tmp/masu-profile-test." + std::to_string(getpid());
  std::vector<std::thread> threads;
  ASSERT_EQ(masu_profile_start(2000), 0);
  for (unsigned t = 0; t < THREADS; t++)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 20000; i++) {
        size_t n = 1 + random() % (i % 64 ? 600 : 400000);
        void *p = masu_malloc(n);
        pattern_write(p, std::min<size_t>(n, 64), n);
        masu_free(slots[random() % 256].exchange(p));
      }
    });
  std::thread reader([&] {
    for (size_t i = 0; !stop; i++) {
      read_profile();
      EXPECT_EQ(masu_profile_write(path.c_str()), 0);
      if (i % 4 == 3) {
        masu_profile_stop();
        EXPECT_EQ(masu_profile_start(2000 + i), 0);
      }
    }
  });
  for (auto &t : threads)
    t.join();
  stop = true;
  reader.join();
  masu_profile_stop();
  for (auto &s : slots)
    masu_free(s.exchange(nullptr));
  unlink(path.c_str());
  EXPECT_EQ(masu_check(), 0);
}

/* Of the slab that a sample of 1 KiB or more lies in some blocks are seen and some are not. Whoever frees them, in whatever
 * order, and also when their thread has ended: only those on the record leave it, and all of them. */
TEST(Profile, LargerSamplesLeaveTheRecordWhoeverFreesThem) {
  enum { ROUNDS = 20 };
  const size_t sizes[] = {1000, 9000, 20000, 33000, 65536, 250000};
  ASSERT_EQ(masu_profile_start(BELOW_PACE / 10), 0);
  size_t before = read_profile().live, seen = 0, blocks_taken = 0;
  for (int round = 0; round < ROUNDS; round++) {
    std::vector<unsigned char *> blocks;
    std::mt19937 random(static_cast<unsigned>(round));
    blocks.reserve(100);
    std::thread([&] {
      for (int i = 0; i < 100; i++) {
        size_t n = sizes[random() % 6];
        auto *p = static_cast<unsigned char *>(masu_malloc(n));
        pattern_write(p, 64, n);
        blocks.push_back(static_cast<unsigned char *>(masu_realloc(p, n - n / 8)));
        if (i % 4 == 0) {
          masu_free(blocks.back());
          blocks.pop_back();
        }
      }
    }).join();
    blocks_taken += blocks.size();
    seen += read_profile().live - before;
    std::shuffle(blocks.begin(), blocks.end(), random);
    std::thread([&] {
      for (size_t i = 0; i < blocks.size(); i += 2)
        masu_free(blocks[i]);
    }).join();
    for (size_t i = 1; i < blocks.size(); i += 2)
      masu_free(blocks[i]);
  }
  EXPECT_LE(read_profile().live, before);
  EXPECT_GT(seen, blocks_taken / 4);
  EXPECT_LT(seen, blocks_taken * 3 / 4);
  masu_profile_stop();
  EXPECT_EQ(masu_check(), 0);
}

/* A thread frees a block, which waits for others of its slab; then one of these is seen, and freed there too. */
TEST(Profile, ABlockLeavesTheRecordWhereOthersOfItsSlabWait) {
  enum { SIZE = 1200 /* as no other thread takes; three wait at most */ };
  std::vector<void *> blocks;
  blocks.reserve(100);
  pthread_barrier_t both;
  ASSERT_EQ(pthread_barrier_init(&both, nullptr, 2), 0);
  std::thread owner([&] {
    blocks.push_back(masu_malloc(SIZE));
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    for (size_t before = read_profile().live; read_profile().live == before && blocks.size() < blocks.capacity();)
      blocks.push_back(masu_malloc(SIZE)); /* those that are ready are not looked at */
  });
  pthread_barrier_wait(&both);
  masu_free(blocks[0]);
  ASSERT_EQ(masu_profile_start(2), 0); /* the others are, and stay in their slab */
  const size_t before = read_profile().live;
  pthread_barrier_wait(&both);
  owner.join();
  EXPECT_EQ(read_profile().live, before + 1);
  masu_free(blocks.back());
  EXPECT_EQ(read_profile().live, before);
  masu_profile_stop();
  for (size_t i = 1; i + 1 < blocks.size(); i++)
    masu_free(blocks[i]);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && !defined(MASU_CHECKED)
/* A program that has one block of a size at a time touches that block's pages, whether it is looked at or not. */
static long pages_touched_one_by_one(bool sampled) {
  rusage before, after;
  if (sampled && masu_profile_start(BELOW_PACE / 10) != 0)
    return -1;
  masu_free(masu_malloc(100));
  getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < 20; i++)
    for (size_t n = 16 * KIB; n <= 256 * KIB; n += 16 * KIB) {
      void *p = masu_malloc(n);
      memset(p, i, n);
      masu_free(p);
    }
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(Profile, LargerSamplesTouchNoPagesOfTheirOwn) {
  long touched[2] = {};
  for (bool sampled : {false, true}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
      long pages = pages_touched_one_by_one(sampled);
      _exit(write(ends[1], &pages, sizeof pages) == sizeof pages ? 0 : 1);
    }
    EXPECT_EQ(read(ends[0], &touched[sampled], sizeof touched[sampled]), static_cast<ssize_t>(sizeof *touched));
    close(ends[0]);
    close(ends[1]);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_GT(touched[false], 0);
  EXPECT_LT(touched[true], touched[false] + 75) << "records of samples take 30 to 50 pages, blocks of their own a hundred more";
}
#endif

#ifndef __SANITIZE_THREAD__ /* which holds signals back, and forbids threads in the child */

/* A signal handler frees what was sampled, wherever it interrupts its thread. */
static std::atomic<void *> for_the_handler;
static std::atomic<int> handled;
static void free_in_handler(int) {
  masu_free(for_the_handler.exchange(nullptr));
  masu_free(masu_malloc(50));
  handled++;
}

TEST(Profile, SignalHandlersMayFreeSamples) {
  signal(SIGALRM, free_in_handler);
  itimerval often = {{0, 100}, {0, 100}}, never = {};
  ASSERT_EQ(masu_profile_start(1), 0);
  setitimer(ITIMER_REAL, &often, nullptr);
  while (handled < 1000) {
    masu_free(for_the_handler.exchange(masu_malloc(100)));
    read_profile();
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  masu_profile_stop();
  masu_free(for_the_handler.exchange(nullptr));
  signal(SIGALRM, SIG_DFL);
}

/* The thread that forks has no heap: in the child it takes the oldest of those that fork cut
 * off, which is this thread's, as likely as not while a sample of its was being taken. */
TEST(Profile, GoesOnInAForkedChild) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  ASSERT_EQ(masu_profile_start(1000), 0);
  for (int t = 0; t < 3; t++)
    threads.emplace_back([&] {
      while (!stop)
        masu_free(masu_malloc(100));
    });
  std::thread forks([&] {
    for (int i = 0; i < 30; i++) {
      pid_t child = fork();
      if (child == 0) {
        size_t before = read_profile().samples;
        for (int k = 0; k < 4000; k++)
          masu_free(masu_malloc(100));
        _exit(read_profile().samples > before + 50 ? 0 : 1);
      }
      int status = -1;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    stop = true;
  });
  while (!stop)
    masu_free(masu_malloc(100));
  forks.join();
  for (auto &t : threads)
    t.join();
  masu_profile_stop();
}
#endif

#if !defined(__SANITIZE_THREAD__) && !defined(MASU_CHECKED)
/* A call site of its own for each path: a bit chooses each call. */
template <int BITS> __attribute__((noinline)) static void take_by(unsigned path, std::vector<void *> *blocks) {
  if constexpr (BITS == 0) {
    blocks->push_back(masu_malloc(100));
  } else if (path & 1) {
    take_by<BITS - 1>(path >> 1, blocks);
    __asm__ volatile("# one" : : "r"(blocks) : "memory");
  } else {
    take_by<BITS - 1>(path >> 1, blocks);
    __asm__ volatile("# the other" : : "r"(blocks) : "memory");
  }
}

/* Another thread copies the sites as the process forks: what it held up does not stay so in the child. */
TEST(Profile, PeaksAreSeenInAForkedChild) {
  enum { BITS = 12, FORKS = 40 };
  std::atomic<bool> stop{false};
  std::vector<void *> blocks;
  blocks.reserve(1 << BITS);
  ASSERT_EQ(masu_profile_start(1), 0);
  for (unsigned path = 0; path < 1 << BITS; path++)
    take_by<BITS>(path, &blocks);
  EXPECT_GE(read_profile().stacks, (size_t{1} << BITS) * 9 / 10); /* all but those whose block was ready before */
  std::thread reader([&] {
    while (!stop)
      EXPECT_EQ(masu_profile_write("/dev/null"), 0);
  });
  for (int i = 0; i < FORKS; i++) {
    pid_t child = fork();
    if (child == 0) {
      double before = read_profile().peak;
      void *large = masu_malloc(static_cast<size_t>(before) + 64 * MIB);
      _exit(large && read_profile().peak > before ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  reader.join();
  masu_profile_stop();
  for (void *p : blocks)
    masu_free(p);
}
#endif

#if !defined(__SANITIZE_THREAD__) && !defined(MASU_CHECKED)
/* Also after their table grew, some times. */
TEST(Profile, CallSitesAreFoundAgain) {
  enum { BITS = 13, ROUNDS = 2 };
  std::vector<void *> blocks;
  blocks.reserve(ROUNDS << BITS);
  ASSERT_EQ(masu_profile_start(1), 0);
  std::vector<void *> ready = what_is_ready(100);
  size_t before = read_profile().stacks;
  for (int i = 0; i < ROUNDS; i++) {
    for (unsigned path = 0; path < 1 << BITS; path++)
      take_by<BITS>(path, &blocks);
    EXPECT_EQ(read_profile().stacks - before, size_t{1} << BITS);
  }
  for (void *p : blocks)
    masu_free(p);
  for (void *p : ready)
    masu_free(p);
  masu_profile_stop();
}

/* Each is counted, but not as one of its own. */
TEST(Profile, CallSitesHaveALimit) {
  enum { BITS = 17, MOST = (1 << 16) + (1 << 16) / 10 + 1 };
  std::vector<void *> blocks;
  blocks.reserve(1 << BITS);
  ASSERT_EQ(masu_profile_start(1), 0);
  std::vector<void *> ready = what_is_ready(100);
  masu_profile_figures before = read_profile();
  for (unsigned path = 0; path < 1 << BITS; path++)
    take_by<BITS>(path, &blocks);
  masu_profile_figures after = read_profile();
  EXPECT_EQ(after.stacks, size_t{MOST});
  EXPECT_EQ(after.live - before.live, blocks.size());
  EXPECT_DOUBLE_EQ(after.in_use - before.in_use, static_cast<double>(blocks.size()) * usable(blocks[0]));
  EXPECT_EQ(after.lost, 0u);
  EXPECT_EQ(masu_profile_write("/dev/null"), 0);
  for (void *p : blocks)
    masu_free(p);
  EXPECT_NEAR(read_profile().in_use, before.in_use, 1);
  for (void *p : ready)
    masu_free(p);
  masu_profile_stop();
}
#endif

TEST(Profile, KeepsABlockThatCannotGrow) {
  ASSERT_EQ(masu_profile_start(1), 0);
  void *p = masu_malloc(1 << 20);
  masu_profile_figures before = read_profile();
  EXPECT_EQ(masu_realloc(p, size_t{1} << 45), nullptr);
  masu_profile_figures after = read_profile();
  EXPECT_EQ(after.live, before.live);
  EXPECT_EQ(after.in_use, before.in_use);
  masu_free(p);
  EXPECT_EQ(read_profile().live, before.live - 1);
  masu_profile_stop();
}

/* A sample is worth less than a block that is to be had. */
static void malloc_where_samples_find_no_room() {
  struct block {
    block *next;
  } *all = nullptr, *kept = nullptr;
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = 256 << 20;
  if (setrlimit(RLIMIT_AS, &limit) != 0)
    _exit(2);
  while (auto *b = static_cast<block *>(masu_malloc(64)))
    b->next = all, all = b;
  for (unsigned i = 0; all; i++) {
    block *b = all;
    all = b->next;
    if (i % 2)
      b->next = kept, kept = b;
    else
      masu_free(b);
  }
  masu_profile_start(1);
  for (int i = 0; i < 10000; i++)
    if (!masu_malloc(64))
      _exit(3);
  _exit(0);
}

TEST(Profile, TakesNoMemoryThatTheProgramNeeds) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "limits on address space mean nothing here";
#endif
  ASSERT_EQ(masu_profile_start(1 << 30), 0); /* its own memory */
  pid_t child = fork();
  if (child == 0)
    malloc_where_samples_find_no_room();
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  masu_profile_stop();
}

TEST(Profile, WritesNothingWhereItMayNot) {
  ASSERT_EQ(masu_profile_start(1000), 0);
  EXPECT_EQ(masu_profile_write("/nowhere/at/all"), ENOENT);
  EXPECT_EQ(masu_profile_write("/dev/null/x"), ENOTDIR);
  masu_profile_figures f;
  EXPECT_EQ(masu_profile_read(&f, 3), EINVAL);
  masu_profile_stop();
}

static double seconds_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

TEST(Profile, SaysWhatItTook) {
  enum { BLOCKS = 1000 };
  void *block[BLOCKS];
  ASSERT_EQ(masu_profile_start(1), 0);
  double start = seconds_now();
  masu_profile_figures before = read_profile();
  for (void *&p : block)
    p = masu_malloc(100);
  double taken = read_profile().took;
  EXPECT_GT(taken, before.took);
  for (void *p : block)
    masu_free(p);
  double freed = read_profile().took;
  EXPECT_GT(freed, taken);
  masu_profile_stop();
  ASSERT_EQ(masu_profile_write("/dev/null"), 0);
  double written = read_profile().took;
  EXPECT_GT(written, freed);
  EXPECT_LT(written - before.took, seconds_now() - start);
}
