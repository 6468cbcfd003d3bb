/* sites: allocates in functions of known shares, keeps what KEEP says until it ends, and prints how many bytes each
 * function keeps, as one JSON object. As a library its main can be called from elsewhere.
 *
 * Sizes, counts and depths differ, as those of a program do; `churns` allocates more than all others and keeps
 * nothing. The most is in use at the end, so that what is in use then is what was at the peak. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline))

/* Function, bytes of a block, blocks. */
#define KEEP(X)                                                                                                        \
  X(keeps_rows, 640, 40000)                                                                                            \
  X(keeps_pages, 16384, 1200)                                                                                          \
  X(keeps_names, 96, 150000)                                                                                           \
  X(keeps_images, 1500000, 7)                                                                                          \
  X(keeps_index, 4080, 2400)                                                                                           \
  X(keeps_queue, 200, 12000)                                                                                           \
  X(keeps_log, 65000, 20)                                                                                              \
  X(keeps_options, 48, 9000)                                                                                           \
  X(keeps_tables, 9000, 40)

static void *last;

static void keep(void *block, size_t size) {
  if (!block)
    exit(1);
  memset(block, 1, size);
  memcpy(block, &last, sizeof last);
  last = block;
}

#define FUNCTION(name, size, count)                                                                                    \
  APART void name(unsigned turn, unsigned turns) {                                                                     \
    for (unsigned i = turn; i < count; i += turns)                                                                     \
      keep(malloc(size), size);                                                                                        \
  }
KEEP(FUNCTION)

APART void churns(void) {
  for (unsigned i = 0; i < 3000; i++) {
    char *volatile block = malloc(50000);
    if (!block)
      exit(1);
    block[i] = 1;
    free(block);
  }
}

APART void works(unsigned depth, unsigned turn, unsigned turns) {
  if (depth) {
    works(depth - 1, turn, turns);
    __asm__ volatile("");
    return;
  }
#define CALL(name, size, count) name(turn, turns);
  KEEP(CALL)
  churns();
}

APART int main(int count, char **arguments) {
  enum { TURNS = 10 };
  (void)count, (void)arguments;
  for (unsigned turn = 0; turn < TURNS; turn++)
    works(2 + turn, turn, TURNS);
#define SHOW(name, size, count) printf("\"" #name "\": %llu, ", (unsigned long long)(size) * (count));
  printf("{");
  KEEP(SHOW)
  printf("\"churns\": 0}\n");
  fflush(stdout);
  return 0;
}
