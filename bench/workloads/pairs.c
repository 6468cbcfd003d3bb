/* pairs [SIZE] [live1|lifo100|fifo10k|random10k] [PAIRS]
 *
 * The hit path: PAIRS (50,000,000) times malloc of SIZE (64) bytes and free, with 1
 * block live, with 100 freed in reverse order, with 10,000 freed in the order they
 * were made, or with 10,000 freed at random. */
#include "../floors/inline.h"

#define ALLOCATE(size) floor_malloc(size)
#define RELEASE(block, size) floor_free(block, size)

#include "patterns.h"

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  return patterns_main("pairs", argc, argv);
}
