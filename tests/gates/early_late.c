/* Gate: calls before any constructor has run and after the last exit handler.
 * Before: .preinit_array of this program, the constructor of early.so, which runs
 * before masu's. After: atexit handlers, destructors here and in early.so, a
 * thread that goes on while the process exits. The program runs itself once for
 * every way to end. */
#include "hammer.h"

static void *first[100];
static pthread_key_t key;

static void destroy(void *p) { free(p); }

static void preinit(int argc, char **argv, char **environment) {
  (void)argc, (void)argv, (void)environment;
  for (size_t i = 0; i < COUNT(first); i++) {
    size_t n = i * i * 20 + 1;
    first[i] = i % 3 ? malloc(n) : calloc(n, 1);
    CHECK(first[i], "malloc before the constructors");
    stamp(first[i], n, (unsigned char)i);
  }
  void *p = realloc(malloc(10), 100000);
  CHECK(p, "realloc before the constructors");
  free(p);
  void *q = aligned_alloc(4096, 100);
  CHECK(q && ((uintptr_t)q & 4095) == 0, "aligned_alloc before the constructors");
  free(q);
  CHECK(pthread_key_create(&key, destroy) == 0, "key");
}
__attribute__((section(".preinit_array"),
               used)) static void (*preinit_entry)(int, char **, char **) = preinit;

static void exercise(void) {
  uint64_t random = 5;
  for (int i = 0; i < 200; i++)
    parcel_free(parcel_make(&random));
}
static void *late;
static void at_exit(void) {
  free(late);
  exercise();
  late = malloc(100000);
}
__attribute__((destructor)) static void destruct(void) {
  free(late);
  exercise();
}

static void *uses_keys(void *unused) {
  CHECK(pthread_setspecific(key, malloc(10)) == 0, "setspecific");
  CHECK(pthread_setspecific(EARLY(pthread_key_t, early_key), malloc(10)) == 0,
        "setspecific");
  exercise();
  return unused;
}
static void *ends_the_process(void *unused) {
  exercise();
  exit(0);
  return unused;
}

static int run(const char *ending) {
  for (size_t i = 0; i < COUNT(first); i++) {
    CHECK(stamped(first[i], i * i * 20 + 1, (unsigned char)i), "early block %zu", i);
    free(first[i]);
  }
  void **early_blocks = early_symbol("early_blocks");
  for (size_t i = 0; i < 64; i++) {
    CHECK(stamped(early_blocks[i], i * i * i + 1, 0x5a), "block of early.so %zu", i);
    free(early_blocks[i]);
  }
  CHECK(EARLY(int, early_key_destroyed) == 1, "destructor of the early thread");
  finish(start(uses_keys, NULL));
  CHECK(EARLY(int, early_key_destroyed) == 2, "destructor of the early key");
  late = malloc(50);
  atexit(at_exit);
  if (strcmp(ending, "return") == 0)
    return 0;
  hammer_start();
  if (strcmp(ending, "exit") == 0)
    exit(0);
  if (strcmp(ending, "_exit") == 0)
    _exit(0);
  if (strcmp(ending, "quick_exit") == 0) {
    at_quick_exit(at_exit);
    quick_exit(0);
  }
  if (strcmp(ending, "exit in a thread") == 0)
    finish(start(ends_the_process, NULL));
  if (strcmp(ending, "main thread first") == 0) {
    atomic_store(&hammer_stop, true);
    pthread_exit(NULL);
  }
  CHECK(false, "no such ending: %s", ending);
}

int main(int argc, char **argv) {
  gate_begin(300);
  if (argc > 1)
    return run(argv[1]);
  const char *const endings[] = {
      "return", "exit", "_exit", "quick_exit", "exit in a thread", "main thread first"};
  for (int round = 0; round < 10; round++)
    for (size_t i = 0; i < COUNT(endings); i++) {
      pid_t pid = fork();
      if (pid == 0) {
        execl("/proc/self/exe", argv[0], endings[i], (char *)NULL);
        _exit(127);
      }
      wait_for(pid, endings[i]);
    }
  return 0;
}
