/* gate: what the gate programs share. Each is a plain program that knows nothing
 * of masu, runs under LD_PRELOAD and exits with 0 when the gate holds. With
 * MASU_TEST_ANY=1 in the environment a program accepts any allocator, to see
 * what others do. Nothing here allocates. */
#ifndef MASU_TESTS_GATE_H
#define MASU_TESTS_GATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define SKIP_CODE 77 /* ctest's SKIP_RETURN_CODE */
#define COUNT(array) (sizeof(array) / sizeof *(array))

#define CHECK(condition, ...)                                    \
  do {                                                           \
    if (!(condition)) {                                          \
      dprintf(2, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      dprintf(2, __VA_ARGS__);                                   \
      dprintf(2, "\n");                                          \
      _exit(1);                                                  \
    }                                                            \
  } while (0)

static inline void skip(const char *why) {
  dprintf(2, "skipped: %s\n", why);
  _exit(SKIP_CODE);
}

static inline void watchdog_bites(int signal_number) {
  (void)signal_number;
  static const char text[] = "watchdog: no end in sight, a deadlock?\n";
  if (write(2, text, sizeof text - 1) < 0)
    _exit(4);
  _exit(3);
}
/* A deadlock ends the process with a message. The alarm is not inherited by
 * fork: children set their own. */
static inline void watchdog(unsigned seconds) {
  signal(SIGALRM, watchdog_bites);
  alarm(seconds);
}

/* First line of main: is this program on masu at all? */
static inline void gate_begin(unsigned seconds) {
  watchdog(seconds);
  if (!getenv("MASU_TEST_ANY"))
    CHECK(dlsym(RTLD_DEFAULT, "masu_malloc"), "masu is not preloaded");
}

/* The whole file, cut to the buffer. Read in one go where the kernel lets us. */
static inline size_t read_file(const char *path, char *buffer, size_t size) {
  size_t length = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  for (ssize_t n; fd >= 0 && length < size - 1; length += (size_t)n)
    if ((n = read(fd, buffer + length, size - 1 - length)) <= 0)
      break;
  if (fd >= 0)
    close(fd);
  buffer[length] = 0;
  return length;
}
static inline bool write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  return close(fd) == 0 && ok;
}
static inline size_t status_kib(const char *file, const char *field) {
  char text[8192];
  read_file(file, text, sizeof text);
  const char *at = strstr(text, field);
  return at ? strtoul(at + strlen(field), NULL, 10) : 0;
}
/* Exact, unlike VmRSS in status. */
static inline size_t resident_kib(void) {
  return status_kib("/proc/self/smaps_rollup", "\nRss:");
}
static inline size_t address_space_kib(void) {
  return status_kib("/proc/self/status", "\nVmSize:");
}
static inline size_t mappings(void) {
  static char text[4 << 20];
  size_t lines = 0;
  for (size_t i = read_file("/proc/self/maps", text, sizeof text); i > 0; i--)
    lines += text[i - 1] == '\n';
  return lines;
}

static inline void sleep_ms(long ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&left, &left) != 0) {
  }
}
static inline double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state * 0x2545f4914f6cdd1dull;
}

/* Sizes as programs have them: mostly small, some of every other kind. */
static inline size_t random_size(uint64_t *state) {
  uint64_t r = next_random(state) >> 8, kind = r % 1000;
  r >>= 10;
  return kind < 900   ? 1 + r % 1000
         : kind < 980 ? 1000 + r % 30000
         : kind < 997 ? 33000 + r % 300000
                      : 1000000 + r % 3000000;
}

/* A variable of early.so, which is preloaded and not linked. */
#define EARLY(type, name) (*(type *)early_symbol(#name))
static inline void *early_symbol(const char *name) {
  void *p = dlsym(RTLD_DEFAULT, name);
  CHECK(p, "early.so is not preloaded");
  return p;
}

/* One word per page is written, so that the block is resident. */
static inline void touch(void *p, size_t n) {
  for (size_t i = 0; i < n; i += 4096)
    ((volatile char *)p)[i] = 1;
  if (n)
    ((volatile char *)p)[n - 1] = 1;
}

/* A mark at both ends of a block (at least 1 byte long). */
static inline void stamp(void *p, size_t n, unsigned char mark) {
  memset(p, mark, n < 64 ? n : 64);
  ((unsigned char *)p)[n - 1] = mark;
}
static inline bool stamped(const void *p, size_t n, unsigned char mark) {
  const unsigned char *bytes = (const unsigned char *)p;
  for (size_t i = 0; i < n && i < 64; i++)
    if (bytes[i] != mark)
      return false;
  return bytes[n - 1] == mark;
}

static inline pthread_t start(void *(*body)(void *), void *argument) {
  pthread_t thread;
  int fault = pthread_create(&thread, NULL, body, argument);
  CHECK(fault == 0, "pthread_create: %s", strerror(fault));
  return thread;
}
static inline void finish(pthread_t thread) {
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

/* A child's end; `what` is for the message. */
/* Allocates and frees some blocks of all sizes. */
static inline void churn(uint64_t *random) {
  void *blocks[40];
  for (size_t i = 0; i < COUNT(blocks); i++)
    CHECK((blocks[i] = malloc(random_size(random) + 1)), "no memory");
  for (size_t i = 0; i < COUNT(blocks); i++)
    free(blocks[i]);
}

static inline void wait_for(pid_t child, const char *what) {
  int status;
  CHECK(child > 0, "%s: fork: %s", what, strerror(errno));
  CHECK(waitpid(child, &status, 0) == child, "%s: %s", what, strerror(errno));
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: child ended with %s %d", what,
        WIFSIGNALED(status) ? "signal" : "code",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

#endif
