/* sender: signals that come anywhere. A thread sends SIGUSR1 to the one that started it, waits for
 * each to be handled before the next, so that they all count, and then a random moment, so
 * that the work goes on. */
#ifndef MASU_TESTS_SENDER_H
#define MASU_TESTS_SENDER_H

#include <stdatomic.h>

#include "gate.h"

static atomic_int handled; /* the handler counts */
static atomic_bool sender_stop;
static int sender_most; /* signals: without an end a victim could be kept in one slow path for ever */
static pthread_t sender_victim, sender_thread;

/* Handlers do not interrupt each other; the watchdog does. */
static inline void handle(int number, void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigfillset(&action.sa_mask);
  sigdelset(&action.sa_mask, SIGALRM);
  CHECK(sigaction(number, &action, NULL) == 0, "sigaction");
}

static inline void *sender_body(void *unused) {
  sigset_t all; /* what the handler uses belongs to one thread */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  uint64_t random = 6;
  for (int before; (before = atomic_load(&handled)) < sender_most && !atomic_load(&sender_stop);) {
    pthread_kill(sender_victim, SIGUSR1);
    while (atomic_load(&handled) == before && !atomic_load(&sender_stop))
      sched_yield(); /* the victim may want this processor */
    for (volatile uint64_t pause = next_random(&random) % 20000; pause > 0; pause--) {
    }
  }
  return unused;
}
static inline void sender_start(void (*handler)(int), int most) {
  sender_most = most;
  handle(SIGUSR1, handler);
  sender_victim = pthread_self();
  sender_thread = start(sender_body, NULL);
  while (atomic_load(&handled) == 0) /* until it has blocked its signals */
    sched_yield();
}
static inline void sender_finish(void) {
  atomic_store(&sender_stop, true);
  finish(sender_thread);
}

#endif
