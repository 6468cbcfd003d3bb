/* entry: what the functions under the C library's names are: masu's own, or, in
 * libmasu-record.so, the recorder's. */
#ifndef MASU_OVERRIDE_ENTRY_H
#define MASU_OVERRIDE_ENTRY_H

#include "api/fast.h"

#ifdef MASU_RECORD

#include "observe/record.h"

#define ENTRY(name) recorded_##name
#define ENTRY_NEW recorded_new
#define ENTRY_NEW_READY(size) NULL
#define ENTRY_NEW_ALIGNED recorded_new_aligned
#define ENTRY_DELETE recorded_delete
#define ENTRY_DELETE_SIZED recorded_delete_sized
#define ENTRY_START() record_start()
#define ENTRY_END() record_end()
#define ENTRY_WANTS_THREADS() record_is_on()
#define ENTRY_THREAD_MADE() record_thread_made()
#define ENTRY_THREAD_BEGINS(made) record_thread_begins(made)

#else

#define ENTRY(name) masu_##name
#define ENTRY_NEW malloc_fast
#define ENTRY_NEW_READY malloc_ready
#define ENTRY_NEW_ALIGNED malloc_aligned
#define ENTRY_DELETE free_fast
#define ENTRY_DELETE_SIZED(p, align, size) free_fast(p)
#define ENTRY_START() ((void)0)
#define ENTRY_END() ((void)0)
#define ENTRY_WANTS_THREADS() false
#define ENTRY_THREAD_MADE() 0
#define ENTRY_THREAD_BEGINS(made) ((void)(made))

#endif

#endif
