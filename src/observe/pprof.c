#include "observe/pprof.h"

#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "os/os.h"

/* ---- Buffers ---- */

/* Buffers begin in parts of memory that is there, while some are free: a mapping takes two calls of the system, which
 * matters for what short processes write at their end. */
enum { SCRATCH_SIZE = 16 * KIB, SCRATCHES = 12, ALL_SCRATCH = (1 << SCRATCHES) - 1 };
static SELDOM _Alignas(4 * KIB) uint8_t scratch[SCRATCHES][SCRATCH_SIZE];
static atomic_u32 scratch_taken; /* a bit for each */

/* NULL: none is free. */
static uint8_t *scratch_take(void) {
  uint32_t taken = load_relaxed(&scratch_taken);
  while (taken != ALL_SCRATCH) {
    unsigned i = (unsigned)__builtin_ctz(~taken);
    if (cas_acq_rel(&scratch_taken, &taken, taken | 1u << i))
      return scratch[i];
  }
  return NULL;
}

/* Who has the last one gives the memory back, for which it takes all of them. */
static void scratch_give(const uint8_t *part) {
  uint32_t mine = 1u << (size_t)(part - scratch[0]) / SCRATCH_SIZE, taken = mine;
  if (cas_acq_rel(&scratch_taken, &taken, ALL_SCRATCH)) {
    os_purge(scratch, sizeof scratch);
    mine = ALL_SCRATCH;
  }
  sub_release(&scratch_taken, mine);
}

static bool is_scratch(const uint8_t *at) { return (uintptr_t)at - (uintptr_t)scratch < sizeof scratch; }

internal void *buffer_scratch(size_t *size) {
  *size = sizeof scratch;
  return scratch;
}

#define BUFFER_LEAST (64 * KIB)

static NOINLINE bool buffer_grow(buffer *b, size_t more) {
  if (b->failed)
    return false;
  buffer before = *b;
  size_t room = SCRATCH_SIZE;
  uint8_t *made = !b->room && more <= SCRATCH_SIZE ? scratch_take() : NULL;
  if (!made) {
    room = max_size(max_size(2 * b->room, BUFFER_LEAST), ROUND_UP(b->size + more, BUFFER_LEAST));
    made = os_map(room, os_page());
  }
  b->failed = !made;
  if (b->failed)
    return false;
  if (b->size)
    memcpy(made, b->at, b->size);
  *b = (buffer){.at = made, .size = b->size, .room = room};
  buffer_drop(&before);
  return true;
}

internal bool buffer_room(buffer *b, size_t more) {
  return LIKELY(!b->failed && b->size + more <= b->room) || buffer_grow(b, more);
}

internal void buffer_put(buffer *b, const void *data, size_t size) {
  if (!size || !buffer_room(b, size))
    return;
  memcpy(b->at + b->size, data, size);
  b->size += size;
}

internal void buffer_drop(buffer *b) {
  if (is_scratch(b->at))
    scratch_give(b->at);
  else if (b->room)
    os_unmap(b->at, b->room);
  *b = (buffer){0};
}

/* ---- Protocol buffers ---- */

/* The numbers of the fields. */
enum {
  PROFILE_SAMPLE_TYPE = 1, PROFILE_SAMPLE, PROFILE_MAPPING, PROFILE_LOCATION,
  PROFILE_STRING = 6, PROFILE_TIME = 9, PROFILE_DURATION, PROFILE_PERIOD_TYPE, PROFILE_PERIOD,
  PROFILE_COMMENT, PROFILE_DEFAULT_TYPE, PROFILE_CURVE = 1000,
  TYPE_TYPE = 1, TYPE_UNIT,
  SAMPLE_LOCATIONS = 1, SAMPLE_VALUES, SAMPLE_LABEL,
  LABEL_KEY = 1, LABEL_STRING,
  MAPPING_ID = 1, MAPPING_START, MAPPING_LIMIT, MAPPING_OFFSET, MAPPING_FILE, MAPPING_BUILD_ID,
  LOCATION_ID = 1, LOCATION_MAPPING, LOCATION_ADDRESS,
  CURVE_STEP = 1, CURVE_IN_USE, CURVE_HELD,
};
enum { WIRE_NUMBER = 0, WIRE_BYTES = 2, VARINT_MOST = 10 };

/* There is room for it. */
static inline void add_varint(buffer *b, uint64_t n) {
  uint8_t *at = b->at + b->size;
  for (; n >= 0x80; n >>= 7)
    *at++ = (uint8_t)n | 0x80;
  *at++ = (uint8_t)n;
  b->size = (size_t)(at - b->at);
}

static void put_varint(buffer *b, uint64_t n) {
  if (buffer_room(b, VARINT_MOST))
    add_varint(b, n);
}

static void put_number(buffer *b, unsigned field, uint64_t n) {
  put_varint(b, field << 3 | WIRE_NUMBER);
  put_varint(b, n);
}

static void put_bytes(buffer *b, unsigned field, const void *data, size_t size) {
  put_varint(b, field << 3 | WIRE_BYTES);
  put_varint(b, size);
  buffer_put(b, data, size);
}

/* Moves a message into its parent. */
static void put_message(buffer *b, unsigned field, buffer *message) {
  b->failed |= message->failed;
  put_bytes(b, field, message->at, message->size);
  message->size = 0;
}

/* ---- One encoding ---- */

enum { NAMES = 64, MAPPINGS_MOST = 4096, IDS_LEAST = 1024 };

typedef struct mapped_file {
  uintptr_t start, end, offset;
  uint64_t path, build_id; /* strings */
} mapped_file;

typedef struct encoding {
  buffer *out;
  buffer message, packed; /* in the making: of the profile; in that */
  uint64_t strings;       /* written */
  uint64_t thread_key, heap_key; /* strings */
  size_t shown;                  /* which of the types */
  struct {
    char name[32];
    uint64_t string;
  } names[NAMES];
  buffer calls; /* uintptr_t, each once: its place + 1 is its location's id */
  buffer ids;   /* uint32_t, by the call's hash; 0: none is here; at most half full */
  size_t id_room; /* a power of two */
  buffer files; /* mapped_file, executable, in order of address: its place + 1 is the id */
} encoding;

static uint64_t put_string(encoding *e, const char *text, size_t length) {
  put_bytes(e->out, PROFILE_STRING, text, length);
  return e->strings++;
}

static uint64_t text_string(encoding *e, const char *text) { return put_string(e, text, strlen(text)); }

/* Of at most `most` characters. */
static uint64_t name_string(encoding *e, const char *name, size_t most) {
  char padded[sizeof e->names->name] = "";
  size_t i = 0, length = strnlen(name, min_size(most, sizeof padded));
  memcpy(padded, name, length);
  while (i < NAMES && e->names[i].string && memcmp(e->names[i].name, padded, sizeof padded))
    i++;
  if (i < NAMES && e->names[i].string)
    return e->names[i].string;
  uint64_t string = put_string(e, name, length);
  if (i < NAMES) {
    memcpy(e->names[i].name, padded, sizeof padded);
    e->names[i].string = string;
  }
  return string;
}

static void put_type(encoding *e, unsigned field, pprof_type type) {
  put_number(&e->message, TYPE_TYPE, text_string(e, type.type));
  put_number(&e->message, TYPE_UNIT, text_string(e, type.unit));
  put_message(e->out, field, &e->message);
}

/* ---- Locations ---- */

static size_t call_count(const encoding *e) { return e->calls.size / sizeof(uintptr_t); }

static uintptr_t call_of(const encoding *e, size_t id) { return ((const uintptr_t *)(const void *)e->calls.at)[id - 1]; }

/* Where its id is, or would be. */
static uint32_t *id_at(const encoding *e, uintptr_t call) {
  uint32_t *ids = (void *)e->ids.at;
  size_t mask = e->id_room - 1, i = call * 0x9e3779b97f4a7c15 >> 32 & mask;
  while (ids[i] && call_of(e, ids[i]) != call)
    i = (i + 1) & mask;
  return &ids[i];
}

static bool ids_grow(encoding *e) {
  size_t room = e->id_room ? 2 * e->id_room : IDS_LEAST;
  if (!buffer_room(&e->ids, room * sizeof(uint32_t)))
    return false;
  memset(e->ids.at, 0, room * sizeof(uint32_t));
  e->id_room = room;
  for (uint32_t id = 1; id <= call_count(e); id++)
    *id_at(e, call_of(e, id)) = id;
  return true;
}

/* Of what calls there: the return address may be of the next function. 0: out of memory. */
static uint32_t location_id(encoding *e, uintptr_t returns_to) {
  uintptr_t call = returns_to - 1;
  if (2 * call_count(e) >= e->id_room && !ids_grow(e))
    return 0;
  uint32_t *id = id_at(e, call);
  if (!*id && buffer_room(&e->calls, sizeof call)) {
    buffer_put(&e->calls, &call, sizeof call);
    *id = (uint32_t)call_count(e);
  }
  return *id;
}

/* ---- Mappings ---- */

static uint64_t hex_string(encoding *e, const uint8_t *bytes, size_t count) {
  static const char digits[] = "0123456789abcdef";
  char text[64];
  count = min_size(count, sizeof text / 2);
  for (size_t i = 0; i < count; i++) {
    text[2 * i] = digits[bytes[i] >> 4];
    text[2 * i + 1] = digits[bytes[i] & 15];
  }
  return put_string(e, text, 2 * count);
}

static uint64_t build_id_in(encoding *e, const uint8_t *notes, size_t size) {
  ElfW(Nhdr) note;
  for (size_t at = 0; at + sizeof note <= size;) {
    memcpy(&note, notes + at, sizeof note);
    size_t name = at + sizeof note, data = name + ROUND_UP(note.n_namesz, 4);
    if (data + note.n_descsz > size)
      break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(notes + name, "GNU", 4))
      return hex_string(e, notes + data, note.n_descsz);
    at = data + ROUND_UP(note.n_descsz, 4);
  }
  return 0;
}

/* A file whose start is mapped, which may have gone meanwhile. What is looked for is most often among its first bytes. */
typedef struct file_head {
  uintptr_t start;
  uint8_t first[KIB];
} file_head;

static bool read_file_part(const file_head *h, size_t offset, void *to, size_t size) {
  if (offset > sizeof h->first || size > sizeof h->first - offset)
    return os_read_memory((char *)h->start + offset, to, size);
  memcpy(to, h->first + offset, size);
  return true;
}

static uint64_t build_id_at(encoding *e, uintptr_t start) {
  file_head h = {.start = start};
  ElfW(Ehdr) head;
  ElfW(Phdr) part[16];
  uint8_t notes[1024];
  if (!os_read_memory((void *)start, h.first, sizeof h.first) || memcmp(h.first, ELFMAG, SELFMAG))
    return 0;
  memcpy(&head, h.first, sizeof head);
  size_t count = min_size(head.e_phnum, sizeof part / sizeof *part);
  if (!read_file_part(&h, head.e_phoff, part, count * sizeof *part))
    return 0;
  for (size_t i = 0; i < count; i++) {
    size_t size = min_size(part[i].p_filesz, sizeof notes);
    uint64_t found = part[i].p_type == PT_NOTE && read_file_part(&h, part[i].p_offset, notes, size)
                         ? build_id_in(e, notes, size)
                         : 0;
    if (found)
      return found;
  }
  return 0;
}

static bool any_call_in(const encoding *e, uintptr_t start, uintptr_t end) {
  size_t id = call_count(e);
  while (id && call_of(e, id) - start >= end - start)
    id--;
  return id;
}

/* "START-END rwxp OFFSET DEVICE INODE   PATH". */
internal const char *pprof_parse_map(const char *text, pprof_map *m) {
  char *at;
  m->start = strtoull(text, &at, 16);
  m->end = strtoull(at + 1, &at, 16);
  memcpy(m->may, at + 1, sizeof m->may);
  m->offset = strtoull(at + 6, &at, 16);
  for (int words = 0; words < 2; words++) {
    at += strspn(at, " ");
    at += strcspn(at, " \n");
  }
  m->path = at + strspn(at, " ");
  m->path_length = strcspn(m->path, "\n");
  const char *end = m->path + m->path_length;
  return end + (*end == '\n');
}

static size_t file_count(const encoding *e) { return e->files.size / sizeof(mapped_file); }

static mapped_file *file_of_id(const encoding *e, size_t id) { return (mapped_file *)(void *)e->files.at + id - 1; }

/* The id of the last one that starts there or before; 0: none does. */
static size_t file_up_to(const encoding *e, uintptr_t address) {
  size_t low = 0, high = file_count(e);
  while (low < high) {
    size_t middle = (low + high + 1) / 2;
    if (file_of_id(e, middle)->start <= address)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* 0: none that is known. */
static size_t file_id(const encoding *e, uintptr_t address) {
  size_t id = file_up_to(e, address);
  return id && address < file_of_id(e, id)->end ? id : 0;
}

static void add_file(encoding *e, mapped_file m) {
  size_t before = file_up_to(e, m.start), behind = file_count(e) - before;
  if (!buffer_room(&e->files, sizeof m))
    return;
  e->files.size += sizeof m;
  memmove(file_of_id(e, before + 2), file_of_id(e, before + 1), behind * sizeof m);
  *file_of_id(e, before + 1) = m;
}

static void add_asked(encoding *e, const os_mapping *at) {
  mapped_file m = {.start = at->start, .end = at->end, .offset = at->offset};
  m.path = text_string(e, at->path);
  if (at->build_id_size)
    m.build_id = hex_string(e, at->build_id, at->build_id_size);
  add_file(e, m);
}

/* From the system, mapping by mapping: the whole list takes longer, the more so the more is mapped. False: it does not say. */
static bool ask_for_files(encoding *e, os_mapping *at) {
  size_t size = e->out->size;
  uint64_t strings = e->strings;
  int maps = os_mappings_open(), why = maps < 0 ? ENOSYS : 0;
  for (size_t id = 1; id <= call_count(e) && (!why || why == ENOENT) && file_count(e) < MAPPINGS_MOST; id++) {
    uintptr_t call = call_of(e, id);
    if (file_id(e, call))
      continue;
    why = os_mappings_ask(maps, call, at);
    if (!why && at->start <= call)
      add_asked(e, at);
  }
  os_mappings_close(maps);
  if (!why || why == ENOENT)
    return true;
  e->out->size = size;
  e->strings = strings;
  e->files.size = 0;
  return false;
}

static void add_listed(encoding *e, const char *line) {
  pprof_map at, first = {0}; /* that of the path whose start is mapped */
  while (*line && file_count(e) < MAPPINGS_MOST) {
    line = pprof_parse_map(line, &at);
    if (at.offset == 0)
      first = at;
    if (at.may[2] == 'x' && any_call_in(e, at.start, at.end)) {
      mapped_file m = {.start = at.start, .end = at.end, .offset = at.offset};
      m.path = put_string(e, at.path, at.path_length);
      if (*at.path == '/' && at.path_length == first.path_length && !memcmp(at.path, first.path, at.path_length))
        m.build_id = build_id_at(e, first.start);
      add_file(e, m);
    }
  }
}

internal void pprof_read_maps(buffer *maps) {
  size_t room = BUFFER_LEAST;
  int why;
  do {
    room *= 2;
    maps->size = 0;
    if (!buffer_room(maps, room))
      return;
    maps->size = os_file_read("/proc/thread-self/maps", maps->at, room - 1, &why);
  } while (maps->size == room - 1);
  maps->at[maps->size] = 0;
}

/* Those that a call is in. */
static void find_files(encoding *e) {
  buffer maps = {0};
  if (call_count(e) && buffer_room(&maps, sizeof(os_mapping)) && !ask_for_files(e, (os_mapping *)(void *)maps.at)) {
    pprof_read_maps(&maps);
    if (!maps.failed)
      add_listed(e, (const char *)maps.at);
  }
  e->out->failed |= maps.failed;
  buffer_drop(&maps);
}

static void put_mappings(encoding *e) {
  for (size_t id = 1; id <= file_count(e); id++) {
    const mapped_file *m = file_of_id(e, id);
    put_number(&e->message, MAPPING_ID, id);
    put_number(&e->message, MAPPING_START, m->start);
    put_number(&e->message, MAPPING_LIMIT, m->end);
    put_number(&e->message, MAPPING_OFFSET, m->offset);
    put_number(&e->message, MAPPING_FILE, m->path);
    put_number(&e->message, MAPPING_BUILD_ID, m->build_id);
    put_message(e->out, PROFILE_MAPPING, &e->message);
  }
}

static void put_locations(encoding *e) {
  for (size_t id = 1; id <= call_count(e); id++) {
    size_t file = file_id(e, call_of(e, id));
    put_number(&e->message, LOCATION_ID, id);
    if (file)
      put_number(&e->message, LOCATION_MAPPING, file);
    put_number(&e->message, LOCATION_ADDRESS, call_of(e, id));
    put_message(e->out, PROFILE_LOCATION, &e->message);
  }
}

/* ---- Samples ---- */

static void pack(encoding *e, double value) {
  put_varint(&e->packed, value > 0 ? (uint64_t)(value + 0.5) : 0);
}

static void put_label(encoding *e, uint64_t key, const char *name, size_t most) {
  put_number(&e->packed, LABEL_KEY, key);
  put_number(&e->packed, LABEL_STRING, name_string(e, name, most));
  put_message(&e->message, SAMPLE_LABEL, &e->packed);
}

static size_t type_shown(const pprof_source *p) {
  size_t i = 0;
  while (strcmp(p->types[i].type, p->shown) != 0)
    i++;
  return i;
}

/* The value that is written there. What is shown comes last: speedscope does not find the default. */
static size_t value_written(const encoding *e, const pprof_source *p, size_t n) {
  return n + 1 == p->type_count ? e->shown : n + (n >= e->shown);
}

static void put_sample(encoding *e, const pprof_source *p, const pprof_stack *s) {
  if (!buffer_room(&e->packed, s->frame_count * VARINT_MOST))
    return;
  for (size_t i = 0; i < s->frame_count; i++)
    add_varint(&e->packed, location_id(e, s->frame[i]));
  put_message(&e->message, SAMPLE_LOCATIONS, &e->packed);
  for (size_t i = 0; i < p->type_count; i++)
    pack(e, s->value[value_written(e, p, i)]);
  put_message(&e->message, SAMPLE_VALUES, &e->packed);
  put_label(e, e->thread_key, s->thread, PPROF_THREAD);
  if (s->heap && *s->heap)
    put_label(e, e->heap_key, s->heap, PPROF_HEAP);
  put_message(e->out, PROFILE_SAMPLE, &e->message);
}

static void put_curve(encoding *e, const curve *c) {
  put_number(&e->message, CURVE_STEP, c->step);
  for (size_t i = 0; i < c->count; i++)
    pack(e, c->points[i].in_use);
  put_message(&e->message, CURVE_IN_USE, &e->packed);
  for (size_t i = 0; i < c->count; i++)
    pack(e, c->points[i].held);
  put_message(&e->message, CURVE_HELD, &e->packed);
  put_message(e->out, PROFILE_CURVE, &e->message);
}

static void put_head(encoding *e, const pprof_source *p) {
  text_string(e, ""); /* string 0 */
  for (size_t i = 0; i < p->type_count; i++)
    put_type(e, PROFILE_SAMPLE_TYPE, p->types[value_written(e, p, i)]);
  if (p->period)
    put_type(e, PROFILE_PERIOD_TYPE, p->period_type);
  put_number(e->out, PROFILE_DEFAULT_TYPE, text_string(e, p->shown));
  put_number(e->out, PROFILE_PERIOD, p->period);
  put_number(e->out, PROFILE_TIME, p->started_wall);
  put_number(e->out, PROFILE_DURATION, p->now - p->started);
  for (size_t i = 0; i < PPROF_COMMENTS && p->comment[i]; i++)
    put_number(e->out, PROFILE_COMMENT, text_string(e, p->comment[i]));
  if (p->over_time && p->over_time->count)
    put_curve(e, p->over_time);
}

internal bool pprof_encode(const pprof_source *p, buffer *out) {
  encoding e = {.out = out, .shown = type_shown(p)};
  buffer *const part[] = {&e.calls, &e.ids, &e.files, &e.message, &e.packed};
  const pprof_stack *first = (const void *)p->stacks->at, *end = first + p->stacks->size / sizeof *first;
  put_head(&e, p);
  e.thread_key = text_string(&e, "thread");
  e.heap_key = text_string(&e, "heap");
  for (const pprof_stack *s = first; s < end; s++)
    put_sample(&e, p, s);
  find_files(&e);
  put_mappings(&e);
  put_locations(&e);
  out->failed |= p->stacks->failed;
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    out->failed |= part[i]->failed;
    buffer_drop(part[i]);
  }
  return !out->failed;
}
