#include "observe/cpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/thread.h"
#include "base/figures.h"
#include "base/options.h"
#include "heap/helper.h"
#include "masu/cpu.h"
#include "observe/pprof.h"
#include "observe/profile.h"
#include "observe/stack.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/report.h"

enum {
  HZ_DEFAULT = 100,
  HZ_MOST = 1000,
  CPU_BINS = 1 << 13,    /* few: each page that a sample touches first is a page fault */
  CPU_THREADS = 1 << 14, /* that can have a timer at the same time */
  LOOK_MS = 200,         /* between two looks for threads */
  LOOK_THREADS = 256,    /* after so many new ones: others may have ended */
  LATE_PERIODS = 10,     /* a thread that is so late may have lost its timer */
};
#define CPU_ROOM (32 * MIB)
#define WRITER_STACK (64 * KIB)

typedef struct cpu_stack {
  struct cpu_stack *next; /* of its bin; never changes once it is there */
  uint64_t hash;
  atomic_u64 samples, ns;
  char thread[16];
  uint64_t frame_count;
  uintptr_t frame[];
} cpu_stack;

typedef struct cpu_thread {
  atomic_u32 id; /* of the system; 0: the place is free */
  int timer;
  atomic_u64 due; /* the thread's CPU time at its next sample, ns */
  uint64_t look;  /* at which it was there last */
} cpu_thread;

/* What handlers use. All zero: empty. */
typedef struct cpu_table {
  _Atomic(cpu_stack *) bin[CPU_BINS];
  cpu_thread thread[CPU_THREADS];
  atomic_u64 samples, ns, stacks, lost, took;
  atomic_u64 used; /* of the room */
  _Alignas(16) uint8_t room[CPU_ROOM];
} cpu_table;

/* Guarded by LOCK_CPU, but for `table`, which is there before any handler, and what masu-cpu
 * alone uses. */
static struct {
  cpu_table *table;
  int process;       /* whose profile it is: a child of vfork has the same memory */
  size_t places;     /* of threads; behind them all are free */
  size_t last;       /* where a thread was found */
  size_t threads;    /* that have a timer */
  uint64_t look;     /* counts them */
  size_t given;      /* timers since the last */
  unsigned watcher;  /* masu-cpu */
  uint64_t random;
  uint64_t period;                /* the last, also when it does not run; ns */
  uint64_t started, started_wall; /* ns */
  uint64_t used, used_from;       /* CPU time of the process, ns: before the last start, and at it */
  void *stack;                    /* to write files on, in the handler */
} cpu;
static atomic_u64 cpu_period; /* ns; 0: the profiler does not run */
static atomic_u32 cpu_watched; /* masu-cpu runs or is about to */
static atomic_u32 cpu_rung;    /* changes when it has to look */
static atomic_u64 cpu_written; /* when the last file meanwhile was begun, ns */
static atomic_u32 cpu_files;

/* A signal handler that interrupts whoever holds the lock finds its thread busy, and does
 * without a heap. Returns what timers_unlock wants back. */
static bool timers_lock(void) { return thread_lock(LOCK_CPU); }
static void timers_unlock(bool busy) { thread_unlock(LOCK_CPU, busy); }

/* ---- Samples, in the handler ---- */

static uint64_t hash_of_sample(const uintptr_t *frame, size_t count, const char *thread) {
  uint64_t name[2];
  memcpy(name, thread, sizeof name);
  return stack_hash(frame, count) ^ (name[0] * 31 + name[1]) * 0x9e3779b97f4a7c15;
}

/* NULL: no room. */
static cpu_stack *stack_make(uint64_t hash, const uintptr_t *frame, size_t count, const char *thread) {
  size_t size = sizeof(cpu_stack) + count * sizeof *frame;
  uint64_t at = add_relaxed(&cpu.table->used, size);
  if (at + size > CPU_ROOM)
    return NULL;
  cpu_stack *s = (cpu_stack *)(void *)(cpu.table->room + at);
  s->hash = hash;
  s->frame_count = count;
  memcpy(s->frame, frame, count * sizeof *frame);
  memcpy(s->thread, thread, sizeof s->thread);
  return s;
}

static cpu_stack *stack_in(cpu_stack *s, uint64_t hash, const uintptr_t *frame, size_t count, const char *thread) {
  while (s && (s->hash != hash || s->frame_count != count || memcmp(s->frame, frame, count * sizeof *frame) ||
               memcmp(s->thread, thread, sizeof s->thread)))
    s = s->next;
  return s;
}

/* NULL: no room. What a handler made whom another was quicker than stays unused. */
static cpu_stack *stack_find(const uintptr_t *frame, size_t count, const char *thread) {
  uint64_t hash = hash_of_sample(frame, count, thread);
  _Atomic(cpu_stack *) *bin = &cpu.table->bin[hash % CPU_BINS];
  cpu_stack *first = load_acquire(bin), *found, *made = NULL;
  while (!(found = stack_in(first, hash, frame, count, thread))) {
    made = made ? made : stack_make(hash, frame, count, thread);
    if (!made)
      return NULL;
    made->next = first;
    if (cas_acq_rel(bin, &first, made)) {
      add_relaxed(&cpu.table->stacks, 1);
      return made;
    }
  }
  return found;
}

static void count_samples(const void *context, uint64_t samples, uint64_t period) {
  uintptr_t frame[STACK_MOST];
  char thread[16] = "";
  size_t count = stack_capture_from(context, frame, STACK_MOST);
  os_thread_read_name(thread);
  cpu_stack *s = stack_find(frame, count, thread);
  add_relaxed(&cpu.table->samples, samples);
  if (!s) {
    add_relaxed(&cpu.table->lost, samples);
    return;
  }
  add_relaxed(&cpu.table->ns, samples * period);
  add_relaxed(&s->samples, samples);
  add_relaxed(&s->ns, samples * period);
}

static bool is_place(const cpu_thread *t) {
  return t >= cpu.table->thread && t < cpu.table->thread + CPU_THREADS;
}

/* ---- Files meanwhile ---- */

static void write_cpu(void) {
  profile_write_file("cpu", (unsigned)add_relaxed(&cpu_files, 1) + 1, masu_cpu_write);
}

/* Who finds that one is due has to write it. */
static bool file_is_due(void) {
  uint64_t every = option_get(OPTION_profile_every) * 1000000000, now = os_now_ns(), last = load_relaxed(&cpu_written);
  return every && option_get(OPTION_cpu) && now - last >= every && cas_acq_rel(&cpu_written, &last, now);
}

/* A program without threads has no masu-cpu: then the handler writes. Nobody else is there to see that it opens
 * files; and it needs more stack than the program may have left for it. Not where it interrupted masu, and
 * may want a lock that its own thread has: the next sample comes soon. */
static void write_alone_if_due(void) {
  bool is_alone = !load_relaxed(&cpu_watched) && os_thread_id() == (unsigned)os_process_id();
  if (!is_alone || thread_is_inside() || !file_is_due())
    return;
  thread_busy = true; /* nothing is freed here that was deferred: a fast path may have been interrupted */
  compiler_fence();
  os_call_on(cpu.stack, WRITER_STACK, write_cpu);
  compiler_fence();
  thread_busy = false;
}

/* A timer that was dropped may fire once more. */
static void cpu_sample(void *what, const void *context) {
  cpu_thread *t = what;
  uint64_t period = load_relaxed(&cpu_period);
  if (!period || !is_place(t) || load_acquire(&t->id) != os_thread_id())
    return;
  uint64_t due = load_relaxed(&t->due), now = os_cpu_ns(0);
  uint64_t samples = now < due ? 0 : 1 + (now - due) / period;
  store_relaxed(&t->due, due + samples * period);
  os_cpu_timer_set(t->timer, due + samples * period);
  if (samples) {
    count_samples(context, samples, period);
    write_alone_if_due();
  }
  add_relaxed(&cpu.table->took, os_cpu_ns(0) - now);
}

/* ---- Timers, under the lock ---- */

static void watch_ring(void) {
  add_relaxed(&cpu_rung, 1);
  os_wake_one(&cpu_rung);
}

/* id 0: a free place. */
static cpu_thread *thread_find(unsigned id) {
  for (size_t i = 0; i < cpu.places; i++) {
    size_t at = (cpu.last + i) % cpu.places;
    if (load_relaxed(&cpu.table->thread[at].id) == id) {
      cpu.last = at;
      return &cpu.table->thread[at];
    }
  }
  return NULL;
}

/* Of a period, above 0. */
static uint64_t random_part(uint64_t period) {
  cpu.random = (cpu.random ^ os_now_ns()) * 6364136223846793005 + 1442695040888963407;
  return 1 + (cpu.random >> 32) * period / ((uint64_t)1 << 32);
}

static void timer_give(unsigned id, uint64_t period) {
  cpu_thread *t = thread_find(0);
  if (!t && cpu.places < CPU_THREADS)
    t = &cpu.table->thread[cpu.places++];
  if (!t)
    return;
  t->timer = os_cpu_timer_make(id, t);
  if (t->timer < 0)
    return;
  uint64_t due = os_cpu_ns(id) + random_part(period);
  store_relaxed(&t->due, due);
  t->look = cpu.look;
  store_release(&t->id, id);
  os_cpu_timer_set(t->timer, due);
  cpu.threads++;
  if (++cpu.given == LOOK_THREADS)
    watch_ring();
}

static void timer_take(cpu_thread *t) {
  store_relaxed(&t->id, 0);
  os_cpu_timer_drop(t->timer);
  cpu.threads--;
}

/* The thread has ended and another has its number, whose clock began anew; or what fired went
 * nowhere: the program had the signal for itself, or waited for all. */
static bool is_lost(const cpu_thread *t, uint64_t period) {
  unsigned id = load_relaxed(&t->id);
  uint64_t due = load_relaxed(&t->due), now = os_cpu_ns(id);
  return due > now + period || (due + LATE_PERIODS * period < now && !os_cpu_timer_waits(t->timer, id));
}

/* It gets its timer if it is not known. */
static void see_thread(unsigned id) {
  bool busy = timers_lock();
  uint64_t period = load_relaxed(&cpu_period);
  cpu_thread *t = thread_find(id);
  if (t && is_lost(t, period)) {
    timer_take(t);
    t = NULL;
  }
  if (t)
    t->look = cpu.look;
  else if (period && id != cpu.watcher)
    timer_give(id, period);
  timers_unlock(busy);
}

/* ---- Looking for threads ---- */

static void forget_ended_threads(void) {
  bool busy = timers_lock();
  for (size_t i = 0; i < cpu.places; i++) {
    cpu_thread *t = &cpu.table->thread[i];
    if (load_relaxed(&t->id) && t->look != cpu.look)
      timer_take(t);
  }
  while (cpu.places && !load_relaxed(&cpu.table->thread[cpu.places - 1].id))
    cpu.places--;
  timers_unlock(busy);
}

static void look_at_threads(void) {
  bool busy = timers_lock();
  cpu.look++;
  cpu.given = 0;
  timers_unlock(busy);
  if (os_threads_each(see_thread))
    forget_ended_threads();
}

internal void cpu_thread_begins(void) {
  if (load_relaxed(&cpu_period))
    see_thread(os_thread_id());
}

static bool taken_from_us(void) {
  bool busy = timers_lock();
  bool taken = load_relaxed(&cpu_period) && !os_cpu_is_handled();
  timers_unlock(busy);
  return taken;
}

static void give_way(void) {
  if (!taken_from_us())
    return;
  masu_cpu_stop();
  report("the program handles SIGURG itself: the CPU profile ends there");
}

static void watch_ensure(void);

static void *watch_main(void *unused) {
  bool last;
  (void)unused;
  os_thread_name("masu-cpu");
  cpu.watcher = os_thread_id();
  while (!(last = helper_is_last_thread()) && load_relaxed(&cpu_period)) {
    uint32_t rung = load_acquire(&cpu_rung), lonely = helper_step_ms();
    give_way();
    look_at_threads();
    if (file_is_due())
      write_cpu();
    os_wait(&cpu_rung, rung, lonely ? lonely : LOOK_MS);
  }
  store_release(&cpu_watched, 0);
  os_thread_ends();
  if (!last)
    watch_ensure(); /* it may have been started again meanwhile */
  return NULL;
}

static void watch_ensure(void) {
  if (!load_relaxed(&cpu_period) || exchange_acq_rel(&cpu_watched, 1))
    return;
  if (!os_thread_start(watch_main))
    store_release(&cpu_watched, 0);
}

internal bool cpu_wants_threads(void) { return load_relaxed(&cpu_period) != 0; }
internal void cpu_thread_made(void) { watch_ensure(); }

/* From the start on where nobody says that a thread was made. */
static bool watch_is_wanted(void) {
#if defined(MASU_STATIC) || defined(MASU_NO_OVERRIDE)
  return true;
#else
  return os_thread_count() > 1;
#endif
}

/* ---- Starting and stopping ---- */

static uint64_t cpu_used(void) {
  return cpu.used + (load_relaxed(&cpu_period) ? os_cpu_process_ns() - cpu.used_from : 0);
}

static void profile_opens(void) {
  cpu.process = os_process_id();
  cpu.started = os_now_ns();
  cpu.started_wall = os_wall_ns();
  cpu.used = 0;
  cpu.used_from = os_cpu_process_ns();
}

/* Under the lock, in a child of fork: all that there is is the parent's. */
static void forget_parent(void) {
  os_purge(cpu.table, ROUND_UP(sizeof *cpu.table, os_page()));
  cpu.places = cpu.threads = 0;
  cpu.watcher = 0;
  store_relaxed(&cpu_files, 0);
  profile_opens();
}

/* A signal handler that interrupted masu may fork, and the thread may have the lock: then there is no
 * profile until it is started anew. */
static void cpu_fork_child(void) {
  uint64_t period = load_relaxed(&cpu_period);
  store_relaxed(&cpu_watched, 0);
  if (thread_busy) {
    store_relaxed(&cpu_period, 0);
    return;
  }
  bool busy = timers_lock();
  forget_parent();
  if (period)
    timer_give(os_thread_id(), period);
  timers_unlock(busy);
  if (period && watch_is_wanted())
    watch_ensure();
}

/* Under the lock. */
static int cpu_prepare(void) {
  cpu.stack = cpu.stack ? cpu.stack : os_map(WRITER_STACK, os_page());
  if (!cpu.stack)
    return ENOMEM;
  if (!cpu.table) {
    cpu.table = os_map(ROUND_UP(sizeof *cpu.table, os_page()), os_page());
    if (!cpu.table)
      return ENOMEM;
    os_avoid_huge_pages(cpu.table, ROUND_UP(sizeof *cpu.table, os_page()));
    profile_opens();
  } else if (cpu.process != os_process_id()) {
    forget_parent();
  }
  return os_cpu_handle(cpu_sample);
}

PUBLIC int masu_cpu_start(unsigned hz) {
  static atomic_u32 known_to_fork;
  uintptr_t first[1];
  if (hz > HZ_MOST)
    return EINVAL;
  stack_capture(first, 1); /* what the first walk of all prepares is not for a handler */
  bool busy = timers_lock();
  int why = cpu_prepare();
  if (!why) {
    if (!load_relaxed(&cpu_period))
      cpu.used_from = os_cpu_process_ns();
    cpu.period = 1000000000 / (hz ? hz : HZ_DEFAULT);
    store_relaxed(&cpu_period, cpu.period);
  }
  timers_unlock(busy);
  if (why)
    return why;
  if (!exchange_acq_rel(&known_to_fork, 1))
    os_at_fork(NULL, NULL, cpu_fork_child);
  store_relaxed(&thread_join_hook, cpu_thread_begins);
  look_at_threads();
  if (watch_is_wanted())
    watch_ensure();
  return 0;
}

PUBLIC void masu_cpu_stop(void) {
  bool busy = timers_lock();
  if (load_relaxed(&cpu_period)) {
    cpu.used = cpu_used();
    store_relaxed(&cpu_period, 0);
    for (size_t i = 0; i < cpu.places; i++)
      if (load_relaxed(&cpu.table->thread[i].id))
        timer_take(&cpu.table->thread[i]);
    cpu.places = 0;
    os_cpu_handle_no_more();
  }
  timers_unlock(busy);
  watch_ring();
}

/* ---- Reading ---- */

internal size_t cpu_resident(void) {
  bool busy = timers_lock();
  const cpu_table *table = cpu.table;
  timers_unlock(busy);
  return table ? os_resident_in(table, ROUND_UP(sizeof *table, os_page())) : 0;
}

static const pprof_type cpu_types[] = {{"samples", "count"}, {"cpu", "nanoseconds"}};

static void copy_stack(buffer *stacks, cpu_stack *s) {
  pprof_stack stack = {.frame = s->frame, .frame_count = s->frame_count, .thread = s->thread,
                       .value = {(double)load_relaxed(&s->samples), (double)load_relaxed(&s->ns)}};
  buffer_put(stacks, &stack, sizeof stack);
}

/* Those that there are now: more may come while they are written. */
static void copy_stacks(buffer *stacks) {
  for (size_t i = 0; i < CPU_BINS; i++)
    for (cpu_stack *s = load_acquire(&cpu.table->bin[i]); s; s = s->next)
      copy_stack(stacks, s);
}

static pprof_source source_make(const buffer *stacks, char *comment, size_t size) {
  bool busy = timers_lock();
  snprintf(comment, size, "used %llu ns, lost %llu samples, the profiler took %llu ns", (unsigned long long)cpu_used(),
           (unsigned long long)load_relaxed(&cpu.table->lost), (unsigned long long)load_relaxed(&cpu.table->took));
  pprof_source made = {.types = cpu_types, .type_count = 2, .shown = "cpu", .period_type = cpu_types[1],
                       .period = cpu.period, .started = cpu.started, .started_wall = cpu.started_wall,
                       .now = os_now_ns(), .comment = {comment}, .stacks = stacks};
  timers_unlock(busy);
  return made;
}

PUBLIC int masu_cpu_write(const char *path) {
  if (!cpu.table)
    return EINVAL;
  buffer stacks = {0}, out = {0};
  char comment[120];
  copy_stacks(&stacks);
  pprof_source source = source_make(&stacks, comment, sizeof comment);
  int why = pprof_encode(&source, &out) ? os_file_write(path, out.at, out.size) : ENOMEM;
  buffer_drop(&stacks);
  buffer_drop(&out);
  return why;
}

PUBLIC int masu_cpu_read(masu_cpu_figures *out, size_t size) {
  if (!cpu.table || !FIGURES_FIT(size, masu_cpu_figures, threads))
    return EINVAL;
  bool busy = timers_lock();
  masu_cpu_figures now = {
      .sampled = (double)load_relaxed(&cpu.table->ns) * 1e-9,
      .used = (double)cpu_used() * 1e-9,
      .samples = load_relaxed(&cpu.table->samples),
      .stacks = load_relaxed(&cpu.table->stacks),
      .lost = load_relaxed(&cpu.table->lost),
      .threads = cpu.threads,
      .took = (double)load_relaxed(&cpu.table->took) * 1e-9,
  };
  timers_unlock(busy);
  figures_give(out, size, &now, sizeof now);
  return 0;
}

/* ---- What the options ask for ---- */

internal void cpu_begin(void) {
  uint64_t hz = option_get(OPTION_cpu);
  if (!hz || !profile_find_folder())
    return;
  store_relaxed(&cpu_written, os_now_ns());
  int why = masu_cpu_start(hz > 1 ? (unsigned)hz : 0);
  if (why)
    report("no CPU profile: %s", strerrordesc_np(why));
}

internal void cpu_end(void) {
  static atomic_u32 ended;
  if (!option_get(OPTION_cpu) || !cpu.table || cpu.process != os_process_id() || thread_busy ||
      exchange_acq_rel(&ended, 1))
    return;
  give_way();
  masu_cpu_stop();
  profile_write_file("cpu", 0, masu_cpu_write);
}

__attribute__((destructor)) static void cpu_profiled_program_exits(void) { cpu_end(); }
