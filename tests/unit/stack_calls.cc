/* The same from C++: through its library, and around exceptions. */
#include "stack_calls.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

volatile unsigned after;

void in_sort(chain *c) {
  std::vector<int> some{5, 3, 9, 1};
  bool called = false;
  std::sort(some.begin(), some.end(), [&](int a, int b) {
    if (!called) {
      called = true;
      chain_next(c);
    }
    return a < b;
  });
  after = static_cast<unsigned>(some[0]);
}

void in_function(chain *c) {
  std::string kept(chain_draw(c, 100), 'x');
  std::function<void(const std::string &)> f = [c](const std::string &s) {
    chain_next(c);
    after = static_cast<unsigned>(s.size());
  };
  f(kept);
}

void in_call_once(chain *c) {
  std::once_flag flag;
  std::call_once(flag, [c] {
    chain_next(c);
    after = 1;
  });
}

void in_catch(chain *c) {
  try {
    throw std::string("caught");
  } catch (const std::string &s) {
    chain_next(c);
    after = static_cast<unsigned>(s.size());
  }
}

struct on_the_way_out {
  chain *c;
  ~on_the_way_out() {
    chain_next(c);
    after = 2;
  }
};

__attribute__((noinline)) void throws_past(chain *c) {
  on_the_way_out object{c};
  after = 3;
  throw 7;
}

void while_an_exception_passes(chain *c) {
  try {
    throws_past(c);
  } catch (int n) {
    after = static_cast<unsigned>(n);
  }
}

struct base {
  virtual ~base() = default;
  virtual void call(chain *c, double x) = 0;
};
struct derived : base {
  std::unique_ptr<char[]> data{new char[64]};
  void call(chain *c, double x) override {
    chain_next(c);
    after = static_cast<unsigned>(x) + static_cast<unsigned char>(data[0]);
  }
};
struct second : std::string, derived {}; /* called by a thunk */

void virtually(chain *c) {
  std::unique_ptr<base> object(new second);
  object->call(c, 1.5);
}

chain_link *const all[] = {in_sort, in_function, in_call_once, in_catch, while_an_exception_passes, virtually};

} // namespace

extern "C" const chain_links chain_links_cpp;
const chain_links chain_links_cpp = {all, sizeof all / sizeof *all};
