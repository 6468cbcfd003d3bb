#include "merge.h"

#include "tool.h"

/* The blocks of one thread and level, one after the other. */
typedef struct chain {
  uint32_t number, level; /* as recorded */
  uint32_t thread;        /* index */
  size_t first, count;    /* in the list of blocks */
  size_t at;              /* block */
  const trace_unit *from, *end;
  trace_state state;
  trace_record record;
  uint64_t time; /* of what comes next */
  bool arrives;  /* what comes next is the end of the realloc in `record` */
  object moving;
} chain;

struct merge {
  const trace_process *process;
  const trace_block **block;
  size_t blocks;
  chain *chains;
  size_t chain_count;
  chain **heap; /* of chains with something left, by time */
  size_t heap_count;
  object *table;
  uint64_t table_size, objects; /* a power of two */
  object gone;
  uint32_t *slots_free; /* stacks of slots by thread, linked through next_slot */
  uint32_t *next_slot;
  uint32_t slots, slots_room;
  chain *told; /* by the item before, and not advanced yet */
  bool told_resized, told_stays;
  merge_counts counts;
};

/* ---- Objects by address ---- */

static uint64_t place_of(const merge *m, uint64_t address) {
  return (address >> 3) * 0x9e3779b97f4a7c15 >> (64 - __builtin_ctzll(m->table_size));
}

static object *find(merge *m, uint64_t address) {
  if (!address)
    return NULL;
  for (uint64_t i = place_of(m, address);; i = (i + 1) & (m->table_size - 1)) {
    if (m->table[i].address == address)
      return &m->table[i];
    if (!m->table[i].address)
      return NULL;
  }
}

static object *insert(merge *m, object o) {
  if (m->objects * 2 >= m->table_size) {
    object *old = m->table;
    uint64_t count = m->table_size;
    m->table_size = count * 2;
    m->table = must(calloc(m->table_size, sizeof *m->table));
    m->objects = 0;
    for (uint64_t i = 0; i < count; i++)
      if (old[i].address)
        insert(m, old[i]);
    free(old);
  }
  uint64_t i = place_of(m, o.address);
  while (m->table[i].address)
    i = (i + 1) & (m->table_size - 1);
  m->table[i] = o;
  m->objects++;
  return &m->table[i];
}

/* Those behind it move up, so that no gap parts them from their place. */
static object take_out(merge *m, object *o) {
  object taken = *o;
  uint64_t mask = m->table_size - 1, gap = (uint64_t)(o - m->table);
  for (uint64_t i = (gap + 1) & mask; m->table[i].address; i = (i + 1) & mask) {
    uint64_t home = place_of(m, m->table[i].address);
    if (((i - home) & mask) >= ((i - gap) & mask)) {
      m->table[gap] = m->table[i];
      gap = i;
    }
  }
  m->table[gap].address = 0;
  m->objects--;
  return taken;
}

/* A slot that the thread itself emptied needs no wait; else a new one. Slots count from 1
 * in the free lists. */
static uint32_t slot_take(merge *m, uint32_t thread) {
  uint32_t slot = m->slots_free[thread];
  if (slot) {
    m->slots_free[thread] = m->next_slot[slot - 1];
    return slot - 1;
  }
  if (m->slots == m->slots_room) {
    m->slots_room = m->slots_room ? m->slots_room * 2 : 1024;
    m->next_slot = must(realloc(m->next_slot, m->slots_room * sizeof *m->next_slot));
  }
  return m->slots++;
}

static void slot_give(merge *m, uint32_t thread, uint32_t slot) {
  m->next_slot[slot] = m->slots_free[thread];
  m->slots_free[thread] = slot + 1;
}

/* ---- Chains ---- */

static bool next_record(merge *m, chain *c) {
  for (;;) {
    if (c->from) {
      const trace_unit *next = trace_get(c->from, c->end, &c->state, &c->record);
      if (next) {
        c->from = next;
        c->time = c->record.time;
        m->counts.records++;
        return true;
      }
      m->counts.bad_blocks += c->from < c->end && *c->from;
      c->from = NULL;
    }
    if (c->at == c->count)
      return false;
    const trace_block *b = m->block[c->first + c->at++];
    c->state = (trace_state){.time = b->time};
    c->from = (const trace_unit *)(b + 1);
    c->end = (const trace_unit *)b + b->pages * (TRACE_PAGE / sizeof *c->end);
  }
}

static bool earlier(const chain *a, const chain *b) {
  return a->time != b->time ? a->time < b->time : a < b;
}

static void sift(merge *m, size_t i) {
  for (;;) {
    size_t least = i;
    for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < m->heap_count; child++)
      if (earlier(m->heap[child], m->heap[least]))
        least = child;
    if (least == i)
      return;
    chain *c = m->heap[i];
    m->heap[i] = m->heap[least];
    m->heap[least] = c;
    i = least;
  }
}

/* ---- Opening ---- */

static int by_chain_and_time(const void *a, const void *b) {
  const trace_block *x = *(trace_block *const *)a, *y = *(trace_block *const *)b;
  if (x->thread != y->thread)
    return x->thread < y->thread ? -1 : 1;
  if (x->level != y->level)
    return x->level < y->level ? -1 : 1;
  if (x->time != y->time)
    return x->time < y->time ? -1 : 1;
  return x->page < y->page ? -1 : x->page > y->page;
}

static bool sound(const trace_block *b, uint64_t room) {
  return b->pages >= 1 && b->pages <= TRACE_BLOCK_PAGES && b->pages * (uint64_t)TRACE_PAGE <= room && b->level <= 1;
}

static void find_blocks(merge *m, const char *data, uint64_t size) {
  size_t room = 0;
  for (uint64_t at = TRACE_PAGE; at + TRACE_PAGE <= size; at += TRACE_PAGE) {
    const trace_block *b = (const void *)(data + at);
    if (b->magic != TRACE_BLOCK_MAGIC)
      continue;
    if (!sound(b, size - at)) {
      m->counts.bad_blocks++;
      continue;
    }
    if (m->blocks == room)
      m->block = must(realloc(m->block, (room = room ? room * 2 : 256) * sizeof *m->block));
    m->block[m->blocks++] = b;
    at += (uint64_t)(b->pages - 1) * TRACE_PAGE;
  }
  m->counts.blocks = m->blocks;
  if (m->blocks)
    qsort(m->block, m->blocks, sizeof *m->block, by_chain_and_time);
}

static void make_chains(merge *m) {
  m->chains = must(calloc(m->blocks + 1, sizeof *m->chains));
  m->heap = must(calloc(m->blocks + 1, sizeof *m->heap));
  for (size_t i = 0; i < m->blocks; i++) {
    const trace_block *b = m->block[i];
    chain *last = m->chain_count ? &m->chains[m->chain_count - 1] : NULL;
    if (last && last->number == b->thread && last->level == b->level) {
      last->count++;
      continue;
    }
    bool same = last && last->number == b->thread;
    m->chains[m->chain_count++] = (chain){
      .number = b->thread,
      .level = b->level,
      .first = i,
      .count = 1,
      .thread = same ? last->thread : m->counts.threads++,
    };
  }
  m->slots_free = must(calloc(m->counts.threads + 1, sizeof *m->slots_free));
  for (size_t i = 0; i < m->chain_count; i++)
    if (next_record(m, &m->chains[i]))
      m->heap[m->heap_count++] = &m->chains[i];
  for (size_t i = m->heap_count; i--;)
    sift(m, i);
}

merge *merge_open(const void *data, uint64_t size, const char **why) {
  const trace_process *process = data;
  *why = size < TRACE_PAGE                          ? "too short"
         : process->magic != TRACE_PROCESS_MAGIC    ? "not a trace"
         : process->version != TRACE_VERSION        ? "made by another version of masu"
         : process->page_size != TRACE_PAGE         ? "pages of another size"
                                                    : NULL;
  if (*why)
    return NULL;
  merge *m = must(calloc(1, sizeof *m));
  m->process = process;
  m->table_size = 1024;
  m->table = must(calloc(m->table_size, sizeof *m->table));
  find_blocks(m, data, size);
  make_chains(m);
  if (m->heap_count)
    m->counts.first_ns = m->heap[0]->time;
  return m;
}

void merge_close(merge *m) {
  free(m->block);
  free(m->chains);
  free(m->heap);
  free(m->table);
  free(m->slots_free);
  free(m->next_slot);
  free(m);
}

const trace_process *merge_process(const merge *m) { return m->process; }
uint32_t merge_slots(const merge *m) { return m->slots; }
const merge_counts *merge_counted(const merge *m) { return &m->counts; }

/* ---- The items ---- */

/* The object ends with this record; NULL: nobody was seen to allocate it. */
static bool end_object(merge *m, const chain *c, object *o, item *out) {
  if (!o)
    return false;
  m->gone = take_out(m, o);
  slot_give(m, c->thread, m->gone.slot);
  out->kind = ITEM_GIVE;
  out->object = &m->gone;
  return true;
}

/* An address that is given again was freed unseen: that object ends here. */
static bool forget(merge *m, const chain *c, uint64_t address, item *out) {
  object *o = find(m, address);
  if (!o)
    return false;
  m->counts.vanished++;
  *out = (item){.thread = c->thread, .ended_ns = c->time};
  return end_object(m, c, o, out);
}

static uint32_t index_of(const merge *m, uint32_t number) {
  for (size_t low = 0, high = m->chain_count; low < high;) {
    size_t middle = (low + high) / 2;
    if (m->chains[middle].number == number)
      return m->chains[middle].thread;
    if (m->chains[middle].number < number)
      low = middle + 1;
    else
      high = middle;
  }
  return UINT32_MAX;
}

static object born(merge *m, const chain *c) {
  return (object){
    .address = c->record.address,
    .size = c->record.size,
    .born_ns = c->record.time,
    .slot = slot_take(m, c->thread),
    .thread = c->thread,
    .last = UINT32_MAX,
    .born_thread = c->thread,
    .stack = c->record.stack,
    .kind = c->record.kind,
  };
}

/* What the record that c stands at says. False: nothing that anybody wants. *stay: the
 * record has more to say. */
static bool tell(merge *m, chain *c, item *out, bool *stay) {
  const trace_record *r = &c->record;
  *out = (item){.thread = c->thread, .record = r, .ended_ns = c->time};
  *stay = false;
  if (c->arrives) { /* realloc returned */
    c->arrives = false;
    if (forget(m, c, c->moving.address, out)) {
      c->arrives = *stay = true;
      return true;
    }
    insert(m, c->moving);
    return false;
  }
  switch (r->kind) {
  case TRACE_THREAD_CREATE:
    out->kind = ITEM_CREATE;
    out->other = index_of(m, r->thread);
    return out->other != UINT32_MAX;
  case TRACE_THREAD_START:
    out->kind = ITEM_START;
    return true;
  case TRACE_THREAD_END:
    out->kind = ITEM_END;
    return true;
  case TRACE_STACK:
    out->kind = ITEM_STACK;
    return true;
  default:
    m->counts.calls++;
  }
  switch (r->kind) {
  case TRACE_FREE:
  case TRACE_FREE_SIZED:
  case TRACE_DELETE:
  case TRACE_DELETE_SIZED: {
    object *o = find(m, r->address);
    m->counts.unknown += !o;
    return end_object(m, c, o, out);
  }
  case TRACE_REALLOC: {
    object *o = r->old_address ? find(m, r->old_address) : NULL;
    if (!r->address && r->size) {
      m->counts.failed++;
      return false; /* nothing changed */
    }
    if (r->old_address && !o)
      m->counts.unknown++;
    if (!r->address) /* as free */
      return end_object(m, c, o, out);
    out->kind = ITEM_RESIZE;
    out->ended_ns = r->time + r->took_ns;
    if (o) {
      c->moving = take_out(m, o);
      out->object = &c->moving; /* with the size that it had */
    } else {
      c->moving = born(m, c);
      out->kind = ITEM_TAKE;
      out->object = &c->moving;
    }
    return true;
  }
  default:
    if (!r->address) {
      m->counts.failed++;
      return false;
    }
    if (forget(m, c, r->address, out)) {
      m->counts.calls--; /* it comes again */
      *stay = true;
      return true;
    }
    out->kind = ITEM_TAKE;
    out->object = insert(m, born(m, c));
    return true;
  }
}

/* A realloc that was told of arrives at its new address when it returns. */
static void advance(merge *m, chain *c, bool resized) {
  if (resized) {
    c->moving.address = c->record.address;
    c->moving.size = c->record.size;
    c->arrives = true;
    c->time = c->record.time + c->record.took_ns;
  } else if (!next_record(m, c)) {
    m->heap[0] = m->heap[--m->heap_count];
  }
  if (m->heap_count)
    sift(m, 0);
}

bool merge_next(merge *m, item *out) {
  for (;;) {
    if (m->told && !m->told_stays)
      advance(m, m->told, m->told_resized);
    m->told = NULL;
    if (!m->heap_count)
      return false;
    chain *c = m->heap[0];
    bool was_arriving = c->arrives;
    m->counts.last_ns = c->time;
    bool wanted = tell(m, c, out, &m->told_stays);
    m->told = c;
    m->told_resized = !was_arriving && !m->told_stays && c->record.kind == TRACE_REALLOC && wanted &&
                   out->kind != ITEM_GIVE;
    if (wanted)
      return true;
  }
}

void merge_left(merge *m, void (*visit)(const object *o, void *context), void *context) {
  for (uint64_t i = 0; i < m->table_size; i++)
    if (m->table[i].address)
      visit(&m->table[i], context);
}
