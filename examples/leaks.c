/* Does a part of the program lose memory? */
#include <masu/leaks.h>

#include <stdio.h>
#include <stdlib.h>

typedef struct request {
  char *text;
  struct request *next;
} request;

static request *volatile waiting;

static void add(void) {
  request *r = malloc(sizeof *r);
  if (!r)
    exit(1);
  r->text = calloc(1, 100);
  r->next = waiting;
  waiting = r;
}

/* Forgets the others. */
static void serve(void) {
  request *r = waiting;
  waiting = NULL;
  free(r->text);
  free(r);
}

int main(void) {
  masu_leaks found;
  uint64_t start = masu_leaks_begin();
  if (!start)
    return 1;
  for (int i = 0; i < 10; i++)
    add();
  serve();
  int why = masu_leaks_end(start, &found, sizeof found);
  if (why)
    return 1;
  printf("lost: %zu requests, and %zu blocks that only they lead to\n", found.direct_blocks, found.indirect_blocks);
  return 0;
}
