/* inspect: figures about the running process, and the walk that checks it. */
#ifndef MASU_API_INSPECT_H
#define MASU_API_INSPECT_H

#include "heap/sizes.h"
#include "pages/supply.h"

typedef struct class_figures {
  size_t slabs;
  size_t blocks; /* that fit */
  size_t in_use; /* blocks; those that threads hold ready count as used */
} class_figures;

/* All in bytes unless said otherwise. */
typedef struct figures {
  size_t live; /* in blocks in use; exact but for what other threads hold ready */
  size_t resident; /* of the whole process, from the kernel */
  size_t meta;     /* masu's own descriptors and tables */
  size_t large_blocks, large_bytes; /* above the size classes, in use: count, bytes */
  supply_figures supply;
  class_figures classes[CLASS_COUNT];
} figures;

/* Reads while others run: nobody waits, what changes meanwhile may be counted
 * either way. All 0 from a signal handler that interrupted masu. */
internal void figures_read(figures *f);

/* Gives free memory back to the system but for `pad` bytes and what was prewarmed;
 * false: there was none, or the caller interrupted masu. */
internal bool give_back_idle(size_t pad);

/* Called at the end of masu_malloc_stats: what the layers above have to report. */
internal_data _Atomic(void (*)(void)) stats_hook;

#endif
