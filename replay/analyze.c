/* analyze TRACE
 *
 * Prints what the trace of one process says about its blocks, as one JSON object: by size,
 * by lifetime, over time, from thread to thread, and by call site. Reads the trace twice:
 * the second time it stops at the moment when most bytes were live. A site is a call stack;
 * in traces without stacks it is a size. Exit status 1 with a line on stderr when TRACE is
 * no trace. */

#include "merge.h"
#include "tool.h"

/* ---- Sizes: exact ones to 64 KiB, above 8 steps a doubling ---- */

enum { EXACT = 65536, STEPS = 8, SIZES = EXACT + 1 + STEPS * 48, LIVES = 64 };

static unsigned index_of_size(uint64_t n) {
  if (n <= EXACT)
    return (unsigned)n;
  unsigned shift = 60 - (unsigned)__builtin_clzll(n - 1);
  unsigned i = EXACT + (shift - 13) * STEPS + (unsigned)((n - 1) >> shift) - STEPS + 1;
  return i < SIZES ? i : SIZES - 1;
}

/* The largest of the sizes that share it. */
static uint64_t size_of_index(unsigned i) {
  if (i <= EXACT)
    return i;
  unsigned step = i - EXACT - 1;
  return (uint64_t)(STEPS + step % STEPS + 1) << (13 + step / STEPS);
}

typedef struct size_figures {
  uint64_t taken, bytes;
  int64_t live;
  uint64_t changed_ns; /* when live last changed */
  double live_ns;      /* live over time, up to then */
} size_figures;

/* ---- Sites ---- */

enum { PILES = 32 }; /* threads whose numbers differ by as much count as one */

typedef struct site {
  uint32_t stack; /* 0: of the size */
  uint64_t size;
  uint64_t taken, bytes, given, resized;
  uint64_t usual; /* the size that most have, if one has more than half; */
  uint64_t votes, least, most;
  uint64_t of_usual;
  int64_t live, live_blocks;
  uint64_t live_most, blocks_most;
  uint64_t handed; /* freed by another thread */
  uint64_t runs;   /* of frees with nothing taken between */
  uint64_t lifo;   /* freed: the youngest that its thread had of the site */
  bool giving;
  double life_ns;
  uint32_t top[PILES]; /* the youngest live block, by thread; slots count from 1 */
} site;

/* A live block between those that its thread took at the site after and before it. */
typedef struct in_pile {
  uint32_t above, below;
} in_pile;

/* ---- What one reading counts ---- */

enum {
  POINTS = 1200,
  THREADS = 33, /* the last: all others */
};

typedef struct point {
  uint64_t ns, bytes, blocks, calls;
} point;

typedef struct tally {
  size_figures size[SIZES];
  uint64_t lives[LIVES + 1], lives_bytes[LIVES + 1]; /* by log2 of ns; the last: never freed */
  uint64_t handed[THREADS][THREADS];
  site *sites;
  size_t site_count, site_room; /* open addressing, a power of two */
  in_pile *piled;               /* by slot */
  size_t piled_room;
  point points[POINTS];
  size_t point_count;
  uint64_t point_step; /* calls between two points */
  uint64_t live, blocks, calls;
  uint64_t live_most, most_at; /* bytes, and after how many calls */
  uint64_t first_ns, last_ns;
  uint32_t threads;
} tally;

static tally whole, to_peak;

static size_t place_of(const tally *t, uint32_t stack, uint64_t n) {
  return (size_t)((n * 31 + stack) * 0x9e3779b97f4a7c15 >> (64 - __builtin_ctzll(t->site_room)));
}

static site *site_at(tally *t, uint32_t stack, uint64_t n) {
  size_t i = place_of(t, stack, n);
  while (t->sites[i].taken && (t->sites[i].stack != stack || t->sites[i].size != n))
    i = (i + 1) & (t->site_room - 1);
  return &t->sites[i];
}

static site *site_of(tally *t, const object *o, uint64_t n) {
  uint32_t stack = o->stack;
  uint64_t of = stack ? 0 : size_of_index(index_of_size(n));
  if ((t->site_count + 1) * 2 > t->site_room) {
    site *old = t->sites;
    size_t room = t->site_room;
    t->site_room = room ? room * 2 : 1024;
    t->sites = must(calloc(t->site_room, sizeof *t->sites));
    for (size_t k = 0; k < room; k++)
      if (old[k].taken)
        *site_at(t, old[k].stack, old[k].size) = old[k];
    free(old);
  }
  site *s = site_at(t, stack, of);
  if (!s->taken) {
    *s = (site){.stack = stack, .size = of, .least = n};
    t->site_count++;
  }
  return s;
}

static void note_point(tally *t, uint64_t ns) {
  if (t->calls % t->point_step)
    return;
  if (t->point_count == POINTS) {
    for (size_t i = 0; i < POINTS / 2; i++)
      t->points[i] = t->points[2 * i];
    t->point_count = POINTS / 2;
    t->point_step *= 2;
  }
  t->points[t->point_count++] = (point){ns - t->first_ns, t->live, t->blocks, t->calls};
}

static unsigned row_of(uint32_t thread) { return thread < THREADS - 1 ? thread : THREADS - 1; }

/* ---- Reading ---- */

static void change_live(tally *t, uint64_t n, int by) {
  size_figures *f = &t->size[index_of_size(n)];
  f->live_ns += (double)f->live * (double)(t->last_ns - f->changed_ns);
  f->changed_ns = t->last_ns;
  f->live += by;
}

static void count_live(tally *t, site *s, uint64_t n) {
  change_live(t, n, 1);
  s->live += (int64_t)n;
  s->live_blocks++;
  if (s->live > (int64_t)s->live_most)
    s->live_most = (uint64_t)s->live;
  if (s->live_blocks > (int64_t)s->blocks_most)
    s->blocks_most = (uint64_t)s->live_blocks;
  t->live += n;
  t->blocks++;
}

static void count_gone(tally *t, site *s, uint64_t n) {
  change_live(t, n, -1);
  s->live -= (int64_t)n;
  s->live_blocks--;
  t->live -= n;
  t->blocks--;
}

static uint32_t *top_of(site *s, const object *o) { return &s->top[o->born_thread % PILES]; }

static void put_on_pile(tally *t, site *s, const object *o) {
  if (o->slot >= t->piled_room) {
    t->piled_room = 2 * (o->slot + 1ul);
    t->piled = must(realloc(t->piled, t->piled_room * sizeof *t->piled));
  }
  uint32_t *top = top_of(s, o);
  t->piled[o->slot] = (in_pile){.below = *top};
  if (*top)
    t->piled[*top - 1].above = o->slot + 1;
  *top = o->slot + 1;
}

/* True: it lay on top. */
static bool take_off_pile(tally *t, site *s, const object *o) {
  in_pile p = t->piled[o->slot];
  if (p.below)
    t->piled[p.below - 1].above = p.above;
  if (p.above)
    t->piled[p.above - 1].below = p.below;
  else
    *top_of(s, o) = p.below;
  return !p.above;
}

static void take(tally *t, const object *o, uint64_t n) {
  size_figures *f = &t->size[index_of_size(n)];
  site *s = site_of(t, o, n);
  f->taken++;
  f->bytes += n;
  s->taken++;
  s->bytes += n;
  if (s->votes == 0)
    s->usual = n, s->of_usual = 0;
  s->votes += n == s->usual ? 1 : -1ull;
  s->of_usual += n == s->usual;
  s->least = n < s->least ? n : s->least;
  s->most = n > s->most ? n : s->most;
  s->giving = false;
  put_on_pile(t, s, o);
  count_live(t, s, n);
}

static void give(tally *t, const object *o, uint32_t thread, uint64_t ns) {
  site *s = site_of(t, o, o->size);
  uint64_t life = ns > o->born_ns ? ns - o->born_ns : 0;
  unsigned b = life ? 63 - (unsigned)__builtin_clzll(life) : 0;
  t->lives[b]++;
  t->lives_bytes[b] += o->size;
  t->handed[row_of(o->born_thread)][row_of(thread)]++;
  s->given++;
  s->handed += o->born_thread != thread;
  s->life_ns += (double)life;
  s->runs += !s->giving;
  s->giving = true;
  s->lifo += take_off_pile(t, s, o);
  count_gone(t, s, o->size);
}

/* In a trace without stacks the block changes its site. */
static void resize(tally *t, const object *o, uint64_t n) {
  site *s = site_of(t, o, o->size);
  s->resized++;
  count_gone(t, s, o->size);
  if (!o->stack)
    take_off_pile(t, s, o);
  s = site_of(t, o, n);
  if (!o->stack)
    put_on_pile(t, s, o);
  s->taken += !s->taken; /* is one that counts */
  s->most = n > s->most ? n : s->most;
  count_live(t, s, n);
}

static void read_item(tally *t, const item *i) {
  if (i->ended_ns > t->last_ns)
    t->last_ns = i->ended_ns;
  switch (i->kind) {
  case ITEM_TAKE:
    take(t, i->object, i->record->size);
    break;
  case ITEM_GIVE:
    give(t, i->object, i->thread, i->ended_ns);
    break;
  case ITEM_RESIZE:
    resize(t, i->object, i->record->size);
    break;
  default:
    return;
  }
  t->calls++;
  if (t->live > t->live_most) {
    t->live_most = t->live;
    t->most_at = t->calls;
  }
  note_point(t, i->ended_ns);
}

static void visit_left(const object *o, void *t) {
  ((tally *)t)->lives[LIVES]++;
  ((tally *)t)->lives_bytes[LIVES] += o->size;
}

/* The trace up to so many calls. */
static void read_trace(tally *t, const char *path, const void *data, uint64_t length, uint64_t most) {
  const char *why;
  merge *m = merge_open(data, length, &why);
  if (!m)
    fail("%s: %s", path, why);
  t->point_step = 1;
  t->first_ns = merge_counted(m)->first_ns;
  t->threads = merge_counted(m)->threads;
  for (item i; t->calls < most && merge_next(m, &i);)
    read_item(t, &i);
  merge_left(m, visit_left, t);
  merge_close(m);
}

/* ---- Printing ---- */

#define N(x) (unsigned long long)(x)

static void print_sizes(void) {
  const char *between = "";
  printf("\"sizes\": [");
  for (unsigned i = 0; i < SIZES; i++)
    if (whole.size[i].taken || to_peak.size[i].live > 0) {
      printf("%s[%llu, %llu, %llu, %lld]", between, N(size_of_index(i)), N(whole.size[i].taken),
             N(whole.size[i].bytes), (long long)to_peak.size[i].live);
      between = ", ";
    }
  printf("], ");
}

/* Blocks live on average over the time of the recording, by size, in the order of sizes. */
static void print_mean_live(void) {
  const char *between = "";
  double all = (double)(whole.last_ns - whole.first_ns);
  printf("\"mean_live\": [");
  for (unsigned i = 0; i < SIZES; i++) {
    size_figures *f = &whole.size[i];
    if (f->taken || to_peak.size[i].live > 0) {
      double sum = f->live_ns + (double)f->live * (double)(whole.last_ns - f->changed_ns);
      printf("%s%.3f", between, all > 0 ? sum / all : (double)f->live);
      between = ", ";
    }
  }
  printf("], ");
}

static void print_lives(void) {
  printf("\"lifetimes\": [");
  for (unsigned b = 0; b <= LIVES; b++)
    printf("%s[%llu, %llu]", b ? ", " : "", N(whole.lives[b]), N(whole.lives_bytes[b]));
  printf("], ");
}

static void print_points(void) {
  printf("\"curve\": [");
  for (size_t i = 0; i < whole.point_count; i++)
    printf("%s[%.6f, %llu, %llu, %llu]", i ? ", " : "", (double)whole.points[i].ns * 1e-9,
           N(whole.points[i].bytes), N(whole.points[i].blocks), N(whole.points[i].calls));
  printf("], ");
}

static void print_matrix(void) {
  unsigned rows = whole.threads < THREADS ? whole.threads : THREADS;
  printf("\"handed\": [");
  for (unsigned r = 0; r < rows; r++) {
    printf("%s[", r ? ", " : "");
    for (unsigned c = 0; c < rows; c++)
      printf("%s%llu", c ? ", " : "", N(whole.handed[r][c]));
    printf("]");
  }
  printf("], ");
}

static int by_taken(const void *a, const void *b) {
  const site *x = *(site *const *)a, *y = *(site *const *)b;
  return x->taken != y->taken ? (x->taken < y->taken ? 1 : -1) : 0;
}
/* What of the site was live at the peak. */
static const site *then(const site *s) {
  static const site none;
  const site *found = to_peak.site_room ? site_at(&to_peak, s->stack, s->size) : &none;
  return found->taken ? found : &none;
}

static int by_peak(const void *a, const void *b) {
  int64_t x = then(*(site *const *)a)->live, y = then(*(site *const *)b)->live;
  return x != y ? (x < y ? 1 : -1) : 0;
}

enum { SHOWN = 60 };
static uint32_t wanted[2 * SHOWN];
static size_t wanted_count;

static void print_site(const site *s) {
  printf("{\"stack\": %u, \"size\": %llu, \"taken\": %llu, \"bytes\": %llu, \"given\": %llu, \"resized\": %llu, ", s->stack,
         N(s->size), N(s->taken), N(s->bytes), N(s->given), N(s->resized));
  printf("\"usual\": %llu, \"of_usual\": %llu, \"least\": %llu, \"most\": %llu, \"live_most\": %llu, \"blocks_most\": %llu, ",
         N(s->usual), N(s->of_usual), N(s->least), N(s->most), N(s->live_most), N(s->blocks_most));
  printf("\"at_peak\": %llu, \"blocks_at_peak\": %llu, \"handed\": %llu, \"runs\": %llu, \"lifo\": %llu, \"life_ns\": %.1f}",
         N(then(s)->live), N(then(s)->live_blocks), N(s->handed), N(s->runs), N(s->lifo),
         s->given ? s->life_ns / (double)s->given : 0);
}

/* Those with most calls, and with most bytes at the peak. */
static void print_sites(void) {
  site **list = must(malloc((whole.site_count + 1) * sizeof *list)), **shown = must(calloc(2 * SHOWN, sizeof *shown));
  size_t n = 0;
  for (size_t i = 0; i < whole.site_room; i++)
    if (whole.sites[i].taken)
      list[n++] = &whole.sites[i];
  const char *between = "";
  printf("\"sites_in_all\": %zu, \"sites\": [", n);
  for (int pass = 0; pass < 2; pass++) {
    qsort(list, n, sizeof *list, pass ? by_peak : by_taken);
    for (size_t i = 0; i < n && i < SHOWN; i++) {
      bool seen = false;
      for (size_t k = 0; k < wanted_count; k++)
        seen |= shown[k] == list[i];
      if (seen)
        continue;
      wanted[wanted_count] = list[i]->stack;
      shown[wanted_count++] = list[i];
      printf("%s", between);
      print_site(list[i]);
      between = ", ";
    }
  }
  printf("], ");
  free(list);
  free(shown);
}

static const char *stack_between = "";

static void print_stack(const trace_record *r) {
  for (size_t i = 0; i < wanted_count; i++)
    if (r->stack && wanted[i] == r->stack) {
      printf("%s\"%u\": [", stack_between, r->stack);
      for (uint32_t f = 0; f < r->frames; f++)
        printf("%s%llu", f ? ", " : "", N(trace_frame(r, f)));
      printf("]");
      stack_between = ", ";
      return;
    }
}

static void print_stacks(const void *data, uint64_t length) {
  const char *why;
  merge *m = merge_open(data, length, &why);
  printf("\"stacks\": {");
  for (item i; m && merge_next(m, &i);)
    if (i.kind == ITEM_STACK)
      print_stack(i.record);
  if (m)
    merge_close(m);
  printf("}}\n");
}

int main(int argc, char **argv) {
  if (argc != 2)
    fail("usage: analyze TRACE");
  uint64_t length;
  const void *data = map_file(argv[1], &length);
  read_trace(&whole, argv[1], data, length, UINT64_MAX);
  read_trace(&to_peak, argv[1], data, length, whole.most_at);
  printf("{\"calls\": %llu, \"threads\": %u, \"seconds\": %.6f, \"peak_bytes\": %llu, \"peak_s\": %.6f, ", N(whole.calls),
         whole.threads, (double)(whole.last_ns - whole.first_ns) * 1e-9, N(whole.live_most),
         (double)(to_peak.last_ns - whole.first_ns) * 1e-9);
  print_sizes();
  print_mean_live();
  print_lives();
  print_points();
  print_matrix();
  print_sites();
  print_stacks(data, length);
  return 0;
}
