/* A star effect at 60 frames per second: many small blocks that live for some frames.
 * Draws how long each frame's work took, with malloc, with a pool, and with an arena for
 * each frame.
 *
 *   stars [SECONDS]     of each of the three; default 1
 */
#include <masu/arena.h>
#include <masu/pool.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FRAMES_A_SECOND = 60, ALIVE = 10000, BUCKETS = 16 };

typedef struct star {
  struct star *next;
  float x, y, vx, vy;
  int frames_left;
  char trail[96];
} star;

/* ---- Three ways to get a star ---- */

static masu_pool *pool;
static masu_arena *now, *before;

static void *take_malloc(void) { return malloc(sizeof(star)); }
static void *take_pool(void) { return masu_pool_alloc(pool); }
static void *take_arena(void) { return masu_arena_alloc(now, sizeof(star)); }
static void drop_malloc(star *s) { free(s); }
static void drop_pool(star *s) { masu_pool_free(pool, s); }

typedef struct way {
  const char *name;
  void *(*take)(void);
  void (*drop)(star *s); /* NULL: the living move to the next frame's arena */
} way;

/* ---- A frame ---- */

static unsigned seed;
static float random_number(void) {
  seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
  return (float)(seed >> 8) / (1 << 24);
}

static star *born(const way *w, star *next) {
  star *s = w->take();
  if (!s)
    exit(1);
  *s = (star){next, random_number(), 0, random_number() - 0.5f, random_number(),
              10 + (int)(random_number() * 50), {0}};
  return s;
}

static void fly(star *s) {
  s->x += s->vx / 60;
  s->y += s->vy / 60;
  memmove(s->trail + 8, s->trail, sizeof s->trail - 8);
  memcpy(s->trail, &s->x, 8);
}

/* One step of the stars: each flies or dies; as many are born. */
static star *step(const way *w, star *sky) {
  star *living = NULL;
  int alive = 0;
  for (star *s = sky, *next; s; s = next) {
    next = s->next;
    if (--s->frames_left == 0) {
      if (w->drop)
        w->drop(s);
      continue;
    }
    if (!w->drop) {
      star *copy = w->take();
      if (!copy)
        exit(1);
      *copy = *s;
      s = copy;
    }
    fly(s);
    s->next = living;
    living = s;
    alive++;
  }
  for (; alive < ALIVE; alive++)
    living = born(w, living);
  return living;
}

/* ---- The loop ---- */

static double microseconds(const struct timespec *from, const struct timespec *to) {
  return (double)(to->tv_sec - from->tv_sec) * 1e6 + (double)(to->tv_nsec - from->tv_nsec) / 1e3;
}

static void draw(const char *name, const unsigned *buckets, unsigned frames, double worst) {
  unsigned most = 1;
  for (int i = 0; i < BUCKETS; i++)
    most = buckets[i] > most ? buckets[i] : most;
  printf("%s: %u frames, the slowest %.0f us\n", name, frames, worst);
  for (int i = 0; i < BUCKETS; i++)
    if (buckets[i])
      printf("  %6d us  %5u  %.*s\n", 1 << i, buckets[i], (int)(buckets[i] * 40 / most),
             "########################################");
}

static void play(const way *w, unsigned frames) {
  unsigned buckets[BUCKETS] = {0};
  double worst = 0;
  star *sky = NULL;
  struct timespec due, start, end;
  seed = 1;
  clock_gettime(CLOCK_MONOTONIC, &due);
  for (unsigned frame = 0; frame < frames; frame++) {
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!w->drop) {
      masu_arena *swap = now;
      now = before;
      before = swap;
      masu_arena_reset(now);
    }
    sky = step(w, sky);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double took = microseconds(&start, &end);
    int bucket = 0;
    while (bucket < BUCKETS - 1 && took > 1 << bucket)
      bucket++;
    buckets[bucket]++;
    worst = took > worst && frame ? took : worst; /* the first frame makes the sky */
    due.tv_nsec += 1000000000 / FRAMES_A_SECOND;
    if (due.tv_nsec >= 1000000000) {
      due.tv_nsec -= 1000000000;
      due.tv_sec++;
    }
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
  }
  draw(w->name, buckets, frames, worst);
  for (star *s = sky, *next; s && w->drop; s = next) {
    next = s->next;
    w->drop(s);
  }
}

int main(int argc, char **argv) {
  static const way ways[] = {
      {"malloc", take_malloc, drop_malloc},
      {"pool", take_pool, drop_pool},
      {"arena for each frame", take_arena, NULL},
  };
  double seconds = argc > 1 ? atof(argv[1]) : 1;
  if (seconds <= 0) {
    fprintf(stderr, "usage: stars [SECONDS]\n");
    return 2;
  }
  pool = masu_pool_create(sizeof(star), _Alignof(star), 0);
  now = masu_arena_create(ALIVE * sizeof(star));
  before = masu_arena_create(ALIVE * sizeof(star));
  if (!pool || !now || !before || masu_pool_reserve(pool, ALIVE))
    return 1;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
    play(&ways[i], (unsigned)(seconds * FRAMES_A_SECOND) + 1);
  masu_pool_destroy(pool);
  masu_arena_destroy(now);
  masu_arena_destroy(before);
  return 0;
}
