/* live: the page on which a process shows its figures to masu top, stat, doctor and export.
 *
 * Opt-in: the option `live`. The page is a file of its own, /dev/shm/masu-USER-PROCESS-START,
 * mode 0600, that readers map as well; docs/live-page.md describes it byte by byte. A thread,
 * masu-live, sleeps until a reader rings by changing `asked`, then walks once and publishes:
 * while nobody looks there is no timer and no work. Readers may ask for a purge, a
 * measurement or a heap profile, one at a time: who asks holds flock on the file. The thread
 * also writes the heap profiles that are asked for by signal.
 *
 *     sequence is odd while the figures are written; equal and even before and after a
 *     copy says that the copy is whole
 *
 * A forked child has a page of its own, unless a signal handler forked it that had interrupted
 * masu; the parent's is not mapped in it. A program with more rights than its user has none.
 *
 * Threads: masu-live writes the page, but for `asked` and the request, which are the
 * readers'. LOCK_FORMS guards which page there is.
 */
#ifndef MASU_OBSERVE_LIVE_H
#define MASU_OBSERVE_LIVE_H

#include "base/atomic.h"

enum { LIVE_VERSION = 1, LIVE_TABLES = 16, LIVE_COLUMNS = 80 };

typedef struct live_table {
  char name[16];
  uint32_t first_column, columns;
  uint32_t offset, row_size; /* of the rows on the page */
  uint32_t most;             /* rows; 1: a table that is one row by nature */
  atomic_u32 rows, more;     /* there now; left out */
  uint32_t unused;
} live_table;

typedef struct live_column {
  char name[16];
  uint32_t unit;   /* ledger_unit */
  uint32_t offset; /* in the row */
  char meaning[56];
} live_column;

typedef enum live_request {
  LIVE_NOTHING,
  LIVE_PURGE,   /* give idle memory back now; the answer: bytes */
  LIVE_MEASURE, /* fill the table `resident` */
  LIVE_PROFILE, /* write the heap profile to the file `argument`; the answer: bytes */
  LIVE_SAMPLE,  /* `argument`: bytes between two samples, as the option profile */
} live_request;

typedef struct live_page {
  char magic[8]; /* "masulive", written last */
  uint32_t version, size;
  uint64_t process, started;
  atomic_u32 asked;    /* readers: change it and wake */
  atomic_u32 sequence;
  atomic_u64 read_ns;  /* CLOCK_MONOTONIC of the figures */
  atomic_u32 request;  /* readers: a live_request, when number is set */
  atomic_u32 number;   /* readers: of the request, a new one */
  atomic_u32 done;     /* the number of the request that was answered last */
  atomic_u32 why;      /* 0 or an errno value */
  atomic_u64 answer;
  uint32_t tables, columns;
  char masu[16], program[32]; /* version, name */
  char argument[256];         /* readers: of a request, ended by a zero byte */
  live_table table[LIVE_TABLES];
  live_column column[LIVE_COLUMNS];
} live_page;

_Static_assert(offsetof(live_page, argument) == 128, "docs/live-page.md");
_Static_assert(sizeof(live_table) == 48 && sizeof(live_column) == 80, "docs/live-page.md");

/* When the process has started and its options are read. */
internal void live_start(void);
/* Before that: live_wake will be called. Sets the option `live`. */
internal void live_wakes_by_signals(void);
/* masu-live looks what there is to do. Any thread, any moment, also in a signal handler. */
internal void live_wake(void);
/* The process ends, by exit or _exit: the file goes. */
internal void live_end(void);

#endif
