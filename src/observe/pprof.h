/* pprof: a profile in the format of pprof, profile.proto, which is described with
 * https://github.com/google/pprof. Not compressed; addresses, with the files that they are in
 * and their build ids; no names of functions: the reader looks them up. Memory over time is in a field of masu's
 * own, which other readers pass over:
 *
 *     Profile.curve = 1000: Curve {int64 step = 1 (ns); repeated int64 in_use = 2, held = 3;}
 *
 * a value for each step from the start on, the highest in it, in bytes.
 *
 * Threads: those of who calls. Nothing is allocated but mappings for the buffers.
 */
#ifndef MASU_OBSERVE_PPROF_H
#define MASU_OBSERVE_PPROF_H

#include "observe/curve.h"

/* Bytes that grow. `failed`: there was no memory, what is there is of no use. */
typedef struct buffer {
  uint8_t *at;
  size_t size, room;
  bool failed;
} buffer;

internal void buffer_put(buffer *b, const void *data, size_t size);
/* From now on there is room for so much more: putting it there asks the system for nothing. False: it failed. */
internal bool buffer_room(buffer *b, size_t more);
internal void buffer_drop(buffer *b);
/* Where small ones are, and what they left there. */
internal void *buffer_scratch(size_t *size);

enum { PPROF_VALUES = 12, PPROF_COMMENTS = 3, PPROF_THREAD = 16, PPROF_HEAP = 32 };

typedef struct pprof_type {
  const char *type, *unit;
} pprof_type;

/* A call stack with the names of a thread and of a named heap, and its values. */
typedef struct pprof_stack {
  const uintptr_t *frame; /* return addresses, the innermost first */
  size_t frame_count;
  const char *thread; /* PPROF_THREAD bytes */
  const char *heap;   /* PPROF_HEAP bytes; NULL or "": none */
  double value[PPROF_VALUES];
} pprof_stack;

/* What there is to write. */
typedef struct pprof_source {
  const pprof_type *types; /* of the values */
  size_t type_count;
  const char *shown; /* the type that readers show first */
  pprof_type period_type;
  uint64_t period; /* 0: these are no samples, and have none */
  uint64_t started, started_wall, now; /* ns */
  const char *comment[PPROF_COMMENTS]; /* NULL: none */
  const buffer *stacks;                /* one pprof_stack behind the other */
  const curve *over_time;              /* NULL: none */
} pprof_source;

/* What is mapped where: the text of /proc/thread-self/maps, with a 0 at the end. */
internal void pprof_read_maps(buffer *maps);
/* A line of it. */
typedef struct pprof_map {
  uintptr_t start, end, offset;
  char may[4]; /* "rwxp" */
  const char *path; /* and spaces and the like, which are part of it */
  size_t path_length;
} pprof_map;
/* The first line; returns what is behind it. */
internal const char *pprof_parse_map(const char *text, pprof_map *m);

/* False: out of memory. Takes long, and asks the system: not with a lock. */
internal bool pprof_encode(const pprof_source *p, buffer *out);

#endif
