/* single_size [SIZE] [PAIRS] [touched|untouched]
 *
 * PAIRS (1,000,000) times: allocate SIZE (1,024) bytes and free them. Touched
 * writes and checks one word in every 4 KiB, as a program that uses the block
 * would. From the lecture on TCMalloc for C programs, experiment 1. One block is live
 * at a time, and untouched it is never looked at: what blocks hold is checked when the
 * time was taken. */
#include "workload.h"

enum { STRIDE = 4096 };

static void touch(volatile char *block, size_t size, char mark) {
  for (size_t i = 0; i < size; i += STRIDE)
    block[i] = mark;
}

static void check(const volatile char *block, size_t size, char mark) {
  for (size_t i = 0; i < size; i += STRIDE)
    if (block[i] != mark)
      fail("byte %zu of a block of %zu was overwritten", i, size);
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t size = argument(argc, argv, 1, 1024, "SIZE");
  size_t pairs = argument(argc, argv, 2, 1000000, "PAIRS");
  bool touched = argc > 3 && !strcmp(argv[3], "touched");
  if (argc > 3 && !touched && strcmp(argv[3], "untouched") != 0)
    fail("%s is neither touched nor untouched", argv[3]);

  char *first = got(malloc(size)); /* the first call of a process does more than others, and so does the first touch */
  if (touched)
    touch(first, size, 0);
  free(first);
  uint64_t cpu = cpu_ns(), start = now_ns();
  for (size_t i = 0; i < pairs; i++) {
    char *block = got(malloc(size));
    if (touched) {
      touch(block, size, (char)i);
      check(block, size, (char)i);
    }
    free(block);
  }
  double time = (double)(now_ns() - start), cpu_time = (double)(cpu_ns() - cpu);
  blocks_check(size, size);
  printf("single_size: %zu x %zu bytes, %s: %.3f s, %.1f ns per pair\n", pairs, size,
         touched ? "touched" : "untouched", time * 1e-9, time / (double)pairs);
  figure("pair_ns", time / (double)pairs);
  figure("cpu_ns", cpu_time);
  figures_end();
  return 0;
}
