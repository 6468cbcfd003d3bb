/* A floor, not an allocator: about the least work that a malloc and a free which are
 * called can do. What a preloaded allocator takes above it for a pair, it takes for its
 * own reasons. It does nothing for locality: with many live blocks others can be faster.
 *
 *   malloc   the class is a shift; the first block of the thread's list of that class
 *   free     the class is a part of the address; the block becomes the first of the list
 *
 * It keeps no counts, checks nothing, never gives memory back to the system, and a block
 * belongs to whoever frees it: where one thread allocates and another frees, memory grows
 * without end. The lists of a thread that ends are left to the others. realloc moves to
 * grow and never shrinks. Needs 6 TiB of free addresses, and Linux on a 64-bit machine.
 *
 *   cc -O3 -std=gnu17 -shared -fPIC -fno-builtin -fvisibility=hidden -o least.so least.c
 *   LD_PRELOAD=./least.so PROGRAM */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
/* Processors hand what was stored on to a load at once when both name the place by one
 * register alone. With an index in the address, as the compiler would have it, a pair
 * takes three times as long. */
#define IN_REGISTER(pointer) __asm__("" : "+r"(pointer))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Every class has 64 GiB of addresses of its own, one after the other from a fixed one
 * on, so that the class of a block needs no look-up. Of those, a thread takes a piece at
 * a time. */
enum { RANGE_SHIFT = 36, SMALL = 1024, SMALL_CLASSES = SMALL / 16 + 1, CLASSES = 91 };
enum { LISTS = 119 }; /* those above CLASSES stay empty: sizes that no range can hold */
#define BASE ((uintptr_t)1 << 44)
#define RANGE ((size_t)1 << RANGE_SHIFT)
#define PIECE ((size_t)256 << 10)

typedef struct block {
  struct block *next;
} block;

static __thread __attribute__((tls_model("initial-exec"))) struct {
  block *free[LISTS];
  char *fresh[CLASSES], *fresh_end[CLASSES]; /* never handed out, so all zero */
  int known;                                 /* left() will be called */
} own;

static atomic_size_t taken[CLASSES];       /* of each range, by the threads' pieces */
static _Atomic(block *) orphans[CLASSES];  /* the lists of threads that ended */
static pthread_once_t started = PTHREAD_ONCE_INIT;
static pthread_key_t key;

/* To 1,024 in steps of 16, and 0 bytes are a block of 16; then powers of two. */
static inline size_t class_of(size_t n) {
  return n <= SMALL ? (n + 15) >> 4 : (size_t)(118 - __builtin_clzl(n - 1));
}

static inline size_t size_of(size_t class) {
  return class == 0              ? 16
         : class < SMALL_CLASSES ? class << 4
                                 : (size_t)SMALL << (class - SMALL_CLASSES + 1);
}

static inline size_t class_at(void *p) { return ((uintptr_t)p >> RANGE_SHIFT) & 127; }

/* ---- When a list is empty --------------------------------------------------------- */

static void *too_large(void) {
  errno = ENOMEM;
  return NULL;
}

static void left(void *unused) {
  (void)unused;
  for (size_t class = 0; class < CLASSES; class++) {
    block *first = own.free[class], *last = first;
    if (first == NULL) continue;
    while (last->next != NULL) last = last->next;
    last->next = atomic_load(&orphans[class]);
    while (!atomic_compare_exchange_weak(&orphans[class], &last->next, first)) continue;
    own.free[class] = NULL;
  }
}

static void start(void) {
  void *all = mmap((void *)BASE, CLASSES * RANGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (all != (void *)BASE || pthread_key_create(&key, left) != 0) abort();
}

/* A block that was never handed out; an orphan when there are some and `zero` is not
 * asked for. */
static __attribute__((noinline)) void *refill(size_t class, int zero) {
  if (class >= CLASSES) return too_large();
  if (!own.known) {
    pthread_once(&started, start);
    own.known = 1;
    pthread_setspecific(key, &own);
  }
  if (!zero && atomic_load_explicit(&orphans[class], memory_order_relaxed) != NULL) {
    block *first = atomic_exchange(&orphans[class], NULL);
    if (first != NULL) {
      own.free[class] = first->next;
      return first;
    }
  }
  size_t size = size_of(class);
  char *p = own.fresh[class];
  if (p == own.fresh_end[class]) {
    size_t piece = size < PIECE ? PIECE / size * size : size;
    size_t at = atomic_fetch_add(&taken[class], piece);
    if (at + piece > RANGE) return too_large();
    p = (char *)(BASE + (class << RANGE_SHIFT) + at);
    own.fresh_end[class] = p + piece;
  }
  own.fresh[class] = p + size;
  return p;
}

/* ---- What programs call ----------------------------------------------------------- */

EXPORT void *malloc(size_t n) {
  size_t class = class_of(n);
  block **list = &own.free[class];
  IN_REGISTER(list);
  block *p = *list;
  if (UNLIKELY(p == NULL)) return refill(class, 0);
  *list = p->next;
  return p;
}

EXPORT void free(void *pointer) {
  block *p = pointer;
  if (p == NULL) return;
  block **list = &own.free[class_at(p)];
  IN_REGISTER(list);
  p->next = *list;
  *list = p;
}

EXPORT void *calloc(size_t count, size_t size) {
  size_t n;
  if (__builtin_mul_overflow(count, size, &n)) return too_large();
  size_t class = class_of(n);
  block *p = own.free[class];
  if (p == NULL) return refill(class, 1);
  own.free[class] = p->next;
  return memset(p, 0, n);
}

EXPORT size_t malloc_usable_size(void *p) { return p == NULL ? 0 : size_of(class_at(p)); }

EXPORT void *realloc(void *old, size_t n) {
  size_t size = malloc_usable_size(old);
  if (old != NULL && n <= size) return old;
  void *p = malloc(n);
  if (p == NULL || old == NULL) return p;
  memcpy(p, old, size);
  free(old);
  return p;
}

/* A block whose size is a power of two lies at a multiple of it. */
EXPORT void *memalign(size_t alignment, size_t n) {
  if (n < alignment) n = alignment;
  if (n > RANGE) return too_large();
  return malloc(n <= 16 ? n : (size_t)1 << (64 - __builtin_clzl(n - 1)));
}

EXPORT void *aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }

EXPORT int posix_memalign(void **result, size_t alignment, size_t n) {
  if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0) return EINVAL;
  int before = errno;
  void *p = memalign(alignment, n);
  errno = before;
  if (p == NULL) return ENOMEM;
  *result = p;
  return 0;
}

EXPORT void *valloc(size_t n) { return memalign(4096, n); }
EXPORT void *pvalloc(size_t n) { return memalign(4096, (n + 4095) & ~(size_t)4095); }

/* operator new and delete by the names they have in objects; libstdc++'s would be one
 * more call. Where new has to throw, this one returns NULL. */
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif
#define IS(f) __attribute__((alias(#f), visibility("default")))
void *_Znwm(size_t) IS(malloc);
void *_Znam(size_t) IS(malloc);
void *_ZnwmRKSt9nothrow_t(size_t) IS(malloc);
void *_ZnamRKSt9nothrow_t(size_t) IS(malloc);
void _ZdlPv(void *) IS(free);
void _ZdaPv(void *) IS(free);
void _ZdlPvm(void *) IS(free);
void _ZdaPvm(void *) IS(free);
void _ZdlPvRKSt9nothrow_t(void *) IS(free);
void _ZdaPvRKSt9nothrow_t(void *) IS(free);
void _ZdlPvSt11align_val_t(void *) IS(free);
void _ZdaPvSt11align_val_t(void *) IS(free);
void _ZdlPvmSt11align_val_t(void *) IS(free);
void _ZdaPvmSt11align_val_t(void *) IS(free);
void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *) IS(free);
void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *) IS(free);

EXPORT void *_ZnwmSt11align_val_t(size_t n, size_t alignment) { return memalign(alignment, n); }
void *_ZnamSt11align_val_t(size_t, size_t) IS(_ZnwmSt11align_val_t);
void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t, size_t) IS(_ZnwmSt11align_val_t);
void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t, size_t) IS(_ZnwmSt11align_val_t);
