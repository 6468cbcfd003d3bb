/* xmalloc [PRODUCERS] [CONSUMERS] [BATCHES]
 *
 * PRODUCERS (2) threads allocate BATCHES (80,000) batches together, each of 100 blocks
 * of random sizes up to 500 bytes, and put them into a queue of 64 places; CONSUMERS
 * (2) take them out and free them. `xmalloc 1 4` is one to many, `xmalloc 4 1` many to
 * one. After Lever and Boreham's test of blocks freed by another thread than the one
 * that allocated them. Each block carries its size, checked before it is freed. */
#include "threads.h"

enum { BATCH = 100, PLACES = 64, LARGEST = 500 };

typedef struct batch {
  void *block[BATCH];
} batch;

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t filled, emptied;
  batch *place[PLACES];
  size_t put, taken;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER, .emptied = PTHREAD_COND_INITIALIZER};

static size_t producers, consumers, batches;

static void queue_put(batch *b) {
  pthread_mutex_lock(&queue.mutex);
  while (queue.put - queue.taken == PLACES)
    pthread_cond_wait(&queue.emptied, &queue.mutex);
  queue.place[queue.put++ % PLACES] = b;
  pthread_cond_signal(&queue.filled);
  pthread_mutex_unlock(&queue.mutex);
}

/* NULL when all batches were taken. */
static batch *queue_take(void) {
  batch *b = NULL;
  pthread_mutex_lock(&queue.mutex);
  while (queue.put == queue.taken && queue.taken < batches)
    pthread_cond_wait(&queue.filled, &queue.mutex);
  if (queue.taken < batches)
    b = queue.place[queue.taken++ % PLACES];
  if (queue.taken == batches)
    pthread_cond_broadcast(&queue.filled);
  pthread_cond_signal(&queue.emptied);
  pthread_mutex_unlock(&queue.mutex);
  return b;
}

static void produce(size_t number) {
  uint32_t random = random_seed(number);
  for (size_t i = number; i < batches; i += producers) {
    batch *b = got(malloc(sizeof *b));
    for (size_t j = 0; j < BATCH; j++)
      b->block[j] = sealed_new(random_between(&random, SEALED_MIN, LARGEST));
    queue_put(b);
  }
}

static void consume(void) {
  for (batch *b; (b = queue_take());) {
    for (size_t j = 0; j < BATCH; j++)
      sealed_free(b->block[j]);
    free(b);
  }
}

static void *run(void *number) {
  if ((size_t)number < producers)
    produce((size_t)number);
  else
    consume();
  return NULL;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  producers = argument(argc, argv, 1, 2, "PRODUCERS");
  consumers = argument(argc, argv, 2, 2, "CONSUMERS");
  batches = argument(argc, argv, 3, 80000, "BATCHES");
  uint64_t start = now_ns();
  threads_run(producers + consumers, run);
  double time = seconds_since(start), objects = (double)batches * BATCH;
  printf("xmalloc: %zu producers, %zu consumers, %zu batches of %d: %.3f s, %.2f million objects per second\n",
         producers, consumers, batches, BATCH, time, objects * 1e-6 / time);
  figure("wall_s", time);
  figure("objects_per_s", objects / time);
  figure("peak_rss_kib", (double)status_kib("VmHWM"));
  figures_end();
  return 0;
}
