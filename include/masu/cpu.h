/* The CPU profiler: in which functions the program spends its time, malloc and free among them.
 *
 *     masu_cpu_start(0);
 *     ...
 *     masu_cpu_write("server.cpu.pb");              go tool pprof server.cpu.pb
 *
 * Each thread has a timer that runs while it uses the processor, and a hundred times in a second
 * of that its call stack is counted: time that a thread waits is not. What one sample costs is
 * written in docs/profiling.md. Unlike for the heap profiler, functions of masu are in the stacks.
 *
 * The timers interrupt by SIGURG. While the profiler runs that signal is its own: if the program
 * sets a handler for it, no more is sampled, which is said at the end or before. Threads that
 * block the signal are not seen. System calls that a handler interrupts go on (SA_RESTART),
 * but for those that never do, such as poll and nanosleep: see signal(7).
 *
 * masu run --profile cpu and the option cpu (docs/options.md) do the same without a line of code.
 * Threads: any function, from any thread, but not from a signal handler. A forked child goes on
 * with an empty profile of its own; exec ends it.
 */
#ifndef MASU_CPU_H
#define MASU_CPU_H

#include "../masu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Samples so often in a second of each thread's CPU time, 1 to 1000; 0: 100. The system looks at
 * timers at its ticks, often 250 in a second: above that a sample stands for several. Takes
 * 33 MiB of address space, of which it touches what it needs. While it runs already, only changes
 * the rate. Returns 0, EINVAL, ENOMEM, or EBUSY: the program handles SIGURG itself. */
MASU_API int masu_cpu_start(unsigned hz);
/* No more is sampled. What was stays, and a new start adds to it. */
MASU_API void masu_cpu_stop(void);
/* Writes the profile in the format of pprof (profile.proto, not compressed): for each call
 * stack its samples, and the nanoseconds of CPU time that they stand for. Labels: the name of
 * the thread. The file is whole or as it was before. Returns 0, EINVAL (never started) or what
 * the system said. */
MASU_API int masu_cpu_write(const char *path);

typedef struct masu_cpu_figures {
  double sampled; /* seconds of CPU time for which there are samples */
  double used;    /* seconds that the process used while the profiler ran, masu's own threads included */
  size_t samples; /* periods that were sampled; several at once where the system was late */
  size_t stacks;  /* different ones */
  size_t lost;    /* samples for which there was no room: it is for about 100,000 stacks */
  size_t threads; /* that have a timer */
  double took;    /* seconds of CPU time that the handler of the timers took, files that it wrote included */
} masu_cpu_figures;

/* size: sizeof *figures; others as in masu/stats.h. Returns 0 or EINVAL (or never started). */
MASU_API int masu_cpu_read(masu_cpu_figures *figures, size_t size);

#ifdef __cplusplus
}
#endif
#endif
