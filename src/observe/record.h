/* record: the recorder, in libmasu-record.so only. Every allocation function is wrapped:
 * it makes the call and writes a record of it (observe/trace.h).
 *
 * Recording starts with the process if MASU_RECORD names a folder, which must exist, and
 * goes on in every process that it forks or executes; each writes a file of its own there,
 * PROCESS-N.spool. Blocks of the file are mapped and shared, so what is written to them
 * survives the process, however it ends. With MASU_RECORD_STACKS set, each distinct call
 * stack is written once and records name it.
 *
 * Each thread writes to its own block and takes no lock. A signal handler that allocates
 * in the middle of a record writes to the thread's second block. Memory that only fork
 * clears tells a child that it is one, so also those that no fork handler sees.
 */
#ifndef MASU_OBSERVE_RECORD_H
#define MASU_OBSERVE_RECORD_H

#include "base/attr.h"

/* Early in the life of the process, after process_start. */
internal void record_start(void);
/* The process ends by exit or _exit. */
internal void record_end(void);

internal bool record_is_on(void);
/* A thread is about to be made: what record_thread_begins gets when it runs; 0: it isn't recorded. */
internal uint64_t record_thread_made(void);
internal void record_thread_begins(uint64_t made);

/* The calls, by the names of the functions that they are recorded calls of. */
internal void *recorded_malloc(size_t size);
internal void *recorded_calloc(size_t count, size_t size);
internal void *recorded_realloc(void *p, size_t size);
internal void *recorded_reallocarray(void *p, size_t count, size_t size);
internal void *recorded_reallocf(void *p, size_t size);
internal void *recorded_aligned_alloc(size_t alignment, size_t size);
internal void *recorded_memalign(size_t alignment, size_t size);
internal int recorded_posix_memalign(void **out, size_t alignment, size_t size);
internal void *recorded_valloc(size_t size);
internal void *recorded_pvalloc(size_t size);
internal void recorded_free(void *p);
internal void recorded_free_sized(void *p, size_t size);
internal void recorded_free_aligned_sized(void *p, size_t alignment, size_t size);
internal void *recorded_new(size_t size);
internal void *recorded_new_aligned(size_t alignment, size_t size);
internal void recorded_delete(void *p);
internal void recorded_delete_sized(void *p, size_t alignment, size_t size);

#endif
