/* runs: what the library does with the free blocks of a pool or fixed pool, which the inline functions
 * keep by runs (masu/pool.h). */
#ifndef MASU_FORMS_RUNS_H
#define MASU_FORMS_RUNS_H

#include "forms/named.h"
#include "masu/pool.h"

/* A run, and as it stands in `more` the one after it. */
typedef struct free_run {
  char *start, *end;
  char *next;
} free_run;

/* The run after that; false: there is none. */
static inline bool next_free_run(free_run *r, size_t size) {
  uintptr_t first = (uintptr_t)r->next, alone = first & 1;
  masu_link *links = (masu_link *)(first - alone);
  if (!first)
    return false;
  *r = (free_run){(char *)links, alone ? (char *)links + size : links[1], links[0]};
  return true;
}

static inline void give_run(masu_runs *runs, void *p, size_t size) {
  if (runs->ready)
    masu_runs_give(runs, p, size, 1);
  else
    runs->ready = p;
}

/* NULL: none is free. */
static inline char *take_free(masu_runs *runs, size_t size) {
  char *p = runs->ready;
  if (!p)
    return masu_runs_take(runs, size, 1);
  runs->ready = NULL;
  return p;
}

/* The block that is ready goes to the others. Returns the first run, which may be empty. */
static inline free_run first_free_run(masu_runs *runs, size_t size) {
  char *p = runs->ready;
  runs->ready = NULL;
  if (p)
    masu_runs_give(runs, p, size, 1);
  return (free_run){runs->at, runs->end, runs->more};
}

/* For other threads as well, while the form's own changes the runs: an end and a start must be of one
 * moment, so they are read until they are the same twice. */
static inline size_t free_bytes(const masu_runs *runs, size_t size) {
  uintptr_t at, end;
  unsigned tries = 0;
  do {
    at = tenant_peek(&runs->at);
    end = tenant_peek(&runs->end);
  } while ((at != tenant_peek(&runs->at) || end != tenant_peek(&runs->end)) && ++tries < 100);
  return end - at + tenant_peek(&runs->listed) + (tenant_peek(&runs->ready) > (uintptr_t)MASU_POOL_GUIDED ? size : 0);
}

#endif
