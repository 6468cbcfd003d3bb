/* Gate: a program under the size classes of an options file (MASU_OPTIONS_FILE), which
 * names all of them: every size gets the smallest that fits, whoever allocated first;
 * alignment, threads and fork work; masu_check finds nothing. Linked with libmasu.a
 * (GATE_LINKED) it allocates before masu's constructor; a static C library does so itself.
 *
 *   classes           on the file's classes
 *   classes default   on the default ones: memory was needed before the environment was
 *                     there; a line on stderr says so
 *   classes aligned   the first block of all is aligned */
#include <malloc.h>

#include "hammer.h"

enum { SIZES_MOST = 64, TABLE_MOST = 32768 };
static size_t sizes[SIZES_MOST];
static int size_count;

static void read_sizes(void) {
  static char text[8192];
  const char *path = getenv("MASU_OPTIONS_FILE");
  CHECK(path && read_file(path, text, sizeof text), "no options file");
  char *at = strstr(text, "\nclasses:");
  CHECK(at, "no classes in %s", path);
  at += strlen("\nclasses:");
  while (*at != '\n' && size_count < SIZES_MOST)
    sizes[size_count++] = strtoul(at, &at, 10);
  CHECK(size_count == 41 && sizes[40] == TABLE_MOST, "%d classes", size_count);
}

/* Four to every doubling. */
static void default_sizes(void) {
  size_count = 0;
  sizes[size_count++] = 8;
  for (size_t size = 16; size <= TABLE_MOST; size += size < 64 ? 16 : (size_t)1 << (61 - __builtin_clzl(size)))
    sizes[size_count++] = size;
  CHECK(size_count == 41 && sizes[40] == TABLE_MOST, "%d classes", size_count);
}

static size_t expected(size_t size) {
  int i = 0;
  while (sizes[i] < size)
    i++;
  return sizes[i];
}

/* Two of each, so that a hand that was filled for another class shows. */
static void check_sizes(void) {
  for (size_t size = 1; size <= TABLE_MOST; size += size < 2048 ? 1 : 13) {
    unsigned char *p = malloc(size), *q = realloc(malloc(1), size);
    CHECK(p && q && malloc_usable_size(p) == expected(size) && malloc_usable_size(q) == expected(size),
          "%zu bytes get %zu and %zu, not %zu", size, malloc_usable_size(p), malloc_usable_size(q), expected(size));
    stamp(p, expected(size), 1);
    stamp(q, expected(size), 2);
    CHECK(stamped(p, expected(size), 1), "%zu bytes are not alone", size);
    free(p);
    free(q);
  }
}

static void check_alignment(void) {
  static void *held[200];
  for (size_t align = 16; align <= 2 * TABLE_MOST; align *= 2)
    for (size_t size = 1; size <= TABLE_MOST; size += size / 2 + 1)
      for (size_t i = 0; i < COUNT(held); i += 1 + size / 200) {
        free(held[i]);
        held[i] = memalign(align, size);
        CHECK(held[i] && ((uintptr_t)held[i] & (align - 1)) == 0, "%zu bytes at %zu", size, align);
        stamp(held[i], size, 3);
      }
  for (size_t i = 0; i < COUNT(held); i++)
    free(held[i]);
}

static void *of_a_thread(void *unused) {
  check_sizes();
  return unused;
}

static void check_forks(void) {
  for (int i = 0; i < 30; i++) {
    pid_t child = fork();
    if (child == 0) {
      watchdog(60);
      hammer_free_all();
      if (i % 10 == 0)
        check_sizes();
      finish(start(of_a_thread, NULL));
      exit(0);
    }
    wait_for(child, "fork");
  }
}

#ifdef GATE_LINKED
extern int masu_check(void);
static void *first;

#pragma GCC diagnostic ignored "-Wprio-ctor-dtor"
__attribute__((constructor(50))) static void before_masu(int count, char **arguments) {
  bool aligned = count > 1 && strcmp(arguments[1], "aligned") == 0;
  first = aligned ? memalign(64, 150) : malloc(1025);
}
static void check_first(void) {
  size_t usable = malloc_usable_size(first);
  CHECK(usable == 1040 || (usable == 256 && ((uintptr_t)first & 63) == 0), "the first block: %zu", usable);
}
#else
static void check_first(void) {}
static int masu_check(void) {
  int (*check)(void);
  *(void **)&check = dlsym(RTLD_DEFAULT, "masu_check");
  CHECK(check, "masu is not preloaded");
  return check();
}
#endif

int main(int argc, char **argv) {
  watchdog(240);
  read_sizes();
  check_first();
  if (argc > 1 && strcmp(argv[1], "default") == 0)
    default_sizes();
  check_sizes();
  check_alignment();
  hammer_start();
  finish(start(of_a_thread, NULL));
  check_forks();
  hammer_finish();
  check_sizes();
  CHECK(masu_check() == 0, "masu_check");
  return 0;
}
