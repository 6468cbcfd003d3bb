/* Leaks: blocks that no pointer leads to any more.
 *
 *     uint64_t start = masu_leaks_begin();
 *     handle_requests(1000);
 *     masu_leaks found;
 *     if (!masu_leaks_end(start, &found, sizeof found) && found.direct_blocks)
 *       printf("%zu bytes are lost\n", found.direct_bytes + found.indirect_bytes);
 *
 * A block is in use if any word of the registers, stacks, global and thread-local variables,
 * or of another block in use, is the address of one of its bytes. The others are lost.
 * A lost block is direct, or indirect: one that another lost block of the region leads to. Of lost blocks
 * that lead to each other in a ring one is direct. docs/leaks.md says what is not seen.
 *
 * masu run --leaks, and the option leaks (docs/options.md), check the whole program at its end
 * without a line of code. There every block is on record. Without them only blocks are
 * that are allocated while a region is open: by the thread that opened it at once, by others
 * from their next refill on, at most some KiB a size class later. While a region is open, or
 * with the option, every allocation is recorded with its call stack, which takes about
 * a microsecond each (docs/profiling.md). What masu_profile_start and masu_profile_stop ask for meanwhile
 * counts afterwards.
 *
 * A check stops the other threads for its time, by a real-time signal that the program does not
 * use. System calls that they are in go on afterwards, or return EINTR as after any handler.
 *
 * Sizes are bytes, as they were asked for. Threads: any function, from any thread, but not
 * from a signal handler. Errors: EAGAIN (called from a signal handler that interrupted the
 * allocator), EINVAL (a size that is not known, or nothing was ever recorded), ENOMEM, or what the system
 * said: a check needs /proc and process_vm_readv.
 */
#ifndef MASU_LEAKS_H
#define MASU_LEAKS_H

#include "../masu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct masu_leaks {
  size_t direct_blocks, direct_bytes;     /* that no block leads to */
  size_t indirect_blocks, indirect_bytes; /* that only lost blocks lead to */
  size_t unstopped;  /* threads that did not answer: all memory of the program's own counted as stacks */
  size_t unrecorded; /* blocks that no memory was there to record: what only they lead to counts as lost */
} masu_leaks;

/* Opens a region: blocks allocated from now on are its own. Regions of one thread may be
 * nested, those of several overlap. Returns what the others want, or 0 and errno. */
MASU_API uint64_t masu_leaks_begin(void);
/* Closes a region, after looking for its lost blocks. found may be NULL: then it only closes.
 * size: sizeof *found; others as in masu/stats.h. Returns 0 or an errno value. */
MASU_API int masu_leaks_end(uint64_t begun, masu_leaks *found, size_t size);
/* Looks for lost blocks, and writes a file with their call stacks, which masu profile shows, as
 * all programs do that read the format of pprof (not compressed). Its sample types: objects and bytes,
 * direct and indirect. begun: of a region that is open, or 0: all blocks on record. The file is whole or as it was
 * before. Returns 0 or an errno value. */
MASU_API int masu_leaks_write(uint64_t begun, const char *path);
/* The block p, and what it leads to, are no leaks, until it is freed. Returns 0, or EINVAL
 * if p is not the address of a block on record. */
MASU_API int masu_leaks_ignore(const void *p);

#ifdef __cplusplus
}
#endif
#endif
