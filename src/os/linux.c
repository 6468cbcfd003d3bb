/* os contract for Linux with glibc. System calls go through syscall(), so a program
 * that replaces mmap or write by its own is never entered from here, and no call is
 * a cancellation point. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
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

internal void os_protect(void *p, size_t size) {
  int saved = errno;
  syscall(SYS_mprotect, p, size, PROT_READ);
  errno = saved;
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

internal void os_populate(void *p, size_t size) {
  size_t before = (uintptr_t)p % os_page();
  advise((char *)p - before, ROUND_UP(before + size, os_page()), MADV_POPULATE_WRITE);
}

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

static bool look_for_huge_pages(void) {
  char text[64];
  int saved = errno, why;
  text[os_file_read("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text - 1, &why)] = 0;
  bool disabled = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0;
  errno = saved;
  return *text && !strstr(text, "[never]") && !disabled;
}

internal bool os_gives_huge_pages(void) {
  enum { UNKNOWN, NO, YES };
  static atomic_u32 known;
  if (UNLIKELY(load_relaxed(&known) == UNKNOWN))
    store_relaxed(&known, look_for_huge_pages() ? YES : NO);
  return load_relaxed(&known) == YES;
}

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

internal bool os_clear_on_fork(void *p, size_t size) { return advise(p, size, MADV_WIPEONFORK); }

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

/* Second number of statm, in pages. What /proc/self says of memory is the initial thread's, and nothing
 * once that has ended. */
internal size_t os_resident(void) {
  char text[128];
  int why;
  text[os_file_read("/proc/thread-self/statm", text, sizeof text - 1, &why)] = 0;
  const char *second = strchr(text, ' ');
  return second ? strtoul(second, NULL, 10) * os_page() : 0;
}

/* In KiB. (What getrusage tells goes on over exec.) */
internal size_t os_peak_resident(void) {
  char kib[OS_STATUS_MOST];
  return os_thread_status(os_thread_id(), "VmHWM", kib) ? 0 : strtoul(kib, NULL, 10) * KIB;
}

internal bool os_read_memory(const void *from, void *to, size_t size) {
  int saved = errno;
  struct iovec local = {to, size}, remote = {(void *)(uintptr_t)from, size};
  long done = syscall(SYS_process_vm_readv, os_process_id(), &local, 1, &remote, 1, 0);
  if (UNLIKELY(done < 0 && errno == ESRCH)) /* the initial thread has ended */
    done = syscall(SYS_process_vm_readv, os_thread_id(), &local, 1, &remote, 1, 0);
  errno = saved;
  return done == (long)size;
}

internal bool os_reads_memory(void) {
  int probe = 1, read = 0;
  return os_read_memory(&probe, &read, sizeof read) && read == probe;
}

/* The kernel reads a set of signals before it finds that it was not told what to do with it. */
static bool is_readable(const void *p) {
  return syscall(SYS_rt_sigprocmask, ~0, p, NULL, sizeof(uint64_t)) == -1 && errno != EFAULT;
}

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

/* Nothing is at 0. What doesn't know this advice says that it is invalid, or takes any for good. */
static bool populates(void) {
  static uint8_t known; /* 0: not asked */
  uint8_t is = load_relaxed(&known);
  if (!is) {
    is = syscall(SYS_madvise, NULL, os_page(), MADV_POPULATE_READ) == -1 && errno == ENOMEM ? 1 : 2;
    store_relaxed(&known, is);
  }
  return is == 1;
}

internal bool os_are_readable(const void *p, size_t pages) {
  int saved = errno;
  bool are = true;
  if (pages > 1 && populates()) /* it drains the lists of new pages: too much for one */
    are = !syscall(SYS_madvise, p, pages * os_page(), MADV_POPULATE_READ);
  else
    for (size_t i = pages; are && i--;)
      are = is_readable((const char *)p + i * os_page());
  errno = saved;
  return are;
}

enum { RESIDENT_STEP = 1024 }; /* pages */

internal size_t os_resident_in(const void *start, size_t size) {
  unsigned char pages[RESIDENT_STEP];
  const size_t step = RESIDENT_STEP * os_page();
  int saved = errno;
  size_t count = 0;
  for (const char *p = start, *end = p + size; p < end; p += step) {
    size_t part = min_size(step, (size_t)(end - p));
    if (syscall(SYS_mincore, p, part, pages) != 0)
      continue;
    for (size_t i = 0; i < part / os_page(); i++)
      count += pages[i] & 1;
  }
  errno = saved;
  return count * os_page();
}

internal void os_keep_from_fork(void *p, size_t size) { advise(p, size, MADV_DONTFORK); }

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

static uint64_t clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

internal uint64_t os_now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
internal uint64_t os_wall_ns(void) { return clock_ns(CLOCK_REALTIME); }

/* ---- Threads ---- */

internal uintptr_t os_thread_self(void) {
  return (uintptr_t)__builtin_thread_pointer();
}

static void futex(atomic_u32 *word, int operation, uint32_t value, uint32_t timeout_ms) {
  int saved = errno;
  struct timespec t = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
  syscall(SYS_futex, word, operation, value, timeout_ms ? &t : NULL, NULL, 0);
  errno = saved;
}

internal void os_wait(atomic_u32 *word, uint32_t seen, uint32_t timeout_ms) {
  futex(word, FUTEX_WAIT_PRIVATE, seen, timeout_ms);
}

internal void os_wake_one(atomic_u32 *word) { futex(word, FUTEX_WAKE_PRIVATE, 1, 0); }
internal void os_wake_all(atomic_u32 *word) { futex(word, FUTEX_WAKE_PRIVATE, INT32_MAX, 0); }

internal void os_wait_shared(atomic_u32 *word, uint32_t seen, uint32_t timeout_ms) {
  futex(word, FUTEX_WAIT, seen, timeout_ms);
}

internal void os_wake_shared(atomic_u32 *word) { futex(word, FUTEX_WAKE, INT32_MAX, 0); }

internal void os_sleep_ms(uint32_t ms) {
  int saved = errno;
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, NULL);
  errno = saved;
}

static sigset_t signals_before;
static atomic_u32 own_threads;

/* It counts itself, when the system does already. */
static void *own_thread(void *body) {
  add_relaxed(&own_threads, 1);
  return ((void *(*)(void *))body)(NULL);
}

internal bool os_thread_is_own(void *(*body)(void *)) { return body == own_thread; }

/* With the default attributes if the small stack doesn't do: thread-local storage of
 * the program's libraries comes out of it. */
static bool start_with_stack(void *(*body)(void *), size_t stack) {
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0)
    return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  bool started = (!stack || pthread_attr_setstacksize(&attributes, stack) == 0) &&
                 pthread_create(&thread, &attributes, own_thread, (void *)body) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

internal bool os_thread_start(void *(*body)(void *)) {
  int saved = errno;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  signals_before = before;
  bool started = start_with_stack(body, 1 * MIB) || start_with_stack(body, 0);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = saved;
  return started;
}

/* A thread of the program's has its descriptors: a file that it opens takes a number that the program may be
 * about to use, and close what the program has put there. Starting with them and giving them up copies none. */
static int without_files(void *body) {
  enum { CALL = 436, UNSHARE = 2 }; /* close_range and its flag, younger than many headers */
  add_relaxed(&own_threads, 1);
  if (syscall(CALL, 0, ~0u, UNSHARE) == 0)
    ((void (*)(void))body)();
  sub_relaxed(&own_threads, 1);
  return 0;
}

internal void os_without_files(void (*body)(void)) {
  static SELDOM _Alignas(16) char stack[128 * KIB];
  static atomic_u32 running;
  const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
  int saved = errno;
  store_relaxed(&running, 1);
  if (clone(without_files, stack + sizeof stack, flags, (void *)body, NULL, NULL, &running) == -1)
    store_relaxed(&running, 0);
  while (load_acquire(&running)) /* the system clears it */
    os_wait_shared(&running, 1, 0);
  errno = saved;
}

internal void os_thread_name(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

internal void os_thread_read_name(char *name) { prctl(PR_GET_NAME, name, 0, 0, 0); }

internal void os_thread_ends(void) {
  sub_relaxed(&own_threads, 1);
  pthread_sigmask(SIG_SETMASK, &signals_before, NULL);
}

internal unsigned os_thread_own_count(void) { return load_relaxed(&own_threads); }

internal unsigned os_thread_id(void) { return (unsigned)syscall(SYS_gettid); }

/* os_thread_self of the initial thread, where that is known: every thread that ends
 * asks, and two system calls are a tenth of a short life. */
static uintptr_t initial_thread;

/* Of the thread that the process started with: fork may leave another as the initial one. */
static uintptr_t first_thread, first_stack;

static void find_initial_thread(void) {
  initial_thread = syscall(SYS_gettid) == syscall(SYS_getpid) ? os_thread_self() : 0;
}

internal bool os_thread_is_initial(void) {
  return initial_thread ? os_thread_self() == initial_thread
                        : syscall(SYS_gettid) == syscall(SYS_getpid);
}

/* The C library puts what it knows of a thread above the thread's stack, but for the first one:
 * there the kernel has put some random bytes. */
internal uintptr_t os_thread_stack(void) {
  uintptr_t self = os_thread_self();
  return self == first_thread ? first_stack : self;
}

/* A directory has two links of its own and one for each directory in it. */
internal unsigned os_thread_count(void) {
  int saved = errno;
  struct stat s;
  bool known = stat("/proc/self/task", &s) == 0 && s.st_nlink > 2;
  errno = saved;
  return known ? (unsigned)s.st_nlink - 2 : 0;
}

/* The file may be long, as the list of groups is in it: it is read in parts, and the end of each is kept,
 * where a line may begin. */
internal int os_thread_status(unsigned thread, const char *name, char *value) {
  char path[64], label[OS_STATUS_MOST], text[4096] = "\n";
  const char *line = NULL, *end = NULL;
  int saved = errno;
  size_t have = 1, length = (size_t)snprintf(label, sizeof label, "\n%s:\t", name);
  snprintf(path, sizeof path, "/proc/self/task/%u/status", thread);
  int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  long n = file;
  while (n >= 0 && !end && (n = os_read_some(file, text + have, sizeof text - 1 - have)) > 0) {
    have += (size_t)n;
    text[have] = 0;
    line = strstr(text, label);
    end = line ? strchr(line + 1, '\n') : NULL;
    size_t kept = end ? 0 : min_size(have, OS_STATUS_MOST);
    memmove(text, text + have - kept, kept);
    have = kept;
  }
  int why = n < 0 ? errno : end ? 0 : ENODATA;
  if (end)
    snprintf(value, OS_STATUS_MOST, "%.*s", (int)(end - line - length), line + length);
  if (file >= 0)
    syscall(SYS_close, file);
  errno = saved;
  return why;
}

typedef struct directory_entry {
  uint64_t inode, next;
  uint16_t size;
  uint8_t type;
  char name[];
} directory_entry;

internal bool os_threads_each(void (*see)(unsigned thread)) {
  _Alignas(directory_entry) char entries[4096];
  int saved = errno;
  int folder = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  long n = folder;
  while (n >= 0 && (n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
    for (long at = 0; at < n;) {
      const directory_entry *e = (const void *)(entries + at);
      unsigned thread = (unsigned)strtoul(e->name, NULL, 10);
      if (thread)
        see(thread);
      at += e->size;
    }
  if (folder >= 0)
    syscall(SYS_close, folder);
  errno = saved;
  return n == 0;
}

/* ---- Process ---- */

/* Exported by the C library, declared nowhere. `library` says with what the handlers go; NULL: with nothing. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library)
  __attribute__((weak));
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

internal void os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  if (!__register_atfork || __register_atfork(prepare, parent, child, NULL))
    pthread_atfork(prepare, parent, child);
}

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
  store_relaxed(&own_threads, 0);
  if (_IO_list_resetlock)
    _IO_list_resetlock();
}

static char **started_with;
static char program_name[256]; /* a copy: programs write other titles over their arguments */

internal void os_process_start(char **arguments, char **environment) {
  started_with = environment;
  find_initial_thread();
  first_thread = initial_thread;
  first_stack = getauxval(AT_RANDOM);
  if (arguments && arguments[0]) {
    const char *slash = strrchr(arguments[0], '/');
    strncpy(program_name, slash ? slash + 1 : arguments[0], sizeof program_name - 1);
  }
}

internal const char *os_program_name(void) { return program_name; }
internal uintptr_t os_loader_base(void) { return getauxval(AT_BASE); }

internal bool os_is_secure(void) { return getauxval(AT_SECURE) != 0; }
internal bool os_environment_is_known(void) { return started_with || environ; }

internal const char *os_environment(const char *name) {
  size_t length = strlen(name);
  char **variables = started_with ? started_with : environ;
  if (os_is_secure() || !variables)
    return NULL;
  for (; *variables; variables++)
    if (!strncmp(*variables, name, length) && (*variables)[length] == '=')
      return *variables + length + 1;
  return NULL;
}

internal int os_process_id(void) { return (int)getpid(); }
internal unsigned os_user_id(void) { return (unsigned)geteuid(); }

/* Field 22 of /proc/self/stat, the 20th after the name, which may hold anything. */
internal uint64_t os_process_started(void) {
  char text[1024];
  int why;
  text[os_file_read("/proc/self/stat", text, sizeof text - 1, &why)] = 0;
  const char *at = strrchr(text, ')');
  for (int field = 2; at && field < 22; field++)
    at = strchr(at + 1, ' ');
  return at ? strtoull(at, NULL, 10) : 0;
}
_Noreturn internal void os_abort(void) { abort(); }

_Noreturn internal void os_exit(int status) {
  for (;;)
    syscall(SYS_exit_group, status);
}
