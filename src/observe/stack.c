#include "observe/stack.h"

#include <dlfcn.h>
#include <ucontext.h>
#include <unwind.h>

#include "os/os.h"

enum {
  OWN_MOST = 16,        /* frames of masu itself */
  FRAME_MOST = 1 << 20, /* bytes between two frame pointers */
  FRAME_POINTER = 6,    /* the register's number in the tables (x86-64: rbp) */
};

/* With the C library's _dl_find_object the unwinder takes no lock. */
#ifdef DLFO_STRUCT_HAS_EH_DBASE
static bool has_tables(uintptr_t ip) {
  struct dl_find_object found;
  return _dl_find_object((void *)(ip - 1), &found) == 0;
}
enum { UNWINDS = true };
#else
static bool has_tables(uintptr_t ip) { return ip != 0; }
enum { UNWINDS = false };
#endif

#ifdef MASU_STATIC

/* Part of the program, so its addresses tell nothing. */
static bool is_own_code(uintptr_t address) {
  (void)address;
  return false;
}

#else

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static bool is_own_code(uintptr_t address) {
  return address >= (uintptr_t)__ehdr_start && address < (uintptr_t)_end;
}

#endif

typedef struct stack_walk {
  uintptr_t *frames;
  size_t count, most;
  size_t own;             /* frames passed over */
  uintptr_t ip, cfa, frame; /* of the last */
} stack_walk;

static bool add_frame(stack_walk *t, uintptr_t ip) {
  if (t->count == 0 && is_own_code(ip) && t->own < OWN_MOST)
    t->own++;
  else if (ip)
    t->frames[t->count++] = ip;
  return ip && t->count < t->most;
}

static _Unwind_Reason_Code see_frame(struct _Unwind_Context *context, void *any) {
  stack_walk *t = any;
  t->ip = _Unwind_GetIP(context);
  uintptr_t cfa = _Unwind_GetCFA(context);
  bool moves = cfa != t->cfa || t->own <= 1;
  t->cfa = cfa;
  t->frame = _Unwind_GetGR(context, FRAME_POINTER);
  return add_frame(t, t->ip) && moves ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* From a frame pointer; `above` is the stack pointer there, or lower. */
static void follow_frame_pointers(stack_walk *t, uintptr_t above) {
  uintptr_t at = t->frame, pair[2]; /* the caller's frame pointer, the return address */
  while (t->count < t->most && at >= above && at - above < FRAME_MOST &&
         at % sizeof *pair == 0 && os_read_memory((void *)at, pair, sizeof pair) &&
         add_frame(t, pair[1])) {
    above = at + 1;
    at = pair[0];
  }
}

internal NOINLINE size_t stack_capture(uintptr_t *frames, size_t most) {
  stack_walk t = {.frames = frames, .most = most};
  if (UNWINDS) {
    _Unwind_Backtrace(see_frame, &t);
    if (t.ip && !has_tables(t.ip))
      follow_frame_pointers(&t, t.cfa);
  } else {
    t.frame = (uintptr_t)__builtin_frame_address(0);
    follow_frame_pointers(&t, t.frame);
  }
  return t.count;
}

/* ---- From a signal handler ---- */

typedef struct interrupted_walk {
  stack_walk walk;
  uintptr_t at; /* where the code was interrupted */
} interrupted_walk;

/* The frames of the handler and the kernel's come first. */
static _Unwind_Reason_Code see_interrupted_frame(struct _Unwind_Context *context, void *any) {
  interrupted_walk *i = any;
  stack_walk *t = &i->walk;
  uintptr_t ip = _Unwind_GetIP(context), cfa = _Unwind_GetCFA(context);
  if (!t->count && ip != i->at)
    return _URC_NO_REASON;
  bool moves = cfa != t->cfa;
  t->ip = ip;
  t->cfa = cfa;
  t->frame = _Unwind_GetGR(context, FRAME_POINTER);
  t->frames[t->count] = ip + !t->count;
  t->count += ip != 0;
  return ip && moves && t->count < t->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

internal NOINLINE size_t stack_capture_from(const void *context, uintptr_t *frames, size_t most) {
  const greg_t *registers = ((const ucontext_t *)context)->uc_mcontext.gregs;
  interrupted_walk i = {{.frames = frames, .most = most}, (uintptr_t)registers[REG_RIP]};
  stack_walk *t = &i.walk;
  if (UNWINDS)
    _Unwind_Backtrace(see_interrupted_frame, &i);
  if (!t->count) {
    t->ip = 0;
    frames[t->count++] = i.at + 1;
    t->cfa = (uintptr_t)registers[REG_RSP];
    t->frame = (uintptr_t)registers[REG_RBP];
  }
  if (!t->ip || !has_tables(t->ip))
    follow_frame_pointers(t, t->cfa);
  return t->count;
}

internal uint64_t stack_hash(const uintptr_t *frames, size_t count) {
  uint64_t h = count;
  for (size_t i = 0; i < count; i++)
    h = (h ^ frames[i]) * 0x9e3779b97f4a7c15, h ^= h >> 29;
  return h ? h : 1;
}
