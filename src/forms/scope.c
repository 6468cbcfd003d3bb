/* scope: values that die with the scope they were made in (masu/scope.h).
 *
 * Each thread has a stack of values and a stack of open scopes in arrays of its own, and one
 * arena for temporary memory of the general memory. All are made at the first use and end with the
 * thread. Temporary memory of a scope that has a heap is an arena there, which is the first of the
 * scope's values, so that it goes last. Nothing is read of the caller's masu_scope but its address:
 * the frame that it lay in may be gone.
 *
 *     values[levels[i].first ..] belong to scope i or to scopes inside it
 *     levels that have a mark of temporary memory come before those that have none
 *     levels[i].lowest is at most the least of the addresses of levels 0 to i: stacks grow down, so
 *     a scope that is opened is below it as a rule, and known to be new without a search
 *     the addresses of the levels differ: a scope that is opened where one is open already
 *     finds a frame that was left without close. That level is forgotten: scopes that are
 *     in use may have come after it, and what is its is then the scope's around it
 */
#include "masu/scope.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "api/thread.h"
#include "forms/named.h"
#include "forms/thread_end.h"
#include "masu/pool.h"

enum { SCOPE_VALUES_LEAST = 64, SCOPE_LEVELS_LEAST = 32, SCOPE_TEMP_LEAST = 4000 };

typedef struct scope_value {
  void *p;
  void (*release)(void *p); /* NULL: free */
} scope_value;

typedef struct scope_level {
  const masu_scope *key;
  uintptr_t lowest;
  masu_heap *heap;
  masu_arena *in_heap; /* its temporary memory there, if it has any */
  uint64_t number; /* rising inwards; stays when a level further out is forgotten */
  size_t first;
  masu_mark temp; /* of the thread's arena; run NULL: it was not asked for any */
} scope_level;

typedef struct scope_stack {
  scope_level *levels;
  scope_value *values;
  size_t depth, level_room;
  size_t count, room;
  uint64_t opened; /* scopes so far */
  masu_arena *temp;
  tenant tenant;
} scope_stack;

/* A thread without scopes has this one: empty, and without room. */
static scope_stack no_scopes;

static inline scope_stack *my_scopes(void) {
  const heap *own = thread_heap();
  scope_stack *s = LIKELY(own != NULL) ? own->hot.scopes : NULL;
  return LIKELY(s != NULL) ? s : &no_scopes;
}

/* Of the two arrays. */
static void scope_figures(const tenant *t, size_t *used, size_t *held) {
  const scope_stack *s = CONTAINER_OF(t, scope_stack, tenant);
  *used = tenant_peek(&s->count) * sizeof(scope_value) + tenant_peek(&s->depth) * sizeof(scope_level);
  *held = tenant_peek(&s->room) * sizeof(scope_value) + tenant_peek(&s->level_room) * sizeof(scope_level);
}

/* False: out of memory, or past the thread's last destructor, where nothing would close
 * them. */
static COLD bool have_scopes(void) {
  if (my_scopes() != &no_scopes)
    return true;
  scope_stack *s = masu_calloc(1, sizeof *s);
  if (!s || !forms_watch_thread()) {
    masu_free(s);
    return false;
  }
  s->tenant = (tenant){.figures = scope_figures};
  tenant_join(&s->tenant, NULL, "scope", NULL);
  thread_heap()->hot.scopes = s;
  return true;
}

static COLD void *scope_out_of_memory(void) {
  errno = ENOMEM;
  return NULL;
}

static scope_level *innermost(const scope_stack *mine) {
  return mine->depth ? &mine->levels[mine->depth - 1] : NULL;
}

static bool is_innermost(const scope_stack *mine, uint64_t number) {
  const scope_level *last = innermost(mine);
  return last && last->number == number;
}

/* Makes one of the arrays longer. */
static bool grow_array(void *array, size_t *room, size_t least, size_t size) {
  size_t more = max_size(*room * 2, least);
  void *p = masu_reallocarray(*(masu_link *)array, more, size);
  if (!p)
    return false;
  *(masu_link *)array = p;
  *room = more;
  return true;
}

/* ---- Closing ---- */

/* Of the values from that one on: the last ones, up to and with the first that is more than a block. What is
 * released may use scopes, even close this one; blocks do not. */
static void release_some(scope_stack *mine, size_t first) {
  while (mine->count > first) {
    scope_value v = mine->values[--mine->count];
    if (v.release) {
      v.release(v.p);
      return;
    }
    masu_free(v.p);
  }
}

/* Temporary memory goes last: what is released may lie there. */
static void close_innermost(scope_stack *mine) {
  uint64_t number = innermost(mine)->number;
  while (is_innermost(mine, number) && mine->count > innermost(mine)->first)
    release_some(mine, innermost(mine)->first);
  if (!is_innermost(mine, number))
    return;
  const scope_level *level = innermost(mine);
  if (level->temp.run)
    masu_arena_rewind(mine->temp, level->temp);
  mine->depth--;
}

/* The number of the scope, from 1; 0: it isn't open. */
static size_t level_of(const scope_stack *mine, const masu_scope *s) {
  const scope_level *levels = mine->levels;
  size_t i = mine->depth;
  for (; i && levels[i - 1].key != s; i--)
    if ((uintptr_t)s < levels[i - 1].lowest)
      return 0;
  return i;
}

/* The scope of that number, and those inside it. */
static void close_from(scope_stack *mine, uint64_t number) {
  while (innermost(mine) && innermost(mine)->number >= number)
    close_innermost(mine);
}

static NOINLINE void close_level(scope_stack *mine, const masu_scope *s) {
  size_t level = level_of(mine, s);
  if (level)
    close_from(mine, mine->levels[level - 1].number);
}

PUBLIC void masu_scope_close(masu_scope *s) {
  scope_stack *mine = my_scopes();
  const scope_level *last = innermost(mine);
  if (last && last->key == s && last->first == mine->count && !last->temp.run)
    mine->depth--; /* there is nothing to release */
  else
    close_level(mine, s);
}

static uintptr_t lowest_of(const scope_stack *mine) {
  return mine->depth ? innermost(mine)->lowest : UINTPTR_MAX;
}

/* If the scope was left open. */
static NOINLINE void forget_level(scope_stack *mine, const masu_scope *s) {
  size_t level = level_of(mine, s);
  if (!level)
    return;
  scope_level *l = &mine->levels[level - 1];
  memmove(l, l + 1, (mine->depth-- - level) * sizeof *l);
}

static COLD bool add_levels(void) {
  return have_scopes() && grow_array(&my_scopes()->levels, &my_scopes()->level_room, SCOPE_LEVELS_LEAST,
                                     sizeof *my_scopes()->levels);
}

PUBLIC int masu_scope_open(masu_scope *s, masu_heap *in) {
  scope_stack *mine = my_scopes();
  if (UNLIKELY((uintptr_t)s >= lowest_of(mine)))
    forget_level(mine, s);
  if (UNLIKELY(mine->depth == mine->level_room)) {
    if (!add_levels())
      return ENOMEM;
    mine = my_scopes();
  }
  uintptr_t lowest = lowest_of(mine);
  scope_level *l = &mine->levels[mine->depth++];
  l->key = s;
  l->lowest = min_size(lowest, (uintptr_t)s);
  l->heap = in;
  l->in_heap = NULL;
  l->number = mine->opened++;
  l->first = mine->count;
  l->temp.run = NULL;
  return 0;
}

internal void scope_thread_ends(void) {
  scope_stack *s = my_scopes();
  if (s == &no_scopes)
    return;
  close_from(s, 0);
  while (s->count)
    release_some(s, 0);
  masu_free(s->levels);
  masu_free(s->values);
  masu_arena_destroy(s->temp);
  thread_heap()->hot.scopes = NULL;
  tenant_leave(&s->tenant);
  masu_free(s);
}

/* ---- Values ---- */

static COLD bool add_values(void) {
  return have_scopes() && grow_array(&my_scopes()->values, &my_scopes()->room, SCOPE_VALUES_LEAST,
                                     sizeof *my_scopes()->values);
}

PUBLIC void *masu_scope_add(void *p, void (*release)(void *p)) {
  scope_stack *mine = my_scopes();
  if (UNLIKELY(mine->count == mine->room)) {
    if (!add_values())
      return scope_out_of_memory();
    mine = my_scopes();
  }
  mine->values[mine->count++] = (scope_value){p, release};
  return p;
}

PUBLIC void *masu_scope_alloc(size_t size) {
  const scope_level *level = innermost(my_scopes());
  void *p = masu_heap_malloc(level ? level->heap : NULL, size);
  if (p && !masu_scope_add(p, NULL)) {
    masu_free(p);
    return NULL;
  }
  return p;
}

/* The place of the last value p; SIZE_MAX: there is none. */
static size_t find_value(const void *p) {
  for (size_t i = my_scopes()->count; i-- > 0;)
    if (my_scopes()->values[i].p == p)
      return i;
  return SIZE_MAX;
}

PUBLIC void *masu_scope_realloc(void *p, size_t size) {
  size_t at = p ? find_value(p) : SIZE_MAX;
  if (!p)
    return masu_scope_alloc(size);
  void *q = masu_realloc(p, max_size(size, 1));
  if (q && at != SIZE_MAX)
    my_scopes()->values[at].p = q;
  return q;
}

/* The value at `at` goes before those from `first` on. */
static void move_value(scope_stack *mine, size_t at, size_t first) {
  scope_value v = mine->values[at];
  memmove(&mine->values[first + 1], &mine->values[first], (at - first) * sizeof v);
  mine->values[first] = v;
}

static void end_temp(void *p) { masu_arena_destroy(p); }

/* The heap's callback may have used scopes, this one's temporary memory too. */
static COLD bool have_temp_in_heap(void) {
  masu_arena *a = masu_arena_create_in(innermost(my_scopes())->heap, "scope", SCOPE_TEMP_LEAST);
  if (!a || innermost(my_scopes())->in_heap || !masu_scope_add(a, end_temp)) {
    masu_arena_destroy(a);
    return a && innermost(my_scopes())->in_heap;
  }
  scope_stack *mine = my_scopes();
  innermost(mine)->in_heap = a;
  move_value(mine, mine->count - 1, innermost(mine)->first);
  return true;
}

static void *temp_in_heap(size_t size) {
  if (UNLIKELY(!innermost(my_scopes())->in_heap) && !have_temp_in_heap())
    return scope_out_of_memory();
  return masu_arena_alloc(innermost(my_scopes())->in_heap, size);
}

PUBLIC void *masu_scope_temp(size_t size) {
  const scope_level *last = innermost(my_scopes());
  if (last && last->heap)
    return temp_in_heap(size);
  if (UNLIKELY(!my_scopes()->temp) &&
      (!have_scopes() || !(my_scopes()->temp = masu_arena_create_in(NULL, "scope", 0))))
    return scope_out_of_memory();
  scope_stack *mine = my_scopes();
  /* Scopes around it that have none yet start at the same place. */
  for (size_t i = mine->depth; i && !mine->levels[i - 1].temp.run; i--)
    mine->levels[i - 1].temp = masu_arena_mark(mine->temp);
  return masu_arena_alloc(mine->temp, size);
}

/* ---- Handing on ---- */

static void close_gap(size_t at) {
  my_scopes()->count--;
  memmove(&my_scopes()->values[at], &my_scopes()->values[at + 1], (my_scopes()->count - at) * sizeof *my_scopes()->values);
}

PUBLIC void *masu_scope_keep(void *p) {
  size_t at = find_value(p);
  if (at == SIZE_MAX)
    return NULL;
  for (size_t i = my_scopes()->depth; i && my_scopes()->levels[i - 1].first > at; i--)
    my_scopes()->levels[i - 1].first--;
  close_gap(at);
  return p;
}

/* The value moves to the end of the outer scope's, which is the start of its own. */
PUBLIC void *masu_scope_hand_out(void *p) {
  size_t at = find_value(p), i = my_scopes()->depth;
  if (at == SIZE_MAX)
    return NULL;
  while (i && my_scopes()->levels[i - 1].first > at)
    i--;
  if (!i)
    return p; /* the thread's outermost has it */
  move_value(my_scopes(), at, my_scopes()->levels[i - 1].first++);
  return p;
}

PUBLIC size_t masu_scope_count(void) { return my_scopes()->count; }
