#include "observe/spool.h"

#include <errno.h>
#include <stdio.h>

#include "base/bits.h"
#include "os/os.h"

_Static_assert(sizeof(trace_process) <= TRACE_PAGE, "the first page");
_Static_assert(sizeof(trace_block) == 64, "the header of a block");

/* Blocks grow, since most threads say little. Each is of whole pages of the system, which have up to 64 KiB. */
enum { SETTLED = 8 /* blocks of a thread that then gets a room */, ROOM = 4 /* blocks */ };

static uint32_t pages_of(uint32_t blocks) {
  size_t pages = blocks == 0 ? 1 : blocks == 1 ? 4 : TRACE_BLOCK_PAGES;
  return (uint32_t)max_size(pages, os_page() / TRACE_PAGE);
}

internal int spool_make(spool *s, const char *in, uint32_t process) {
  int why = 0;
  for (unsigned n = 0; n < 10000; n++) {
    snprintf(s->path, sizeof s->path, "%s/%u-%u.spool", in, process, n);
    if ((why = os_file_make(s->path)) != EEXIST)
      break;
  }
  s->head = why ? NULL : os_file_map(s->path, 0, os_page(), &why);
  return why;
}

/* An empty block, in a page that reads as zero. Who takes blocks does not wait for it to be begun. */
static void make_block(trace_block *b, trace_block as) {
  uint64_t magic = as.magic;
  as.magic = 0;
  *b = as;
  compiler_fence();
  b->magic = magic;
}

static int claim_room(spool *s, spool_room *room, uint32_t thread, uint32_t level, uint64_t now) {
  uint32_t pages = pages_of(room->blocks), count = room->blocks < SETTLED ? 1 : ROOM;
  uint32_t page = add_relaxed(&s->head->pages, pages * count);
  size_t block_size = (size_t)pages * TRACE_PAGE, size = count * block_size;
  int why = 0;
  spool_leave(room);
  char *begin = os_file_map(s->path, (uint64_t)page * TRACE_PAGE, size, &why);
  if (!begin)
    return why;
  os_populate(begin, size); /* else each page is a fault */
  for (uint32_t i = 0; i < count; i++)
    make_block((void *)(begin + i * block_size), (trace_block){.magic = TRACE_BLOCK_MAGIC,
                                                               .page = page + i * pages,
                                                               .pages = pages,
                                                               .thread = thread,
                                                               .level = level,
                                                               .time = now,
                                                               .state = TRACE_OPEN});
  room->begin = begin;
  room->end = begin + size;
  return 0;
}

/* All blocks of the room, which are full, behind what was claimed so far. */
static int write_copies(spool *s, const spool_room *room) {
  trace_block copy[ROOM];
  os_part part[2 * ROOM];
  const trace_block *first = (const void *)room->begin;
  size_t size = spool_block_size(first);
  uint32_t page = add_relaxed(&s->head->pages, first->pages * ROOM);
  for (uint32_t i = 0; i < ROOM; i++) {
    const trace_block *b = (const void *)(room->begin + i * size);
    copy[i] = *b;
    copy[i].page = page + i * b->pages;
    copy[i].state = TRACE_FULL;
    copy[i].copy_of = b->page;
    part[2 * i] = (os_part){&copy[i], sizeof *b};
    part[2 * i + 1] = (os_part){b + 1, size - sizeof *b};
  }
  return os_file_put(s->path, (uint64_t)page * TRACE_PAGE, part, 2 * ROOM);
}

/* The same room once more. */
static int empty_room(spool *s, spool_room *room, uint64_t now) {
  int why = write_copies(s, room);
  if (why)
    return why;
  size_t size = spool_block_size(room->block);
  for (char *at = room->begin; at < room->end; at += size) {
    trace_block *b = (void *)at;
    store_release(&b->state, TRACE_COPIED); /* from here on the copy counts */
    memset(b + 1, 0, size - sizeof *b);
    b->time = now;
    store_release(&b->state, TRACE_OPEN);
  }
  return 0;
}

internal int spool_next(spool *s, spool_room *room, uint32_t thread, uint32_t level, uint64_t now) {
  char *next = room->block ? (char *)room->block + spool_block_size(room->block) : room->end;
  if (next == room->end) {
    int why = room->blocks > SETTLED ? empty_room(s, room, now) : claim_room(s, room, thread, level, now);
    if (why) {
      spool_leave(room);
      return why;
    }
    next = room->begin;
  }
  room->block = (void *)next;
  room->block->time = now;
  room->blocks++;
  return 0;
}

internal void spool_leave(spool_room *room) {
  if (!room->begin)
    return;
  size_t size = spool_block_size((const void *)room->begin);
  for (char *b = room->begin; b < room->end; b += size)
    store_release(&((trace_block *)(void *)b)->state, TRACE_FULL);
  os_unmap(room->begin, (size_t)(room->end - room->begin));
  *room = (spool_room){.blocks = room->blocks};
}
