// replay_fuzzed PLAN PLAY ANALYZE: the programs that read traces. PLAY is the player on masu: it executes what was
// planned and looks at both ends of each block before that is freed or resized.
//
//   whole traces of programs made at random: all are played to their end, and all blocks stay whole
//   a trace with bytes changed at random: each program ends by itself, with 0, or, where there is no trace
//   left or no memory for what it says, with a line and 1, or abort in operator new; blocks stay whole there as well
//
// Long, by hand: replay_fuzzed PLAN PLAY ANALYZE SEEDS
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "traces.h"

namespace {

constexpr unsigned SEEDS = 100;
constexpr rlim_t MEMORY = 256 << 20; // for sizes that changed bytes make
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool LIMITED = false; // they map more themselves
#else
constexpr bool LIMITED = true;
#endif

// A program of 1 to 6 threads, each created by one of those before it, that do what programs may do: every kind of call,
// addresses that are given again at once, blocks that other threads free or resize, calls that fail, sizes 0 to 400 KiB.
class Program {
  struct Block {
    uint64_t address, size;
    trace_kind by;
  };
  std::mt19937 random;
  std::vector<std::vector<Record>> of;
  std::vector<Block> live;
  std::vector<uint64_t> free_addresses;
  uint64_t now = 1000, next_address = 0x10000;

  uint64_t below(uint64_t n) { return random() % n; }
  uint64_t fresh() {
    if (free_addresses.empty())
      return next_address += 16;
    uint64_t a = free_addresses.back();
    free_addresses.pop_back();
    return a;
  }
  uint64_t some_size() { return below(30) ? below(1u << below(14)) : below(400000); }

  void take(unsigned t) {
    static constexpr trace_kind kinds[] = {TRACE_MALLOC, TRACE_CALLOC, TRACE_ALIGNED, TRACE_NEW, TRACE_NEW_ALIGNED};
    Record r{kinds[below(5)], now, some_size(), below(50) ? fresh() : 0}; // 0: it failed
    if (r.kind == TRACE_ALIGNED || r.kind == TRACE_NEW_ALIGNED)
      r.align_log2 = static_cast<uint8_t>(3 + below(11));
    of[t].push_back(r);
    if (r.address)
      live.push_back({r.address, r.size, r.kind});
  }
  bool resize(unsigned t, Block &b) {
    if (b.by == TRACE_NEW || b.by == TRACE_NEW_ALIGNED)
      return false;
    uint64_t to = below(2) ? b.address : fresh(), size = 1 + some_size();
    of[t].push_back(resized(now, b.address, to, size, 5));
    now += 6;
    if (to != b.address)
      free_addresses.push_back(b.address);
    b = {to, size, TRACE_MALLOC};
    return true;
  }
  void give(unsigned t, size_t i) {
    Block b = live[i];
    bool is_new = b.by == TRACE_NEW || b.by == TRACE_NEW_ALIGNED;
    trace_kind plain = is_new ? TRACE_DELETE : TRACE_FREE, sized = is_new ? TRACE_DELETE_SIZED : TRACE_FREE_SIZED;
    of[t].push_back({below(2) ? plain : sized, now, b.size, b.address});
    free_addresses.push_back(b.address);
    live[i] = live.back();
    live.pop_back();
  }

public:
  explicit Program(unsigned seed) : random(seed), of(1 + below(6)) {
    for (unsigned t = 1; t < of.size(); t++) {
      of[below(t)].push_back({TRACE_THREAD_CREATE, now++, 0, 0, 0, 0, t});
      of[t].push_back({TRACE_THREAD_START, now++});
    }
    size_t most = 1 + below(300);
    for (uint64_t steps = below(8000); steps--; now += 1 + below(40)) {
      unsigned t = static_cast<unsigned>(below(of.size()));
      size_t i = live.empty() ? 0 : below(live.size());
      if (live.size() < most && below(5) < 3)
        take(t);
      else if (!live.empty() && !(below(3) == 0 && resize(t, live[i])))
        give(t, i);
    }
    for (auto &records : of)
      if (below(2))
        records.push_back({TRACE_THREAD_END, now++});
  }
  std::string spool() const {
    Spool s;
    for (unsigned t = 0; t < of.size(); t++)
      s.add(t, of[t]);
    return s.data;
  }
};

// Three threads, one created by another, with every kind of record.
std::string source() {
  std::vector<Record> first, second, third;
  first.push_back({TRACE_THREAD_CREATE, 1, 0, 0, 0, 0, 1});
  second.push_back({TRACE_THREAD_START, 2});
  second.push_back({TRACE_THREAD_CREATE, 3, 0, 0, 0, 0, 2});
  third.push_back({TRACE_THREAD_START, 4});
  static constexpr trace_kind takes[] = {TRACE_MALLOC, TRACE_CALLOC, TRACE_ALIGNED, TRACE_NEW, TRACE_NEW_ALIGNED};
  static constexpr trace_kind gives[] = {TRACE_FREE, TRACE_FREE_SIZED, TRACE_DELETE, TRACE_DELETE_SIZED};
  for (uint64_t i = 1; i < 300; i++) {
    Record take{takes[i % 5], i * 10, i, i * 32}, give{gives[i % 4], i * 10 + 8, i, i * 32};
    take.align_log2 = 4;
    if (i % 3 == 0)
      first.push_back({TRACE_STACK, i * 10, 0, 0, 0, 0, 0, static_cast<uint32_t>(i), 0, {0x401000 + i, 0x402000, 0x400800}});
    take.stack = static_cast<uint32_t>(i - i % 3);
    first.push_back(take);
    second.push_back(i % 3 ? give : resized(i * 10 + 5, i * 32, i * 64 + 100000, i * 2, 3));
    third.push_back(taken(i * 10 + 1, i * 64 + 200000, i * i));
  }
  third.push_back({TRACE_THREAD_END, 5000});
  Spool s;
  s.add(0, first).add(1, second).add(2, third).add(1, {taken(777, 0x10, 1)}, 1);
  return s.data;
}

// The exit status; -1: a signal.
int run(const char *program, const char *argument, const char *second, const char *third = nullptr) {
  const char *words[] = {program, argument, second, third, nullptr};
  posix_spawn_file_actions_t to;
  posix_spawn_file_actions_init(&to);
  posix_spawn_file_actions_addopen(&to, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&to, STDERR_FILENO, "fuzzed.errors", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid;
  int status = -1;
  if (posix_spawn(&pid, program, &to, nullptr, const_cast<char **>(words), environ) == 0)
    waitpid(pid, &status, 0);
  posix_spawn_file_actions_destroy(&to);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool ends_well(const char *program, int status, unsigned seed, bool whole = false) {
  std::ifstream file("fuzzed.errors");
  std::string errors{std::istreambuf_iterator<char>(file), {}};
  if (status == 0 || (status == 1 && !whole && errors.find("overwritten") == std::string::npos))
    return true;
  if (!whole && errors.find("out of memory in operator new") != std::string::npos)
    return true; // which can't throw there
  fprintf(stderr, "%s ends with %d on %s of seed %u, see fuzzed.spool: %s\n", program, status,
          whole ? "the whole trace" : "changed bytes", seed, errors.c_str());
  return false;
}

bool save(const std::string &data) {
  FILE *file = fopen("fuzzed.spool", "wb");
  return file && fwrite(data.data(), 1, data.size(), file) == data.size() && fclose(file) == 0;
}

// Plans it and plays that.
bool reads(char **programs, unsigned seed, bool whole, const char *touch, const char *null, unsigned *played) {
  const char *plan = programs[0], *play = programs[1], *analyze = programs[2];
  int planned = run(plan, "fuzzed.spool", "fuzzed.plan");
  if (!ends_well(plan, planned, seed, whole) || !ends_well(analyze, run(analyze, "fuzzed.spool", nullptr), seed, whole))
    return false;
  if (planned)
    return true;
  ++*played;
  return ends_well(play, run(play, "fuzzed.plan", touch, null), seed, whole);
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 4)
    return 2;
  // A sanitizer that finds something ends with 1 otherwise.
  for (const char *name : {"ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"})
    setenv(name, "exitcode=99", 1);
  unsigned seeds = argc > 4 ? static_cast<unsigned>(atoi(argv[4])) : SEEDS, played = 0, all = 0;
  for (unsigned seed = 0; seed < seeds; seed++)
    if (!save(Program(seed).spool()) || !reads(argv + 1, seed, true, seed % 2 ? "touch=full" : "touch=first", nullptr, &all))
      return 1;
  const rlimit memory = {MEMORY, MEMORY};
  if (LIMITED && setrlimit(RLIMIT_AS, &memory))
    return 2;
  const std::string data = source();
  for (unsigned seed = 0; seed < seeds; seed++)
    if (!save(mutated(data, seed)) || !reads(argv + 1, seed, false, "touch=first", LIMITED ? nullptr : "null", &played))
      return 1;
  printf("%u of %u changed ones played\n", played, seeds);
  return played * 2 < seeds; // most are traces yet
}
