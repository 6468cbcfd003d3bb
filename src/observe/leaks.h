/* leaks: the leak checker of masu/leaks.h, and of the option `leaks`.
 *
 * The heap profiler with interval 1 has every block on record, with its call stack. A check
 * holds all other threads (os/stop.h), marks what pointers lead to (reach.h) and sums up the
 * rest by site. Roots are
 *
 *     the writable data of loaded objects, masu's own included, which has blocks of the forms
 *     registers and stacks of all threads; above the stack: thread-local variables and the
 *     thread's control block, with its specific data
 *     blocks that are on no record: allocated before the profiler was on, or by a signal
 *     handler inside masu; and those of named heaps
 *     blocks of the program's loader: dynamic thread-local variables, and tables of ended
 *     threads that it keeps for the next; blocks that masu_leaks_ignore named
 *
 * and nothing else: memory that the program maps itself is none.
 *
 * The caller owns the loader's lock and all of masu's while others are held: dl_iterate_phdr
 * calls the check, which takes masu's as fork does. So no object comes or goes, and whatever
 * the check calls finds its locks free.
 *
 * Tables with addresses of blocks lie in mappings of their own, never on a stack or in data
 * that is searched.
 *
 * Threads: any, outside of masu. A check runs alone.
 */
#ifndef MASU_OBSERVE_LEAKS_H
#define MASU_OBSERVE_LEAKS_H

#include "base/attr.h"

/* What the option asks for, at start and when the process ends. */
internal void leaks_start(void);
internal void leaks_end(void);

#endif
