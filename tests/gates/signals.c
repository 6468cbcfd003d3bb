/* Gate: a signal handler that allocates and frees while the interrupted code is
 * inside malloc or free. POSIX forbids it and the C library's malloc deadlocks;
 * programs do it all the same. No deadlock is what we demand. The handler uses
 * other size classes than the code it interrupts and keeps its blocks private. */
#include <stdatomic.h>
#include <sys/time.h>

#include "gate.h"

enum { SIGNALS = 40000 };

static atomic_int handled;
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
  if (++turn % 16 == 0)
    free(malloc(40 * MIB));
  errno = saved;
  atomic_fetch_add(&handled, 1);
}

static pthread_t victim;
static atomic_bool stop;

/* Waits for each signal to be handled before the next, so that they all count, and
 * then a random moment, so that they come anywhere and the work goes on. */
static void *sender(void *unused) {
  sigset_t all; /* the handler's blocks belong to one thread */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  uint64_t random = 6;
  for (int before; (before = atomic_load(&handled)) < SIGNALS && !atomic_load(&stop);) {
    pthread_kill(victim, SIGUSR1);
    while (atomic_load(&handled) == before && !atomic_load(&stop))
      sched_yield(); /* the victim may want this processor */
    for (volatile uint64_t pause = next_random(&random) % 20000; pause > 0; pause--) {
    }
  }
  return unused;
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
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  struct itimerval every_ms = {{0, 1000}, {0, 1000}};
  uint64_t random = 9;
  sigfillset(&action.sa_mask); /* handlers do not interrupt each other */
  victim = pthread_self();
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
  CHECK(sigaction(SIGVTALRM, &action, NULL) == 0, "sigaction");
  pthread_t thread = start(sender, NULL);
  while (atomic_load(&handled) == 0) /* until it has blocked its signals */
    sched_yield();
  CHECK(setitimer(ITIMER_VIRTUAL, &every_ms, NULL) == 0, "setitimer");
  while (atomic_load(&handled) < SIGNALS)
    work(&random);
  atomic_store(&stop, true);
  finish(thread);
  return 0;
}
