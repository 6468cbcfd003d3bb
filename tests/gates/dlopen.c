/* Gate: libmasu.so comes by dlopen into a host that runs on the system allocator
 * and has next to no static TLS left (MASU_LIBRARY, STATIC_TLS: paths; built
 * without preload). Then: memory from before it is forwarded, threads old and
 * new use it, dlclose does not unload it under them; the same in a second
 * namespace (dlmopen). Run a second time under an audit library (audit.c). */
#include "gate.h"

#include <stdatomic.h>
#include <sys/mman.h>

static void *(*masu_malloc)(size_t);
static void *(*masu_realloc)(void *, size_t);
static void (*masu_free)(void *);
static size_t (*masu_usable_size)(void *);

/* Copies of the library until no more fits, then one goes again: what it had is
 * all that is left. */
static void use_up_static_tls(void) {
  char bytes[64 * KIB], path[64];
  size_t length = read_file(STATIC_TLS, bytes, sizeof bytes);
  void *last = NULL;
  CHECK(length > 0 && length < sizeof bytes - 1, "cannot read %s", STATIC_TLS);
  for (int i = 0; i < 200; i++) {
    int fd = memfd_create("static_tls", 0);
    CHECK(write(fd, bytes, length) == (ssize_t)length, "write");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      CHECK(last, "dlopen: %s", dlerror());
      CHECK(strstr(dlerror(), "static TLS"), "another reason than static TLS");
      dlclose(last);
      return;
    }
    last = library;
  }
  CHECK(false, "the surplus has no end");
}

static void exercise(void) {
  static const size_t sizes[] = {1, 40, 500, 9000, 100000, 3000000, 80000000};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    char *p = masu_malloc(sizes[i]);
    CHECK(p, "masu_malloc(%zu)", sizes[i]);
    stamp(p, sizes[i], 7);
    CHECK((p = masu_realloc(p, sizes[i] * 2)), "masu_realloc");
    CHECK(p[0] == 7 && p[sizes[i] - 1] == 7, "contents");
    masu_free(p);
  }
}

static atomic_int go;
static void *old_thread(void *unused) {
  while (!atomic_load(&go)) /* was there before the library came */
    sched_yield();
  exercise();
  return unused;
}
static void *new_thread(void *p) {
  exercise();
  masu_free(p);
  return masu_malloc(1000);
}

static void foreign(void **before, size_t count) {
  for (size_t i = 0; i < count; i++) {
    size_t n = 1 + i * i;
    CHECK(masu_usable_size(before[i]) >= n, "usable size of a foreign block");
    CHECK(stamped(before[i], n, (unsigned char)i), "contents of a foreign block");
    if (i % 2) {
      char *moved = masu_realloc(before[i], 2 * n + 100);
      CHECK(moved && stamped(moved, n, (unsigned char)i), "realloc of a foreign block");
      CHECK(masu_realloc(moved, 0) == NULL, "realloc to 0");
    } else
      masu_free(before[i]);
  }
}

static void bind_to(void *library) {
  masu_malloc = (void *(*)(size_t))dlsym(library, "masu_malloc");
  masu_realloc = (void *(*)(void *, size_t))dlsym(library, "masu_realloc");
  masu_free = (void (*)(void *))dlsym(library, "masu_free");
  masu_usable_size = (size_t(*)(void *))dlsym(library, "masu_malloc_usable_size");
  CHECK(masu_malloc && masu_realloc && masu_free && masu_usable_size, "dlsym: %s",
        dlerror());
}

int main(void) {
  watchdog(60);
  CHECK(!dlsym(RTLD_DEFAULT, "masu_malloc"), "this program must not be preloaded");
  pthread_t olds[3];
  void *before[200], *result;
  for (int i = 0; i < 3; i++)
    olds[i] = start(old_thread, NULL);
  for (size_t i = 0; i < COUNT(before); i++)
    stamp(before[i] = malloc(1 + i * i), 1 + i * i, (unsigned char)i);
  use_up_static_tls();
  void *library = dlopen(MASU_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  CHECK(library, "%s", dlerror());
  bind_to(library);
  exercise();
  foreign(before, COUNT(before));
  atomic_store(&go, 1);
  for (int i = 0; i < 20; i++) {
    pthread_t thread = start(new_thread, masu_malloc(100));
    CHECK(pthread_join(thread, &result) == 0, "join");
    masu_free(result);
  }
  char *kept = masu_malloc(5000);
  stamp(kept, 5000, 3);
  CHECK(dlclose(library) == 0, "dlclose");
  CHECK(stamped(kept, 5000, 3), "the block went with the library");
  masu_free(kept);
  exercise();
  for (int i = 0; i < 3; i++) /* their destructors run after the dlclose */
    finish(olds[i]);

  pid_t pid = fork();
  if (pid == 0) {
    watchdog(20);
    exercise();
    _exit(0);
  }
  wait_for(pid, "fork");

  if ((library = dlmopen(LM_ID_NEWLM, MASU_LIBRARY, RTLD_NOW))) {
    bind_to(library);
    exercise();
    finish(start(new_thread, masu_malloc(10)));
  } else /* the other namespace's libc wants static TLS that we took */
    CHECK(strstr(dlerror(), "static TLS"), "dlmopen");
  return 0;
}
