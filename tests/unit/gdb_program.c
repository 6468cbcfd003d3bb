/* A program to look into: test_gdb.py stops it in stop_here and asks about what the
 * variables name. */
#include <masu/profile.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *used, *freed, *unthreaded, *at_hand, *waiting, *mailed, *parked, *seen;
char *run, *mapping, *front, *reused;
char on_no_heap[64];

static pthread_barrier_t reached, go_on;

void stop_here(void) { puts("stopped"); }

/* Frees what is the first thread's, and stays while we look. */
static void *other_thread(void *unused) {
  void *own = malloc(100);
  (void)unused;
  free(mailed); /* of 4 KiB and more: goes at once */
  free(waiting); /* waits for others */
  pthread_barrier_wait(&reached);
  pthread_barrier_wait(&go_on);
  free(own);
  return NULL;
}

/* More slabs of the size than one, so that the first is parked. */
static char *fill(size_t size, int count) {
  char *first = malloc(size);
  memset(first, 1, size);
  for (int i = 1; i < count; i++)
    memset(malloc(size), 1, size);
  return first;
}

int main(void) {
  pthread_t thread;
  pthread_barrier_init(&reached, NULL, 2);
  pthread_barrier_init(&go_on, NULL, 2);
  used = malloc(64);
  freed = malloc(64);
  waiting = malloc(64);
  void *next = malloc(64);
  at_hand = (char *)next + 64;
  unthreaded = (char *)((size_t)used & ~(size_t)0xffff) + 0xffc0;
  free(freed);
  mailed = fill(4096, 17);
  parked = fill(5120, 26);
  masu_profile_start(1);
  seen = malloc(700);
  masu_profile_stop();
  run = malloc(500000);
  mapping = malloc(5000000);
  reused = malloc(12u << 20);
  free(reused);
  front = malloc(300000);
  free(front);
  pthread_create(&thread, NULL, other_thread, NULL);
  pthread_barrier_wait(&reached);
  stop_here();
  pthread_barrier_wait(&go_on);
  pthread_join(thread, NULL);
  return 0;
}
