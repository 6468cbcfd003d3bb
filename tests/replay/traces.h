// Traces that tests make by hand, in the form that the recorder writes.
#ifndef TRACES_H
#define TRACES_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

// The header is C; its types keep their names.
#include <atomic>
#define MASU_BASE_ATOMIC_H // C++ has no <stdatomic.h> before C++23
typedef uint32_t atomic_u32;
typedef uint64_t atomic_u64;
#define _Static_assert static_assert
#include "observe/trace.h"

struct Record {
  trace_kind kind;
  uint64_t time;
  uint64_t size = 0, address = 0, old_address = 0, took_ns = 0;
  uint32_t thread = 0, stack = 0;
  uint8_t align_log2 = 0;
  std::vector<uint64_t> frames{}; // STACK, whose number is `stack`
};

inline Record taken(uint64_t time, uint64_t address, uint64_t size) { return {TRACE_MALLOC, time, size, address}; }
inline Record given(uint64_t time, uint64_t address) { return {TRACE_FREE, time, 0, address}; }
inline Record resized(uint64_t time, uint64_t from, uint64_t to, uint64_t size, uint64_t took) {
  return {TRACE_REALLOC, time, size, to, from, took};
}

inline trace_unit *put(trace_unit *at, trace_state *s, const Record &r) {
  trace_record t{};
  t.kind = static_cast<uint8_t>(r.kind);
  t.align_log2 = r.align_log2;
  t.stack = r.stack;
  t.thread = r.thread;
  t.frames = static_cast<uint32_t>(r.frames.size());
  t.time = r.time;
  t.size = r.size;
  t.address = r.address;
  t.old_address = r.old_address;
  t.took_ns = r.took_ns;
  t.frame = reinterpret_cast<const trace_unit *>(r.frames.data());
  return trace_put(at, s, &t);
}

constexpr size_t PAGE_UNITS = TRACE_PAGE / sizeof(trace_unit);

// What a spool file holds.
struct Spool {
  std::string data = std::string(TRACE_PAGE, '\0');

  Spool() {
    trace_process p{};
    p.magic = TRACE_PROCESS_MAGIC;
    p.version = TRACE_VERSION;
    p.page_size = TRACE_PAGE;
    p.process = 1;
    p.command_length = 8;
    memcpy(p.command, "example", 8);
    memcpy(&data[0], &p, sizeof p);
  }

  // One block, or as many as it takes.
  Spool &add(uint32_t thread, const std::vector<Record> &records, uint32_t level = 0) {
    size_t next = 0;
    do {
      std::vector<trace_unit> units(TRACE_BLOCK_PAGES * PAGE_UNITS);
      uint64_t start = next < records.size() ? records[next].time : 0;
      trace_state s{start, 0};
      trace_unit *at = units.data() + sizeof(trace_block) / sizeof *at;
      const trace_unit *last = units.data() + units.size() - TRACE_UNITS_MOST;
      while (next < records.size() && at <= last)
        at = put(at, &s, records[next++]);
      trace_block b{};
      b.magic = TRACE_BLOCK_MAGIC;
      b.page = static_cast<uint32_t>(data.size() / TRACE_PAGE);
      b.pages = static_cast<uint32_t>((static_cast<size_t>(at - units.data()) + PAGE_UNITS - 1) / PAGE_UNITS);
      b.thread = thread;
      b.level = level;
      b.time = start;
      b.state = TRACE_FULL;
      memcpy(units.data(), &b, sizeof b);
      data.append(reinterpret_cast<char *>(units.data()), b.pages * TRACE_PAGE);
    } while (next < records.size());
    return *this;
  }
};

// With some bytes changed at random, those of headers as often as all others, or cut. Not the magic and version of
// the whole.
inline std::string mutated(std::string data, unsigned seed) {
  std::mt19937 random(seed);
  for (unsigned n = 1 + random() % 8; n--;) {
    size_t at = random() % 3 ? random() % data.size() : TRACE_PAGE * (1 + random() % 3) + random() % sizeof(trace_block);
    if (at >= 24)
      data[at % data.size()] = static_cast<char>(random());
  }
  if (random() % 4 == 0)
    data.resize(random() % data.size());
  return data;
}

#endif
