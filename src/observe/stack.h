/* stack: the calls that led here.
 *
 * Return addresses are found by the unwinder of the compiler's runtime (linked in), which
 * reads the tables that every library on these systems carries; since glibc 2.35 it takes no
 * lock for it. Code without tables (compiled at run time) ends its walk: from there on frame
 * pointers are followed as long as they are plausible, by reads that cannot fault. Where
 * the unwinder would take the loader's lock, frame pointers are all there is.
 *
 * Threads: any. Call it with no lock held: the unwinder may allocate.
 */
#ifndef MASU_OBSERVE_STACK_H
#define MASU_OBSERVE_STACK_H

#include "base/attr.h"

enum { STACK_MOST = 64 };

/* Return addresses from the innermost outwards, masu's own left out; returns how many. */
internal size_t stack_capture(uintptr_t *frames, size_t most);
/* The same of the code that a signal interrupted, in that thread; `context` is what the handler
 * was given. With masu's own. The innermost address is that behind the interrupted instruction's first
 * byte, so that it counts as a return address does. */
internal size_t stack_capture_from(const void *context, uintptr_t *frames, size_t most);
/* Never 0. */
internal uint64_t stack_hash(const uintptr_t *frames, size_t count);

#endif
