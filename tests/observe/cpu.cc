/* The CPU profiler: what it samples beside what the system says was used, and that it is in nobody's way. What is
 * in the stacks, tests/command/test_cpu.py looks at. Times are CPU time, on both sides. */
#include <gtest/gtest.h>
#include <masu/cpu.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

/* First, while nothing was started. */
TEST(Cpu, IsRefusedBeforeTheStart) {
  masu_cpu_figures f;
  EXPECT_EQ(masu_cpu_read(&f, sizeof f), EINVAL);
  EXPECT_EQ(masu_cpu_write("/tmp/never.cpu.pb"), EINVAL);
  EXPECT_EQ(masu_cpu_start(1001), EINVAL);
}

#ifndef __SANITIZE_THREAD__ /* which holds signals back */

static masu_cpu_figures read_cpu() {
  masu_cpu_figures f{};
  EXPECT_EQ(masu_cpu_read(&f, sizeof f), 0);
  return f;
}

static double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

static volatile uint64_t sink;

/* Some microseconds of work without a call. */
static void work() {
  uint64_t x = 1;
  for (uint64_t i = 0; i < 10000; i++)
    x = x * 6364136223846793005 + i;
  sink = sink + x;
}

static void burn(double seconds) {
  double end = thread_seconds() + seconds;
  while (thread_seconds() < end)
    work();
}

/* Waits for it, up to a minute. */
template <typename Condition> static bool soon(Condition condition) {
  auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/* Runs it until so many samples more are taken. */
template <typename Work> static void until_sampled(size_t more, Work work_on) {
  size_t wanted = read_cpu().samples + more;
  double end = thread_seconds() + 60;
  while (read_cpu().samples < wanted && thread_seconds() < end)
    work_on();
  EXPECT_GE(read_cpu().samples, wanted);
}

/* Works until the samples are level with what this thread has used since, to two periods and two
 * ticks; it may take a while until the system looks at the timer. False: they never are. */
static bool gets_level(double from, double sampled_from, double period) {
  double end = thread_seconds() + 20;
  while (thread_seconds() < end) {
    work();
    double missing = thread_seconds() - from - (read_cpu().sampled - sampled_from);
    EXPECT_GT(missing, -1.001 * period) << "more than was used";
    if (missing < 2 * period + 0.008)
      return true;
  }
  return false;
}

TEST(Cpu, SamplesWhatIsUsed) {
  for (unsigned hz : {0u, 50u, 1000u}) {
    double period = 1.0 / (hz ? hz : 100);
    ASSERT_EQ(masu_cpu_start(hz), 0);
    masu_cpu_figures before = read_cpu();
    double start = thread_seconds();
    burn(0.5);
    EXPECT_TRUE(gets_level(start, before.sampled, period)) << hz;
    masu_cpu_figures after = read_cpu();
    masu_cpu_stop();
    EXPECT_GT(after.sampled - before.sampled, 0.4) << hz;
    EXPECT_NEAR(static_cast<double>(after.samples - before.samples), (after.sampled - before.sampled) / period, 0.5) << hz;
    EXPECT_GE(after.used - before.used, 0.5);
    EXPECT_GT(after.stacks, 0u);
    EXPECT_EQ(after.lost, 0u);
    EXPECT_GT(after.took, before.took);
    EXPECT_LT(after.took - before.took, 0.5 * (after.used - before.used)) << hz;
  }
}

TEST(Cpu, WaitingIsNotSampled) {
  ASSERT_EQ(masu_cpu_start(1000), 0);
  size_t before = read_cpu().samples;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(read_cpu().samples, before + 100);
  masu_cpu_stop();
}

TEST(Cpu, NothingAfterTheStop) {
  ASSERT_EQ(masu_cpu_start(1000), 0);
  until_sampled(10, work);
  masu_cpu_stop();
  masu_cpu_figures stopped = read_cpu();
  EXPECT_EQ(stopped.threads, 0u);
  burn(0.1);
  EXPECT_EQ(read_cpu().samples, stopped.samples);
  EXPECT_EQ(read_cpu().used, stopped.used);
  ASSERT_EQ(masu_cpu_start(1000), 0);
  until_sampled(10, work);
  EXPECT_GT(read_cpu().used, stopped.used);
  masu_cpu_stop();
}

/* They are found although they call nothing of masu, and forgotten when they have ended. */
TEST(Cpu, FindsThreadsThatDoNotAllocate) {
  std::atomic<bool> stop{false};
  ASSERT_EQ(masu_cpu_start(1000), 0);
  double before = read_cpu().sampled;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++)
    threads.emplace_back([&] {
      while (!stop)
        work();
    });
  EXPECT_TRUE(soon([&] { return read_cpu().sampled > before + 1; }));
  stop = true;
  for (auto &t : threads)
    t.join();
  masu_cpu_stop();
}

#ifndef MASU_NO_OVERRIDE

/* The calling thread, as the system lists them. Allocates nothing. */
static bool has_timer() {
  char list[4096], line[40];
  snprintf(line, sizeof line, "signal/tid.%d\n", gettid());
  int file = open("/proc/self/timers", O_RDONLY | O_CLOEXEC);
  ssize_t size = read(file, list, sizeof list);
  close(file);
  return size > 0 && memmem(list, static_cast<size_t>(size), line, strlen(line));
}

static void *timer_from_begin(void *some) { return has_timer() ? some : nullptr; }
static int c11_timer_from_begin(void *) { return has_timer(); }

/* Before it has allocated anything, and before anybody could look for it. */
TEST(Cpu, AThreadHasItsTimerFromTheBegin) {
  ASSERT_EQ(masu_cpu_start(0), 0);
  if (!has_timer())
    GTEST_SKIP() << "the system does not list timers";
  for (int i = 0; i < 10; i++) {
    pthread_t thread;
    void *had;
    int some;
    ASSERT_EQ(pthread_create(&thread, nullptr, timer_from_begin, &some), 0);
    ASSERT_EQ(pthread_join(thread, &had), 0);
    EXPECT_TRUE(had);
    thrd_t c11_thread;
    int c11_had;
    ASSERT_EQ(thrd_create(&c11_thread, c11_timer_from_begin, nullptr), thrd_success);
    ASSERT_EQ(thrd_join(c11_thread, &c11_had), thrd_success);
    EXPECT_TRUE(c11_had);
  }
  masu_cpu_stop();
}

#endif

static void many_threads(size_t count) {
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  size_t before = read_cpu().threads;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; i++)
    threads.emplace_back([&, i] {
      burn(0.002);
      if (i % 2)
        masu_free(masu_malloc(100));
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return stop; });
    });
  EXPECT_TRUE(soon([&] { return read_cpu().threads >= before + count; })) << read_cpu().threads;
  {
    std::lock_guard<std::mutex> lock(mutex);
    stop = true;
  }
  changed.notify_all();
  for (auto &t : threads)
    t.join();
  EXPECT_TRUE(soon([&] { return read_cpu().threads < before + count / 10; })) << read_cpu().threads;
}

TEST(Cpu, FiveHundredThreads) {
  ASSERT_EQ(masu_cpu_start(1000), 0);
  masu_cpu_figures before = read_cpu();
  many_threads(500);
  masu_cpu_figures after = read_cpu();
  masu_cpu_stop();
  double used = after.used - before.used; /* by each less than the system's tick: most is not seen */
  EXPECT_GT(after.sampled - before.sampled, 0.02 * used);
  EXPECT_LT(after.sampled - before.sampled, 1.2 * used);
}

/* As many as one after the other: no timer is left behind, and none is missing at the end. */
TEST(Cpu, ThreadsComeAndGo) {
  ASSERT_EQ(masu_cpu_start(1000), 0);
  for (int round = 0; round < 100; round++) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 10; i++)
      threads.emplace_back([] { masu_free(masu_malloc(100)); });
    for (auto &t : threads)
      t.join();
  }
  EXPECT_TRUE(soon([] { return read_cpu().threads < 10; })) << read_cpu().threads;
  until_sampled(10, work);
  masu_cpu_stop();
}

/* What a thread used while it blocked signals counts when it no longer does. */
TEST(Cpu, BlockedSignalsComeLater) {
  sigset_t all, before;
  sigfillset(&all);
  ASSERT_EQ(masu_cpu_start(100), 0);
  until_sampled(2, work);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  double sampled = read_cpu().sampled, start = thread_seconds();
  burn(0.5);
  EXPECT_LT(read_cpu().sampled, sampled + 0.1);
  sigsuspend(&before); /* lets one through */
  EXPECT_GT(read_cpu().sampled, sampled + 0.4) << "all that are due";
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_TRUE(gets_level(start, sampled, 0.01));
  masu_cpu_stop();
}

/* ---- The program's own signals ---- */

static std::atomic<int> urgent;
static void count_urgent(int) { urgent++; }

TEST(Cpu, GivesWayToTheProgramsHandler) {
  ASSERT_EQ(masu_cpu_start(1000), 0);
  until_sampled(10, work);
  urgent = 0;
  signal(SIGURG, count_urgent);
  burn(0.5);
  EXPECT_LE(urgent, 1) << "one timer may have been under way";
  EXPECT_EQ(masu_cpu_start(1000), EBUSY);
  int before = urgent;
  raise(SIGURG);
  EXPECT_EQ(urgent, before + 1);
  masu_cpu_stop();
  raise(SIGURG);
  EXPECT_EQ(urgent, before + 2) << "it is still there";
  signal(SIGURG, SIG_DFL);
  ASSERT_EQ(masu_cpu_start(1000), 0);
  until_sampled(10, work);
  masu_cpu_stop();
}

/* A thread whose timer fired meanwhile is found and has one again: if masu-cpu is there. */
TEST(Cpu, GoesOnWhenTheSignalIsGivenBack) {
  std::atomic<bool> stop{false};
  std::thread other([&] { /* so that masu-cpu is there */
    while (!stop)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  ASSERT_EQ(masu_cpu_start(1000), 0);
  until_sampled(10, work);
  struct sigaction ours;
  sigset_t urg;
  sigemptyset(&urg);
  sigaddset(&urg, SIGURG);
  ASSERT_EQ(sigaction(SIGURG, nullptr, &ours), 0);
  for (int i = 0; i < 3; i++) { /* takes the signal away as sigwait does */
    pthread_sigmask(SIG_BLOCK, &urg, nullptr);
    timespec none = {0, 0};
    int taken = -1;
    for (int part = 0; part < 1000 && taken < 0; part++) { /* the system may be late with it */
      burn(0.01);
      taken = sigtimedwait(&urg, nullptr, &none);
    }
    EXPECT_EQ(taken, SIGURG);
    pthread_sigmask(SIG_UNBLOCK, &urg, nullptr);
    until_sampled(10, work);
  }
  masu_cpu_stop();
  stop = true;
  other.join();
}

TEST(Cpu, OtherSendersOfTheSignalAreIgnored) {
  ASSERT_EQ(masu_cpu_start(1), 0);
  size_t before = read_cpu().samples;
  for (int i = 0; i < 100; i++)
    raise(SIGURG);
  EXPECT_LE(read_cpu().samples, before + 1);
  masu_cpu_stop();
}

TEST(Cpu, NeitherErrnoNorSystemCallsNotice) {
  int ends[2];
  char bytes[1000] = "";
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(masu_cpu_start(1000), 0);
  errno = 4242;
  until_sampled(50, work);
  EXPECT_EQ(errno, 4242);
  until_sampled(200, [&] {
    ASSERT_EQ(write(ends[1], bytes, sizeof bytes), static_cast<ssize_t>(sizeof bytes));
    ASSERT_EQ(read(ends[0], bytes, sizeof bytes), static_cast<ssize_t>(sizeof bytes));
  });
  /* Waiting ones as well: the other thread answers when it was asked. */
  int back[2];
  ASSERT_EQ(pipe(back), 0);
  std::thread echo([&] {
    char c;
    while (read(ends[0], &c, 1) == 1 && c != 'q')
      EXPECT_EQ(write(back[1], &c, 1), 1);
    EXPECT_EQ(c, 'q');
  });
  char c = 'a';
  until_sampled(100, [&] {
    ASSERT_EQ(write(ends[1], &c, 1), 1);
    ASSERT_EQ(read(back[0], &c, 1), 1);
  });
  for (int i = 0; i < 50; i++) { /* and while it sleeps in read, where timers don't fire */
    pthread_kill(echo.native_handle(), SIGURG);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  c = 'q';
  ASSERT_EQ(write(ends[1], &c, 1), 1);
  echo.join();
  masu_cpu_stop();
  for (int end : {ends[0], ends[1], back[0], back[1]})
    close(end);
}

/* Handlers that allocate, samples, and malloc, all inside each other. */
static void allocate_in_handler(int) { masu_free(masu_malloc(50)); }

TEST(Cpu, InterruptsMallocAndHandlers) {
  std::atomic<bool> stop{false};
  signal(SIGALRM, allocate_in_handler);
  itimerval often = {{0, 500}, {0, 500}}, never = {};
  ASSERT_EQ(masu_cpu_start(1000), 0);
  setitimer(ITIMER_REAL, &often, nullptr);
  std::vector<std::thread> threads;
  for (size_t n : {30u, 3000u, 300000u})
    threads.emplace_back([&, n] {
      std::vector<void *> blocks(50);
      for (size_t i = 0; !stop; i++) {
        masu_free(blocks[i % 50]);
        blocks[i % 50] = masu_malloc(n + i % 7);
      }
      for (void *p : blocks)
        masu_free(p);
    });
  until_sampled(1000, work);
  stop = true;
  for (auto &t : threads)
    t.join();
  setitimer(ITIMER_REAL, &never, nullptr);
  signal(SIGALRM, SIG_DFL);
  masu_cpu_stop();
  EXPECT_EQ(masu_check(), 0);
}

/* ---- Code of all kinds ---- */

#ifdef __x86_64__

/* Code that was made at run time, without tables, called with rounds in rdi. */
class Code {
public:
  explicit Code(std::initializer_list<unsigned char> bytes) {
    at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(at, std::vector<unsigned char>(bytes).data(), bytes.size());
    mprotect(at, 4096, PROT_READ | PROT_EXEC);
  }
  ~Code() { munmap(at, 4096); }
  void run() const { reinterpret_cast<void (*)(long)>(at)(100000); }

private:
  void *at;
};

/* 1: dec rdi; jnz 1b */
#define LOOP 0x48, 0xff, 0xcf, 0x75, 0xfb

TEST(Cpu, CodeWithoutTables) {
  const Code plain{LOOP, 0xc3};
  /* push rbp; mov rbp, rsp; ...; pop rbp; ret */
  const Code framed{0x55, 0x48, 0x89, 0xe5, LOOP, 0x5d, 0xc3};
  /* push rbp; mov ebp, 0x12345670; ...; pop rbp; ret */
  const Code wrong{0x55, 0xbd, 0x70, 0x56, 0x34, 0x12, LOOP, 0x5d, 0xc3};
  /* push rbp; lea rbp, [rsp + 8]; ...: plausible, but leads nowhere */
  const Code lies{0x55, 0x48, 0x8d, 0x6c, 0x24, 0x08, LOOP, 0x5d, 0xc3};
  ASSERT_EQ(masu_cpu_start(1000), 0);
  for (const Code *code : {&plain, &framed, &wrong, &lies})
    until_sampled(50, [&] { code->run(); });
  masu_cpu_stop();
}

/* Without a stack pointer there is only the alternate stack to run a handler on. */
TEST(Cpu, CodeThatLosesTheStack) {
  std::vector<char> room(64 * 1024);
  stack_t alternate = {}, before;
  alternate.ss_sp = room.data();
  alternate.ss_size = room.size();
  ASSERT_EQ(sigaltstack(&alternate, &before), 0);
  ASSERT_EQ(masu_cpu_start(1000), 0);
  for (unsigned char high : {0x00, 0x12, 0x7f}) {
    /* mov rax, rsp; mov esp, high << 24 | 0x345670; ...; mov rsp, rax; ret */
    const Code lost{0x48, 0x89, 0xe0, 0xbc, 0x70, 0x56, 0x34, high, LOOP, 0x48, 0x89, 0xc4, 0xc3};
    until_sampled(20, [&] { lost.run(); });
  }
  masu_cpu_stop();
  sigaltstack(&before, nullptr);
}

/* Compiled code whose tables no longer tell the truth. */
__attribute__((noinline)) static void loses_its_frame(uintptr_t frame) {
  volatile size_t some = 100;
  long rounds = 100000;
  volatile char *room = static_cast<char *>(__builtin_alloca(some)); /* so that the frame pointer is needed */
  room[0] = 1;
  __asm__ volatile("mov %%rbp, %%r8\n\tmov %1, %%rbp\n1:\n\tdec %0\n\tjnz 1b\n\tmov %%r8, %%rbp"
                   : "+r"(rounds)
                   : "r"(frame)
                   : "r8");
}

TEST(Cpu, CodeThatLosesItsFrame) {
  uintptr_t nowhere[4] = {1, 2, 3, 4};
  ASSERT_EQ(masu_cpu_start(1000), 0);
  for (uintptr_t frame : {uintptr_t{0}, uintptr_t{8}, uintptr_t{0x12345670}, ~uintptr_t{0} - 7, reinterpret_cast<uintptr_t>(nowhere)})
    until_sampled(50, [&] { loses_its_frame(frame); });
  masu_cpu_stop();
}

#endif

static __attribute__((noinline)) void goes_deep(int depth) {
  volatile char room[200];
  room[0] = 1;
  if (depth)
    goes_deep(depth - 1);
  else
    work();
  room[1] = room[0];
}

TEST(Cpu, DeepStacks) {
  ASSERT_EQ(masu_cpu_start(1000), 0);
  for (int depth : {10, 60, 70, 1000})
    until_sampled(20, [&] { goes_deep(depth); });
  masu_cpu_stop();
}

/* Threads with little stack, and a small alternate one. */
TEST(Cpu, SmallStacks) {
  ASSERT_EQ(masu_cpu_start(1000), 0);
  double before = read_cpu().sampled;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  std::vector<pthread_t> threads(2);
  for (size_t i = 0; i < threads.size(); i++)
    ASSERT_EQ(pthread_create(&threads[i], &attributes, [](void *with_alternate) -> void * {
      static thread_local char room[12 * 1024];
      stack_t alternate = {}, before; /* that of a sanitizer */
      alternate.ss_sp = room;
      alternate.ss_size = sizeof room;
      EXPECT_TRUE(!with_alternate || sigaltstack(&alternate, &before) == 0);
      burn(0.3);
      EXPECT_TRUE(!with_alternate || sigaltstack(&before, nullptr) == 0);
      return nullptr;
    }, i ? &attributes : nullptr), 0);
  for (pthread_t t : threads)
    pthread_join(t, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_GT(read_cpu().sampled, before + 0.2);
  masu_cpu_stop();
}

/* ---- Processes ---- */

TEST(Cpu, GoesOnInAForkedChild) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  ASSERT_EQ(masu_cpu_start(1000), 0);
  for (int i = 0; i < 2; i++)
    threads.emplace_back([&] {
      while (!stop)
        masu_free(masu_malloc(100));
    });
  until_sampled(10, work);
  for (int i = 0; i < 10; i++) {
    pid_t child = fork();
    if (child == 0) {
      masu_cpu_figures fresh = read_cpu();
      bool empty = fresh.sampled <= fresh.used + 0.05 && fresh.used < 0.2 && fresh.threads >= 1 && fresh.threads < 4;
      double start = thread_seconds();
      burn(0.05);
      bool counted = gets_level(start, fresh.sampled, 0.001);
      double own = read_cpu().sampled;
      std::atomic<bool> ended{false};
      std::thread other([&] {
        while (!ended)
          work();
      });
      bool both = soon([&] { return read_cpu().sampled > own + 0.1; });
      ended = true;
      other.join();
      _exit(!empty ? 1 : !counted || own < 0.03 ? 2 : !both ? 3 : 0);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  until_sampled(10, work);
  stop = true;
  for (auto &t : threads)
    t.join();
  masu_cpu_stop();
}

/* Neither what a timer sent nor the timers themselves reach the next program. */
TEST(Cpu, ExecLeavesItBehind) {
  ASSERT_EQ(masu_cpu_start(1000), 0);
  until_sampled(10, work);
  for (int i = 0; i < 50; i++) {
    pid_t child = fork();
    if (child == 0) {
      burn(0.003);
      execl("/bin/sh", "sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; exit 5", nullptr);
      _exit(1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 5) << status;
  }
  masu_cpu_stop();
}

/* ---- Files ---- */

TEST(Cpu, IsWrittenWhileItSamples) {
  std::string path = "/tmp/masu-cpu-test." + std::to_string(getpid());
  std::atomic<bool> stop{false};
  ASSERT_EQ(masu_cpu_start(1000), 0);
  std::thread other([&] {
    while (!stop)
      goes_deep(static_cast<int>(sink % 50));
  });
  for (int i = 0; i < 50; i++)
    EXPECT_EQ(masu_cpu_write(path.c_str()), 0);
  stop = true;
  other.join();
  EXPECT_EQ(masu_cpu_write("/nowhere/at/all"), ENOENT);
  masu_cpu_figures f;
  EXPECT_EQ(masu_cpu_read(&f, 3), EINVAL);
  masu_cpu_stop();
  unlink(path.c_str());
}

TEST(Cpu, IsSwitchedOnAndOffByManyThreads) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; t++)
    threads.emplace_back([t] {
      for (unsigned i = 0; i < 50; i++) {
        EXPECT_EQ(masu_cpu_start(1 + (t * 50 + i) % 1000), 0);
        burn(0.001);
        masu_cpu_stop();
      }
    });
  for (auto &t : threads)
    t.join();
  ASSERT_EQ(masu_cpu_start(1000), 0);
  until_sampled(10, work);
  masu_cpu_stop();
}

#endif
