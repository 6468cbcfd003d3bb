// The records of threads in one order, and what happens to traces that are not whole.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "traces.h"

extern "C" {
#include "merge.h"
}

namespace {

struct Told {
  item_kind kind;
  uint32_t thread, slot;
  uint64_t size;
};

struct Result {
  std::vector<Told> items;
  merge_counts counts{};
  std::string why;
};

// The data ends where nothing can be read, so that a step too far is found.
Result merged(const std::string &data) {
  Result result;
  std::unique_ptr<char[]> copy(new char[data.size() + 8]);
  char *aligned = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(copy.get()) + 7) & ~uintptr_t{7});
  memcpy(aligned, data.data(), data.size());
  const char *why;
  merge *m = merge_open(aligned, data.size(), &why);
  if (!m) {
    result.why = why;
    return result;
  }
  for (item i; merge_next(m, &i);)
    result.items.push_back({i.kind, i.thread, i.object ? i.object->slot : 0, i.object ? i.object->size : 0});
  result.counts = *merge_counted(m);
  merge_close(m);
  return result;
}

TEST(Trace, RecordsAreReadAsTheyWereWritten) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; round++) {
    trace_unit units[TRACE_UNITS_MOST];
    Record r{};
    r.kind = static_cast<trace_kind>(1 + random() % (TRACE_KINDS - 1));
    auto any = [&] { return random() >> (random() % 64); };
    trace_state before{any() >> 1, any() >> 3}, w = before, read = before;
    r.time = before.time + (random() % 2 ? any() >> 1 : 0);
    r.size = any();
    r.address = random() % 2 ? any() & ~7ull : (before.address + random() % 1000) << 3;
    r.old_address = random() % 2 ? any() & ~7ull : (before.address + random() % 1000) << 3;
    r.took_ns = any();
    r.thread = static_cast<uint32_t>(any());
    r.stack = random() % 2 || r.kind == TRACE_STACK ? static_cast<uint32_t>(any()) : 0;
    r.align_log2 = random() % 48;
    if (r.kind == TRACE_STACK)
      for (uint64_t n = random() % (TRACE_FRAMES + 1); n--;)
        r.frames.push_back(any());
    trace_unit *end = put(units, &w, r);
    ASSERT_LE(end - units, TRACE_UNITS_MOST);
    ASSERT_NE(units[0], 0u);
    trace_record got;
    ASSERT_EQ(trace_get(units, end, &read, &got), end);
    EXPECT_EQ(read.time, w.time);
    EXPECT_EQ(read.address, w.address);
    EXPECT_EQ(got.kind, r.kind);
    bool is_aligned = r.kind == TRACE_ALIGNED || r.kind == TRACE_NEW_ALIGNED;
    EXPECT_EQ(got.align_log2, is_aligned ? r.align_log2 : 0);
    EXPECT_EQ(got.time, r.time);
    EXPECT_EQ(got.stack, r.stack);
    bool is_call = r.kind < TRACE_THREAD_CREATE, moves = r.kind == TRACE_REALLOC;
    EXPECT_EQ(got.size, is_call ? r.size : 0);
    EXPECT_EQ(got.address, is_call ? r.address : 0);
    EXPECT_EQ(got.old_address, moves ? r.old_address : 0);
    EXPECT_EQ(got.took_ns, moves ? r.took_ns : 0);
    EXPECT_EQ(got.thread, r.kind == TRACE_THREAD_CREATE ? r.thread : 0);
    ASSERT_EQ(got.frames, r.frames.size());
    for (uint32_t i = 0; i < got.frames; i++)
      EXPECT_EQ(trace_frame(&got, i), r.frames[i]);
    for (trace_unit *cut = units; cut < end; cut++) { // never beyond the end
      trace_state s = before;
      EXPECT_EQ(trace_get(units, cut, &s, &got), nullptr);
    }
  }
}

TEST(Merge, ABlockIsTakenAndGiven) {
  Spool s;
  s.add(0, {taken(10, 0x1000, 64), given(20, 0x1000)});
  Result r = merged(s.data);
  ASSERT_EQ(r.items.size(), 2u);
  EXPECT_EQ(r.items[0].kind, ITEM_TAKE);
  EXPECT_EQ(r.items[1].kind, ITEM_GIVE);
  EXPECT_EQ(r.items[1].size, 64u);
  EXPECT_EQ(r.items[0].slot, r.items[1].slot);
  EXPECT_EQ(r.counts.calls, 2u);
}

TEST(Merge, ThreadsAreOrderedByTime) {
  Spool s;
  s.add(0, {taken(10, 0x1000, 64), taken(30, 0x1000, 32)});
  s.add(5, {given(20, 0x1000), given(40, 0x1000)});
  Result r = merged(s.data);
  ASSERT_EQ(r.items.size(), 4u);
  EXPECT_EQ(r.items[1].thread, 1u);
  EXPECT_EQ(r.items[1].size, 64u);
  EXPECT_EQ(r.items[3].size, 32u);
  EXPECT_EQ(r.counts.threads, 2u);
  EXPECT_EQ(r.counts.vanished + r.counts.unknown, 0u);
}

// Thread 1 is given the address that thread 0's realloc has just left.
TEST(Merge, ReallocLeavesBeforeItArrives) {
  Spool s;
  s.add(0, {taken(5, 0x1000, 8), resized(10, 0x1000, 0x2000, 100, 10), given(30, 0x2000)});
  s.add(1, {taken(15, 0x1000, 16), given(40, 0x1000)});
  Result r = merged(s.data);
  ASSERT_EQ(r.items.size(), 5u);
  EXPECT_EQ(r.items[1].kind, ITEM_RESIZE);
  EXPECT_EQ(r.items[1].size, 8u); // what it had
  EXPECT_EQ(r.items[3].size, 100u);
  EXPECT_EQ(r.items[3].slot, r.items[0].slot);
  EXPECT_EQ(r.counts.vanished + r.counts.unknown, 0u);
}

TEST(Merge, ReallocInAllItsMeanings) {
  Spool s;
  s.add(0, {resized(1, 0, 0x1000, 50, 1),      // as malloc
            resized(10, 0x1000, 0, 1 << 30, 1), // fails
            resized(20, 0x1000, 0, 0, 1),       // as free
            given(30, 0x1000)});
  Result r = merged(s.data);
  ASSERT_EQ(r.items.size(), 2u);
  EXPECT_EQ(r.items[0].kind, ITEM_TAKE);
  EXPECT_EQ(r.items[1].kind, ITEM_GIVE);
  EXPECT_EQ(r.counts.failed, 1u);
  EXPECT_EQ(r.counts.unknown, 1u);
}

TEST(Merge, NobodyFreesNothing) {
  Spool s;
  s.add(0, {taken(1, 0x1000, 10), given(2, 0), given(3, 0x1000)});
  Result r = merged(s.data);
  ASSERT_EQ(r.items.size(), 2u);
  EXPECT_EQ(r.counts.unknown, 1u);
}

TEST(Merge, WhatWasFreedUnseenEndsWhenItsAddressComesAgain) {
  Spool s;
  s.add(0, {taken(1, 0x1000, 10), taken(2, 0x1000, 20), resized(3, 0x1000, 0x3000, 30, 1), taken(10, 0x3000, 40)});
  Result r = merged(s.data);
  ASSERT_EQ(r.items.size(), 6u);
  EXPECT_EQ(r.counts.vanished, 2u);
  EXPECT_EQ(r.items[1].kind, ITEM_GIVE);
  EXPECT_EQ(r.items[4].kind, ITEM_GIVE);
  EXPECT_EQ(r.items[4].size, 30u);
  EXPECT_EQ(r.counts.calls, 4u);
}

TEST(Merge, SignalHandlersRecordsComeInTheirPlace) {
  Spool s;
  s.add(0, {taken(10, 0x1000, 8), taken(30, 0x3000, 8)});
  s.add(0, {taken(20, 0x2000, 99)}, 1);
  Result r = merged(s.data);
  ASSERT_EQ(r.items.size(), 3u);
  EXPECT_EQ(r.items[1].size, 99u);
  EXPECT_EQ(r.items[1].thread, r.items[0].thread);
  EXPECT_EQ(r.counts.threads, 1u);
}

TEST(Merge, SlotsAreUsedAgainByTheThreadThatEmptiedThem) {
  std::vector<Record> records;
  for (uint64_t i = 0; i < 10000; i++) {
    records.push_back(taken(10 * i + 1, 0x1000 + 16 * (i % 3), 8));
    records.push_back(given(10 * i + 2, 0x1000 + 16 * (i % 3)));
  }
  Spool s;
  s.add(0, records);
  Result r = merged(s.data);
  ASSERT_EQ(r.items.size(), 20000u);
  EXPECT_GT(r.counts.blocks, 1u);
  for (const Told &t : r.items)
    EXPECT_EQ(t.slot, 0u);
}

TEST(Merge, ManyBlocksLiveAndDieInAnyOrder) {
  std::mt19937 random(3);
  std::vector<Record> records;
  std::vector<uint64_t> live;
  uint64_t now = 0, address = 0;
  for (int i = 0; i < 200000; i++) {
    now += 2;
    if (live.size() < 5000 || random() % 2) {
      live.push_back(address += 8 * (1 + random() % 4));
      records.push_back(taken(now, live.back(), live.back()));
    } else {
      size_t at = random() % live.size();
      records.push_back(given(now, live[at]));
      live[at] = live.back();
      live.pop_back();
    }
  }
  Spool s;
  s.add(0, records);
  Result r = merged(s.data);
  ASSERT_EQ(r.items.size(), records.size());
  for (size_t i = 0; i < records.size(); i++)
    if (records[i].kind == TRACE_FREE) {
      ASSERT_EQ(r.items[i].size, records[i].address); // the block's own size
    }
  EXPECT_EQ(r.counts.unknown, 0u);
}

// ---- What is not whole ----

TEST(Merge, WhatIsNoTraceIsSaidToBeNone) {
  EXPECT_EQ(merged("").why, "too short");
  EXPECT_EQ(merged(std::string(8192, 'x')).why, "not a trace");
  Spool s;
  reinterpret_cast<trace_process *>(&s.data[0])->version = TRACE_VERSION + 1;
  EXPECT_EQ(merged(s.data).why, "made by another version of masu");
}

TEST(Merge, ACutTraceIsReadUpToItsLastWholeBlock) {
  std::vector<Record> records;
  for (uint64_t i = 1; i < 30000; i++)
    records.push_back(taken(i, i * 16, i));
  Spool s;
  s.add(0, records);
  size_t before = 0;
  for (size_t size = TRACE_PAGE; size <= s.data.size(); size += 3 * TRACE_PAGE) {
    Result r = merged(s.data.substr(0, size));
    EXPECT_GE(r.items.size(), before);
    before = r.items.size();
  }
  EXPECT_GT(before, 15000u);
}

// The second of three records begins with another byte, or for 0 with a unit of 0; another block follows.
Result with_second_record(char first_byte) {
  Spool s;
  s.add(0, {taken(1, 0x1000, 1), taken(1, 0x2000, 2), taken(1, 0x3000, 3)});
  s.add(0, {taken(4, 0x4000, 4)});
  size_t second = TRACE_PAGE + sizeof(trace_block) + 2 * sizeof(trace_unit);
  memset(&s.data[second], first_byte, first_byte ? 1 : sizeof(trace_unit));
  return merged(s.data);
}

TEST(Merge, ADamagedBlockIsReadUpToTheDamage) {
  Result r = with_second_record('\xff');
  ASSERT_EQ(r.items.size(), 2u);
  EXPECT_EQ(r.items[1].size, 4u);
  EXPECT_EQ(r.counts.bad_blocks, 1u);
}

// Its first word, written last, is missing: the thread was killed.
TEST(Merge, ABlockEndsWithTheRecordThatWasNotFinished) {
  Result r = with_second_record('\0');
  ASSERT_EQ(r.items.size(), 2u);
  EXPECT_EQ(r.items[1].size, 4u);
  EXPECT_EQ(r.counts.bad_blocks, 0u);
}

TEST(Merge, HeadersThatMakeNoSense) {
  Spool good;
  good.add(0, {taken(1, 0x1000, 1)});
  auto with = [&](auto change) {
    std::string data = good.data;
    trace_block b;
    memcpy(&b, &data[TRACE_PAGE], sizeof b);
    change(b);
    memcpy(&data[TRACE_PAGE], &b, sizeof b);
    return merged(data);
  };
  for (uint32_t pages : {0u, 2u, 17u, ~0u})
    EXPECT_EQ(with([&](trace_block &b) { b.pages = pages; }).counts.bad_blocks, 1u);
  EXPECT_EQ(with([](trace_block &b) { b.level = 2; }).counts.bad_blocks, 1u);
  EXPECT_EQ(with([](trace_block &b) { b.thread = ~0u; }).items.size(), 1u);
}

// Bytes changed at random: anything may come out, but nothing is read beyond the end.
TEST(Merge, Fuzzed) {
  Spool s;
  std::vector<Record> a, b;
  for (uint64_t i = 1; i < 300; i++) {
    a.push_back(taken(i * 10, i * 32, i));
    b.push_back(i % 3 ? given(i * 10 + 5, i * 32) : resized(i * 10 + 5, i * 32, i * 64 + 16, i * 2, 3));
  }
  s.add(0, a).add(1, b).add(1, {taken(777, 0x10, 1)}, 1);
  for (unsigned seed = 0; seed < 3000; seed++)
    merged(mutated(s.data, seed));
}

} // namespace
