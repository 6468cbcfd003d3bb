/* stack: the calls that led here.
 *
 * On x86-64 with glibc 2.35 or later a walk goes by the rules of observe/unwind.h, which are
 * made from the tables of the code once for each return address, and kept. Where a rule can't
 * say it, the unwinder of the compiler's runtime (linked in) walks the thread's own stack for
 * stack_capture, by the same tables, read anew each time; on other stacks the walk ends. The
 * caller of code without tables (compiled at run time) is found by its frame pointer, as long
 * as that is plausible. On other processors the unwinder is all there is; with an older C
 * library, where it would take the loader's lock, frame pointers are.
 *
 * Threads: any. The unwinder may allocate: of masu's locks the caller of stack_capture has at
 * most one under which memory is allocated.
 */
#ifndef MASU_OBSERVE_STACK_H
#define MASU_OBSERVE_STACK_H

#include "base/attr.h"

enum { STACK_MOST = 64 };

/* Return addresses from the innermost outwards, masu's own left out; returns how many. */
internal size_t stack_capture(uintptr_t *frames, size_t most);
/* The same of the code that a signal interrupted, in that thread; `context` is what the handler
 * was given. With masu's own. The innermost address is that behind the interrupted instruction's first
 * byte, so that it counts as a return address does. For signal handlers: takes no lock,
 * allocates nothing, and where registers or stack are nonsense it ends. */
internal size_t stack_capture_from(const void *context, uintptr_t *frames, size_t most);
/* Rules, since the process began. */
internal uint32_t stack_rules_made(void);
/* Never 0. */
internal uint64_t stack_hash(const uintptr_t *frames, size_t count);

#endif
