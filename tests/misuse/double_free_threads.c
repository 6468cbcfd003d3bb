/* A small block is freed by its owner and by another thread. */
#include "misuse.h"

static void *frees(void *p) {
  free(p);
  return NULL;
}
int main(void) {
  pthread_t thread;
  void *p = announce(malloc(100));
  free(p);
  pthread_create(&thread, NULL, frees, hide(p));
  pthread_join(thread, NULL);
}
