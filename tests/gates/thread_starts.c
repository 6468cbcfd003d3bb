/* Gate: the allocator inside pthread_create, dlopen, dlsym and dlerror, from many
 * threads at once: threads that make threads, joined or detached, with and
 * without their own stacks, and the dynamic linker allocating for us. */
#include <stdatomic.h>

#include "gate.h"

static atomic_int alive;

static void *leaf(void *p) {
  free(p); /* the first thing this thread does is free another's block */
  p = malloc(1000);
  touch(p, 1000);
  atomic_fetch_sub(&alive, 1);
  return p;
}

static void detached(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  atomic_fetch_add(&alive, 1);
  CHECK(pthread_attr_init(&attributes) == 0, "attr");
  CHECK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0, "detach");
  CHECK(pthread_attr_setstacksize(&attributes, 64 * KIB) == 0, "stack");
  /* attributes with an affinity mask allocate */
  cpu_set_t all;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "affinity");
  CHECK(pthread_attr_setaffinity_np(&attributes, sizeof all, &all) == 0, "affinity");
  CHECK(pthread_create(&thread, &attributes, leaf, malloc(10)) == 0, "create");
  pthread_attr_destroy(&attributes);
}
static void joined(void) {
  void *result;
  atomic_fetch_add(&alive, 1);
  pthread_t thread = start(leaf, malloc(5000));
  CHECK(pthread_join(thread, &result) == 0, "join");
  free(result);
}
static void own_stack(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  void *stack = aligned_alloc(4096, 128 * KIB), *result;
  atomic_fetch_add(&alive, 1);
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstack(&attributes, stack, 128 * KIB) == 0, "stack");
  CHECK(pthread_create(&thread, &attributes, leaf, malloc(100)) == 0, "create");
  CHECK(pthread_join(thread, &result) == 0, "join");
  free(result);
  free(stack);
}
static void linker(void) {
  void *library = dlopen("libm.so.6", RTLD_NOW);
  CHECK(library && dlsym(library, "cos"), "dlopen");
  CHECK(!dlsym(library, "there is no such name") && dlerror(), "dlerror");
  CHECK(!dlopen("/no/such/library.so", RTLD_NOW) && dlerror(), "dlerror");
  CHECK(dlclose(library) == 0, "dlclose");
}

static void *body(void *unused) {
  for (int i = 0; i < 300; i++) {
    joined();
    detached();
    own_stack();
    linker();
  }
  return unused;
}

int main(void) {
  gate_begin(300);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    threads[i] = start(body, NULL);
  for (int i = 0; i < 4; i++)
    finish(threads[i]);
  while (atomic_load(&alive) > 0) /* the watchdog ends this if they never do */
    sched_yield();
  return 0;
}
