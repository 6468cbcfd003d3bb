/* play PLAN [touch=first|full|none] [think] [latency] [null] [settle=MS]
 *
 * Executes a plan (plan.h) on the allocator that this process has and prints one JSON
 * object. Everything that the program itself needs is mapped and touched before the first
 * call; what it takes is measured and left out.
 *
 *   touch   what is done to a block: first: a byte of each page and the last byte; full
 *           (the default): all of it; none
 *   think   the time between the calls is what it was when they were recorded: up to
 *           100 us by spinning, above by sleeping
 *   latency times every call
 *   null    calls nothing: what the replay itself takes
 *   settle  so long after the end memory is looked at again (0)
 *
 * Blocks carry their slot in the first and last byte, checked before they are freed or
 * resized. Exit status 1 with a line on stderr when an allocation fails, a block was
 * overwritten, or PLAN is no plan. */
#include "plan.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("FAILED: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  _exit(1);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The processor's own counter, where it has one: half the cost of the clock. */
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return now_ns();
#endif
}

static double ns_per_tick = 1;

/* What is resident and not the allocator's: at the first call all that there is, then also
 * what threads map for themselves. */
static _Atomic long own_kib, own_most_kib;

static void *own_memory(size_t size) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (p == MAP_FAILED)
    fail("the replay itself is out of memory: %zu bytes", size);
  long now = own_kib += (long)(size / 1024), most = own_most_kib;
  while (now > most && !atomic_compare_exchange_weak(&own_most_kib, &most, now))
    ;
  return p;
}

static void give_own(void *p, size_t size) {
  own_kib -= (long)(size / 1024);
  munmap(p, size);
}

/* ---- What is asked for ---- */

static enum { NONE, FIRST, FULL } touch = FULL;
static bool thinks, timed, nothing;
static unsigned settle_ms;

/* ---- Histograms ---- */

/* 32 buckets a doubling: a bucket is at most 3 % wide. */
enum { PARTS = 32, BUCKETS = PARTS * 60 };

typedef struct histogram {
  uint64_t count, worst, sum;
  uint32_t bucket[BUCKETS];
} histogram;

static unsigned bucket_of(uint64_t n) {
  if (n < 2 * PARTS)
    return (unsigned)n;
  unsigned shift = 58 - (unsigned)__builtin_clzll(n);
  unsigned b = shift * PARTS + (unsigned)(n >> shift);
  return b < BUCKETS ? b : BUCKETS - 1;
}

static double middle_of(unsigned b) {
  if (b < 2 * PARTS)
    return b;
  unsigned shift = b / PARTS - 1;
  return (double)((uint64_t)(b % PARTS + PARTS) << shift) + (double)(1ull << shift) / 2;
}

static void add(histogram *to, const histogram *h) {
  to->count += h->count;
  to->sum += h->sum;
  to->worst = h->worst > to->worst ? h->worst : to->worst;
  for (unsigned b = 0; b < BUCKETS; b++)
    to->bucket[b] += h->bucket[b];
}

static inline void note(histogram *h, uint64_t took) {
  h->count++;
  h->sum += took;
  h->bucket[bucket_of(took)]++;
  if (took > h->worst)
    h->worst = took;
}

/* ---- The state ---- */

typedef struct slot {
  unsigned char *block;
  size_t size;
} slot;

typedef struct worker {
  _Alignas(64) _Atomic uint64_t done; /* operations */
  _Atomic int64_t live;               /* bytes, those that others freed subtracted there */
  uint32_t chunk;
  uint32_t number;
} worker;

static int file;
static plan_head head;
static slot *slots;
static worker *workers;
static plan_thread *list;
static _Atomic uint32_t running;
static histogram *histograms; /* by kind */
static pthread_mutex_t merging = PTHREAD_MUTEX_INITIALIZER;
static uint64_t tick_cost; /* ticks that two readings in a row lie apart */

static void *(*call_new)(size_t);
static void *(*call_new_aligned)(size_t, size_t);
static void (*call_delete)(void *);
static void (*call_delete_sized)(void *, size_t);

/* ---- One operation ---- */

static void pause_until(uint64_t ns) {
  enum { SPIN = 100000, EARLY = 60000 };
  uint64_t now = now_ns();
  if (ns > now + SPIN) {
    uint64_t wake = ns - EARLY;
    struct timespec t = {(time_t)(wake / 1000000000u), (long)(wake % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
      ;
  }
  while (now_ns() < ns)
    ;
}

static void think(uint32_t ns) {
  if (ns > 1000000 || ns > 100000) {
    pause_until(now_ns() + ns);
    return;
  }
  uint64_t until = ticks() + (uint64_t)(ns / ns_per_tick);
  while (ticks() < until)
    ;
}

/* Short waits spin, long ones leave the processor to whom they wait for. */
static void wait_for(uint32_t other, uint64_t done) {
  for (unsigned n = 0; atomic_load_explicit(&workers[other].done, memory_order_acquire) < done; n++) {
    if (n < 100)
      continue;
    if (n < 2000)
      sched_yield();
    else
      usleep(20);
  }
}

static void mark(slot *s, uint32_t number, size_t from) {
  unsigned char *p = s->block;
  size_t size = s->size;
  if (touch == NONE || !size)
    return;
  if (touch == FULL && size > from)
    memset(p + from, (int)number, size - from);
  else
    for (size_t at = (from + PLAN_PAGE - 1) & ~(size_t)(PLAN_PAGE - 1); at < size; at += PLAN_PAGE)
      p[at] = (unsigned char)number;
  p[0] = p[size - 1] = (unsigned char)number;
}

static void check(const slot *s, uint32_t number) {
  if (touch == NONE || !s->size || nothing)
    return;
  if (s->block[0] != (unsigned char)number || s->block[s->size - 1] != (unsigned char)number)
    fail("a block of %zu bytes was overwritten", s->size);
}

static inline void *take(unsigned kind, size_t size, size_t align, void *old) {
  switch (kind) {
  case PLAN_CALLOC: return calloc(1, size);
  case PLAN_ALIGNED: return memalign(align, size);
  case PLAN_REALLOC: return realloc(old, size ? size : 1);
  case PLAN_NEW: return call_new(size);
  case PLAN_NEW_ALIGNED: return call_new_aligned(size, align);
  default: return malloc(size);
  }
}

static inline void give(unsigned kind, void *p, size_t size) {
  switch (kind) {
  case PLAN_DELETE: call_delete(p); break;
  case PLAN_DELETE_SIZED: call_delete_sized(p, size); break;
  default: free(p); break;
  }
}

static void start_worker(uint32_t number);

static inline void count_live(worker *w, int64_t bytes) {
  int64_t live = atomic_load_explicit(&w->live, memory_order_relaxed);
  atomic_store_explicit(&w->live, live + bytes, memory_order_relaxed);
}

static inline void play_op(worker *w, const plan_op *op, histogram *h) {
  unsigned kind = op->kind & ~(unsigned)PLAN_IN_PAGES;
  size_t size = op->kind & PLAN_IN_PAGES ? (size_t)op->size * PLAN_PAGE : op->size;
  slot *s = &slots[op->slot];
  uint64_t before = 0;
  if (thinks && op->think_ns)
    think(op->think_ns);
  switch (kind) {
  case PLAN_WAIT:
    wait_for(op->slot, size);
    break;
  case PLAN_CREATE:
    start_worker(op->slot);
    break;
  case PLAN_THINK:
    break;
  case PLAN_FREE:
  case PLAN_FREE_SIZED:
  case PLAN_DELETE:
  case PLAN_DELETE_SIZED:
    check(s, op->slot);
    if (h)
      before = ticks();
    if (!nothing)
      give(kind, s->block, s->size);
    if (h)
      note(&h[kind], ticks() - before);
    count_live(w, -(int64_t)s->size);
    *s = (slot){0};
    break;
  default: {
    size_t old = s->size;
    check(s, op->slot);
    if (h)
      before = ticks();
    void *p = nothing ? NULL : take(kind, size, (size_t)1 << op->align_log2, s->block);
    if (h)
      note(&h[kind], ticks() - before);
    if (!p && size && !nothing)
      fail("out of memory: %zu bytes", size);
    s->block = p;
    s->size = size;
    if (p)
      mark(s, op->slot, old < size ? old : size);
    count_live(w, (int64_t)size - (int64_t)old);
  }
  }
}

/* ---- Threads ---- */

static bool valid(const plan_op *op) {
  unsigned kind = op->kind & ~(unsigned)PLAN_IN_PAGES;
  bool of_thread = kind == PLAN_WAIT || kind == PLAN_CREATE;
  return kind >= PLAN_MALLOC && kind < PLAN_KINDS && op->align_log2 < 48 &&
         (kind == PLAN_THINK || op->slot < (of_thread ? head.threads : head.slots));
}

static void play_thread(worker *w) {
  plan_chunk *c = own_memory(PLAN_CHUNK);
  size_t size = PLAN_KINDS * sizeof(histogram);
  histogram *h = timed ? own_memory(size) : NULL;
  uint64_t done = 0;
  for (uint32_t number = w->chunk; number; number = c->next) {
    if (pread(file, c, PLAN_CHUNK, (off_t)number * PLAN_CHUNK) != PLAN_CHUNK || c->count > PLAN_OPS)
      fail("the plan is cut");
    for (uint32_t i = 0; i < c->count; i++) {
      if (!valid(&c->op[i]))
        fail("the plan is not valid");
      play_op(w, &c->op[i], h);
      atomic_store_explicit(&w->done, ++done, memory_order_release);
    }
  }
  give_own(c, PLAN_CHUNK);
  if (!h)
    return;
  pthread_mutex_lock(&merging);
  for (unsigned k = 0; k < PLAN_KINDS; k++)
    add(&histograms[k], &h[k]);
  pthread_mutex_unlock(&merging);
  give_own(h, size);
}

static void *worker_body(void *w) {
  play_thread(w);
  running--;
  return NULL;
}

static void start_worker(uint32_t number) {
  pthread_t thread;
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  running++;
  int failed = pthread_create(&thread, &detached, worker_body, &workers[number]);
  if (failed)
    fail("a thread cannot start: %s", strerror(failed));
  pthread_attr_destroy(&detached);
}

/* ---- Memory over time ---- */

enum { SAMPLES = 2000 };
static struct sample {
  uint64_t ns;
  int64_t rss_kib, live_bytes;
} * samples;
static size_t sample_count;
static _Atomic bool over;
static _Atomic bool sampling;
static _Atomic uint64_t start_ns;

static long status_kib(const char *name) {
  static char text[8192];
  char key[32];
  int status = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  ssize_t length = status < 0 ? -1 : read(status, text, sizeof text - 1);
  if (length < 0)
    fail("/proc/self/status: %s", strerror(errno));
  close(status);
  text[length] = 0;
  snprintf(key, sizeof key, "\n%s:", name);
  const char *line = strstr(text, key);
  return line ? strtol(line + strlen(key), NULL, 10) : -1;
}

static long resident_kib(int statm) {
  char text[128];
  ssize_t length = pread(statm, text, sizeof text - 1, 0);
  text[length > 0 ? length : 0] = 0;
  const char *second = strchr(text, ' ');
  return second ? strtol(second, NULL, 10) * (sysconf(_SC_PAGESIZE) / 1024) : 0;
}

static int64_t live_bytes(void) {
  int64_t sum = 0;
  for (uint32_t t = 0; t < head.threads; t++)
    sum += atomic_load_explicit(&workers[t].live, memory_order_relaxed);
  return sum;
}

/* Every ms; where that is too many samples, every second one goes and half as many come. */
static void *sample_body(void *unused) {
  (void)unused;
  int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  uint64_t step = 1000000, next = now_ns();
  resident_kib(statm);
  sampling = true;
  while (!over) {
    next += step;
    struct timespec t = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    if (!start_ns)
      continue;
    if (sample_count == SAMPLES) {
      for (size_t i = 0; i < SAMPLES / 2; i++)
        samples[i] = samples[2 * i];
      sample_count = SAMPLES / 2;
      step *= 2;
    }
    samples[sample_count++] = (struct sample){now_ns() - start_ns, resident_kib(statm) - own_kib, live_bytes()};
  }
  return NULL;
}

/* ---- Start and end ---- */

static void read_at(void *to, size_t size, uint64_t offset) {
  if (pread(file, to, size, (off_t)offset) != (ssize_t)size)
    fail("the plan is cut");
}

static void open_plan(const char *path) {
  file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    fail("%s: %s", path, strerror(errno));
  read_at(&head, sizeof head, 0);
  off_t size = lseek(file, 0, SEEK_END);
  if (head.magic != PLAN_MAGIC || (uint64_t)size < head.list + head.threads * sizeof *list)
    fail("%s is no plan", path);
  list = own_memory((head.threads + 1) * sizeof *list);
  read_at(list, head.threads * sizeof *list, head.list);
  slots = own_memory((head.slots + 1ul) * sizeof *slots);
  workers = own_memory((head.threads + 1) * sizeof *workers);
  for (uint32_t t = 0; t < head.threads; t++)
    workers[t] = (worker){.chunk = list[t].chunk, .number = t};
  histograms = own_memory(PLAN_KINDS * sizeof *histograms);
  samples = own_memory(SAMPLES * sizeof *samples);
}

/* An allocator that has its own operators is called by them. */
static void find_operators(void) {
#ifndef MASU_NO_OVERRIDE /* else they are the sanitizer's */
  *(void **)&call_new = dlsym(RTLD_DEFAULT, "_Znwm");
  *(void **)&call_new_aligned = dlsym(RTLD_DEFAULT, "_ZnwmSt11align_val_t");
  *(void **)&call_delete = dlsym(RTLD_DEFAULT, "_ZdlPv");
  *(void **)&call_delete_sized = dlsym(RTLD_DEFAULT, "_ZdlPvm");
#endif
  bool whole = call_new && call_new_aligned && call_delete;
  if (!whole)
    call_new = malloc, call_delete = free;
  if (!whole || !call_delete_sized)
    call_delete_sized = NULL;
}

static void *aligned_new(size_t size, size_t align) { return aligned_alloc(align, size); }
static void plain_delete(void *p, size_t size) {
  (void)size;
  call_delete(p);
}

/* The counter's pace, and what reading it twice takes. */
static void calibrate(void) {
  tick_cost = UINT64_MAX;
  for (int i = 0; i < 10000; i++) {
    uint64_t from = ticks(), took = ticks() - from;
    tick_cost = took < tick_cost ? took : tick_cost;
  }
  uint64_t from_ns = now_ns(), from = ticks(), to_ns;
  while ((to_ns = now_ns()) < from_ns + 20000000)
    ;
  ns_per_tick = (double)(to_ns - from_ns) / (double)(ticks() - from);
}

static double percentile(const histogram *h, double part) {
  uint64_t rank = (uint64_t)((double)h->count * part), seen = 0;
  for (unsigned b = 0; b < BUCKETS; b++)
    if ((seen += h->bucket[b]) > rank)
      return middle_of(b) < (double)h->worst ? middle_of(b) : (double)h->worst;
  return (double)h->worst;
}

static double in_ns(double t) {
  return t > (double)tick_cost ? (t - (double)tick_cost) * ns_per_tick : 0;
}

static void print_calls(void) {
  static const struct {
    const char *name;
    double part;
  } points[] = {{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p999", .999}, {"p9999", .9999}, {"p99999", .99999}};
  const char *between = "";
  histogram *all = own_memory(sizeof *all);
  for (unsigned k = 0; k < PLAN_KINDS; k++)
    add(all, &histograms[k]);
  double sum = (double)all->sum - (double)all->count * (double)tick_cost;
  printf(", \"calls_s\": %.9f, \"p9999_ns\": %.1f, \"calls\": {", sum > 0 ? sum * ns_per_tick * 1e-9 : 0,
         in_ns(percentile(all, .9999)));
  for (unsigned k = 0; k < PLAN_KINDS; k++) {
    const histogram *h = &histograms[k];
    if (!h->count)
      continue;
    printf("%s\"%s\": {\"count\": %llu, \"mean_ns\": %.1f", between, plan_names[k], (unsigned long long)h->count,
           in_ns((double)h->sum / (double)h->count));
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
      printf(", \"%s_ns\": %.1f", points[i].name, in_ns(percentile(h, points[i].part)));
    printf(", \"worst_ns\": %.1f}", in_ns((double)h->worst));
    between = ", ";
  }
  printf("}");
}

static void print_samples(void) {
  printf(", \"curve\": [");
  for (size_t i = 0; i < sample_count; i++)
    printf("%s[%.4f, %lld, %lld]", i ? ", " : "", (double)samples[i].ns * 1e-9, (long long)samples[i].rss_kib,
           (long long)(samples[i].live_bytes / 1024));
  printf("]");
}

static void read_arguments(int argc, char **argv) {
  for (int i = 2; i < argc; i++) {
    const char *a = argv[i];
    if (!strcmp(a, "touch=first"))
      touch = FIRST;
    else if (!strcmp(a, "touch=full"))
      touch = FULL;
    else if (!strcmp(a, "touch=none"))
      touch = NONE;
    else if (!strcmp(a, "think"))
      thinks = true;
    else if (!strcmp(a, "latency"))
      timed = true;
    else if (!strcmp(a, "null"))
      nothing = true;
    else if (!strncmp(a, "settle=", 7))
      settle_ms = (unsigned)atoi(a + 7);
    else
      fail("unknown argument %s", a);
  }
}

int main(int argc, char **argv) {
  if (argc < 2)
    fail("usage: play PLAN [touch=first|full|none] [think] [latency] [null] [settle=MS]");
  read_arguments(argc, argv);
  open_plan(argv[1]);
  find_operators();
  if (!call_new_aligned)
    call_new_aligned = aligned_new;
  if (!call_delete_sized)
    call_delete_sized = plain_delete;
  calibrate();
  pthread_t sampler;
  if (pthread_create(&sampler, NULL, sample_body, NULL))
    fail("a thread cannot start");
  while (!sampling)
    sched_yield();
  int clear = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  bool exact_peak = clear >= 0 && write(clear, "5", 1) == 1; /* VmHWM starts anew */
  long mapped_kib = own_kib;
  own_most_kib = own_kib = status_kib("VmRSS");
  long start_kib = own_kib - mapped_kib; /* of the program, its libraries and what the allocator begins with */
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  start_ns = now_ns();
  for (uint32_t t = 1; t < head.threads; t++)
    if (!list[t].created)
      start_worker(t);
  if (head.threads)
    play_thread(&workers[0]);
  while (running)
    usleep(20);
  uint64_t end_ns = now_ns();
  getrusage(RUSAGE_SELF, &after);
  long peak = exact_peak ? status_kib("VmHWM") - own_most_kib : 0, end = status_kib("VmRSS") - own_kib;
  over = true;
  pthread_join(sampler, NULL);
  for (size_t i = 0; i < sample_count; i++) /* what threads mapped need not have been there at the peak */
    peak = samples[i].rss_kib > peak ? samples[i].rss_kib : peak;
  usleep(settle_ms * 1000);
  long later = status_kib("VmRSS") - own_kib;
  double cpu = (double)(after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec - before.ru_stime.tv_sec) +
               (double)(after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec - before.ru_stime.tv_usec) * 1e-6;
  double mean = 0;
  for (size_t i = 0; i < sample_count; i++)
    mean += (double)samples[i].rss_kib / (double)sample_count;
  printf("{\"wall_s\": %.9f, \"cpu_s\": %.6f, \"calls_made\": %llu, ", (double)(end_ns - start_ns) * 1e-9, cpu,
         (unsigned long long)head.calls);
  printf("\"peak_rss_kib\": %ld, \"mean_rss_kib\": %.0f, \"end_rss_kib\": %ld, \"later_rss_kib\": %ld, ", peak, mean, end, later);
  printf("\"whole_peak_kib\": %ld, \"whole_mean_kib\": %.0f, \"whole_end_kib\": %ld, ", start_kib + peak, (double)start_kib + mean,
         start_kib + end);
  printf("\"live_end_kib\": %lld, \"own_rss_kib\": %ld, \"page_faults\": %ld, \"voluntary_switches\": %ld",
         (long long)(live_bytes() / 1024), own_kib, after.ru_minflt - before.ru_minflt, after.ru_nvcsw - before.ru_nvcsw);
  if (timed)
    print_calls();
  print_samples();
  printf("}\n");
  fflush(stdout);
  _exit(0);
}
