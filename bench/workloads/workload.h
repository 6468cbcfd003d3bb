/* What the workload programs share: clock, memory figures, random numbers,
 * arguments, and one way to fail. They are ordinary programs that know nothing of
 * masu; the allocator is chosen from outside, by LD_PRELOAD. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A figure of /proc/self/status in KiB ("VmRSS", "VmHWM"). */
static inline long status_kib(const char *name) {
  char line[256];
  long kib = -1;
  FILE *status = fopen("/proc/self/status", "r");
  if (!status)
    fail("/proc/self/status: %s", strerror(errno));
  size_t length = strlen(name);
  while (kib < 0 && fgets(line, sizeof line, status))
    if (!strncmp(line, name, length) && line[length] == ':')
      kib = strtol(line + length + 1, NULL, 10);
  fclose(status);
  return kib;
}

static inline uint32_t xorshift32(uint32_t *state) {
  uint32_t x = *state;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return *state = x;
}

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

#endif
