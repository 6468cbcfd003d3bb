/* scope: values that die with the scope they were made in (masu/scope.h).
 *
 * Each thread has a stack of values in one array, and one arena for temporary memory; a
 * scope is the length of the one and a mark in the other. The array and the arena are
 * made at the first use and end with the thread.
 *
 *     values[s->first ..] belong to s or to a scope inside it
 */
#include "masu/scope.h"

#include <errno.h>
#include <string.h>

#include "forms/thread_end.h"
#include "base/bits.h"

enum { SCOPE_VALUES_LEAST = 64 };

typedef struct scope_value {
  void *p;
  void (*release)(void *p); /* NULL: free */
} scope_value;

typedef struct scope_stack {
  masu_scope *inner;
  scope_value *values;
  size_t count, room;
  masu_arena *temp;
} scope_stack;

static __thread scope_stack scopes;

static masu_heap *scope_heap(void) { return scopes.inner ? scopes.inner->heap : NULL; }

PUBLIC void masu_scope_open(masu_scope *s, masu_heap *in) {
  s->outer = scopes.inner;
  s->heap = in;
  s->first = scopes.count;
  s->has_temp = 0;
  scopes.inner = s;
}

static void release_down_to(size_t count) {
  while (scopes.count > count) {
    scope_value v = scopes.values[--scopes.count];
    if (v.release)
      v.release(v.p);
    else
      masu_free(v.p);
  }
}

/* Temporary memory goes last: what is released may lie there. */
static void close_inner(masu_scope *s) {
  release_down_to(s->first);
  if (s->has_temp)
    masu_arena_rewind(scopes.temp, s->temp);
  scopes.inner = s->outer;
}

static bool is_open(const masu_scope *s) {
  const masu_scope *i = scopes.inner;
  while (i && i != s)
    i = i->outer;
  return i != NULL;
}

PUBLIC void masu_scope_close(masu_scope *s) {
  if (UNLIKELY(s != scopes.inner) && !is_open(s))
    return; /* closed with an outer one */
  while (scopes.inner != s)
    close_inner(scopes.inner);
  close_inner(s);
}

/* ---- The thread's end ---- */

internal void scope_thread_ends(void) {
  while (scopes.inner)
    close_inner(scopes.inner);
  release_down_to(0);
  masu_free(scopes.values);
  masu_arena_destroy(scopes.temp);
  memset(&scopes, 0, sizeof scopes);
}

/* ---- Values ---- */

static COLD bool scope_grow(void) {
  size_t room = max_size(scopes.room * 2, SCOPE_VALUES_LEAST);
  forms_watch_thread(); /* past the last destructor nothing will close them */
  scope_value *more = masu_reallocarray(scopes.values, room, sizeof *more);
  if (!more)
    return false;
  scopes.values = more;
  scopes.room = room;
  return true;
}

PUBLIC void *masu_scope_add(void *p, void (*release)(void *p)) {
  if (UNLIKELY(scopes.count == scopes.room) && !scope_grow())
    return NULL;
  scopes.values[scopes.count++] = (scope_value){p, release};
  return p;
}

PUBLIC void *masu_scope_alloc(size_t size) {
  void *p = masu_heap_malloc(scope_heap(), size);
  if (p && !masu_scope_add(p, NULL)) {
    masu_free(p);
    return NULL;
  }
  return p;
}

/* The place of the last value p; SIZE_MAX: there is none. */
static size_t find_value(const void *p) {
  for (size_t i = scopes.count; i-- > 0;)
    if (scopes.values[i].p == p)
      return i;
  return SIZE_MAX;
}

PUBLIC void *masu_scope_realloc(void *p, size_t size) {
  size_t at = p ? find_value(p) : SIZE_MAX;
  if (!p)
    return masu_scope_alloc(size);
  void *q = masu_realloc(p, max_size(size, 1));
  if (q && at != SIZE_MAX)
    scopes.values[at].p = q;
  return q;
}

PUBLIC void *masu_scope_temp(size_t size) {
  masu_scope *s = scopes.inner;
  if (UNLIKELY(!scopes.temp)) {
    if (!(scopes.temp = masu_arena_create(0)))
      return NULL;
    forms_watch_thread();
  }
  if (s && UNLIKELY(!s->has_temp)) {
    /* Scopes around it that have none yet start at the same place. */
    masu_mark now = masu_arena_mark(scopes.temp);
    for (; s && !s->has_temp; s = s->outer) {
      s->temp = now;
      s->has_temp = 1;
    }
  }
  return masu_arena_alloc(scopes.temp, size);
}

/* ---- Handing on ---- */

static void close_gap(size_t at) {
  scopes.count--;
  memmove(&scopes.values[at], &scopes.values[at + 1], (scopes.count - at) * sizeof *scopes.values);
}

PUBLIC void *masu_scope_keep(void *p) {
  size_t at = find_value(p);
  if (at == SIZE_MAX)
    return NULL;
  for (masu_scope *s = scopes.inner; s && s->first > at; s = s->outer)
    s->first--;
  close_gap(at);
  return p;
}

/* The value moves to the end of the outer scope's, which is the start of its own. */
PUBLIC void *masu_scope_hand_out(void *p) {
  size_t at = find_value(p);
  masu_scope *s = scopes.inner;
  if (at == SIZE_MAX)
    return NULL;
  while (s && s->first > at)
    s = s->outer;
  if (!s)
    return p; /* the thread's outermost has it */
  scope_value v = scopes.values[at];
  memmove(&scopes.values[s->first + 1], &scopes.values[s->first],
          (at - s->first) * sizeof *scopes.values);
  scopes.values[s->first++] = v;
  return p;
}

PUBLIC size_t masu_scope_count(void) { return scopes.count; }
