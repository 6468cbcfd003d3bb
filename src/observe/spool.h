/* spool: the file in which the records of a process stand until they are taken, as blocks that its threads write, each
 * its own (observe/trace.h). What is in a block survives the process, however it ends.
 *
 * A thread's first blocks are mapped, filled and left behind. Who has filled some has a room of a few and stays in it: a
 * full room is written to the file's end as copies of its blocks, and begun anew. Memory that the processor has at hand
 * is written again and again, and for the copies the system neither clears pages nor maps them.
 *
 * A copy names the block it is of. It counts from the moment when that says that it has been copied, or has gone on: so
 * at each moment, also when the process is killed there, a record is in one block that counts.
 *
 * Not safe against signal handlers that write to the same room.
 */
#ifndef MASU_OBSERVE_SPOOL_H
#define MASU_OBSERVE_SPOOL_H

#include "observe/trace.h"

typedef struct spool {
  trace_process *head; /* mapped; NULL: there is none */
  char path[512];
} spool;

/* Where a thread writes. Zero: nowhere so far. */
typedef struct spool_room {
  trace_block *block; /* that is written to */
  char *begin, *end;  /* mapped: blocks of one size */
  uint32_t blocks;    /* so far */
} spool_room;

/* Makes PROCESS-N.spool in the folder, and its first page, zero. 0 or an errno value. */
internal int spool_make(spool *s, const char *in, uint32_t process);

/* room->block is the next block, empty, whose times count from `now` ns: later than any before in it. 0 or an errno value:
 * the room was left. */
internal int spool_next(spool *s, spool_room *room, uint32_t thread, uint32_t level, uint64_t now);

/* Nothing more is written to it: its blocks may be taken, and cleared. */
internal void spool_leave(spool_room *room);

static inline size_t spool_block_size(const trace_block *b) { return (size_t)b->pages * TRACE_PAGE; }

#endif
