/* Gate: what threads that sleep hold goes back, and what is theirs is as they left it. With the option `sleepers`.
 *   sleepers            each of 64 threads allocates 1 MiB in small blocks, frees all but a few and sleeps in a
 *                       system call. By and by hardly more than the few is resident. They wake, look at their
 *                       blocks, and do the same again.
 *   sleepers initial    the initial thread sleeps and ends without another allocation; the process ends with the
 *                       last of the others */
#include "gate.h"

#include <malloc.h>
#include <sys/syscall.h>

enum { THREADS = 64, ROUNDS = 3, KEPT = 5, BLOCKS = 65536, PART_KIB = 200, DEADLINE_S = 100 };

typedef struct worker {
  pthread_t thread;
  int wake[2];
  unsigned char *kept[KEPT];
  size_t size[KEPT];
} worker;

static worker workers[THREADS];
static pthread_barrier_t asleep;

static size_t small_size(uint64_t *random) {
  size_t most = (size_t)32 << next_random(random) % 10;
  return most / 2 + next_random(random) % (most / 2);
}

static void burst(worker *w, uint64_t *random) {
  void **block = malloc(BLOCKS * sizeof *block);
  size_t count = 0, chosen[KEPT];
  CHECK(block, "no memory");
  for (size_t total = 0, n; total < 1 * MIB; total += n, count++) {
    n = small_size(random);
    CHECK(count < BLOCKS && (block[count] = malloc(n)), "no memory");
    touch(block[count], n);
  }
  for (size_t i = 0; i < KEPT; i++) {
    chosen[i] = count / KEPT * i;
    w->size[i] = malloc_usable_size(block[chosen[i]]);
    w->kept[i] = block[chosen[i]];
    stamp(w->kept[i], w->size[i], (unsigned char)(w - workers));
    block[chosen[i]] = NULL;
  }
  for (size_t i = 0; i < count; i++)
    free(block[i]);
  free(block);
}

static void *works_and_sleeps(void *argument) {
  worker *w = argument;
  uint64_t random = (uint64_t)(w - workers) + 1;
  char c;
  for (int round = 0; round < ROUNDS; round++) {
    burst(w, &random);
    pthread_barrier_wait(&asleep);
    CHECK(read(w->wake[0], &c, 1) == 1, "read");
    for (size_t i = 0; i < KEPT; i++) {
      CHECK(stamped(w->kept[i], w->size[i], (unsigned char)(w - workers)), "a block was changed");
      free(w->kept[i]);
    }
  }
  return NULL;
}

/* As the library asks; sandboxes may not answer. */
static void skip_if_not_told(void) {
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/self/task/%ld/syscall", syscall(SYS_gettid));
  if (!read_file(path, text, sizeof text))
    skip("the system doesn't say what threads do");
}

static void *ends_at_once(void *unused) { pthread_exit(unused); }

static void *ends_last(void *unused) {
  sleep_ms(200);
  return unused;
}

/* The C library allocates when a thread calls pthread_exit for the first time. */
_Noreturn static void end_first(void) {
  finish(start(ends_at_once, NULL));
  start(ends_last, NULL);
  sleep_ms(500);
  pthread_exit(NULL);
}

int main(int argc, char **argv) {
  gate_begin(300);
  skip_if_not_told();
  if (argc > 1 && strcmp(argv[1], "initial") == 0)
    end_first();
  pthread_barrier_init(&asleep, NULL, THREADS + 1);
  size_t before = resident_kib();
  for (worker *w = workers; w < workers + THREADS; w++) {
    CHECK(pipe(w->wake) == 0, "pipe");
    w->thread = start(works_and_sleeps, w);
  }
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_wait(&asleep);
    double since = now_s();
    while (resident_kib() > before + THREADS * PART_KIB) {
      CHECK(now_s() < since + DEADLINE_S, "%zu KiB for each thread", (resident_kib() - before) / THREADS);
      sleep_ms(20);
    }
    for (worker *w = workers; w < workers + THREADS; w++)
      CHECK(write(w->wake[1], "", 1) == 1, "write");
  }
  for (worker *w = workers; w < workers + THREADS; w++)
    finish(w->thread);
  return 0;
}
