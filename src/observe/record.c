#include "observe/record.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "api/fast.h"
#include "api/thread.h"
#include "base/bits.h"
#include "masu.h"
#include "observe/spool.h"
#include "observe/stack.h"
#include "observe/ticks.h"
#include "os/os.h"
#include "os/report.h"
#include "pages/pagemap.h"

enum { LEVELS = 2, PEAK_EVERY = 16 /* blocks */ };

/* One block in the making. What a plain record needs stands first. */
typedef struct writer {
  trace_unit *at; /* in the block */
  trace_state state;
  uint32_t process; /* whose file it is of; 0: none yet */
  int untimed;      /* units until the clock is read again */
  trace_unit *end;
  spool_room room;
} writer;

/* What each record asks of its process. */
typedef struct shared {
  atomic_u32 id;
  atomic_u32 order; /* bits */
} shared;

/* THREADS: order between threads is a question. UNSURE: a block may bear a later time than its heap's thread told; see
 * "Time". */
enum { THREADS = 1, UNSURE = 2 };

/* Of the process; zero in a child of fork until it has its own. */
static struct process {
  shared shared;
  atomic_u32 starting;
  atomic_u32 threads;
  spool file;
  struct {
    atomic_u64 ns __attribute__((aligned(64)));
  } last[TAG_FIRST_LIMB]; /* each thread's last reading of the clock, by the tag of its heap */
} * here;

static shared nowhere = {.order = THREADS | UNSURE};

/* Of each thread. The library is there from the start, so its thread-local memory may be
 * as large as it likes. In a program that does much between two calls each cache line is a miss: a plain record
 * takes one here. */
static __thread struct {
  uint32_t depth;   /* records being written */
  uint32_t process; /* in which it has its number */
  shared *home; /* here's, once it has recorded anything */
  writer level[LEVELS];
  uint32_t number;
  uint32_t rounds; /* of destructors so far */
  bool capturing; /* a call stack */
} mine __attribute__((aligned(64))) = {.home = &nowhere};

static char folder[400];
static bool with_stacks;
static uint32_t cost_ns;
static pthread_key_t end_key;
static bool has_end_key;

/* ---- Time ----
 *
 * To read the clock takes longer than the rest of a record, and in order, after all that the thread has read from
 * memory, longer still. So most records bear the time of the thread's last reading: too early, never too late. Where a
 * block goes from thread to thread, its records have to be in order of time all the same. A record may be too early if
 * all that was done with the block before was done by this thread, whose records are in order anyway, or before its
 * last reading:
 *
 *     a block that is given out     was freed by this thread, or came in a slow path, or with the heap. Both say so
 *                                   (thread_moved), and the next record reads. A signal handler that interrupts
 *                                   one has not been told yet: it always reads
 *     a block that is freed         if its slab is the thread's, so was the call that gave it out, or that of one
 *                                   which had the heap before. Else that call bears the time of the last reading
 *                                   at most which the heap's thread had by then, and which stands in `last`: if this
 *                                   thread's own was later, that will do. Else it reads. Of large blocks, which are no
 *                                   thread's, it always does
 *     either                        may have been a signal handler's, in the middle of a record: those have blocks
 *                                   of their own. They always read, and so does the thread's next record
 *
 * A heap's blocks are given out by its thread, and stay as they are. Where one is resized by another thread, or given
 * out by one (its last breath) or by such a signal handler, the process is unsure: from then on each release reads.
 *
 * What others do after a record is later than its true time, so later than an earlier one.
 *
 * In a process of one thread order is no question. So that times say something, a thread reads again after some
 * units of records: the more the less time they take, and with each record where they took UNTIMED_NS: then a reading is
 * little beside the rest. Such a reading may be early itself, since nobody else did anything with its block, so it need
 * not wait for what is still being read from memory. */

enum { PLAIN_MOST = 13 /* units of a record without frames */, UNTIMED_LEAST = 16, UNTIMED_MOST = 128, UNTIMED_NS = 2000 };

static bool has_threads(void) { return load_relaxed(&here->shared.order) & THREADS; }
static uint64_t record_now(void) { return ticks_now_ns(has_threads()); }

static ALWAYS_INLINE bool is_of_a_heap(map_tag tag) { return tag >= TAG_FIRST_HEAP && tag < TAG_FIRST_LIMB; }

/* A release must have a later time than this, of the thread's readings one, or its true time (models/record.pml). 0: the
 * block is the thread's own. */
#define TRUE_TIME UINT64_MAX

static uint64_t given_by(const void *p) {
  uint32_t order = load_acquire(&mine.home->order);
  if (!(order & THREADS))
    return 0;
  if (order & UNSURE)
    return TRUE_TIME;
  map_tag tag = map_entry_tag(map_get(p));
  if (tag == thread_hot->tag)
    return 0;
  return is_of_a_heap(tag) ? max_size(load_acquire(&here->last[tag].ns), 1) : TRUE_TIME;
}

/* The same of a block of the thread's own heap: 0? */
static ALWAYS_INLINE bool is_given_by_itself(void) { return load_acquire(&mine.home->order) != (THREADS | UNSURE); }

/* Before a block that was given out at this time leaves the thread. */
static ALWAYS_INLINE void tell_time(uint64_t ns) {
  map_tag tag = thread_hot->tag;
  if (LIKELY(is_of_a_heap(tag)))
    store_release(&here->last[tag].ns, ns);
}

static void be_unsure(void) {
  if (!(load_relaxed(&here->shared.order) & UNSURE))
    or_release(&here->shared.order, UNSURE);
}

/* The thread has given out or resized it. */
static void note_owner(const void *p) {
  map_tag tag = map_entry_tag(map_get(p));
  if (UNLIKELY(tag >= TAG_FIRST_HEAP && tag != thread_hot->tag))
    be_unsure();
}

/* ---- The file ---- */

/* masu record says it. */
static void stop(int why) {
  uint32_t none = 0;
  cas_acq_rel(&here->file.head->stopped, &none, (uint32_t)why);
}

/* Makes the file and its first page. False: it can't be had. */
static bool open_file(uint32_t process, uint32_t parent) {
  int why = spool_make(&here->file, folder, process);
  if (why) {
    report("process %u cannot be recorded: %s: %s", process, here->file.path, strerrordesc_np(why));
    return false;
  }
  trace_process *head = here->file.head;
  head->version = TRACE_VERSION;
  head->page_size = TRACE_PAGE;
  head->process = process;
  head->parent = parent;
  head->start_ns = record_now();
  head->start_wall_ns = os_wall_ns();
  head->cost_ns = cost_ns;
  head->stacks = with_stacks;
  head->command_length =
    (uint32_t)os_file_read("/proc/self/cmdline", head->command, sizeof head->command, &why);
  store_relaxed(&head->pages, (uint32_t)(os_page() / TRACE_PAGE));
  compiler_fence();
  head->magic = TRACE_PROCESS_MAGIC;
  return true;
}

/* The calling thread's process has a file, or nobody will; false: not recorded. */
static COLD bool join_process(void) {
  uint32_t none = 0;
  if (!cas_acq_rel(&here->starting, &none, 1))
    return false; /* another thread is at it, or it failed */
  uint32_t id = (uint32_t)os_process_id();
  uint32_t parent = mine.process; /* the number is from before the fork */
  if (!open_file(id, parent))
    return false;
  store_release(&here->shared.id, id);
  return true;
}

/* ---- Blocks ---- */

/* The system knows the peak itself: so it is enough to ask now and then; it writes all that it knows of the process. */
static void note_peak_resident(void) { store_relaxed(&here->file.head->peak_resident, os_peak_resident()); }

/* A signal handler waits: if it forked, parent and child would both write copies of the room. No block begins before the
 * end of the one before. */
static int next_block(writer *w, unsigned level) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  uint64_t now = max_size(record_now(), w->state.time + 1);
  int why = w->process == load_relaxed(&here->shared.id) ? spool_next(&here->file, &w->room, mine.number, level, now) : ECANCELED;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return why;
}

static COLD bool open_block(writer *w, unsigned level) {
  int why = next_block(w, level);
  if (why) {
    if (why != ECANCELED)
      stop(why);
    w->at = w->end = NULL;
    thread_moved();
    return false;
  }
  trace_block *b = w->room.block;
  if (w->room.blocks % PEAK_EVERY == 1)
    note_peak_resident();
  w->state = (trace_state){.time = b->time};
  w->untimed = UNTIMED_LEAST;
  w->at = (trace_unit *)(b + 1);
  w->end = (trace_unit *)(void *)((char *)b + spool_block_size(b));
  thread_moved();
  return true;
}

static uint32_t new_number(void) {
  uint32_t number = add_relaxed(&here->threads, 1);
  if (number == 1)
    or_release(&here->shared.order, THREADS);
  return number;
}

/* The number of a new thread, or of one that fork left alone in a new process. */
static void join_thread(uint32_t process) {
  mine.process = process;
  mine.number = new_number();
  if (has_end_key)
    pthread_setspecific(end_key, &mine); /* may allocate, which is recorded as the release will be */
}

static bool begin_anew(writer *w, unsigned level) {
  uint32_t process = load_acquire(&here->shared.id);
  if (!process && !(join_process() && (process = load_acquire(&here->shared.id))))
    return false;
  if (load_relaxed(&here->file.head->stopped))
    return false;
  if (mine.process != process)
    join_thread(process);
  if (w->process != process) {
    *w = (writer){.process = process}; /* the parent's block stays as it is */
    thread_moved();                    /* and so does what lies behind it */
  }
  return open_block(w, level);
}

static COLD bool renew(writer *w, unsigned level) {
  int saved = errno;
  bool done = begin_anew(w, level);
  errno = saved;
  return done;
}

/* ---- Records ---- */

/* A place to write a record of at most `room` units to; NULL: not recorded. */
static writer *record_begin(size_t room) {
  unsigned level = mine.depth;
  if (UNLIKELY(!here))
    return NULL;
  mine.home = &here->shared;
  if (UNLIKELY(level >= LEVELS)) {
    if (here->file.head)
      add_relaxed(&here->file.head->dropped, 1);
    mine.depth = level;
    return NULL;
  }
  mine.depth = level + 1;
  compiler_fence();
  if (level) {
    thread_moved();
    be_unsure();
  }
  writer *w = &mine.level[level];
  bool has_room = w->process == load_relaxed(&here->shared.id) && (size_t)(w->end - w->at) >= room;
  if (!has_room && !renew(w, level)) {
    compiler_fence();
    mine.depth = level;
    return NULL;
  }
  return w;
}

/* The same for a plain record that can do with the time of the one before; NULL: record_begin knows more. A signal
 * handler that comes before the depth is set may use up the room. */
static ALWAYS_INLINE writer *record_begin_along(void) {
  writer *w = &mine.level[0];
  if (UNLIKELY(mine.depth))
    return NULL;
  mine.depth = 1;
  compiler_fence();
  if (LIKELY(w->at < thread_untimed && !thread_busy && w->process == load_relaxed(&mine.home->id)))
    return w;
  mine.depth = 0;
  return NULL;
}

/* The time of a record, which others may go along with: after that one (given_by), and after all that the thread has
 * read from memory if the thread has moved or is about to say so. The place up to which they may go along is said before
 * the clock is read: a signal handler that comes later and takes that back is not overruled. One that came just before
 * is, but to return from it waits for all reading, too. */
static uint64_t record_time(writer *w, uint64_t after) {
  bool in_order = after == TRUE_TIME || thread_busy || !thread_untimed;
  if (w == &mine.level[0] && !with_stacks) {
    trace_unit *full = w->end - PLAIN_MOST + 1;
    thread_untimed = full - w->at > w->untimed ? w->at + w->untimed : full;
    compiler_fence();
  }
  uint64_t now = ticks_now_ns(in_order && has_threads());
  if (after != TRUE_TIME && now <= after)
    now = after + 1; /* read early */
  tell_time(max_size(now, w->state.time));
  if (now > w->state.time + UNTIMED_NS)
    thread_moved();
  bool is_soon = now < w->state.time + UNTIMED_NS / 4;
  w->untimed = !is_soon ? UNTIMED_LEAST : w->untimed < UNTIMED_MOST ? 2 * w->untimed : UNTIMED_MOST;
  return now;
}

static ALWAYS_INLINE void record_commit(writer *w, trace_unit *at) {
  w->at = at;
  compiler_fence();
  mine.depth--;
}

static void close_blocks(void);

/* A signal handler that forked in the middle of the record leaves it to the parent. After a thread's last round of
 * destructors nobody would close what it opens. */
static ALWAYS_INLINE void record_put(writer *w, const trace_record *r) {
  bool is_ours = w->process == load_relaxed(&here->shared.id);
  record_commit(w, LIKELY(is_ours) ? trace_put(w->at, &w->state, r) : w->at);
  if (UNLIKELY(mine.rounds == PTHREAD_DESTRUCTOR_ITERATIONS) && !mine.depth)
    close_blocks();
}

/* ---- Call stacks ---- */

enum { STACKS = 1 << 20 };

/* The hash of every stack that was written; its place is its number. Cleared by fork. */
static atomic_u64 *stacks_seen;

static void write_stack(uint32_t number, const uintptr_t *frame, size_t count) {
  writer *w = record_begin(TRACE_UNITS_MOST);
  if (w)
    record_put(w, &(trace_record){.kind = TRACE_STACK,
                                  .time = w->state.time,
                                  .stack = number,
                                  .frames = (uint32_t)count,
                                  .frame = (const trace_unit *)frame});
}

/* The number of the caller's stack; 0: not wanted, or no more fit. */
static NOINLINE uint32_t stack_number(void) {
  uintptr_t frame[TRACE_FRAMES];
  if (!here || mine.capturing || mine.depth)
    return 0;
  int saved = errno;
  mine.capturing = true; /* the unwinder may allocate: that has no stack, nor has what a signal handler does meanwhile */
  size_t count = stack_capture(frame, TRACE_FRAMES);
  mine.capturing = false;
  errno = saved;
  if (!count)
    return 0;
  uint64_t hash = stack_hash(frame, count);
  for (size_t i = hash % STACKS, tries = 0; tries < 64; i = (i + 1) % STACKS, tries++) {
    uint64_t seen = load_relaxed(&stacks_seen[i]);
    if (!seen && cas_acq_rel(&stacks_seen[i], &seen, hash)) {
      write_stack((uint32_t)i + 1, frame, count);
      return (uint32_t)i + 1;
    }
    if (seen == hash)
      return (uint32_t)i + 1;
  }
  return 0;
}

static ALWAYS_INLINE uint32_t stack_here(void) { return UNLIKELY(with_stacks) ? stack_number() : 0; }

/* ---- One function for each shape of record ---- */

/* memalign takes the next power of two (api/aligned.c); 0: there is none. */
static uint8_t align_log2(size_t align) {
  size_t power = pow2_ceil(align);
  return (uint8_t)(power ? __builtin_ctzl(power) : 0);
}

static NOINLINE void write_timed(trace_kind kind, uint8_t log2, size_t size, const void *p, uint64_t after) {
  trace_record r = {
    .kind = (uint8_t)kind, .align_log2 = log2, .size = size, .address = (uintptr_t)p, .stack = stack_here()};
  writer *w = record_begin(PLAIN_MOST);
  if (w) {
    r.time = record_time(w, after);
    record_put(w, &r);
  }
}

static NOINLINE void write_taken_timed(trace_kind kind, uint8_t log2, size_t size, const void *p) {
  if (here)
    note_owner(p);
  write_timed(kind, log2, size, p, 0);
}

/* A record without time or wide numbers. False: it takes more. */
static ALWAYS_INLINE bool write_along(trace_kind kind, uint8_t log2, size_t size, const void *p) {
  writer *w = record_begin_along();
  if (UNLIKELY(!w))
    return false;
  uint64_t first = kind | (uint64_t)log2 << TRACE_ALIGN_SHIFT;
  trace_unit *at = trace_put_plain(w->at, &w->state, first, size, (uintptr_t)p);
  record_commit(w, LIKELY(at != NULL) ? at : w->at);
  return at;
}

static ALWAYS_INLINE void write_taken(trace_kind kind, uint8_t log2, size_t size, const void *p) {
  if (UNLIKELY(!write_along(kind, log2, size, p)))
    write_taken_timed(kind, log2, size, p);
}

static void write_given(trace_kind kind, size_t size, const void *p) {
  uint64_t after = given_by(p);
  if (after >= mine.level[0].state.time || !write_along(kind, 0, size, p))
    write_timed(kind, 0, size, p, after);
}

static void write_thread(trace_kind kind, uint32_t number) {
  writer *w = record_begin(PLAIN_MOST);
  if (w)
    record_put(w, &(trace_record){.kind = (uint8_t)kind, .time = record_now(), .thread = number});
}

/* ---- The calls ---- */

internal void *recorded_malloc(size_t size) {
  void *p = malloc_fast(size);
  write_taken(TRACE_MALLOC, 0, size, p);
  return p;
}

internal void *recorded_calloc(size_t count, size_t size) {
  size_t total;
  void *p = masu_calloc(count, size);
  if (__builtin_mul_overflow(count, size, &total))
    total = SIZE_MAX;
  write_taken(TRACE_CALLOC, 0, total, p);
  return p;
}

/* What is copied takes no time to speak of; nor does the rest, if the thread has not moved. */
enum { COPIED_MOST = 1024 };

/* A signal handler that comes before the record is written has a level of its own until then: the record's time
 * is that of the call, and the handler may get the memory that the call gave back. */
static ALWAYS_INLINE void *resize(writer *w, uint64_t called, uint32_t stack, void *p, size_t size) {
  trace_record r = {
    .kind = TRACE_REALLOC, .time = called, .stack = stack, .size = size, .old_address = (uintptr_t)p};
  void *q = masu_realloc(p, size);
  compiler_fence();
  if (size > COPIED_MOST || UNLIKELY(!thread_untimed)) {
    uint64_t returned = record_now();
    tell_time(max_size(returned, called));
    note_owner(q);
    r.took_ns = returned > called ? returned - called : 0;
  }
  if (UNLIKELY(r.took_ns > UNTIMED_NS))
    thread_moved(); /* too late by now to go along */
  r.address = (uintptr_t)q;
  record_put(w, &r);
  return q;
}

static NOINLINE void *realloc_timed(void *p, size_t size) {
  uint32_t stack = stack_here();
  writer *w = record_begin(PLAIN_MOST);
  if (!w)
    return masu_realloc(p, size);
  uint64_t called = record_time(w, p ? given_by(p) : 0);
  note_owner(p);
  return resize(w, called, stack, p, size);
}

internal void *recorded_realloc(void *p, size_t size) {
  bool may_go_along = size <= COPIED_MOST && (!p || given_by(p) == 0); /* others' are noted */
  writer *w = may_go_along ? record_begin_along() : NULL;
  return LIKELY(w != NULL) ? resize(w, w->state.time, 0, p, size) : realloc_timed(p, size);
}

internal void *recorded_reallocarray(void *p, size_t count, size_t size) {
  size_t total;
  if (__builtin_mul_overflow(count, size, &total))
    total = SIZE_MAX; /* fails as well */
  return recorded_realloc(p, total);
}

internal void *recorded_reallocf(void *p, size_t size) {
  void *q = recorded_realloc(p, size);
  if (!q && size)
    recorded_free(p);
  return q;
}

static ALWAYS_INLINE void *taken_aligned(size_t alignment, size_t size, void *p) {
  write_taken(TRACE_ALIGNED, align_log2(alignment), size, p);
  return p;
}

internal void *recorded_aligned_alloc(size_t alignment, size_t size) {
  return taken_aligned(alignment, size, masu_aligned_alloc(alignment, size));
}

internal void *recorded_memalign(size_t alignment, size_t size) {
  return taken_aligned(alignment, size, masu_memalign(alignment, size));
}

internal int recorded_posix_memalign(void **out, size_t alignment, size_t size) {
  int failed = masu_posix_memalign(out, alignment, size);
  taken_aligned(alignment, size, failed ? NULL : *out);
  return failed;
}

internal void *recorded_valloc(size_t size) {
  return taken_aligned(os_page(), size, masu_valloc(size));
}

internal void *recorded_pvalloc(size_t size) {
  return taken_aligned(os_page(), ROUND_UP(size, os_page()), masu_pvalloc(size));
}

/* Any block, or NULL; the way of the thread's own stands here. */
static ALWAYS_INLINE void write_and_free(trace_kind kind, size_t size, void *p) {
  uintptr_t leaf = map_leaf(p);
  heap_hot *hot = thread_hot;
  map_entry e = LIKELY(leaf != 0) ? map_get_in(leaf, p) : 0;
  if (LIKELY(leaf != 0) && LIKELY(map_entry_tag(e) == hot->tag) && LIKELY(is_given_by_itself()) &&
      LIKELY(write_along(kind, 0, size, p))) {
    free_own(p, e, hot);
    return;
  }
  if (p)
    write_given(kind, size, p);
  free_fast(p);
}

internal void recorded_free(void *p) { write_and_free(TRACE_FREE, 0, p); }

internal void recorded_free_sized(void *p, size_t size) {
  if (p)
    write_given(TRACE_FREE_SIZED, size, p);
  masu_free_sized(p, size);
}

internal void recorded_free_aligned_sized(void *p, size_t alignment, size_t size) {
  if (p)
    write_given(TRACE_FREE_SIZED, size, p);
  masu_free_aligned_sized(p, alignment, size);
}

internal void *recorded_new(size_t size) {
  void *p = malloc_fast(size);
  write_taken(TRACE_NEW, 0, size, p);
  return p;
}

internal void *recorded_new_aligned(size_t alignment, size_t size) {
  void *p = masu_memalign(alignment, size);
  write_taken(TRACE_NEW_ALIGNED, align_log2(alignment), size, p);
  return p;
}

internal void recorded_delete(void *p) { write_and_free(TRACE_DELETE, 0, p); }

internal void recorded_delete_sized(void *p, size_t alignment, size_t size) {
  (void)alignment;
  write_and_free(TRACE_DELETE_SIZED, size, p);
}

/* ---- Threads ---- */

/* Signal handlers, which would write to them, wait. */
static void close_blocks(void) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (unsigned level = 0; level < LEVELS; level++) {
    spool_leave(&mine.level[level].room);
    mine.level[level] = (writer){0};
  }
  thread_moved();
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

internal bool record_is_on(void) { return here != NULL; }

/* The number is given before the thread runs, so that its creator can name it. */
internal uint64_t record_thread_made(void) {
  if (!here)
    return 0;
  if (!load_acquire(&here->shared.id))
    join_process(); /* a child of fork, whose first call this is */
  uint32_t process = load_relaxed(&here->shared.id);
  if (mine.process != process && process)
    join_thread(process);
  uint32_t number = new_number();
  write_thread(TRACE_THREAD_CREATE, number);
  return (uint64_t)process << 32 | number;
}

internal void record_thread_begins(uint64_t made) {
  uint32_t process = (uint32_t)(made >> 32);
  if (!here || !made || process != load_acquire(&here->shared.id))
    return;
  mine.process = process;
  mine.number = (uint32_t)made;
  close_blocks(); /* of a signal handler that came before, under a number of its own */
  if (has_end_key)
    pthread_setspecific(end_key, &mine);
  write_thread(TRACE_THREAD_START, 0);
}

/* Other destructors may still free: what they do opens a block anew, which is closed in the
 * next round of destructors. */
static void thread_ends(void *unused) {
  (void)unused;
  if (mine.depth)
    return;
  if (++mine.rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
    pthread_setspecific(end_key, &mine);
  if (mine.rounds == 1)
    write_thread(TRACE_THREAD_END, 0);
  close_blocks();
}

/* ---- Start and end ---- */

/* So many nanoseconds for one record, with its share of the clock. */
static uint32_t measure_cost(void) {
  enum { ROUNDS = 5, RECORDS = 200, TIMED = 8 /* one in so many */ };
  trace_unit space[PLAIN_MOST];
  uint64_t best = UINT64_MAX;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t from = ticks_now_ns(false);
    trace_state s = {from, 0};
    for (uint64_t i = 1; i <= RECORDS; i++) {
      trace_record r = {.kind = TRACE_MALLOC, .size = i, .address = 4096 * i};
      if (i % TIMED == 0) {
        r.time = ticks_now_ns(false);
        trace_put(space, &s, &r);
      } else {
        trace_put_plain(space, &s, r.kind, r.size, r.address);
      }
      __asm__ volatile("" : : "r"(space) : "memory");
    }
    uint64_t took = ticks_now_ns(false) - from;
    best = took < best ? took : best;
  }
  return (uint32_t)(best / RECORDS);
}

internal void record_start(void) {
  const char *wanted = os_environment("MASU_RECORD");
  if (!wanted || !*wanted)
    return;
  if (wanted[0] != '/' || strlen(wanted) >= sizeof folder) {
    report("MASU_RECORD: not the absolute path of a folder, or too long: %.64s", wanted);
    return;
  }
  strcpy(folder, wanted);
  struct process *state = os_map(ROUND_UP(sizeof *state, os_page()), os_page());
  if (!state || !os_clear_on_fork(state, ROUND_UP(sizeof *state, os_page()))) {
    report("this system cannot record: no memory that fork clears");
    return;
  }
  os_avoid_huge_pages(state, ROUND_UP(sizeof *state, os_page()));
  const char *stacks = os_environment("MASU_RECORD_STACKS");
  if (stacks && *stacks) {
    stacks_seen = os_map(STACKS * sizeof *stacks_seen, os_page());
    with_stacks = stacks_seen && os_clear_on_fork(stacks_seen, STACKS * sizeof *stacks_seen);
  }
  uint64_t off = 0;
  masu_ctl("helper", NULL, &off); /* a thread that is not the program's */
  ticks_start();
  cost_ns = measure_cost();
  has_end_key = pthread_key_create(&end_key, thread_ends) == 0;
  here = state;
  write_thread(TRACE_THREAD_START, 0);
}

internal void record_end(void) {
  if (!here || !here->file.head || load_relaxed(&here->shared.id) != (uint32_t)os_process_id())
    return;
  if (with_stacks) {
    char path[sizeof here->file.path + 8];
    snprintf(path, sizeof path, "%.*s.maps", (int)(strlen(here->file.path) - 6), here->file.path);
    os_file_copy("/proc/thread-self/maps", path);
  }
  note_peak_resident();
  store_release(&here->file.head->ended, 1);
}

__attribute__((destructor)) static void recorded_program_exits(void) { record_end(); }
