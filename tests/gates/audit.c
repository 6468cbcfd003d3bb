/* An audit library (LD_AUDIT): it lives in a namespace of its own with a libc of
 * its own, is loaded before everything and makes the loader call it for every
 * library and every first call of a function. It allocates while it is called. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

static __thread char mine[64];

unsigned la_version(unsigned version) { return version; }
unsigned la_objopen(struct link_map *map, Lmid_t id, uintptr_t *cookie) {
  (void)id, (void)cookie;
  char *volatile name = strdup(map->l_name);
  strncpy(mine, name, sizeof mine - 1);
  free(name);
  return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                       unsigned *flags, const char *name) {
  (void)index, (void)from, (void)to, (void)flags;
  char *volatile copy = strdup(name);
  free(copy);
  return symbol->st_value;
}
