/* merge: the records of one process in the order in which they happened, with the blocks
 * that they are about.
 *
 * Reads the page of the process and the blocks behind it, as a spool file has them or one
 * after the other, and survives anything: what is not valid is counted and left out. */
#ifndef REPLAY_MERGE_H
#define REPLAY_MERGE_H

#include "observe/trace.h"

/* A block of memory of the program. */
typedef struct object {
  uint64_t address; /* 0: no object */
  uint64_t size;
  uint64_t born_ns;
  uint32_t slot;
  uint32_t thread;       /* index: who touched it last, */
  uint32_t last;         /* and with which of its operations */
  uint32_t born_thread;
  uint32_t stack;
  uint8_t kind;
} object;

typedef enum item_kind {
  ITEM_TAKE,   /* a new object */
  ITEM_GIVE,   /* its end */
  ITEM_RESIZE, /* is called: the record says what it gets, the object what it had */
  ITEM_CREATE, /* of thread `other` */
  ITEM_START,
  ITEM_END,
  ITEM_STACK,
} item_kind;

typedef struct item {
  item_kind kind;
  uint32_t thread; /* index, from 0 in the order of their numbers */
  uint32_t other;
  const trace_record *record;
  object *object; /* of TAKE, GIVE and RESIZE; valid until the next item */
  uint64_t ended_ns; /* when the call was over, as far as known */
} item;

typedef struct merge_counts {
  uint64_t records, calls, blocks;
  uint64_t bad_blocks; /* with a header or a record that makes no sense */
  uint64_t unknown;    /* frees of what nobody was seen to allocate */
  uint64_t vanished;   /* addresses given twice without a free between */
  uint64_t failed;     /* calls that returned NULL: no item tells of them */
  uint64_t first_ns, last_ns;
  uint32_t threads;
} merge_counts;

typedef struct merge merge;

/* data stays mapped meanwhile. NULL: it is no trace, *why says what is wrong. */
merge *merge_open(const void *data, uint64_t size, const char **why);
const trace_process *merge_process(const merge *m);
/* False: that was all. */
bool merge_next(merge *m, item *out);
const merge_counts *merge_counted(const merge *m);
/* Calls visit for each object that was never freed. */
void merge_left(merge *m, void (*visit)(const object *o, void *context), void *context);
/* So many slots held all objects. */
uint32_t merge_slots(const merge *m);
void merge_close(merge *m);

#endif
