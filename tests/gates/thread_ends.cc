/* Gate: allocation in destructors of thread-specific data, in all rounds that
 * POSIX grants (keys that set themselves again), by keys older and younger than
 * masu's, and in C++ thread_local destructors. Memory does not grow. */
#include "gate.h"

#include <string>
#include <vector>

static constexpr int KEYS = 8;
static pthread_key_t keys[KEYS];
static int destroyed;

struct rounds {
  int left, key;
  void *block;
};

static void destroy(void *p) {
  auto *r = static_cast<rounds *>(p);
  __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
  free(r->block);
  int left = r->left - 1, key = r->key;
  free(r);
  /* More than one refill's worth, several kinds of size. */
  std::vector<void *> blocks;
  for (size_t n : {24, 24, 200, 3000, 40000, 300000})
    blocks.push_back(malloc(n));
  for (void *block : blocks)
    free(block);
  if (left > 0) {
    r = static_cast<rounds *>(malloc(sizeof *r));
    *r = {left, key, malloc(1000)};
    CHECK(pthread_setspecific(keys[key], r) == 0, "setspecific");
  }
}

struct local {
  std::vector<std::string> strings;
  ~local() {
    strings.emplace_back(5000, 'z');
    CHECK(strings[0][0] == 'a', "thread_local contents");
    strings.clear();
    strings.shrink_to_fit();
    free(malloc(70000));
  }
};
static thread_local local mine;

/* Allocates in the last round only. */
static pthread_key_t late_key;
static void late(void *p) {
  auto left = reinterpret_cast<intptr_t>(p) - 1;
  if (left > 0)
    CHECK(pthread_setspecific(late_key, reinterpret_cast<void *>(left)) == 0, "setspecific");
  else
    free(malloc(100));
}

static void *allocates_late(void *argument) {
  free(malloc(100)); /* and before */
  CHECK(pthread_setspecific(late_key, reinterpret_cast<void *>(PTHREAD_DESTRUCTOR_ITERATIONS)) == 0, "setspecific");
  return argument;
}

static void *body(void *argument) {
  mine.strings.assign(20, std::string(300, 'a'));
  for (int key = 0; key < KEYS; key++) {
    auto *r = static_cast<rounds *>(malloc(sizeof(rounds)));
    *r = {PTHREAD_DESTRUCTOR_ITERATIONS, key, malloc(500)};
    CHECK(pthread_setspecific(keys[key], r) == 0, "setspecific");
  }
  CHECK(pthread_setspecific(EARLY(pthread_key_t, early_key), malloc(60)) == 0,
        "setspecific");
  return argument;
}
static void run(int threads, void *(*body)(void *)) {
  for (int i = 0; i < threads; i += 4) {
    pthread_t four[4];
    for (auto &t : four)
      t = start(body, nullptr);
    for (auto t : four)
      finish(t);
  }
}

/* thread_ends [THREADS] */
int main(int count, char **arguments) {
  gate_begin(300);
  int threads = count > 1 ? atoi(arguments[1]) : 2000;
  for (auto &key : keys)
    CHECK(pthread_key_create(&key, destroy) == 0, "key");
  CHECK(pthread_key_create(&late_key, late) == 0, "key");
  run(threads, body);
  size_t before = resident_kib();
  run(4 * threads, body);
  run(threads, allocates_late);
  size_t after = resident_kib();
  CHECK(destroyed == 5 * threads * KEYS * PTHREAD_DESTRUCTOR_ITERATIONS, "%d destructors ran",
        destroyed);
  /* Five times as many threads later: less than one KiB of each. What the heaps of the last four hold differs by
   * 100 to 600 KiB from one moment to another, by the order in which they ran. */
  CHECK(after <= before + 1024 + 4u * threads, "%zu KiB grew to %zu", before, after);
  return 0;
}
