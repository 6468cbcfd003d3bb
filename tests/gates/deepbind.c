/* Gate: RTLD_DEEPBIND plugins, whose malloc may be another than the host's.
 *   deepbind preloaded: host on masu. A plugin linked with masu and its host free
 *     each other's blocks. A plugin that is not linked with it uses the libc's
 *     heap: the host frees, resizes and measures its blocks.
 *   deepbind alone: host on the system allocator, plugin on masu. The plugin frees
 *     what the host or the C library (strdup) allocated.
 * (The libc's free cannot be made to accept masu's blocks: that direction does not
 * exist in any allocator.) PLUGIN, PLUGIN_PLAIN: paths. */
#include <malloc.h>

#include "gate.h"

static struct plugin {
  void *(*malloc)(size_t);
  void *(*realloc)(void *, size_t);
  size_t (*usable_size)(void *);
  void (*free)(void *);
  void (*strdup_free)(void);
} open_plugin(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  CHECK(library, "%s", dlerror());
  return (struct plugin){(void *(*)(size_t))dlsym(library, "plugin_malloc"),
                         (void *(*)(void *, size_t))dlsym(library, "plugin_realloc"),
                         (size_t(*)(void *))dlsym(library, "plugin_usable_size"),
                         (void (*)(void *))dlsym(library, "plugin_free"),
                         (void (*)(void))dlsym(library, "plugin_strdup_free")};
}

static const size_t sizes[] = {1, 16, 100, 1000, 5000, 40000, 200000, 5000000};

static void plugin_takes_ours(struct plugin plugin) {
  for (size_t i = 0; i < COUNT(sizes); i++)
    for (int copies = 0; copies < 50; copies++) {
      void *p = malloc(sizes[i]);
      stamp(p, sizes[i], 1);
      CHECK(plugin.usable_size(p) >= sizes[i], "usable size");
      if (copies % 2) {
        p = plugin.realloc(p, sizes[i] * 2);
        CHECK(p && stamped(p, sizes[i], 1), "contents");
      }
      plugin.free(p);
    }
}
static void we_take_the_plugins(struct plugin plugin) {
  for (size_t i = 0; i < COUNT(sizes); i++)
    for (int copies = 0; copies < 50; copies++) {
      void *p = plugin.malloc(sizes[i]);
      stamp(p, sizes[i], 1);
      CHECK(malloc_usable_size(p) >= sizes[i], "usable size");
      if (copies % 2) {
        p = realloc(p, sizes[i] * 2);
        CHECK(p && stamped(p, sizes[i], 1), "contents");
      }
      free(p);
    }
}

int main(void) {
  watchdog(60);
  bool preloaded = dlsym(RTLD_DEFAULT, "masu_malloc") != NULL;
  struct plugin on_masu = open_plugin(PLUGIN);
  plugin_takes_ours(on_masu);
  on_masu.strdup_free();
  if (preloaded) {
    we_take_the_plugins(on_masu);
    struct plugin plain = open_plugin(PLUGIN_PLAIN);
    size_t before = resident_kib();
    we_take_the_plugins(plain);
    for (int i = 0; i < 2000; i++) { /* forwarded, not leaked */
      void *p = plain.malloc(100000);
      touch(p, 100000);
      free(p);
    }
    CHECK(resident_kib() < before + 40 * KIB, "foreign blocks leak");
  }
  return 0;
}
