/* unwind_rules LIBRARY: loads it, prints the path of its file, and for each line "OFFSET EXACT" (hexadecimal, 0 or 1)
 * on stdin the rule for that address: "KIND CFA SAVED RBP". Exits with 77 if there is no such library. */
#include "observe/unwind.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>

static const char *const kinds[] = {"none", "other", "end", "?", "rsp", "rbp", "at-rsp", "at-rbp", "signal"};
static const char *const saved[] = {"same", "cfa", "rsp", "rbp"};

int main(int count, char **arguments) {
  struct link_map *library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  struct dl_find_object found;
  uintptr_t offset;
  int exact;
  if (!library)
    return 77;
  if (_dl_find_object(library->l_ld, &found) != 0)
    return 1;
  const unwind_object o = {found.dlfo_map_start, found.dlfo_map_end, found.dlfo_eh_frame};
  puts(library->l_name);
  while (scanf("%" SCNxPTR " %d", &offset, &exact) == 2) {
    unwind_rule r = unwind_rule_of(&o, library->l_addr + offset, exact != 0);
    printf("%s %d %s %d\n", kinds[r.kind], r.cfa, saved[r.saved], r.rbp);
  }
  return 0;
}
