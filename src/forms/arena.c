/* arena: linear memory in a chain of runs (masu/arena.h).
 *
 *     runs before the current one are full
 *     runs after it are empty, kept for the next time
 *     bytes of a run at `dirty` and above are zero and were never handed out; of the
 *     current run, at or above max(dirty, at)
 */
#include "masu/arena.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/figures.h"
#include "forms/named.h"
#include "heap/large.h"

#define ARENA_USUAL (64 * KIB)
#define ARENA_STEP_MOST MIB /* runs grow by half up to this, then stay */

struct masu_run {
  masu_run *next, *before;
  char *start, *end;
  char *dirty;
  size_t offset; /* bytes of the runs before it */
};

typedef struct arena {
  masu_arena head;
  bool fixed, foreign; /* never grows; lies in the caller's memory */
  masu_run *first;
  size_t held;
  size_t room; /* bytes of the runs up to the current one */
  tenant tenant; /* unless foreign: then the first run lies here */
} arena;

#define FOREIGN_ARENA ROUND_UP(offsetof(arena, tenant), 16)

static arena *arena_of(const masu_arena *head) {
  arena *a = (arena *)(uintptr_t)head;
  if (!a->foreign)
    tenant_used(&a->tenant, a);
  else if (CHECKED && !a->first)
    report_misuse("use after destroy", a);
  return a;
}

static size_t run_room(const masu_run *r) { return (size_t)(r->end - r->start); }

static void run_enter(arena *a, masu_run *r) {
  a->head = (masu_arena){.at = r->start, .end = r->end, .run = r};
  a->room = r->offset + run_room(r);
}

static void run_leave(masu_arena *a) {
  if (a->run->dirty < a->at)
    a->run->dirty = a->at;
}

/* A run over `bytes` at memory, of which `dirty` at the start may not be zero. */
static masu_run *run_make(char *memory, size_t bytes, size_t dirty) {
  masu_run *r = (masu_run *)(void *)memory;
  char *start = memory + sizeof *r;
  *r = (masu_run){.start = start, .end = memory + bytes};
  r->dirty = dirty > sizeof *r ? memory + min_size(dirty, bytes) : start;
  return r;
}

/* ---- Coming and going ---- */

/* For other threads as well: nothing is followed. */
static size_t arena_used(const arena *a) {
  return tenant_peek(&a->room) - (tenant_peek(&a->head.end) - tenant_peek(&a->head.at));
}

static void arena_figures(const tenant *t, size_t *used, size_t *held) {
  const arena *a = CONTAINER_OF(t, arena, tenant);
  *used = arena_used(a);
  *held = tenant_peek(&a->held);
}

static masu_run *run_take(arena *a, size_t size) {
  size_t dirty = 0, bytes;
  if (size > LARGE_MOST)
    return NULL;
  char *memory = form_take(a->tenant.heap, size + sizeof(masu_run), 16, &dirty);
  if (!memory)
    return NULL;
  bytes = a->fixed ? size + sizeof(masu_run) : masu_malloc_usable_size(memory);
  a->held += bytes;
  /* What malloc rounded up to isn't known to be zero where the rest isn't. */
  return run_make(memory, bytes, dirty ? bytes : 0);
}

static void close_inline(masu_arena *head) { head->at = head->end = NULL; }
static void arena_shut(tenant *t) { close_inline(&CONTAINER_OF(t, arena, tenant)->head); }

static masu_arena *arena_make(masu_heap *in, const char *name, size_t size, bool fixed) {
  arena *a = tenant_make(in, sizeof *a, 16);
  if (!a)
    return NULL;
  *a = (arena){.fixed = fixed, .tenant = {.heap = in, .figures = arena_figures, .shut = arena_shut}};
  a->first = run_take(a, size);
  if (!a->first) {
    masu_free(a);
    errno = ENOMEM;
    return NULL;
  }
  run_enter(a, a->first);
  tenant_join(&a->tenant, in, "arena", name);
  form_taken(in);
  return &a->head;
}

PUBLIC masu_arena *masu_arena_create_in(masu_heap *in, const char *name, size_t size) {
  return arena_make(in, name, size ? size : ARENA_USUAL - sizeof(masu_run), false);
}

PUBLIC masu_arena *masu_arena_create_fixed(masu_heap *in, const char *name, size_t capacity) {
  if (!capacity) {
    errno = EINVAL;
    return NULL;
  }
  return arena_make(in, name, capacity, true);
}

PUBLIC masu_arena *masu_arena_init(void *memory, size_t bytes) {
  size_t gap = -(uintptr_t)memory & 15;
  char *place = (char *)memory + gap;
  if (!memory || bytes < gap + FOREIGN_ARENA + sizeof(masu_run) + 1) {
    errno = EINVAL;
    return NULL;
  }
  arena *a = (arena *)(void *)place;
  size_t left = bytes - gap - FOREIGN_ARENA;
  a->fixed = a->foreign = true;
  a->held = left;
  a->first = run_make(place + FOREIGN_ARENA, left, left);
  run_enter(a, a->first);
  return &a->head;
}

static void runs_free(arena *a, masu_run *r) {
  for (masu_run *next; r; r = next) {
    next = r->next;
    a->held -= (size_t)(r->end - (char *)r);
    masu_free(r);
  }
}

PUBLIC void masu_arena_destroy(masu_arena *head) {
  arena *a = head ? arena_of(head) : NULL;
  if (!a)
    return;
  if (!a->foreign) {
    runs_free(a, a->first);
    tenant_end(&a->tenant, a);
  } else if (CHECKED) {
    close_inline(head);
    a->first = NULL;
  }
}

/* ---- Allocating ---- */

static void *arena_out(int why) {
  errno = why;
  return NULL;
}

static masu_run *run_append(arena *a, size_t size) {
  masu_run *now = a->head.run, *r;
  size_t more = run_room(now);
  more = min_size(more + more / 2, max_size(more, ARENA_STEP_MOST));
  int saved = errno;
  if (!(r = run_take(a, max_size(size, more)))) {
    errno = saved;
    if (!(r = run_take(a, size)))
      return NULL;
  }
  r->next = now->next;
  r->before = now;
  if (r->next)
    r->next->before = r;
  now->next = r;
  return r;
}

/* Of the empty runs after the current one the next that is large enough comes next. */
static masu_run *run_reuse(masu_run *now, size_t size) {
  masu_run *r = now->next;
  while (r && run_room(r) < size)
    r = r->next;
  if (!r || r == now->next)
    return r;
  r->before->next = r->next;
  if (r->next)
    r->next->before = r->before;
  r->next = now->next;
  r->before = now;
  r->next->before = r;
  now->next = r;
  return r;
}

/* A run with room for the block becomes the current one. What is not done here is to tell the
 * heap, whose callback may use the arena. */
static bool run_advance(arena *a, size_t size, size_t align) {
  masu_arena *head = &a->head;
  size_t need;
  if (a->fixed || __builtin_add_overflow(size, align, &need) || need > LARGE_MOST)
    return false;
  masu_run *r = run_reuse(head->run, need);
  if (!r && !(r = run_append(a, need)))
    return false;
  run_leave(head);
  r->offset = a->room;
  run_enter(a, r);
  return true;
}

PUBLIC void *masu_arena_alloc_slow(masu_arena *head, size_t size, size_t align) {
  arena *a = arena_of(head);
  if (!is_pow2(align))
    return arena_out(EINVAL);
  if (!run_advance(a, size, align))
    return arena_out(ENOMEM);
  void *p = masu_arena_aligned_alloc(head, align, size);
  form_taken(a->tenant.heap);
  return p;
}

static bool run_fits(const masu_arena *head, size_t size) {
  size_t room = (size_t)(head->end - head->at), gap = -(uintptr_t)head->at & 15;
  return gap <= room && size <= room - gap;
}

PUBLIC void *masu_arena_calloc(masu_arena *head, size_t count, size_t size) {
  arena *a = arena_of(head);
  size_t total;
  if (__builtin_mul_overflow(count, size, &total))
    return arena_out(ENOMEM);
  bool grows = !run_fits(head, total);
  if (grows && !run_advance(a, total, 16))
    return arena_out(ENOMEM);
  char *p = masu_arena_alloc(head, total), *dirty = head->run->dirty;
  if (dirty > p)
    memset(p, 0, min_size(total, (size_t)(dirty - p)));
  if (grows)
    form_taken(a->tenant.heap);
  return p;
}

PUBLIC void *masu_arena_realloc(masu_arena *head, void *p, size_t old_size, size_t size) {
  arena_of(head);
  bool is_last = p && p == head->last && head->last + old_size == head->at;
  if (is_last && size <= (size_t)(head->end - head->last)) {
    if (size < old_size && head->run->dirty < head->at)
      head->run->dirty = head->at; /* what is given up was written to */
    head->at = head->last + size;
    return p;
  }
  if (p && size <= old_size)
    return p;
  void *q = masu_arena_alloc(head, size);
  if (p && q)
    memcpy(q, p, old_size);
  return q;
}

PUBLIC char *masu_arena_strdup(masu_arena *head, const char *text) {
  size_t size = strlen(text) + 1;
  char *p = masu_arena_aligned_alloc(head, 1, size);
  return p ? memcpy(p, text, size) : NULL;
}

/* ---- Going back ---- */

/* Checked builds: it must be in one of the arena's runs, up to the one that is in use. */
static void check_mark(const arena *a, masu_mark mark) {
  const masu_run *r = a->first;
  while (r != mark.run && r != a->head.run)
    r = r->next;
  if (r != mark.run || mark.at < r->start || mark.at > r->end)
    report_misuse("rewind to a mark that is void or another arena's", a);
}

PUBLIC void masu_arena_rewind(masu_arena *head, masu_mark mark) {
  arena *a = arena_of(head);
  if (CHECKED)
    check_mark(a, mark);
  run_leave(head);
  run_enter(a, mark.run);
  head->at = mark.at;
}

PUBLIC void masu_arena_reset(masu_arena *head) {
  arena *a = arena_of(head);
  run_leave(head);
  run_enter(a, a->first);
}

PUBLIC size_t masu_arena_trim(masu_arena *head) {
  arena *a = arena_of(head);
  size_t before = a->held;
  if (!a->foreign) {
    runs_free(a, head->run->next);
    head->run->next = NULL;
  }
  return before - a->held;
}

PUBLIC int masu_arena_read(const masu_arena *head, masu_arena_figures *out, size_t size) {
  const arena *a = arena_of(head);
  if (!FIGURES_FIT(size, masu_arena_figures, runs))
    return EINVAL;
  masu_arena_figures now = {.held = a->held, .used = arena_used(a)};
  for (const masu_run *r = a->first; r; r = r->next)
    now.runs++;
  figures_give(out, size, &now, sizeof now);
  return 0;
}
