/* Gate: every system call for memory may fail. The program runs itself under
 * ptrace and lets the n-th mmap, mprotect, madvise, mremap or munmap fail with
 * ENOMEM, for every n, alone or with all that follow. Each run has to end in order:
 * allocations give NULL or work, contents stay, and where one call failed memory
 * can be had afterwards. Two hosts: preloaded, and by dlopen (MASU_LIBRARY), where
 * also masu's own start is under fire.
 *   oom_injection [preload|dlopen] [n once|n on]    the last three: one run */
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include "gate.h"

/* ---- The program under fire ---- */

static struct {
  void *(*malloc)(size_t), *(*calloc)(size_t, size_t), *(*realloc)(void *, size_t);
  void *(*aligned_alloc)(size_t, size_t);
  void (*free)(void *);
  int (*trim)(size_t);
  int (*check)(void);
} a;

static void bind_to(void *library, const char *prefix) {
  static const char *const names[] = {"malloc",        "calloc", "realloc",
                                      "aligned_alloc", "free",   "malloc_trim"};
  void *found[COUNT(names)];
  for (size_t i = 0; i < COUNT(names); i++) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, names[i]);
    CHECK((found[i] = dlsym(library, name)), "no %s", name);
  }
  memcpy(&a, found, sizeof found);
  a.check = (int (*)(void))dlsym(library, "masu_check");
}

static const size_t sizes[] = {8,      100,    2000,    20000,   32768,    60000,
                               200000, 900000, 1500000, 3000000, 10000000, 70000000};
static void *blocks[COUNT(sizes) * 40];
static size_t lengths[COUNT(blocks)];

/* errno was 0 before the call that gave p. */
static void check_errno(const void *p) {
  CHECK(errno == (p ? 0 : ENOMEM), "errno is %d after %s", errno,
        p ? "success" : "failure");
}
static void keep(size_t slot, void *p, size_t n) {
  check_errno(p);
  blocks[slot] = p;
  lengths[slot] = n;
  if (p)
    stamp(p, n, (unsigned char)slot);
}
static void drop(size_t slot) {
  if (blocks[slot]) {
    CHECK(stamped(blocks[slot], lengths[slot], (unsigned char)slot),
          "contents of %zu bytes", lengths[slot]);
    errno = 0;
    a.free(blocks[slot]);
    CHECK(errno == 0, "free sets errno to %d", errno);
  }
  blocks[slot] = NULL;
}
static void mix(void) {
  for (size_t round = 0; round < 2; round++) {
    for (size_t i = 0; i < COUNT(blocks); i++) { /* all kinds, in waves */
      size_t n = sizes[i % COUNT(sizes)] + i;
      if (n > MIB && i > 2 * COUNT(sizes))
        continue;
      drop(i);
      errno = 0;
      keep(i, i % 5 == 4 ? a.aligned_alloc((size_t)64 << i % 12, n) : a.malloc(n), n);
    }
    for (size_t i = 0; i < COUNT(blocks); i += 3) { /* grow and shrink */
      if (!blocks[i])
        continue;
      size_t n = i % 2 ? lengths[i] * 2 + 5000 : lengths[i] / 3 + 1;
      errno = 0;
      void *p = a.realloc(blocks[i], n);
      check_errno(p);
      if (p && n < 64)
        stamp(p, n, (unsigned char)i); /* the end mark is gone with the end */
      if (p) {
        CHECK(*(unsigned char *)p == (unsigned char)i, "contents after realloc");
        keep(i, p, n);
      }
    }
    for (size_t i = 1; i < COUNT(blocks); i += 2)
      drop(i);
    a.trim(0);
    for (size_t i = 0; i < COUNT(sizes); i++) {
      errno = 0;
      char *p = a.calloc(1, sizes[i] + 50000);
      check_errno(p);
      for (size_t at = 0; p && at < sizes[i] + 50000; at += 1000)
        CHECK(!p[at], "calloc is not zero");
      a.free(p);
    }
  }
  for (size_t i = 0; i < COUNT(blocks); i++)
    drop(i);
  a.trim(0);
}
static void again(void) {
  for (size_t i = 0; i < COUNT(sizes); i++) {
    void *p = a.malloc(sizes[i]);
    CHECK(p, "no %zu bytes, although only one call failed before", sizes[i]);
    stamp(p, sizes[i], 1);
    a.free(p);
  }
}

static int victim(bool once) {
  void *library =
      dlsym(RTLD_DEFAULT, "masu_malloc") ? RTLD_DEFAULT : dlopen(MASU_LIBRARY, RTLD_NOW);
  CHECK(library || !dlerror(), "%s", dlerror());
  bind_to(library, library == RTLD_DEFAULT ? "" : "masu_");
  CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0, "ptrace");
  raise(SIGSTOP); /* the tracer begins to count here */
  mix();
  if (once)
    again();
  CHECK(!a.check || a.check() == 0, "masu_check");
  _exit(0);
}

/* ---- The tracer ---- */

static const char *asks_for_memory(unsigned long long number) {
  switch (number) {
  case SYS_mmap:
    return "mmap";
  case SYS_mprotect:
    return "mprotect";
  case SYS_madvise:
    return "madvise";
  case SYS_mremap:
    return "mremap";
  case SYS_munmap:
    return "munmap";
  default:
    return NULL;
  }
}

static int step(pid_t pid) { /* to the next system call's begin or end */
  int status;
  CHECK(ptrace(PTRACE_SYSCALL, pid, 0, 0) == 0, "ptrace: %s", strerror(errno));
  CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
  return status;
}

/* One run. Fails call `nth` (from 1; 0: none), with `once` only that one. Returns
 * how many calls there were. */
static unsigned run(const char *host, unsigned nth, bool once) {
  int status;
  unsigned calls = 0;
  const char *which = "";
  pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    if (strcmp(host, "preload") == 0)
      setenv("LD_PRELOAD", MASU_LIBRARY, 1);
    else
      unsetenv("LD_PRELOAD");
    execl("/proc/self/exe", "oom_injection", "victim", once ? "once" : "on",
          (char *)NULL);
    _exit(127);
  }
  CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status),
        "the program did not start");
  CHECK(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0,
        "ptrace");
  while (WIFSTOPPED(status = step(pid))) {
    CHECK(WSTOPSIG(status) == (SIGTRAP | 0x80), "%s, call %u %s (%s): signal %s", host,
          nth, once ? "once" : "on", which, strsignal(WSTOPSIG(status)));
    struct user_regs_struct registers;
    CHECK(ptrace(PTRACE_GETREGS, pid, 0, &registers) == 0, "ptrace");
    bool fails = asks_for_memory(registers.orig_rax) && ++calls >= nth && nth &&
                 (calls == nth || !once);
    if (fails) {
      if (calls == nth)
        which = asks_for_memory(registers.orig_rax);
      registers.orig_rax = ~0ull; /* the kernel skips it */
      CHECK(ptrace(PTRACE_SETREGS, pid, 0, &registers) == 0, "ptrace");
    }
    status = step(pid);
    if (!WIFSTOPPED(status))
      break;
    if (fails) {
      registers.rax = (unsigned long long)-ENOMEM;
      CHECK(ptrace(PTRACE_SETREGS, pid, 0, &registers) == 0, "ptrace");
    }
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "%s, call %u %s (%s): ended with %s %d", host, nth, once ? "once" : "on", which,
        WIFSIGNALED(status) ? "signal" : "code",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return calls;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "victim") == 0)
    return victim(strcmp(argv[2], "once") == 0);
  watchdog(115);
  if (argc == 4) {
    run(argv[1], (unsigned)atoi(argv[2]), strcmp(argv[3], "once") == 0);
    return 0;
  }
  for (int i = 0; i < 2; i++) {
    const char *host = i ? "dlopen" : "preload";
    if (argc > 1 && strcmp(argv[1], host) != 0)
      continue;
    unsigned calls = run(host, 0, true);
    CHECK(calls >= 5, "%u calls: nothing to inject into", calls);
    for (unsigned nth = 1; nth <= calls; nth++) {
      run(host, nth, true);
      run(host, nth, false);
    }
    dprintf(1, "%s: %u calls\n", host, calls);
  }
  return 0;
}
