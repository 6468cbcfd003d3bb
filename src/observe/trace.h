/* trace: the form in which calls are recorded, shared by the recorder, which writes it,
 * and by the programs that read it. docs/trace-format.md describes it field by field.
 *
 * A process writes one spool file of pages of 4 KiB. Page 0 is the trace_process. The
 * others belong to trace_blocks of 1 to 16 pages; a page that belongs to none reads as
 * zero. A block holds records of one thread in the order of its calls and can be read on
 * its own. Numbers are little-endian; those within records are varints (7 bits a byte, the
 * lowest first, the top bit says that more follow), addresses of blocks count units of 8 bytes,
 * those of code in call stacks bytes.
 */
#ifndef MASU_OBSERVE_TRACE_H
#define MASU_OBSERVE_TRACE_H

#include <string.h>

#include "base/atomic.h"

#define TRACE_PROCESS_MAGIC 0x3173736563757361 /* "asucess1" */
#define TRACE_BLOCK_MAGIC 0x316b636f6c627361   /* "asblock1" */

enum {
  TRACE_VERSION = 1,
  TRACE_PAGE = 4096,
  TRACE_BLOCK_PAGES = 16, /* at most */
  TRACE_FRAMES = 48,      /* of a call stack, at most */
  TRACE_RECORD_MOST = 16 + 10 * (TRACE_FRAMES + 2), /* bytes of the longest record */
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

enum { TRACE_OPEN = 1, TRACE_FULL = 2 };

typedef struct trace_block {
  uint64_t magic; /* written last */
  uint32_t page;  /* where it lies in its file */
  uint32_t pages;
  uint32_t thread; /* number within the process, from 0 */
  uint32_t level;  /* 1: records of signal handlers that came in the middle of another, or of a realloc */
  uint64_t time;   /* from which the first record's counts */
  atomic_u32 used; /* bytes of whole records behind this header */
  atomic_u32 state;
  uint64_t reserved[3];
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

enum { TRACE_HAS_STACK = 0x10 }; /* in the first byte, above the kind */

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
  uint64_t frame[TRACE_FRAMES];
} trace_record;

/* What the next record of a block is written relative to. */
typedef struct trace_state {
  uint64_t time, address;
} trace_state;

/* Writes up to three bytes more than it takes: which of one to four it is, is no branch, since
 * it is hard to foresee. */
static inline uint8_t *trace_put_number(uint8_t *at, uint64_t n) {
  if (n < 1u << 28) {
    unsigned more = (unsigned)((n >= 1u << 7) + (n >= 1u << 14) + (n >= 1u << 21));
    uint32_t spread = (uint32_t)((n & 0x7f) | (n & 0x3f80) << 1 | (n & 0x1fc000) << 2 | (n & 0xfe00000) << 3);
    spread |= 0x808080 & ((1u << 8 * more) - 1);
    __builtin_memcpy(at, &spread, sizeof spread); /* one store, also where the compiler may not know memcpy */
    return at + 1 + more;
  }
  for (; n >= 0x80; n >>= 7)
    *at++ = (uint8_t)(n | 0x80);
  *at++ = (uint8_t)n;
  return at;
}

static inline uint8_t *trace_put_near(uint8_t *at, uint64_t *last, uint64_t n) {
  int64_t d = (int64_t)(n - *last);
  *last = n;
  return trace_put_number(at, ((uint64_t)d << 1) ^ (uint64_t)(d >> 63));
}

static inline uint8_t *trace_put_address(uint8_t *at, trace_state *s, uint64_t address) {
  return trace_put_near(at, &s->address, address >> 3);
}

/* The bytes that every record starts with. A clock that goes back counts as standing. */
static inline uint8_t *trace_put_head(uint8_t *at, trace_state *s, trace_kind kind, uint64_t time,
                                      uint32_t stack) {
  uint64_t passed = time > s->time ? time - s->time : 0;
  s->time += passed;
  *at++ = (uint8_t)(kind | (stack ? TRACE_HAS_STACK : 0));
  at = trace_put_number(at, passed);
  return stack ? trace_put_number(at, stack) : at;
}

/* Reads one record between at and end; NULL: there is none whole, or it is not valid. */
static inline const uint8_t *trace_get_number(const uint8_t *at, const uint8_t *end, uint64_t *n) {
  *n = 0;
  for (unsigned shift = 0; at && at < end && shift < 64; shift += 7) {
    *n |= (uint64_t)(*at & 0x7f) << shift;
    if (!(*at++ & 0x80))
      return at;
  }
  return NULL;
}

static inline const uint8_t *trace_get_near(const uint8_t *at, const uint8_t *end, uint64_t *last,
                                            uint64_t *n) {
  uint64_t d;
  at = trace_get_number(at, end, &d);
  *n = *last += (d >> 1) ^ (0 - (d & 1));
  return at;
}

static inline const uint8_t *trace_get_address(const uint8_t *at, const uint8_t *end,
                                               trace_state *s, uint64_t *address) {
  at = trace_get_near(at, end, &s->address, address);
  *address <<= 3;
  return at;
}

static inline const uint8_t *trace_get(const uint8_t *at, const uint8_t *end, trace_state *s,
                                       trace_record *r) {
  uint64_t n = 0;
  if (at >= end || (*at & ~(0xf | TRACE_HAS_STACK)))
    return NULL;
  memset(r, 0, offsetof(trace_record, frame));
  r->kind = (uint8_t)(*at & 0xf);
  bool has_stack = *at++ & TRACE_HAS_STACK;
  at = trace_get_number(at, end, &n);
  r->time = s->time += n;
  if (has_stack) {
    at = trace_get_number(at, end, &n);
    r->stack = (uint32_t)n;
  }
  switch (r->kind) {
  case TRACE_ALIGNED:
  case TRACE_NEW_ALIGNED:
    if (!at || at >= end || *at > 63)
      return NULL;
    r->align_log2 = *at++; /* fallthrough */
  case TRACE_MALLOC:
  case TRACE_CALLOC:
  case TRACE_NEW:
    at = trace_get_number(at, end, &r->size);
    return trace_get_address(at, end, s, &r->address);
  case TRACE_REALLOC:
    at = trace_get_address(at, end, s, &r->old_address);
    at = trace_get_number(at, end, &r->size);
    at = trace_get_address(at, end, s, &r->address);
    return trace_get_number(at, end, &r->took_ns);
  case TRACE_FREE:
  case TRACE_DELETE:
    return trace_get_address(at, end, s, &r->address);
  case TRACE_FREE_SIZED:
  case TRACE_DELETE_SIZED:
    at = trace_get_address(at, end, s, &r->address);
    return trace_get_number(at, end, &r->size);
  case TRACE_THREAD_CREATE:
    at = trace_get_number(at, end, &n);
    r->thread = (uint32_t)n;
    return at;
  case TRACE_THREAD_START:
  case TRACE_THREAD_END:
    return at;
  case TRACE_STACK: {
    uint64_t last = 0;
    at = trace_get_number(at, end, &n);
    r->stack = (uint32_t)n;
    at = trace_get_number(at, end, &n);
    if (!at || n > TRACE_FRAMES)
      return NULL;
    r->frames = (uint32_t)n;
    for (uint32_t i = 0; at && i < r->frames; i++)
      at = trace_get_near(at, end, &last, &r->frame[i]);
    return at;
  }
  default:
    return NULL;
  }
}

#endif
