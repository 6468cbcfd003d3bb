/* os: the contract with the operating system, and the porting guide.
 *
 * This folder is the only one that asks the system for memory, time and threads.
 * Every function may be called at any moment, from any thread, with or without
 * locks held; none allocates, none takes a lock of the C library, and all leave
 * errno as it was. Addresses and sizes are multiples of os_page() unless said
 * otherwise.
 */
#ifndef MASU_OS_OS_H
#define MASU_OS_OS_H

#include "base/attr.h"
#include "base/atomic.h"

/* User addresses fit in this many bits; what lies above is never ours. */
#define OS_ADDRESS_BITS 47

/* The system's page in bytes: 4, 16 or 64 KiB, read at run time. */
internal size_t os_page(void);

/* ---- Memory ---- */

/* Address space without memory: not accessible, not charged to the commit limit.
 * align is a power of two. NULL when the system refuses. */
internal void *os_reserve(size_t size, size_t align);
/* Reserved memory becomes readable, writable and zero. False: refused. */
internal bool os_commit(void *p, size_t size);
/* Readable, writable, zeroed memory of its own. NULL: refused. */
internal void *os_map(size_t size, size_t align);
/* Returns memory and address space. */
internal void os_unmap(void *p, size_t size);
/* Gives the memory back, keeps the address space readable and writable; it reads
 * as zero afterwards. False: the system refused (locked memory), contents kept. */
internal bool os_purge(void *p, size_t size);
/* Resizes a mapping made by os_map without moving it. False: no room. */
internal bool os_grow_in_place(void *p, size_t old_size, size_t new_size);
/* Moves a mapping to a target that os_reserve gave (replaced); sizes as above.
 * False: refused, nothing changed. */
internal bool os_move(void *p, size_t old_size, void *target, size_t new_size);
/* Makes memory resident without changing it, as far as the system knows how and lets us;
 * what can't be written to stays as it is. */
internal void os_populate(void *p, size_t size);
/* Keeps resident memory resident, or no longer. 0 or an errno value. */
internal int os_lock_memory(void *p, size_t size, bool lock);
/* No huge pages here, whatever the system does by default; or huge pages, where it lets
 * programs ask for them. */
internal void os_avoid_huge_pages(void *p, size_t size);
internal void os_want_huge_pages(void *p, size_t size);
/* Bytes of this process that are resident, huge pages included. */
internal size_t os_resident(void);
/* Is the address space or the data segment of this process limited? */
internal bool os_memory_limited(void);

/* ---- Time ---- */

/* Milliseconds since some fixed moment; never goes back; a few ms coarse. */
internal uint64_t os_now_ms(void);

/* ---- Threads ---- */

/* A value that tells live threads apart; never 0. */
internal uintptr_t os_thread_self(void);
/* Sleeps while *word == seen, at most timeout_ms (0: without limit). May return
 * early. */
internal void os_wait(atomic_u32 *word, uint32_t seen, uint32_t timeout_ms);
internal void os_wake_one(atomic_u32 *word);
/* Sleeps that long. */
internal void os_sleep_ms(uint32_t ms);
/* Starts a detached thread that takes no signals. Calls the C library's thread
 * creation, so never from malloc or free. */
internal bool os_thread_start(void *(*body)(void *));
/* Names the calling thread; at most 15 characters. */
internal void os_thread_name(const char *name);
/* For a thread of os_thread_start about to end as the last of the process: the
 * C library runs the program's exit handlers on it, with the signals that were
 * open to the thread that started it. */
internal void os_thread_signals_restore(void);
/* Is the caller the process's initial thread? */
internal bool os_thread_is_initial(void);
/* Number of threads of this process, ended but unwaited ones included; 0: unknown. */
internal unsigned os_thread_count(void);

/* ---- Process ---- */

/* fork takes the lock of the C library's list of streams, and a thread that holds it
 * may wait for one that allocates. Taking it before masu's own locks keeps that
 * order; released in the parent, made new in the child. */
internal void os_fork_lock(void);
internal void os_fork_unlock(void);
internal void os_fork_reset(void);

/* A variable of the environment; NULL when unset or when the process runs with
 * more rights than its user (set-user-id). */
internal const char *os_environment(const char *name);
internal void os_write_stderr(const char *text, size_t length);
/* Programs close stderr before they end: keeps it open for what is written then. */
internal void os_keep_stderr(void);
internal const char *os_program_name(void);
/* Before the C library knows them itself: what the process was started with. */
internal void os_process_start(char **arguments, char **environment);
internal int os_process_id(void);
_Noreturn internal void os_abort(void);
/* Ends the process and runs nothing more. */
_Noreturn internal void os_exit(int status);

#endif
