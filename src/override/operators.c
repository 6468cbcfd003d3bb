/* operators: C++ operator new and delete for libmasu.so, in C under their mangled
 * names, so that the library needs no C++ runtime.
 *
 * On failure the throwing forms hand over to the next operator new in link order,
 * libstdc++'s or libc++'s: it tries malloc again, runs the new-handler and throws.
 * In libmasu.a operators.cpp takes this file's place.
 */
#include "masu.h"

#include <dlfcn.h>

#include "heap/large.h"
#include "os/report.h"
#include "override/entry.h"

#if !defined(MASU_STATIC) && !defined(MASU_NO_OVERRIDE)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

typedef void *operator_new(size_t size);
typedef void *operator_new_aligned(size_t size, size_t align);

/* The C++ runtime may be loaded where RTLD_NEXT does not look: by a plugin that a C
 * program opened. */
static COLD void *find_operator(const char *name) {
  static const char *const runtimes[] = {"libstdc++.so.6", "libc++.so.1"};
  void *next = dlsym(RTLD_NEXT, name);
  for (size_t i = 0; !next && i < sizeof runtimes / sizeof *runtimes; i++) {
    void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
    if (runtime)
      next = dlsym(runtime, name);
  }
  return next;
}

static COLD void *next_operator(const char *name) {
  void *next = find_operator(name);
  if (!next) {
    report("out of memory in operator new, and no C++ runtime to throw");
    os_abort();
  }
  return next;
}

static COLD void *new_failed(size_t size) {
  operator_new *next;
  *(void **)&next = next_operator("_Znwm");
  return next(size);
}

/* libstdc++'s aligned forms round sizes near SIZE_MAX up to 0: for what can never
 * succeed the plain forms fail as well and better. */
static COLD void *new_aligned_failed(size_t size, size_t align) {
  operator_new_aligned *next;
  if (size > LARGE_MOST)
    return new_failed(size);
  *(void **)&next = next_operator("_ZnwmSt11align_val_t");
  return next(size, align);
}

static COLD void *new_nothrow_failed(size_t size, const void *nothrow) {
  void *(*next)(size_t, const void *);
  *(void **)&next = find_operator("_ZnwmRKSt9nothrow_t");
  return next ? next(size, nothrow) : NULL;
}

static COLD void *new_aligned_nothrow_failed(size_t size, size_t align,
                                             const void *nothrow) {
  void *(*next)(size_t, size_t, const void *);
  if (size > LARGE_MOST)
    return new_nothrow_failed(size, nothrow);
  *(void **)&next = find_operator("_ZnwmSt11align_val_tRKSt9nothrow_t");
  return next ? next(size, align, nothrow) : NULL;
}

static ALWAYS_INLINE void *new_or_throw(size_t size) {
  void *p = ENTRY_NEW(size);
  return LIKELY(p != NULL) ? p : new_failed(size);
}
static ALWAYS_INLINE void *new_or_null(size_t size, const void *nothrow) {
  void *p = ENTRY_NEW(size);
  return LIKELY(p != NULL) ? p : new_nothrow_failed(size, nothrow);
}
static void *new_aligned_or_throw(size_t size, size_t align) {
  void *p = ENTRY_NEW_ALIGNED(align, size);
  return LIKELY(p != NULL) ? p : new_aligned_failed(size, align);
}
static void *new_aligned_or_null(size_t size, size_t align, const void *nothrow) {
  void *p = ENTRY_NEW_ALIGNED(align, size);
  return LIKELY(p != NULL) ? p : new_aligned_nothrow_failed(size, align, nothrow);
}
static ALWAYS_INLINE void delete_sized(void *p, size_t align, size_t size) {
  if (CHECKED && p)
    checked_sized(p, align, size);
  ENTRY_DELETE_SIZED(p, align, size);
}

/* Each form exists for one object (nw, dl) and for arrays (na, da). */
#define OPERATORS(n, d)                                                        \
  PUBLIC HOT void *_Z##n##m(size_t size) { return new_or_throw(size); }        \
  PUBLIC void *_Z##n##mRKSt9nothrow_t(size_t size, const void *nothrow) {      \
    return new_or_null(size, nothrow);                                         \
  }                                                                            \
  PUBLIC void *_Z##n##mSt11align_val_t(size_t size, size_t align) {            \
    return new_aligned_or_throw(size, align);                                  \
  }                                                                            \
  PUBLIC void *_Z##n##mSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, \
                                                     const void *nothrow) {    \
    return new_aligned_or_null(size, align, nothrow);                          \
  }                                                                            \
  PUBLIC HOT void _Z##d##Pv(void *p) { ENTRY_DELETE(p); }                      \
  PUBLIC void _Z##d##PvRKSt9nothrow_t(void *p, const void *nothrow) {          \
    (void)nothrow;                                                             \
    ENTRY_DELETE(p);                                                           \
  }                                                                            \
  PUBLIC void _Z##d##PvSt11align_val_t(void *p, size_t align) {                \
    (void)align;                                                               \
    ENTRY_DELETE(p);                                                           \
  }                                                                            \
  PUBLIC void _Z##d##PvSt11align_val_tRKSt9nothrow_t(void *p, size_t align,    \
                                                     const void *nothrow) {    \
    (void)align, (void)nothrow;                                                \
    ENTRY_DELETE(p);                                                           \
  }                                                                            \
  PUBLIC HOT void _Z##d##Pvm(void *p, size_t size) { delete_sized(p, 1, size); } \
  PUBLIC void _Z##d##PvmSt11align_val_t(void *p, size_t size, size_t align) {  \
    delete_sized(p, align, size);                                              \
  }

OPERATORS(nw, dl)
OPERATORS(na, da)

#pragma GCC diagnostic pop
#endif
