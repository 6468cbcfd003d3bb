/* The contract of os/os.h, on the platform that this machine has. */
#include "unit.h"

#include <dlfcn.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "os/os.h"
#include "trap.h"

static size_t page; /* of the system */

static int setup(void **state) {
  (void)state;
  alarm(300);
  page = (size_t)sysconf(_SC_PAGESIZE);
  return 0;
}

static size_t mapped_bytes(void) {
  unsigned long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%lu", &pages), 1);
  fclose(f);
  return pages * page;
}

/* ---- Reserving and committing ---- */

static void the_page_size(void **state) {
  (void)state;
  assert_int_equal(os_page(), page);
  assert_int_equal(os_page(), page); /* the remembered one */
}

static void reserved_memory_is_out_of_reach(void **state) {
  (void)state;
  char *p = os_reserve(16 * page, page);
  assert_non_null(p);
  for (int i = 0; i < 16; i++) {
    assert_true(is_mapped(p + i * page));
    assert_false(is_readable(p + i * page));
    assert_false(is_writable(p + i * page));
  }
  os_unmap(p, 16 * page);
  assert_false(is_mapped(p));
}

static void committed_memory_is_zero(void **state) {
  (void)state;
  char *p = os_reserve(16 * page, page);
  assert_non_null(p);
  assert_true(os_commit(p + 4 * page, 4 * page));
  assert_false(is_readable(p + 3 * page));
  assert_false(is_readable(p + 8 * page));
  assert_true(all_bytes(p + 4 * page, 4 * page, 0));
  memset(p + 4 * page, 1, 4 * page);
  assert_true(os_commit(p, 16 * page)); /* what was committed keeps its contents */
  assert_true(all_bytes(p + 4 * page, 4 * page, 1));
  assert_true(all_bytes(p, 4 * page, 0));
  os_unmap(p, 16 * page);
}

static void alignment_leaves_nothing_over(void **state) {
  static const size_t sizes[] = {1, 5, 16, 512, 800};
  (void)state;
  for (size_t align = page; align <= 1024 * MIB; align *= 2)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      size_t size = sizes[i] * page, before = mapped_bytes();
      char *reserved = os_reserve(size, align), *mapped = os_map(size, align);
      assert_non_null(reserved);
      assert_non_null(mapped);
      assert_int_equal((uintptr_t)reserved % align, 0);
      assert_int_equal((uintptr_t)mapped % align, 0);
      if (!SANITIZED)
        assert_int_equal(mapped_bytes() - before, 2 * size);
      assert_true(is_mapped(reserved) && is_mapped(reserved + size - 1));
      assert_true(all_bytes(mapped, size, 0));
      memset(mapped, 1, size);
      os_unmap(reserved, size);
      os_unmap(mapped, size);
      if (!SANITIZED)
        assert_int_equal(mapped_bytes(), before);
    }
}

static void too_much_is_refused(void **state) {
  (void)state;
  errno = 77;
  assert_null(os_reserve((size_t)1 << 50, page));
  assert_null(os_map((size_t)1 << 50, page));
  assert_null(os_map(page, (size_t)1 << 50));
  assert_null(
      os_reserve(SIZE_MAX & ~(page - 1), (size_t)1 << 32)); /* the sum overflows */
  assert_int_equal(errno, 77);
}

static void under_a_limit(void) {
  errno = 77;
  REQUIRE(!os_memory_limited());
  limit_address_space(64 * MIB);
  errno = 77;
  REQUIRE(os_memory_limited());
  char *p = os_reserve(32 * MIB, 2 * MIB);
  REQUIRE(p != NULL && os_commit(p, 32 * MIB));
  REQUIRE(os_reserve(48 * MIB, 2 * MIB) == NULL);
  REQUIRE(os_map(48 * MIB, page) == NULL);
  REQUIRE(!os_grow_in_place(p, 32 * MIB, 96 * MIB));
  os_unmap(p, 32 * MIB);
  REQUIRE((p = os_map(48 * MIB, page)) != NULL);
  REQUIRE(errno == 77);
  os_unmap(p, 48 * MIB);
  unlimit_address_space();
  REQUIRE(!os_memory_limited());
  struct rlimit data = {1024 * MIB, RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_DATA, &data) == 0);
  REQUIRE(os_memory_limited());
}

static void a_limit_set_later_is_met(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(under_a_limit);
}

/* ---- Giving back ---- */

static void purged_memory_is_zero(void **state) {
  (void)state;
  char *p = os_map(64 * page, page);
  assert_non_null(p);
  os_avoid_huge_pages(p, 64 * page);
  memset(p, 1, 64 * page);
  assert_int_equal(resident_pages(p, 64 * page), 64);
  assert_true(os_purge(p + 8 * page, 16 * page));
  assert_int_equal(resident_pages(p, 64 * page), 48);
  assert_true(all_bytes(p, 8 * page, 1));
  assert_true(all_bytes(p + 8 * page, 16 * page, 0));
  assert_true(all_bytes(p + 24 * page, 40 * page, 1));
  memset(p + 8 * page, 2, 16 * page);
  os_unmap(p, 64 * page);
}

static void locked_memory_is_kept(void **state) {
  (void)state;
  char *p = os_map(2 * page, page);
  assert_non_null(p);
  memset(p, 1, 2 * page);
  if (!lock_in_memory(p, page))
    skip();
  errno = 77;
  assert_false(os_purge(p, page));
  assert_int_equal(errno, 77);
  assert_true(all_bytes(p, 2 * page, 1));
  unlock_in_memory(p, page);
  assert_true(os_purge(p, 2 * page));
  assert_true(all_bytes(p, 2 * page, 0));
  os_unmap(p, 2 * page);
}

/* The flags of the mapping at p, two letters each. */
static bool has_flag(const void *p, const char *flag) {
  FILE *f = fopen("/proc/self/smaps", "r");
  char line[512];
  unsigned long first, end;
  bool here = false, found = false;
  assert_non_null(f);
  while (fgets(line, sizeof line, f))
    if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
      here = first <= (uintptr_t)p && (uintptr_t)p < end;
    else if (here && !strncmp(line, "VmFlags:", 8))
      found = strstr(line, flag) != NULL;
  fclose(f);
  return found;
}

static void huge_pages_are_avoided(void **state) {
  (void)state;
  char *p = os_map(4 * MIB, 2 * MIB);
  assert_non_null(p);
  if (madvise(p, page, MADV_NOHUGEPAGE) != 0)
    skip(); /* a system without huge pages */
  assert_false(has_flag(p + 2 * MIB, " nh"));
  os_avoid_huge_pages(p, 4 * MIB);
  assert_true(has_flag(p + 2 * MIB, " nh"));
  os_unmap(p, 4 * MIB);
}

static long refused(long number, const long *arguments) {
  (void)number, (void)arguments;
  return -EPERM;
}

static void ask_in_a_sandbox(void) {
  trap_calls(SYS_prctl, SYS_prctl, refused);
  errno = 0;
  os_gives_huge_pages();
  REQUIRE(errno == 0);
}

static void a_sandbox_is_not_heard_of(void **state) {
  (void)state;
  in_child(ask_in_a_sandbox);
}

static void residence_is_seen(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  char *p = os_map(16 * MIB, page);
  assert_non_null(p);
  os_avoid_huge_pages(p, 16 * MIB);
  size_t before = os_resident();
  memset(p, 1, 16 * MIB);
  size_t during = os_resident();
  os_unmap(p, 16 * MIB);
  assert_in_range(during - before, 15 * MIB, 18 * MIB);
  assert_true(os_resident() <= before + 1 * MIB);
}

/* What was never touched, what was, what nobody may read, and nothing. */
static void see_what_is_readable(void) {
  enum { PAGES = 16, GUARD = 9 };
  char *p = os_map(PAGES * page, page);
  REQUIRE(p != NULL && mprotect(p + GUARD * page, page, PROT_NONE) == 0);
  memset(p, 1, page);
  errno = 77;
  REQUIRE(os_are_readable(p, GUARD) && os_are_readable(p + (GUARD + 1) * page, PAGES - GUARD - 1));
  for (size_t first = 0; first < PAGES; first++)
    for (size_t pages = 1; first + pages <= PAGES; pages++)
      REQUIRE(os_are_readable(p + first * page, pages) == (first > GUARD || first + pages <= GUARD));
  REQUIRE(all_bytes(p + page, (GUARD - 1) * page, 0));
  os_unmap(p + 2 * page, page);
  REQUIRE(os_are_readable(p, 2) && !os_are_readable(p, 3) && !os_are_readable(p + 2 * page, 1));
  REQUIRE(errno == 77);
}

static long no_such_advice(long number, const long *arguments) {
  (void)number, (void)arguments;
  return -EINVAL;
}
static void see_before_linux_5_14(void) {
  trap_calls(SYS_madvise, SYS_madvise, no_such_advice);
  see_what_is_readable();
}

static long any_advice_is_good(long number, const long *arguments) {
  (void)number, (void)arguments;
  return 0;
}
static void see_where_advice_is_ignored(void) {
  trap_calls(SYS_madvise, SYS_madvise, any_advice_is_good);
  see_what_is_readable();
}

static void what_can_be_read(void **state) {
  (void)state;
  if (!SANITIZED) {
    in_child(see_before_linux_5_14);
    in_child(see_where_advice_is_ignored);
  }
  see_what_is_readable();
}

/* ---- Growing and moving ---- */

static void growing_in_place(void **state) {
  (void)state;
  char *p = os_map(8 * page, page);
  assert_non_null(p);
  os_unmap(p + 4 * page, 4 * page); /* room */
  memset(p, 1, 4 * page);
  assert_true(os_grow_in_place(p, 4 * page, 8 * page));
  assert_true(all_bytes(p, 4 * page, 1));
  assert_true(all_bytes(p + 4 * page, 4 * page, 0));
  memset(p + 4 * page, 1, 4 * page);
  os_unmap(p, 8 * page);
}

static void nothing_is_overgrown(void **state) {
  (void)state;
  char *p = os_reserve(8 * page, page); /* another mapping right behind */
  assert_non_null(p);
  assert_true(os_commit(p, 4 * page));
  memset(p, 1, 4 * page);
  errno = 77;
  assert_false(os_grow_in_place(p, 4 * page, 6 * page));
  assert_int_equal(errno, 77);
  assert_true(all_bytes(p, 4 * page, 1));
  assert_false(is_readable(p + 4 * page));
  os_unmap(p, 8 * page);
}

static void move_to(size_t from_pages, size_t to_pages) {
  char *p = os_map(from_pages * page, page);
  char *target = os_reserve(to_pages * page, 64 * KIB);
  size_t kept = from_pages < to_pages ? from_pages : to_pages;
  assert_non_null(p);
  assert_non_null(target);
  for (size_t i = 0; i < from_pages; i++)
    memset(p + i * page, (int)i + 1, page);
  assert_true(os_move(p, from_pages * page, target, to_pages * page));
  assert_false(is_mapped(p));
  assert_false(is_mapped(p + (from_pages - 1) * page));
  for (size_t i = 0; i < kept; i++)
    assert_true(all_bytes(target + i * page, page, (int)i + 1));
  assert_true(all_bytes(target + kept * page, (to_pages - kept) * page, 0));
  memset(target, 9, to_pages * page);
  os_unmap(target, to_pages * page);
}

static void moving(void **state) {
  (void)state;
  move_to(8, 8);
  move_to(8, 64);
  move_to(64, 8);
}

static void move_what_is_not_there(void) {
  char *target = os_reserve(8 * page, page);
  char *p = os_map(4 * page, page);
  REQUIRE(p && target);
  os_unmap(p, 4 * page);
  errno = 77;
  REQUIRE(!os_move(p, 4 * page, target, 8 * page));
  REQUIRE(errno == 77);
}

static void a_refused_move(void **state) {
  (void)state;
  in_child(move_what_is_not_there);
}

/* ---- Time ---- */

static void the_clock(void **state) {
  (void)state;
  uint64_t before = os_now_ms(), last = before;
  for (int i = 0; i < 20000; i++) {
    uint64_t now = os_now_ms();
    assert_true(now >= last);
    last = now;
  }
  uint64_t exact = clock_ms(CLOCK_MONOTONIC);
  before = os_now_ms();
  os_sleep_ms(60);
  assert_in_range(clock_ms(CLOCK_MONOTONIC) - exact, 60, 5000);
  assert_in_range(os_now_ms() - before, 40, 5000);
}

/* ---- Threads ---- */

static atomic_u32 word;
static atomic_word other_self;

static void *wait_for_change(void *unused) {
  (void)unused;
  store_release(&other_self, os_thread_self());
  while (load_acquire(&word) == 1)
    os_wait(&word, 1, 0);
  return NULL;
}

static void waiting_and_waking(void **state) {
  pthread_t thread;
  clockid_t clock;
  (void)state;
  store_relaxed(&word, 1);
  assert_int_equal(pthread_create(&thread, NULL, wait_for_change, NULL), 0);
  sleep_ms(150);
  assert_int_equal(pthread_getcpuclockid(thread, &clock), 0);
  assert_in_range(clock_ms(clock), 0, 50); /* it sleeps */
  store_release(&word, 2);
  os_wake_one(&word);
  pthread_join(thread, NULL);
  assert_int_not_equal(os_thread_self(), 0);
  assert_int_equal(os_thread_self(), os_thread_self());
  assert_int_not_equal(os_thread_self(), load_acquire(&other_self));
}

static void waiting_ends_by_itself(void **state) {
  (void)state;
  store_relaxed(&word, 3);
  errno = 77;
  uint64_t before = clock_ms(CLOCK_MONOTONIC);
  os_wait(&word, 4, 0); /* has changed already */
  assert_in_range(clock_ms(CLOCK_MONOTONIC) - before, 0, 1000);
  before = clock_ms(CLOCK_MONOTONIC);
  os_wait(&word, 3, 40);
  assert_in_range(clock_ms(CLOCK_MONOTONIC) - before, 39, 5000);
  before = clock_ms(CLOCK_MONOTONIC);
  os_wait(&word, 3, 1050);
  assert_in_range(clock_ms(CLOCK_MONOTONIC) - before, 1049, 5000);
  assert_int_equal(errno, 77);
}

static struct {
  atomic_u32 done;
  sigset_t blocked, restored;
  char name[32];
  int detached;
  bool initial;
  unsigned threads, own;
  unsigned id;
} seen;

static void *look_around(void *argument) {
  REQUIRE(argument == NULL);
  pthread_attr_t attributes;
  REQUIRE(pthread_getattr_np(pthread_self(), &attributes) == 0);
  pthread_attr_getdetachstate(&attributes, &seen.detached);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, NULL, &seen.blocked);
  os_thread_name("masu-test");
  pthread_getname_np(pthread_self(), seen.name, sizeof seen.name);
  seen.initial = os_thread_is_initial();
  seen.threads = os_thread_count();
  seen.own = os_thread_own_count();
  seen.id = os_thread_id();
  os_thread_ends();
  pthread_sigmask(SIG_SETMASK, NULL, &seen.restored);
  store_release(&seen.done, 1);
  return NULL;
}

/* The thread is there after this. */
static unsigned own_before;
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
  static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  own_before = os_thread_own_count();
  if (!next)
    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
  return next(thread, attributes, body, argument);
}

static void a_thread_of_our_own(void **state) {
  sigset_t one, before, after;
  (void)state;
  unsigned threads = os_thread_count(); /* a sanitizer may have its own */
  assert_in_range(threads, 1, 3);
  assert_true(os_thread_is_initial());
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &one, NULL);
  pthread_sigmask(SIG_SETMASK, NULL, &before);
  assert_true(os_thread_start(look_around));
  pthread_sigmask(SIG_SETMASK, NULL, &after);
  while (!load_acquire(&seen.done))
    sleep_ms(1);
  assert_string_equal(seen.name, "masu-test");
  assert_int_equal(seen.detached, PTHREAD_CREATE_DETACHED);
  assert_false(seen.initial);
  assert_int_equal(seen.threads, threads + 1);
  assert_int_equal(own_before, 0);
  assert_int_equal(seen.own, 1);
  assert_int_equal(os_thread_own_count(), 0);
  assert_int_not_equal(seen.id, os_thread_id());
  assert_int_equal(os_thread_id(), getpid());
  for (int signal = 1; signal < 32; signal++) {
    if (signal != SIGKILL && signal != SIGSTOP)
      assert_int_equal(sigismember(&seen.blocked, signal), 1);
    assert_int_equal(sigismember(&after, signal), sigismember(&before, signal));
    assert_int_equal(sigismember(&seen.restored, signal), sigismember(&before, signal));
  }
  pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

/* ---- What is resident ---- */

static void resident_pages_of_a_range(void **state) {
  (void)state;
  const size_t size = 3000 * os_page(); /* more than one step */
  char *p = os_map(size, os_page());
  assert_non_null(p);
  os_avoid_huge_pages(p, size);
  assert_int_equal(os_resident_in(p, size), 0);
  p[0] = p[1500 * os_page()] = p[size - 1] = 1;
  assert_int_equal(os_resident_in(p, size), 3 * os_page());
  assert_int_equal(os_resident_in(p + os_page(), size - 2 * os_page()), os_page());
  os_unmap(p, size);
  assert_int_equal(os_resident_in(p, size), 0);
}

/* ---- Without the initial thread ---- */

static void *look_when_alone(void *initial) {
  char c;
  int why;
  pthread_join(*(pthread_t *)initial, NULL);
  while (os_file_read("/proc/self/maps", &c, 1, &why)) /* it has its memory a moment longer */
    sched_yield();
  REQUIRE(os_resident() > 0);
  REQUIRE(os_peak_resident() > 0);
  _exit(0);
}

static void end_the_initial_thread(void) {
  static pthread_t self, other;
  self = pthread_self();
  REQUIRE(pthread_create(&other, NULL, look_when_alone, &self) == 0);
  pthread_exit(NULL);
}

static void residence_without_the_initial_thread(void **state) {
  (void)state;
#ifdef __SANITIZE_THREAD__ /* which forbids threads in the child */
  skip();
#endif
  in_child(end_the_initial_thread);
}

/* ---- What the system says of threads ---- */

/* However long the list of groups is, and wherever the parts end that are read. */
static void with_many_groups(void) {
  enum { LEAST = 250, MOST = 420 };
  static gid_t groups[MOST];
  char blocked[OS_STATUS_MOST];
  for (gid_t i = 0; i < MOST; i++)
    groups[i] = 4000000000 + i;
  for (size_t count = LEAST; count <= MOST && setgroups(count, groups) == 0; count++) {
    REQUIRE(os_peak_resident() > 0);
    REQUIRE(os_thread_status(os_thread_id(), "SigBlk", blocked) == 0 && strlen(blocked) == 16);
  }
}

static void a_long_status(void **state) {
  char value[OS_STATUS_MOST];
  (void)state;
  errno = 77;
  assert_int_equal(os_thread_status(os_thread_id(), "Name", value), 0);
  assert_memory_equal(value, program_invocation_short_name, min_size(strlen(program_invocation_short_name), 15));
  assert_int_equal(os_thread_status(os_thread_id(), "Nam", value), ENODATA);
  assert_int_equal(os_thread_status(0x3fffff, "Name", value), ENOENT);
  assert_int_equal(errno, 77);
  in_child(with_many_groups);
}

/* ---- Process ---- */

static void the_environment(void **state) {
  (void)state;
  unsigned seen_variables = 0;
  for (char **variable = environ; *variable; variable++) {
    char name[256];
    size_t length = strcspn(*variable, "=");
    if (length == 0 || length >= sizeof name - 1)
      continue;
    seen_variables++;
    memcpy(name, *variable, length);
    name[length] = 0;
    assert_non_null(os_environment(name));
    assert_string_equal(os_environment(name), getenv(name));
    strcpy(name + length, "_"); /* neither longer nor shorter ones */
    if (!getenv(name))
      assert_null(os_environment(name));
    name[length - 1] = 0;
    if (!getenv(name))
      assert_null(os_environment(name));
  }
  assert_true(seen_variables > 0);
  assert_null(os_environment("MASU_NO_SUCH_VARIABLE"));
  assert_int_equal(os_process_id(), getpid());
  assert_string_equal(os_program_name(), program_invocation_short_name);
}

/* ---- CPU time ---- */

static unsigned seen_count;
static bool seen_self;
static void count_thread(unsigned thread) {
  seen_count++;
  seen_self |= thread == os_thread_id();
}

static void every_thread_is_seen(void **state) {
  (void)state;
  seen_count = 0;
  assert_true(os_threads_each(count_thread));
  assert_true(seen_self);
  assert_int_equal(seen_count, os_thread_count());
}

static _Atomic(int) fired;
static int marker;
static const void *fired_with;
static void on_timer(void *what, const void *context) {
  fired_with = context ? what : NULL;
  fired++;
}

static void use_cpu(uint64_t until) {
  while (os_cpu_ns(0) < until)
    ;
}

/* Once, as much CPU time later; what fires while it is blocked waits, and what others send is not ours. */
static void a_timer_on_cpu_time(void **state) {
  const union sigval mark = {.sival_ptr = &marker};
  sigset_t urgent;
  (void)state;
#ifdef __SANITIZE_THREAD__ /* which holds signals back */
  skip();
#endif
  sigemptyset(&urgent);
  sigaddset(&urgent, SIGURG);
  assert_int_equal(os_cpu_handle(on_timer), 0);
  assert_true(os_cpu_is_handled());
  assert_int_equal(os_cpu_handle(on_timer), 0);
  assert_int_equal(sigqueue(getpid(), SIGURG, mark), 0);
  assert_int_equal(fired, 0);
  int timer = os_cpu_timer_make(os_thread_id(), &marker);
  assert_true(timer >= 0);
  uint64_t now = os_cpu_ns(os_thread_id());
  assert_true(now > 0 && now <= os_cpu_process_ns());
  assert_false(os_cpu_timer_waits(timer, os_thread_id()));
  os_cpu_timer_set(timer, now + 20000000);
  assert_true(os_cpu_timer_waits(timer, os_thread_id()));
  use_cpu(now + 10000000);
  assert_int_equal(fired, 0);
  for (uint64_t until = now + 10000000; !fired && until < now + 20000000000; until += 10000000)
    use_cpu(until); /* the system may be late */
  assert_int_equal(fired, 1);
  assert_ptr_equal(fired_with, &marker);
  sigprocmask(SIG_BLOCK, &urgent, NULL);
  now = os_cpu_ns(0);
  os_cpu_timer_set(timer, now);
  use_cpu(now + 50000000);
  assert_int_equal(fired, 1);
  assert_true(os_cpu_timer_waits(timer, os_thread_id()));
  sigprocmask(SIG_UNBLOCK, &urgent, NULL);
  for (uint64_t until = now + 50000000; fired < 2 && until < now + 20000000000; until += 10000000)
    use_cpu(until);
  assert_false(os_cpu_timer_waits(timer, os_thread_id()));
  assert_int_equal(fired, 2);
  os_cpu_timer_drop(timer);
  os_cpu_handle_no_more();
  assert_false(os_cpu_is_handled());
}

/* Behind by a tick at most; sleep is none of it. */
static void coarse_cpu_time_is_what_was_noted(void **state) {
  enum { WORKED = 100000000, TICK = 20000000 };
  (void)state;
  uint64_t before = os_cpu_coarse_ns(), fine = os_cpu_ns(0);
  assert_in_range(before, fine < TICK ? 0 : fine - TICK, fine);
  use_cpu(fine + WORKED);
  uint64_t after = os_cpu_coarse_ns();
  assert_in_range(after, fine + WORKED - TICK, os_cpu_ns(0));
  os_sleep_ms(300);
  assert_in_range(os_cpu_coarse_ns(), after, after + WORKED);
}

static void no_timer_for_a_thread_that_is_not_there(void **state) {
  (void)state;
  assert_int_equal(os_cpu_ns(0x3fffff), 0);
  assert_true(os_cpu_timer_make(0x3fffff, NULL) < 0);
}

static void own_handler(int number) { (void)number; }

static void the_programs_handler_stays(void **state) {
  (void)state;
  signal(SIGURG, own_handler);
  assert_int_equal(os_cpu_handle(on_timer), EBUSY);
  assert_ptr_equal(signal(SIGURG, SIG_IGN), own_handler);
  assert_int_equal(os_cpu_handle(on_timer), 0);
  os_cpu_handle_no_more();
  assert_ptr_equal(signal(SIGURG, SIG_DFL), SIG_IGN);
}

static int pipe_ends[2];
enum { MUCH = 300000 };

/* More than the pipe holds. */
static void write_much(void) {
  static char text[MUCH];
  for (int i = 0; i < MUCH; i++)
    text[i] = (char)(i % 251);
  REQUIRE(dup2(pipe_ends[1], STDERR_FILENO) >= 0);
  close(pipe_ends[0]);
  errno = 77;
  os_write_stderr(text, sizeof text);
  close(STDERR_FILENO);
  os_write_stderr(text, 1); /* gives up */
  _exit(errno == 77 ? 0 : 1);
}

static void writing_to_stderr(void **state) {
  static char read_back[MUCH + 1];
  (void)state;
  assert_int_equal(pipe(pipe_ends), 0);
  pid_t child = _Fork();
  if (child == 0)
    write_much();
  close(pipe_ends[1]);
  size_t length = 0;
  for (ssize_t n;
       (n = read(pipe_ends[0], read_back + length, sizeof read_back - length)) > 0;)
    length += (size_t)n;
  close(pipe_ends[0]);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(length, MUCH);
  for (int i = 0; i < MUCH; i++)
    assert_int_equal((unsigned char)read_back[i], i % 251);
}

static int file_of_its_own(const char *name) {
  return (int)syscall(SYS_memfd_create, name, 0);
}

static size_t length_of(int file) {
  struct stat s;
  REQUIRE(fstat(file, &s) == 0);
  return (size_t)s.st_size;
}

/* As daemons do: everything is closed, and numbers are given to other files. */
static void close_and_open(void) {
  int first = file_of_its_own("first"), kept = 100;
  REQUIRE(dup2(first, STDERR_FILENO) == STDERR_FILENO);
  os_keep_stderr();
  while (fcntl(kept, F_GETFD) < 0)
    kept++;
  close(STDERR_FILENO);
  os_write_stderr("one", 3);
  int second = file_of_its_own("second");
  REQUIRE(second == STDERR_FILENO && length_of(first) == 3 && length_of(second) == 0);
  REQUIRE(close_range(100, ~0U, 0) == 0);
  os_write_stderr("four", 4);
  int third = file_of_its_own("third");
  REQUIRE(dup2(third, kept) == kept);
  os_write_stderr("five5", 5);
  REQUIRE(length_of(first) == 3 && length_of(second) == 9 && length_of(third) == 0);
}

static void stderr_is_no_other_file(void **state) {
  (void)state;
  in_child(close_and_open);
}

/* ---- Files ---- */

static char files_folder[] = "/tmp/masu-linux-XXXXXX";

static const char *in_folder(const char *name) {
  static char path[64];
  snprintf(path, sizeof path, "%s/%s", files_folder, name);
  return path;
}

static bool holds(const char *name, const char *text) {
  char read_back[64] = "";
  int why;
  size_t length = os_file_read(in_folder(name), read_back, sizeof read_back, &why);
  return !why && length == strlen(text) && !memcmp(read_back, text, length);
}

static void a_new_file_takes_nothings_place(void **state) {
  struct stat s;
  char target[64];
  (void)state;
  errno = 77;
  assert_int_equal(os_file_write_new(in_folder("one"), "first", 5), 0);
  assert_int_equal(stat(in_folder("one"), &s), 0);
  assert_int_equal(s.st_mode & 07777, 0600);
  assert_int_equal(os_file_write_new(in_folder("one"), "other", 5), EEXIST);
  snprintf(target, sizeof target, "%s", in_folder("target"));
  assert_int_equal(symlink(target, in_folder("link")), 0);
  assert_int_equal(os_file_write_new(in_folder("link"), "other", 5), EEXIST);
  assert_int_equal(os_file_write_new(in_folder("no/folder"), "other", 5), ENOENT);
  assert_int_equal(errno, 77);
  assert_true(holds("one", "first"));
  assert_int_not_equal(stat(target, &s), 0);
  unlink(in_folder("link"));
}

/* While the first write is under way another thread writes the same file; then it is interrupted. */
static char written_by_two[64];
static atomic_u32 writes, close_fails;

static void *writes_as_well(void *unused) {
  REQUIRE(os_file_write(written_by_two, "second", 6) == 0);
  return unused;
}

static long write_and_close(long number, const long *arguments) {
  pthread_t other;
  if (number == SYS_close) {
    syscall(SYS_close_range, arguments[0], arguments[0], 0);
    return load_relaxed(&close_fails) ? -EIO : 0;
  }
  if (add_relaxed(&writes, 1) == 0) {
    REQUIRE(pthread_create(&other, NULL, writes_as_well, NULL) == 0 && pthread_join(other, NULL) == 0);
    return -EINTR;
  }
  struct iovec part = {(void *)arguments[1], (size_t)arguments[2]};
  long n = syscall(SYS_writev, arguments[0], &part, 1);
  return n < 0 ? -errno : n;
}

static void write_with_interruptions(void) {
  snprintf(written_by_two, sizeof written_by_two, "%s", in_folder("one"));
  trap_calls(SYS_write, SYS_close, write_and_close);
  REQUIRE(os_file_write(written_by_two, "first", 5) == 0);
  REQUIRE(load_relaxed(&writes) == 3 && holds("one", "first"));
  store_relaxed(&close_fails, 1);
  REQUIRE(os_file_write(written_by_two, "third", 5) == EIO);
  REQUIRE(os_file_write_new(in_folder("two"), "third", 5) == EIO);
}

static void a_file_is_whole_or_as_it_was(void **state) {
  struct stat s;
  (void)state;
#ifdef __SANITIZE_THREAD__ /* which holds signals back */
  skip();
#endif
  in_child(write_with_interruptions);
  assert_true(holds("one", "first"));
  assert_int_not_equal(stat(in_folder("two"), &s), 0);
}

/* In the place of a device there would be a file then, for the whole system; and who knows the name in advance could
 * have a link there. */
static void what_is_no_file_stays(void **state) {
  char target[64];
  struct stat s;
  (void)state;
  snprintf(target, sizeof target, "%s", in_folder("target"));
  assert_int_equal(symlink(target, in_folder("link")), 0);
  assert_int_equal(os_file_write(in_folder("link"), "through", 7), ELOOP);
  assert_int_not_equal(stat(target, &s), 0);
  assert_int_equal(unlink(in_folder("link")), 0);
  assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
  assert_int_equal(os_file_write(in_folder("pipe"), "to none", 7), EEXIST);
  assert_int_equal(unlink(in_folder("pipe")), 0);
  if (mknod(in_folder("null"), S_IFCHR | 0600, makedev(1, 3)) == 0) { /* root, outside of a sandbox */
    assert_int_equal(os_file_write(in_folder("null"), "to none", 7), 0);
    assert_int_equal(stat(in_folder("null"), &s), 0);
    assert_true(S_ISCHR(s.st_mode));
    unlink(in_folder("null"));
  }
}

/* The signal would end the process. */
static void write_beyond(void) {
  struct rlimit limit = {10, RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  errno = 77;
  REQUIRE(os_file_write(in_folder("one"), "longer than ten", 15) == EFBIG);
  REQUIRE(os_file_write_new(in_folder("two"), "longer than ten", 15) == EFBIG);
  REQUIRE(os_file_write_new(in_folder("three"), "as it may", 9) == 0);
  REQUIRE(errno == 77);
}

static void beyond_the_limit_of_files_nothing_is_written(void **state) {
  struct stat s;
  (void)state;
  in_child(write_beyond);
  assert_true(holds("one", "first"));
  assert_true(holds("three", "as it may"));
  assert_int_not_equal(stat(in_folder("two"), &s), 0);
}

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(files_folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  unlink(in_folder("one"));
  unlink(in_folder("three"));
  return rmdir(files_folder);
}

static int descriptor_inside, open_before;
static uintptr_t self_inside;
static void look_from_inside(void) {
  open_before = (int)syscall(SYS_fcntl, open_before, F_GETFD);
  descriptor_inside = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY);
  self_inside = os_thread_self();
}

static void no_file_is_open_and_none_stays(void **state) {
  (void)state;
  int here = open("/dev/null", O_RDONLY), next;
  unsigned own = os_thread_own_count();
  if (SANITIZED)
    skip(); /* they know threads of the C library only */
  open_before = here;
  descriptor_inside = -2;
  os_without_files(look_from_inside);
  if (descriptor_inside == -2)
    skip(); /* not before Linux 5.9 */
  assert_int_equal(open_before, -1);
  assert_int_equal(descriptor_inside, 0);
  assert_int_equal(self_inside, os_thread_self()); /* what is thread-local is the caller's */
  assert_int_equal(os_thread_own_count(), own);
  next = open("/dev/null", O_RDONLY);
  assert_int_equal(next, here + 1);
  close(next);
  close(here);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_page_size),
      cmocka_unit_test(reserved_memory_is_out_of_reach),
      cmocka_unit_test(committed_memory_is_zero),
      cmocka_unit_test(alignment_leaves_nothing_over),
      cmocka_unit_test(too_much_is_refused),
      cmocka_unit_test(a_limit_set_later_is_met),
      cmocka_unit_test(purged_memory_is_zero),
      cmocka_unit_test(locked_memory_is_kept),
      cmocka_unit_test(huge_pages_are_avoided),
      cmocka_unit_test(a_sandbox_is_not_heard_of),
      cmocka_unit_test(residence_is_seen),
      cmocka_unit_test(what_can_be_read),
      cmocka_unit_test(growing_in_place),
      cmocka_unit_test(nothing_is_overgrown),
      cmocka_unit_test(moving),
      cmocka_unit_test(a_refused_move),
      cmocka_unit_test(the_clock),
      cmocka_unit_test(waiting_and_waking),
      cmocka_unit_test(waiting_ends_by_itself),
      cmocka_unit_test(a_thread_of_our_own),
      cmocka_unit_test(resident_pages_of_a_range),
      cmocka_unit_test(residence_without_the_initial_thread),
      cmocka_unit_test(a_long_status),
      cmocka_unit_test(the_environment),
      cmocka_unit_test(every_thread_is_seen),
      cmocka_unit_test(a_timer_on_cpu_time),
      cmocka_unit_test(coarse_cpu_time_is_what_was_noted),
      cmocka_unit_test(no_timer_for_a_thread_that_is_not_there),
      cmocka_unit_test(the_programs_handler_stays),
      cmocka_unit_test(writing_to_stderr),
      cmocka_unit_test(stderr_is_no_other_file),
      cmocka_unit_test_setup(a_new_file_takes_nothings_place, make_folder),
      cmocka_unit_test(a_file_is_whole_or_as_it_was),
      cmocka_unit_test(what_is_no_file_stays),
      cmocka_unit_test_teardown(beyond_the_limit_of_files_nothing_is_written, remove_folder),
      cmocka_unit_test(no_file_is_open_and_none_stays),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
