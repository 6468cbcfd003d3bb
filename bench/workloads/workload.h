/* What the workload programs share: clock, memory figures, random numbers, marks in
 * blocks, arguments, figures, and one way to fail. They are ordinary programs that
 * know nothing of masu; the allocator is chosen from outside, by LD_PRELOAD. C++ may
 * include this as well. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* A wrong result, or a request that failed: one line, exit status 1. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("FAILED: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

static inline void *got(void *block) {
  if (!block)
    fail("out of memory");
  return block;
}

/* First in every main: MASU_BENCH_HUGE=0 forbids transparent huge pages to the
 * process. It starts anew then, so that what the allocator mapped before main has
 * none either. */
static inline void huge_pages_as_asked(char **argv) {
  const char *asked = getenv("MASU_BENCH_HUGE");
  if (!asked || strcmp(asked, "0") != 0 || prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0)
    return;
  if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
    fail("huge pages cannot be forbidden: %s", strerror(errno));
  execv("/proc/self/exe", argv);
  fail("%s cannot start anew: %s", argv[0], strerror(errno));
}

static inline uint64_t clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
/* CPU time of the process so far. */
static inline uint64_t cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

static inline double seconds_since(uint64_t start_ns) {
  return (double)(now_ns() - start_ns) * 1e-9;
}

static inline void sleep_until(uint64_t ns) {
  struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
    ;
}

/* A figure of /proc/self/status in KiB ("VmRSS", "VmHWM"). Allocates nothing. */
static inline long status_kib(const char *name) {
  char text[8192], key[32];
  int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (length < 0)
    fail("/proc/self/status: %s", strerror(errno));
  close(file);
  text[length] = 0;
  snprintf(key, sizeof key, "\n%s:", name);
  const char *line = strstr(text, key);
  return line ? strtol(line + strlen(key), NULL, 10) : -1;
}

static inline uint32_t xorshift32(uint32_t *state) {
  uint32_t x = *state;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return *state = x;
}

/* A number from low to high, both included. */
static inline size_t random_between(uint32_t *state, size_t low, size_t high) {
  return low + xorshift32(state) % (high - low + 1);
}

/* A different, never zero, state for each of several threads. */
static inline uint32_t random_seed(size_t number) {
  uint32_t state = (uint32_t)(number + 1) * 2654435761u;
  return state ? state : 1;
}

/* ---- Blocks are checked: an allocator that returns wrong memory fails ---- */

/* First and last byte carry a tag. */
static inline void block_mark(void *block, size_t size, size_t tag) {
  unsigned char *bytes = (unsigned char *)block;
  bytes[0] = bytes[size - 1] = (unsigned char)tag;
}

static inline void block_check(const void *block, size_t size, size_t tag) {
  const unsigned char *bytes = (const unsigned char *)block;
  if (bytes[0] != (unsigned char)tag || bytes[size - 1] != (unsigned char)tag)
    fail("a block of %zu bytes was overwritten", size);
}

/* All of it carries a tag. */
static inline void whole_fill(void *block, size_t size, size_t tag) {
  memset(block, (unsigned char)tag, size);
}

static inline void whole_check(const void *block, size_t size, size_t tag) {
  const unsigned char *bytes = (const unsigned char *)block;
  if (size && (bytes[0] != (unsigned char)tag || memcmp(bytes, bytes + 1, size - 1) != 0))
    fail("a block of %zu bytes was overwritten", size);
}

/* After the timed part, and after memory was read: blocks of LOW to HIGH bytes that live
 * at once, about 1 MiB of them, filled and checked. Marks at the ends of blocks don't show
 * that they overlap in between, and more than marks would be timed as well. */
static inline void blocks_check(size_t low, size_t high) {
  enum { LEAST = 2, MOST = 64, TOGETHER = 1 << 20 };
  unsigned char *block[MOST];
  size_t size[MOST], count = TOGETHER / high;
  count = count < LEAST ? (size_t)LEAST : count > MOST ? (size_t)MOST : count;
  uint32_t random = random_seed(0);
  for (size_t i = 0; i < count; i++) {
    size[i] = random_between(&random, low, high);
    block[i] = (unsigned char *)got(malloc(size[i]));
    whole_fill(block[i], size[i], i + 1);
  }
  for (size_t i = 0; i < count; i++) {
    whole_check(block[i], size[i], i + 1);
    free(block[i]);
  }
}

/* Blocks that anyone may free: they carry their size, and a byte in each page, so that
 * all of a block is resident as that of a program which fills it. The seal goes before
 * the block does, so that of two owners of one block the second one fails. */
enum { SEALED_MIN = 16, SEALED_STRIDE = 4096, SEAL = 0x5ea1 };

static inline void *sealed_new(size_t size) {
  size_t *block = (size_t *)got(malloc(size));
  unsigned char *bytes = (unsigned char *)block;
  for (size_t at = SEALED_STRIDE; at < size; at += SEALED_STRIDE)
    bytes[at] = (unsigned char)~size;
  bytes[size - 1] = (unsigned char)~size;
  *block = size << 16 | SEAL;
  return block;
}

static inline size_t sealed_size(const void *block) {
  size_t word = *(const size_t *)block;
  if ((word & 0xffff) != SEAL)
    fail("a block was overwritten or given out twice");
  return word >> 16;
}

/* NULL is allowed; returns the size. */
static inline size_t sealed_free(void *block) {
  if (!block)
    return 0;
  size_t size = sealed_size(block);
  const unsigned char *bytes = (const unsigned char *)block;
  bool whole = bytes[size - 1] == (unsigned char)~size;
  for (size_t at = SEALED_STRIDE; at < size; at += SEALED_STRIDE)
    whole &= bytes[at] == (unsigned char)~size;
  if (!whole)
    fail("a block of %zu bytes was overwritten", size);
  *(size_t *)block = 0;
  free(block);
  return size;
}

/* ---- Arguments ---- */

static inline size_t to_number(const char *text, const char *what) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno || end == text || *end || *text == '-')
    fail("%s is no number for %s", text, what);
  return value;
}

/* argv[index] as a number of at least 1, or `otherwise` when it is not given. */
static inline size_t argument(int argc, char **argv, int index, size_t otherwise, const char *what) {
  size_t value = index < argc ? to_number(argv[index], what) : otherwise;
  if (!value)
    fail("%s has to be at least 1", what);
  return value;
}

/* argv[index] as one of `words` (ended by NULL), or the first one when it is not given. */
static inline size_t choice(int argc, char **argv, int index, const char *const *words) {
  if (index >= argc)
    return 0;
  for (size_t i = 0; words[i]; i++)
    if (!strcmp(argv[index], words[i]))
      return i;
  fputs("choose one of:", stderr);
  for (size_t i = 0; words[i]; i++)
    fprintf(stderr, " %s", words[i]);
  fputc('\n', stderr);
  fail("%s is none of them", argv[index]);
}

/* ---- Figures: one JSON object, the last line of the output ----
 *
 * figure() for each, then figures_end(). A name ends in its unit: _ns, _s, _kib,
 * _per_s (there more is better); counts have none. Texts have to be the same on every
 * allocator. */

static bool figures_begun;

static inline void figure_name(const char *name) {
  printf("%s\"%s\": ", figures_begun ? ", " : "{", name);
  figures_begun = true;
}

static inline void figure(const char *name, double value) {
  if (!(value - value == 0))
    fail("%s is no number", name);
  figure_name(name);
  printf("%.10g", value);
}

static inline void figure_text(const char *name, const char *text) {
  figure_name(name);
  printf("\"%s\"", text);
}

static inline void figures_end(void) {
  puts("}");
  if (fflush(stdout))
    fail("the output cannot be written: %s", strerror(errno));
}

#endif
