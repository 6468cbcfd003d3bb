/* Gate: memory runs out (RLIMIT_AS, set while the program runs): NULL and ENOMEM.
 * Everything is freed: then the same amount can be had again, at any size, small
 * ones freed and large ones asked for and the other way round. The same with
 * threads that run out together. */
#include <sys/resource.h>

#include "gate.h"

static const size_t sizes[] = {16, 200, 3000, 30000, 100000, 600000, 3000000, 20000000};

/* All there is, in a list through the blocks. Bytes are counted. calloc finds nothing
 * where malloc does not; what others give back meanwhile (the helper thread, threads that
 * run out as well), either may find: then malloc goes on. How often that was is returned
 * in `again`. */
static void *exhaust(size_t n, size_t *bytes, int *again) {
  void *list = NULL, **p;
  *bytes = 0;
  *again = -1;
  errno = 0;
  do {
    (*again)++;
    while ((p = malloc(n))) {
      *p = list;
      list = p;
      *bytes += n;
    }
    CHECK(errno == ENOMEM, "errno is %d", errno);
    if (n >= 100 && (p = calloc(1, n))) {
      *p = list;
      list = p;
      *bytes += n;
    }
  } while (p);
  return list;
}
/* The same by one thread alone. */
static void *exhaust_alone(size_t n, size_t *bytes) {
  int again;
  void *list = exhaust(n, bytes, &again);
  CHECK(again <= 3, "calloc finds memory where malloc does not: %d times", again);
  return list;
}
static void release(void *list) {
  while (list) {
    void *next = *(void **)list;
    free(list);
    list = next;
  }
}

static pthread_barrier_t barrier;
static void *body(void *number) {
  size_t bytes, n = sizes[(uintptr_t)number];
  int again;
  pthread_barrier_wait(&barrier);
  for (int round = 0; round < 3; round++) {
    void *list = exhaust(n, &bytes, &again);
    pthread_barrier_wait(&barrier);
    release(list);
    pthread_barrier_wait(&barrier);
    void *p = malloc(n); /* all is free: everybody gets something */
    CHECK(p, "nothing for %zu bytes", n);
    pthread_barrier_wait(&barrier);
    free(p);
  }
  return NULL;
}

int main(void) {
  gate_begin(300);
  pthread_t threads[COUNT(sizes)]; /* before the limit: stacks need memory too */
  pthread_barrier_init(&barrier, NULL, COUNT(sizes) + 1);
  for (uintptr_t i = 0; i < COUNT(sizes); i++)
    threads[i] = start(body, (void *)i);
  size_t limit = address_space_kib() * KIB + 300 * MIB;
  struct rlimit l = {limit, limit};
  CHECK(setrlimit(RLIMIT_AS, &l) == 0, "setrlimit");

  size_t first[COUNT(sizes)], bytes;
  for (size_t i = 0; i < COUNT(sizes); i++) {
    release(exhaust_alone(sizes[i], &first[i]));
    CHECK(first[i] >= (sizes[i] > 16 ? 200 : 130) * MIB - sizes[i],
          "only %zu MiB of 300 in blocks of %zu", first[i] / MIB, sizes[i]);
  }
  for (size_t i = 0; i < COUNT(sizes); i++)
    for (size_t j = 0; j < COUNT(sizes); j++) {
      release(exhaust_alone(sizes[i], &bytes));
      CHECK(bytes >= first[i] / 10 * 9, "%zu MiB in blocks of %zu, %zu the first time",
            bytes / MIB, sizes[i], first[i] / MIB);
      void *list = exhaust_alone(sizes[j], &bytes);
      /* Two blocks fewer of the largest: address space is cut otherwise by then. */
      CHECK(bytes >= first[j] / 10 * 8,
            "%zu MiB in blocks of %zu after %zu, %zu the first time", bytes / MIB,
            sizes[j], sizes[i], first[j] / MIB);
      release(list);
    }

  for (int waits = 0; waits < 1 + 3 * 3; waits++)
    pthread_barrier_wait(&barrier);
  for (size_t i = 0; i < COUNT(sizes); i++)
    finish(threads[i]);
  return 0;
}
