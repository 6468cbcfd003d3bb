/* os contract for Linux: the CPU time of threads, and timers on it. System calls go through
 * syscall(), as in linux.c. */
#include "os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "os/signals.h"

/* As the kernel numbers the clocks of threads; those of processes lack the 4. */
static clockid_t thread_clock(unsigned thread) { return (clockid_t)(~thread << 3 | 4 | 2); }

static uint64_t cpu_clock_ns(clockid_t clock) {
  int saved = errno;
  struct timespec t = {0, 0};
  syscall(SYS_clock_gettime, clock, &t);
  errno = saved;
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

internal uint64_t os_cpu_ns(unsigned thread) { return cpu_clock_ns(thread_clock(thread)); }
internal uint64_t os_cpu_process_ns(void) { return cpu_clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

static uint64_t timeval_ns(struct timeval t) { return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_usec * 1000; }

internal uint64_t os_cpu_coarse_ns(void) {
  int saved = errno;
  struct rusage used = {0};
  syscall(SYS_getrusage, RUSAGE_THREAD, &used);
  errno = saved;
  return timeval_ns(used.ru_utime) + timeval_ns(used.ru_stime);
}

/* One whose default is to be ignored: if the program resets all signals, nothing happens. */
enum { CPU_SIGNAL = SIGURG };

internal int os_cpu_timer_make(unsigned thread, void *what) {
  int saved = errno, timer = -1;
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = CPU_SIGNAL, .sigev_value = {.sival_ptr = what}};
  event._sigev_un._tid = (pid_t)thread;
  if (syscall(SYS_timer_create, thread_clock(thread), &event, &timer) != 0)
    timer = -1;
  errno = saved;
  return timer;
}

internal void os_cpu_timer_set(int timer, uint64_t at) {
  int saved = errno;
  struct itimerspec once = {.it_value = {(time_t)(at / 1000000000), (long)(at % 1000000000)}};
  syscall(SYS_timer_settime, timer, TIMER_ABSTIME, &once, NULL);
  errno = saved;
}

internal void os_cpu_timer_drop(int timer) {
  int saved = errno;
  syscall(SYS_timer_delete, timer);
  errno = saved;
}

static bool timer_is_set(int timer) {
  int saved = errno;
  struct itimerspec left = {0};
  syscall(SYS_timer_gettime, timer, &left);
  errno = saved;
  return left.it_value.tv_sec || left.it_value.tv_nsec;
}

static bool timer_signal_is_pending(unsigned thread) {
  char pending[OS_STATUS_MOST];
  return !os_thread_status(thread, "SigPnd", pending) && strtoull(pending, NULL, 16) >> (CPU_SIGNAL - 1) & 1;
}

internal bool os_cpu_timer_waits(int timer, unsigned thread) {
  return timer_is_set(timer) || timer_signal_is_pending(thread);
}

static os_cpu_handler *cpu_handler;
static taken_signal cpu_signal;

static void on_cpu_signal(int number, siginfo_t *info, void *context) {
  int saved = errno;
  (void)number;
  if (info->si_code == SI_TIMER)
    cpu_handler(info->si_value.sival_ptr, context);
  errno = saved;
}

internal bool os_cpu_is_handled(void) { return signal_is_ours(&cpu_signal); }

internal int os_cpu_handle(os_cpu_handler *handler) {
  cpu_handler = handler;
  return signal_take(&cpu_signal, CPU_SIGNAL, on_cpu_signal, true);
}

internal void os_cpu_handle_no_more(void) { signal_give_back(&cpu_signal); }

internal void os_call_on(void *stack, size_t size, void body(void)) {
  static SELDOM ucontext_t here, there;
  getcontext(&there);
  there.uc_stack = (stack_t){.ss_sp = stack, .ss_size = size};
  there.uc_link = &here;
  makecontext(&there, body, 0);
  swapcontext(&here, &there);
}
