#include "observe/reach.h"

#include <string.h>

#include "os/os.h"

#define WORD sizeof(uintptr_t)
#define READ_MOST (64 * KIB) /* at a time */

/* ---- The set ---- */

internal bool reach_make(reach *r, size_t room) {
  *r = (reach){.room = room};
  r->memory_size = ROUND_UP(room * (sizeof *r->blocks + sizeof *r->waiting) + READ_MOST, os_page());
  r->memory = os_map(r->memory_size, os_page());
  if (!r->memory)
    return false;
  r->words = r->memory;
  r->blocks = (reach_block *)(void *)((char *)r->memory + READ_MOST);
  r->waiting = (size_t *)(void *)(r->blocks + room);
  return true;
}

internal void reach_drop(reach *r) {
  if (r->memory)
    os_unmap(r->memory, r->memory_size);
  *r = (reach){0};
}

internal void reach_add(reach *r, const void *start, size_t size, const void *what) {
  if (r->count < r->room)
    r->blocks[r->count++] = (reach_block){.start = (uintptr_t)start, .size = max_size(size, 1), .what = what};
}

static void settle_block(reach_block *b, size_t at, size_t count) {
  reach_block moved = b[at];
  for (size_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && b[child + 1].start > b[child].start)
      child++;
    if (moved.start >= b[child].start)
      break;
    b[at] = b[child];
  }
  b[at] = moved;
}

/* By a heap: the C library's may allocate. */
internal void reach_sort(reach *r) {
  for (size_t i = r->count / 2; i-- > 0;)
    settle_block(r->blocks, i, r->count);
  for (size_t count = r->count; count > 1;) {
    reach_block top = r->blocks[0];
    r->blocks[0] = r->blocks[--count];
    r->blocks[count] = top;
    settle_block(r->blocks, 0, count);
  }
  if (r->count) {
    const reach_block *last = &r->blocks[r->count - 1];
    r->low = r->blocks[0].start;
    r->span = last->start + last->size + 1 - r->low;
  }
}

/* ---- What a word leads to ---- */

/* The last block that begins at or below the address, which is inside the span. */
static size_t last_up_to(const reach *r, uintptr_t address) {
  size_t low = 0, high = r->count;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (r->blocks[middle].start <= address)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* `new T[0]` of a T with a destructor: the block holds the length, 0, and the program has
 * the address behind it. */
static bool is_empty_array(const reach_block *b, uintptr_t behind) {
  uintptr_t length;
  return b->size == WORD && b->start + WORD == behind &&
         os_read_memory((const void *)b->start, &length, sizeof length) && length == 0;
}

static bool holds(const reach_block *b, uintptr_t word) {
  return word - b->start < b->size || is_empty_array(b, word);
}

/* Each block waits once a phase at most. */
static void lead_to(reach *r, size_t i) {
  reach_block *b = &r->blocks[i];
  bool lost = b->state == REACH_LOST, known_lost = b->state > REACH_FOUND;
  switch (r->phase) {
  case REACH_ROOTS:
  case REACH_CANDIDATES:
    if (!lost)
      return;
    b->state = r->phase == REACH_ROOTS ? REACH_FOUND : REACH_INDIRECT;
    break;
  case REACH_CHOICE:
    if (!known_lost || b->passed)
      return;
    b->passed = true;
    break;
  }
  r->waiting[r->waiting_count++] = i;
}

static void see_word(reach *r, uintptr_t word) {
  if (!r->count || word - r->low >= r->span)
    return;
  size_t i = last_up_to(r, word);
  const reach_block *b = &r->blocks[i];
  if (holds(b, word))
    lead_to(r, i);
  if (word == b->start && i > 0 && is_empty_array(b - 1, word))
    lead_to(r, i - 1);
}

/* ---- Reading ---- */

/* Page by page where not all is to be had. */
static void read_words(reach *r, uintptr_t from, size_t size) {
  char *to = (char *)r->words;
  if (os_read_memory((const void *)from, to, size))
    return;
  for (size_t done = 0, step; done < size; done += step) {
    step = min_size(size - done, os_page() - (from + done) % os_page());
    if (!os_read_memory((const void *)(from + done), to + done, step))
      memset(to + done, 0, step);
  }
}

static void see_range(reach *r, uintptr_t start, uintptr_t end) {
  size_t size;
  for (start = ROUND_UP(start, WORD); start + WORD <= end; start += size) {
    size = min_size(end - start, READ_MOST) / WORD * WORD;
    read_words(r, start, size);
    for (size_t i = 0; i < size / WORD; i++)
      see_word(r, r->words[i]);
  }
}

static void follow(reach *r) {
  while (r->waiting_count) {
    const reach_block *b = &r->blocks[r->waiting[--r->waiting_count]];
    see_range(r, b->start, b->start + b->size);
  }
}

/* ---- The interface ---- */

internal reach_block *reach_at(const reach *r, uintptr_t address) {
  if (!r->count || address - r->low >= r->span)
    return NULL;
  reach_block *b = &r->blocks[last_up_to(r, address)];
  return address - b->start < b->size ? b : NULL;
}

internal void reach_root(reach *r, reach_block *b) { lead_to(r, (size_t)(b - r->blocks)); }
internal void reach_word(reach *r, uintptr_t word) { see_word(r, word); }
internal void reach_range(reach *r, uintptr_t start, uintptr_t end) { see_range(r, start, end); }

/* In order of address: every lost block that nothing before leads to. Of a ring that is the
 * first; what leads to one of these in the end comes later, or it would not be one. */
static void find_candidates(reach *r) {
  r->phase = REACH_CANDIDATES;
  for (size_t i = 0; i < r->count; i++)
    if (r->blocks[i].state == REACH_LOST) {
      lead_to(r, i);
      r->blocks[i].state = REACH_DIRECT;
      follow(r);
    }
}

/* So from the last on each stays that none of those behind it leads to. */
static void choose_direct(reach *r) {
  r->phase = REACH_CHOICE;
  for (size_t i = r->count; i-- > 0;) {
    reach_block *b = &r->blocks[i];
    if (b->state == REACH_DIRECT && b->passed)
      b->state = REACH_INDIRECT;
    else if (b->state == REACH_DIRECT) {
      lead_to(r, i);
      follow(r);
    }
  }
}

internal void reach_follow(reach *r) { follow(r); }
internal void reach_forget(reach_block *b) { b->state = REACH_FOUND; }
internal void reach_divide(reach *r) {
  find_candidates(r);
  choose_direct(r);
}
