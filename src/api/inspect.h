/* inspect: the C library's questions about the process, masu_ctl, malloc_trim. */
#ifndef MASU_API_INSPECT_H
#define MASU_API_INSPECT_H

#include "base/atomic.h"

/* Gives free memory back to the system but for `pad` bytes and what was prewarmed;
 * false: there was none, or the caller interrupted masu. */
internal bool give_back_idle(size_t pad);

/* Called after masu_ctl has set the option `live`. */
internal_data _Atomic(void (*)(void)) live_hook;

#endif
