/* trace: the form in which calls are recorded, shared by the recorder, which writes it,
 * and by the programs that read it. docs/trace-format.md describes it field by field.
 *
 * A process writes one spool file of pages of 4 KiB. Page 0 is the trace_process. The
 * others belong to trace_blocks of 1 to 16 pages; a page that belongs to none reads as
 * zero. A block holds records of one thread in the order of its calls and can be read on
 * its own. A record is some units of 4 bytes, one or two for most calls. The first is written last
 * and is never 0, so that a block says nowhere how long it is: its records end with it, or at a unit that is 0. Numbers
 * are little-endian; steps from one address to another count 8 bytes, all else bytes.
 */
#ifndef MASU_OBSERVE_TRACE_H
#define MASU_OBSERVE_TRACE_H

#include <string.h>

#include "base/atomic.h"

#define TRACE_PROCESS_MAGIC 0x3173736563757361 /* "asucess1" */
#define TRACE_BLOCK_MAGIC 0x316b636f6c627361   /* "asblock1" */

enum {
  TRACE_VERSION = 2,
  TRACE_PAGE = 4096,
  TRACE_BLOCK_PAGES = 16, /* at most */
  TRACE_FRAMES = 48,      /* of a call stack, at most */
  TRACE_UNITS_MOST = 4 + 2 * TRACE_FRAMES, /* of the longest record */
};

typedef struct trace_process {
  uint64_t magic;
  uint32_t version;
  uint32_t page_size; /* TRACE_PAGE */
  uint32_t process, parent; /* ids; parent: of the process that forked it, else 0 */
  uint64_t start_ns;        /* as all times here: CLOCK_MONOTONIC, or what goes on from it (observe/ticks.h) */
  uint64_t start_wall_ns;   /* the same moment since 1970 */
  uint32_t cost_ns;         /* what recording one call takes, measured at the start */
  uint32_t stacks;          /* 1: with call stacks */
  atomic_u32 pages;         /* claimed so far, this one included */
  atomic_u32 stopped;       /* the errno value for which recording ended early, or 0 */
  atomic_u32 dropped;       /* records that found no room */
  atomic_u32 ended;         /* 1: by exit or _exit */
  uint32_t command_length;
  char command[3072]; /* arguments, each ended by a 0 */
  atomic_u64 peak_resident; /* bytes, when one in 16 blocks of a thread was begun or at the end; 0: not known */
} trace_process;

_Static_assert(offsetof(trace_process, peak_resident) == 3144, "docs/trace-format.md");

enum { TRACE_OPEN = 1, TRACE_FULL = 2, TRACE_COPIED = 3 };

typedef struct trace_block {
  uint64_t magic; /* written last */
  uint32_t page;  /* where it lies in its file */
  uint32_t pages;
  uint32_t thread; /* number within the process, from 0 */
  uint32_t level;  /* 1: records of signal handlers that came in the middle of another, or of a realloc */
  uint64_t time;   /* from which the first record's counts */
  atomic_u32 state;
  uint32_t copy_of; /* the page of another; 0: of none. Counts when that has another time, or is not open (observe/spool.h) */
  uint32_t reserved[6];
} trace_block;

/* What a record's time is the moment of is said behind each. */
typedef enum trace_kind {
  TRACE_MALLOC = 1,    /* size, address; returned */
  TRACE_CALLOC,        /* size, address; returned */
  TRACE_ALIGNED,       /* log2 of the alignment, size, address; returned */
  TRACE_REALLOC,       /* old address, size, address, ns that it took; called */
  TRACE_FREE,          /* address; called */
  TRACE_FREE_SIZED,    /* address, size; called */
  TRACE_NEW,           /* operator new: size, address; returned */
  TRACE_NEW_ALIGNED,   /* log2 of the alignment, size, address; returned */
  TRACE_DELETE,        /* address; called */
  TRACE_DELETE_SIZED,  /* address, size; called */
  TRACE_THREAD_CREATE, /* number of the thread that will be; called */
  TRACE_THREAD_START,  /* of this thread */
  TRACE_THREAD_END,
  TRACE_STACK, /* number of the stack, of frames, return addresses in bytes from the innermost */
  TRACE_KINDS
} trace_kind;

typedef uint32_t trace_unit;

/* The first two units of a record as a number of 64 bits, from its lowest; a short one has the first alone. The others
 * follow in the order of these flags: the call stack's number (one unit), the time, and, if it is wide, size and address,
 * and of REALLOC the old address and the time it took (two each). A REALLOC that isn't wide has two units for these: the
 * old address's step, and the time. Those of STACK are the frames. */
enum {
  TRACE_KIND = 0xf,
  TRACE_HAS_STACK = 1 << 4,
  TRACE_HAS_TIME = 1 << 5, /* it is not that of the record before */
  TRACE_WIDE = 1 << 6,     /* size or addresses don't fit here */
  TRACE_SHORT = 1 << 7,    /* no alignment; the size has 10 bits, from bit 8, the step those above, or all if there is no size */
  TRACE_SHORT_SHIFT = 8,
  TRACE_SHORT_SIZE_BITS = 10,
  TRACE_ALIGN_SHIFT = 8, /* log2, 6 bits */
  TRACE_SIZE_SHIFT = 14, /* 18 bits; of STACK how many frames */
  TRACE_STEP_SHIFT = 32, /* 32 bits, signed: from the address before; of THREAD_CREATE and STACK a number */
  TRACE_SIZE_MOST = (1 << 18) - 1,
};

/* The step of the address 0, from which none is counted; never short. */
#define TRACE_NOWHERE 0x80000000u

/* A record. Addresses are bytes; 0: the call failed or got NULL. */
typedef struct trace_record {
  uint8_t kind;
  uint8_t align_log2;
  uint32_t stack;  /* number from 1; 0: none */
  uint32_t thread; /* THREAD_CREATE */
  uint32_t frames; /* STACK */
  uint64_t time;
  uint64_t size, address, old_address;
  uint64_t took_ns;
  const trace_unit *frame; /* two each: trace_frame */
} trace_record;

/* What the next record of a block is written relative to. A block begins with its time, and 0. */
typedef struct trace_state {
  uint64_t time, address /* divided by 8 */;
} trace_state;

/* ---- Writing ---- */

/* What was written before is there for whoever sees the first unit. */
static inline void trace_put_first(trace_unit *at, uint64_t first) {
  if (!(first & TRACE_SHORT))
    at[1] = (trace_unit)(first >> 32);
  __atomic_store_n(at, (trace_unit)first, __ATOMIC_RELEASE);
}

static inline trace_unit *trace_put_64(trace_unit *at, uint64_t n) {
  __builtin_memcpy(at, &n, sizeof n);
  return at + 2;
}

/* False: it is too far. */
static inline bool trace_put_step(trace_state *s, uint64_t address, uint32_t *step) {
  int64_t d = (int64_t)((address >> 3) - s->address);
  *step = address ? (uint32_t)d : TRACE_NOWHERE;
  if (address && (d != (int32_t)d || *step == TRACE_NOWHERE))
    return false;
  s->address = address ? address >> 3 : s->address;
  return true;
}

/* Where the step of a short record begins. */
static inline unsigned trace_short_step(unsigned kind) {
  bool has_size = kind != TRACE_FREE && kind != TRACE_DELETE;
  return TRACE_SHORT_SHIFT + (has_size ? TRACE_SHORT_SIZE_BITS : 0);
}

/* A record with the time of the one before; first: its kind and alignment. Returns its end; NULL: it takes more. */
static inline trace_unit *trace_put_plain(trace_unit *at, trace_state *s, uint64_t first, uint64_t size, uint64_t address) {
  unsigned shift = trace_short_step(first & TRACE_KIND);
  uint64_t step = (address >> 3) - s->address, most = (1u << (31 - shift)) - 1;
  if (step + most <= 2 * most && address && !(size >> TRACE_SHORT_SIZE_BITS) && !(first >> TRACE_ALIGN_SHIFT)) {
    s->address = address >> 3;
    trace_put_first(at, first | TRACE_SHORT | size << TRACE_SHORT_SHIFT | step << shift);
    return at + 1;
  }
  uint32_t wide_step;
  if (!address || size > TRACE_SIZE_MOST || !trace_put_step(s, address, &wide_step))
    return NULL;
  trace_put_first(at, first | size << TRACE_SIZE_SHIFT | (uint64_t)wide_step << TRACE_STEP_SHIFT);
  return at + 2;
}

/* Size and addresses, into the first units and from `end` on. */
static inline trace_unit *trace_put_call(trace_unit *end, uint64_t *first, trace_state *s, const trace_record *r) {
  bool moves = r->kind == TRACE_REALLOC;
  uint32_t from = 0, to = 0;
  bool fits = r->size <= TRACE_SIZE_MOST && r->took_ns <= UINT32_MAX;
  fits = fits && (!moves || trace_put_step(s, r->old_address, &from)) && trace_put_step(s, r->address, &to);
  if (fits) {
    *first |= r->size << TRACE_SIZE_SHIFT | (uint64_t)to << TRACE_STEP_SHIFT;
    return moves ? trace_put_64(end, from | r->took_ns << 32) : end;
  }
  *first |= TRACE_WIDE;
  end = trace_put_64(end, r->size);
  end = trace_put_64(end, r->address);
  if (moves) {
    end = trace_put_64(end, r->old_address);
    end = trace_put_64(end, r->took_ns);
  }
  if (r->address)
    s->address = r->address >> 3; /* 0 fits, so no step was taken that must be taken back */
  return end;
}

/* Returns the end. A clock that goes back counts as standing. */
static inline trace_unit *trace_put(trace_unit *at, trace_state *s, const trace_record *r) {
  uint64_t passed = r->time > s->time ? r->time - s->time : 0;
  uint64_t first = r->kind | (uint64_t)r->align_log2 << TRACE_ALIGN_SHIFT;
  trace_unit *end = at + 2;
  s->time += passed;
  if (r->stack && r->kind != TRACE_STACK) {
    first |= TRACE_HAS_STACK;
    *end++ = r->stack;
  }
  if (passed) {
    first |= TRACE_HAS_TIME;
    end = trace_put_64(end, passed);
  }
  switch (r->kind) {
  case TRACE_THREAD_CREATE:
    first |= (uint64_t)r->thread << TRACE_STEP_SHIFT;
    break;
  case TRACE_THREAD_START:
  case TRACE_THREAD_END:
    break;
  case TRACE_STACK:
    first |= (uint64_t)r->frames << TRACE_SIZE_SHIFT | (uint64_t)r->stack << TRACE_STEP_SHIFT;
    memcpy(end, r->frame, r->frames * sizeof(uint64_t));
    end += 2 * r->frames;
    break;
  default:
    end = trace_put_call(end, &first, s, r);
  }
  trace_put_first(at, first);
  return end;
}

/* ---- Reading ---- */

static inline uint64_t trace_frame(const trace_record *r, uint32_t i) {
  uint64_t address;
  memcpy(&address, r->frame + 2 * i, sizeof address);
  return address;
}

/* So many units as a number; NULL: there are fewer. */
static inline const trace_unit *trace_get_units(const trace_unit *at, const trace_unit *end, unsigned units, uint64_t *n) {
  *n = 0;
  if (!at || end - at < (ptrdiff_t)units)
    return NULL;
  memcpy(n, at, units * sizeof *at);
  return at + units;
}

static inline uint64_t trace_get_step(trace_state *s, uint32_t step) {
  if (step == TRACE_NOWHERE)
    return 0;
  s->address += (uint64_t)(int64_t)(int32_t)step;
  return s->address << 3;
}

static inline const trace_unit *trace_get_call(const trace_unit *at, const trace_unit *end, uint64_t first, trace_state *s,
                                               trace_record *r) {
  bool moves = r->kind == TRACE_REALLOC;
  uint64_t n;
  if (first & TRACE_WIDE) {
    at = trace_get_units(at, end, 2, &r->size);
    at = trace_get_units(at, end, 2, &r->address);
    if (moves) {
      at = trace_get_units(at, end, 2, &r->old_address);
      at = trace_get_units(at, end, 2, &r->took_ns);
    }
    if (r->address)
      s->address = r->address >> 3;
    return at;
  }
  if (moves) {
    at = trace_get_units(at, end, 2, &n);
    r->old_address = trace_get_step(s, (uint32_t)n);
    r->took_ns = n >> 32;
  }
  r->size = first >> TRACE_SIZE_SHIFT & TRACE_SIZE_MOST;
  r->address = trace_get_step(s, (uint32_t)(first >> TRACE_STEP_SHIFT));
  return at;
}

/* The first units; a short one as if it had two. */
static inline const trace_unit *trace_get_first(const trace_unit *at, const trace_unit *end, uint64_t *first) {
  uint64_t n;
  if (!trace_get_units(at, end, 1, &n) || !(n & TRACE_SHORT))
    return trace_get_units(at, end, 2, first);
  unsigned shift = trace_short_step(n & TRACE_KIND);
  uint64_t size = (n & ((1ull << shift) - 1)) >> TRACE_SHORT_SHIFT;
  uint32_t step = (uint32_t)((int32_t)(uint32_t)n >> shift);
  *first = (n & (TRACE_SHORT - 1)) | size << TRACE_SIZE_SHIFT | (uint64_t)step << TRACE_STEP_SHIFT;
  return at + 1;
}

/* Reads one record between at and end, and returns its end; NULL: there is none whole, or it is not valid. */
static inline const trace_unit *trace_get(const trace_unit *at, const trace_unit *end, trace_state *s, trace_record *r) {
  uint64_t first, n;
  at = trace_get_first(at, end, &first);
  memset(r, 0, sizeof *r);
  r->kind = (uint8_t)(first & TRACE_KIND);
  if (r->kind == TRACE_ALIGNED || r->kind == TRACE_NEW_ALIGNED)
    r->align_log2 = (uint8_t)(first >> TRACE_ALIGN_SHIFT & 63);
  if (!r->kind || r->kind >= TRACE_KINDS)
    return NULL;
  if (first & TRACE_HAS_STACK) {
    at = trace_get_units(at, end, 1, &n);
    r->stack = (uint32_t)n;
  }
  if (first & TRACE_HAS_TIME) {
    at = trace_get_units(at, end, 2, &n);
    s->time += n;
  }
  r->time = s->time;
  switch (r->kind) {
  case TRACE_THREAD_CREATE:
    r->thread = (uint32_t)(first >> TRACE_STEP_SHIFT);
    return at;
  case TRACE_THREAD_START:
  case TRACE_THREAD_END:
    return at;
  case TRACE_STACK:
    r->stack = (uint32_t)(first >> TRACE_STEP_SHIFT);
    r->frames = (uint32_t)(first >> TRACE_SIZE_SHIFT & TRACE_SIZE_MOST);
    r->frame = at;
    return at && r->frames <= TRACE_FRAMES && 2 * r->frames <= (size_t)(end - at) ? at + 2 * r->frames : NULL;
  default:
    return trace_get_call(at, end, first, s, r);
  }
}

#endif
