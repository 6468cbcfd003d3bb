/* A subsystem's memory with one name and one limit. */
#include <masu/heap.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void warn(masu_heap *heap, size_t used, void *context) {
  (void)context;
  printf("%s uses %zu KiB: time to drop something\n", masu_heap_name(heap), used / 1024);
}

int main(void) {
  masu_heap *textures = masu_heap_create("textures");
  if (!textures)
    return 1;
  masu_heap_set_budget(textures, 6 << 20, 8 << 20);
  masu_heap_on_soft(textures, warn, NULL);

  unsigned loaded = 0;
  char *texture;
  while ((texture = masu_heap_malloc(textures, 300000))) { /* NULL beyond 8 MiB */
    memset(texture, loaded, 300000);
    loaded++;
  }

  masu_heap_figures figures;
  masu_heap_read(textures, &figures, sizeof figures);
  printf("%u textures, %zu KiB of %zu KiB\n", loaded, figures.used / 1024, figures.hard / 1024);

  char *name = malloc(20); /* general memory: not counted */
  printf("a texture is of the heap '%s', a name of '%s'\n",
         masu_heap_name(textures), masu_heap_name(masu_heap_of(name)));
  free(name);

  masu_heap_destroy(textures); /* all of them */
  return 0;
}
