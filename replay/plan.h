/* plan: what a replay executes, made from a trace by plan.c and run by play.c.
 *
 * A plan is a file of chunks of 16 KiB. Chunk 0 is the plan_head. Each thread's operations
 * lie in a chain of chunks in their order. Operations name blocks by slot: a table entry that
 * holds one block at a time. Where threads share blocks, a PLAN_WAIT comes before the
 * operation: the order in which the threads of the program touched a block is kept. So is that
 * a thread was created after others of its creator had ended; and no other. Native byte order: a plan is made where it is run.
 */
#ifndef REPLAY_PLAN_H
#define REPLAY_PLAN_H

#include <stdint.h>

#define PLAN_MAGIC 0x316e616c70736d61 /* "amsplan1" */

enum { PLAN_CHUNK = 16384, PLAN_PAGE = 4096 };

typedef struct plan_head {
  uint64_t magic;
  uint64_t calls;   /* of allocation functions */
  uint64_t chunks;  /* this one included */
  uint32_t slots;
  uint32_t threads;
  uint64_t list; /* offset in bytes of a plan_thread for each, at the end of the file */
} plan_head;

typedef struct plan_thread {
  uint32_t chunk;   /* its first; 0: it does nothing */
  uint32_t created; /* 1: by a PLAN_CREATE; 0: it is there from the start */
} plan_thread;

typedef enum plan_kind {
  PLAN_MALLOC = 1,
  PLAN_CALLOC,
  PLAN_ALIGNED,
  PLAN_REALLOC, /* an empty slot: as malloc */
  PLAN_FREE,
  PLAN_FREE_SIZED,
  PLAN_NEW,
  PLAN_NEW_ALIGNED,
  PLAN_DELETE,
  PLAN_DELETE_SIZED,
  PLAN_WAIT,   /* until thread `slot` has done `size` operations */
  PLAN_CREATE, /* thread `slot` starts */
  PLAN_THINK,  /* more of it than fits one operation */
  PLAN_KINDS
} plan_kind;

/* What they are called where they are counted. */
static const char *const plan_names[PLAN_KINDS] = {
  [PLAN_MALLOC] = "malloc",
  [PLAN_CALLOC] = "calloc",
  [PLAN_ALIGNED] = "aligned_alloc",
  [PLAN_REALLOC] = "realloc",
  [PLAN_FREE] = "free",
  [PLAN_FREE_SIZED] = "free_sized",
  [PLAN_NEW] = "new",
  [PLAN_NEW_ALIGNED] = "new_aligned",
  [PLAN_DELETE] = "delete",
  [PLAN_DELETE_SIZED] = "delete_sized",
  [PLAN_WAIT] = "waits",
  [PLAN_CREATE] = "creates",
};

enum { PLAN_IN_PAGES = 0x80 }; /* with the kind: `size` counts pages of 4 KiB */

typedef struct plan_op {
  uint8_t kind;
  uint8_t align_log2;
  uint16_t unused;
  uint32_t slot;
  uint32_t size;     /* bytes */
  uint32_t think_ns; /* what the program did before */
} plan_op;

enum { PLAN_OPS = (PLAN_CHUNK - 16) / sizeof(plan_op) };

typedef struct plan_chunk {
  uint32_t next;  /* number of the thread's next chunk, 0: none */
  uint32_t count; /* of operations */
  uint64_t unused;
  plan_op op[PLAN_OPS];
} plan_chunk;

#endif
