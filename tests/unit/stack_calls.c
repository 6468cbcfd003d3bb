/* Compiled several times, with different options; VARIANT: the name of each. */
#include "stack_calls.h"

#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* What is called must not be the last thing that a function does, or it is no call. */
#define AFTER() __asm__ volatile("" : : : "memory")
#define USED(p) __asm__ volatile("" : : "r"(p) : "memory")

static void plainly(chain *c) {
  chain_next(c);
  AFTER();
}

static void with_registers(chain *c) {
  uint64_t a = chain_draw(c, 9), b = chain_draw(c, 9), d = chain_draw(c, 9), e = chain_draw(c, 9);
  uint64_t f = chain_draw(c, 9), g = chain_draw(c, 9), h = chain_draw(c, 9);
  chain_next(c);
  c->random += a * b + d * e + f * g + h * a;
}

static void with_large_frame(chain *c) {
  char large[20000];
  memset(large, 1, sizeof large);
  USED(large);
  chain_next(c);
  USED(large);
}

static void with_array(chain *c) {
  char array[1 + chain_draw(c, 3000)];
  memset(array, 1, sizeof array);
  USED(array);
  chain_next(c);
  USED(array);
}

static void with_alloca(chain *c) {
  for (unsigned i = chain_draw(c, 4); i > 0; i--)
    USED(alloca(16 * i));
  chain_next(c);
  AFTER();
}

static void aligned(chain *c) {
  _Alignas(64) char block[192];
  memset(block, 1, sizeof block);
  USED(block);
  chain_next(c);
  USED(block);
}

static void aligned_with_array(chain *c) {
  _Alignas(32) char block[64];
  char array[1 + chain_draw(c, 300)];
  memset(block, 1, sizeof block);
  memset(array, 1, sizeof array);
  USED(block);
  USED(array);
  chain_next(c);
  USED(block);
}

__attribute__((noinline)) static uint64_t many(chain *c, long a, long b, long d, long e, long f, long g, long h,
                                               long i) {
  chain_next(c);
  return (uint64_t)(a + b + d + e + f + g + h + i);
}
static void with_arguments(chain *c) { c->random += many(c, 1, 2, 3, 4, 5, 6, 7, (long)c->left); }

/* The call comes late, behind one that may have ended the function. */
static void late(chain *c) {
  if (chain_draw(c, 1000) == 999) {
    chain_next(c);
    AFTER();
    return;
  }
  char text[40];
  for (unsigned i = 0; i < sizeof text; i++)
    text[i] = (char)chain_draw(c, 100);
  USED(text);
  if (text[chain_draw(c, sizeof text)] >= 0)
    chain_next(c);
  AFTER();
}

static void with_setjmp(chain *c) {
  jmp_buf here;
  if (!setjmp(here)) {
    chain_next(c);
    longjmp(here, 1);
  }
  AFTER();
}

/* ---- Called back by the C library ---- */

static int compare(const void *a, const void *b) {
  chain *c = chain_now;
  chain_now = NULL;
  if (c)
    chain_next(c);
  return *(const int *)a - *(const int *)b;
}

static void in_qsort(chain *c) {
  int some[5] = {3, 1, 4, 1, 5};
  chain_now = c;
  qsort(some, 5, sizeof *some, compare);
  AFTER();
}

static void in_bsearch(chain *c) {
  int some[5] = {1, 2, 3, 4, 5}, wanted = 4;
  chain_now = c;
  USED(bsearch(&wanted, some, 5, sizeof *some, compare));
}

static void called_once(void) {
  chain_next(chain_now);
  AFTER();
}

static void in_once(chain *c) {
  pthread_once_t once = PTHREAD_ONCE_INIT;
  chain_now = c;
  pthread_once(&once, called_once);
  AFTER();
}

static void handler(int signal) {
  (void)signal;
  chain_next(chain_now);
  AFTER();
}

/* Other threads set theirs at the same time: one signal is always on the stack that is in use, the
 * other always elsewhere. A sanitizer gives each thread a small stack for signals. */
static void in_handler(chain *c) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
  sigaction(SIGUSR1, &action, NULL);
  chain_now = c;
  pthread_kill(pthread_self(), SIGUSR1);
  AFTER();
}

/* Where the handler has a stack of its own, unless a caller uses it already. */
static void in_handler_elsewhere(chain *c) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER | SA_ONSTACK};
  stack_t mine = {.ss_size = 512 << 10}, before;
  if (sigaltstack(NULL, &before) != 0 || (before.ss_flags & SS_ONSTACK)) {
    in_handler(c);
    return;
  }
  mine.ss_sp = malloc(mine.ss_size);
  sigaltstack(&mine, NULL);
  sigaction(SIGUSR2, &action, NULL);
  chain_now = c;
  pthread_kill(pthread_self(), SIGUSR2);
  sigaltstack(&before, NULL);
  free(mine.ss_sp);
}

static chain_link *const all[] = {
    plainly,        with_registers, with_large_frame, with_array, with_alloca, aligned, aligned_with_array,
    with_arguments, late,           with_setjmp,      in_qsort,   in_bsearch,  in_once, in_handler,
    in_handler_elsewhere,
};

#define NAME_OF(variant) chain_links_##variant
#define NAME(variant) NAME_OF(variant)
extern const chain_links NAME(VARIANT);
const chain_links NAME(VARIANT) = {all, sizeof all / sizeof *all};
