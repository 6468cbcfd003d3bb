/* Gate: limits on memory, set before the program starts or by the program itself
 * while it runs: RLIMIT_AS (ulimit -v), RLIMIT_DATA, mlockall of what is there and
 * of what will come. Most of what a limit allows can be had; the rest is NULL and
 * ENOMEM; locked memory does not grow beyond what is in use.
 * Each case is a run of its own: limits.c CASE. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "gate.h"

enum { LIMIT_MIB = 400 };

static void *blocks[400000];

/* Allocates blocks of n bytes up to `most` bytes in all; how many there were. */
static size_t fill(size_t n, size_t most, bool use) {
  size_t count = 0;
  for (; count < COUNT(blocks) && count * n < most; count++) {
    errno = 0;
    if (!(blocks[count] = malloc(n))) {
      CHECK(errno == ENOMEM, "errno is %d", errno);
      break;
    }
    CHECK(errno == 0, "errno is %d although there was memory", errno);
    if (use)
      touch(blocks[count], n);
  }
  return count;
}
static void drain(size_t count) {
  errno = 0;
  while (count > 0)
    free(blocks[--count]);
  CHECK(errno == 0, "free sets errno to %d", errno);
}

static const size_t sizes[] = {2000, 30000, 300000, 3000000, 20000000};

/* A limit of LIMIT_MIB in all, at most `used` of it gone before: 2/3 of the rest
 * can be had at every size, and the limit holds. */
static void fill_to_the_limit(size_t used) {
  size_t rest = LIMIT_MIB * MIB - used;
  for (size_t i = 0; i < COUNT(sizes); i++)
    for (int round = 0; round < 2; round++) {
      size_t count = fill(sizes[i], 2 * rest, false);
      drain(count);
      CHECK(count * sizes[i] >= rest / 3 * 2,
            "%zu MiB in blocks of %zu, the limit leaves %zu MiB", count * sizes[i] / MIB,
            sizes[i], rest / MIB);
      CHECK(count * sizes[i] <= LIMIT_MIB * MIB, "the limit does not hold");
    }
}

static void limit(int resource) {
  struct rlimit l = {LIMIT_MIB * MIB, LIMIT_MIB * MIB};
  CHECK(setrlimit(resource, &l) == 0, "setrlimit");
}
static size_t data_kib(void) { return status_kib("/proc/self/status", "\nVmData:"); }

static void address_space_at_start(void) { fill_to_the_limit(address_space_kib() * KIB); }
static void data_at_start(void) { fill_to_the_limit(data_kib() * KIB); }

/* What is reserved by now may be more than the limit: nothing new can be mapped
 * then, but there is memory in what is reserved, and nothing breaks. */
static void address_space_while_running(void) {
  size_t warm = fill(1000, 50 * MIB, true);
  limit(RLIMIT_AS);
  drain(warm);
  size_t used = address_space_kib() * KIB;
  if (used < LIMIT_MIB * MIB / 2)
    fill_to_the_limit(used);
  for (size_t i = 0; i < COUNT(sizes); i++) {
    size_t count = fill(sizes[i], 30 * MIB, true); /* what was freed is there */
    drain(count);
    CHECK(count * sizes[i] >= 30 * MIB, "only %zu MiB in blocks of %zu",
          count * sizes[i] / MIB, sizes[i]);
  }
  drain(fill(500, 2000 * MIB, false));
  drain(fill(20000, 2000 * MIB, false));
  CHECK(!malloc(2000 * MIB) && errno == ENOMEM, "the limit does not hold");
}
static void data_while_running(void) {
  size_t warm = fill(1000, 50 * MIB, true);
  limit(RLIMIT_DATA);
  drain(warm);
  fill_to_the_limit(data_kib() * KIB);
}

/* Locked memory is resident as soon as it is mapped, so what the allocator maps
 * ahead costs memory. */
static void use_locked(size_t before) {
  size_t count = fill(100, 20 * MIB, false);
  size_t locked = resident_kib() / KIB;
  CHECK(locked <= before + 20 + 40, "%zu MiB are resident for 20, %zu before", locked,
        before);
  drain(count);
  for (int round = 0; round < 20; round++)
    for (size_t i = 0; i < COUNT(sizes); i++)
      drain(fill(sizes[i], 40 * MIB, true));
  locked = resident_kib() / KIB;
  CHECK(locked <= before + 40 + 80, "%zu MiB are resident, %zu before, 40 used", locked,
        before);
}
static void lock_now_and_later(void) {
  size_t before = resident_kib() / KIB;
  free(malloc(1));
  CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall: %s", strerror(errno));
  use_locked(before);
}
static void lock_while_running(void) {
  size_t count = fill(700, 100 * MIB, true);
  drain(count);
  count = fill(70000, 100 * MIB, true);
  CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall: %s", strerror(errno));
  drain(count);
  use_locked(resident_kib() / KIB);
}
/* Without privileges only some memory may be locked; the rest is not to be had. */
static void lock_with_a_limit(void) {
  struct rlimit l;
  CHECK(getrlimit(RLIMIT_MEMLOCK, &l) == 0, "getrlimit");
  l.rlim_cur = l.rlim_max < 64 * MIB ? l.rlim_max : 64 * MIB;
  CHECK(setrlimit(RLIMIT_MEMLOCK, &l) == 0, "setrlimit");
  size_t least = l.rlim_cur / 8, warm = fill(3000, least, true);
  if (setgid(65534) != 0 || setuid(65534) != 0)
    skip("needs to be root to give up being root");
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
    /* what the allocator has reserved counts: MCL_CURRENT fails cleanly */
    CHECK(errno == ENOMEM, "mlockall: %s", strerror(errno));
    CHECK(mlockall(MCL_FUTURE) == 0, "mlockall: %s", strerror(errno));
  }
  drain(warm);
  for (size_t i = 0; i < COUNT(sizes); i++) {
    size_t count = fill(sizes[i], 1000 * MIB, true);
    CHECK(count * sizes[i] < 1000 * MIB, "more than the limit was locked");
    drain(count);
  }
  size_t count = fill(3000, least, true);
  CHECK(count >= warm, "no memory after it was freed");
  drain(count);
}

static const struct {
  const char *name;
  int resource; /* set before the program starts, or -1 */
  void (*run)(void);
} cases[] = {
    {"address_space_at_start", RLIMIT_AS, address_space_at_start},
    {"data_at_start", RLIMIT_DATA, data_at_start},
    {"address_space_while_running", -1, address_space_while_running},
    {"data_while_running", -1, data_while_running},
    {"lock_now_and_later", -1, lock_now_and_later},
    {"lock_while_running", -1, lock_while_running},
    {"lock_with_a_limit", -1, lock_with_a_limit},
};

int main(int argc, char **argv) {
  gate_begin(300);
  CHECK(argc > 1, "usage: limits CASE");
  bool limited = argc > 2;
  for (size_t i = 0; i < COUNT(cases); i++) {
    if (strcmp(cases[i].name, argv[1]) != 0)
      continue;
    if (cases[i].resource >= 0 && !limited) { /* set it, then start again under it */
      limit(cases[i].resource);
      execl("/proc/self/exe", argv[0], argv[1], "limited", (char *)NULL);
      CHECK(false, "exec: %s", strerror(errno));
    }
    if (strncmp(argv[1], "lock", 4) == 0 && geteuid() != 0)
      skip("locks more memory than an ordinary user may");
    cases[i].run();
    return 0;
  }
  CHECK(false, "no such case: %s", argv[1]);
}
