/* Work that ends all at once: parsing lines, request by request. */
#include <masu/arena.h>

#include <stdio.h>
#include <string.h>

typedef struct word {
  struct word *next;
  const char *text;
} word;

static word *split(masu_arena *arena, const char *line) {
  word *first = NULL, **end = &first;
  char *copy = masu_arena_strdup(arena, line);
  for (char *w = copy ? strtok(copy, " ") : NULL; w; w = strtok(NULL, " ")) {
    if (!(*end = masu_arena_calloc(arena, 1, sizeof **end)))
      break;
    (*end)->text = w;
    end = &(*end)->next;
  }
  return first;
}

int main(void) {
  masu_arena *request = masu_arena_create(4096);
  if (!request)
    return 1;
  size_t words = 0;
  for (int i = 0; i < 10000; i++) {
    for (word *w = split(request, "the quick brown fox jumps over the lazy dog"); w; w = w->next)
      words++;
    masu_arena_reset(request); /* everything of this request, at once */
  }
  masu_arena_figures figures;
  masu_arena_read(request, &figures, sizeof figures);
  printf("%zu words in %zu KiB\n", words, figures.held / 1024);

  /* A mark takes back what came after it. */
  masu_mark mark = masu_arena_mark(request);
  masu_arena_alloc(request, 1000);
  masu_arena_rewind(request, mark);

  /* In memory of one's own: no allocation at all. */
  char memory[1024];
  masu_arena *small = masu_arena_init(memory, sizeof memory);
  size_t n = 0;
  while (masu_arena_alloc(small, 16))
    n++;
  printf("%zu blocks of 16 bytes in 1,024 bytes of the stack, then NULL\n", n);
  masu_arena_destroy(request);
  return 0;
}
