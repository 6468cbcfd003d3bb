/* operators: C++ operator new and delete for libmasu.so, in C under their mangled
 * names, so that the library needs no C++ runtime.
 *
 * On failure the throwing forms hand over to the next operator new in link order,
 * libstdc++'s or libc++'s: it tries malloc again, runs the new-handler and throws.
 *
 * A program may replace the basic forms only: by the standard the others call those, arrays'
 * those of one object, and so do ours where the dynamic linker found another basic form.
 *
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
typedef void operator_delete(void *p);
typedef void operator_delete_aligned(void *p, size_t align);

/* The basic forms that are not ours; of arrays what they come to. */
static struct {
  operator_new *nw, *na;
  operator_new_aligned *nw_aligned, *na_aligned;
  operator_delete *dl, *da;
  operator_delete_aligned *dl_aligned, *da_aligned;
} theirs;

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

static COLD void *next_new_nothrow(const char *name, size_t size, const void *nothrow) {
  void *(*next)(size_t, const void *);
  *(void **)&next = find_operator(name);
  return next ? next(size, nothrow) : NULL;
}

static COLD void *next_new_aligned_nothrow(const char *name, size_t size, size_t align,
                                           const void *nothrow) {
  void *(*next)(size_t, size_t, const void *);
  if (size > LARGE_MOST)
    return next_new_nothrow("_ZnwmRKSt9nothrow_t", size, nothrow);
  *(void **)&next = find_operator(name);
  return next ? next(size, align, nothrow) : NULL;
}

/* Apart, so that a block in the hand needs no stack frame. */
static NOINLINE void *new_slow(size_t size) {
  void *p = ENTRY_NEW(size);
  return LIKELY(p != NULL) ? p : new_failed(size);
}
static ALWAYS_INLINE void *new_or_throw(size_t size) {
  void *p = ENTRY_NEW_READY(size);
  return LIKELY(p != NULL) ? p : new_slow(size);
}
static void *new_aligned_or_throw(size_t size, size_t align) {
  void *p = ENTRY_NEW_ALIGNED(align, size);
  return LIKELY(p != NULL) ? p : new_aligned_failed(size, align);
}
static ALWAYS_INLINE void delete_sized(void *p, size_t align, size_t size) {
  if (CHECKED && p)
    checked_sized(p, align, size);
  ENTRY_DELETE_SIZED(p, align, size);
}

/* ---- The basic forms ---- */

PUBLIC HOT void *_Znwm(size_t size) { return new_or_throw(size); }
PUBLIC HOT void *_Znam(size_t size) { return UNLIKELY(theirs.nw != NULL) ? theirs.nw(size) : new_or_throw(size); }
PUBLIC HOT void _ZdlPv(void *p) { ENTRY_DELETE(p); }
PUBLIC HOT void _ZdaPv(void *p) {
  if (UNLIKELY(theirs.dl != NULL))
    theirs.dl(p);
  else
    ENTRY_DELETE(p);
}

PUBLIC void *_ZnwmSt11align_val_t(size_t size, size_t align) { return new_aligned_or_throw(size, align); }
PUBLIC void *_ZnamSt11align_val_t(size_t size, size_t align) {
  return theirs.nw_aligned ? theirs.nw_aligned(size, align) : new_aligned_or_throw(size, align);
}
PUBLIC void _ZdlPvSt11align_val_t(void *p, size_t align) {
  (void)align;
  ENTRY_DELETE(p);
}
PUBLIC void _ZdaPvSt11align_val_t(void *p, size_t align) {
  if (theirs.dl_aligned)
    theirs.dl_aligned(p, align);
  else
    ENTRY_DELETE(p);
}

/* Ours under names that nobody else can have. */
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif
#define OWN(form) \
  extern __typeof__(form) own##form __attribute__((alias(#form), visibility("hidden")));
OWN(_Znwm)
OWN(_Znam)
OWN(_ZdlPv)
OWN(_ZdaPv)
OWN(_ZnwmSt11align_val_t)
OWN(_ZnamSt11align_val_t)
OWN(_ZdlPvSt11align_val_t)
OWN(_ZdaPvSt11align_val_t)
#pragma GCC diagnostic pop

/* NULL: it is ours. The compiler takes two names of one function for equal. */
static void *found_in_place(uintptr_t found, uintptr_t ours) {
  __asm__("" : "+r"(found), "+r"(ours));
  return found == ours ? NULL : (void *)found;
}

#define FIND(form) found_in_place((uintptr_t)form, (uintptr_t)own##form)

__attribute__((constructor(101))) static void find_theirs(void) {
  *(void **)&theirs.nw = FIND(_Znwm);
  *(void **)&theirs.dl = FIND(_ZdlPv);
  *(void **)&theirs.nw_aligned = FIND(_ZnwmSt11align_val_t);
  *(void **)&theirs.dl_aligned = FIND(_ZdlPvSt11align_val_t);
  *(void **)&theirs.na = FIND(_Znam);
  *(void **)&theirs.da = FIND(_ZdaPv);
  *(void **)&theirs.na_aligned = FIND(_ZnamSt11align_val_t);
  *(void **)&theirs.da_aligned = FIND(_ZdaPvSt11align_val_t);
  theirs.na = theirs.na ? theirs.na : theirs.nw;
  theirs.da = theirs.da ? theirs.da : theirs.dl;
  theirs.na_aligned = theirs.na_aligned ? theirs.na_aligned : theirs.nw_aligned;
  theirs.da_aligned = theirs.da_aligned ? theirs.da_aligned : theirs.dl_aligned;
}

/* ---- The others ---- */

/* Each form exists for one object (nw, dl) and for arrays (na, da). Where what theirs throws has to
 * be caught, or memory is short, the C++ runtime's form sees to it. */
#define OPERATORS(n, d)                                                                             \
  PUBLIC void *_Z##n##mRKSt9nothrow_t(size_t size, const void *nothrow) {                           \
    void *p = LIKELY(!theirs.n) ? ENTRY_NEW(size) : NULL;                                           \
    return LIKELY(p != NULL) ? p : next_new_nothrow("_Z" #n "mRKSt9nothrow_t", size, nothrow);      \
  }                                                                                                 \
  PUBLIC void *_Z##n##mSt11align_val_tRKSt9nothrow_t(size_t size, size_t align,                     \
                                                     const void *nothrow) {                         \
    void *p = LIKELY(!theirs.n##_aligned) ? ENTRY_NEW_ALIGNED(align, size) : NULL;                  \
    return LIKELY(p != NULL)                                                                        \
             ? p                                                                                    \
             : next_new_aligned_nothrow("_Z" #n "mSt11align_val_tRKSt9nothrow_t", size, align, nothrow); \
  }                                                                                                 \
  PUBLIC void _Z##d##PvRKSt9nothrow_t(void *p, const void *nothrow) {                               \
    (void)nothrow;                                                                                  \
    if (UNLIKELY(theirs.d != NULL))                                                                 \
      theirs.d(p);                                                                                  \
    else                                                                                            \
      ENTRY_DELETE(p);                                                                              \
  }                                                                                                 \
  PUBLIC void _Z##d##PvSt11align_val_tRKSt9nothrow_t(void *p, size_t align, const void *nothrow) {  \
    (void)nothrow;                                                                                  \
    if (UNLIKELY(theirs.d##_aligned != NULL))                                                       \
      theirs.d##_aligned(p, align);                                                                 \
    else                                                                                            \
      ENTRY_DELETE(p);                                                                              \
  }                                                                                                 \
  PUBLIC HOT void _Z##d##Pvm(void *p, size_t size) {                                                \
    if (UNLIKELY(theirs.d != NULL))                                                                 \
      theirs.d(p);                                                                                  \
    else                                                                                            \
      delete_sized(p, 1, size);                                                                     \
  }                                                                                                 \
  PUBLIC void _Z##d##PvmSt11align_val_t(void *p, size_t size, size_t align) {                       \
    if (UNLIKELY(theirs.d##_aligned != NULL))                                                       \
      theirs.d##_aligned(p, align);                                                                 \
    else                                                                                            \
      delete_sized(p, align, size);                                                                 \
  }

OPERATORS(nw, dl)
OPERATORS(na, da)

#pragma GCC diagnostic pop
#endif
