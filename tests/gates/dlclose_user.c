/* Gate: a plugin linked with libmasu is opened, used by threads and closed, over
 * and over; blocks it gave live on, and threads that used it end after it is
 * gone. The host is on the system allocator (PLUGIN: path; no preload). */
#include <stdatomic.h>

#include "gate.h"

static atomic_int used, closed;
static void *(*plugin_malloc)(size_t);
static void (*plugin_free)(void *);
static void *from_threads[4];

static void *body(void *number) {
  void *p = plugin_malloc(4000);
  plugin_free(plugin_malloc(100000));
  stamp(p, 4000, 9);
  from_threads[(uintptr_t)number] = p;
  atomic_fetch_add(&used, 1);
  while (!atomic_load(&closed))
    sched_yield();
  return NULL; /* the allocator's thread-exit code must still be there */
}

int main(void) {
  watchdog(60);
  for (int round = 0; round < 50; round++) {
    void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    CHECK(plugin, "%s", dlerror());
    plugin_malloc = (void *(*)(size_t))dlsym(plugin, "plugin_malloc");
    plugin_free = (void (*)(void *))dlsym(plugin, "plugin_free");
    CHECK(dlsym(plugin, "masu_malloc"), "the plugin does not use masu");
    pthread_t threads[4];
    atomic_store(&used, 0);
    atomic_store(&closed, 0);
    for (uintptr_t i = 0; i < 4; i++)
      threads[i] = start(body, (void *)i);
    while (atomic_load(&used) < 4)
      sched_yield();
    CHECK(dlclose(plugin) == 0, "dlclose");
    CHECK(!dlopen(PLUGIN, RTLD_NOW | RTLD_NOLOAD), "the plugin is still loaded");
    atomic_store(&closed, 1);
    for (int i = 0; i < 4; i++)
      finish(threads[i]);
    for (int i = 0; i < 4; i++)
      CHECK(stamped(from_threads[i], 4000, 9), "a block went with the plugin");
    plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    plugin_free = (void (*)(void *))dlsym(plugin, "plugin_free");
    for (int i = 0; i < 4; i++)
      plugin_free(from_threads[i]);
    CHECK(dlclose(plugin) == 0, "dlclose");
  }
  return 0;
}
