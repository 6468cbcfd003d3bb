/* A program that replaces the basic forms of operator new and delete only, with ones that keep a
 * header before each block. By the standard all other forms end in those. */
#include <new>

#include "gate.h"

namespace {

const size_t MAGIC = 0x6d61737500000000;
int blocks;

struct header {
  size_t magic, rest;
};

struct small {
  char bytes[24];
};
struct counted { /* arrays of these carry their length */
  char bytes[40];
  ~counted() { bytes[0] = 1; }
};

template <class T> void pairs() {
  for (int i = 0; i < 1000; i++) {
    delete new T;
    delete[] new T[3];
    T *p = new (std::nothrow) T;
    CHECK(p && blocks == 1, "%d blocks", blocks);
    delete p;
    p = new (std::nothrow) T[5];
    CHECK(p && blocks == 1, "%d blocks", blocks);
    delete[] p;
    operator delete(operator new(100), std::nothrow);
    operator delete[](operator new[](100), std::nothrow);
    operator delete(operator new(100), 100);
    operator delete[](operator new[](100), 100);
    CHECK(blocks == 0, "%d blocks", blocks);
  }
}

} // namespace

void *operator new(size_t size) {
  header *h = size < 4 * 1024 * MIB ? static_cast<header *>(malloc(sizeof(header) + size)) : nullptr;
  if (!h)
    throw std::bad_alloc();
  blocks++;
  h->magic = MAGIC;
  return h + 1;
}

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wsized-deallocation" /* that is what this is about */
#endif
void operator delete(void *p) noexcept {
  if (!p)
    return;
  header *h = static_cast<header *>(p) - 1;
  CHECK(h->magic == MAGIC, "not a block of this program's operator new");
  h->magic = 0;
  blocks--;
  free(h);
}

int main() {
  gate_begin(60);
  pairs<small>();
  pairs<counted>();
  volatile size_t much = 8192 * MIB;
  CHECK(!operator new(much, std::nothrow), "too much");
  CHECK(!operator new[](much, std::nothrow), "too much");
  /* Those for more alignment were not replaced. */
  struct alignas(256) wide {
    char bytes[256];
  };
  wide *w = new wide, *more = new wide[3];
  CHECK(((uintptr_t)w | (uintptr_t)more) % 256 == 0 && blocks == 0, "%d blocks", blocks);
  delete w;
  delete[] more;
  return 0;
}
