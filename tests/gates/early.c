/* A library to be preloaded after masu (LD_PRELOAD=libmasu.so:early.so). Its
 * constructor allocates, makes a key, registers fork handlers and starts a thread.
 * Built twice: gate_early is linked with -z initfirst, which takes that place from
 * masu (the linker knows only one), so that all this happens before masu's own
 * constructor; gate_usual is not, and comes after it. */
#include "gate.h"

int early_forks_prepared, early_forks_children;
pthread_key_t early_key;
int early_key_destroyed;
void *early_blocks[64];
static void *blocks[8];

static void exercise(void) {
  static const size_t sizes[8] = {1, 40, 700, 9000, 50000, 400000, 2000000, 5};
  for (int i = 0; i < 8; i++) {
    free(blocks[i]);
    blocks[i] = malloc(sizes[i]);
    CHECK(blocks[i], "no memory");
    touch(blocks[i], sizes[i]);
    void *p = calloc(1, sizes[i] * 2);
    CHECK((p = realloc(p, sizes[i] * 3)), "no memory");
    free(p);
  }
}
static void prepare(void) { early_forks_prepared++, exercise(); }
static void parent(void) { exercise(); }
static void child(void) { early_forks_children++, exercise(); }

static void destroy(void *p) {
  __atomic_add_fetch(&early_key_destroyed, 1, __ATOMIC_RELAXED);
  free(p);
  free(malloc(5000));
}
static void *body(void *unused) {
  free(malloc(100000));
  CHECK(pthread_setspecific(early_key, malloc(77)) == 0, "setspecific");
  exercise();
  return unused;
}

__attribute__((constructor)) static void construct(void) {
  exercise();
  for (size_t i = 0; i < COUNT(early_blocks); i++) {
    CHECK((early_blocks[i] = malloc(i * i * i + 1)), "no memory");
    stamp(early_blocks[i], i * i * i + 1, 0x5a);
  }
  CHECK(pthread_key_create(&early_key, destroy) == 0, "key");
  CHECK(pthread_atfork(prepare, parent, child) == 0, "atfork");
  finish(start(body, NULL));
}
/* Runs after the destructors and exit handlers of the program and of masu. */
__attribute__((destructor)) static void destruct(void) { exercise(); }
