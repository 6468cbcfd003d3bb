/* masu: the whole allocator as one translation unit. Compile this file alone, with
 * -Isrc -Iinclude -pthread, to vendor masu. It is the only file that includes .c
 * files, in the order of the layers (src/LAYERS). */
#define MASU_UNITY

#include "base/options.c"

#include "os/bell.c"
#include "os/linux.c"
#include "os/linux_cpu.c"
#include "os/linux_sleep.c"
#include "os/lock.c"
#include "os/report.c"
#include "os/signals.c"
#include "os/stop.c"

#include "pages/bins.c"
#include "pages/mappings.c"
#include "pages/meta.c"
#include "pages/pagemap.c"
#include "pages/regions.c"
#include "pages/supply.c"

#include "heap/budget.c"
#include "heap/front.c"
#include "heap/heap.c"
#include "heap/helper.c"
#include "heap/large.c"
#include "heap/mail.c"
#include "heap/outbox.c"
#include "heap/roster.c"
#include "heap/sizes.c"
#include "heap/slab.c"
#include "heap/sleepers.c"
#include "heap/spares.c"
#include "heap/sparse.c"

#include "api/aligned.c"
#include "api/checked.c"
#include "api/foreign.c"
#include "api/inspect.c"
#include "api/latency.c"
#include "api/limb.c"
#include "api/malloc.c"
#include "api/process.c"
#include "api/sampled.c"
#include "api/settings.c"
#include "api/thread.c"

#include "forms/arena.c"
#include "forms/fixed.c"
#include "forms/ladder.c"
#include "forms/named.c"
#include "forms/pool.c"
#include "forms/scope.c"
#include "forms/sized.c"
#include "forms/thread_end.c"

#include "observe/cpu.c"
#include "observe/leaks.c"
#include "observe/ledger.c"
#include "observe/live.c"
#include "observe/pprof.c"
#include "observe/profile.c"
#include "observe/reach.c"
#include "observe/stack.c"
#include "observe/unwind.c"
#ifdef MASU_RECORD
#include "observe/record.c"
#endif
#include "observe/stats.c"

#include "override/interpose.c"
#include "override/operators.c"
