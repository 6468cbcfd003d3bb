/* Threads of a workload program: started and joined, or the program fails. */
#ifndef THREADS_H
#define THREADS_H

#include <pthread.h>

#include "workload.h"

static inline pthread_t thread_new(void *(*run)(void *), void *context) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, context))
    fail("cannot start a thread");
  return thread;
}

static inline void thread_join(pthread_t thread) {
  if (pthread_join(thread, NULL))
    fail("cannot join a thread");
}

/* Runs `count` threads, run(0) and up, and waits until all have ended. */
static inline void threads_run(size_t count, void *(*run)(void *)) {
  pthread_t *thread = (pthread_t *)got(malloc(count * sizeof *thread));
  for (size_t i = 0; i < count; i++)
    thread[i] = thread_new(run, (void *)i);
  for (size_t i = 0; i < count; i++)
    thread_join(thread[i]);
  free(thread);
}

#endif
