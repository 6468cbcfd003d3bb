// fuzz_unwind: rules made from tables that are not what they should be. Two kinds of them: those
// of the C library with some bytes changed, and tiny ones that are random but for their
// frame. They lie between pages that may not be read, so that what reads beyond them ends the
// program; what comes out must be a rule.
//
//   fuzz_unwind [--seed N] [--steps N] [--seconds N]
// runs `steps` steps, with --seconds one seed after the other until the time is over. A failure
// repeats with the seed that was printed last.
#include "observe/unwind.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t random_state;

static uint64_t draw(uint64_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return below ? (random_state * 0x2545f4914f6cdd1d >> 11) % below : 0;
}

enum { PAGE = 4096 };

/* So many bytes that end, or else start, at a page that may not be read. */
static uint8_t *between_walls(size_t size, bool at_the_end, void **map, size_t *mapped) {
  size_t room = ROUND_UP(size, PAGE);
  *mapped = room + 2 * PAGE;
  uint8_t *p = mmap(NULL, *mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || mprotect(p + PAGE, room, PROT_READ | PROT_WRITE) != 0)
    abort();
  *map = p;
  return p + PAGE + (at_the_end ? room - size : 0);
}

static uint64_t results[UNWIND_SIGNAL + 1];

static void look_up(const unwind_object *o, uintptr_t pc) {
  unwind_rule r = unwind_rule_of(o, pc, draw(2));
  if (r.kind == UNWIND_NONE || r.kind == 3 || r.kind > UNWIND_SIGNAL || r.saved > UNWIND_FROM_RBP) {
    fprintf(stderr, "no rule: %d %d\n", r.kind, r.saved);
    abort();
  }
  results[r.kind]++;
}

// ---- The C library's, changed ----

static struct {
  const uint8_t *header;
  size_t size; // to the end of the segment that it is in
} library;

static int find_tables(struct dl_phdr_info *info, size_t size, void *unused) {
  const uint8_t *header = NULL;
  (void)size, (void)unused;
  if (!strstr(info->dlpi_name, "libc.so"))
    return 0;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
      header = (const uint8_t *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const uint8_t *start = (const uint8_t *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    if (info->dlpi_phdr[i].p_type == PT_LOAD && header >= start && header < start + info->dlpi_phdr[i].p_filesz) {
      library.header = header;
      library.size = (size_t)(start + info->dlpi_phdr[i].p_filesz - header);
    }
  }
  return 1;
}

// A byte of the table: of its start, of a row, of an entry, or any.
static size_t some_byte(const uint8_t *at, size_t size) {
  uint32_t rows = 1;
  int32_t entry;
  memcpy(&rows, at + 8, sizeof rows);
  size_t row = 12 + 8 * draw(rows);
  switch (draw(4)) {
  case 0: return draw(12);
  case 1: return min_size(row + draw(8), size - 1);
  case 2:
    memcpy(&entry, at + min_size(row + 4, size - 4), sizeof entry);
    return min_size((size_t)entry + draw(80), size - 1);
  default: return draw(size);
  }
}

static void change_library(uint64_t steps) {
  void *map;
  size_t mapped, size = draw(3) ? library.size : 64 + draw(library.size - 64);
  uint8_t *at = between_walls(size, draw(2), &map, &mapped);
  memcpy(at, library.header, size);
  const unwind_object o = {at, at + size, at};
  for (uint64_t i = 0; i < steps; i++) {
    size_t place[4], changes = draw(5);
    uint8_t before[4];
    for (size_t k = 0; k < changes; k++) {
      place[k] = draw(3) && k ? min_size(place[k - 1] + 1, size - 1) : some_byte(library.header, size);
      before[k] = at[place[k]];
      at[place[k]] = (uint8_t)(draw(2) ? draw(256) : before[k] ^ 1u << draw(8));
    }
    // The start of a function, as the table now has it, and a bit further.
    int32_t start;
    uint32_t rows;
    memcpy(&rows, library.header + 8, sizeof rows);
    size_t row = 12 + 8 * draw(rows);
    memcpy(&start, library.header + row, sizeof start);
    for (int k = 0; k < 4; k++)
      look_up(&o, (uintptr_t)at + (uintptr_t)(intptr_t)start + draw(60));
    for (size_t k = changes; k-- > 0;)
      at[place[k]] = before[k];
  }
  munmap(map, mapped);
}

// ---- Tiny ones ----

static uint8_t *put(uint8_t *at, const void *bytes, size_t size) {
  memcpy(at, bytes, size);
  return at + size;
}

static uint8_t *put_u32(uint8_t *at, size_t n) { return put(at, &(uint32_t){(uint32_t)n}, 4); }

// A program: mostly instructions that there are, with small operands, blocks of expressions among them.
static size_t draw_program(uint8_t *at, size_t most) {
  static const uint8_t known[] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e,
                                  0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x2e, 0x2f, 0x41, 0x44, 0x86, 0x87,
                                  0x90, 0xc6, 0xd0};
  static const uint8_t operand[] = {2, 6, 7, 16, 8, 0x06, 0x77, 0x76, 0x80, 0x3f, 0x1a, 0x2a, 0x24, 0x22, 0x33, 0x78};
  // The CFA is what lies at rbp - 8, at rsp + 8 (as in frames of signals).
  static const uint8_t blocks[][5] = {{0x0f, 3, 0x76, 0x78, 0x06}, {0x0f, 3, 0x77, 8, 0x06}};
  size_t size = draw(most + 1), i = 0;
  if (size >= sizeof *blocks && !draw(3))
    for (const uint8_t *block = blocks[draw(2)]; i < sizeof *blocks; i++)
      at[i] = block[i];
  for (; i < size; i++)
    at[i] = !draw(8) ? (uint8_t)draw(256) : draw(2) ? known[draw(sizeof known)] : operand[draw(sizeof operand)];
  return size;
}

static void try_tiny(void) {
  uint8_t bytes[512], first[64], program[128];
  const uint8_t common[] = {1, 'z', 'R', draw(4) ? 0 : 'S', 0};
  size_t first_size = draw_program(first, sizeof first), program_size = draw_program(program, sizeof program);
  uint8_t *at = bytes + 20; // the header and one row
  size_t common_at = 20, common_size = 4 + (common[3] ? 5 : 4) + 3 + 2 + 3 + first_size;
  at = put_u32(at, common_size);
  at = put_u32(at, 0);
  at = put(at, common, common[3] ? 5 : 4);
  at = put(at, (const uint8_t[]){1, 0x78, 16}, 3);      // units 1 and -8, the return address
  at = put(at, (const uint8_t[]){1, 0x1b}, 2);          // data: addresses from where they stand, four bytes
  at = put(at, (const uint8_t[]){0x0c, 7, 8}, 3);       // the CFA is rsp + 8
  at = put(at, first, first_size);
  size_t entry_at = (size_t)(at - bytes), function = 1000;
  at = put_u32(at, 4 + 8 + 1 + 2 + program_size);
  at = put_u32(at, entry_at + 4 - common_at);
  at = put_u32(at, function - (entry_at + 8));
  at = put_u32(at, 200);
  at = put(at, (const uint8_t[]){0}, 1);
  at = put(at, (const uint8_t[]){0x90, 1}, 2);          // the return address is at the CFA - 8
  at = put(at, program, program_size);
  size_t size = (size_t)(at - bytes);
  memcpy(bytes, (const uint8_t[]){1, 0x1b, 3, 0x3b}, 4);
  put_u32(put_u32(put_u32(put_u32(bytes + 4, 12), 1), function), entry_at);
  for (uint64_t k = draw(3); k > 0; k--)
    bytes[draw(size)] = (uint8_t)draw(256);
  void *map;
  size_t mapped;
  if (!draw(4))
    size = draw(size + 1);
  uint8_t *there = between_walls(size, draw(4), &map, &mapped);
  memcpy(there, bytes, size);
  const unwind_object o = {there, there + size, there};
  for (int k = 0; k < 4; k++)
    look_up(&o, (uintptr_t)there + function + draw(220));
  munmap(map, mapped);
}

// ---- All ----

int main(int count, char **arguments) {
  uint64_t seed = 1, steps = 20000, seconds = 0;
  for (int i = 1; i + 1 < count; i += 2) {
    uint64_t n = strtoull(arguments[i + 1], NULL, 10);
    if (!strcmp(arguments[i], "--seed"))
      seed = n;
    else if (!strcmp(arguments[i], "--steps"))
      steps = n;
    else if (!strcmp(arguments[i], "--seconds"))
      seconds = n;
  }
  dl_iterate_phdr(find_tables, NULL);
  if (!library.size)
    abort();
  time_t end = time(NULL) + (time_t)seconds;
  do {
    fprintf(stderr, "--seed %lu\n", (unsigned long)seed);
    random_state = seed++ * 0x9e3779b97f4a7c15 | 1;
    for (uint64_t i = 0; i < steps / 100; i++) {
      change_library(50);
      for (int k = 0; k < 50; k++)
        try_tiny();
    }
  } while (time(NULL) < end);
  printf("other %lu, end %lu, rsp %lu, rbp %lu, at rsp %lu, at rbp %lu, signal %lu\n", (unsigned long)results[1],
         (unsigned long)results[2], (unsigned long)results[4], (unsigned long)results[5], (unsigned long)results[6],
         (unsigned long)results[7], (unsigned long)results[8]);
  return 0;
}
