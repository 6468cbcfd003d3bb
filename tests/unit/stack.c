/* What walks the stack, against the unwinder of the compiler's runtime. */
#include "observe/stack.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unwind.h>

#include "observe/unwind.h"
#include "os/os.h"
#include "stack_calls.h"
#include "trap.h"

/* ---- Chains of calls ---- */

extern const chain_links chain_links_O0, chain_links_O1, chain_links_O2, chain_links_Os, chain_links_fp, chain_links_cpp;
static const chain_links *const variants[] = {&chain_links_O0, &chain_links_O1, &chain_links_O2,
                                              &chain_links_Os, &chain_links_fp, &chain_links_cpp};

__thread chain *chain_now;

unsigned chain_draw(chain *c, unsigned below) {
  c->random = c->random * 6364136223846793005 + 1442695040888963407;
  return (unsigned)(c->random >> 33) % below;
}

void chain_next(chain *c) {
  if (c->left == 0) {
    c->end(c);
  } else {
    c->left--;
    const chain_links *v = variants[chain_draw(c, sizeof variants / sizeof *variants)];
    v->link[chain_draw(c, (unsigned)v->count)](c);
  }
  __asm__ volatile("" : : : "memory");
}

/* ---- The other unwinder ---- */

enum { FRAMES = STACK_MOST + 40 };

typedef struct frames {
  uintptr_t at[FRAMES];
  size_t count;
} frames;

static _Unwind_Reason_Code see(struct _Unwind_Context *context, void *any) {
  frames *f = any;
  int interrupted = 0;
  uintptr_t ip = _Unwind_GetIPInfo(context, &interrupted);
  if (ip && f->count < FRAMES)
    f->at[f->count++] = ip + (interrupted != 0);
  return f->count < FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* The first frame is this function's. */
static NOINLINE void unwind_with_runtime(frames *f) {
  f->count = 0;
  _Unwind_Backtrace(see, f);
  __asm__ volatile("" : : : "memory"); /* a call, not a jump */
}

static void print_frames(const char *name, const uintptr_t *at, size_t count) {
  dprintf(STDERR_FILENO, "%s:\n", name);
  for (size_t i = 0; i < count; i++) {
    Dl_info info = {0};
    dladdr((void *)at[i], &info);
    dprintf(STDERR_FILENO, "  %p %s+%#lx %s\n", (void *)at[i], info.dli_fname ? strrchr(info.dli_fname, '/') : "?",
            (unsigned long)(at[i] - (uintptr_t)info.dli_fbase), info.dli_sname ? info.dli_sname : "");
  }
}

static void require_equal(const uintptr_t *walked, size_t count, const uintptr_t *expected, size_t expected_count) {
  size_t wanted = min_size(expected_count, STACK_MOST);
  if (count == wanted && !memcmp(walked, expected, count * sizeof *walked))
    return;
  print_frames("walked", walked, count);
  print_frames("expected", expected, wanted);
  REQUIRE(!"the same frames");
}

/* ---- Stacks that really are ---- */

static atomic_u64 checked, frames_checked;

/* Both are in this function at first, at different places. */
static NOINLINE void check_walk_from(chain *c) {
  uintptr_t walked[STACK_MOST];
  ucontext_t here;
  frames expected;
  (void)c;
  getcontext(&here);
  size_t count = stack_capture_from(&here, walked, STACK_MOST);
  unwind_with_runtime(&expected);
  REQUIRE(count > 1 && expected.count > 2);
  require_equal(walked + 1, count - 1, expected.at + 2, min_size(expected.count - 2, STACK_MOST - 1));
  add_relaxed(&checked, 1);
  add_relaxed(&frames_checked, count);
}

extern const char __ehdr_start[], _end[];
static bool is_own(uintptr_t at) { return at >= (uintptr_t)__ehdr_start && at < (uintptr_t)_end; }

/* masu is in this program, so the first 16 frames of the program are taken for masu's: of
 * them stack_capture and this function are two. */
static NOINLINE void check_walk(chain *c) {
  uintptr_t walked[STACK_MOST];
  frames expected;
  (void)c;
  size_t count = stack_capture(walked, STACK_MOST), first = 2, own = 2;
  unwind_with_runtime(&expected);
  while (first < expected.count && own < 16 && is_own(expected.at[first]))
    first++, own++;
  require_equal(walked, count, expected.at + first, expected.count - first);
}

static void check_both(chain *c) {
  errno = 77;
  check_walk_from(c);
  check_walk(c);
  REQUIRE(errno == 77);
}

static void random_chains(uint64_t seed, unsigned times) {
  for (unsigned i = 0; i < times; i++) {
    chain c = {.random = seed * 1000003 + i, .end = check_both};
    c.left = chain_draw(&c, i % 16 ? 12 : 70);
    chain_next(&c);
  }
}

static void every_form_of_call(void **unused) {
  (void)unused;
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
    for (size_t i = 0; i < variants[v]->count; i++) {
      chain c = {.random = 5, .end = check_both};
      variants[v]->link[i](&c);
    }
  assert_true(checked >= 80);
}

static void chains_of_calls(void **unused) {
  (void)unused;
  frames_checked = 0;
  random_chains(1, 4000);
  assert_true(frames_checked > 60000);
}

static void only_walk(chain *c) {
  uintptr_t walked[STACK_MOST];
  ucontext_t here;
  (void)c;
  getcontext(&here);
  frames_checked += stack_capture_from(&here, walked, STACK_MOST);
}

/* Some replace each other until there is room for more. */
static void rules_are_kept(void **unused) {
  uint32_t made[2], before;
  (void)unused;
  frames_checked = 0;
  for (int pass = 0; pass < 2; pass++) {
    before = stack_rules_made();
    for (unsigned i = 0; i < 4000; i++) {
      chain c = {.random = i, .left = 40, .end = only_walk};
      chain_next(&c);
    }
    made[pass] = stack_rules_made() - before;
  }
  assert_true(frames_checked > 300000);
  assert_in_range(made[0], 50, 1500);
  assert_in_range(made[1], 0, 500);
}

static void *chains_in_thread(void *seed) {
  random_chains((uintptr_t)seed, 1000);
  return NULL;
}

/* At once: what is kept of the tables is shared. */
static void chains_in_threads(void **unused) {
  pthread_t threads[4];
  (void)unused;
  for (uintptr_t i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, chains_in_thread, (void *)(i + 2)), 0);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
}

/* Looks every so many calls. */
static NOINLINE void recurse(unsigned depth, unsigned step) {
  char some[200];
  memset(some, 1, sizeof some);
  if (depth % step == 0)
    check_both(NULL);
  if (depth)
    recurse(depth - 1, step);
  __asm__ volatile("" : : "r"(some) : "memory");
}

static void *recurse_in_thread(void *unused) {
  recurse(12000, 300);
  recurse(12000, 4000);
  return unused;
}

/* Step by step, and deeper at a stroke than is asked about in one walk. */
static void deep_stacks(void **unused) {
  pthread_t thread;
  recurse(12000, 4000);
  recurse(12000, 300);
  assert_int_equal(pthread_create(&thread, NULL, recurse_in_thread, unused), 0);
  pthread_join(thread, NULL);
}

static atomic_u64 copies;
static long count_copies(long number, const long *arguments) {
  (void)number, (void)arguments;
  add_relaxed(&copies, 1);
  return -EPERM;
}

/* As Ruby's threads have it: their first MiB is for what comes later. */
static NOINLINE void *below_an_untouched_part(void *body) {
  char *part = __builtin_alloca(3 * MIB);
  __asm__ volatile("" : : "r"(part) : "memory");
  ((void (*)(void))body)();
  __asm__ volatile("" : : "r"(part) : "memory");
  return NULL;
}

static long page_faults(void) {
  struct rusage usage;
  REQUIRE(getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_minflt;
}

/* Few walks don't ask for its 768 pages, many do. */
static void walk_seldom_and_often(void) {
  uintptr_t walked[STACK_MOST];
  long before = page_faults();
  for (int i = 0; i < 3; i++)
    check_both(NULL);
  long after = page_faults();
  REQUIRE(after - before < 400);
  for (int i = 0; i < 400; i++)
    stack_capture(walked, STACK_MOST);
  REQUIRE(page_faults() - after > 600);
  check_both(NULL);
}

/* After walks that came to no end all of it is known, and read without a call. */
static void walk_until_it_is_known(void) {
  uintptr_t walked[STACK_MOST];
  check_walk(NULL);
  for (int i = 0; i < 5; i++)
    stack_capture(walked, STACK_MOST);
  check_both(NULL);
  store_relaxed(&copies, 0);
  recurse(300, 10);
  REQUIRE(load_relaxed(&copies) == 0);
}

static void run_below(void (*body)(void)) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, below_an_untouched_part, (void *)body) == 0);
  pthread_join(thread, NULL);
}

static void walk_below_without_copies(void) {
  trap_calls(SYS_process_vm_readv, SYS_process_vm_readv, count_copies);
  REQUIRE(!os_reads_memory() && load_relaxed(&copies) == 1);
  run_below(walk_until_it_is_known);
}

static void a_part_that_nobody_touched(void **unused) {
  (void)unused;
  if (SANITIZED)
    skip();
  run_below(walk_seldom_and_often);
  in_child(walk_below_without_copies);
}

/* ---- Stacks of the program's own ---- */

static ucontext_t main_context, coroutine_context;

static void coroutine(void) {
  random_chains(99, 300);
  recurse(1000, 100);
}

static NOINLINE void switch_to(void *stack, size_t size, void (*body)(void)) {
  REQUIRE(getcontext(&coroutine_context) == 0);
  coroutine_context.uc_stack.ss_sp = stack;
  coroutine_context.uc_stack.ss_size = size;
  coroutine_context.uc_link = &main_context;
  makecontext(&coroutine_context, body, 0);
  REQUIRE(swapcontext(&main_context, &coroutine_context) == 0);
}

/* Then its stack is gone, and others lie there: AddressSanitizer does not know of that. */
static void run_coroutine(void (*body)(void)) {
  const size_t size = 2 * MIB;
  for (int i = 0; i < 3 && !SANITIZED; i++) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    switch_to(memory, size, body);
    munmap(memory, size);
    check_both(NULL);
  }
}

static void *run_coroutine_in_thread(void *unused) {
  run_coroutine(coroutine);
  return unused;
}

static void coroutines(void **unused) {
  pthread_t thread;
  run_coroutine(coroutine);
  assert_int_equal(pthread_create(&thread, NULL, run_coroutine_in_thread, unused), 0);
  pthread_join(thread, NULL);
}

/* Calls it, and its table says that the caller is where rbx leads: no rule can. */
void called_by_rbx(void (*body)(void));
__asm__(".pushsection .text\n\t"
        ".type called_by_rbx, @function\n"
        "called_by_rbx:\n\t"
        ".cfi_startproc\n\t"
        "push %rbx\n\t"
        ".cfi_def_cfa_offset 16\n\t"
        ".cfi_offset %rbx, -16\n\t"
        "lea 16(%rsp), %rbx\n\t"
        ".cfi_def_cfa %rbx, 0\n\t"
        "call *%rdi\n\t"
        "pop %rbx\n\t"
        ".cfi_def_cfa %rsp, 8\n\t"
        "ret\n\t"
        ".cfi_endproc\n\t"
        ".size called_by_rbx, . - called_by_rbx\n\t"
        ".popsection");

static NOINLINE void just_called(void (*body)(void)) {
  body();
  __asm__ volatile("" : : : "memory");
}

/* On the stack that ends there. Its own table says that its caller is further up. */
static NOINLINE void call_below(char *end, void (*call)(void (*body)(void)), void (*body)(void)) {
  __asm__ volatile("mov %%rsp, %%rbx\n\tmov %1, %%rsp\n\tcall *%2\n\tmov %%rbx, %%rsp"
                   : "+D"(body)
                   : "r"(end), "r"(call)
                   : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3",
                     "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                     "xmm15", "memory", "cc");
}

static void walk_to_the_end(void) {
  uintptr_t walked[STACK_MOST];
  ucontext_t here;
  getcontext(&here);
  REQUIRE(stack_capture_from(&here, walked, STACK_MOST) >= 2);
  stack_capture(walked, STACK_MOST);
}

/* A stack of 64 KiB, as much that nobody may read, and room for the stack of a thread. */
enum { GUARDED = 64 * KIB, THREADS = 2 * MIB };
static char *map_guarded(void) {
  char *memory = mmap(NULL, 2 * GUARDED + THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED && mprotect(memory + GUARDED, GUARDED, PROT_NONE) == 0);
  return memory;
}

static void *walk_on_guarded_stacks(void *memory) {
  char *end = (char *)memory + GUARDED;
  call_below(end, just_called, walk_to_the_end);
  call_below(end, called_by_rbx, walk_to_the_end);
  return NULL;
}

static void on_guarded_stacks(void) { walk_on_guarded_stacks(map_guarded()); }

/* Of a thread whose own is near, above. */
static void on_guarded_stacks_in_thread(void) {
  char *memory = map_guarded();
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, memory + 2 * GUARDED, THREADS);
  REQUIRE(pthread_create(&thread, &attributes, walk_on_guarded_stacks, memory) == 0);
  pthread_join(thread, NULL);
}

/* Coroutine libraries put a page that nobody may read between two stacks, and enter them in ways
 * that tables don't know of. */
static void nothing_behind_the_stack(void **unused) {
  (void)unused;
  if (SANITIZED)
    skip();
  in_child(on_guarded_stacks);
  in_child(on_guarded_stacks_in_thread);
}

/* A stack that the program gave a thread, at its very end. */
static void threads_on_given_stacks(void **unused) {
  const size_t size = 16 * MIB;
  pthread_attr_t attributes;
  pthread_t thread;
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, memory, size);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(pthread_create(&thread, &attributes, i ? recurse_in_thread : chains_in_thread, unused), 0);
    pthread_join(thread, NULL);
  }
  pthread_attr_destroy(&attributes);
  munmap(memory, size);
}

/* The thread that forked is the child's initial one, on its old stack. */
static void *fork_in_thread(void *unused) {
  random_chains(7, 10);
  pid_t child = fork();
  if (child == 0) {
    os_fork_reset();
    random_chains(8, 300);
    recurse(2000, 100);
    _exit(0);
  }
  int status;
  REQUIRE(waitpid(child, &status, 0) == child && status == 0);
  return unused;
}

static void children_of_threads(void **unused) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, fork_in_thread, unused), 0);
  pthread_join(thread, NULL);
}

static void coroutine_without_copies(void) {
  check_walk(NULL);
  chain c = {.end = check_walk, .left = 3};
  chain_next(&c);
}

/* Where the system copies nothing for us, a thread's own stack is still there to read, and on
 * others the runtime walks. */
static void walk_without_copies(void) {
  trap_calls(SYS_process_vm_readv, SYS_process_vm_readv, count_copies);
  REQUIRE(!os_reads_memory());
  recurse(12000, 300);
  run_coroutine(coroutine_without_copies);
}

static void without_copies(void **unused) {
  (void)unused;
  in_child(walk_without_copies);
}

/* ---- Libraries that come and go ---- */

static NOINLINE void called_back(void) { check_both(NULL); }

/* Two that differ in nothing but the size of a frame, one after the other in one place. */
static unsigned load_in_turn(const char *const *paths) {
  void *before = NULL;
  unsigned same = 0;
  for (int i = 0; i < 20; i++) {
    void *library = dlopen(paths[i % 2], RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void (*call)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "call_back");
    assert_non_null(call);
    same += (void *)call == before;
    before = (void *)call;
    call(called_back);
    call(called_back);
    dlclose(library);
  }
  return same;
}

static void libraries_in_turn(void **unused) {
  static const char *const with_build_id[] = {RELOAD_A, RELOAD_B}, *const without[] = {RELOAD_C, RELOAD_D};
  (void)unused;
  unsigned same = load_in_turn(with_build_id) + load_in_turn(without);
  if (!same) {
    print_message("libraries never came to the same place\n");
    skip();
  }
}

/* ---- Code without tables ---- */

/* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
static const uint8_t machine_code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};

static uintptr_t compiled_at, compiled_callers[STACK_MOST];
static size_t compiled_caller_count;

static NOINLINE void called_by_compiled(void) {
  uintptr_t walked[STACK_MOST];
  ucontext_t here;
  getcontext(&here);
  size_t count = stack_capture_from(&here, walked, STACK_MOST);
  REQUIRE(count > 3 && walked[1] == compiled_at + 6);
  require_equal(walked + 3, count - 3, compiled_callers, compiled_caller_count);
}

/* Beyond it tables lead on. */
static void code_compiled_at_run_time(void **unused) {
  frames here;
  (void)unused;
  uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(code != MAP_FAILED);
  memcpy(code, machine_code, sizeof machine_code);
  compiled_at = (uintptr_t)code;
  unwind_with_runtime(&here); /* then: itself, here, the callers */
  compiled_caller_count = min_size(here.count - 2, STACK_MOST);
  memcpy(compiled_callers, here.at + 2, compiled_caller_count * sizeof *compiled_callers);
  ((void (*)(void (*)(void)))(void *)code)(called_by_compiled);
  munmap(code, 4096);
}

/* ---- Interrupted anywhere ---- */

static unwind_rule rule_for(uintptr_t at) {
  struct dl_find_object found;
  if (_dl_find_object((void *)(at - 1), &found) != 0)
    return (unwind_rule){.kind = UNWIND_NONE};
  const unwind_object o = {found.dlfo_map_start, found.dlfo_map_end, found.dlfo_eh_frame};
  return unwind_rule_of(&o, at, false);
}

/* It changes its own frames when it jumps to a handler of an exception, and can't walk then. */
static bool is_in_runtime(uintptr_t at) {
  struct dl_find_object found, runtime;
  return _dl_find_object((void *)at, &found) == 0 && _dl_find_object((void *)&_Unwind_Backtrace, &runtime) == 0 &&
         found.dlfo_link_map == runtime.dlfo_link_map;
}

static volatile sig_atomic_t stepping;
static size_t steps, cut_short;

static void on_step(int signal, siginfo_t *info, void *any) {
  ucontext_t *context = any;
  uintptr_t walked[STACK_MOST], at = (uintptr_t)context->uc_mcontext.gregs[REG_RIP] + 1;
  frames expected;
  (void)signal, (void)info;
  if (!stepping) {
    context->uc_mcontext.gregs[REG_EFL] &= ~0x100;
    return;
  }
  context->uc_mcontext.gregs[REG_EFL] |= 0x100; /* a trap after each instruction */
  size_t count = stack_capture_from(context, walked, STACK_MOST), first = 0;
  if (is_in_runtime(at))
    return;
  unwind_with_runtime(&expected);
  while (first < expected.count && expected.at[first] != at)
    first++;
  REQUIRE(first < expected.count);
  steps++;
  size_t wanted = min_size(expected.count - first, STACK_MOST);
  /* Only where no rule will do it may end early; walked[0] is looked up as a return address, and so it is. */
  if (count < wanted && rule_for(walked[count - 1]).kind == UNWIND_OTHER) {
    cut_short++;
    wanted = count;
  }
  require_equal(walked, count, expected.at + first, wanted);
}

static void nothing(chain *c) { (void)c; }

static void in_the_library(chain *c) {
  char text[100];
  snprintf(text, sizeof text, "%u %s %.3f", c->left, "steps", 0.25);
  __asm__ volatile("" : : "r"(text) : "memory");
}

/* Through prologues, epilogues, the linkage table and the loader that binds it. */
static void interrupted_at_every_instruction(void **unused) {
  struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO}, before;
  (void)unused;
  sigaction(SIGTRAP, &action, &before);
  stepping = 1;
  raise(SIGTRAP);
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
    for (size_t i = 0; i < variants[v]->count; i++) {
      chain c = {.random = 5 * i, .end = i ? nothing : in_the_library};
      variants[v]->link[i](&c);
    }
  stepping = 0;
  __asm__ volatile("nop\n\tnop");
  sigaction(SIGTRAP, &before, NULL);
  print_message("%zu steps, %zu stacks cut short\n", steps, cut_short);
  assert_true(steps > 20000);
  assert_true(cut_short < steps / 5);
}

/* ---- Nonsense ---- */

static uintptr_t nonsense(chain *c, const uintptr_t *places, size_t count) {
  uintptr_t far = (uintptr_t)chain_draw(c, 1u << 31) << 31 | chain_draw(c, 1u << 31);
  uintptr_t near = places[chain_draw(c, (unsigned)count)] + chain_draw(c, 10000) - 5000;
  switch (chain_draw(c, 6)) {
  case 0: return far;
  case 1: return far >> 17;
  case 2: return near & ~(uintptr_t)7;
  default: return near;
  }
}

/* Registers that mean nothing, near what is there and what is not: no walk faults. */
static void registers_that_mean_nothing(void **unused) {
  char *hole = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uintptr_t walked[STACK_MOST];
  volatile size_t frames_seen = 0;
  ucontext_t context;
  chain c = {.random = 12};
  (void)unused;
  assert_true(hole != MAP_FAILED);
  for (size_t i = 0; i < 5 * 4096; i += sizeof(uintptr_t))
    *(uintptr_t *)(void *)(hole + i) = (uintptr_t)hole + (i * 7919) % (5 * 4096);
  mprotect(hole + 4096, 4096, PROT_NONE);
  munmap(hole + 3 * 4096, 4096);
  getcontext(&context);
  const uintptr_t places[] = {
      (uintptr_t)hole, (uintptr_t)hole + 8192, (uintptr_t)hole + 5 * 4096, (uintptr_t)&context,
      (uintptr_t)&context + 4096, os_thread_stack(), os_thread_self(), (uintptr_t)environ, 0, UINTPTR_MAX,
      (uintptr_t)&qsort, (uintptr_t)&chain_next, (uintptr_t)&registers_that_mean_nothing,
      (uintptr_t)&stack_capture, (uintptr_t)&printf, (uintptr_t)1 << 47,
  };
  for (int i = 0; i < 200000; i++) {
    greg_t *r = context.uc_mcontext.gregs;
    r[REG_RIP] = (greg_t)nonsense(&c, places, sizeof places / sizeof *places);
    r[REG_RSP] = (greg_t)nonsense(&c, places, sizeof places / sizeof *places);
    r[REG_RBP] = (greg_t)nonsense(&c, places, sizeof places / sizeof *places);
    size_t most = 1 + chain_draw(&c, STACK_MOST), count = stack_capture_from(&context, walked, most);
    assert_true(count <= most && (count || !r[REG_RIP] || r[REG_RIP] == -1));
    assert_true(!count || walked[0] == (uintptr_t)r[REG_RIP] + 1);
    frames_seen += count;
  }
  print_message("%zu frames\n", frames_seen);
  assert_true(frames_seen > 210000); /* some led on */
  munmap(hole, 5 * 4096);
}

int main(int count, char **arguments) {
  (void)count;
  os_process_start(arguments, environ);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules_are_kept),
      cmocka_unit_test(every_form_of_call),
      cmocka_unit_test(chains_of_calls),
      cmocka_unit_test(chains_in_threads),
      cmocka_unit_test(deep_stacks),
      cmocka_unit_test(a_part_that_nobody_touched),
      cmocka_unit_test(coroutines),
      cmocka_unit_test(nothing_behind_the_stack),
      cmocka_unit_test(threads_on_given_stacks),
      cmocka_unit_test(children_of_threads),
      cmocka_unit_test(without_copies),
      cmocka_unit_test(libraries_in_turn),
      cmocka_unit_test(code_compiled_at_run_time),
      cmocka_unit_test(interrupted_at_every_instruction),
      cmocka_unit_test(registers_that_mean_nothing),
  };
#ifdef __SANITIZE_THREAD__ /* which holds signals back */
  (void)tests;
  return 77;
#else
  return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
