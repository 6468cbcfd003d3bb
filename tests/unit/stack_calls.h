/* Chains of calls in every form that compilers give them, for tests of what walks the stack:
 * each function calls the next one, drawn at random, from somewhere inside. */
#ifndef MASU_STACK_CALLS_H
#define MASU_STACK_CALLS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct chain {
  uint64_t random;
  unsigned left; /* calls */
  void (*end)(struct chain *c);
} chain;

typedef void chain_link(chain *c);
typedef struct chain_links {
  chain_link *const *link;
  size_t count;
} chain_links;

/* The next call, or the end. */
void chain_next(chain *c);
/* 0 ... below - 1 */
unsigned chain_draw(chain *c, unsigned below);
/* For what is called back without an argument. */
extern __thread chain *chain_now;

#ifdef __cplusplus
}
#endif

#endif
