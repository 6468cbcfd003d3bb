/* Gate: pointers of another allocator in a preloaded program. The libc's own
 * malloc is still there and reached by a handle of its library; its blocks go back
 * to it. (Memory from before the load: dlopen.c. Without a next free: misuse.) */
#include <malloc.h>

#include "gate.h"

int main(void) {
  gate_begin(300);
  void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  CHECK(libc, "%s", dlerror());
  void *(*real_malloc)(size_t) = (void *(*)(size_t))dlsym(libc, "malloc");
  void *(*real_memalign)(size_t, size_t) =
      (void *(*)(size_t, size_t))dlsym(libc, "memalign");
  if (!getenv("MASU_TEST_ANY"))
    CHECK(real_malloc != (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc"),
          "not two mallocs");
  size_t before = 0;
  for (int round = 0; round < 3000; round++) {
    uint64_t random = 99 + (uint64_t)round;
    if (round == 300)
      before = resident_kib();
    for (int i = 0; i < 20; i++) {
      size_t n = random_size(&random);
      char *p = i % 3 ? real_malloc(n) : real_memalign(256, n);
      CHECK(p, "the libc's malloc");
      stamp(p, n, (unsigned char)i);
      void *ours = malloc(n);
      CHECK(malloc_usable_size(p) >= n, "usable size");
      if (i % 4 == 1)
        CHECK((p = realloc(p, n + 1000)), "realloc");
      if (i % 4 == 2)
        CHECK((p = reallocarray(p, n, 2)), "reallocarray");
      CHECK(stamped(p, n, (unsigned char)i), "contents");
      if (i % 5)
        free(p);
      else
        CHECK(!realloc(p, 0), "realloc to 0");
      free(ours);
    }
  }
  CHECK(resident_kib() <= before + 30 * KIB, "%zu KiB grew to %zu", before,
        resident_kib());
  errno = 5; /* the C library's free may change errno, ours may not */
  free(real_malloc(100));
  CHECK(errno == 5, "errno");
  return 0;
}
