#include "observe/profile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/sampled.h"
#include "api/thread.h"
#include "base/figures.h"
#include "base/options.h"
#include "masu/heap.h"
#include "observe/curve.h"
#include "observe/live.h"
#include "observe/pprof.h"
#include "observe/stack.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/report.h"
#include "os/signals.h"
#include "pages/meta.h"
#include "pages/supply.h"

enum { BINS_LEAST = 1 << 9, RECORDS_LEAST = 1 << 7, FEW = 10, SITES_AT_ONCE = 64 };

/* Call sites; a tenth more without names of threads. */
enum { SITES_MOST = 1 << 16, SITES_WITHOUT_THREAD = SITES_MOST / 10 };

/* Where a sample was taken. */
typedef struct origin {
  uintptr_t frame[STACK_MOST];
  size_t count;
  profile_labels labels;
} origin;

/* Bytes, of all that is on record. */
typedef struct estimate {
  double sum, variance;
} estimate;

/* Guarded by LOCK_SAMPLES. */
static struct {
  profile all;
  profile_site **bins;
  size_t bin_count; /* a power of two, at least as many as there are sites if there was memory */
  profile_record *records; /* open addressing; at most half full */
  size_t room;     /* a power of two */
  estimate in_use, requested, slack;
  double allocated, peak;
  size_t peak_handed_out; /* supply_peak when that was noted */
  size_t samples, live, stacks, lost;
  /* Of the last file: when, in ns, and what was in use. */
  uint64_t written;
  double written_in_use;
  unsigned files;
  /* So many threads of that process copy the sites. */
  unsigned readers;
  int readers_process;
  uint64_t wanted; /* the interval that was asked for; 0: none */
  unsigned whole;  /* so many look for leaks, and want every block on record meanwhile */
} profiler;
static SELDOM curve over_time; /* likewise */

/* Are there the tables? They stay, so also without the lock. */
static bool was_prepared(void) { return profiler.all.started != 0; }

static atomic_u64 took_ns; /* what samples and files took so far */

static uint64_t take_since(uint64_t start) {
  uint64_t ns = os_now_ns() - start;
  add_relaxed(&took_ns, ns);
  return ns;
}

internal bool profiler_lock(void) { return thread_lock(LOCK_SAMPLES); }
internal void profiler_unlock(bool busy) { thread_unlock(LOCK_SAMPLES, busy); }

/* ---- Tables ---- */

/* All zero. NULL: out of memory. */
static void *table_make(size_t size) {
  void *made = os_map(ROUND_UP(size, os_page()), os_page());
  if (made)
    os_populate(made, size); /* else each page is two faults: it is read first */
  return made;
}

static void table_end(void *table, size_t size) {
  if (table)
    os_unmap(table, ROUND_UP(size, os_page()));
}

/* ---- Records ---- */

static size_t home_of(const void *p) {
  return ((uintptr_t)p >> 3) * 0x9e3779b97f4a7c15 >> 20 & (profiler.room - 1);
}

/* Where the record of the block at p is, or would be. */
static profile_record *find_record(const void *p) {
  size_t i = home_of(p);
  while (profiler.records[i].block && profiler.records[i].block != p)
    i = (i + 1) & (profiler.room - 1);
  return &profiler.records[i];
}

static bool records_grow(void) {
  size_t before = profiler.room;
  profile_record *old = profiler.records;
  if (2 * profiler.live < before)
    return true;
  size_t room = before ? 2 * before : RECORDS_LEAST;
  profile_record *made = table_make(room * sizeof *made);
  if (!made)
    return profiler.live + 1 < before;
  profiler.records = made;
  profiler.room = room;
  for (size_t i = 0; i < before; i++)
    if (old[i].block)
      *find_record(old[i].block) = old[i];
  table_end(old, before * sizeof *old);
  return true;
}

/* Those behind it move up, as far as they would have had its place. */
static void remove_record(profile_record *r) {
  size_t mask = profiler.room - 1, hole = (size_t)(r - profiler.records);
  for (size_t i = (hole + 1) & mask; profiler.records[i].block; i = (i + 1) & mask) {
    size_t home = home_of(profiler.records[i].block);
    if (((i - home) & mask) >= ((i - hole) & mask)) {
      profiler.records[hole] = profiler.records[i];
      hole = i;
    }
  }
  profiler.records[hole].block = NULL;
}

internal bool profile_records(profile_table *table) {
  if (!was_prepared())
    return false;
  *table = (profile_table){.all = &profiler.all, .records = profiler.records, .room = profiler.room,
                           .live = profiler.live, .lost = profiler.lost};
  return true;
}

internal profile_record *profile_record_of(const void *p) {
  profile_record *r = was_prepared() && p ? find_record(p) : NULL;
  return r && r->block ? r : NULL;
}

/* Of a table that grows meanwhile as much as is still there. */
internal size_t profile_resident(void) {
  bool busy = profiler_lock();
  const void *by_hash = profiler.bins, *records = profiler.records;
  size_t of_bins = profiler.bin_count * sizeof *profiler.bins, size = profiler.room * sizeof *profiler.records;
  profiler_unlock(busy);
  if (!was_prepared())
    return 0;
  return os_resident_in(by_hash, ROUND_UP(of_bins, os_page())) + os_resident_in(records, ROUND_UP(size, os_page()));
}

/* ---- Sites ---- */

static uint64_t hash_of(const origin *o) {
  uint64_t hash = stack_hash(o->frame, o->count), words[sizeof o->labels / 8];
  memcpy(words, &o->labels, sizeof words);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15, hash ^= hash >> 29;
  return hash;
}

static profile_site **bin_of(uint64_t hash) { return &profiler.bins[hash & (profiler.bin_count - 1)]; }

static void put_in_bin(profile_site *s) {
  profile_site **bin = bin_of(s->hash);
  s->next_in_bin = *bin;
  *bin = s;
}

/* False: there are none yet, and no memory for them. */
static bool bins_grow(void) {
  size_t before = profiler.bin_count, count = before ? 2 * before : BINS_LEAST;
  profile_site **old = profiler.bins;
  if (profiler.stacks < before)
    return true;
  profile_site **made = table_make(count * sizeof *made);
  if (!made)
    return old;
  profiler.bins = made;
  profiler.bin_count = count;
  for (profile_site *s = profiler.all.sites; s; s = s->next)
    put_in_bin(s);
  table_end(old, before * sizeof *old);
  return true;
}

/* May there be one more like this? One that says nothing is there always. */
static bool may_be_new(const origin *o) {
  size_t most = SITES_MOST + (o->labels.thread[0] ? 0 : SITES_WITHOUT_THREAD);
  return profiler.stacks < most || !(o->count || o->labels.thread[0] || o->labels.heap[0]);
}

/* Names of threads may count up, and code may come to ever new addresses: sites are never freed, so from some number on
 * new ones are told apart by less. */
static profile_site *find_site(const origin *o) {
  uint64_t hash = hash_of(o);
  size_t size = o->count * sizeof *o->frame;
  profile_site *s;
  for (s = *bin_of(hash); s; s = s->next_in_bin)
    if (s->hash == hash && s->frame_count == o->count && !memcmp(s->frame, o->frame, size) &&
        !memcmp(&s->labels, &o->labels, sizeof s->labels))
      return s;
  if (!may_be_new(o)) {
    origin less = {0};
    if (o->labels.thread[0])
      less = *o, memset(less.labels.thread, 0, sizeof less.labels.thread);
    return find_site(&less);
  }
  s = meta_alloc(sizeof *s + size);
  if (!s)
    return NULL;
  (void)bins_grow();
  s->hash = hash;
  s->frame_count = (uint32_t)o->count;
  s->labels = o->labels;
  memcpy(s->frame, o->frame, size);
  put_in_bin(s);
  s->next = profiler.all.sites;
  profiler.all.sites = s;
  profiler.stacks++;
  return s;
}

/* Of each of the blocks that r stands for, which was drawn with probability 1 / objects, so many bytes. sign: 1 or -1. */
static void estimate_add(estimate *e, const profile_record *r, size_t bytes, int sign) {
  double each = (double)bytes, unseen = r->objects > 1 ? r->objects - 1 : 0;
  e->sum += sign * r->objects * each;
  e->variance += sign * each * each * r->objects * unseen;
}

static void count_requested(const profile_record *r, int sign) {
  estimate_add(&profiler.requested, r, r->size, sign);
  estimate_add(&profiler.slack, r, r->usable - r->size, sign);
}

/* Are sites copied? Not by those whom fork cut off. */
static bool is_read(void) { return UNLIKELY(profiler.readers) && profiler.readers_process == os_process_id(); }

/* Is more in use than ever before? While sites are copied that waits, so that all of them are of one peak. Of n
 * estimates of the same thing the highest is by chance some √(2 ln n) standard deviations too high, and its
 * difference to another of them √2 times as much. Each time that all that is in use is replaced there are some. Less
 * than that counts only if more was handed out than ever since the last peak: that is known exactly. */
static bool is_new_peak(void) {
  double more = profiler.in_use.sum - profiler.peak;
  if (more <= 0 || is_read())
    return false;
  uint64_t n = 8 * ((uint64_t)(profiler.allocated / profiler.in_use.sum) | 1);
  double ln = 0.7 * (64 - __builtin_clzll(n));
  if (supply_peak() <= profiler.peak_handed_out && more * more <= 4 * ln * profiler.in_use.variance)
    return false;
  profiler.peak_handed_out = supply_peak();
  return true;
}

/* What is handed out or kept for reuse. */
static double held_now(void) {
  supply_figures f = supply_figures_now();
  return (double)(f.used + f.direct + f.idle + f.kept);
}

/* Lock held. Who frees makes it no more: what was held before will do. */
static void draw_curve(uint64_t now, double held) {
  curve_add(&over_time, now - profiler.all.started, (curve_point){profiler.in_use.sum, held});
}

/* sign: 1 or -1. */
static void count_in_use(const profile_record *r, int sign) {
  profile_site *s = r->site;
  if (s->peaks_seen != profiler.all.peaks) {
    s->peaks_seen = profiler.all.peaks;
    s->peak = s->in_use;
  }
  double bytes = r->objects * (double)r->usable;
  s->in_use.objects += sign * r->objects;
  s->in_use.bytes += sign * bytes;
  s->in_use.samples += sign;
  s->born += sign * r->objects * (double)(r->since - profiler.all.started);
  estimate_add(&profiler.in_use, r, r->usable, sign);
  count_requested(r, sign);
  if (is_new_peak()) {
    profiler.peak = profiler.in_use.sum;
    profiler.all.peaks++;
  }
}

/* ---- Names of threads ---- */

enum { NAME_BINS = 256, NAME_WAIT_MOST = 64 };
static SELDOM struct {
  uintptr_t thread;
  uint32_t read; /* ms; 0: never */
  char name[16];
} names_read[NAME_BINS];

/* ms: when the thread last asked, and for how long it doesn't ask again. */
static __thread uint32_t name_read, name_wait;

/* The system is asked again once the thread has had the same name for as long again, but for NAME_WAIT_MOST at
 * most: so long it may go on under its old name. Under the lock. */
static const char *thread_name(uint64_t now) {
  uintptr_t self = os_thread_self();
  uint32_t ms = (uint32_t)(now / 1000000) | 1;
  size_t bin = self * 0x9e3779b97f4a7c15 >> 56;
  char *name = names_read[bin].name, before[sizeof names_read[bin].name];
  bool is_known = names_read[bin].thread == self && names_read[bin].read == name_read;
  if (!is_known || ms - name_read >= name_wait) {
    memcpy(before, name, sizeof before);
    os_thread_read_name(name);
    bool is_same = is_known && !memcmp(name, before, sizeof before);
    name_wait = is_same ? (uint32_t)min_size(2 * name_wait, NAME_WAIT_MOST) : 1;
    names_read[bin].thread = self;
    names_read[bin].read = name_read = ms;
  }
  return name;
}

/* ---- The observer ---- */

static void remember(profile_record r, const origin *o) {
  profiler.samples++;
  r.site = records_grow() ? find_site(o) : NULL;
  if (!r.site) {
    profiler.lost++;
    return;
  }
  profile_record *place = find_record(r.block);
  profiler.live += !place->block;
  *place = r;
  double bytes = r.objects * (double)r.usable;
  r.site->allocated.objects += r.objects;
  r.site->allocated.bytes += bytes;
  r.site->allocated.samples++;
  profiler.allocated += bytes;
  count_in_use(&r, 1);
  draw_curve(r.since, held_now());
}

static unsigned file_due(uint64_t now);

static void observe_taken(void *p, size_t size, size_t usable, const account *a, double weight) {
  origin o;
  uint64_t start = os_now_ns();
  o.count = stack_capture(o.frame, STACK_MOST);
  o.labels = (profile_labels){0};
  if (a)
    strncpy(o.labels.heap, masu_heap_name((const masu_heap *)a), sizeof o.labels.heap - 1);
  profile_record r = {.block = p, .size = size, .usable = usable, .since = start, .objects = weight};
  bool busy = profiler_lock();
  memcpy(o.labels.thread, thread_name(r.since), sizeof o.labels.thread);
  remember(r, &o);
  unsigned number = thread_holding ? 0 : file_due(r.since); /* who waits for that lock would wait for the disk */
  profiler_unlock(busy);
  budget_look_took(take_since(start));
  if (UNLIKELY(number != 0))
    profile_write_file("heap", number, masu_profile_write);
}

static void observe_freed(void *p) {
  uint64_t now = os_now_ns();
  bool busy = profiler_lock();
  profile_record *r = find_record(p);
  if (r->block) {
    r->site->freed.objects += r->objects;
    r->site->freed.bytes += r->objects * (double)(now - r->since);
    count_in_use(r, -1);
    draw_curve(now, over_time.now.held);
    remove_record(r);
    profiler.live--;
  }
  profiler_unlock(busy);
  take_since(now);
}

static bool observe_resized(void *p, size_t size) {
  bool busy = profiler_lock();
  profile_record *r = find_record(p);
  bool fits = !r->block || size <= r->usable;
  if (r->block && fits) {
    count_requested(r, -1);
    r->size = size;
    count_requested(r, 1);
    r->used = false;
  }
  profiler_unlock(busy);
  return fits;
}

static size_t observe_used(void *p) {
  bool busy = profiler_lock();
  profile_record *r = find_record(p);
  size_t usable = r->block ? r->usable : 0;
  if (r->block)
    r->used = true;
  profiler_unlock(busy);
  return usable;
}

static const sample_observer heap_profiler = {observe_taken, observe_freed, observe_resized, observe_used};

/* ---- masu/profile.h ---- */

/* From here on with the lock held. */
static bool profiler_prepare(void) {
  if (!bins_grow() || !records_grow())
    return false;
  if (!was_prepared()) {
    profiler.all.started = os_now_ns();
    profiler.all.started_wall = os_wall_ns();
  }
  return true;
}

/* Nobody else sets the interval: one who set it without the lock would have the last word over whoever
 * asked after him. */
static void sample_as_wanted(void) {
  uint64_t interval = profiler.whole ? 1 : profiler.wanted;
  if (interval)
    profiler.all.interval = interval;
  sample_start(&heap_profiler, interval);
}

internal int profile_whole_begin(void) {
  if (!profiler_prepare())
    return ENOMEM;
  profiler.whole++;
  sample_as_wanted();
  return 0;
}

internal void profile_whole_end(void) {
  profiler.whole--;
  sample_as_wanted();
}

/* Without the lock again. */
internal bool profile_is_whole(void) {
  bool busy = profiler_lock(), whole = profiler.whole;
  profiler_unlock(busy);
  return whole;
}

PUBLIC int masu_profile_start(size_t interval) {
  bool busy = profiler_lock(), ready = profiler_prepare();
  if (ready) {
    profiler.wanted = interval ? interval : BUDGET_INTERVAL;
    sample_as_wanted();
  }
  profiler_unlock(busy);
  return ready ? 0 : ENOMEM;
}

PUBLIC void masu_profile_stop(void) {
  bool busy = profiler_lock();
  profiler.wanted = 0;
  sample_as_wanted();
  profiler_unlock(busy);
}

static const pprof_type heap_types[] = {
    {"inuse_objects", "count"}, {"inuse_space", "bytes"}, {"alloc_objects", "count"}, {"alloc_space", "bytes"},
    {"peak_objects", "count"},  {"peak_space", "bytes"},  {"freed_objects", "count"}, {"lifetime", "nanoseconds"},
    {"inuse_age", "nanoseconds"}, {"inuse_samples", "count"}, {"alloc_samples", "count"}, {"peak_samples", "count"},
};

/* Lock held. A site stays, and so do its stack and its labels. */
static pprof_stack copy_site(const profile_site *s, uint64_t now) {
  amount peak = profile_at_peak(&profiler.all, s);
  return (pprof_stack){.frame = s->frame, .frame_count = s->frame_count, .thread = s->labels.thread, .heap = s->labels.heap,
                       .value = {s->in_use.objects, s->in_use.bytes, s->allocated.objects, s->allocated.bytes, peak.objects,
                                 peak.bytes, s->freed.objects, s->freed.bytes, profile_age(&profiler.all, s, now),
                                 s->in_use.samples, s->allocated.samples, peak.samples}};
}

/* Some at a time: who takes or frees a sample meanwhile waits for these, and not for all, nor for memory to put
 * them in. */
static void copy_sites(buffer *stacks, const profile_site *s) {
  while (s && buffer_room(stacks, SITES_AT_ONCE * sizeof(pprof_stack))) {
    bool busy = profiler_lock();
    uint64_t now = os_now_ns();
    for (int i = 0; s && i < SITES_AT_ONCE; i++, s = s->next) {
      pprof_stack stack = copy_site(s, now);
      buffer_put(stacks, &stack, sizeof stack);
    }
    profiler_unlock(busy);
  }
}

/* By Newton; x from above. */
static double square_root(double x) {
  double root = x > 1 ? x : 1;
  for (int i = 0; i < 200 && root * root > x * (1 + 1e-9); i++)
    root = (root + x / root) / 2;
  return x > 0 ? root : 0;
}

/* Bytes for which a sample may be missing: the mean of those that there are or, while they are few, of the widest
 * interval; never less than was asked for, since what is large may be all there is on record. */
static double unseen_weight(void) {
  double asked = (double)profiler.all.interval, each = (double)budget_widest();
  if (asked <= 1)
    return 0; /* nothing is unseen */
  if (profiler.live >= FEW)
    each = profiler.in_use.variance / profiler.in_use.sum;
  return each > asked ? each : asked;
}

/* What the mean byte of those on record stands for. */
static double seen_weight(const estimate *e) { return e->sum >= 1 ? e->variance / e->sum : 0; }

/* An end of the 95 % interval; side: 1 or -1. Of the score test, corrected for counts being whole: the samples'
 * own variance is too small where they are few, and 0 where there is none. The upper end is about what may be unseen,
 * the lower one about what was seen, which may stand for much less. Lock held. */
static double estimate_bound(const estimate *e, double side) {
  double w = side > 0 ? unseen_weight() : seen_weight(e);
  if (side > 0 && e->sum >= 1) /* less is what rounding left */
    w *= e->sum / profiler.in_use.sum; /* what one sample stands for */
  double end = e->sum + (1.92 + side / 2) * w + side * 1.96 * square_root(e->variance + (0.96 + side / 2) * w * w);
  if (side > 0 || end < e->sum)
    return end > 0 ? end : 0;
  return e->sum;
}

/* Lock held. */
static void say_how_exact(char *in_use, char *took, char *pace, size_t size) {
  snprintf(in_use, size, "in use %llu to %llu bytes, lost %zu samples",
           (unsigned long long)estimate_bound(&profiler.in_use, -1),
           (unsigned long long)estimate_bound(&profiler.in_use, 1), profiler.lost);
  snprintf(took, size, "the profiler took %llu ns", (unsigned long long)load_relaxed(&took_ns));
  if (budget_widest() > profiler.all.interval)
    snprintf(pace, size, "of the threads that allocated most a sample every %zu KiB", (size_t)(budget_widest() / KIB));
}

/* Lock held. */
static void reading_begins(void) {
  profiler.readers = is_read() ? profiler.readers + 1 : 1;
  profiler.readers_process = os_process_id();
}

static void reading_ends(void) {
  bool busy = profiler_lock();
  profiler.readers -= is_read();
  profiler_unlock(busy);
}

static int profile_write(const char *path, int put(const char *, const void *, size_t), uint64_t *size) {
  buffer stacks = {0}, memory = {0}, out = {0};
  char in_use[100], took[100], pace[100] = "";
  if (!buffer_room(&memory, sizeof over_time))
    return ENOMEM;
  uint64_t start = os_now_ns();
  bool busy = profiler_lock();
  uint64_t now = os_now_ns();
  say_how_exact(in_use, took, pace, sizeof pace);
  draw_curve(now, held_now());
  buffer_put(&memory, &over_time, sizeof over_time);
  reading_begins();
  const profile_site *newest = profiler.all.sites; /* in front of the others */
  const pprof_source source = {.types = heap_types, .type_count = sizeof heap_types / sizeof *heap_types,
                               .shown = "inuse_space", .period_type = {"space", "bytes"}, .period = profiler.all.interval,
                               .started = profiler.all.started, .started_wall = profiler.all.started_wall,
                               .now = now, .comment = {in_use, took, *pace ? pace : NULL}, .stacks = &stacks,
                               .over_time = (const void *)memory.at};
  profiler_unlock(busy);
  copy_sites(&stacks, newest);
  reading_ends();
  int why = pprof_encode(&source, &out) ? put(path, out.at, out.size) : ENOMEM;
  *size = out.size;
  buffer_drop(&stacks);
  buffer_drop(&memory);
  buffer_drop(&out);
  take_since(start);
  return why;
}

PUBLIC int masu_profile_write(const char *path) {
  uint64_t size;
  return was_prepared() ? profile_write(path, os_file_write, &size) : EINVAL;
}

internal int profile_write_new(const char *path, uint64_t *size) {
  if (!was_prepared())
    return ENODATA;
  return *path == '/' ? profile_write(path, os_file_write_new, size) : EINVAL;
}

PUBLIC int masu_profile_read(masu_profile_figures *out, size_t size) {
  if (!was_prepared() || !FIGURES_FIT(size, masu_profile_figures, lost))
    return EINVAL;
  bool busy = profiler_lock();
  masu_profile_figures now = {
      .in_use = profiler.in_use.sum,
      .in_use_low = estimate_bound(&profiler.in_use, -1),
      .in_use_high = estimate_bound(&profiler.in_use, 1),
      .requested = profiler.requested.sum,
      .requested_low = estimate_bound(&profiler.requested, -1),
      .requested_high = estimate_bound(&profiler.requested, 1),
      .slack = profiler.slack.sum,
      .slack_low = estimate_bound(&profiler.slack, -1),
      .slack_high = estimate_bound(&profiler.slack, 1),
      .allocated = profiler.allocated,
      .peak = profiler.peak,
      .samples = profiler.samples,
      .live = profiler.live,
      .stacks = profiler.stacks,
      .lost = profiler.lost,
      .took = (double)load_relaxed(&took_ns) * 1e-9,
  };
  profiler_unlock(busy);
  figures_give(out, size, &now, sizeof now);
  return 0;
}

/* ---- Files that the options ask for ---- */

static SELDOM char profile_folder[PROFILE_PATH_MOST - 300]; /* with the slash; "": where the process is */

internal void profile_path(char *path, size_t size, const char *kind, unsigned number) {
  char between[16] = "";
  if (number)
    snprintf(between, sizeof between, "-%04u", number);
  snprintf(path, size, "%s%.200s.%d%s.%s.pb", profile_folder, os_program_name(), os_process_id(), between, kind);
}

internal bool profile_has_folder(void) { return *profile_folder; }

internal bool profile_find_folder(void) {
  const char *wanted = os_environment("MASU_PROFILE");
  if (wanted && *wanted && snprintf(profile_folder, sizeof profile_folder, "%s/", wanted) >= (int)sizeof profile_folder) {
    report("MASU_PROFILE: the path is too long");
    return false;
  }
  return true;
}

internal void profile_write_file(const char *kind, unsigned number, int (*write_to)(const char *path)) {
  char path[PROFILE_PATH_MOST];
  profile_path(path, sizeof path, kind, number);
  int why = write_to(path);
  if (why)
    report("the profile was not written to %s: %s", path, strerrordesc_np(why));
}

/* Lock held. */
static unsigned file_begins(uint64_t now) {
  profiler.written = now;
  profiler.written_in_use = profiler.in_use.sum;
  return ++profiler.files;
}

/* Lock held. The number of the file that is due; 0: none is. Growth counts from what was in
 * use at the last file and not from the least since: a program whose memory goes up and down again and
 * again writes none at a height that it has written at. */
static unsigned file_due(uint64_t now) {
  uint64_t every = option_get(OPTION_profile_every) * 1000000000, growth = option_get(OPTION_profile_growth) * MIB;
  bool is_time = every && now >= profiler.written + every; /* others write meanwhile */
  bool has_grown = growth && profiler.in_use.sum >= profiler.written_in_use + (double)growth;
  return is_time || has_grown ? file_begins(now) : 0;
}

/* The process that got the signal and has not written since; 0: none. */
static atomic_u32 signalled;

static void profile_on_signal(int number, siginfo_t *info, void *context) {
  (void)number, (void)info, (void)context;
  exchange_acq_rel(&signalled, (uint32_t)os_process_id());
  live_wake();
}

internal void profile_write_if_signalled(void) {
  if (exchange_acq_rel(&signalled, 0) != (uint32_t)os_process_id())
    return;
  bool busy = profiler_lock();
  unsigned number = file_begins(os_now_ns());
  profiler_unlock(busy);
  profile_write_file("heap", number, masu_profile_write);
}

/* The program's own handler, if it sets one later, takes the place of this one. */
static void listen_to_signal(int number) {
  static taken_signal taken;
  int why = signal_take(&taken, number, profile_on_signal, false);
  if (!why)
    live_wakes_by_signals();
  else
    report("profile_signal: no profile by signal %d: %s", number,
           why == EBUSY ? "it has a handler, or is ignored" : strerrordesc_np(why));
}

/* Whose profile it is: a child of vfork that could not execute another program has the same memory. */
static int profile_process;
static void profile_fork_child(void) { profile_process = os_process_id(); }

/* Leaks are among all blocks, so none may be missing, until the process ends. */
static int begin_whole(void) {
  bool busy = profiler_lock();
  int why = profile_whole_begin();
  profiler_unlock(busy);
  return why;
}

internal void profile_begin(void) {
  uint64_t interval = option_get(OPTION_profile);
  bool leaks = option_get(OPTION_leaks);
  if ((!interval && !leaks) || !profile_find_folder())
    return;
  profiler.written = os_now_ns();
  profile_process = os_process_id();
  os_at_fork(NULL, NULL, profile_fork_child);
  int why = leaks ? begin_whole() : masu_profile_start(interval > 1 ? interval : BUDGET_INTERVAL);
  if (why)
    report("no heap profile: %s", strerrordesc_np(why));
  else if (option_get(OPTION_profile_signal))
    listen_to_signal((int)option_get(OPTION_profile_signal));
}

internal void profile_end(void) {
  static atomic_u32 ended;
  if (option_get(OPTION_profile) && was_prepared() && profile_process == os_process_id() && !thread_busy &&
      !exchange_acq_rel(&ended, 1))
    profile_write_file("heap", 0, masu_profile_write);
}

__attribute__((destructor)) static void profiled_program_exits(void) { profile_end(); }
