/* many_threads [THREADS] [ROUNDS]
 *
 * THREADS (32) threads on fewer cores, each with ROUNDS (8,000): build a list of 50
 * small objects (16 to 128 bytes, one in 16 to 4,096), send 10 of them to another
 * thread's mailbox, take down the list of 8 rounds ago, and free whatever came by mail.
 * Who finds 500 objects in a mailbox empties it in its owner's place. Each object
 * carries its size, checked before it is freed. */
#include <stdatomic.h>

#include "threads.h"

enum { OBJECTS = 50, SENT = 10, KEPT = 8, SMALL = 128, LARGE = 4096, MAIL_MOST = 500, LINE = 64 };

typedef struct object {
  size_t seal;
  struct object *next;
  char rest[16];
} object;

static struct mailbox {
  _Alignas(LINE) _Atomic(object *) first;
  atomic_size_t count; /* about */
} *mailbox;

static size_t threads, rounds;

static object *object_new(uint32_t *random) {
  size_t largest = xorshift32(random) % 16 ? SMALL : LARGE;
  return sealed_new(random_between(random, sizeof(object), largest));
}

static void list_free(object *list) {
  while (list) {
    object *next = list->next;
    sealed_free(list);
    list = next;
  }
}

static void mailbox_empty(struct mailbox *box) {
  atomic_store(&box->count, 0);
  list_free(atomic_exchange(&box->first, NULL));
}

static void send_to(struct mailbox *box, object *o) {
  if (atomic_fetch_add(&box->count, 1) >= MAIL_MOST)
    mailbox_empty(box);
  o->next = atomic_load(&box->first);
  while (!atomic_compare_exchange_weak(&box->first, &o->next, o))
    ;
}

static object *list_build(uint32_t *random) {
  object *list = NULL;
  for (size_t i = 0; i < OBJECTS; i++) {
    object *o = object_new(random);
    if (i % (OBJECTS / SENT) == 0) {
      send_to(&mailbox[xorshift32(random) % threads], o);
    } else {
      o->next = list;
      list = o;
    }
  }
  return list;
}

static void *run(void *number) {
  uint32_t random = random_seed((size_t)number);
  object *kept[KEPT] = {0};
  for (size_t round = 0; round < rounds; round++) {
    list_free(kept[round % KEPT]);
    kept[round % KEPT] = list_build(&random);
    mailbox_empty(&mailbox[(size_t)number]);
  }
  for (size_t i = 0; i < KEPT; i++)
    list_free(kept[i]);
  return NULL;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  threads = argument(argc, argv, 1, 32, "THREADS");
  rounds = argument(argc, argv, 2, 8000, "ROUNDS");
  mailbox = got(aligned_alloc(LINE, threads * sizeof *mailbox));
  memset(mailbox, 0, threads * sizeof *mailbox);
  uint64_t start = now_ns();
  threads_run(threads, run);
  double time = seconds_since(start), operations = 2.0 * (double)threads * (double)rounds * OBJECTS;
  for (size_t i = 0; i < threads; i++)
    mailbox_empty(&mailbox[i]);
  free(mailbox);
  long resident = status_kib("VmRSS"), peak = status_kib("VmHWM");
  printf("many_threads: %zu threads, %zu rounds of %d objects: %.3f s, %.2f million operations per second, "
         "%ld KiB resident at the end, peak %ld KiB\n",
         threads, rounds, OBJECTS, time, operations * 1e-6 / time, resident, peak);
  figure("wall_s", time);
  figure("operations_per_s", operations / time);
  figure("rss_kib", (double)resident);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
