#include "forms/sized.h"

#include <errno.h>
#include <string.h>

#include "api/inspect.h"
#include "api/malloc.h"
#include "api/thread.h"
#include "base/bits.h"
#include "base/figures.h"
#include "forms/named.h"
#include "forms/thread_end.h"
#include "os/os.h"
#include "os/report.h"
#include "pages/meta.h"

enum {
  CLASSES = MASU_SIZE_INDEXES,
  TINY = 0, /* the class whose links are numbers */
  STEP_CLASSES = 8, /* of 4 bytes each */
  SIZED_TABLE = 1024,
  PIECE_HEAD = 64,
  PIECE_SHIFT = 17,
  PIECES = 1 << 15, /* of the tiny class */
  BATCH_MOST = 256,
  BATCH_LEAST = 8,
  FAR_APART = 512, /* bytes */
};
#define PIECE_SIZE (512 * KIB)
#define BATCH_BYTES (32 * KIB)

/* ---- Classes ---- */

/* By (size + 3) / 4, for the sizes that programs ask for most. */
#define ROW2(c) c, c
#define ROW4(c) ROW2(c), ROW2(c)
#define ROW8(c) ROW4(c), ROW4(c)
#define ROW16(c) ROW8(c), ROW8(c)
#define ROW32(c) ROW16(c), ROW16(c)
static const uint8_t class_by_four[SIZED_TABLE / 4 + 1] = {
    0, 0, 1, 2, 3, 4, 5, 6, 7, ROW2(8), ROW2(9), ROW2(10), ROW2(11),
    ROW4(12), ROW4(13), ROW4(14), ROW4(15), ROW8(16), ROW8(17), ROW8(18), ROW8(19),
    ROW16(20), ROW16(21), ROW16(22), ROW16(23), ROW32(24), ROW32(25), ROW32(26), ROW32(27)};

static inline unsigned sized_class(size_t size) {
  if (LIKELY(size <= SIZED_TABLE))
    return class_by_four[(size + 3) / 4];
  unsigned doubling = bit_high64(size - 1);
  return STEP_CLASSES + (doubling - 5) * 4 + ((size - 1) >> (doubling - 2) & 3);
}

static inline size_t sized_size(unsigned c) {
  if (c < STEP_CLASSES)
    return (c + 1) * 4;
  unsigned doubling = 5 + (c - STEP_CLASSES) / 4, quarter = (c - STEP_CLASSES) % 4;
  return ((size_t)5 + quarter) << (doubling - 2);
}

static inline uint32_t sized_batch(unsigned c) {
  return (uint32_t)min_size(max_size(BATCH_BYTES / sized_size(c), BATCH_LEAST), BATCH_MOST);
}

PUBLIC unsigned masu_size_index(size_t size) {
  return size <= MASU_SIZED_MAX ? sized_class(size) : MASU_SIZE_INDEXES;
}
PUBLIC size_t masu_size_of_index(unsigned index) {
  return index < MASU_SIZE_INDEXES ? sized_size(index) : 0;
}

/* ---- Pieces ---- */

typedef struct piece {
  struct piece *next; /* of the class */
  uint32_t size_class, number;
  uint32_t capacity;
  atomic_u32 made; /* checked builds look at it without the lock */
  uint32_t free; /* while trimming */
  atomic_u64 *live; /* checked builds: one bit a block */
} piece;
_Static_assert(sizeof(piece) <= PIECE_HEAD, "before the first block");

/* A list of blocks: the first, or its number; 0: none. */
typedef uint64_t sized_list;
typedef uint32_t __attribute__((may_alias)) tiny_link;
typedef uint64_t __attribute__((may_alias, aligned(4))) wide_link;

static SELDOM piece *tiny_pieces[PIECES];

static inline piece *piece_of(const void *p) {
  return (piece *)((uintptr_t)p & ~(uintptr_t)(PIECE_SIZE - 1));
}
static inline char *tiny_at(sized_list number) {
  uint32_t n = (uint32_t)number - 1;
  return (char *)tiny_pieces[n >> PIECE_SHIFT] + PIECE_HEAD + (n & ((1u << PIECE_SHIFT) - 1)) * 4;
}
static inline sized_list tiny_number(const char *b) {
  const piece *in = piece_of(b);
  return (in->number << PIECE_SHIFT | (uint32_t)(b - (const char *)in - PIECE_HEAD) / 4) + 1;
}

/* The first block of a list that isn't empty comes off. */
static inline char *list_take(unsigned c, sized_list *list) {
  if (UNLIKELY(c == TINY)) {
    char *b = tiny_at(*list);
    *list = *(tiny_link *)b;
    return b;
  }
  char *b = (char *)(uintptr_t)*list;
  *list = *(wide_link *)b;
  return b;
}
static inline void list_put(unsigned c, sized_list *list, char *b) {
  if (UNLIKELY(c == TINY)) {
    *(tiny_link *)b = (uint32_t)*list;
    *list = tiny_number(b);
    return;
  }
  *(wide_link *)b = *list;
  *list = (uintptr_t)b;
}

/* ---- The depot ---- */

/* Lists, each with its length in the upper bits. */
enum { LENGTH_SHIFT = 48, DEPOT_LEAST = 64 };

/* Guarded by LOCK_SIZED. */
static struct depot {
  uint64_t *lists;
  size_t count, room;
  size_t free; /* blocks in the lists */
  size_t made, held;
  piece *pieces; /* the newest first, the only one that isn't made entirely */
} depots[CLASSES];

static sized_list list_of(uint64_t entry) {
  return entry & (((uint64_t)1 << LENGTH_SHIFT) - 1);
}
static uint32_t length_of(uint64_t entry) { return (uint32_t)(entry >> LENGTH_SHIFT); }
static uint64_t entry_of(sized_list list, uint32_t length) {
  return (uint64_t)length << LENGTH_SHIFT | list;
}

/* Lock held. */
static bool depot_room(struct depot *d) {
  if (LIKELY(d->count < d->room))
    return true;
  size_t room = max_size(d->room * 2, DEPOT_LEAST);
  int saved = errno;
  uint64_t *more = masu_reallocarray(d->lists, room, sizeof *more);
  if (!more) {
    errno = saved; /* a free succeeds all the same */
    return false;
  }
  d->lists = more;
  d->room = room;
  return true;
}

/* Without memory for one more entry the list joins one that is short enough. */
static COLD void depot_join(unsigned c, sized_list list, uint32_t length) {
  uint64_t *top = &depots[c].lists[depots[c].count - 1];
  while (top > depots[c].lists && length + length_of(*top) > UINT16_MAX)
    top--;
  sized_list joined = list_of(*top);
  uint32_t total = length + length_of(*top);
  while (list)
    list_put(c, &joined, list_take(c, &list));
  *top = entry_of(joined, total);
}

/* Lock held. There is room for one entry from the first piece on. */
static void depot_put(unsigned c, sized_list list, uint32_t length) {
  struct depot *d = &depots[c];
  d->free += length;
  if (LIKELY(depot_room(d)))
    d->lists[d->count++] = entry_of(list, length);
  else
    depot_join(c, list, length);
}

/* Lock held. 0: there is none. */
static uint64_t depot_take(unsigned c) {
  struct depot *d = &depots[c];
  if (!d->count)
    return 0;
  uint64_t entry = d->lists[--d->count];
  d->free -= length_of(entry);
  return entry;
}

/* ---- New blocks ---- */

/* Lock held. */
static bool number_piece(piece *p) {
  static uint32_t next;
  for (uint32_t i = 0; i < PIECES; i++, next++)
    if (!tiny_pieces[next % PIECES]) {
      p->number = next % PIECES;
      tiny_pieces[p->number] = p;
      return true;
    }
  return false;
}

/* Lock held. NULL: out of memory. */
static piece *add_piece(unsigned c) {
  size_t dirty;
  struct depot *d = &depots[c];
  piece *p = depot_room(d) ? form_take(NULL, PIECE_SIZE, PIECE_SIZE, &dirty) : NULL;
  if (!p)
    return NULL;
  *p = (piece){.size_class = c, .next = d->pieces};
  p->capacity = (uint32_t)((PIECE_SIZE - PIECE_HEAD) / sized_size(c));
  if (CHECKED)
    p->live = masu_calloc(p->capacity / 64 + 1, sizeof *p->live);
  if ((CHECKED && !p->live) || (c == TINY && !number_piece(p))) {
    masu_free((void *)p->live);
    masu_free(p);
    return NULL;
  }
  d->pieces = p;
  d->held += PIECE_SIZE;
  return p;
}

/* Lock held. The next blocks that were never used: a page of them, or a batch, in
 * address order. 0: out of memory. */
static uint64_t make_blocks(unsigned c) {
  piece *p = depots[c].pieces;
  size_t size = sized_size(c);
  if ((!p || p->made == p->capacity) && !(p = add_piece(c)))
    return 0;
  uint32_t n = (uint32_t)min_size(max_size(os_page() / size, 1), sized_batch(c));
  n = (uint32_t)min_size(n, p->capacity - p->made);
  sized_list list = 0;
  char *first = (char *)p + PIECE_HEAD + p->made * size;
  for (uint32_t i = n; i-- > 0;)
    list_put(c, &list, first + i * size);
  p->made += n;
  depots[c].made += n;
  return entry_of(list, n);
}

/* ---- A thread's lists ---- */

/* taken - given is how many blocks are missing from a batch; negative: too many. Two
 * counts, so that neither a take nor a give waits for the other's. */
typedef struct ready_list {
  sized_list list;
  uint32_t taken, given;
  sized_list spare;
  uint32_t spare_length; /* a batch at least, or 0 */
} ready_list;

/* of[TINY] is always empty and without room, so that the fast paths need not know about
 * links that are numbers: such blocks take the slow way, to `tiny`. */
typedef struct sized_lists {
  ready_list of[CLASSES];
  ready_list tiny;
  struct sized_lists *next; /* of unused ones; LOCK_SIZED */
} sized_lists;

static inline int32_t list_room(const ready_list *r) { return (int32_t)(r->taken - r->given); }

/* A thread without lists has these: empty, and without room. */
static sized_lists no_lists;
static sized_lists *unused_lists;
static __thread sized_lists *my_lists = &no_lists;

static ready_list *list_of_class(sized_lists *l, unsigned c) {
  return c == TINY ? &l->tiny : &l->of[c];
}
static uint32_t list_length(unsigned c, const ready_list *r) {
  return (uint32_t)((int32_t)sized_batch(c) - list_room(r));
}
static void set_list(unsigned c, ready_list *r, sized_list list, uint32_t length) {
  r->list = list;
  r->taken = sized_batch(c) - length;
  r->given = 0;
}

static COLD bool join_lists(void) {
  if (!forms_watch_thread())
    return false;
  bool busy = thread_lock(LOCK_SIZED);
  sized_lists *l = unused_lists;
  if (l)
    unused_lists = l->next;
  else if ((l = meta_alloc(sizeof *l)))
    for (unsigned c = 0; c < CLASSES; c++)
      set_list(c, list_of_class(l, c), 0, 0);
  thread_unlock(LOCK_SIZED, busy);
  if (l)
    my_lists = l;
  return l != NULL;
}

/* Blocks that were freed one after the other often lie side by side. If they are more than FAR_APART bytes apart
 * the processor does not read ahead in their list by itself: whoever takes them would wait for each. Inlined,
 * since compilers take functions that only fetch ahead for empty. */
static ALWAYS_INLINE void fetch_list(unsigned c, sized_list list, uint32_t length) {
  ptrdiff_t size = (ptrdiff_t)sized_size(c);
  const char *first = (const char *)(uintptr_t)list;
  if (size <= FAR_APART || length < 3)
    return;
  ptrdiff_t apart = (const char *)(uintptr_t)*(const wide_link *)(const void *)first - first;
  for (uint32_t i = 2; i < length && (apart == size || apart == -size); i++)
    __builtin_prefetch(first + i * apart, 1);
}

/* The list is empty. */
static bool refill_list(unsigned c, ready_list *r) {
  if (r->spare) {
    set_list(c, r, r->spare, r->spare_length);
    fetch_list(c, r->spare, r->spare_length);
    r->spare = 0;
    return true;
  }
  thread_hold(LOCK_SIZED);
  uint64_t entry = depot_take(c);
  if (!entry)
    entry = make_blocks(c);
  thread_let_go(LOCK_SIZED);
  set_list(c, r, list_of(entry), length_of(entry));
  fetch_list(c, list_of(entry), length_of(entry));
  return entry != 0;
}

/* The list has come to a batch. */
static void spill_list(unsigned c, ready_list *r) {
  if (r->spare) {
    thread_hold(LOCK_SIZED);
    depot_put(c, r->spare, r->spare_length);
    thread_let_go(LOCK_SIZED);
  }
  r->spare = r->list;
  r->spare_length = list_length(c, r);
  set_list(c, r, 0, 0);
}

/* Lock held. */
static void empty_lists(sized_lists *l) {
  for (unsigned c = 0; c < CLASSES; c++) {
    ready_list *r = list_of_class(l, c);
    if (r->spare)
      depot_put(c, r->spare, r->spare_length);
    if (r->list)
      depot_put(c, r->list, list_length(c, r));
    r->spare = 0;
    set_list(c, r, 0, 0);
  }
}

internal void sized_thread_ends(void) {
  sized_lists *l = my_lists;
  if (l == &no_lists)
    return;
  my_lists = &no_lists;
  thread_hold(LOCK_SIZED);
  empty_lists(l);
  l->next = unused_lists;
  unused_lists = l;
  thread_let_go(LOCK_SIZED);
}

/* ---- Checked builds ---- */

static void flip_sized(char *b, unsigned c, bool live) {
  map_entry e = map_get(b);
  const slab *s = map_entry_descriptor(e);
  piece *p = piece_of(b);
  if (e == MAP_NONE || s->start != (char *)p || s->kind != SLAB_RUN || p->size_class != c)
    report_misuse("masu_sized_free of a pointer that is no block of that size", b);
  size_t offset = (size_t)(b - (char *)p - PIECE_HEAD), i = offset / sized_size(c);
  if (offset % sized_size(c) || i >= p->made)
    report_misuse("masu_sized_free of a pointer inside a block", b);
  uint64_t bit = (uint64_t)1 << i % 64;
  uint64_t before = live ? atomic_fetch_or(&p->live[i / 64], bit)
                         : atomic_fetch_and(&p->live[i / 64], ~bit);
  if ((before & bit) != (live ? 0 : bit))
    report_misuse(live ? "sized block handed out twice" : "double free of a sized block", b);
}

/* ---- Allocating and freeing ---- */

static COLD void *sized_out_of_memory(void) {
  errno = ENOMEM;
  return NULL;
}

/* For a thread that can have no lists: one block, the rest of its list goes back. */
static COLD void *take_one(unsigned c) {
  thread_hold(LOCK_SIZED);
  uint64_t entry = depot_take(c);
  if (!entry)
    entry = make_blocks(c);
  sized_list list = list_of(entry);
  char *b = entry ? list_take(c, &list) : NULL;
  if (list)
    depot_put(c, list, length_of(entry) - 1);
  thread_let_go(LOCK_SIZED);
  if (CHECKED && b)
    flip_sized(b, c, true);
  return b ? b : sized_out_of_memory();
}

static NOINLINE void *sized_alloc_slow(unsigned c) {
  if (my_lists == &no_lists && !join_lists())
    return take_one(c);
  ready_list *r = list_of_class(my_lists, c);
  if (!r->list && !refill_list(c, r))
    return sized_out_of_memory();
  r->taken++;
  char *b = list_take(c, &r->list);
  if (CHECKED)
    flip_sized(b, c, true);
  return b;
}

static ALWAYS_INLINE void *sized_take(unsigned c) {
  ready_list *r = &my_lists->of[c];
  sized_list b = r->list;
  if (UNLIKELY(!b))
    return sized_alloc_slow(c);
  r->list = *(wide_link *)(uintptr_t)b;
  r->taken++;
  if (CHECKED)
    flip_sized((char *)(uintptr_t)b, c, true);
  return (void *)(uintptr_t)b;
}

/* There is no room. A thread that can have no lists gives each block to the depot. */
static NOINLINE void sized_free_slow(void *p, unsigned c) {
  sized_list one = 0;
  if (my_lists != &no_lists || join_lists()) {
    ready_list *r = list_of_class(my_lists, c);
    if (list_room(r) <= 0)
      spill_list(c, r);
    r->given++;
    list_put(c, &r->list, p);
    return;
  }
  list_put(c, &one, p);
  thread_hold(LOCK_SIZED);
  depot_put(c, one, 1);
  thread_let_go(LOCK_SIZED);
}

static ALWAYS_INLINE void sized_give(void *p, unsigned c) {
  ready_list *r = &my_lists->of[c];
  if (CHECKED)
    flip_sized(p, c, false);
  if (UNLIKELY(list_room(r) <= 0)) {
    sized_free_slow(p, c);
    return;
  }
  r->given++;
  *(wide_link *)p = r->list;
  r->list = (uintptr_t)p;
}

PUBLIC void *masu_sized_alloc_index(unsigned index) { return sized_take(index); }
PUBLIC void masu_sized_free_index(void *p, unsigned index) { sized_give(p, index); }

PUBLIC void *(masu_sized_alloc)(size_t size) {
  if (UNLIKELY(size > MASU_SIZED_MAX))
    return masu_malloc(size);
  return sized_take(sized_class(size));
}

PUBLIC void (masu_sized_free)(void *p, size_t size) {
  if (UNLIKELY(!p))
    return;
  if (UNLIKELY(size > MASU_SIZED_MAX))
    masu_free_sized(p, size);
  else
    sized_give(p, sized_class(size));
}

/* ---- Giving back ---- */

/* Lock held. */
static void tally_depot(unsigned c) {
  for (piece *p = depots[c].pieces; p; p = p->next)
    p->free = 0;
  for (size_t i = 0; i < depots[c].count; i++)
    for (sized_list l = list_of(depots[c].lists[i]); l;)
      piece_of(list_take(c, &l))->free++;
}

/* Lock held. Makes the lists anew without the blocks of pieces that go, in the places of
 * those that were read already. */
static void relist_depot(unsigned c) {
  struct depot *d = &depots[c];
  sized_list kept = 0;
  uint32_t length = 0;
  size_t count = 0, before = d->count;
  d->free = 0;
  for (size_t i = 0; i < before; i++)
    for (sized_list l = list_of(d->lists[i]); l;) {
      char *b = list_take(c, &l);
      if (piece_of(b)->free == piece_of(b)->made)
        continue;
      list_put(c, &kept, b);
      if (++length >= sized_batch(c) && count <= i) {
        d->lists[count++] = entry_of(kept, length);
        d->free += length;
        kept = length = 0;
      }
    }
  d->count = count;
  if (length)
    depot_put(c, kept, length);
}

/* Lock held. */
static size_t drop_pieces(unsigned c) {
  struct depot *d = &depots[c];
  size_t bytes = 0;
  for (piece **at = &d->pieces, *p; (p = *at);) {
    if (p->free != p->made) {
      at = &p->next;
      continue;
    }
    *at = p->next;
    d->made -= p->made;
    d->held -= PIECE_SIZE;
    if (c == TINY)
      tiny_pieces[p->number] = NULL;
    masu_free((void *)p->live);
    masu_free(p);
    bytes += PIECE_SIZE;
  }
  return bytes;
}

PUBLIC size_t masu_sized_trim(void) {
  size_t bytes = 0;
  thread_hold(LOCK_SIZED);
  if (my_lists != &no_lists)
    empty_lists(my_lists);
  for (unsigned c = 0; c < CLASSES; c++) {
    tally_depot(c);
    relist_depot(c);
    bytes += drop_pieces(c);
  }
  thread_let_go(LOCK_SIZED);
  if (bytes)
    give_back_idle(0);
  return bytes;
}

PUBLIC int masu_sized_read(unsigned index, masu_sized_figures *out, size_t size) {
  if (index >= CLASSES || !FIGURES_FIT(size, masu_sized_figures, held))
    return EINVAL;
  thread_hold(LOCK_SIZED);
  const struct depot *d = &depots[index];
  masu_sized_figures now = {.live = d->made - d->free, .made = d->made, .held = d->held};
  thread_let_go(LOCK_SIZED);
  if (my_lists != &no_lists) {
    const ready_list *r = list_of_class(my_lists, index);
    now.live -= (r->list ? list_length(index, r) : 0) + (r->spare ? r->spare_length : 0);
  }
  figures_give(out, size, &now, sizeof now);
  return 0;
}
