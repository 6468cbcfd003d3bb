/* recorded SEED STEPS ENDING
 *
 * What a program may do while it is recorded, at random: every call of the family, in threads
 * that come and go and hand blocks over, in signal handlers, and in children of fork. After
 * STEPS steps, of all threads together, it ends: by `exit`, `_exit`, `abort` or `kill` at once,
 * the other threads in the middle of something; by `return` when all threads have ended.
 *
 * tests/command/test_record_fuzzed.py builds it, runs it under masu record, and looks at the
 * trace. A child frees only what it took itself: of anything else its trace knows nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

void *_Znwm(size_t), *_Znam(size_t), *_ZnwmSt11align_val_t(size_t, size_t);
void _ZdlPv(void *), _ZdlPvm(void *, size_t), _ZdlPvSt11align_val_t(void *, size_t),
  _ZdlPvmSt11align_val_t(void *, size_t, size_t);
static void (*call_free_sized)(void *, size_t), (*call_free_aligned_sized)(void *, size_t, size_t);
static void *(*call_reallocf)(void *, size_t);

enum { THREADS = 4, SLOTS = 200, PLACES = 64, KEPT = 8, CHILDREN = 5, FORK_EVERY = 20000, LARGE = 400000 };

typedef struct block {
  void *p;
  size_t size, align;     /* asked for; align 0: none */
  enum { PLAIN, NEW } by; /* what it is freed by */
  bool sized;             /* or may be, with its size */
} block;

/* A thread's own, and that of the one that comes after it. */
typedef struct world {
  uint32_t random;
  block block[SLOTS];
} world;

static struct {
  atomic_flag busy;
  block b;
} place[PLACES];
static world worlds[THREADS];
static long steps;
static const char *ending;
static _Atomic long done;
static _Atomic int ended, children;
static _Atomic(void *) kept[KEPT];
static bool child;
static pthread_key_t key;
/* A child that is made while a thread is in `exit` or `abort` waits in its own for the C library's lock, which nobody has. */
static pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER;

static uint32_t next(uint32_t *random) {
  *random ^= *random << 13, *random ^= *random >> 17, *random ^= *random << 5;
  return *random;
}
static uint32_t below(world *w, uint32_t n) { return next(&w->random) % n; }

static size_t some_size(world *w) {
  return below(w, 16) ? below(w, 1u << below(w, 13)) : below(w, 2 * LARGE);
}

static void give(world *w, block *b) {
  bool sized = b->sized && below(w, 2);
  if (b->by == NEW && b->align)
    sized ? _ZdlPvmSt11align_val_t(b->p, b->size, b->align) : _ZdlPvSt11align_val_t(b->p, b->align);
  else if (b->by == NEW)
    sized ? _ZdlPvm(b->p, b->size) : _ZdlPv(b->p);
  else if (sized)
    b->align ? call_free_aligned_sized(b->p, b->align, b->size) : call_free_sized(b->p, b->size);
  else if (below(w, 8) == 0)
    b->p = realloc(b->p, 0);
  else
    free(b->p);
  *b = (block){0};
}

static void take(world *w, block *b) {
  size_t size = some_size(w), align = (size_t)16 << below(w, 9);
  *b = (block){.size = size, .sized = true};
  switch (below(w, 12)) {
  case 0: b->p = calloc(1 + size / 8, 8), b->size = (1 + size / 8) * 8; break;
  case 1: b->p = aligned_alloc(b->align = align, b->size = (size + align) / align * align); break;
  case 2: b->p = memalign(b->align = align, size); break;
  case 3: b->sized = false, b->p = posix_memalign(&b->p, align, size) ? NULL : b->p; break;
  case 4: b->sized = false, b->p = valloc(size); break;
  case 5: b->sized = false, b->p = pvalloc(size); break;
  case 6: b->by = NEW, b->p = _Znwm(size); break;
  case 7: b->by = NEW, b->p = _Znam(size); break;
  case 8: b->by = NEW, b->p = _ZnwmSt11align_val_t(size, b->align = align); break;
  case 9: b->p = malloc(PTRDIFF_MAX + size); break; /* NULL */
  default: b->p = malloc(size);
  }
}

static void resize(world *w, block *b) {
  size_t size = some_size(w) + 1;
  void *p;
  if (b->by == NEW)
    return;
  switch (below(w, 8)) {
  case 0: p = reallocarray(b->p, size, 2), size *= 2; break;
  case 1: p = call_reallocf(b->p, size); break;
  case 2: p = call_reallocf(b->p, PTRDIFF_MAX + size); break; /* frees it */
  case 3: /* stays as it is */
    if (!realloc(b->p, PTRDIFF_MAX + size))
      return; /* fallthrough */
  default: p = realloc(b->p, size);
  }
  *b = (block){.p = p, .size = size, .sized = true};
}

static void hand_over(world *w, block *b) {
  uint32_t n = below(w, PLACES);
  while (atomic_flag_test_and_set(&place[n].busy))
    sched_yield();
  block other = place[n].b;
  place[n].b = *b;
  *b = other;
  atomic_flag_clear(&place[n].busy);
}

static void step(world *w);

static void make_child(world *w) {
  if (child || atomic_fetch_add(&children, 1) >= CHILDREN)
    return;
  uint32_t random = next(&w->random) | 1;
  pthread_mutex_lock(&forking);
  pid_t pid = fork();
  pthread_mutex_unlock(&forking);
  if (pid) {
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
      ;
    return;
  }
  child = true;
  *w = (world){.random = random};
  for (uint32_t n = below(w, 1000); n--;)
    step(w);
  switch (below(w, 4)) {
  case 0: exit(0);
  case 1: abort();
  case 2: kill(getpid(), SIGKILL);
  }
  _exit(0);
}

static void end(void) {
  pthread_mutex_lock(&forking); /* for good */
  if (!strcmp(ending, "exit"))
    exit(0);
  if (!strcmp(ending, "_exit"))
    _exit(0);
  if (!strcmp(ending, "abort"))
    abort();
  kill(getpid(), SIGKILL);
}

static void step(world *w) {
  block *b = &w->block[below(w, SLOTS)];
  uint32_t what = below(w, 100);
  if (below(w, FORK_EVERY) == 0)
    make_child(w);
  else if (what < 15 && !child)
    hand_over(w, b);
  else if (!b->p)
    take(w, b);
  else if (what < 45)
    resize(w, b);
  else
    give(w, b);
}

static bool returns(void) { return !strcmp(ending, "return"); }

static void start_thread(world *w);

static void *body(void *argument) {
  world *w = argument;
  pthread_setspecific(key, malloc(24));
  for (uint32_t n = 100 + below(w, 4000); n--;) {
    step(w);
    long before = atomic_fetch_add(&done, 1);
    if (before == steps && !returns())
      end();
    if (before >= steps && returns()) {
      ended++;
      return NULL;
    }
  }
  start_thread(w);
  return NULL;
}

static void start_thread(world *w) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, body, w) || pthread_detach(thread))
    _exit(9);
}

/* On any thread, also in the middle of a call. What it takes another handler frees. Its blocks are large: for those
 * nothing is taken from where the interrupted call may be at work. */
static void handler(int number) {
  static __thread uint32_t random;
  int saved = errno;
  random = random ? random : (uint32_t)(uintptr_t)&random | 1;
  void *p = malloc(LARGE + next(&random) % LARGE);
  if (next(&random) % 2)
    p = realloc(p, LARGE + next(&random) % LARGE);
  free(atomic_exchange(&kept[next(&random) % KEPT], p));
  errno = saved;
  (void)number;
}

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  uint32_t seed = (uint32_t)atoi(argv[1]);
  steps = atol(argv[2]);
  ending = argv[3];
  *(void **)&call_free_sized = dlsym(RTLD_DEFAULT, "free_sized");
  *(void **)&call_free_aligned_sized = dlsym(RTLD_DEFAULT, "free_aligned_sized");
  *(void **)&call_reallocf = dlsym(RTLD_DEFAULT, "reallocf");
  if (!call_free_sized || !call_free_aligned_sized || !call_reallocf || pthread_key_create(&key, free))
    return 9;
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigfillset(&action.sa_mask);
  sigaction(SIGALRM, &action, NULL);
  for (uint32_t t = 0; t < THREADS; t++) {
    worlds[t].random = (seed * THREADS + t + 1) * 2654435761u | 1;
    start_thread(&worlds[t]);
  }
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarms, NULL); /* the others get them */
  while (!returns() || ended < THREADS) {
    /* One at a time: those of a timer that goes on may come faster than a busy machine handles them. */
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 100}}, NULL);
    usleep(1000);
  }
  return 0;
}
