#include "observe/leaks.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "api/sampled.h"
#include "api/thread.h"
#include "base/figures.h"
#include "base/options.h"
#include "forms/named.h"
#include "heap/front.h"
#include "heap/roster.h"
#include "masu/leaks.h"
#include "observe/pprof.h"
#include "observe/profile.h"
#include "observe/reach.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/report.h"
#include "os/stop.h"
#include "pages/meta.h"
#include "pages/pagemap.h"

enum { CONTROL_MOST = 4096 }; /* bytes of a thread's control block, at most */
#define AREA_MOST ((size_t)1 << 40) /* what is larger is no stack, but some table that is mostly empty */

typedef struct stretch {
  uintptr_t start, end;
} stretch;

/* Memory that can be written to. */
typedef struct area {
  uintptr_t start, end;
  bool anonymous;  /* no file's, and not shared */
  bool is_initial; /* the initial thread's stack */
  bool searched;   /* a thread's, as far as it is in use */
} area;

/* What is written of the leaks, once the locks are dropped: sites stay, and so do their stacks. */
typedef struct leak_file {
  buffer stacks;
  uint64_t started, started_wall; /* ns */
} leak_file;

/* In a mapping of its own. */
typedef struct leak_check {
  uint64_t since; /* ns: blocks that are older don't count */
  profile_table table;
  reach reach;
  buffer objects; /* stretches: the data of objects */
  buffer areas;
  buffer own;     /* stretches: tables that have addresses of blocks, or such behind them */
  stretch loader; /* its code */
  size_t variables_most; /* bytes of a thread's variables that are not dynamic, at most */
  uintptr_t stack; /* of the calling thread, from here up */
  masu_leaks found;
  leak_file *file; /* NULL: none is wanted */
  int why;
} leak_check;

static void put_stretch(buffer *b, uintptr_t start, uintptr_t end) {
  stretch s = {start, end};
  buffer_put(b, &s, sizeof s);
}
static const stretch *stretches_of(const buffer *b) { return (const stretch *)(const void *)b->at; }
static size_t stretch_count(const buffer *b) { return b->size / sizeof(stretch); }
static area *areas_of(const leak_check *c) { return (area *)(void *)c->areas.at; }
static size_t area_count(const leak_check *c) { return c->areas.size / sizeof(area); }

/* ---- What there is ---- */

static int note_object(struct dl_phdr_info *info, size_t size, void *any) {
  leak_check *c = any;
  bool is_loader = info->dlpi_addr && info->dlpi_addr == os_loader_base();
  (void)size;
  for (unsigned i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + p->p_vaddr;
    if (p->p_type == PT_TLS)
      c->variables_most += p->p_memsz + p->p_align;
    if (p->p_type != PT_LOAD)
      continue;
    if (p->p_flags & PF_W)
      put_stretch(&c->objects, start, start + p->p_memsz);
    if (is_loader && p->p_flags & PF_X)
      c->loader = (stretch){start, start + p->p_memsz};
  }
  return 0;
}

static bool note_areas(leak_check *c) {
  static const char stack[] = "[stack]";
  buffer maps = {0};
  pprof_read_maps(&maps);
  bool known = !maps.failed && maps.size;
  for (const char *line = known ? (const char *)maps.at : ""; *line;) {
    pprof_map m;
    line = pprof_parse_map(line, &m);
    area a = {.start = m.start, .end = m.end};
    a.anonymous = m.may[3] == 'p' && (!m.path_length || *m.path == '[');
    a.is_initial = m.path_length == sizeof stack - 1 && !memcmp(m.path, stack, sizeof stack - 1);
    if (m.may[0] == 'r' && m.may[1] == 'w')
      buffer_put(&c->areas, &a, sizeof a);
  }
  buffer_drop(&maps);
  return known && !c->areas.failed;
}

static void note_own(void *start, size_t size, void *own) {
  put_stretch(own, (uintptr_t)start, (uintptr_t)start + size);
}

static void note_all_own(leak_check *c) {
  size_t size;
  void *scratch = buffer_scratch(&size);
  note_own(scratch, size, &c->own);
  note_own(c, sizeof *c, &c->own);
  note_own(c->table.records, c->table.room * sizeof *c->table.records, &c->own);
  note_own(c->reach.memory, c->reach.memory_size, &c->own);
  note_own(c->areas.at, c->areas.room, &c->own);
  note_own(c->objects.at, c->objects.room, &c->own);
  meta_for_each(note_own, &c->own);
  note_own(c->own.at, c->own.room, &c->own);
}

static bool note_blocks(leak_check *c) {
  if (!reach_make(&c->reach, c->table.live))
    return false;
  for (size_t i = 0; i < c->table.room; i++) {
    const profile_record *r = &c->table.records[i];
    if (r->block)
      reach_add(&c->reach, r->block, r->used ? r->usable : r->size, r);
  }
  reach_sort(&c->reach);
  return true;
}

/* ---- Memory that is bounded by its mapping only ---- */

static area *area_at(const leak_check *c, uintptr_t address) {
  area *a = areas_of(c);
  for (size_t i = 0; i < area_count(c); i++)
    if (address >= a[i].start && address < a[i].end)
      return &a[i];
  return NULL;
}

/* The initial thread's, whichever thread looks. */
static area *initial_stack(const leak_check *c) {
  area *a = areas_of(c);
  for (size_t i = 0; i < area_count(c); i++)
    if (a[i].is_initial)
      return &a[i];
  return NULL;
}

/* Up to where the memory at `at` is all masu's own tables' or all not; true: it is. */
static bool is_own_up_to(const leak_check *c, uintptr_t at, uintptr_t *end) {
  const stretch *own = stretches_of(&c->own);
  for (size_t i = 0; i < stretch_count(&c->own); i++) {
    if (at >= own[i].start && at < own[i].end) {
      *end = min_size(*end, own[i].end);
      return true;
    }
    if (own[i].start > at)
      *end = min_size(*end, own[i].start);
  }
  return false;
}

/* Blocks have roots of their own. The map knows a large block by its first slice. */
static bool is_heap_up_to(const leak_check *c, uintptr_t at, uintptr_t *end) {
  *end = min_size(*end, (at | (SLICE_SIZE - 1)) + 1);
  const reach_block *b = reach_at(&c->reach, at);
  if (map_get((const void *)at) != MAP_NONE)
    return true;
  if (b)
    *end = min_size(*end, b->start + b->size);
  return b != NULL;
}

/* The system joins neighbours, and masu's own data is an object's: parts may be masu's tables. heap_too: but no block, if
 * there is one, is left out. */
static void search_mapping(leak_check *c, uintptr_t start, uintptr_t end, bool heap_too) {
  for (uintptr_t at = start, up_to; at < end; at = up_to) {
    up_to = end;
    if (is_own_up_to(c, at, &up_to) || (!heap_too && is_heap_up_to(c, at, &up_to)))
      continue;
    reach_range(&c->reach, at, up_to);
  }
}

/* ---- Threads ---- */

/* `stack` is where it begins. At its end lie the thread-local variables and behind them, from
 * `self` on, the control block, as glibc has it on x86-64. The initial thread has these elsewhere; and
 * a thread that is on another stack just now, of a coroutine or of a signal handler, has left
 * its own somewhere. */
static void search_thread(leak_check *c, uintptr_t stack, uintptr_t self, bool initial) {
  area *variables = area_at(c, self), *first = initial ? initial_stack(c) : NULL, *now = area_at(c, stack);
  uintptr_t end = variables ? min_size(variables->end, self + CONTROL_MOST) : self;
  bool at_home = now && now == variables && stack < self;
  reach_word(&c->reach, self); /* stacks may be blocks */
  reach_word(&c->reach, stack);
  if (at_home)
    search_mapping(c, stack, end, true);
  else if (variables)
    search_mapping(c, initial ? max_size(variables->start, self - c->variables_most) : variables->start, end, false);
  if (!at_home && first && first != now)
    search_mapping(c, first->start, first->end, false);
  if (!at_home && now)
    search_mapping(c, stack, now->end, false);
  area *seen[] = {variables, first, now};
  for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
    if (seen[i])
      seen[i]->searched = true;
}

static void search_stopped(const stopped_thread *t, void *any) {
  leak_check *c = any;
  reach_word(&c->reach, t->other);
  search_mapping(c, t->other, t->other_end, true);
  search_thread(c, t->stack, t->self, t->id == (unsigned)os_process_id());
}

/* Some threads run on, nobody knows where: all that may be a stack counts. */
static void search_all_mappings(leak_check *c) {
  const area *a = areas_of(c);
  for (size_t i = 0; i < area_count(c); i++)
    if (a[i].anonymous && !a[i].searched && a[i].end - a[i].start <= AREA_MOST)
      search_mapping(c, a[i].start, a[i].end, false);
}

/* ---- Blocks ---- */

static bool is_root(const leak_check *c, const profile_record *r) {
  const profile_site *s = r->site;
  map_entry e = map_get(r->block);
  bool is_loaders = s->frame_count && s->frame[0] > c->loader.start && s->frame[0] <= c->loader.end;
  return r->ignored || is_loaders || (e != MAP_NONE && heap_account_of(slab_of_entry(e)));
}

static void search_roots(leak_check *c) {
  for (size_t i = 0; i < c->reach.count; i++)
    if (is_root(c, c->reach.blocks[i].what))
      reach_root(&c->reach, &c->reach.blocks[i]);
}

/* What masu's own tables have of the program's, and of the forms'. */
static void search_heap(heap *h, void *any) {
  leak_check *c = any;
  reach_word(&c->reach, (uintptr_t)h->hot.scopes);
}
static void search_named(masu_heap *named, void *any) {
  leak_check *c = any;
  reach_word(&c->reach, (uintptr_t)named_context(named));
}

/* Of slabs that nobody records all blocks count, the free ones too: which are free only their
 * owner knows. */
static void search_small(leak_check *c, const slab *s, map_entry e) {
  size_t size = load_relaxed(&s->block_size), all = load_relaxed(&s->threaded) * size;
  size_t step = slab_entry_is_watched(e) && !load_relaxed(&s->owner)->is_sampled ? size : all;
  for (const char *p = s->start; p < s->start + all; p += step)
    if (!sampled_is(e, p))
      reach_range(&c->reach, (uintptr_t)p, (uintptr_t)p + step);
}

static size_t search_entry(char *start, map_entry e, void *any) {
  leak_check *c = any;
  const slab *s = slab_of_entry(e);
  uintptr_t first = (uintptr_t)s->start;
  size_t size = load_relaxed(&s->block_size);
  (void)start;
  if (load_acquire(&s->kind) == SLAB_SMALL) {
    search_small(c, s, e);
  } else if (!reach_at(&c->reach, first) && !front_keeper(s)) {
    reach_range(&c->reach, first, first + size);
  }
  return max_size(load_relaxed(&s->slices), 1);
}

/* ---- A check ---- */

static void search_all(leak_check *c) {
  const stretch *object = stretches_of(&c->objects);
  for (size_t i = 0; i < stretch_count(&c->objects); i++)
    search_mapping(c, object[i].start, object[i].end, true);
  search_thread(c, c->stack, os_thread_self(), os_thread_is_initial());
  stop_for_each(search_stopped, c);
  if (c->found.unstopped)
    search_all_mappings(c);
  roster_for_each(search_heap, c);
  masu_heap_for_each(search_named, c);
  map_for_each(search_entry, c);
  search_roots(c);
  reach_follow(&c->reach);
}

/* Of what is lost, what is older doesn't count. */
static void divide_lost(leak_check *c) {
  for (size_t i = 0; i < c->reach.count; i++) {
    reach_block *b = &c->reach.blocks[i];
    const profile_record *r = b->what;
    if (r->since < c->since)
      reach_forget(b);
  }
  reach_divide(&c->reach);
}

static int search_held(leak_check *c) {
  if (!note_areas(c))
    return c->areas.failed ? ENOMEM : ENOENT;
  if (!os_reads_memory())
    return EPERM;
  note_all_own(c);
  if (c->own.failed || c->objects.failed)
    return ENOMEM;
  search_all(c);
  divide_lost(c);
  return 0;
}

static void sum_leaks(leak_check *c) {
  masu_leaks *f = &c->found;
  for (profile_site *s = c->table.all->sites; s; s = s->next)
    s->direct = s->indirect = (amount){0};
  for (size_t i = 0; i < c->reach.count; i++) {
    const reach_block *b = &c->reach.blocks[i];
    const profile_record *r = b->what;
    if (b->state == REACH_FOUND)
      continue;
    bool direct = b->state == REACH_DIRECT;
    amount *a = direct ? &r->site->direct : &r->site->indirect;
    a->objects += 1;
    a->bytes += (double)r->size;
    *(direct ? &f->direct_blocks : &f->indirect_blocks) += 1;
    *(direct ? &f->direct_bytes : &f->indirect_bytes) += r->size;
  }
  f->unrecorded = c->table.lost;
}

static const pprof_type leak_types[] = {
    {"direct_objects", "count"}, {"direct_space", "bytes"}, {"indirect_objects", "count"}, {"indirect_space", "bytes"},
};

/* Sites without a leak are left out. */
static void note_leaks(const leak_check *c, leak_file *file) {
  file->started = c->table.all->started;
  file->started_wall = c->table.all->started_wall;
  for (const profile_site *s = c->table.all->sites; s; s = s->next) {
    pprof_stack stack = {.frame = s->frame, .frame_count = s->frame_count, .thread = s->labels.thread, .heap = s->labels.heap,
                         .value = {s->direct.objects, s->direct.bytes, s->indirect.objects, s->indirect.bytes}};
    if (s->direct.objects + s->indirect.objects > 0)
      buffer_put(&file->stacks, &stack, sizeof stack);
  }
}

static bool encode_leaks(const leak_file *file, const masu_leaks *found, buffer *out) {
  char comment[200] = "";
  if (found->unstopped)
    snprintf(comment, sizeof comment, "%zu threads could not be stopped: all memory that is not malloc's counts as their stacks",
             found->unstopped);
  else if (found->unrecorded)
    snprintf(comment, sizeof comment, "%zu blocks could not be recorded: what only they lead to counts as lost",
             found->unrecorded);
  const pprof_source source = {.types = leak_types, .type_count = sizeof leak_types / sizeof *leak_types,
                               .shown = "direct_space", .started = file->started, .started_wall = file->started_wall,
                               .now = os_now_ns(), .comment = {*comment ? comment : NULL}, .stacks = &file->stacks};
  return pprof_encode(&source, out);
}

/* With all locks. */
static int check_locked(leak_check *c) {
  if (!profile_records(&c->table))
    return EINVAL;
  dl_iterate_phdr(note_object, c);
  if (!note_blocks(c))
    return ENOMEM;
  int why = stop_threads(&c->found.unstopped) ? search_held(c) : ENOENT;
  stop_end();
  if (why)
    return why;
  sum_leaks(c);
  if (c->file)
    note_leaks(c, c->file);
  return 0;
}

/* In dl_iterate_phdr, once. */
static int check_once(struct dl_phdr_info *info, size_t size, void *any) {
  leak_check *c = any;
  (void)info, (void)size;
  thread_busy = true;
  compiler_fence();
  locks_fork_prepare(false);
  c->why = check_locked(c);
  locks_fork_release();
  compiler_fence();
  thread_busy = false;
  return 1;
}

static NOINLINE int check_above(leak_check *c) {
  c->stack = (uintptr_t)__builtin_frame_address(0);
  dl_iterate_phdr(check_once, c);
  thread_free_deferred();
  return c->why;
}

/* What the caller has in registers is on the stack from here on. */
static NOINLINE int check_with_registers(leak_check *c) {
  __builtin_unwind_init();
  int why = check_above(c);
  __asm__ volatile("" : : : "memory"); /* no jump: this frame stays */
  return why;
}

/* file NULL: none is wanted. */
static int look_for_leaks(uint64_t since, masu_leaks *found, leak_file *file) {
  size_t size = ROUND_UP(sizeof(leak_check), os_page());
  leak_check *c = thread_is_inside() ? NULL : os_map(size, os_page());
  if (!c)
    return thread_is_inside() ? EAGAIN : ENOMEM;
  c->since = since;
  c->file = file;
  int why = check_with_registers(c);
  *found = c->found;
  reach_drop(&c->reach);
  buffer_drop(&c->objects);
  buffer_drop(&c->areas);
  buffer_drop(&c->own);
  os_unmap(c, size);
  return why;
}

static int write_leaks(uint64_t since, const char *path, masu_leaks *found) {
  leak_file file = {0};
  buffer out = {0};
  int why = look_for_leaks(since, found, &file);
  if (!why)
    why = encode_leaks(&file, found, &out) ? os_file_write(path, out.at, out.size) : ENOMEM;
  buffer_drop(&file.stacks);
  buffer_drop(&out);
  return why;
}

/* ---- masu/leaks.h ---- */

static unsigned leak_regions; /* that are open; guarded by LOCK_SAMPLES */

static int open_region(void) {
  bool busy = profiler_lock();
  int why = profile_whole_begin();
  leak_regions += !why;
  profiler_unlock(busy);
  return why;
}

/* More may be closed than were opened. */
static void close_region(void) {
  bool busy = profiler_lock();
  if (leak_regions) {
    leak_regions--;
    profile_whole_end();
  }
  profiler_unlock(busy);
}

/* What is in the hand would not be recorded. */
PUBLIC uint64_t masu_leaks_begin(void) {
  int why = thread_is_inside() ? EAGAIN : open_region();
  if (why) {
    errno = why;
    return 0;
  }
  heap *h = thread_enter_if_joined();
  if (h)
    heap_flush(h);
  thread_leave(h);
  return os_now_ns();
}

PUBLIC int masu_leaks_end(uint64_t begun, masu_leaks *found, size_t size) {
  if (thread_is_inside())
    return EAGAIN;
  if (found && !FIGURES_FIT(size, masu_leaks, unrecorded))
    return EINVAL;
  masu_leaks now = {0};
  int why = found ? look_for_leaks(begun, &now, NULL) : 0;
  if (found)
    figures_give(found, size, &now, sizeof now);
  close_region();
  return why;
}

PUBLIC int masu_leaks_write(uint64_t begun, const char *path) {
  masu_leaks found;
  return write_leaks(begun, path, &found);
}

PUBLIC int masu_leaks_ignore(const void *p) {
  if (thread_is_inside())
    return EAGAIN;
  bool busy = profiler_lock();
  profile_record *r = profile_record_of(p);
  if (r)
    r->ignored = true;
  profiler_unlock(busy);
  return r ? 0 : EINVAL;
}

/* ---- The option ---- */

/* Which process this is, and when it began: a child of fork has its parent's records, of which
 * the stacks of threads that it has not may be all that leads to some. 0: the option is not
 * set. A child of vfork has its parent's memory. */
static struct {
  int process;
  uint64_t since;
} checked;

static void checked_fork_child(void) {
  checked.process = os_process_id();
  checked.since = os_now_ns();
}

internal void leaks_start(void) {
  if (!option_get(OPTION_leaks))
    return;
  checked.process = os_process_id();
  if (!profile_has_folder())
    os_keep_stderr();
  os_at_fork(NULL, NULL, checked_fork_child);
}

static void say_leaks(const masu_leaks *f, const char *path) {
  if (!f->direct_blocks && !f->indirect_blocks)
    report("no leaks");
  else
    report("leaks: %zu bytes in %zu blocks, and %zu bytes in %zu blocks that only they lead to: %s",
           f->direct_bytes, f->direct_blocks, f->indirect_bytes, f->indirect_blocks, path);
}

/* Who asked for a folder reads what is in it. The path is not on the stack: whatever calls before
 * left there would be searched. */
internal void leaks_end(void) {
  static atomic_u32 ended;
  static SELDOM char path[PROFILE_PATH_MOST];
  masu_leaks found;
  if (checked.process != os_process_id() || thread_is_inside() || exchange_acq_rel(&ended, 1))
    return;
  profile_path(path, sizeof path, "leaks", 0);
  int why = write_leaks(checked.since, path, &found);
  if (why)
    report("leaks were not looked for, or not written to %s: %s", path, strerrordesc_np(why));
  else if (!profile_has_folder())
    say_leaks(&found, path);
}

/* The last of all destructors of a static program; in the library, which is initialised
 * first, those of others ran before. */
__attribute__((destructor(101))) static void checked_program_exits(void) { leaks_end(); }
