// trace_example FILE: writes the trace of four threads that allocate, resize and free, and hand
// half of their blocks to the next thread. Addresses are given again as soon as they are free.
//
// trace_example FILE cycles: one whose threads were created in ways that no program can create
// them in, as a damaged trace may have it. Who waits for such a creation waits for ever.
//
// trace_example FILE scopes: two threads in turn, each takes ten blocks of mixed sizes at one call site and frees them
// from the last to the first; at another from the first to the last.
#include <cstdio>
#include <map>
#include <random>

#include "traces.h"

namespace {

constexpr unsigned THREADS = 4, STEPS = 20000;

struct Block {
  uint64_t address;
  unsigned owner;
};

Record creates(uint64_t time, uint32_t thread) { return {TRACE_THREAD_CREATE, time, 0, 0, 0, 0, thread}; }

// Of all these only 0 creates 6 and 3 creates 4 can be kept. 0 waits for each of the others.
Spool cycles() {
  Spool spool;
  spool.add(0, {creates(20, 2), taken(21, 0x100, 10), creates(22, 6), creates(23, 6), given(80, 0x1000), creates(81, 1),
                given(82, 0x3000), given(83, 0x4000), given(84, 0x5000), given(85, 0x6000), given(86, 0x2000)});
  spool.add(1, {taken(30, 0x1000, 10), given(90, 0x100)}); // created after what it did
  spool.add(2, {taken(5, 0x2000, 10), creates(10, 0)});    // creates the first thread, which creates it
  spool.add(3, {creates(40, 4), taken(42, 0x3000, 10)});   // these two each other
  spool.add(4, {creates(41, 3), taken(43, 0x4000, 10)});
  spool.add(5, {creates(50, 5), taken(51, 0x5000, 10)});   // itself
  spool.add(6, {taken(60, 0x6000, 10)});                   // twice
  return spool;
}

Spool scopes() {
  constexpr unsigned ROUNDS = 10, DEPTH = 10;
  constexpr uint32_t IN_TURN = 1, IN_ORDER = 2; // call sites
  std::vector<Record> of[2];
  uint64_t now = 1000;
  auto round = [&](uint32_t site) {
    auto address = [](uint64_t t, uint64_t i) { return 0x1000 * (t + 1) + 64 * i; };
    for (unsigned i = 0; i < DEPTH; i++)
      for (unsigned t = 0; t < 2; t++) {
        of[t].push_back(taken(now += 10, address(t, i), 16 + 7 * i));
        of[t].back().stack = site;
      }
    for (unsigned i = 0; i < DEPTH; i++)
      for (unsigned t = 0; t < 2; t++)
        of[t].push_back(given(now += 10, address(t, site == IN_TURN ? DEPTH - 1 - i : i)));
  };
  for (unsigned n = 0; n < ROUNDS; n++) {
    round(IN_TURN);
    round(IN_ORDER);
  }
  Spool spool;
  spool.add(0, of[0]).add(1, of[1]);
  return spool;
}

Spool busy() {
  std::mt19937 random(1);
  std::vector<Record> of[THREADS];
  std::vector<Block> live;
  std::vector<uint64_t> free_addresses;
  uint64_t now = 1000, next_address = 0x10000;
  auto fresh = [&] {
    if (free_addresses.empty())
      return next_address += 16;
    uint64_t a = free_addresses.back();
    free_addresses.pop_back();
    return a;
  };
  for (unsigned t = 1; t < THREADS; t++) {
    of[0].push_back({TRACE_THREAD_CREATE, now++, 0, 0, 0, 0, t});
    of[t].push_back({TRACE_THREAD_START, now++});
  }
  for (unsigned step = 0; step < STEPS * THREADS; step++) {
    unsigned t = random() % THREADS;
    now += 1 + random() % 40;
    size_t size = random() % 20 ? random() % 400 : random() % 100000;
    if (live.size() < 200 || random() % 5 < 2) {
      uint64_t a = fresh();
      static constexpr trace_kind kinds[] = {TRACE_MALLOC, TRACE_MALLOC, TRACE_CALLOC, TRACE_NEW, TRACE_ALIGNED};
      Record r{kinds[random() % 5], now, size, a};
      if (r.kind == TRACE_NEW) // freed by delete alone: this trace frees by free
        r.kind = TRACE_MALLOC;
      r.align_log2 = r.kind == TRACE_ALIGNED ? static_cast<uint8_t>(random() % 10 + 3) : 0;
      of[t].push_back(r);
      live.push_back({a, random() % 2 ? t : (t + 1) % THREADS});
      continue;
    }
    size_t i = random() % live.size();
    Block b = live[i];
    if (random() % 4 == 0) {
      uint64_t to = random() % 2 ? b.address : fresh();
      of[b.owner].push_back(resized(now, b.address, to, size + 1, 5));
      now += 6;
      if (to != b.address)
        free_addresses.push_back(b.address);
      live[i].address = to;
    } else {
      of[b.owner].push_back(given(now, b.address));
      free_addresses.push_back(b.address);
      live[i] = live.back();
      live.pop_back();
    }
    now++;
  }
  Spool spool;
  for (unsigned t = 0; t < THREADS; t++)
    spool.add(t, of[t]);
  return spool;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 2)
    return 2;
  std::string what = argc == 3 ? argv[2] : "";
  std::string data = (what == "cycles" ? cycles() : what == "scopes" ? scopes() : busy()).data;
  FILE *file = fopen(argv[1], "wb");
  return !(file && fwrite(data.data(), data.size(), 1, file) == 1 && fclose(file) == 0);
}
