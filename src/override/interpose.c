/* interpose: the C library's allocation functions under their own names, and the
 * hooks into the process that only a replacement has: the constructor, thread
 * creation, and the next allocator in link order for foreign pointers. In
 * libmasu-record.so the functions are those of the recorder. */
#include "masu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <threads.h>

#include "api/foreign.h"
#include "api/process.h"
#include "base/attr.h"
#include "heap/helper.h"
#include "observe/cpu.h"
#include "observe/leaks.h"
#include "observe/live.h"
#include "observe/profile.h"
#include "os/os.h"
#include "override/entry.h"

#ifndef MASU_NO_OVERRIDE

/* In the shipped unit the names are aliases: the same address, no jump. Compiled
 * apart they can only forward. */
#ifdef MASU_UNITY

#define QUOTED(name) #name
#define SAME_AS(as, arguments) __attribute__((alias(QUOTED(as))))
#else

#define SAME_AS(as, arguments) { return as arguments; }
#endif

#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define REPLACE(type, name, parameters, arguments)                             \
  REPLACE_AS(type, name, masu_##name, parameters, arguments)
#define REPLACE_CALL(type, name, parameters, arguments)                        \
  REPLACE_AS(type, name, ENTRY(name), parameters, arguments)
#define REPLACE_AS(type, name, as, parameters, arguments)                      \
  PUBLIC type name parameters SAME_AS(as, arguments)

REPLACE_CALL(void *, malloc, (size_t size), (size));
REPLACE_CALL(void *, calloc, (size_t count, size_t size), (count, size));
REPLACE_CALL(void *, realloc, (void *p, size_t size), (p, size));
REPLACE_CALL(void *, reallocarray, (void *p, size_t count, size_t size), (p, count, size));
REPLACE_CALL(void *, reallocf, (void *p, size_t size), (p, size));
REPLACE_CALL(void, free, (void *p), (p));
REPLACE_CALL(void, free_sized, (void *p, size_t size), (p, size));
REPLACE_CALL(void, free_aligned_sized, (void *p, size_t alignment, size_t size), (p, alignment, size));
REPLACE_AS(void, cfree, ENTRY(free), (void *p), (p));
REPLACE_CALL(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size));
REPLACE_CALL(void *, memalign, (size_t alignment, size_t size), (alignment, size));
REPLACE_CALL(int, posix_memalign, (void **out, size_t alignment, size_t size), (out, alignment, size));
REPLACE_CALL(void *, valloc, (size_t size), (size));
REPLACE_CALL(void *, pvalloc, (size_t size), (size));
REPLACE(size_t, malloc_usable_size, (void *p), (p));
REPLACE(size_t, malloc_good_size, (size_t size), (size));
REPLACE(struct mallinfo, mallinfo, (void), ());
REPLACE(struct mallinfo2, mallinfo2, (void), ());
REPLACE(int, malloc_info, (int options, FILE *stream), (options, stream));
REPLACE(void, malloc_stats, (void), ());
REPLACE(int, malloc_trim, (size_t pad), (pad));
REPLACE(int, mallopt, (int parameter, int value), (parameter, value));

/* The C library calls these inside itself, and old programs do. */
REPLACE_AS(void *, __libc_malloc, ENTRY(malloc), (size_t size), (size));
REPLACE_AS(void *, __libc_calloc, ENTRY(calloc), (size_t count, size_t size), (count, size));
REPLACE_AS(void *, __libc_realloc, ENTRY(realloc), (void *p, size_t size), (p, size));
REPLACE_AS(void, __libc_free, ENTRY(free), (void *p), (p));
REPLACE_AS(void *, __libc_memalign, ENTRY(memalign), (size_t alignment, size_t size), (alignment, size));
REPLACE_AS(void *, __libc_valloc, ENTRY(valloc), (size_t size), (size));
REPLACE_AS(void *, __libc_pvalloc, ENTRY(pvalloc), (size_t size), (size));
REPLACE_AS(struct mallinfo, __libc_mallinfo, masu_mallinfo, (void), ());
REPLACE_AS(struct mallinfo2, __libc_mallinfo2, masu_mallinfo2, (void), ());
REPLACE_AS(int, __libc_mallopt, masu_mallopt, (int parameter, int value), (parameter, value));
REPLACE_AS(void *, __libc_reallocarray, ENTRY(reallocarray), (void *p, size_t count, size_t size), (p, count, size));
REPLACE_AS(int, __posix_memalign, ENTRY(posix_memalign), (void **out, size_t alignment, size_t size), (out, alignment, size));

#pragma GCC diagnostic pop

#endif /* MASU_NO_OVERRIDE */

#ifndef MASU_STATIC

#ifndef MASU_NO_OVERRIDE
static void (*next_exit)(int);
#endif

/* dlsym may allocate, so it is called here and not at the first need. */
static void find_next(void) {
#ifndef MASU_NO_OVERRIDE
  *(void **)&next_exit = dlsym(RTLD_NEXT, "_exit");
  *(void **)&foreign_next.free = dlsym(RTLD_NEXT, "free");
  *(void **)&foreign_next.realloc = dlsym(RTLD_NEXT, "realloc");
  *(void **)&foreign_next.usable_size = dlsym(RTLD_NEXT, "malloc_usable_size");
#endif
}

#ifndef MASU_NO_OVERRIDE

typedef int pthread_create_t(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int thrd_create_t(thrd_t *, thrd_start_t, void *);

/* What a new thread is to do: a block that its creator makes, if an observer wants to know when it begins, and the
 * thread frees. */
typedef struct start {
  union {
    void *(*body)(void *);
    int (*c11_body)(void *);
  };
  void *argument;
  uint64_t recorded;
} start;

static start *start_make(void *argument) {
  start *s = ENTRY_WANTS_THREADS() || cpu_wants_threads() ? masu_malloc(sizeof *s) : NULL;
  if (s)
    *s = (start){.argument = argument, .recorded = ENTRY_THREAD_MADE()};
  return s;
}

/* In the thread. */
static void start_done(start *s) {
  uint64_t recorded = s->recorded;
  masu_free(s);
  ENTRY_THREAD_BEGINS(recorded);
  cpu_thread_begins();
}

/* Both end with a jump: no frame of masu's lies under the program's. */
static void *start_run(void *handle) {
  void *(*body)(void *) = ((start *)handle)->body;
  void *argument = ((start *)handle)->argument;
  start_done(handle);
  return body(argument);
}

static int start_run_c11(void *handle) {
  int (*body)(void *) = ((start *)handle)->c11_body;
  void *argument = ((start *)handle)->argument;
  start_done(handle);
  return body(argument);
}

/* A thread of the program's was made, or failed to be. masu's own start after the real call has returned: nothing of
 * the C library is locked then. */
static void thread_made(bool made, start *s) {
  if (made) {
    cpu_thread_made();
    helper_ensure();
  } else {
    masu_free(s);
  }
}

PUBLIC int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument) {
  static pthread_create_t *next;
  if (!next)
    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
  if (os_thread_is_own(body))
    return next(thread, attributes, body, argument);
  start *s = start_make(argument);
  if (s)
    s->body = body;
  int failed = s ? next(thread, attributes, start_run, s) : next(thread, attributes, body, argument);
  thread_made(!failed, s);
  return failed;
}

PUBLIC int thrd_create(thrd_t *thread, thrd_start_t body, void *argument) {
  static thrd_create_t *next;
  if (!next)
    *(void **)&next = dlsym(RTLD_NEXT, "thrd_create");
  start *s = start_make(argument);
  if (s)
    s->c11_body = body;
  int result = s ? next(thread, start_run_c11, s) : next(thread, body, argument);
  thread_made(result == thrd_success, s);
  return result;
}

/* No destructor runs in these two, which are one function in the C library too. */
PUBLIC _Noreturn void _exit(int status) {
  process_end();
  leaks_end();
  profile_end();
  cpu_end();
  live_end();
  ENTRY_END();
  if (next_exit)
    next_exit(status);
  os_exit(status);
}

PUBLIC _Noreturn void _Exit(int status) __attribute__((alias("_exit")));

#endif

#endif /* MASU_STATIC */

/* The shared library is linked to be initialised first (-z initfirst), so that its
 * fork handlers are inside those of all others. glibc hands main's arguments to
 * constructors. */
__attribute__((constructor(101))) static void library_start(int count, char **arguments,
                                                           char **environment) {
  (void)count;
#ifndef MASU_STATIC
  find_next();
#endif
  process_start(arguments, environment);
  profile_begin();
  cpu_begin();
  leaks_start();
  live_start();
  ENTRY_START();
}
