/* ledger: everything that masu knows about its memory, from one walk, as tables.
 *
 * A table has rows of 64-bit numbers and short texts; what its columns are called, in what
 * unit they are and what they mean stands once, in ledger_tables. The text, JSON and XML of
 * masu_stats_print and the live page are made from that list, and so is whatever reads the
 * live page.
 *
 * A ledger is large and mostly untouched, and is made in memory of its own. Where a table has
 * no room for all rows, `more` counts those left out.
 *
 * Threads: any; each its own ledger. The walk takes no lock for longer than a step.
 */
#ifndef MASU_OBSERVE_LEDGER_H
#define MASU_OBSERVE_LEDGER_H

#include "base/attr.h"
#include "heap/sizes.h"
#include "masu/heap.h"
#include "masu/sized.h"
#include "masu/stats.h"

enum {
  LEDGER_OWN_HEAPS = 384,
  LEDGER_LIMBS = 127,
  LEDGER_HEAPS = LEDGER_OWN_HEAPS + LEDGER_LIMBS + 1, /* the last sums up the others */
  LEDGER_NAMED = 256,
  LEDGER_FORMS = 512,
};

typedef struct ledger_named {
  char name[32];
  uint64_t used, peak, live, blocks, soft, hard, refused;
} ledger_named;

typedef struct ledger_form {
  char form[32], name[32], heap[32];
  uint64_t used, held;
} ledger_form;

typedef struct ledger_sized {
  uint64_t size, blocks, made, held;
} ledger_sized;

/* Estimates, as masu_profile_figures has them. */
typedef struct ledger_sampled {
  uint64_t in_use, in_use_low, in_use_high;
  uint64_t requested, requested_low, requested_high;
  uint64_t slack, slack_low, slack_high;
  uint64_t samples;
} ledger_sampled;

/* In the order of ledger_tables. */
typedef enum ledger_id {
  LEDGER_PROCESS,
  LEDGER_CLASS,
  LEDGER_HEAP,
  LEDGER_NAMED_HEAP,
  LEDGER_FORM,
  LEDGER_SIZED,
  LEDGER_SAMPLED, /* filled once there was a heap profiler */
  LEDGER_RESIDENT, /* filled by ledger_measure only */
  LEDGER_TABLES
} ledger_id;

typedef struct ledger_count {
  uint32_t rows, more;
} ledger_count;

typedef struct ledger {
  ledger_count counts[LEDGER_TABLES];
  masu_stats process;
  masu_stats_class classes[CLASS_COUNT];
  masu_stats_heap heaps[LEDGER_HEAPS];
  ledger_named named[LEDGER_NAMED];
  ledger_form forms[LEDGER_FORMS];
  ledger_sized sized[MASU_SIZE_INDEXES];
  ledger_sampled sampled;
  masu_resident resident;
} ledger;

typedef enum ledger_unit {
  LEDGER_TEXT,
  LEDGER_LABEL, /* a number that names the row */
  LEDGER_COUNT,
  LEDGER_BYTES,
  LEDGER_COUNT_SUM, /* only ever grows */
  LEDGER_BYTES_SUM,
} ledger_unit;

typedef struct ledger_column {
  const char *name;
  ledger_unit unit;
  uint32_t offset; /* in the row */
  const char *meaning;
} ledger_column;

typedef struct ledger_table {
  const char *name;
  const ledger_column *columns;
  uint32_t column_count;
  uint32_t offset; /* of the rows in the ledger */
  uint32_t row_size;
  uint32_t most; /* rows */
} ledger_table;

internal_data const ledger_table ledger_tables[LEDGER_TABLES];

/* An empty one; NULL: out of memory. */
internal ledger *ledger_make(void);
internal void ledger_end(ledger *l);
/* Once for a ledger each. 0, or EAGAIN from a signal handler that interrupted masu. */
internal int ledger_read(ledger *l);
internal int ledger_measure(ledger *l);

#endif
