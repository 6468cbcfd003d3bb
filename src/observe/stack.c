#include "observe/stack.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <ucontext.h>
#include <unwind.h>

#include "observe/unwind.h"
#include "os/os.h"

enum {
  OWN_MOST = 16,        /* frames of masu itself */
  FRAME_MOST = 1 << 20, /* bytes between two frame pointers */
  FRAME_POINTER = 6,    /* the register's number in the tables (x86-64: rbp) */
  COPY_MOST = 256,          /* bytes */
};

/* With the C library's _dl_find_object nobody takes a lock to find the tables. */
#ifdef DLFO_STRUCT_HAS_EH_DBASE
static bool find_object(uintptr_t address, struct dl_find_object *found) {
  return _dl_find_object((void *)address, found) == 0;
}
enum { UNWINDS = true };
#else
struct dl_find_object {
  void *dlfo_map_start, *dlfo_map_end, *dlfo_eh_frame;
};
static bool find_object(uintptr_t address, struct dl_find_object *found) {
  *found = (struct dl_find_object){0};
  return address != 0;
}
enum { UNWINDS = false };
#endif

/* Of one frame: the next instruction, the stack pointer, the frame pointer. */
typedef struct stack_registers {
  uintptr_t ip, sp, bp;
} stack_registers;

#if defined(__x86_64__) && defined(__LP64__)
enum { HAS_RULES = UNWINDS };

static ALWAYS_INLINE stack_registers registers_here(void) {
  stack_registers r;
  __asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
                   : "=&r"(r.ip), "=&r"(r.sp), "=&r"(r.bp));
  return r;
}

static stack_registers registers_of(const ucontext_t *context) {
  const greg_t *all = context->uc_mcontext.gregs;
  return (stack_registers){(uintptr_t)all[REG_RIP], (uintptr_t)all[REG_RSP], (uintptr_t)all[REG_RBP]};
}
#else
enum { HAS_RULES = false };
static stack_registers registers_here(void) { return (stack_registers){0}; }
static stack_registers registers_of(const ucontext_t *context) {
  (void)context;
  return (stack_registers){0};
}
#endif

/* A program or library. stamp: what rules of its code are kept under; 0: none are. */
typedef struct code_object {
  uintptr_t start, end;
  const uint8_t *header; /* .eh_frame_hdr */
  uint64_t stamp;
} code_object;

typedef struct stack_walk {
  uintptr_t *frames;
  size_t count, most;
  size_t own;          /* frames passed over; OWN_MOST: no more are */
  size_t ruled;        /* frames that a rule was looked for */
  stack_registers at;  /* the last frame */
  code_object object;  /* that its code is in, or an earlier one's */
  uintptr_t low, high; /* where words may begin that are read as they are */
  uintptr_t grows_to;  /* up to where more of the same may be found; 0: nowhere */
  uint8_t *copy;       /* of COPY_MOST bytes: what was copied last */
  size_t copy_size;
  uintptr_t copy_of;
} stack_walk;

/* False: that was the last. */
static bool add_frame(stack_walk *t, uintptr_t ip) {
  if (t->count == 0 && t->own < OWN_MOST && os_is_own_code(ip))
    t->own++;
  else if (ip)
    t->frames[t->count++] = ip;
  return ip && t->count < t->most;
}

/* ---- The memory of a stack ---- */

/* A thread's own stack is read as it is, from the stack pointer upwards. That it is there was
 * asked of the system once, from the top down, as far as walks have started: it is not unmapped
 * while the thread lives. Each walk asks for one page, then for twice as many each time. All else
 * may be anything (stacks of coroutines and of signal handlers, what a wrong frame pointer says),
 * and is copied by the system, which finds out.
 *
 * Some threads leave a large part of their stack untouched (Ruby's a MiB), of which each page
 * takes half a microsecond where it is asked for. So where many are not known, a walk asks for
 * those near its start, for itself only, and copies the others, until copies took as long as to
 * ask for all would. A coroutine's stack, of which nothing becomes known, is read likewise. */

enum {
  ASKED_MOST = 512,       /* pages, at once */
  ASKED_FIRST = 16,       /* so many are asked for before any copy was made, */
  ASKED_FOR_A_COPY = 4,   /* and so many more for each; */
  COPIES_FOR_AN_END = 64, /* a walk that came to no end counts as so many */
  NEAR_START = 16,        /* pages: so far from its start a walk asks for itself only */
};
#define OWN_STACK_FAR (64 * MIB) /* so far below what is known it is no longer the same stack */

/* In one word: of static TLS a library that is loaded late gets little. A signal handler may be here meanwhile: what
 * is known then stays true, if it is less. */
enum { PAGES_BITS = 20, COPIES_BITS = 12 };
static __thread struct {
  uint32_t pages : PAGES_BITS;   /* known, from the top down */
  uint32_t copies : COPIES_BITS; /* that this thread's walks have made; so many at most */
} own_stack;

static void note_copies(uint32_t more) {
  own_stack.copies = (uint32_t)min_size(own_stack.copies + more, (1 << COPIES_BITS) - 1) & ((1 << COPIES_BITS) - 1);
}

static bool is_own_stack(const stack_walk *t) { return t->low && !t->grows_to; }

/* Words that begin before the last bytes of what is known lie in it. */
static void read_as_is(stack_walk *t, uintptr_t from, uintptr_t to) {
  t->low = from;
  t->high = to - (sizeof(uintptr_t) - 1);
}

/* May be another stack than the thread's: it is there as long as the thread runs on it. */
static void start_anywhere(stack_walk *t) {
  uintptr_t start = t->at.sp & ~(os_page() - 1);
  read_as_is(t, t->at.sp, start);
  t->grows_to = start + NEAR_START * os_page();
}

static void find_own_stack(stack_walk *t) {
  uintptr_t page = os_page(), top = os_thread_stack(), sp = t->at.sp;
  size_t pages = own_stack.pages;
  uintptr_t low = (top & ~(page - 1)) - pages * page;
  if (sp >= top || low - min_size(low, sp) >= OWN_STACK_FAR)
    return;
  size_t may_ask = ASKED_FIRST + (size_t)ASKED_FOR_A_COPY * own_stack.copies;
  for (size_t n = 1; sp < low && (low - sp) / page <= may_ask; n *= 2) {
    size_t asked = min_size(n, ROUND_UP(low - sp, page) / page);
    if (n > ASKED_MOST || !os_are_readable((void *)(low - asked * page), asked))
      break;
    low -= asked * page;
    pages += asked;
  }
  if (pages > own_stack.pages && pages < 1 << PAGES_BITS)
    own_stack.pages = (uint32_t)pages & ((1 << PAGES_BITS) - 1);
  if (sp >= low)
    read_as_is(t, sp, top);
  else
    start_anywhere(t);
}

static bool grow_until(stack_walk *t, uintptr_t at) {
  uintptr_t end = t->high + (sizeof(uintptr_t) - 1);
  while (at >= t->high && end < t->grows_to && os_are_readable((void *)end, 1))
    read_as_is(t, t->low, end += os_page());
  return at < t->high;
}

/* May be anywhere. */
typedef uintptr_t __attribute__((may_alias, aligned(1))) stack_word;

/* Not only of functions that sanitizers know. */
__attribute__((no_sanitize("address", "thread"))) static inline uintptr_t read_own(uintptr_t at) {
  return *(const stack_word *)at;
}

static NOINLINE bool read_elsewhere(stack_walk *t, uintptr_t at, uintptr_t *word) {
  if (at >= t->low && at < t->grows_to && grow_until(t, at)) {
    *word = read_own(at);
    return true;
  }
  size_t skipped = at - t->copy_of;
  if (at < t->copy_of || skipped > COPY_MOST || skipped + sizeof *word > t->copy_size) {
    size_t page_left = os_page() - at % os_page();
    t->copy_of = at;
    t->copy_size = page_left < sizeof *word ? sizeof *word : min_size(COPY_MOST, page_left);
    skipped = 0;
    note_copies(1);
    if (!os_read_memory((void *)at, t->copy, t->copy_size)) {
      t->copy_size = 0;
      return false;
    }
  }
  *word = *(const stack_word *)(t->copy + skipped);
  return true;
}

static inline bool read_word(stack_walk *t, uintptr_t at, uintptr_t *word) {
  uintptr_t copied;
  if (LIKELY(at >= t->low && at < t->high)) {
    *word = read_own(at);
    return true;
  }
  if (!read_elsewhere(t, at, &copied))
    return false;
  *word = copied; /* so the caller's may be in a register */
  return true;
}

/* ---- Frame pointers ---- */

/* The caller of code without tables. A frame pointer points at the caller's, the return
 * address lies behind. False: this is none. */
static bool follow_frame_pointer(stack_walk *t) {
  stack_registers r = t->at, next;
  if (r.bp < r.sp || r.bp - r.sp >= FRAME_MOST || r.bp % sizeof r.bp != 0 || !read_word(t, r.bp, &next.bp) ||
      !read_word(t, r.bp + sizeof r.bp, &next.ip))
    return false;
  next.sp = r.bp + 2 * sizeof r.bp;
  t->at = next;
  return true;
}

static void follow_frame_pointers(stack_walk *t) {
  while (t->count < t->most && follow_frame_pointer(t) && add_frame(t, t->at.ip))
    ;
}

/* ---- Objects ---- */

/* Rules are kept by address, and after dlclose other code may lie there. What tells it apart is
 * the build id, a hash of the file's contents, which lies in memory beside the ELF header.
 * Each walk asks the C library what is there now, so a rule is used only for the file that it
 * was made from, in the same place. Rules of files without a build id are made each time. */

static uint64_t mixed(uint64_t h, uint64_t n) {
  h = (h ^ n) * 0x9e3779b97f4a7c15;
  return h ^ h >> 32;
}

/* Its last words. */
static uint64_t stamp_of_id(const char *id, size_t size, uintptr_t start) {
  uint64_t first = *(const stack_word *)id, last = *(const stack_word *)(id + size - sizeof last);
  return mixed(mixed(start, first), last) | 1;
}

/* Of the notes at p, which lie before `end`. 0: no build id. */
static uint64_t stamp_of_notes(const char *p, const char *end, uintptr_t start) {
  while ((size_t)(end - p) >= sizeof(ElfW(Nhdr)) + sizeof(uint64_t)) {
    const ElfW(Nhdr) *note = (const void *)p;
    size_t name = ROUND_UP((size_t)note->n_namesz, 4), size = ROUND_UP((size_t)note->n_descsz, 4);
    if (name + size > (size_t)(end - p) - sizeof *note)
      return 0;
    const char *id = p + sizeof *note + name;
    bool is_id = note->n_type == NT_GNU_BUILD_ID && name == 4 && !memcmp(note + 1, "GNU", 4);
    if (is_id && size >= sizeof(uint64_t))
      return stamp_of_id(id, size, start);
    p = id + size;
  }
  return 0;
}

/* 0: what it is can't be told, as the file's first page is not where the mapping starts, or has
 * no build id. */
static uint64_t stamp_of(uintptr_t start, uintptr_t end) {
  const ElfW(Ehdr) *head = (const void *)start;
  const ElfW(Phdr) *part = (const void *)(head + 1);
  const size_t page = os_page();
  if (end - start < page || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_phoff != sizeof *head ||
      head->e_phnum > (page - sizeof *head) / sizeof *part)
    return 0;
  for (const ElfW(Phdr) *after = part + head->e_phnum; part < after; part++) {
    const char *notes = (const char *)start + part->p_offset;
    if (part->p_type != PT_NOTE || part->p_offset >= page || part->p_filesz > page - part->p_offset)
      continue;
    uint64_t stamp = stamp_of_notes(notes, notes + part->p_filesz, start);
    if (stamp)
      return stamp;
  }
  return 0;
}

/* The program, masu and the C library stay as long as masu runs: nobody has to ask again
 * what is there. */
enum { LASTING = 3 };
#define LASTING_STAMP ((uint64_t)1 << 63)
static struct {
  atomic_word start, end, header;
} lasting[LASTING];
static atomic_u32 lasting_known;

/* By several threads at once: all write the same. */
static COLD void find_lasting(void) {
  const uintptr_t inside[LASTING] = {getauxval(AT_PHDR), (uintptr_t)&find_lasting, (uintptr_t)&getauxval};
  for (size_t i = 0; i < LASTING; i++) {
    struct dl_find_object found;
    if (!inside[i] || !find_object(inside[i], &found))
      continue;
    store_relaxed(&lasting[i].header, (uintptr_t)found.dlfo_eh_frame);
    store_relaxed(&lasting[i].end, (uintptr_t)found.dlfo_map_end);
    store_relaxed(&lasting[i].start, (uintptr_t)found.dlfo_map_start);
  }
  store_release(&lasting_known, 1);
}

static bool is_lasting(uintptr_t address, code_object *o) {
  if (UNLIKELY(!load_acquire(&lasting_known)))
    find_lasting();
  for (size_t i = 0; i < LASTING; i++) {
    uintptr_t start = load_relaxed(&lasting[i].start), end = load_relaxed(&lasting[i].end);
    if (address - start < end - start) {
      *o = (code_object){start, end, (const uint8_t *)load_relaxed(&lasting[i].header), LASTING_STAMP};
      return true;
    }
  }
  return false;
}

static inline bool is_in(const code_object *o, uintptr_t address) {
  return address - o->start < o->end - o->start;
}

/* What is on the stack is not unloaded, so within a walk an object stays what it is. */
static NOINLINE bool object_of(code_object *o, uintptr_t address) {
  struct dl_find_object found;
  if (is_lasting(address, o))
    return true;
  if (!find_object(address, &found))
    return false;
  *o = (code_object){(uintptr_t)found.dlfo_map_start, (uintptr_t)found.dlfo_map_end, found.dlfo_eh_frame, 0};
  if (o->header)
    o->stamp = stamp_of(o->start, o->end);
  return true;
}

/* ---- Rules ---- */

/* Each is in one of the places of its set, which is a line of the cache and goes by its key; where all are taken it
 * replaces another. Both words are written and read one by one, without a lock, also by signal handlers: what does not
 * belong together does not give the key. The table doubles when half as many were made as it has places. */
enum { RULES_LEAST = 1 << 9, RULES_MOST = 1 << 14, RULES_SET = 4 };
typedef struct kept_rule {
  atomic_u64 check; /* check_of its rule and key; never that of nothing, whose key would be 0 */
  atomic_u64 rule;
} kept_rule;
static SELDOM __attribute__((aligned(RULES_SET * sizeof(kept_rule)))) kept_rule kept_rules[RULES_MOST];
static atomic_u32 rules_mask; /* the places in use less a set; none yet: 0 */
static atomic_u32 rules_made;

/* Its own inverse: of a rule and its check it is the key. */
static inline uint64_t check_of(uint64_t rule, uint64_t key) { return rule * 0x9e3779b97f4a7c15 ^ key; }

/* Near addresses, far below the stamp's bits, are to lie apart. */
static inline kept_rule *rule_set(uint64_t key) {
  return &kept_rules[(key ^ key >> 32) * 0x9e3779b97f4a7c15 >> 40 & load_relaxed(&rules_mask)];
}

typedef union rule_word {
  unwind_rule rule;
  uint64_t word;
} rule_word;
_Static_assert(sizeof(rule_word) == sizeof(uint64_t), "a rule is one word");

static void put_rule(kept_rule *place, uint64_t check, uint64_t rule) {
  store_relaxed(&place->rule, rule);
  store_relaxed(&place->check, check);
}

/* Rules whose set lies in what was added. Who looks for one meanwhile makes it again. */
static void rules_move(kept_rule *end) {
  for (kept_rule *from = kept_rules; from < end; from++) {
    uint64_t check = load_relaxed(&from->check), rule = load_relaxed(&from->rule);
    kept_rule *set = rule_set(check_of(rule, check));
    if (!check || set < end)
      continue;
    put_rule(&set[(from - kept_rules) % RULES_SET], check, rule);
    put_rule(from, 0, 0);
  }
}

/* By several threads at once: one of them. Made resident, since else each page would be two faults: a place
 * is read before it is written. */
static void rules_grow(void) {
  uint32_t mask = load_relaxed(&rules_mask), begin = mask ? mask + RULES_SET : 0;
  uint32_t room = mask ? 2 * begin : RULES_LEAST;
  os_populate(&kept_rules[begin], (room - begin) * sizeof *kept_rules);
  if (cas_acq_rel(&rules_mask, &mask, room - RULES_SET))
    rules_move(&kept_rules[begin]);
}

static void keep_rule(uint64_t key, uint64_t rule) {
  uint32_t mask = load_relaxed(&rules_mask), made = add_relaxed(&rules_made, 1);
  if (UNLIKELY(made >= mask / 2) && mask < RULES_MOST - RULES_SET)
    rules_grow();
  kept_rule *set = rule_set(key), *place = &set[made % RULES_SET];
  for (size_t i = 0; i < RULES_SET; i++)
    if (!load_relaxed(&set[i].check))
      place = &set[i];
  put_rule(place, check_of(rule, key), rule);
}

internal uint32_t stack_rules_made(void) { return load_relaxed(&rules_made); }

static NOINLINE unwind_rule make_rule(const code_object *o, uintptr_t ip, bool exact, uint64_t key) {
  const unwind_object tables = {(const uint8_t *)o->start, (const uint8_t *)o->end, o->header};
  rule_word r = {.rule = unwind_rule_of(&tables, ip, exact)};
  if (o->stamp)
    keep_rule(key, r.word);
  return r.rule;
}

/* A walk that comes seldom finds none of its sets in a cache, one after the other, as each rule says where the
 * next one is. But most are those of the walk before, whoever's that was, and these are fetched all at once. */
static struct {
  atomic_u16 set[STACK_MOST];
  atomic_u32 count;
} last_walk;

/* Writes where something changes: threads that walk the same way share the line. */
static inline void note_set(size_t number, uint16_t set) {
  atomic_u16 *last = &last_walk.set[number % STACK_MOST];
  if (load_relaxed(last) != set)
    store_relaxed(last, set);
}

/* number: of the frame, in its walk. */
static inline unwind_rule rule_at(const code_object *o, uintptr_t ip, uintptr_t exact, size_t number) {
  uint64_t key = (2 * ip + exact) ^ o->stamp;
  const kept_rule *set = rule_set(key);
  note_set(number, (uint16_t)(set - kept_rules));
  for (size_t i = 0; i < RULES_SET; i++) {
    rule_word r = {.word = load_relaxed(&set[i].rule)};
    if (LIKELY(load_relaxed(&set[i].check) == check_of(r.word, key)))
      return r.rule;
  }
  return make_rule(o, ip, exact, key);
}

/* ---- The walk by rules ---- */

/* False: what the rule says can't be read. */
static ALWAYS_INLINE bool to_caller(stack_walk *t, unwind_rule rule, stack_registers *at) {
  stack_registers r = *at;
  uintptr_t from = rule.kind & UNWIND_BY_RBP ? r.bp : r.sp;
  uintptr_t cfa = from + (uintptr_t)(intptr_t)rule.cfa, ip_at = cfa - sizeof cfa;
  if (UNLIKELY(rule.kind >= UNWIND_AT_RSP)) {
    uintptr_t behind = cfa + sizeof cfa;
    if (!read_word(t, cfa, &cfa))
      return false;
    ip_at = rule.kind == UNWIND_SIGNAL ? behind : cfa - sizeof cfa;
  }
  if (rule.saved != UNWIND_SAME) {
    from = LIKELY(rule.saved == UNWIND_FROM_CFA) ? cfa : rule.saved == UNWIND_FROM_RSP ? r.sp : r.bp;
    if (!read_word(t, from + (uintptr_t)(intptr_t)rule.rbp, &at->bp))
      at->bp = 0; /* at some returns the tables are wrong about it; perhaps nobody asks */
  }
  at->sp = cfa;
  return read_word(t, ip_at, &at->ip) && cfa != r.sp;
}

/* From t->at, which is added. exact: 1 if its ip is that of the next instruction and no return
 * address, else 0; it is added as if it were one. False: there is a caller that no rule leads to,
 * or on another stack what it says could not be read. */
static bool walk_rule_by_rule(stack_walk *t, uintptr_t exact) {
  stack_registers at = t->at;
  for (bool is_own = true; at.ip;) {
    is_own = is_own && t->own < OWN_MOST && os_is_own_code(at.ip);
    if (is_own) {
      t->own++;
    } else {
      t->frames[t->count++] = at.ip + exact;
      if (t->count == t->most)
        return true;
    }
    uintptr_t inside = at.ip - 1 + exact;
    if (UNLIKELY(!is_in(&t->object, inside)) && !object_of(&t->object, inside)) {
      t->at = at; /* compiled at run time */
      if (!follow_frame_pointer(t))
        return true;
      at = t->at;
      exact = 0;
      continue;
    }
    unwind_rule rule = rule_at(&t->object, at.ip, exact, t->ruled++);
    if (UNLIKELY(rule.kind <= UNWIND_END))
      return rule.kind == UNWIND_END;
    if (!to_caller(t, rule, &at))
      return is_own_stack(t);
    exact = rule.kind == UNWIND_SIGNAL;
  }
  return true;
}

static bool walk_by_rules(stack_walk *t, uintptr_t exact) {
  size_t count = load_relaxed(&last_walk.count);
  for (size_t i = 0; i < count; i++)
    __builtin_prefetch(&kept_rules[load_relaxed(&last_walk.set[i])]);
  bool complete = walk_rule_by_rule(t, exact);
  if (!complete)
    note_copies(COPIES_FOR_AN_END);
  store_relaxed(&last_walk.count, (uint32_t)min_size(t->ruled, STACK_MOST));
  return complete;
}

/* ---- The walk of the compiler's runtime ---- */

static _Unwind_Reason_Code see_frame(struct _Unwind_Context *context, void *any) {
  stack_walk *t = any;
  uintptr_t sp = _Unwind_GetCFA(context);
  bool moves = sp != t->at.sp || t->own <= 1;
  t->at = (stack_registers){_Unwind_GetIP(context), sp, _Unwind_GetGR(context, FRAME_POINTER)};
  return add_frame(t, t->at.ip) && moves ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* It reads memory as it is, wherever the tables lead. On the thread's own stack they end; other stacks
 * may have nothing behind them, so there it walks only if nothing can be copied, in some sandboxes. */
static bool is_for_runtime(const stack_walk *t) { return is_own_stack(t) || !os_reads_memory(); }

static NOINLINE void walk_by_runtime(stack_walk *t) {
  struct dl_find_object found;
  if (UNWINDS)
    _Unwind_Backtrace(see_frame, t);
  else
    t->at.sp = t->at.bp = (uintptr_t)__builtin_frame_address(0);
  if (!UNWINDS || (t->at.ip && !find_object(t->at.ip - 1, &found)))
    follow_frame_pointers(t);
}

/* ---- Stacks ---- */

internal NOINLINE size_t stack_capture(uintptr_t *frames, size_t most) {
  uint8_t copy[COPY_MOST];
  const stack_walk none = {.frames = frames, .most = most, .copy = copy};
  stack_walk t = none;
  t.at = registers_here();
  if (HAS_RULES)
    find_own_stack(&t);
  if (!HAS_RULES || (!walk_by_rules(&t, 1) && is_for_runtime(&t))) {
    t = none;
    walk_by_runtime(&t);
  }
  return t.count;
}

internal size_t stack_capture_from(const void *context, uintptr_t *frames, size_t most) {
  uint8_t copy[COPY_MOST];
  stack_walk t = {.frames = frames, .most = most, .copy = copy, .own = OWN_MOST};
  t.at = registers_of(context);
  if (!t.at.ip || !most)
    return 0;
  find_own_stack(&t);
  if (HAS_RULES)
    walk_by_rules(&t, 1);
  else if (add_frame(&t, t.at.ip + 1))
    follow_frame_pointers(&t);
  return t.count;
}

internal uint64_t stack_hash(const uintptr_t *frames, size_t count) {
  uint64_t h = count;
  for (size_t i = 0; i < count; i++)
    h = (h ^ frames[i]) * 0x9e3779b97f4a7c15, h ^= h >> 29;
  return h ? h : 1;
}
