/* os contract for Linux with glibc. System calls go through syscall(), so a program
 * that replaces mmap or write by its own is never entered from here, and no call is
 * a cancellation point. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* An address is mapped again only after it was unmapped: the kernel orders what
 * threads did with it before and after. ThreadSanitizer, which does not see raw
 * system calls, is told so; and it has to forget what threads that are gone did with
 * their stacks there, so it sees the mapping itself. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
static char address_space;
#define MAP(at, size, protection, flags) (long)mmap(at, size, protection, flags, -1, 0)
#define BEFORE_UNMAPPING() __tsan_release(&address_space)
#define AFTER_MAPPING() __tsan_acquire(&address_space)
#else
#define MAP(at, size, protection, flags) \
  syscall(SYS_mmap, at, size, protection, flags, -1, 0)
#define BEFORE_UNMAPPING() ((void)0)
#define AFTER_MAPPING() ((void)0)
#endif

internal size_t os_page(void) {
  static atomic_word page;
  size_t size = load_relaxed(&page);
  if (UNLIKELY(!size)) {
    size = getauxval(AT_PAGESZ);
    store_relaxed(&page, size);
  }
  return size;
}

/* ---- Memory ---- */

static void *map_pages(void *at, size_t size, int protection, int more_flags) {
  int saved = errno;
  long r = MAP(at, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | more_flags);
  AFTER_MAPPING();
  errno = saved;
  return r == -1 ? NULL : (void *)r;
}

internal void os_unmap(void *p, size_t size) {
  int saved = errno;
  BEFORE_UNMAPPING();
  syscall(SYS_munmap, p, size);
  errno = saved;
}

/* Asks for the size alone first: what the kernel gives is often aligned already.
 * If not, takes align more and cuts the ends off. */
static void *map_aligned(size_t size, size_t align, int protection, int flags) {
  char *p = map_pages(NULL, size, protection, flags);
  if (!p || !((uintptr_t)p & (align - 1)))
    return p;
  os_unmap(p, size);
  if (size + align < size)
    return NULL;
  p = map_pages(NULL, size + align, protection, flags);
  if (!p)
    return NULL;
  char *start = (char *)ROUND_UP((uintptr_t)p, align);
  if (start > p)
    os_unmap(p, (size_t)(start - p));
  if (p + align > start)
    os_unmap(start + size, (size_t)(p + align - start));
  return start;
}

internal void *os_reserve(size_t size, size_t align) {
  return map_aligned(size, align, PROT_NONE, MAP_NORESERVE);
}

internal bool os_commit(void *p, size_t size) {
  int saved = errno;
  long r = syscall(SYS_mprotect, p, size, PROT_READ | PROT_WRITE);
  errno = saved;
  return r == 0;
}

internal void *os_map(size_t size, size_t align) {
  return map_aligned(size, align, PROT_READ | PROT_WRITE, 0);
}

static bool advise(void *p, size_t size, int advice) {
  int saved = errno;
  long r = syscall(SYS_madvise, p, size, advice);
  errno = saved;
  return r == 0;
}

internal bool os_purge(void *p, size_t size) {
  return advise(p, size, MADV_DONTNEED);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

internal void os_populate(void *p, size_t size) { advise(p, size, MADV_POPULATE_WRITE); }

internal int os_lock_memory(void *p, size_t size, bool lock) {
  int saved = errno;
  int why = syscall(lock ? SYS_mlock : SYS_munlock, p, size) == 0 ? 0 : errno;
  errno = saved;
  return why;
}

internal void os_avoid_huge_pages(void *p, size_t size) {
  advise(p, size, MADV_NOHUGEPAGE);
}

internal void os_want_huge_pages(void *p, size_t size) { advise(p, size, MADV_HUGEPAGE); }

static bool remap(void *p, size_t old_size, size_t new_size, int flags, void *to) {
  int saved = errno;
  BEFORE_UNMAPPING();
  long r = syscall(SYS_mremap, p, old_size, new_size, flags, to);
  AFTER_MAPPING();
  errno = saved;
  return r != -1;
}

internal bool os_grow_in_place(void *p, size_t old_size, size_t new_size) {
  return remap(p, old_size, new_size, 0, NULL);
}

internal bool os_move(void *p, size_t old_size, void *target, size_t new_size) {
  return remap(p, old_size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, target);
}

/* Second number of /proc/self/statm, in pages. */
internal size_t os_resident(void) {
  int saved = errno;
  size_t pages = 0;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    char text[128];
    long n = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    text[n > 0 ? n : 0] = 0;
    const char *second = strchr(text, ' ');
    if (second)
      pages = strtoul(second, NULL, 10);
  }
  errno = saved;
  return pages * os_page();
}

internal bool os_memory_limited(void) {
  int saved = errno;
  struct rlimit space, data;
  bool limited = (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) ||
                 (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != RLIM_INFINITY);
  errno = saved;
  return limited;
}

/* ---- Time ---- */

internal uint64_t os_now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- Threads ---- */

internal uintptr_t os_thread_self(void) {
  return (uintptr_t)__builtin_thread_pointer();
}

static void futex(atomic_u32 *word, int operation, uint32_t value,
                  const struct timespec *timeout) {
  int saved = errno;
  syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
  errno = saved;
}

internal void os_wait(atomic_u32 *word, uint32_t seen, uint32_t timeout_ms) {
  struct timespec t = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
  futex(word, FUTEX_WAIT, seen, timeout_ms ? &t : NULL);
}

internal void os_wake_one(atomic_u32 *word) { futex(word, FUTEX_WAKE, 1, NULL); }

internal void os_sleep_ms(uint32_t ms) {
  int saved = errno;
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, NULL);
  errno = saved;
}

static sigset_t signals_before;

/* With the default attributes if the small stack doesn't do: thread-local storage of
 * the program's libraries comes out of it. */
static bool start_with_stack(void *(*body)(void *), size_t stack) {
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0)
    return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  bool started = (!stack || pthread_attr_setstacksize(&attributes, stack) == 0) &&
                 pthread_create(&thread, &attributes, body, NULL) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

internal bool os_thread_start(void *(*body)(void *)) {
  int saved = errno;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &signals_before);
  bool started = start_with_stack(body, 1 * MIB) || start_with_stack(body, 0);
  pthread_sigmask(SIG_SETMASK, &signals_before, NULL);
  errno = saved;
  return started;
}

internal void os_thread_name(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

internal void os_thread_signals_restore(void) {
  pthread_sigmask(SIG_SETMASK, &signals_before, NULL);
}

/* os_thread_self of the initial thread, where that is known: every thread that ends
 * asks, and two system calls are a tenth of a short life. */
static uintptr_t initial_thread;

static void find_initial_thread(void) {
  initial_thread = syscall(SYS_gettid) == syscall(SYS_getpid) ? os_thread_self() : 0;
}

internal bool os_thread_is_initial(void) {
  return initial_thread ? os_thread_self() == initial_thread
                        : syscall(SYS_gettid) == syscall(SYS_getpid);
}

/* A directory has two links of its own and one for each directory in it. */
internal unsigned os_thread_count(void) {
  int saved = errno;
  struct stat s;
  bool known = stat("/proc/self/task", &s) == 0 && s.st_nlink > 2;
  errno = saved;
  return known ? (unsigned)s.st_nlink - 2 : 0;
}

/* ---- Process ---- */

/* Exported by the C library, declared nowhere. */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

internal void os_fork_lock(void) {
  if (_IO_list_lock)
    _IO_list_lock();
}
internal void os_fork_unlock(void) {
  if (_IO_list_unlock)
    _IO_list_unlock();
}
internal void os_fork_reset(void) {
  find_initial_thread();
  if (_IO_list_resetlock)
    _IO_list_resetlock();
}

static char **started_with;
static const char *program_name = "";

internal void os_process_start(char **arguments, char **environment) {
  started_with = environment;
  find_initial_thread();
  if (arguments && arguments[0]) {
    const char *slash = strrchr(arguments[0], '/');
    program_name = slash ? slash + 1 : arguments[0];
  }
}

internal const char *os_program_name(void) { return program_name; }

internal const char *os_environment(const char *name) {
  size_t length = strlen(name);
  char **variables = started_with ? started_with : environ;
  if (getauxval(AT_SECURE) || !variables)
    return NULL;
  for (; *variables; variables++)
    if (!strncmp(*variables, name, length) && (*variables)[length] == '=')
      return *variables + length + 1;
  return NULL;
}

static int stderr_kept = -1;

/* Out of the way of programs that count on the lowest numbers. */
internal void os_keep_stderr(void) {
  int saved = errno;
  stderr_kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
  errno = saved;
}

internal void os_write_stderr(const char *text, size_t length) {
  int saved = errno;
  int file = stderr_kept >= 0 ? stderr_kept : STDERR_FILENO;
  while (length) {
    long n = syscall(SYS_write, file, text, length);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      break;
    text += n;
    length -= (size_t)n;
  }
  errno = saved;
}

internal int os_process_id(void) { return (int)getpid(); }
_Noreturn internal void os_abort(void) { abort(); }

_Noreturn internal void os_exit(int status) {
  for (;;)
    syscall(SYS_exit_group, status);
}
