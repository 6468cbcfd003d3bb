/* A region of the leak checker, in a program that has no other: the profiler runs as long as
 * it is open, and blocks of the calling thread are on record from its start. */
#include <masu/leaks.h>
#include <masu/profile.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define REQUIRE(condition)                                        \
  do {                                                            \
    if (!(condition)) {                                           \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);     \
      exit(1);                                                    \
    }                                                             \
  } while (0)

static void *volatile global;

static __attribute__((noinline)) void lose(size_t size) {
  global = memset(masu_malloc(size), 0, size);
  global = NULL;
}

/* What AddressSanitizer would put around the bytes is not cleared. */
static __attribute__((noinline, no_sanitize_address)) void scrub(void) {
  char bytes[1 << 16];
  memset(bytes, 0, sizeof bytes);
  __asm__ volatile("" : : "r"(bytes) : "memory");
}

static size_t samples(void) {
  masu_profile_figures f;
  REQUIRE(masu_profile_read(&f, sizeof f) == 0);
  return f.samples;
}

static void takes_and_frees(int times) {
  for (int i = 0; i < times; i++)
    masu_free(masu_malloc(64));
}

/* One that can't be opened is not open. */
static void no_memory_for_records(void) {
  struct rlimit before, none;
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  none = before;
  none.rlim_cur = 1 << 16;
  REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
  uint64_t begun = masu_leaks_begin();
  int why = errno;
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  REQUIRE(begun == 0 && why == ENOMEM);
}

/* Who has opened a region has the next block on record, whatever regions others open and close. */
static void *opens_and_closes(void *unused) {
  for (int round = 0; round < 5000; round++) {
    uint64_t begun = masu_leaks_begin();
    void *p = masu_malloc(64);
    REQUIRE(begun && masu_leaks_ignore(p) == 0);
    masu_free(p);
    REQUIRE(masu_leaks_end(begun, NULL, 0) == 0);
  }
  return unused;
}

static void regions_of_threads(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    REQUIRE(pthread_create(&threads[i], NULL, opens_and_closes, NULL) == 0);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  takes_and_frees(2000);
  size_t before = samples();
  takes_and_frees(1000);
  REQUIRE(samples() == before);
}

static void stopped_meanwhile(void) {
  uint64_t begun = masu_leaks_begin();
  size_t before = samples();
  masu_profile_stop();
  takes_and_frees(100);
  REQUIRE(samples() == before + 100);
  REQUIRE(masu_leaks_end(begun, NULL, 0) == 0);
  takes_and_frees(2000);
  before = samples();
  takes_and_frees(1000);
  REQUIRE(samples() == before);
}

int main(void) {
  masu_leaks found;
  REQUIRE(masu_leaks_end(1, &found, sizeof found) != 0); /* nothing was ever recorded */
  no_memory_for_records();
  takes_and_frees(100);
  global = masu_malloc(64); /* the rest of the slab is in the hand */
  masu_free(global);
  for (int round = 0; round < 3; round++) {
    uint64_t begun = masu_leaks_begin();
    REQUIRE(begun);
    lose(64);
    scrub();
    REQUIRE(masu_leaks_end(begun, &found, sizeof found) == 0);
    REQUIRE(found.direct_blocks == 1 && found.direct_bytes == 64 && found.indirect_blocks == 0);
    takes_and_frees(2000);
    size_t before = samples();
    takes_and_frees(1000);
    REQUIRE(samples() == before);
  }
  regions_of_threads();
  REQUIRE(masu_profile_start(100000) == 0);
  uint64_t outer = masu_leaks_begin(), inner = masu_leaks_begin();
  size_t before = samples();
  takes_and_frees(100);
  REQUIRE(samples() == before + 100);
  REQUIRE(masu_leaks_end(inner, NULL, 0) == 0);
  takes_and_frees(100);
  REQUIRE(samples() == before + 200);
  REQUIRE(masu_leaks_end(outer, NULL, 0) == 0);
  takes_and_frees(1000); /* 64,000 bytes */
  REQUIRE(samples() < before + 250); /* the interval is what it was */
  stopped_meanwhile();
  return 0;
}
