/* sized_delete [SIZE] [live1|lifo100|fifo10k|random10k] [PAIRS]
 *
 * As pairs, by operator new and sized operator delete. They are called by name: only
 * those of new and delete expressions may be left out by the compiler. */
#include <new>

#define ALLOCATE(size) ::operator new(size)
#define RELEASE(block, size) ::operator delete(block, size)

#include "patterns.h"

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  return patterns_main("sized_delete", argc, argv);
}
