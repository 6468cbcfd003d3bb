/* What the unit tests share: cmocka, children, other threads, and questions to the
 * system that don't go through masu. Each test program has the name of the module
 * that it tests. */
#ifndef MASU_UNIT_H
#define MASU_UNIT_H

#include "base/atomic.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Address and thread sanitizers reserve terabytes: limits on address space and
 * figures of resident memory mean nothing under them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* In children and in other threads, where cmocka's assertions cannot return from
 * the test. Ends the program. */
#define REQUIRE(condition)                                                             \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      dprintf(STDERR_FILENO, "%s:%d: required: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                        \
    }                                                                                  \
  } while (0)

/* Runs body in a child without any fork handler, and fails unless that comes to its
 * end. Nothing that the child limits or changes reaches the other tests. */
__attribute__((unused)) static void in_child(void (*body)(void)) {
  pid_t child = _Fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(300);
    body();
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

/* From now on this process may map `more` bytes beyond what it has. */
__attribute__((unused)) static void limit_address_space(size_t more) {
  unsigned long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  REQUIRE(f && fscanf(f, "%lu", &pages) == 1);
  fclose(f);
  struct rlimit limit = {pages * (size_t)sysconf(_SC_PAGESIZE) + more, RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

__attribute__((unused)) static void unlimit_address_space(void) {
  struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Silences stderr, where a check that is meant to fail reports; give what it returns
 * to stderr_restore. */
__attribute__((unused)) static int stderr_silence(void) {
  int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
  dup2(null, STDERR_FILENO);
  close(null);
  return saved;
}

__attribute__((unused)) static void stderr_restore(int saved) {
  dup2(saved, STDERR_FILENO);
  close(saved);
}

/* ---- What the system says about an address ---- */

/* The system reads and writes the byte in our place, so nothing faults. */
__attribute__((unused)) static bool is_readable(const void *p) {
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  bool ok = syscall(SYS_write, fds[1], p, 1) == 1;
  close(fds[0]);
  close(fds[1]);
  return ok;
}

/* The byte keeps its value. */
__attribute__((unused)) static bool is_writable(void *p) {
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  bool ok = syscall(SYS_write, fds[1], p, 1) == 1 && syscall(SYS_read, fds[0], p, 1) == 1;
  close(fds[0]);
  close(fds[1]);
  return ok;
}

__attribute__((unused)) static bool is_mapped(const void *p) {
  unsigned char resident;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return syscall(SYS_mincore, (uintptr_t)p & ~(page - 1), page, &resident) == 0;
}

__attribute__((unused)) static size_t resident_pages(const void *p, size_t size) {
  static unsigned char resident[1 << 16];
  size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
  assert_true(size / page <= sizeof resident);
  assert_int_equal(syscall(SYS_mincore, p, size, resident), 0);
  for (size_t i = 0; i < size / page; i++)
    n += resident[i] & 1;
  return n;
}

__attribute__((unused)) static bool all_bytes(const void *p, size_t size, int value) {
  const unsigned char *bytes = p;
  for (size_t i = 0; i < size; i++)
    if (bytes[i] != (unsigned char)value)
      return false;
  return true;
}

/* Not by the C library's names: the sanitizers have them do nothing. */
__attribute__((unused)) static bool lock_in_memory(void *p, size_t size) {
  return syscall(SYS_mlock, p, size) == 0;
}
__attribute__((unused)) static void unlock_in_memory(void *p, size_t size) {
  syscall(SYS_munlock, p, size);
}

/* ---- Single steps ---- */

#ifdef __x86_64__
/* From here on, or no more, SIGTRAP comes after each instruction. Sets or clears the trap flag, below
 * the red zone. */
#define STEP_BY_STEP                                                              \
  __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; " \
                   "lea 128(%%rsp), %%rsp" ::                                     \
                       : "memory", "cc")
#define AT_FULL_SPEED                                                               \
  __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; " \
                   "lea 128(%%rsp), %%rsp" ::                                       \
                       : "memory", "cc")
#endif

/* ---- Time and chance ---- */

__attribute__((unused)) static uint64_t clock_ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

__attribute__((unused)) static void sleep_ms(unsigned ms) {
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  nanosleep(&t, NULL);
}

/* The processors that this program may use. */
static cpu_set_t processors;
__attribute__((constructor)) static void processors_find(void) {
  sched_getaffinity(0, sizeof processors, &processors);
}

/* Moves the calling thread to the n-th of them, counted round; a busy system likes to
 * put threads that talk to each other on one, where nothing happens at the same time. */
__attribute__((unused)) static void run_on(unsigned n) {
  int count = CPU_COUNT(&processors), cpu = 0;
  if (count < 2)
    return;
  for (unsigned left = n % (unsigned)count; left || !CPU_ISSET(cpu, &processors); cpu++)
    left -= CPU_ISSET(cpu, &processors) != 0;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

__attribute__((unused)) static void run_anywhere(void) {
  sched_setaffinity(0, sizeof processors, &processors);
}

/* `threads` threads meet, and go on at nearly the same moment. arrived starts at 0 and
 * counts the rounds. */
__attribute__((unused)) static void meet(atomic_u32 *arrived, uint32_t threads) {
  uint32_t mine = add_relaxed(arrived, 1), all = (mine / threads + 1) * threads;
  for (unsigned spins = 0; (int32_t)(load_acquire(arrived) - all) < 0; spins++)
    if (spins > 2000)
      sched_yield(); /* fewer processors than threads */
}

/* xorshift64*; the same numbers in every run. */
__attribute__((unused)) static uint64_t random_next(uint64_t *state) {
  uint64_t x = *state;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return (x * 0x2545f4914f6cdd1d) >> 16;
}

#endif
