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
static inline uint32_t load_relaxed(const atomic_u32 *p) { return *p; }
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

inline uint8_t *put(uint8_t *at, trace_state *s, const Record &r) {
  at = trace_put_head(at, s, r.kind, r.time, r.kind == TRACE_STACK ? 0 : r.stack);
  switch (r.kind) {
  case TRACE_ALIGNED:
  case TRACE_NEW_ALIGNED:
    *at++ = r.align_log2; // fallthrough
  case TRACE_MALLOC:
  case TRACE_CALLOC:
  case TRACE_NEW:
    return trace_put_address(trace_put_number(at, r.size), s, r.address);
  case TRACE_REALLOC:
    at = trace_put_number(trace_put_address(at, s, r.old_address), r.size);
    return trace_put_number(trace_put_address(at, s, r.address), r.took_ns);
  case TRACE_FREE:
  case TRACE_DELETE:
    return trace_put_address(at, s, r.address);
  case TRACE_FREE_SIZED:
  case TRACE_DELETE_SIZED:
    return trace_put_number(trace_put_address(at, s, r.address), r.size);
  case TRACE_THREAD_CREATE:
    return trace_put_number(at, r.thread);
  case TRACE_STACK: {
    uint64_t last = 0;
    at = trace_put_number(trace_put_number(at, r.stack), r.frames.size());
    for (uint64_t frame : r.frames)
      at = trace_put_near(at, &last, frame);
    return at;
  }
  default:
    return at;
  }
}

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
      std::vector<uint8_t> bytes(TRACE_BLOCK_PAGES * TRACE_PAGE);
      uint64_t start = next < records.size() ? records[next].time : 0;
      trace_state s{start, 0};
      uint8_t *first = bytes.data() + sizeof(trace_block), *at = first;
      const uint8_t *last = bytes.data() + bytes.size() - TRACE_RECORD_MOST;
      while (next < records.size() && at < last)
        at = put(at, &s, records[next++]);
      trace_block b{};
      b.magic = TRACE_BLOCK_MAGIC;
      b.page = static_cast<uint32_t>(data.size() / TRACE_PAGE);
      b.pages = static_cast<uint32_t>((at - bytes.data() + TRACE_PAGE - 1) / TRACE_PAGE);
      b.thread = thread;
      b.level = level;
      b.time = start;
      b.used = static_cast<uint32_t>(at - first);
      b.state = TRACE_FULL;
      memcpy(bytes.data(), &b, sizeof b);
      data.append(reinterpret_cast<char *>(bytes.data()), b.pages * TRACE_PAGE);
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
