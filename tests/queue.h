/* A bounded queue between threads, so that many blocks are under way at any time. Who waits sleeps. */
#ifndef MASU_TESTS_QUEUE_H
#define MASU_TESTS_QUEUE_H

#include <condition_variable>
#include <deque>
#include <mutex>

template <class T> class queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<T> under_way;

public:
  void put(T t) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return under_way.size() < 2000; });
    under_way.push_back(t);
    changed.notify_all();
  }
  T take() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !under_way.empty(); });
    T t = under_way.front();
    under_way.pop_front();
    changed.notify_all();
    return t;
  }
};

#endif
