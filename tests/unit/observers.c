/* Observers in moments that are rare: their thread, or another one, is just then inside masu. */
#include "unit.h"

#include <signal.h>

#include "api/thread.h"
#include "masu/cpu.h"
#include "masu/leaks.h"
#include "masu/pool.h"
#include "masu/profile.h"
#include "masu/stats.h"
#include "os/lock.h"
#include "os/os.h"
#include "trap.h"

enum { DEADLINE_MS = 20000 };

/* ---- Files ---- */

static atomic_u32 asked;

static void *allocates(void *unused) {
  for (int i = 0; i < 1000; i++)
    masu_free(masu_malloc(100));
  return unused;
}

/* Another thread is sampled while the file is made. */
static long let_another_allocate(long number, const long *arguments) {
  pthread_t other;
  (void)number, (void)arguments;
  if (add_relaxed(&asked, 1) == 0)
    REQUIRE(pthread_create(&other, NULL, allocates, NULL) == 0 && pthread_join(other, NULL) == 0);
  return -EPERM;
}

static void write_while_another_allocates(void) {
  char path[64];
  alarm(DEADLINE_MS / 1000);
  snprintf(path, sizeof path, "/tmp/masu-observers.%d", getpid());
  REQUIRE(masu_profile_start(1) == 0);
  allocates(NULL);
  trap_calls(SYS_ioctl, SYS_ioctl, let_another_allocate); /* which asks for mappings */
  REQUIRE(masu_profile_write(path) == 0 && unlink(path) == 0);
  REQUIRE(load_relaxed(&asked) > 0);
}

static void threads_are_sampled_while_a_profile_is_written(void **state) {
  (void)state;
  in_child(write_while_another_allocates);
}

/* The disk may be slow, and others wait for the lock. */
static long without_a_lock(long number, const long *arguments) {
  (void)number, (void)arguments;
  REQUIRE(!thread_holding);
  add_relaxed(&asked, 1);
  return -EACCES;
}

static void write_while_a_pool_grows(void) {
  const uint64_t mib = 1;
  REQUIRE(masu_ctl("profile_growth", NULL, &mib) == 0 && masu_profile_start(1) == 0);
  masu_pool *pool = masu_pool_create(40000, 0, MASU_POOL_SHARED);
  trap_calls(SYS_openat, SYS_openat, without_a_lock);
  for (int i = 0; i < 1000; i++)
    REQUIRE(masu_pool_alloc(pool) != NULL);
  masu_free(masu_malloc(100));
  REQUIRE(load_relaxed(&asked) > 0);
}

static void no_file_is_written_with_a_lock(void **state) {
  (void)state;
  in_child(write_while_a_pool_grows);
}

/* ---- Statistics ---- */

static void *takes_and_gives(void *unused) {
  void *kept[100];
  for (size_t i = 0; i < 100; i++)
    REQUIRE((kept[i] = masu_malloc(1 + i * i * i)) != NULL);
  void *large = masu_malloc(40 << 20);
  REQUIRE(large != NULL);
  masu_free(large);
  for (size_t i = 0; i < 100; i++)
    masu_free(kept[i]);
  return unused;
}

/* Another thread works and ends, with slabs and large blocks of its own, wherever who reads asks the system. */
static long let_another_work(long number, const long *arguments) {
  static bool inside;
  pthread_t other;
  (void)number, (void)arguments;
  if (!inside) {
    inside = true;
    add_relaxed(&asked, 1);
    REQUIRE(pthread_create(&other, NULL, takes_and_gives, NULL) == 0 && pthread_join(other, NULL) == 0);
    inside = false;
  }
  return -ENOMEM;
}

static void read_while_another_works(void) {
  masu_stats s;
  masu_resident r;
  alarm(DEADLINE_MS / 1000);
  takes_and_gives(NULL);
  void *small = masu_malloc(100), *large = masu_malloc(4 << 20);
  trap_calls(SYS_mincore, SYS_openat, let_another_work);
  REQUIRE(masu_stats_read(&s, sizeof s) == 0);
  REQUIRE(load_relaxed(&asked) > 0);
  store_relaxed(&asked, 0);
  REQUIRE(masu_stats_measure(&r, sizeof r) == 0);
  REQUIRE(load_relaxed(&asked) > 2);
  masu_free(small);
  masu_free(large);
}

static void reading_stops_nobody(void **state) {
  (void)state;
  in_child(read_while_another_works);
}

/* ---- masu-live ---- */

static __thread bool starts_live;
static atomic_u32 starting;

/* From when the page gets its memory until its file is removed, as no thread could be made, nobody else may be there. */
static long count_who_starts(long number, const long *arguments) {
  if (number == SYS_pwritev) {
    if (!starts_live) {
      REQUIRE(add_relaxed(&starting, 1) == 0);
      add_relaxed(&asked, 1);
    }
    starts_live = true;
    long size = 0;
    for (long i = 0; i < arguments[2]; i++)
      size += (long)((const struct iovec *)arguments[1])[i].iov_len;
    return ftruncate((int)arguments[0], arguments[3] + size) == 0 ? size : -errno;
  }
  if (starts_live)
    sub_relaxed(&starting, 1);
  starts_live = false;
  return unlink((const char *)arguments[1]) == 0 ? 0 : -errno;
}

/* In the calling thread, and without a signal: none gets through while masu makes a thread. */
static void forbid_threads(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void *starts_in_vain(void *unused) {
  enum { TIMES = 40000 };
  const uint64_t on = 1;
  forbid_threads();
  for (int i = 0; i < TIMES; i++)
    REQUIRE(masu_ctl("live", NULL, &on) == 0);
  return unused;
}

static void start_it_twice(void) {
  pthread_t other[2];
  REQUIRE(freopen("/dev/null", "w", stderr)); /* a line for each time */
  alarm(60);
  const uint64_t off = 0;
  masu_ctl("helper", NULL, &off);
  trap_calls(SYS_pwritev, SYS_unlinkat, count_who_starts);
  for (int i = 0; i < 2; i++)
    REQUIRE(pthread_create(&other[i], NULL, starts_in_vain, NULL) == 0);
  for (int i = 0; i < 2; i++)
    REQUIRE(pthread_join(other[i], NULL) == 0);
  REQUIRE(load_relaxed(&asked) > 0);
}

static void masu_live_starts_once(void **state) {
  (void)state;
  in_child(start_it_twice);
}

/* ---- Signal handlers ---- */

/* It stays open. */
static void end_a_region_inside(void) {
  uint64_t begun = masu_leaks_begin();
  masu_leaks found;
  alarm(DEADLINE_MS / 1000);
  thread_busy = true;
  lock_take(LOCK_SAMPLES);
  REQUIRE(masu_leaks_end(begun, &found, sizeof found) == EAGAIN);
  REQUIRE(masu_leaks_end(begun, NULL, 0) == EAGAIN);
  lock_drop(LOCK_SAMPLES);
  thread_busy = false;
  REQUIRE(load_relaxed(&budget_interval) == 1);
  REQUIRE(masu_leaks_end(begun, NULL, 0) == 0);
  REQUIRE(load_relaxed(&budget_interval) == 0);
}

static void no_region_ends_inside(void **state) {
  (void)state;
  in_child(end_a_region_inside);
}

/* ---- Children of signal handlers ---- */

static int status_of(pid_t child) {
  int status = -1, ms = 0;
  pid_t ended;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0 && ms++ < DEADLINE_MS)
    sleep_ms(1);
  if (ended == 0) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  return status;
}

/* As from a handler that interrupted this thread while it had the lock. */
static void fork_inside(lock_rank rank, void (*body)(void)) {
  thread_busy = true;
  lock_take(rank);
  pid_t child = fork();
  lock_drop(rank);
  thread_busy = false;
  if (child == 0) {
    body();
    _exit(0);
  }
  assert_int_equal(status_of(child), 0);
}

static size_t cpu_samples(void) {
  masu_cpu_figures f;
  REQUIRE(masu_cpu_read(&f, sizeof f) == 0);
  return f.samples;
}

static void profiles_anew(void) {
  REQUIRE(masu_cpu_start(1000) == 0);
  REQUIRE(cpu_samples() < 50);
}

static void no_cpu_profile_in_a_child_from_inside(void **state) {
  (void)state;
  assert_int_equal(masu_cpu_start(1000), 0);
  while (cpu_samples() < 100)
    ;
  fork_inside(LOCK_CPU, profiles_anew);
  masu_cpu_stop();
}

static void nothing(void) {}

static void no_page_in_a_child_from_inside(void **state) {
  const uint64_t on = 1, off = 0;
  (void)state;
  masu_ctl("live", NULL, &on);
  fork_inside(LOCK_FORMS, nothing);
  masu_ctl("live", NULL, &off);
}

int main(void) {
#ifdef __SANITIZE_THREAD__ /* which holds signals back, and forbids threads in the child */
  return 77;
#endif
  alarm(300);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_are_sampled_while_a_profile_is_written),
      cmocka_unit_test(no_file_is_written_with_a_lock),
      cmocka_unit_test(reading_stops_nobody),
      cmocka_unit_test(masu_live_starts_once),
      cmocka_unit_test(no_region_ends_inside),
      /* From here on there are threads of masu's own. */
      cmocka_unit_test(no_cpu_profile_in_a_child_from_inside),
      cmocka_unit_test(no_page_in_a_child_from_inside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
