/* misuse: what these programs share. Each makes one mistake with one block. It
 * prints the block's address first; expect.c holds the report against it. */
#ifndef MASU_TESTS_MISUSE_H
#define MASU_TESTS_MISUSE_H

#include <masu.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The same pointer, in a way that the compiler cannot follow and warn about. */
static inline void *hide(void *p) {
  __asm__("" : "+r"(p));
  return p;
}
static inline void *announce(void *p) {
  p = hide(p);
  dprintf(1, "%p\n", p);
  return p;
}

#endif
