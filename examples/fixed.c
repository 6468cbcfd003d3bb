/* A real-time part: blocks that are there before they are needed. */
#include <masu/fixed.h>

#include <stdio.h>

enum { MESSAGES = 64, MESSAGE_SIZE = 256 };

static _Alignas(16) char memory[MESSAGES * MESSAGE_SIZE]; /* no allocation at all */

int main(void) {
  masu_fixed messages;
  size_t count = masu_fixed_init(&messages, memory, sizeof memory, MESSAGE_SIZE, 0);
  printf("%zu messages of %zu bytes\n", count, messages.block);

  void *queue[MESSAGES + 1];
  size_t n = 0;
  while (n <= MESSAGES && (queue[n] = masu_fixed_alloc(&messages, 200)))
    n++;
  printf("%zu queued, then NULL\n", n);
  while (n > 0)
    masu_fixed_free(&messages, queue[--n]);

  /* With a fallback what doesn't fit comes from malloc, and one free serves both. */
  masu_fixed *mixed = masu_fixed_create(MESSAGE_SIZE, MESSAGES, MASU_FIXED_FALLBACK);
  if (!mixed)
    return 1;
  char *p = masu_fixed_alloc(mixed, 100);
  printf("own block: %d\n", masu_fixed_owns(mixed, p));
  p = masu_fixed_realloc(mixed, p, 10000);
  printf("after growing: %d, %zu in use\n", masu_fixed_owns(mixed, p), masu_fixed_live(mixed));
  masu_fixed_free(mixed, p);
  masu_fixed_destroy(mixed);
  return 0;
}
