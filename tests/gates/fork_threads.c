/* Gate: fork from a process whose threads are anywhere inside the allocator. The
 * child frees the blocks of all of the parent's threads, allocates, forks again,
 * makes threads. Two threads fork at the same time. Deadlocks meet the watchdog. */
#include "hammer.h"

static int forks = 260; /* of each of the two forking threads */

static void allocate_some(uint64_t seed, int count) {
  struct parcel *some[100];
  CHECK(count <= 100, "table");
  for (int i = 0; i < count; i++)
    CHECK((some[i] = parcel_make(&seed)), "out of memory");
  for (int i = 0; i < count; i++)
    parcel_free(some[i]);
}
static void *thread_of_child(void *argument) {
  allocate_some((uintptr_t)argument, 50);
  return malloc(100);
}

static void child(int number) {
  watchdog(20);
  allocate_some(1 + (uint64_t)number, 100);
  if (number % 2)
    hammer_free_all();
  pid_t grandchild = fork();
  if (grandchild == 0) {
    watchdog(20);
    hammer_free_all();
    allocate_some(3 + (uint64_t)number, 50);
    pid_t last = fork();
    if (last == 0) {
      watchdog(20);
      allocate_some(5, 20);
      _exit(0);
    }
    wait_for(last, "great-grandchild");
    _exit(0);
  }
  if (number % 4 == 0) {
    void *theirs[3];
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
      threads[i] = start(thread_of_child, (void *)(i + 1));
    for (int i = 0; i < 3; i++)
      pthread_join(threads[i], &theirs[i]);
    for (int i = 0; i < 3; i++)
      free(theirs[i]);
  }
  wait_for(grandchild, "grandchild");
  hammer_free_all();
  allocate_some(7 + (uint64_t)number, 100);
  if (number % 8 == 0)
    exit(0);
  _exit(0);
}

static void *forker(void *unused) {
  for (int i = 0; i < forks; i++) {
    allocate_some(11, i % 10);
    pid_t pid = fork();
    if (pid == 0)
      child(i);
    wait_for(pid, "child");
  }
  return unused;
}

int main(int argc, char **argv) {
  if (argc > 1)
    forks = atoi(argv[1]);
  gate_begin(300);
  hammer_start();
  pthread_t second = start(forker, NULL);
  forker(NULL);
  finish(second);
  hammer_finish();
  return 0;
}
