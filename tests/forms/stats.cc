/* masu/stats.h: the figures are what a test that knows its blocks, and the kernel, count; and what
 * masu_malloc_stats, and so `masu run --stats`, says about the forms. */
#include <masu/arena.h>
#include <masu/fixed.h>
#include <masu/heap.h>
#include <masu/profile.h>
#include <masu/scope.h>
#include <masu/sized.h>
#include <masu/stats.h>

#include <regex.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>

#include "forms.h"

class Stats : public FormTest {};

static std::string summary() {
  testing::internal::CaptureStderr();
  masu_malloc_stats();
  return testing::internal::GetCapturedStderr();
}
static size_t lines_with(const std::string &text, const std::string &word) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at++)
    n++;
  return n;
}

static bool matches(const std::string &text, const char *pattern) {
  regex_t compiled;
  EXPECT_EQ(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB), 0);
  bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

TEST_F(Stats, EachFormHasALine) {
  std::string before = summary();
  EXPECT_EQ(lines_with(before, "  named_heap "), 0u);
  masu_heap *heap = masu_heap_create("the-heap");
  masu_heap_set_budget(heap, 0, 5 * MIB);
  masu_pool *pool = masu_pool_create_in(heap, "the-pool", 1024, 0, MASU_POOL_SHARED);
  for (int i = 0; i < 100; i++)
    masu_pool_alloc(pool);
  masu_arena_alloc(masu_arena_create_in(heap, "the-arena", MIB), 300 * KIB);
  masu_fixed *fixed = masu_fixed_create_in(nullptr, "the-fixed-pool", 1024, 10, 0);
  masu_ladder *ladder = masu_ladder_create_in(nullptr, "the-ladder", nullptr, 0);
  masu_ladder_alloc(ladder, 1000);
  void *sized = masu_sized_alloc(24);
  std::string text = summary();
  for (const char *name : {"the-heap ", "the-pool", "the-arena", "the-fixed-poo", "the-ladder"})
    EXPECT_GE(lines_with(text, name), 1u) << name << text;
  EXPECT_TRUE(matches(text, "pool +the-pool +100 +[0-9]+ +the-heap")) << text;
  EXPECT_TRUE(matches(text, "arena +the-arena +300 ")) << text;
  EXPECT_TRUE(matches(text, "the-heap .* 5120 +0\n")) << text;
  EXPECT_EQ(lines_with(text, "  sized "), 1u);
  masu_heap_destroy(heap);
  masu_fixed_destroy(fixed);
  masu_ladder_destroy(ladder);
  masu_sized_free(sized, 24);
  text = summary();
  for (const char *name : {"the-heap", "the-pool", "the-arena", "the-fixed-poo", "the-ladder"})
    EXPECT_EQ(lines_with(text, name), 0u) << name << text;
}

/* ---- What the test knows ---- */

static masu_stats now() {
  masu_stats s;
  EXPECT_EQ(masu_stats_read(&s, sizeof s), 0);
  return s;
}

/* Threads that do something and then stay, as they are, until the end. */
class Sleepers {
  std::mutex mutex;
  std::condition_variable changed;
  int working = 0;
  bool over = false;
  std::vector<std::thread> threads;

public:
  void start(std::function<void()> work) {
    std::unique_lock lock(mutex);
    working++;
    threads.emplace_back([this, work] {
      work();
      std::unique_lock inside(mutex);
      working--;
      changed.notify_all();
      changed.wait(inside, [this] { return over; });
    });
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !working; });
  }
  ~Sleepers() {
    {
      std::unique_lock lock(mutex);
      over = true;
      changed.notify_all();
    }
    for (std::thread &t : threads)
      t.join();
  }
};

template <class Row, class Read> static std::vector<Row> rows_of(Read read) {
  size_t count = 0;
  EXPECT_EQ(read(nullptr, &count, sizeof(Row)), 0);
  std::vector<Row> rows(count + 8);
  size_t room = rows.size();
  EXPECT_EQ(read(rows.data(), &room, sizeof(Row)), 0);
  EXPECT_LE(room, rows.size());
  rows.resize(std::min(room, rows.size()));
  return rows;
}
static masu_stats_class class_of(size_t size) {
  for (const masu_stats_class &c : rows_of<masu_stats_class>(masu_stats_classes))
    if (c.size == size)
      return c;
  return {};
}

/* Blocks of one size, half of them freed, by threads that are still there; the same again in a
 * named heap. `live` may be above the truth by what they hold ready, and not below it. */
TEST_F(Stats, KnownBlocksOfThreadsAndANamedHeap) {
  enum { THREADS = 4, COUNT = 3000, SIZE = 192 };
  masu_heap *heap = masu_heap_create("known");
  std::vector<std::vector<void *>> blocks(2 * THREADS);
  for (auto &mine : blocks)
    mine.reserve(COUNT);
  masu_stats before = now();
  masu_stats_class class_before = class_of(SIZE);
  {
    Sleepers sleepers;
    for (int t = 0; t < THREADS; t++)
      sleepers.start([&, t] {
        for (int i = 0; i < COUNT; i++) {
          blocks[t].push_back(masu_malloc(SIZE));
          blocks[THREADS + t].push_back(masu_heap_malloc(heap, SIZE));
        }
        for (int i = 0; i < COUNT; i += 2) {
          masu_free(blocks[t][i]);
          masu_free(blocks[THREADS + t][i]);
        }
        masu_free(masu_malloc(SIZE)); /* a refill: a part of the freed ones is ready now */
      });
    sleepers.wait();
    masu_stats s = now();
    const size_t truth = 2 * THREADS * COUNT / 2 * SIZE;
    EXPECT_GE(s.live, before.live + truth - before.ready_most);
    EXPECT_LE(s.live, before.live + truth + s.ready_most);
    EXPECT_LT(s.ready_most, before.ready_most + 12 * MIB) << "a bound that says nothing";
    masu_stats_class c = class_of(SIZE);
    EXPECT_GE(c.blocks, class_before.blocks + truth / SIZE);
    EXPECT_LE(c.blocks, class_before.blocks + (truth + s.ready_most) / SIZE);
    EXPECT_GE(c.room, c.blocks + c.free / c.size);
    EXPECT_GE(s.peak_live, s.live);
    EXPECT_GE(s.peak, s.live);
    masu_heap_figures f;
    ASSERT_EQ(masu_heap_read(heap, &f, sizeof f), 0);
    EXPECT_GE(f.blocks, (size_t)THREADS * COUNT / 2);
    EXPECT_LE(f.live, THREADS * COUNT / 2 * SIZE + s.ready_most);
  }
  for (int t = 0; t < THREADS; t++)
    for (int i = 1; i < COUNT; i += 2)
      masu_free(blocks[t][i]);
  masu_heap_destroy(heap);
}

/* Where nobody else holds blocks ready, the walk knows each: what the calling thread holds counts as free. */
TEST_F(Stats, OneThreadKnowsItsBlocks) {
#if !EXACT_MEMORY
  GTEST_SKIP() << "the sanitizer's or the checks' memory is in between";
#endif
  enum { COUNT = 3000 };
  std::vector<void *> blocks(COUNT);
  for (size_t size : {48ul, 192ul, 3000ul, 40000ul, 300ul * KIB}) {
    size_t bytes = 0;
    masu_stats before = now();
    for (void *&p : blocks)
      bytes += masu_malloc_usable_size(p = masu_malloc(size));
    masu_stats full = now();
    EXPECT_EQ(full.blocks, before.blocks + COUNT) << size;
    EXPECT_EQ(full.live, before.live + bytes) << size;
    for (int i = 0; i < COUNT; i += 2)
      masu_free(blocks[i]);
    EXPECT_EQ(now().blocks, before.blocks + COUNT / 2) << size;
    for (int i = 1; i < COUNT; i += 2)
      masu_free(blocks[i]);
    EXPECT_EQ(now().blocks, before.blocks) << size;
    EXPECT_EQ(now().live, before.live) << size;
  }
}

/* One ledger: the parts are the whole. */
TEST_F(Stats, Sums) {
  masu_heap *heap = masu_heap_create("sums");
  std::vector<void *> blocks;
  for (size_t n = 1; n < 6 * MIB; n += 1 + n / 7) {
    blocks.push_back(masu_malloc(n));
    masu_free(masu_malloc(n));
    masu_heap_malloc(heap, n);
  }
  char *text = nullptr;
  size_t length = 0;
  FILE *f = open_memstream(&text, &length);
  EXPECT_EQ(masu_stats_print(f, MASU_STATS_JSON), 0); /* its own blocks are made before the others are read */
  fclose(f);
  free(text);
  auto classes = rows_of<masu_stats_class>(masu_stats_classes);
  auto heaps = rows_of<masu_stats_heap>(masu_stats_heaps);
  masu_stats s = now();
  auto sum = [](const auto &rows, auto member) {
    return std::accumulate(rows.begin(), rows.end(), uint64_t(0), [&](uint64_t n, const auto &r) { return n + r.*member; });
  };
  EXPECT_NEAR((double)(sum(classes, &masu_stats_class::live) + s.large), (double)s.live, 16.0 * KIB);
  EXPECT_NEAR((double)(sum(classes, &masu_stats_class::blocks) + s.large_blocks), (double)s.blocks, 8);
  EXPECT_EQ(sum(classes, &masu_stats_class::slabs), s.slabs);
  EXPECT_EQ(sum(heaps, &masu_stats_heap::slabs), s.slabs);
  EXPECT_NEAR((double)sum(classes, &masu_stats_class::free), (double)(s.slab_free + s.slab_spare), 16.0 * KIB);
  EXPECT_NEAR((double)sum(heaps, &masu_stats_heap::free), (double)(s.slab_free + s.slab_spare), 16.0 * KIB);
  EXPECT_EQ(heaps.size(), s.heaps);
  /* Slabs, large blocks, and what is kept: what the supply has handed out, by its own count. */
  EXPECT_EQ(s.slab_bytes + s.large + s.front + s.idle + s.kept, s.dirty + s.slab_unused);
  uint64_t known = 0;
  for (void *p : blocks)
    known += masu_malloc_usable_size(p);
  EXPECT_GE(s.live, known);
  EXPECT_EQ(s.named_heaps, 1u);
  for (void *p : blocks)
    masu_free(p);
  masu_heap_destroy(heap);
}

/* ---- What the kernel counts ---- */

static uint64_t smaps_resident() {
  uint64_t total = 0, kib;
  char line[512];
  FILE *f = fopen("/proc/self/smaps", "r");
  EXPECT_NE(f, nullptr);
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "Rss: %lu kB", &kib) == 1)
      total += kib * KIB;
  if (f)
    fclose(f);
  return total;
}
/* Of mappings that nobody may use, and that are no file's. */
static uint64_t maps_reserved() {
  uint64_t total = 0, start, end, inode;
  char line[512], may[8];
  FILE *f = fopen("/proc/self/maps", "r");
  EXPECT_NE(f, nullptr);
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, may, &inode) == 4 && !inode && !strcmp(may, "---p"))
      total += end - start;
  if (f)
    fclose(f);
  return total;
}

/* Regions are reserved without access, and made accessible as they are used. */
TEST_F(Stats, ReservedAndCommittedAreTheKernels) {
#if !EXACT_MEMORY
  GTEST_SKIP() << "the sanitizer's or the checks' memory is in between";
#endif
  std::vector<void *> blocks(600);
  masu_stats before = now();
  uint64_t outside = maps_reserved() - (before.reserved - before.committed);
  for (void *&p : blocks)
    p = masu_malloc(MIB);
  masu_stats full = now();
  EXPECT_GE(full.committed, full.slab_bytes + blocks.size() * MIB);
  EXPECT_GE(full.reserved, full.committed);
  EXPECT_EQ(full.reserved - full.committed, maps_reserved() - outside);
  for (void *p : blocks)
    masu_free(p);
  masu_malloc_trim(0);
  masu_stats after = now();
  EXPECT_EQ(after.reserved - after.committed, maps_reserved() - outside);
}

static masu_resident measured() {
  masu_resident r;
  EXPECT_EQ(masu_stats_measure(&r, sizeof r), 0);
  EXPECT_EQ(r.live + r.slab_free + r.slab_spare + r.idle + r.own + r.other, r.total);
  return r;
}

TEST_F(Stats, ResidentIsWhatTheKernelCounts) {
  EXPECT_NEAR((double)now().resident, (double)smaps_resident(), 2.0 * MIB);
  EXPECT_NEAR((double)measured().total, (double)smaps_resident(), 2.0 * MIB);
}

/* What was touched, and nothing else, of small blocks, of large ones and of mappings. */
TEST_F(Stats, MeasuredIsWhatWasTouched) {
#if !EXACT_MEMORY
  GTEST_SKIP() << "the sanitizer's or the checks' memory is in between";
#endif
  const uint64_t delay = 3600000;
  uint64_t usual;
  masu_ctl("purge_delay", &usual, &delay);
  for (size_t size : {192ul, 3072ul, 40960ul, 1ul * MIB, 12ul * MIB}) {
    std::vector<void *> blocks(48 * MIB / size);
    masu_malloc_trim(0);
    masu_resident before = measured();
    for (void *&p : blocks) {
      p = masu_malloc(size);
      memset(p, 1, size);
    }
    masu_resident full = measured();
    EXPECT_NEAR((double)(full.live - before.live), 48.0 * MIB, 3.0 * MIB) << size;
    EXPECT_NEAR((double)(full.total - before.total), 48.0 * MIB, 4.0 * MIB) << size;
    for (void *p : blocks)
      masu_free(p);
    masu_resident freed = measured();
    EXPECT_LE(freed.live, before.live + 1 * MIB) << size;
    EXPECT_NEAR((double)freed.other, (double)before.other, 1.0 * MIB) << size;
    masu_malloc_trim(0);
    masu_resident trimmed = measured();
    EXPECT_LE(trimmed.idle + trimmed.slab_spare, before.idle + before.slab_spare + 2 * MIB) << size;
    EXPECT_LE(trimmed.total, before.total + 4 * MIB) << size;
  }
  void *untouched = masu_malloc(64 * MIB);
  EXPECT_LE(measured().live, measured().total);
  EXPECT_LE(now().resident + 60 * MIB, now().live + measured().total - measured().live) << "it counts as live only";
  masu_free(untouched);
  masu_ctl("purge_delay", nullptr, &usual);
}

/* What the profilers have for themselves is masu's own, and not memory that nobody knows of. */
TEST_F(Stats, TablesOfObserversAreMasusOwn) {
  enum { COUNT = 100000, RECORD = 48 };
  std::vector<void *> blocks(COUNT);
  masu_stats before = now();
  masu_resident resident_before = measured();
  ASSERT_EQ(masu_profile_start(1), 0);
  for (void *&p : blocks)
    p = masu_malloc(64);
  EXPECT_GE(now().own, before.own + COUNT * RECORD);
  masu_resident resident = measured();
  EXPECT_GE(resident.own, resident_before.own + COUNT * RECORD);
#if EXACT_MEMORY
  EXPECT_LE(resident.other, resident_before.other + 2 * MIB);
#endif
  for (void *p : blocks)
    masu_free(p);
  masu_profile_stop();
}

/* ---- Printing ---- */

static std::string printed(masu_stats_format format) {
  char *text = nullptr;
  size_t length = 0;
  FILE *f = open_memstream(&text, &length);
  EXPECT_EQ(masu_stats_print(f, format), 0);
  fclose(f);
  std::string out = text;
  free(text);
  return out;
}

/* While its thread has any. */
TEST_F(Stats, ScopesHaveALine) {
  EXPECT_EQ(lines_with(printed(MASU_STATS_JSON), R"("form": "scope")"), 0u);
  masu_heap *heap = masu_heap_create("the-heap");
  std::thread([heap] {
    masu_scope s[2];
    for (masu_scope &each : s)
      masu_scope_open(&each, &each == s ? nullptr : heap);
    for (int i = 0; i < 100; i++)
      masu_scope_alloc(10);
    std::string text = printed(MASU_STATS_JSON);
    EXPECT_TRUE(matches(text, R"("form": "scope", "name": "", "used": 1728, "held": [0-9]+, "heap": "")")) << text; /* 100 of 16 bytes, 2 of 64 */
    masu_scope_temp(50000);
    masu_scope_close(&s[1]);
    masu_scope_temp(30000);
    text = printed(MASU_STATS_JSON);
    EXPECT_EQ(lines_with(text, R"("form": "arena", "name": "scope")"), 1u) << text;
  }).join();
  EXPECT_EQ(lines_with(printed(MASU_STATS_JSON), R"("form": "scope")"), 0u);
  masu_heap_destroy(heap);
}

/* Of the table `sampled`; -1: there is none. */
static double slack() {
  const std::string text = printed(MASU_STATS_JSON), name = "\"slack\": ";
  size_t at = text.find(name);
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size()));
}

TEST_F(Stats, WhatWasNotAskedForIsEstimatedFromSamples) {
  enum { COUNT = 10000 };
  std::vector<void *> blocks(COUNT);
  ASSERT_EQ(masu_profile_start(2), 0); /* practically every block */
  double before = slack();
  EXPECT_GE(before, 0);
  for (void *&p : blocks)
    p = masu_malloc(65);
  EXPECT_NEAR(slack() - before, COUNT * static_cast<double>(masu_malloc_good_size(65) - 65), 4.0 * KIB);
  for (void *p : blocks)
    masu_free(p);
  masu_profile_stop();
}

TEST_F(Stats, NamesMayHoldAnything) {
  masu_heap *heap = masu_heap_create("a\"b<c>&\\\n\x81");
  EXPECT_EQ(lines_with(printed(MASU_STATS_JSON), R"("name": "a\u0022b<c>&\u005c\u000a\ufffd")"), 1u) << printed(MASU_STATS_JSON);
  EXPECT_EQ(lines_with(printed(MASU_STATS_XML), "name=\"a&#34;b&#60;c&#62;&#38;\\?&#xfffd;\""), 1u) << printed(MASU_STATS_XML);
  masu_heap_destroy(heap);
}

/* A name that is too long ends within a character; and what is none, though each of its bytes could be a part of one. */
TEST_F(Stats, NamesAreInUtf8) {
  masu_heap *whole = masu_heap_create("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8d\xb5"), *not_whole = masu_heap_create("caf\xe2\x82");
  masu_heap *none = masu_heap_create("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xfc\x80\x80\x80\xff"), *last = masu_heap_create("\xf4\x8f\xbf\xbf");
  std::string json = printed(MASU_STATS_JSON), xml = printed(MASU_STATS_XML), bad = "\\ufffd", fourteen;
  for (int i = 0; i < 14; i++)
    fourteen += bad;
  EXPECT_EQ(lines_with(json, "\"name\": \"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8d\xb5\""), 1u) << json;
  EXPECT_EQ(lines_with(json, "\"name\": \"caf" + bad + bad + "\""), 1u) << json;
  EXPECT_EQ(lines_with(json, "\"name\": \"" + fourteen + "\""), 1u) << json;
  EXPECT_EQ(lines_with(json, "\"name\": \"\xf4\x8f\xbf\xbf\""), 1u) << json;
  EXPECT_EQ(lines_with(xml, "name=\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8d\xb5\""), 1u) << xml;
  for (masu_heap *h : {whole, not_whole, none, last})
    masu_heap_destroy(h);
}

/* What another thread may see of a pool that is in use: a block came back that was not taken yet. */
TEST_F(Stats, AFormNeverUsesMoreThanItHolds) {
  masu_pool *pool = masu_pool_create_in(nullptr, "between", 1024, 0, 0);
  masu_pool_free(pool, masu_pool_alloc(pool));
  pool->free.listed += 1024 * 1024;
  std::string text = printed(MASU_STATS_JSON);
  EXPECT_TRUE(matches(text, R"("between", "used": 0, "held": [1-9])")) << text;
  pool->free.listed -= 1024 * 1024;
  masu_pool_destroy(pool);
}

TEST_F(Stats, MoreRowsThanThereIsRoomFor) {
  std::vector<masu_heap *> heaps;
  for (int i = 0; i < 300; i++)
    heaps.push_back(masu_heap_create("many"));
  EXPECT_EQ(now().named_heaps, 300u);
  EXPECT_EQ(lines_with(printed(MASU_STATS_JSON), "\"named_heap_more\": 44"), 1u);
  EXPECT_EQ(lines_with(printed(MASU_STATS_TEXT), "and 44 more"), 1u);
  for (masu_heap *h : heaps)
    masu_heap_destroy(h);
}

TEST_F(Stats, MoreFormsThanThereIsRoomFor) {
  std::vector<masu_arena *> arenas;
  masu_heap *heap = masu_heap_create("many");
  for (int i = 0; i < 20000; i++)
    arenas.push_back(masu_arena_create_in(i % 2 ? heap : nullptr, nullptr, 100));
  EXPECT_EQ(lines_with(printed(MASU_STATS_JSON), "\"form_more\": 19488"), 1u);
  masu_heap_destroy(heap); /* half of them with it */
  EXPECT_EQ(lines_with(printed(MASU_STATS_JSON), "\"form_more\": 9488"), 1u);
  for (size_t i = 0; i < arenas.size(); i += 2)
    masu_arena_destroy(arenas[i]);
  EXPECT_EQ(lines_with(printed(MASU_STATS_JSON), "\"form_more\": 0"), 1u);
}

/* A program that was compiled with a later header: what is not known here is 0, and what is beyond stays. */
TEST_F(Stats, ALargerSize) {
  struct {
    masu_stats known;
    uint64_t later[2], beyond;
  } s;
  memset(&s, 0xff, sizeof s);
  ASSERT_EQ(masu_stats_read(&s.known, sizeof s - 8), 0);
  EXPECT_GT(s.known.resident, s.known.own);
  EXPECT_EQ(s.known.named_heaps, now().named_heaps);
  EXPECT_EQ(s.later[0] + s.later[1], 0u);
  EXPECT_EQ(s.beyond, UINT64_MAX);

  struct row {
    masu_stats_class known;
    uint64_t later;
  };
  std::vector<row> rows(100, row{{}, 1});
  size_t count = rows.size();
  ASSERT_EQ(masu_stats_classes(&rows[0].known, &count, sizeof(row)), 0);
  ASSERT_GE(count, 2u);
  for (size_t i = 0; i < count; i++)
    EXPECT_EQ(rows[i].known.live, rows[i].known.blocks * rows[i].known.size);
  EXPECT_EQ(rows[0].later + rows[1].later, 0u);
}

TEST_F(Stats, BadSizesAndFormats) {
  char room[1024];
  size_t count = 0;
  EXPECT_EQ(masu_stats_read((masu_stats *)room, sizeof(masu_stats) - 8), EINVAL);
  EXPECT_EQ(masu_stats_read((masu_stats *)room, sizeof(masu_stats) + 4), EINVAL);
  EXPECT_EQ(masu_stats_measure((masu_resident *)room, 0), EINVAL);
  EXPECT_EQ(masu_stats_classes((masu_stats_class *)room, &count, 8), EINVAL);
  EXPECT_EQ(masu_stats_heaps((masu_stats_heap *)room, &count, 8), EINVAL);
  EXPECT_EQ(masu_stats_print(stdout, (masu_stats_format)3), EINVAL);
}
