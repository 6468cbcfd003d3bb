/* larson_like [THREADS] [GENERATIONS] [REPLACEMENTS]
 *
 * THREADS (8) servers, each with 1,000 blocks of 8 to 1,000 bytes. A server does
 * REPLACEMENTS (50,000): frees a random block and allocates another in its place.
 * Then it starts its successor, hands over all blocks, and ends. GENERATIONS: 20
 * per server. After Larson and Krishnan. Each block carries its size, checked
 * before it is freed; at the end some more are filled. */
#include <pthread.h>

#include "workload.h"

enum { BLOCKS = 1000, SMALLEST = 8, LARGEST = 1000 };

typedef struct server {
  size_t *block[BLOCKS];
  size_t size[BLOCKS];
  size_t generations_left;
  uint32_t random;
} server;

static size_t replacements, running;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static void block_fill(server *s, size_t i) {
  s->size[i] = SMALLEST + xorshift32(&s->random) % (LARGEST - SMALLEST + 1);
  s->block[i] = got(malloc(s->size[i]));
  *s->block[i] = s->size[i];
}

static void block_drop(server *s, size_t i) {
  if (*s->block[i] != s->size[i])
    fail("a block of %zu bytes was overwritten", s->size[i]);
  free(s->block[i]);
}

static void *serve(void *context);

static void thread_start(server *s) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, serve, s))
    fail("cannot start a thread");
  pthread_detach(thread);
}

static void server_end(server *s) {
  for (size_t i = 0; i < BLOCKS; i++)
    block_drop(s, i);
  free(s);
  pthread_mutex_lock(&mutex);
  if (!--running)
    pthread_cond_signal(&ended);
  pthread_mutex_unlock(&mutex);
}

static void *serve(void *context) {
  server *s = context;
  for (size_t i = 0; i < replacements; i++) {
    size_t victim = xorshift32(&s->random) % BLOCKS;
    block_drop(s, victim);
    block_fill(s, victim);
  }
  if (--s->generations_left)
    thread_start(s);
  else
    server_end(s);
  return NULL;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t threads = argument(argc, argv, 1, 8, "THREADS");
  size_t generations = argument(argc, argv, 2, 20, "GENERATIONS");
  replacements = argument(argc, argv, 3, 50000, "REPLACEMENTS");
  running = threads;

  uint64_t cpu = cpu_ns(), start = now_ns();
  for (size_t i = 0; i < threads; i++) {
    server *s = got(malloc(sizeof *s));
    s->generations_left = generations;
    s->random = 2463534242u + (uint32_t)i;
    for (size_t j = 0; j < BLOCKS; j++)
      block_fill(s, j);
    thread_start(s);
  }
  pthread_mutex_lock(&mutex);
  while (running)
    pthread_cond_wait(&ended, &mutex);
  pthread_mutex_unlock(&mutex);
  double time = (double)(now_ns() - start), cpu_time = (double)(cpu_ns() - cpu);
  double all = (double)threads * (double)generations * (double)replacements;
  long peak = status_kib("VmHWM");
  blocks_check(SMALLEST, LARGEST);
  printf("larson_like: %zu servers, %zu generations, %zu replacements each: %.3f s, %.2f million per second, "
         "peak %ld KiB\n",
         threads, generations, replacements, time * 1e-9, all * 1e3 / time, peak);
  figure("wall_s", time * 1e-9);
  figure("cpu_ns", cpu_time);
  figure("replacements_per_s", all * 1e9 / time);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
