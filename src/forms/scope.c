/* scope: values that die with the scope they were made in (masu/scope.h).
 *
 * Each thread has a stack of values and a stack of open scopes in arrays of its own, and one
 * arena for temporary memory. All are made at the first use and end with the thread. Nothing is
 * read of the caller's masu_scope but its address: the frame that it lay in may be gone.
 *
 *     values[levels[i].first ..] belong to scope i or to scopes inside it
 *     the addresses of the levels differ: a scope that is opened where one is open already
 *     finds a frame that was left without close, which is closed first
 */
#include "masu/scope.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "forms/thread_end.h"

enum { SCOPE_VALUES_LEAST = 64, SCOPE_LEVELS_LEAST = 32 };

typedef struct scope_value {
  void *p;
  void (*release)(void *p); /* NULL: free */
} scope_value;

typedef struct scope_level {
  const masu_scope *key;
  masu_heap *heap;
  size_t first;
  masu_mark temp;
  bool has_temp;
} scope_level;

static __thread struct {
  scope_level *levels;
  scope_value *values;
  size_t depth, level_room;
  size_t count, room;
  masu_arena *temp;
} scopes;

static scope_level *innermost(void) {
  return scopes.depth ? &scopes.levels[scopes.depth - 1] : NULL;
}

static void *grown(void *array, size_t *room, size_t least, size_t size) {
  size_t more = max_size(*room * 2, least);
  forms_watch_thread(); /* past the last destructor nothing will close them */
  void *p = masu_reallocarray(array, more, size);
  if (p)
    *room = more;
  return p;
}

/* ---- Closing ---- */

static void release_last(void) {
  scope_value v = scopes.values[--scopes.count];
  if (v.release)
    v.release(v.p);
  else
    masu_free(v.p);
}

/* What is released may use scopes, even close this one: everything is looked at anew.
 * Temporary memory goes last: what is released may lie there. */
static void close_innermost(void) {
  size_t depth = scopes.depth;
  while (scopes.depth == depth && scopes.count > innermost()->first)
    release_last();
  if (scopes.depth != depth)
    return;
  const scope_level *level = innermost();
  if (level->has_temp)
    masu_arena_rewind(scopes.temp, level->temp);
  scopes.depth--;
}

/* The number of the scope, from 1; 0: it isn't open. */
static size_t level_of(const masu_scope *s) {
  size_t i = scopes.depth;
  while (i && scopes.levels[i - 1].key != s)
    i--;
  return i;
}

static void close_from(size_t level) {
  while (level && scopes.depth >= level)
    close_innermost();
}

PUBLIC void masu_scope_close(masu_scope *s) { close_from(level_of(s)); }

PUBLIC int masu_scope_open(masu_scope *s, masu_heap *in) {
  close_from(level_of(s));
  if (UNLIKELY(scopes.depth == scopes.level_room)) {
    scope_level *more = grown(scopes.levels, &scopes.level_room, SCOPE_LEVELS_LEAST, sizeof *more);
    if (!more)
      return ENOMEM;
    scopes.levels = more;
  }
  scopes.levels[scopes.depth++] = (scope_level){.key = s, .heap = in, .first = scopes.count};
  return 0;
}

internal void scope_thread_ends(void) {
  close_from(1);
  while (scopes.count)
    release_last();
  masu_free(scopes.levels);
  masu_free(scopes.values);
  masu_arena_destroy(scopes.temp);
  memset(&scopes, 0, sizeof scopes);
}

/* ---- Values ---- */

PUBLIC void *masu_scope_add(void *p, void (*release)(void *p)) {
  if (UNLIKELY(scopes.count == scopes.room)) {
    scope_value *more = grown(scopes.values, &scopes.room, SCOPE_VALUES_LEAST, sizeof *more);
    if (!more)
      return NULL;
    scopes.values = more;
  }
  scopes.values[scopes.count++] = (scope_value){p, release};
  return p;
}

PUBLIC void *masu_scope_alloc(size_t size) {
  const scope_level *level = innermost();
  void *p = masu_heap_malloc(level ? level->heap : NULL, size);
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
  if (UNLIKELY(!scopes.temp)) {
    forms_watch_thread();
    if (!(scopes.temp = masu_arena_create(0)))
      return NULL;
  }
  /* Scopes around it that have none yet start at the same place. */
  for (size_t i = scopes.depth; i && !scopes.levels[i - 1].has_temp; i--) {
    scopes.levels[i - 1].temp = masu_arena_mark(scopes.temp);
    scopes.levels[i - 1].has_temp = true;
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
  for (size_t i = scopes.depth; i && scopes.levels[i - 1].first > at; i--)
    scopes.levels[i - 1].first--;
  close_gap(at);
  return p;
}

/* The value moves to the end of the outer scope's, which is the start of its own. */
PUBLIC void *masu_scope_hand_out(void *p) {
  size_t at = find_value(p), i = scopes.depth;
  if (at == SIZE_MAX)
    return NULL;
  while (i && scopes.levels[i - 1].first > at)
    i--;
  if (!i)
    return p; /* the thread's outermost has it */
  size_t first = scopes.levels[i - 1].first++;
  scope_value v = scopes.values[at];
  memmove(&scopes.values[first + 1], &scopes.values[first], (at - first) * sizeof *scopes.values);
  scopes.values[first] = v;
  return p;
}

PUBLIC size_t masu_scope_count(void) { return scopes.count; }
