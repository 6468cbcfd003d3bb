/* Two threads that do not own a block free it. */
#include "misuse.h"

static void *frees(void *p) {
  free(p);
  return NULL;
}
int main(void) {
  void *p = announce(malloc(100));
  for (int i = 0; i < 2; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, frees, hide(p));
    pthread_join(thread, NULL);
  }
}
