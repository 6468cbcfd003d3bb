/* answers LIBRARY [loaded]
 *
 * Run with LIBRARY preloaded: does LIBRARY answer what programs ask an allocator, and
 * (unless only that it is loaded matters) are the blocks good? Prints its path; ends with
 * 1 and the reason when not. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) ((what) ? (void)0 : fail(#what))

static void fail(const char *what) {
  printf("failed: %s\n", what);
  exit(1);
}

/* A library that offers no operator new has it from libstdc++, which calls malloc. */
static void check_symbol(const char *library, const char *name, int needed) {
  char path[PATH_MAX];
  Dl_info info;
  void *symbol = dlsym(RTLD_DEFAULT, name);
  if (symbol == NULL && !needed) return;
  if (symbol != NULL && dladdr(symbol, &info) != 0 && realpath(info.dli_fname, path) != NULL &&
      strcmp(path, library) == 0)
    return;
  printf("%s is not the library's\n", name);
  exit(1);
}

enum { BLOCKS = 200 };

/* From 1 byte to some MiB, every one a little larger than the last. */
static size_t size_of(int i) { return (size_t)i + ((size_t)1 << i / 9); }

static int is_filled(const unsigned char *p, unsigned char with, size_t n) {
  return n == 0 || (p[0] == with && memcmp(p, p + 1, n - 1) == 0);
}

/* Leaves the blocks to be checked and freed by another thread. */
static void *make(void *result) {
  unsigned char **blocks = result;
  for (int i = 0; i < BLOCKS; i++) {
    size_t n = size_of(i), alignment = (size_t)16 << i % 9;
    void *p = NULL;
    switch (i % 5) {
    case 0: p = malloc(n); break;
    case 1:
      p = calloc(1, n);
      CHECK(p != NULL && is_filled(p, 0, n));
      break;
    case 2:
      p = aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment);
      CHECK((uintptr_t)p % alignment == 0);
      break;
    case 3:
      CHECK(posix_memalign(&p, alignment, n) == 0 && (uintptr_t)p % alignment == 0);
      break;
    case 4:
      p = malloc(n / 2 + 1);
      CHECK(p != NULL);
      memset(p, i & 255, n / 2 + 1);
      p = realloc(p, n);
      CHECK(p != NULL && is_filled(p, i & 255, n / 2));
    }
    CHECK(p != NULL && malloc_usable_size(p) >= n);
    memset(p, i & 255, n);
    blocks[i] = p;
  }
  return NULL;
}

int main(int argc, char **argv) {
  static const char *const needed[] = {"malloc",         "free",     "calloc",
                                       "realloc",        "memalign", "aligned_alloc",
                                       "posix_memalign", "malloc_usable_size"};
  static unsigned char *blocks[BLOCKS];
  static char library[PATH_MAX];
  if (argc < 2 || argc > 3 || realpath(argv[1], library) == NULL) return 2;
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
    check_symbol(library, needed[i], 1);
  check_symbol(library, "_Znwm", 0);
  check_symbol(library, "_ZdlPv", 0);
  for (int round = argc == 3 ? 3 : 0; round < 3; round++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, make, blocks) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < BLOCKS; i++) {
      CHECK(is_filled(blocks[i], i & 255, size_of(i)));
      free(blocks[i]);
    }
    make(blocks);
    for (int i = BLOCKS - 1; i >= 0; i--) {
      CHECK(is_filled(blocks[i], i & 255, size_of(i)));
      free(blocks[i]);
    }
  }
  puts(library);
  return 0;
}
