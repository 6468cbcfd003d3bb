/* Gate: 200 threads on few processors, all inside the allocator: a fixed amount of
 * work ends; then all on one processor; then, where the system allows it, with
 * a real-time thread among them. It interrupts ordinary threads that hold a lock;
 * if it spins for the lock, its holder does not get the processor. The watchdog is
 * the judge, and the processor time that the real-time thread burns. */
#include <stdatomic.h>

#include "gate.h"

enum { THREADS = 200 };

static int steps = 6000;

static _Atomic(void *) shared[1024];
static pthread_barrier_t barrier;

static atomic_int ordinary; /* threads at work */

static void *body(void *number) {
  uint64_t random = 1 + (uintptr_t)number;
  void *own[32] = {0};
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < steps; i++) {
    size_t n = random_size(&random), slot = next_random(&random) % COUNT(own);
    if (i % 16 == 0) /* the locks: large and medium sizes */
      n += 100000 + n * 20;
    free(own[slot]);
    CHECK((own[slot] = malloc(n)), "no memory");
    touch(own[slot], 1);
    if (i % 4 == 0)
      own[slot] =
          atomic_exchange(&shared[next_random(&random) % COUNT(shared)], own[slot]);
  }
  for (size_t i = 0; i < COUNT(own); i++)
    free(own[i]);
  atomic_fetch_sub(&ordinary, 1);
  return NULL;
}

static double thread_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Sleeps a little, so that it wakes up in the middle of somebody's work, and needs
 * the locks at once. */
static void *interrupter(void *allowed) {
  struct sched_param priority = {.sched_priority = 1};
  if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) != 0)
    return NULL;
  *(bool *)allowed = true;
  struct timespec moment = {0, 20000};
  while (atomic_load(&ordinary) > 0) {
    nanosleep(&moment, NULL);
    double before = thread_s();
    for (size_t n = 40000; n < 1000000; n *= 2)
      free(malloc(n));
    void *many[20];
    for (size_t i = 0; i < COUNT(many); i++)
      many[i] = malloc(300000);
    for (size_t i = 0; i < COUNT(many); i++)
      free(many[i]);
    double burnt = thread_s() - before;
    CHECK(burnt < 0.5, "one round burnt %.2f s", burnt);
  }
  return NULL;
}

static void run(void) {
  pthread_t threads[THREADS];
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * KIB);
  pthread_barrier_init(&barrier, NULL, THREADS);
  atomic_store(&ordinary, THREADS);
  for (uintptr_t i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], &attributes, body, (void *)i) == 0,
          "pthread_create");
  for (int i = 0; i < THREADS; i++)
    finish(threads[i]);
}

int main(void) {
  gate_begin(300);
  run();
  cpu_set_t one;
  CPU_ZERO(&one);
  CHECK(sched_getaffinity(0, sizeof one, &one) == 0, "affinity");
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &one) && seen++)
      CPU_CLR(cpu, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "affinity");
  run();
  bool allowed = false;
  steps = 20000;
  atomic_store(&ordinary, THREADS); /* until run() says so too */
  pthread_t real_time = start(interrupter, &allowed);
  run();
  finish(real_time);
  if (!allowed)
    dprintf(2, "real-time threads are not allowed here: that part was left out\n");
  return 0;
}
