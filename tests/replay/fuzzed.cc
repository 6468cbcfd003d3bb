// replay_fuzzed PLAN PLAY ANALYZE: the programs that read traces, on spool files with bytes changed at random.
// Each ends by itself: with 0, or, where there is no trace left, with 1 and a line.
//
// Long, by hand: replay_fuzzed PLAN PLAY ANALYZE SEEDS
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "traces.h"

namespace {

constexpr unsigned SEEDS = 100;

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

bool ends_well(const char *program, int status, unsigned seed) {
  if (status == 0 || status == 1)
    return true;
  fprintf(stderr, "%s ends with %d on seed %u: see fuzzed.spool and fuzzed.errors\n", program, status, seed);
  return false;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 4)
    return 2;
  // A sanitizer that finds something ends with 1 otherwise.
  for (const char *name : {"ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"})
    setenv(name, "exitcode=99", 1);
  const char *plan = argv[1], *play = argv[2], *analyze = argv[3];
  unsigned seeds = argc > 4 ? static_cast<unsigned>(atoi(argv[4])) : SEEDS, played = 0;
  const std::string whole = source();
  for (unsigned seed = 0; seed < seeds; seed++) {
    std::string data = mutated(whole, seed);
    FILE *file = fopen("fuzzed.spool", "wb");
    if (!file || fwrite(data.data(), 1, data.size(), file) != data.size() || fclose(file))
      return 2;
    int planned = run(plan, "fuzzed.spool", "fuzzed.plan");
    if (!ends_well(plan, planned, seed) || !ends_well(analyze, run(analyze, "fuzzed.spool", nullptr), seed))
      return 1;
    if (planned)
      continue;
    if (!ends_well(play, run(play, "fuzzed.plan", "null", "touch=none"), seed))
      return 1;
    played++;
  }
  printf("%u of %u played\n", played, seeds);
  return played * 2 < seeds; // most are traces yet
}
