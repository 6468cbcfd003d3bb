/* plan TRACE PLAN
 *
 * Makes of the trace of one process the plan that replay executes (plan.h), and prints
 * what is in it, as one JSON object. Exit status 1 with a line on stderr when TRACE is no
 * trace or PLAN can't be written. */
#include "plan.h"

#include "merge.h"
#include "tool.h"

#define LONGEST_NS (24ull * 3600 * 1000000000) /* between two calls */

/* ---- Writing ---- */

/* What a thread of the plan has so far. */
typedef struct line {
  plan_chunk *chunk; /* in the making */
  uint32_t number;   /* of it */
  uint32_t first;
  uint32_t done;    /* operations */
  uint64_t idle_ns; /* the program's time at the end of the call before; 0: none yet */
  uint32_t *waited; /* for each of `known` threads, how many operations it waited for */
  uint32_t known;
  uint32_t creator;    /* where it is `created` */
  uint32_t ended;      /* the last of those that it created and that ended, not waited for; */
  uint32_t next_ended; /* they are linked; 0: no more */
  bool created, over;
} line;

static FILE *file;
static line *lines;
static uint32_t thread_count;
static plan_head head = {.magic = PLAN_MAGIC, .chunks = 1};
static uint64_t cost_ns, start_ns;
static uint64_t by_kind[PLAN_KINDS], handed, live, live_peak, blocks_live, blocks_peak;

static void write_at(uint64_t offset, const void *data, size_t size) {
  if (fseeko(file, (off_t)offset, SEEK_SET) || fwrite(data, size, 1, file) != 1)
    fail("the plan cannot be written: %s", strerror(errno));
}

static void write_chunk(line *l, uint32_t next) {
  l->chunk->next = next;
  write_at((uint64_t)l->number * PLAN_CHUNK, l->chunk, PLAN_CHUNK);
}

static plan_op *next_op(line *l) {
  if (!l->chunk || l->chunk->count == PLAN_OPS) {
    if (head.chunks >= UINT32_MAX)
      fail("the trace is too long");
    uint32_t number = (uint32_t)head.chunks++;
    if (l->chunk)
      write_chunk(l, number);
    else
      l->chunk = must(malloc(PLAN_CHUNK)), l->first = number;
    memset(l->chunk, 0, PLAN_CHUNK);
    l->number = number;
  }
  if (l->done == UINT32_MAX)
    fail("the trace is too long");
  l->done++;
  return &l->chunk->op[l->chunk->count++];
}

/* The thread did other things until now_ns. One that nobody was seen to create has been
 * there from the start. */
static uint32_t thought(line *l, uint64_t now_ns) {
  uint64_t from = l->idle_ns ? l->idle_ns + cost_ns : l->created ? now_ns : start_ns;
  uint64_t think = now_ns > from ? now_ns - from : 0;
  if (think > LONGEST_NS) /* the clock of a damaged trace */
    think = LONGEST_NS;
  for (; think > UINT32_MAX; think -= UINT32_MAX)
    *next_op(l) = (plan_op){.kind = PLAN_THINK, .think_ns = UINT32_MAX};
  return (uint32_t)think;
}

static plan_op *put(line *l, plan_kind kind, uint32_t slot, uint64_t size, uint32_t think) {
  plan_op *op = next_op(l);
  uint64_t pages = (size + PLAN_PAGE - 1) / PLAN_PAGE;
  bool in_pages = size > UINT32_MAX;
  *op = (plan_op){
    .kind = (uint8_t)(kind | (in_pages ? PLAN_IN_PAGES : 0)),
    .slot = slot,
    .size = (uint32_t)(!in_pages ? size : pages < UINT32_MAX ? pages : UINT32_MAX),
    .think_ns = think,
  };
  by_kind[kind]++;
  return op;
}

/* Goes on when the other thread has done so many operations. What was waited for before
 * needs no second wait. */
static void await(line *l, uint32_t other, uint32_t done) {
  if (l->known <= other) {
    uint32_t known = other + 1;
    l->waited = must(realloc(l->waited, known * sizeof *l->waited));
    memset(l->waited + l->known, 0, (known - l->known) * sizeof *l->waited);
    l->known = known;
  }
  if (l->waited[other] >= done)
    return;
  l->waited[other] = done;
  put(l, PLAN_WAIT, other, done, 0);
}

/* Another thread touched the block last: after that. */
static void await_block(uint32_t thread, const object *o) {
  if (o->thread == thread || o->last == UINT32_MAX)
    return;
  handed++;
  await(&lines[thread], o->thread, o->last + 1);
}

/* A thread that creates more waits for those that it created and that had ended by then: a
 * program of one short thread after the other has them so in the replay, not all at once. */
static void await_ended(line *l) {
  for (; l->ended; l->ended = lines[l->ended].next_ended)
    await(l, l->ended, lines[l->ended].done);
}

static void ends(uint32_t thread) {
  line *l = &lines[thread];
  if (!l->created || l->over)
    return;
  l->over = true;
  l->next_ended = lines[l->creator].ended;
  lines[l->creator].ended = thread;
}

static void touched(uint32_t thread, object *o) {
  o->thread = thread;
  o->last = lines[thread].done - 1;
}

static plan_kind taking(unsigned kind) {
  switch (kind) {
  case TRACE_CALLOC: return PLAN_CALLOC;
  case TRACE_ALIGNED: return PLAN_ALIGNED;
  case TRACE_REALLOC: return PLAN_REALLOC;
  case TRACE_NEW: return PLAN_NEW;
  case TRACE_NEW_ALIGNED: return PLAN_NEW_ALIGNED;
  default: return PLAN_MALLOC;
  }
}

/* A sized delete without the alignment is for blocks that have none. */
static plan_kind giving(const trace_record *r, const object *o) {
  switch (r ? r->kind : TRACE_FREE) {
  case TRACE_FREE_SIZED: return PLAN_FREE_SIZED;
  case TRACE_DELETE: return PLAN_DELETE;
  case TRACE_DELETE_SIZED: return o->kind == TRACE_NEW ? PLAN_DELETE_SIZED : PLAN_DELETE;
  default: return PLAN_FREE;
  }
}

static void count_live(uint64_t more, uint64_t less, int blocks) {
  live += more - less;
  blocks_live += (uint64_t)blocks;
  live_peak = live > live_peak ? live : live_peak;
  blocks_peak = blocks_live > blocks_peak ? blocks_live : blocks_peak;
}

static void plan_item(const item *i) {
  line *l = &lines[i->thread];
  object *o = i->object;
  uint64_t called = i->record ? i->record->time : i->ended_ns;
  uint32_t think;
  switch (i->kind) {
  case ITEM_TAKE:
    think = thought(l, called);
    plan_op *op = put(l, taking(o->kind), o->slot, i->record->size, think);
    op->align_log2 = i->record->align_log2;
    touched(i->thread, o);
    count_live(i->record->size, 0, 1);
    break;
  case ITEM_GIVE:
    think = thought(l, called);
    await_block(i->thread, o);
    put(l, giving(i->record, o), o->slot, o->size, think);
    count_live(0, o->size, -1);
    break;
  case ITEM_RESIZE:
    think = thought(l, called);
    await_block(i->thread, o);
    put(l, PLAN_REALLOC, o->slot, i->record->size, think);
    touched(i->thread, o);
    count_live(i->record->size, o->size, 0);
    break;
  case ITEM_CREATE:
    /* One that has done something by now was there before: waits lead to the past only. */
    if (i->other && i->other != i->thread && !lines[i->other].created && !lines[i->other].done) {
      think = thought(l, called);
      await_ended(l);
      put(l, PLAN_CREATE, i->other, 0, think);
      lines[i->other].created = true;
      lines[i->other].creator = i->thread;
    }
    break;
  case ITEM_END:
    ends(i->thread);
    break;
  case ITEM_START:
    break;
  case ITEM_STACK:
    return;
  }
  l->idle_ns = i->ended_ns;
}

/* ---- Printing ---- */

static void print(const char *name, uint64_t n) { printf("\"%s\": %llu, ", name, (unsigned long long)n); }

static void print_summary(const merge *m) {
  const merge_counts *c = merge_counted(m);
  printf("{");
  print("records", c->records);
  print("calls", c->calls);
  print("threads", c->threads);
  print("unknown_frees", c->unknown);
  print("vanished", c->vanished);
  print("failed", c->failed);
  print("bad_blocks", c->bad_blocks);
  print("handed_over", handed);
  print("live_peak_bytes", live_peak);
  print("live_peak_blocks", blocks_peak);
  print("live_end_bytes", live);
  print("duration_ns", c->last_ns - c->first_ns);
  printf("\"by_kind\": {");
  for (int k = 1; k < PLAN_THINK; k++)
    printf("%s\"%s\": %llu", k > 1 ? ", " : "", plan_names[k], (unsigned long long)by_kind[k]);
  printf("}}\n");
}

int main(int argc, char **argv) {
  if (argc != 3)
    fail("usage: plan TRACE PLAN");
  const char *why;
  uint64_t size;
  const void *data = map_file(argv[1], &size);
  merge *m = merge_open(data, size, &why);
  if (!m)
    fail("%s: %s", argv[1], why);
  cost_ns = merge_process(m)->cost_ns;
  start_ns = merge_counted(m)->first_ns;
  thread_count = merge_counted(m)->threads;
  lines = must(calloc(thread_count + 1, sizeof *lines));
  file = fopen(argv[2], "wb");
  if (!file)
    fail("%s: %s", argv[2], strerror(errno));
  setvbuf(file, NULL, _IONBF, 0);
  for (item i; merge_next(m, &i);)
    plan_item(&i);
  plan_thread *list = must(calloc(thread_count + 1, sizeof *list));
  for (uint32_t t = 0; t < thread_count; t++) {
    if (lines[t].chunk)
      write_chunk(&lines[t], 0);
    list[t] = (plan_thread){lines[t].first, lines[t].created};
  }
  head.calls = merge_counted(m)->calls;
  head.slots = merge_slots(m);
  head.threads = thread_count;
  head.list = head.chunks * PLAN_CHUNK;
  if (thread_count)
    write_at(head.list, list, thread_count * sizeof *list);
  free(list);
  char page[PLAN_CHUNK] = {0};
  memcpy(page, &head, sizeof head);
  write_at(0, page, sizeof page);
  if (fclose(file))
    fail("%s: %s", argv[2], strerror(errno));
  print_summary(m);
  merge_close(m);
  return 0;
}
