/* Memory that is there before it is needed: no system call, no page fault. */
#include <masu.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static long faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

static long faults_of_work(void) {
  static void *blocks[5000];
  memset(blocks, 1, sizeof blocks);
  long before = faults();
  for (int i = 0; i < 5000; i++)
    if ((blocks[i] = malloc(2000)))
      memset(blocks[i], 1, 2000);
  for (int i = 0; i < 5000; i++)
    free(blocks[i]);
  return faults() - before;
}

int main(void) {
  masu_prewarm_class messages = {.size = 2000, .count = 5000};
  printf("unprepared: %ld page faults\n", faults_of_work());
  malloc_trim(0);
  if (masu_prewarm(0, &messages, 1))
    return 1;
  if (masu_lock(1)) /* against swapping; wants RLIMIT_MEMLOCK */
    puts("not locked");
  printf("prepared: %ld page faults\n", faults_of_work());
  return 0;
}
