/* Gate: a signal handler that allocates and frees while the interrupted code is
 * inside malloc or free. POSIX forbids it and the C library's malloc deadlocks;
 * programs do it all the same. No deadlock is what we demand, and blocks as they were asked
 * for. The handler uses other size classes than the code it interrupts and keeps its blocks
 * private. */
#include <sys/time.h>

#include "sender.h"

enum { SIGNALS = 40000 };

static void *handlers[4];
static unsigned turn;

static void handler(int number) {
  static const size_t sizes[4] = {200, 6000, 10000, 700000};
  (void)number;
  int saved = errno;
  for (int i = 0; i < 4; i++) {
    free(handlers[i]);
    handlers[i] = malloc(sizes[i]);
    touch(handlers[i], handlers[i] ? 1 : 0);
  }
  size_t align = (size_t)2048 << turn % 5;
  void *aligned = aligned_alloc(align, 100);
  CHECK(!((uintptr_t)aligned & (align - 1)), "%p for an alignment of %zu", aligned, align);
  free(aligned);
  if (++turn % 16 == 0)
    free(malloc(40 * MIB));
  errno = saved;
  atomic_fetch_add(&handled, 1);
}

/* Refills, empty slabs, medium and large runs, direct mappings, frees that send
 * memory back: the slow paths all the time. */
static void work(uint64_t *random) {
  static const size_t sizes[] = {24, 24 * KIB, 100 * KIB, 3 * MIB, 1000, 70 * MIB};
  static void *blocks[600];
  for (size_t i = 0; i < COUNT(blocks); i++) {
    size_t kind = next_random(random) % 40;
    blocks[i] = malloc(sizes[kind < 36    ? kind % 2 ? 0 : 4
                             : kind == 36 ? 3
                             : kind == 37 ? 1
                             : kind == 38 ? 2
                             : i % 50     ? 1
                                          : 5]);
  }
  for (size_t i = 0; i < COUNT(blocks); i++)
    if (i % 7 == 0)
      blocks[i] = realloc(blocks[i], 2 * MIB);
  for (size_t i = 0; i < COUNT(blocks); i++)
    free(blocks[i]);
  if (next_random(random) % 16 == 0)
    ((void (*)(size_t))dlsym(RTLD_DEFAULT, "malloc_trim"))(0);
}

int main(void) {
  gate_begin(300);
  struct itimerval every_ms = {{0, 1000}, {0, 1000}};
  uint64_t random = 9;
  handle(SIGVTALRM, handler);
  sender_start(handler, SIGNALS);
  CHECK(setitimer(ITIMER_VIRTUAL, &every_ms, NULL) == 0, "setitimer");
  while (atomic_load(&handled) < SIGNALS)
    work(&random);
  sender_finish();
  return 0;
}
