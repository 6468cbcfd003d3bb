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

#include <sys/single_threaded.h>

/* User addresses fit in this many bits; what lies above is never ours. */
#define OS_ADDRESS_BITS 47

/* The system's page in bytes: 4, 16 or 64 KiB, read at run time. */
internal size_t os_page(void);

/* Is the calling thread the only one, as far as the C library knows? */
static inline bool os_is_single_threaded(void) { return __libc_single_threaded; }

/* ---- Memory ---- */

/* Address space without memory: not accessible, not charged to the commit limit.
 * align is a power of two. NULL when the system refuses. */
internal void *os_reserve(size_t size, size_t align);
/* Reserved memory becomes readable, writable and zero, protected memory writable again.
 * False: refused. */
internal bool os_commit(void *p, size_t size);
/* From now on readable only. */
internal void os_protect(void *p, size_t size);
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
/* Makes the pages of memory resident without changing it, as far as the system knows how and lets us;
 * what can't be written to stays as it is. */
internal void os_populate(void *p, size_t size);
/* Keeps resident memory resident, or no longer. 0 or an errno value. */
internal int os_lock_memory(void *p, size_t size, bool lock);
/* No huge pages here, whatever the system does by default; or huge pages, where it lets
 * programs ask for them. */
internal void os_avoid_huge_pages(void *p, size_t size);
internal void os_want_huge_pages(void *p, size_t size);
/* Does it? Looks once. */
internal bool os_gives_huge_pages(void);
/* Bytes of this process that are resident, huge pages included. */
internal size_t os_resident(void);
/* The most that ever were, since the program was executed; 0: not known. */
internal size_t os_peak_resident(void);
/* Bytes of a part of the address space that are; 0 where there is nothing. */
internal size_t os_resident_in(const void *p, size_t size);
/* A child of fork does not get this memory. */
internal void os_keep_from_fork(void *p, size_t size);
/* A child of fork finds this private memory zero, and so will its children. False: not to
 * be had. */
internal bool os_clear_on_fork(void *p, size_t size);
/* Copies memory of this process that may not be there. False: not all of it is. */
internal bool os_read_memory(const void *from, void *to, size_t size);
/* Does the system copy any at all? In some sandboxes it does not. */
internal bool os_reads_memory(void);
/* Can these pages, of which p is the first, all be read? What was never touched then is the
 * system's page of zeros. */
internal bool os_are_readable(const void *p, size_t pages);
/* Is the address space or the data segment of this process limited? */
internal bool os_memory_limited(void);

/* ---- Time ---- */

/* Milliseconds since some fixed moment; never goes back; a few ms coarse. */
internal uint64_t os_now_ms(void);
/* Nanoseconds of the same clock, exact; and of the time of day, since 1970. */
internal uint64_t os_now_ns(void);
internal uint64_t os_wall_ns(void);

/* ---- Threads ---- */

/* A value that tells live threads apart; never 0. */
internal uintptr_t os_thread_self(void);
/* An address above the frames of the calling thread on the stack that the system gave it, in the same
 * mapping, which stays as long as the thread lives; any address, at its page. */
internal uintptr_t os_thread_stack(void);
/* Sleeps while *word == seen, at most timeout_ms (0: without limit). May return
 * early. */
internal void os_wait(atomic_u32 *word, uint32_t seen, uint32_t timeout_ms);
internal void os_wake_one(atomic_u32 *word);
internal void os_wake_all(atomic_u32 *word);
/* The same for a word in a file that processes share. */
internal void os_wait_shared(atomic_u32 *word, uint32_t seen, uint32_t timeout_ms);
internal void os_wake_shared(atomic_u32 *word);
/* Sleeps that long. */
internal void os_sleep_ms(uint32_t ms);
/* Starts a detached thread that takes no signals. Calls the C library's thread
 * creation, so never from malloc or free. */
internal bool os_thread_start(void *(*body)(void *));
/* Is it for such a thread that the C library's thread creation was called with that body? */
internal bool os_thread_is_own(void *(*body)(void *));
/* Calls it in a thread that has no file open, where what it opens is seen by nobody else, and waits; or not at all, where
 * the system has no such threads (Linux before 5.9). One at a time, of a thread that takes no signals: both share
 * what is thread-local. */
internal void os_without_files(void (*body)(void));
/* Names the calling thread; at most 15 characters. And its name, of 16 bytes. */
internal void os_thread_name(const char *name);
internal void os_thread_read_name(char *name);
/* For a thread of os_thread_start about to end, perhaps as the last of the process: the
 * C library runs the program's exit handlers on it, with the signals that were
 * open to the thread that started it. It counts no more. */
internal void os_thread_ends(void);
/* Is the caller the process's initial thread? */
internal bool os_thread_is_initial(void);
/* The number by which the system knows the calling thread. */
internal unsigned os_thread_id(void);
/* Number of threads of this process, ended but unwaited ones included; 0: unknown. */
internal unsigned os_thread_count(void);
/* How many of them os_thread_start made; never more than there are. */
internal unsigned os_thread_own_count(void);

/* Calls `see` for each thread of the process, as the system numbers them. False: not all of
 * them could be read. */
internal bool os_threads_each(void (*see)(unsigned thread));
/* For the rest of this folder: what Linux says of a thread under that name, in the OS_STATUS_MOST
 * bytes of value, which is enough for both. 0 or an errno value; ENOENT or ESRCH: it has ended. */
enum { OS_STATUS_MOST = 64 };
internal int os_thread_status(unsigned thread, const char *name, char *value);

/* ---- Sleep ---- */

/* Is the thread off its processor, inside a system call in which it keeps its memory to itself? *stack: its stack
 * pointer. False also where the system does not say. */
internal bool os_thread_sleeps(unsigned thread, uintptr_t *stack);
/* How often it went to sleep so far; 0: unknown. */
internal uint64_t os_thread_switches(unsigned thread);
/* Is that masu's code? Where masu is a part of the program itself nothing is known to be. */
internal bool os_is_own_code(uintptr_t address);
/* May there be a signal handler among these frames of a thread that sleeps which interrupted masu's
 * code? Also true if nothing can be known. */
internal bool os_was_interrupted(uintptr_t from, uintptr_t to);

/* ---- CPU time ---- */

/* Nanoseconds of CPU time that a thread of this process has used (0: the calling one), or all
 * of them together. 0: it has ended. */
internal uint64_t os_cpu_ns(unsigned thread);
internal uint64_t os_cpu_process_ns(void);
/* Of the calling thread, as far as the system has noted it: up to a tick ago, some ms. Does not make it see whether
 * the thread's slice is over, which os_cpu_ns does. */
internal uint64_t os_cpu_coarse_ns(void);
/* A timer on that time, which interrupts that thread with `what`. Negative: refused. Threads,
 * fork and exec leave it behind: who made it drops it. */
internal int os_cpu_timer_make(unsigned thread, void *what);
/* Once, when the thread has used `at` nanoseconds in all; at once, if it has. */
internal void os_cpu_timer_set(int timer, uint64_t at);
internal void os_cpu_timer_drop(int timer);
/* The timer is set and has not fired, or it has and the thread has not been interrupted yet, as
 * it blocks signals, or is in a long system call. */
internal bool os_cpu_timer_waits(int timer, unsigned thread);
/* What the timers call, in the thread that they interrupt. It must be safe in a signal handler;
 * no other handler runs meanwhile. `context`: where the thread was, for stack_capture_from.
 * Returns 0 or an errno value; EBUSY: the program handles that signal itself. */
typedef void os_cpu_handler(void *what, const void *context);
internal int os_cpu_handle(os_cpu_handler *handler);
/* As it was before, unless the program has taken the signal for itself meanwhile. */
internal void os_cpu_handle_no_more(void);
internal bool os_cpu_is_handled(void);
/* Calls it on that stack. One thread of the process at a time. */
internal void os_call_on(void *stack, size_t size, void body(void));

/* ---- Files ---- */

/* Programs change their folder: what is used later has an absolute path. No file stays
 * open. */

/* Makes an empty file, mode 0600, that must not be there. 0 or an errno value. */
internal int os_file_make(const char *path);
/* Maps a part of the file, shared, readable and writable. The disk has room for it from
 * then on; the file grows to it. NULL: *why is an errno value. */
internal void *os_file_map(const char *path, uint64_t offset, size_t size, int *why);
typedef struct os_part {
  const void *at;
  size_t size;
} os_part;
/* Writes at most 16 parts, one behind the other; the file grows to it. 0 or an errno value: what was written of it reads
 * as zero. */
internal int os_file_put(const char *path, uint64_t offset, const os_part *part, int parts);
/* Reads up to `size` bytes from the start; so many were there. If it can't be read, *why
 * is an errno value, else 0. */
internal size_t os_file_read(const char *path, void *to, size_t size, int *why);
/* Writes a file, whole or not at all: what was there before is replaced at the end. Of several
 * threads' files at once the last one stays. What is no file stays too: a device gets it, a link
 * is not followed (ELOOP), all else is EEXIST. 0 or an errno value. */
internal int os_file_write(const char *path, const void *data, size_t size);
/* The same where no file must be, also no link; mode 0600. What can't be written whole is removed. */
internal int os_file_write_new(const char *path, const void *data, size_t size);
/* 0 or an errno value. */
internal int os_file_remove(const char *path);
/* Copies what can be read to a new file. */
internal void os_file_copy(const char *from, const char *to);
/* For the rest of this folder: read(), which a signal doesn't end. */
internal long os_read_some(int file, void *to, size_t size);

/* ---- Mappings ---- */

enum { OS_PATH_MOST = 4096, OS_BUILD_ID_MOST = 20 };
typedef struct os_mapping {
  uintptr_t start, end, offset;
  size_t build_id_size; /* 0: it has none */
  uint8_t build_id[OS_BUILD_ID_MOST];
  char path[OS_PATH_MOST]; /* or the name that the system has for it, in brackets; "": neither */
} os_mapping;
/* What to ask with, which os_mappings_close ends; negative: nobody can be asked. */
internal int os_mappings_open(void);
/* The executable mapping that the address is in, or the next one. 0, ENOENT if there is none, or another errno value:
 * the system does not say. */
internal int os_mappings_ask(int maps, uintptr_t address, os_mapping *found);
internal void os_mappings_close(int maps);

/* ---- Process ---- */

/* As pthread_atfork, but exit leaves the handlers alone: it takes a library's off the C library's list, and of a fork
 * that another thread is at only the first half of them would run. */
internal void os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* fork takes the lock of the C library's list of streams, and a thread that holds it
 * may wait for one that allocates. Taking it before masu's own locks keeps that
 * order; released in the parent, made new in the child. */
internal void os_fork_lock(void);
internal void os_fork_unlock(void);
internal void os_fork_reset(void);

/* A variable of the environment; NULL when unset or when the process runs with
 * more rights than its user (set-user-id). */
internal const char *os_environment(const char *name);
internal bool os_is_secure(void);
/* False: neither the C library nor os_process_start has come so far. */
internal bool os_environment_is_known(void);
internal void os_write_stderr(const char *text, size_t length);
/* Programs close stderr before they end: keeps it open for what is written then, unless they
 * close whatever is open. */
internal void os_keep_stderr(void);
internal const char *os_program_name(void);
/* Where the program's loader was mapped; 0: it has none. */
internal uintptr_t os_loader_base(void);
/* Before the C library knows them itself: what the process was started with. */
internal void os_process_start(char **arguments, char **environment);
internal int os_process_id(void);
internal unsigned os_user_id(void);
/* When this process was started, in the system's ticks since it booted: with its number the
 * process's name for all times. exec keeps both. 0: unknown. */
internal uint64_t os_process_started(void);
_Noreturn internal void os_abort(void);
/* Ends the process and runs nothing more. */
_Noreturn internal void os_exit(int status);

#endif
