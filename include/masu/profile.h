/* The heap profiler: which code allocates, and what of it is still there.
 *
 *     masu_profile_start(0);
 *     ...
 *     masu_profile_write("server.heap.pb");         go tool pprof server.heap.pb
 *
 * A sample of the allocations is recorded with its call stack: every 512 KiB on average, at
 * random, so that each byte has the same chance. What is left out is estimated: a sampled
 * block stands for as many as it takes for one of its size to be sampled. The fast
 * paths of malloc and free have no instruction for it, so that it can stay on; what one sample
 * costs is written in docs/profiling.md.
 *
 * masu run --profile heap, and the options profile, profile_every, profile_growth and
 * profile_signal (docs/options.md), do the same without a line of code; masu profile --live asks
 * a running process. Sizes are bytes. Threads: any function, from any thread,
 * but not from a signal handler.
 */
#ifndef MASU_PROFILE_H
#define MASU_PROFILE_H

#include "../masu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Samples every `interval` bytes on average; 0: 512 KiB; 1: every allocation. From 512 KiB on the samples of a
 * thread may take one part in 512 of its CPU time, and four tenths of a millisecond beforehand, and the same in each
 * named heap, however much it allocates: the interval is widened as far as that takes, for the sizes that are sampled most. Covers what is
 * allocated after each thread's next refill, at most some KiB a size class later. While it
 * runs already, only changes the interval. While leaks are looked for (masu/leaks.h) every allocation is sampled;
 * what is asked for meanwhile counts afterwards. Returns 0 or ENOMEM. */
MASU_API int masu_profile_start(size_t interval);
/* No more is sampled; but see above. What was stays on record, and is taken off it as it is freed. */
MASU_API void masu_profile_stop(void);
/* Writes the profile in the format of pprof (profile.proto, not compressed). Its sample
 * types: objects and bytes that are in use, that were allocated since the start, and that were
 * in use when most was; objects freed, and the sum of their lifetimes; the sum of the ages of those
 * in use. Labels: the name of the thread that allocated, and of the heap if it has one. The file is whole or as it was before. A device gets it;
 * a link is not followed (ELOOP). Returns 0, EINVAL (never started) or what the system said. */
MASU_API int masu_profile_write(const char *path);

/* Estimates, of what is in use with 95 % intervals, which hold for few samples too; samples, live, stacks and lost
 * are counts. */
typedef struct masu_profile_figures {
  double in_use, in_use_low, in_use_high; /* bytes of blocks */
  double requested, requested_low, requested_high; /* of that, what was asked for */
  double slack, slack_low, slack_high; /* and what was not: internal fragmentation */
  double allocated;  /* bytes since the start */
  double peak;       /* the most that was in use; somewhat too high: docs/profiling.md */
  size_t samples;    /* taken since the start */
  size_t live;       /* blocks on record */
  size_t stacks;     /* different ones, with the names of threads and heaps: see docs/profiling.md for how many there may be */
  size_t lost;       /* samples for which there was no memory */
  double took;       /* seconds that samples, their releases and files took, of all threads together, waiting included */
} masu_profile_figures;

/* size: sizeof *figures; others as in masu/stats.h. Returns 0 or EINVAL (or never started). */
MASU_API int masu_profile_read(masu_profile_figures *figures, size_t size);

#ifdef __cplusplus
}
#endif
#endif
