#include "observe/unwind.h"

/* ---- Reading ---- */

/* A part of the tables; what is read beyond it is 0, and makes it bad. */
typedef struct cfi_cursor {
  const uint8_t *at, *end;
  bool bad;
} cfi_cursor;

typedef uint16_t __attribute__((may_alias, aligned(1))) any_u16;
typedef uint32_t __attribute__((may_alias, aligned(1))) any_u32;
typedef uint64_t __attribute__((may_alias, aligned(1))) any_u64;

static uint64_t read_fixed(cfi_cursor *c, size_t size) {
  const uint8_t *at = c->at;
  if ((size_t)(c->end - at) < size) {
    c->at = c->end;
    c->bad = true;
    return 0;
  }
  c->at += size;
  switch (size) {
  case 1: return *at;
  case 2: return *(const any_u16 *)at;
  case 4: return *(const any_u32 *)at;
  default: return *(const any_u64 *)at;
  }
}

static uint8_t read_byte(cfi_cursor *c) { return (uint8_t)read_fixed(c, 1); }

/* LEB128: seven bits in each byte, the lowest first. What does not fit is dropped. */
static uint64_t read_leb(cfi_cursor *c, bool is_signed) {
  uint64_t n = 0;
  unsigned shift = 0;
  uint8_t byte;
  do {
    byte = read_byte(c);
    if (shift < 64)
      n |= (uint64_t)(byte & 0x7f) << shift;
    shift += 7;
  } while (byte & 0x80);
  if (is_signed && (byte & 0x40) && shift < 64)
    n |= ~(uint64_t)0 << shift;
  return n;
}

static uint64_t read_unsigned(cfi_cursor *c) { return read_leb(c, false); }
static int64_t read_signed(cfi_cursor *c) { return (int64_t)read_leb(c, true); }

/* A block with its size before it. */
static cfi_cursor read_block(cfi_cursor *c) {
  uint64_t size = read_unsigned(c);
  cfi_cursor inside = {c->at, c->at, c->bad};
  if (size > (size_t)(c->end - c->at))
    inside.bad = c->bad = true;
  else
    c->at = inside.end = c->at + size;
  return inside;
}

/* How addresses are written: a format and what they are relative to. */
enum {
  FORMAT_POINTER = 0, FORMAT_U2 = 2, FORMAT_U4 = 3, FORMAT_U8 = 4,
  FORMAT_S2 = 10, FORMAT_S4 = 11, FORMAT_S8 = 12, FORMAT_MASK = 0x0f,
  RELATIVE_TO_ITSELF = 0x10, RELATIVE_TO_HEADER = 0x30,
};

static uint64_t read_address(cfi_cursor *c, uint8_t form) {
  uint64_t base = (form & ~FORMAT_MASK) == RELATIVE_TO_ITSELF ? (uintptr_t)c->at : 0;
  if (form & ~FORMAT_MASK && !base)
    c->bad = true;
  switch (form & FORMAT_MASK) {
  case FORMAT_U2: return base + read_fixed(c, 2);
  case FORMAT_S2: return base + (uint64_t)(int16_t)read_fixed(c, 2);
  case FORMAT_U4: return base + read_fixed(c, 4);
  case FORMAT_S4: return base + (uint64_t)(int32_t)read_fixed(c, 4);
  case FORMAT_POINTER:
  case FORMAT_U8:
  case FORMAT_S8: return base + read_fixed(c, 8);
  default: c->bad = true; return 0;
  }
}

/* ---- Expressions ---- */

/* What comes down to a register and a number, or to what lies in memory there. */
typedef struct cfi_value {
  enum { BASE_NONE, BASE_CFA, BASE_RSP, BASE_RBP } base;
  bool loaded;
  int64_t n;
} cfi_value;

enum { REGISTER_RBP = 6, REGISTER_RSP = 7, REGISTER_RIP = 16 };

static bool value_of_register(uint64_t number, int64_t n, uintptr_t pc, cfi_value *v) {
  *v = (cfi_value){BASE_NONE, false, n};
  if (number == REGISTER_RIP)
    v->n = (int64_t)((uint64_t)n + pc);
  else if (number == REGISTER_RSP || number == REGISTER_RBP)
    v->base = number == REGISTER_RSP ? BASE_RSP : BASE_RBP;
  else
    return false;
  return true;
}

enum { OP_DEREF = 0x06, OP_AND = 0x1a, OP_PLUS = 0x22, OP_SHL = 0x24, OP_GE = 0x2a,
       OP_LIT = 0x30, OP_LIT_LAST = 0x4f, OP_BREG = 0x70, OP_BREG_LAST = 0x8f };

/* Makes one value of two. */
static bool combine_values(uint8_t op, cfi_value *a, const cfi_value *b) {
  bool numbers = !a->base && !b->base;
  uint64_t shift = (uint64_t)b->n;
  switch (op) {
  case OP_AND: a->n &= b->n; return numbers;
  case OP_GE: a->n = a->n >= b->n; return numbers;
  case OP_SHL: a->n = shift < 64 ? (int64_t)((uint64_t)a->n << shift) : 0; return numbers;
  case OP_PLUS: a->n = (int64_t)((uint64_t)a->n + (uint64_t)b->n); return !b->base && !a->loaded;
  default: return false;
  }
}

enum { VALUES_MOST = 8 };

typedef struct cfi_values {
  cfi_value v[VALUES_MOST];
  size_t count;
} cfi_values;

static bool run_operation(cfi_values *s, uint8_t op, cfi_cursor *c, uintptr_t pc) {
  cfi_value *next = &s->v[s->count];
  bool literal = op >= OP_LIT && op <= OP_LIT_LAST, of_register = op >= OP_BREG && op <= OP_BREG_LAST;
  if (literal || of_register) {
    if (s->count++ == VALUES_MOST)
      return false;
    *next = (cfi_value){BASE_NONE, false, op - OP_LIT};
    return literal || value_of_register(op - OP_BREG, read_signed(c), pc, next);
  }
  if (op == OP_DEREF) {
    if (!s->count || !next[-1].base || next[-1].loaded)
      return false;
    next[-1].loaded = true;
    return true;
  }
  return s->count >= 2 && combine_values(op, &next[-2], &next[-1]) && s->count--;
}

/* v: what there is before, if it has a base, and the result. False: it comes down to something
 * else. */
static bool evaluate_expression(cfi_cursor c, uintptr_t pc, cfi_value *v) {
  cfi_values s = {.v = {*v}, .count = v->base != BASE_NONE};
  while (c.at < c.end)
    if (!run_operation(&s, read_byte(&c), &c, pc))
      return false;
  if (c.bad || !s.count)
    return false;
  *v = s.v[s.count - 1];
  return true;
}

/* ---- Call frame instructions ---- */

/* Where a register of the caller is. */
typedef struct cfi_place {
  enum { PLACE_SAME, PLACE_UNDEFINED, PLACE_AT_CFA, PLACE_AT_EXPRESSION, PLACE_OTHER } how;
  union {
    int64_t n;           /* PLACE_AT_CFA: bytes from there */
    const uint8_t *code; /* PLACE_AT_EXPRESSION: a block */
  };
} cfi_place;

enum { SLOT_RBP, SLOT_RSP, SLOT_RIP, SLOT_OTHER, SLOTS }; /* SLOT_OTHER: written, never read */

typedef struct cfi_row {
  const uint8_t *cfa_code; /* a block, or NULL: cfa_register + cfa_offset */
  uint64_t cfa_register;
  int64_t cfa_offset;
  cfi_place slot[SLOTS];
} cfi_row;

enum { ROWS_MOST = 8 };

typedef struct cfi_machine {
  const uint8_t *end; /* of the object */
  uintptr_t at;       /* the address that the row is for */
  uint64_t code_unit;
  int64_t data_unit;
  uint8_t address_form;
  bool augmented, is_signal;
  cfi_row now, initial, kept[ROWS_MOST];
  unsigned kept_count;
} cfi_machine;

enum {
  CFI_ADVANCE = 0x40, CFI_OFFSET = 0x80, CFI_RESTORE = 0xc0, CFI_HIGH = 0xc0, CFI_LOW = 0x3f,
  CFI_NOP = 0, CFI_SET_LOCATION, CFI_ADVANCE1, CFI_ADVANCE2, CFI_ADVANCE4, CFI_OFFSET_EXTENDED,
  CFI_RESTORE_EXTENDED, CFI_UNDEFINED, CFI_SAME, CFI_REGISTER, CFI_REMEMBER, CFI_RESTORE_STATE,
  CFI_CFA, CFI_CFA_REGISTER, CFI_CFA_OFFSET, CFI_CFA_EXPRESSION, CFI_EXPRESSION, CFI_OFFSET_SIGNED,
  CFI_CFA_SIGNED, CFI_CFA_OFFSET_SIGNED, CFI_VALUE, CFI_VALUE_SIGNED, CFI_VALUE_EXPRESSION,
  CFI_ARGUMENTS_SIZE = 0x2e, CFI_OFFSET_NEGATIVE = 0x2f,
};

static int64_t scaled(uint64_t n, int64_t unit) { return (int64_t)(n * (uint64_t)unit); }

static cfi_place *slot_of(cfi_row *r, uint64_t number) {
  return &r->slot[number == REGISTER_RBP   ? SLOT_RBP
                  : number == REGISTER_RSP ? SLOT_RSP
                  : number == REGISTER_RIP ? SLOT_RIP
                                           : SLOT_OTHER];
}

static void put_place(cfi_machine *m, uint64_t number, cfi_place p) { *slot_of(&m->now, number) = p; }

static void put_at_cfa(cfi_machine *m, uint64_t number, uint64_t n, int64_t unit) {
  put_place(m, number, (cfi_place){.how = PLACE_AT_CFA, .n = scaled(n, unit)});
}

static const uint8_t *skip_block(cfi_cursor *c) {
  const uint8_t *start = c->at;
  read_block(c);
  return start;
}

static void put_at_expression(cfi_machine *m, uint64_t number, cfi_cursor *c) {
  put_place(m, number, (cfi_place){.how = PLACE_AT_EXPRESSION, .code = skip_block(c)});
}

static void restore_place(cfi_machine *m, uint64_t number) {
  put_place(m, number, *slot_of(&m->initial, number));
}

static void set_cfa(cfi_machine *m, uint64_t number, int64_t offset) {
  m->now.cfa_code = NULL;
  m->now.cfa_register = number;
  m->now.cfa_offset = offset;
}

static bool keep_row(cfi_machine *m) {
  if (m->kept_count == ROWS_MOST)
    return false;
  m->kept[m->kept_count++] = m->now;
  return true;
}

static bool take_row_back(cfi_machine *m) {
  if (!m->kept_count)
    return false;
  m->now = m->kept[--m->kept_count];
  return true;
}

static void advance_by(cfi_machine *m, uint64_t units) { m->at += units * m->code_unit; }

/* Those without a number in their lowest bits. False: not known. */
static bool run_instruction(cfi_machine *m, uint8_t op, cfi_cursor *c) {
  uint64_t r;
  switch (op) {
  case CFI_NOP: return true;
  case CFI_SET_LOCATION: m->at = read_address(c, m->address_form); return true;
  case CFI_ADVANCE1: advance_by(m, read_fixed(c, 1)); return true;
  case CFI_ADVANCE2: advance_by(m, read_fixed(c, 2)); return true;
  case CFI_ADVANCE4: advance_by(m, read_fixed(c, 4)); return true;
  case CFI_REMEMBER: return keep_row(m);
  case CFI_RESTORE_STATE: return take_row_back(m);
  case CFI_CFA_REGISTER: m->now.cfa_register = read_unsigned(c); return !m->now.cfa_code;
  case CFI_CFA_OFFSET: m->now.cfa_offset = (int64_t)read_unsigned(c); return !m->now.cfa_code;
  case CFI_CFA_OFFSET_SIGNED:
    m->now.cfa_offset = scaled((uint64_t)read_signed(c), m->data_unit);
    return !m->now.cfa_code;
  case CFI_CFA_EXPRESSION: m->now.cfa_code = skip_block(c); return true;
  case CFI_ARGUMENTS_SIZE: read_unsigned(c); return true;
  default: r = read_unsigned(c); break;
  }
  switch (op) {
  case CFI_OFFSET_EXTENDED: put_at_cfa(m, r, read_unsigned(c), m->data_unit); return true;
  case CFI_OFFSET_SIGNED: put_at_cfa(m, r, (uint64_t)read_signed(c), m->data_unit); return true;
  case CFI_OFFSET_NEGATIVE: put_at_cfa(m, r, 0 - read_unsigned(c), m->data_unit); return true;
  case CFI_RESTORE_EXTENDED: restore_place(m, r); return true;
  case CFI_UNDEFINED: put_place(m, r, (cfi_place){.how = PLACE_UNDEFINED}); return true;
  case CFI_SAME: put_place(m, r, (cfi_place){.how = PLACE_SAME}); return true;
  case CFI_CFA: set_cfa(m, r, (int64_t)read_unsigned(c)); return true;
  case CFI_CFA_SIGNED: set_cfa(m, r, scaled((uint64_t)read_signed(c), m->data_unit)); return true;
  case CFI_EXPRESSION: put_at_expression(m, r, c); return true;
  case CFI_REGISTER:
  case CFI_VALUE:
  case CFI_VALUE_SIGNED: read_leb(c, false); put_place(m, r, (cfi_place){.how = PLACE_OTHER}); return true;
  case CFI_VALUE_EXPRESSION: skip_block(c); put_place(m, r, (cfi_place){.how = PLACE_OTHER}); return true;
  default: return false;
  }
}

/* As far as it is about the instruction at `last`. False: not understood. */
static bool run_instructions(cfi_machine *m, cfi_cursor c, uintptr_t last) {
  while (c.at < c.end && m->at <= last) {
    uint8_t op = read_byte(&c), low = op & CFI_LOW;
    switch (op & CFI_HIGH) {
    case CFI_ADVANCE: advance_by(m, low); break;
    case CFI_OFFSET: put_at_cfa(m, low, read_unsigned(&c), m->data_unit); break;
    case CFI_RESTORE: restore_place(m, low); break;
    default:
      if (!run_instruction(m, op, &c))
        return false;
    }
  }
  return !c.bad;
}

/* ---- Entries ---- */

/* The entry at `at`, from behind its length on. Those of 4 GiB and more have another form,
 * which nobody writes. */
static cfi_cursor entry_at(const unwind_object *o, const uint8_t *at) {
  cfi_cursor c = {at, o->end, at < o->start || at >= o->end};
  if (c.bad)
    return (cfi_cursor){o->end, o->end, true};
  uint64_t length = read_fixed(&c, 4);
  if (length == 0 || length > (size_t)(c.end - c.at))
    c.bad = true;
  else
    c.end = c.at + length;
  return c;
}

/* What an augmentation says, letter by letter. The data of letters that are not known can
 * be passed over, their number is given. */
static void read_augmentation(cfi_machine *m, const uint8_t *letter, cfi_cursor data) {
  for (; *letter; letter++) {
    if (*letter == 'R')
      m->address_form = read_byte(&data);
    else if (*letter == 'S')
      m->is_signal = true;
    else if (*letter == 'L')
      read_byte(&data);
    else if (*letter == 'P')
      read_address(&data, read_byte(&data) & FORMAT_MASK);
    else
      return;
  }
}

/* What functions have in common; runs their first instructions. */
static bool run_common(cfi_machine *m, const unwind_object *o, const uint8_t *at) {
  cfi_cursor c = entry_at(o, at);
  uint64_t identifier = read_fixed(&c, 4);
  uint8_t version = read_byte(&c);
  const uint8_t *letters = c.at;
  while (read_byte(&c))
    ;
  m->code_unit = read_unsigned(&c);
  m->data_unit = read_signed(&c);
  uint64_t return_register = version == 1 ? read_byte(&c) : read_unsigned(&c);
  if (c.bad || identifier != 0 || (version != 1 && version != 3) || return_register != REGISTER_RIP)
    return false;
  m->augmented = *letters == 'z';
  if (m->augmented)
    read_augmentation(m, letters + 1, read_block(&c));
  else if (*letters)
    return false;
  if (!run_instructions(m, c, UINTPTR_MAX))
    return false;
  m->initial = m->now;
  return true;
}

typedef enum entry_found { FOUND, FOUND_NOTHING, FOUND_NONSENSE } entry_found;

static entry_found run_entry(cfi_machine *m, const unwind_object *o, const uint8_t *at, uintptr_t last) {
  cfi_cursor c = entry_at(o, at);
  const uint8_t *here = c.at;
  uint64_t back = read_fixed(&c, 4);
  if (c.bad || back > (size_t)(here - o->start) || !run_common(m, o, here - back))
    return FOUND_NONSENSE;
  uintptr_t start = read_address(&c, m->address_form), size = read_address(&c, m->address_form & FORMAT_MASK);
  if (m->augmented)
    read_block(&c);
  if (c.bad)
    return FOUND_NONSENSE;
  if (last - start >= size)
    return FOUND_NOTHING;
  m->at = start;
  return run_instructions(m, c, last) ? FOUND : FOUND_NONSENSE;
}

/* ---- The search table ---- */

/* A row: the start of a function and its entry, in four bytes each, from the header on. */
enum { TABLE_VERSION = 1, TABLE_ENCODING = RELATIVE_TO_HEADER | FORMAT_S4, TABLE_ROW = 8 };

static int64_t table_number(const uint8_t *at) { return (int32_t)*(const any_u32 *)at; }

/* The entry of the function that starts last at or before the address. */
static entry_found find_entry(const unwind_object *o, uintptr_t address, const uint8_t **entry) {
  cfi_cursor c = {o->header, o->end, o->header < o->start || o->header > o->end};
  if (c.bad)
    return FOUND_NONSENSE;
  uint8_t version = read_byte(&c), frames = read_byte(&c), counts = read_byte(&c), table = read_byte(&c);
  read_address(&c, frames);
  uint64_t count = read_fixed(&c, 4);
  if (c.bad || version != TABLE_VERSION || counts != FORMAT_U4 || table != TABLE_ENCODING ||
      count > (size_t)(c.end - c.at) / TABLE_ROW)
    return FOUND_NONSENSE;
  int64_t wanted = (int64_t)(address - (uintptr_t)o->header);
  if (count == 0 || table_number(c.at) > wanted)
    return FOUND_NOTHING;
  size_t low = 0, high = count;
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    __builtin_prefetch(c.at + (low + middle) / 2 * TABLE_ROW); /* the next step's, either way */
    __builtin_prefetch(c.at + (middle + high) / 2 * TABLE_ROW);
    if (table_number(c.at + middle * TABLE_ROW) <= wanted)
      low = middle;
    else
      high = middle;
  }
  int64_t offset = table_number(c.at + low * TABLE_ROW + 4);
  if (offset < o->start - o->header || offset >= o->end - o->header)
    return FOUND_NONSENSE;
  *entry = o->header + offset;
  return FOUND;
}

/* ---- Rules ---- */

static cfi_cursor code_block(const cfi_machine *m, const uint8_t *at) {
  cfi_cursor c = {at, m->end, false};
  return read_block(&c);
}

static bool cfa_of(const cfi_machine *m, uintptr_t pc, cfi_value *v) {
  const cfi_row *r = &m->now;
  *v = (cfi_value){0};
  return r->cfa_code ? evaluate_expression(code_block(m, r->cfa_code), pc, v)
                     : value_of_register(r->cfa_register, r->cfa_offset, pc, v);
}

/* The address where a register lies. */
static bool address_of(const cfi_machine *m, const cfi_place *p, uintptr_t pc, cfi_value *v) {
  *v = (cfi_value){BASE_CFA, false, 0};
  if (p->how == PLACE_AT_CFA)
    v->n = p->n;
  else if (p->how != PLACE_AT_EXPRESSION || !evaluate_expression(code_block(m, p->code), pc, v))
    return false;
  return v->base && !v->loaded;
}

static bool is_at(const cfi_machine *m, unsigned slot, uintptr_t pc, int base, int64_t n) {
  cfi_value v;
  return address_of(m, &m->now.slot[slot], pc, &v) && (int)v.base == base && v.n == n;
}

static bool saved_of(const cfi_machine *m, uintptr_t pc, unwind_rule *rule) {
  static const uint8_t from[] = {
      [BASE_CFA] = UNWIND_FROM_CFA, [BASE_RSP] = UNWIND_FROM_RSP, [BASE_RBP] = UNWIND_FROM_RBP};
  const cfi_place *p = &m->now.slot[SLOT_RBP];
  cfi_value v;
  rule->saved = UNWIND_SAME;
  if (p->how == PLACE_SAME || p->how == PLACE_UNDEFINED)
    return true;
  if (!address_of(m, p, pc, &v) || v.n != (int16_t)v.n)
    return false;
  rule->saved = from[v.base];
  rule->rbp = (int16_t)v.n;
  return true;
}

/* The kernel's frame of a handler: all registers lie in it, rip behind rsp. */
static bool is_signal_frame(const cfi_machine *m, uintptr_t pc, const cfi_value *cfa) {
  return m->is_signal && cfa->base == BASE_RSP && cfa->loaded && is_at(m, SLOT_RSP, pc, BASE_RSP, cfa->n) &&
         is_at(m, SLOT_RIP, pc, BASE_RSP, cfa->n + 8);
}

static unwind_rule rule_of(const cfi_machine *m, uintptr_t pc) {
  const unwind_rule other = {.kind = UNWIND_OTHER};
  unwind_rule rule = other;
  cfi_value cfa;
  if (m->now.slot[SLOT_RIP].how == PLACE_UNDEFINED)
    return (unwind_rule){.kind = UNWIND_END};
  if (!cfa_of(m, pc, &cfa) || !cfa.base || cfa.n != (int32_t)cfa.n || !saved_of(m, pc, &rule))
    return other;
  if (m->is_signal)
    rule.kind = is_signal_frame(m, pc, &cfa) ? UNWIND_SIGNAL : UNWIND_OTHER;
  else if (m->now.slot[SLOT_RSP].how == PLACE_SAME && is_at(m, SLOT_RIP, pc, BASE_CFA, -8))
    rule.kind = cfa.base == BASE_RSP ? (cfa.loaded ? UNWIND_AT_RSP : UNWIND_RSP)
                                     : (cfa.loaded ? UNWIND_AT_RBP : UNWIND_RBP);
  rule.cfa = (int32_t)cfa.n;
  return rule.kind == UNWIND_OTHER ? other : rule;
}

internal unwind_rule unwind_rule_of(const unwind_object *o, uintptr_t pc, bool exact) {
  cfi_machine m = {.end = o->end, .address_form = FORMAT_POINTER, .now = {.cfa_register = UINT64_MAX}};
  const uint8_t *entry = NULL;
  uintptr_t last = pc - !exact;
  entry_found f = o->header ? find_entry(o, last, &entry) : FOUND_NOTHING;
  if (f == FOUND)
    f = run_entry(&m, o, entry, last);
  return f == FOUND ? rule_of(&m, pc) : (unwind_rule){.kind = f == FOUND_NOTHING ? UNWIND_END : UNWIND_OTHER};
}
