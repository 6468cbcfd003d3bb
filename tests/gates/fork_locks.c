/* Gate: fork while other threads hold locks that fork waits for, and allocate.
 *
 * fork itself takes the lock of the C library's list of streams: a thread that flushes
 * all streams holds it while a memory stream grows. And a fork handler that a library
 * (fork_locks_library.c) has registered in its constructor takes the library's mutex,
 * with which a thread of that library allocates. An allocator that is prepared for the
 * fork before them waits for ever. */
#include <stdatomic.h>
#include <stdio.h>

#include "gate.h"

static int forks = 300;
static atomic_bool stop;

/* Every flush makes room for what was written since, by realloc. */
static void *holds_the_streams(void *unused) {
  static char line[30000];
  memset(line, 'x', sizeof line - 1);
  while (!atomic_load(&stop)) {
    char *text;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    CHECK(stream, "open_memstream");
    for (int i = 0; i < 20; i++) {
      fputs(line, stream);
      fflush(NULL);
    }
    fclose(stream);
    free(text);
  }
  return unused;
}

int main(int argc, char **argv) {
  if (argc > 1)
    forks = atoi(argv[1]);
  gate_begin(300);
  uint64_t random = 7;
  pthread_t streams = start(holds_the_streams, NULL);
  for (int i = 0; i < forks; i++) {
    churn(&random);
    pid_t pid = fork();
    if (pid == 0) {
      watchdog(60);
      churn(&random);
      _exit(0);
    }
    wait_for(pid, "child");
  }
  atomic_store(&stop, true);
  finish(streams);
  return 0;
}
