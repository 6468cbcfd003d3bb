#include "pipeline.h"

#include <pthread.h>

#include "../workload.h"

enum { FAN = 8, TOP_LEVEL = 3 };

/* ---- A queue of pointers, first in first out ---- */

typedef struct queue {
  void **items;
  size_t first, count, capacity; /* capacity: a power of two, or 0 */
} queue;

static void queue_grow(queue *q) {
  size_t capacity = q->capacity ? 2 * q->capacity : 16;
  void **items = got(malloc(capacity * sizeof *items));
  for (size_t i = 0; i < q->count; i++)
    items[i] = q->items[(q->first + i) & (q->capacity - 1)];
  free(q->items);
  *q = (queue){items, 0, q->count, capacity};
}

static void queue_put(queue *q, void *item) {
  if (q->count == q->capacity)
    queue_grow(q);
  q->items[(q->first + q->count++) & (q->capacity - 1)] = item;
}

static void *queue_take(queue *q) {
  void *item = q->items[q->first];
  q->first = (q->first + 1) & (q->capacity - 1);
  q->count--;
  return item;
}

/* ---- What there is to do ---- */

typedef enum kind { READ, EXTRACT, INDEX, MERGE, DONE } kind;

typedef struct task {
  kind kind;
  document document;     /* READ */
  chunk *chunk;          /* EXTRACT */
  words *words;          /* INDEX */
  partial *partial[FAN]; /* MERGE */
  size_t level;          /* MERGE: of the parts */
} task;

typedef struct pipeline {
  pthread_mutex_t mutex; /* guards all that follows */
  pthread_cond_t changed;
  const corpus *corpus;
  cursor at;
  queue chunks, words, levels[TOP_LEVEL + 1];
  size_t depth;   /* pieces that wait between two stages */
  size_t working; /* threads with a task */
  size_t waiting;
} pipeline;

static bool merge_next(pipeline *p, task *t) {
  for (size_t level = 0; level < TOP_LEVEL; level++)
    if (p->levels[level].count >= FAN) {
      t->kind = MERGE;
      t->level = level;
      for (size_t i = 0; i < FAN; i++)
        t->partial[i] = queue_take(&p->levels[level]);
      return true;
    }
  return false;
}

static bool index_next(pipeline *p, task *t, size_t at_least) {
  if (p->words.count < at_least)
    return false;
  t->kind = INDEX;
  t->words = queue_take(&p->words);
  return true;
}

static bool extract_next(pipeline *p, task *t, size_t at_least) {
  if (p->chunks.count < at_least)
    return false;
  t->kind = EXTRACT;
  t->chunk = queue_take(&p->chunks);
  return true;
}

static bool read_next(pipeline *p, task *t) {
  t->kind = READ;
  return corpus_next(p->corpus, &p->at, &t->document);
}

/* Empties what is full, latest stage first; then fills what is not. */
static bool task_find(pipeline *p, task *t) {
  return merge_next(p, t) || index_next(p, t, p->depth) || extract_next(p, t, p->depth) || read_next(p, t) ||
         extract_next(p, t, 1) || index_next(p, t, 1);
}

static void task_next(pipeline *p, task *t) {
  pthread_mutex_lock(&p->mutex);
  while (!task_find(p, t)) {
    if (!p->working) {
      t->kind = DONE;
      break;
    }
    p->waiting++;
    pthread_cond_wait(&p->changed, &p->mutex);
    p->waiting--;
  }
  p->working += t->kind != DONE;
  pthread_mutex_unlock(&p->mutex);
}

/* ---- Doing it ---- */

static void pass_on(pipeline *p, queue *to, void *item) {
  pthread_mutex_lock(&p->mutex);
  queue_put(to, item);
  if (p->waiting)
    pthread_cond_signal(&p->changed);
  pthread_mutex_unlock(&p->mutex);
}

static void pass_chunk(chunk *c, void *context) {
  pipeline *p = context;
  pass_on(p, &p->chunks, c);
}

static void task_do(pipeline *p, task *t) {
  switch (t->kind) {
  case READ:
    document_read(&t->document, pass_chunk, p);
    break;
  case EXTRACT:
    pass_on(p, &p->words, words_extract(t->chunk));
    break;
  case INDEX:
    pass_on(p, &p->levels[0], partial_from(t->words));
    break;
  case MERGE:
    for (size_t i = 1; i < FAN; i++)
      partial_merge(t->partial[0], t->partial[i]);
    pass_on(p, &p->levels[t->level + 1], t->partial[0]);
    break;
  case DONE:
    break;
  }
}

static void task_finish(pipeline *p) {
  pthread_mutex_lock(&p->mutex);
  if (!--p->working && p->waiting)
    pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->mutex);
}

static void *work(void *context) {
  pipeline *p = context;
  task t;
  for (task_next(p, &t); t.kind != DONE; task_next(p, &t)) {
    task_do(p, &t);
    task_finish(p);
  }
  return NULL;
}

static partials leftovers(pipeline *p) {
  partials all = {NULL, 0};
  for (size_t level = 0; level <= TOP_LEVEL; level++)
    all.count += p->levels[level].count;
  all.items = got(malloc((all.count + 1) * sizeof *all.items));
  size_t next = 0;
  for (size_t level = TOP_LEVEL + 1; level--;)
    while (p->levels[level].count)
      all.items[next++] = queue_take(&p->levels[level]);
  return all;
}

partials pipeline_run(const corpus *c, size_t threads) {
  pipeline p = {
      .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .corpus = c, .depth = threads};
  pthread_t *workers = got(malloc(threads * sizeof *workers));
  for (size_t i = 0; i < threads; i++)
    if (pthread_create(&workers[i], NULL, work, &p))
      fail("cannot start thread %zu", i + 1);
  for (size_t i = 0; i < threads; i++)
    pthread_join(workers[i], NULL);
  free(workers);
  partials left = leftovers(&p);
  free(p.chunks.items);
  free(p.words.items);
  for (size_t level = 0; level <= TOP_LEVEL; level++)
    free(p.levels[level].items);
  return left;
}
