/* A library to be preloaded after masu, as fork_locks describes: its constructor
 * registers handlers that take its mutex, and starts a thread that allocates with the
 * mutex held until the process ends. */
#include "gate.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void prepare(void) { CHECK(pthread_mutex_lock(&mutex) == 0, "mutex"); }
static void release(void) { CHECK(pthread_mutex_unlock(&mutex) == 0, "mutex"); }

static void *holds_the_mutex(void *unused) {
  uint64_t random = 1;
  for (;;) {
    pthread_mutex_lock(&mutex);
    churn(&random);
    pthread_mutex_unlock(&mutex);
  }
  return unused;
}

__attribute__((constructor)) static void construct(void) {
  CHECK(pthread_atfork(prepare, release, release) == 0, "atfork");
  pthread_detach(start(holds_the_mutex, NULL));
}
