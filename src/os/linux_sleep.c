/* os contract for Linux: whether a thread sleeps, and what it was in the middle of. System calls go
 * through syscall(), as in linux.c. */
#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* While it waits for a child that has its memory, the child may run what looks like its code. */
static bool shares_memory_meanwhile(long call) {
  enum { CLONE3 = 435 }; /* younger than many headers */
#ifdef SYS_vfork
  if (call == SYS_vfork)
    return true;
#endif
  return call == SYS_clone || call == CLONE3;
}

/* "number argument x 6 stack program-counter", of a thread off its processor; "running";
 * "-1 stack program-counter" of one that waits elsewhere, perhaps for a page. */
internal bool os_thread_sleeps(unsigned thread, uintptr_t *stack) {
  enum { ARGUMENTS = 6 };
  char path[64], text[256];
  int why;
  snprintf(path, sizeof path, "/proc/self/task/%u/syscall", thread);
  text[os_file_read(path, text, sizeof text - 1, &why)] = 0;
  char *at = text;
  long call = strtol(text, &at, 10);
  if (at == text || call < 0 || shares_memory_meanwhile(call))
    return false;
  for (int i = 0; i < ARGUMENTS; i++)
    strtoull(at, &at, 16);
  *stack = strtoull(at, &at, 16);
  return *at == ' ' && *stack;
}

internal uint64_t os_thread_switches(unsigned thread) {
  char value[OS_STATUS_MOST];
  return os_thread_status(thread, "voluntary_ctxt_switches", value) ? 0 : strtoull(value, NULL, 10);
}

#ifdef MASU_STATIC

/* Part of the program, so its addresses tell nothing. */
internal bool os_is_own_code(uintptr_t address) {
  (void)address;
  return false;
}

#else

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

internal bool os_is_own_code(uintptr_t address) {
  return address >= (uintptr_t)__ehdr_start && address < (uintptr_t)_end;
}

#endif

/* Where the kernel saves the registers of what a handler interrupts, the flags follow the program counter. On
 * x86-64 a program can't change two of them, and the word after them has the segments: code, two that are 0, stack. */
static bool are_flags(const uintptr_t *after) {
#if defined(__x86_64__)
  enum { ALWAYS_SET = 0x202, USER = 3 }; /* the code segment's level; its number differs between hypervisors */
  return after[0] >> 22 == 0 && (after[0] & ALWAYS_SET) == ALWAYS_SET && (after[1] & 3) == USER &&
         (uint32_t)(after[1] >> 16) == 0;
#elif defined(__aarch64__)
  return after[0] >> 32 == 0 && (after[0] & 0x1f) == 0;
#else
  (void)after;
  return true;
#endif
}

#ifdef MASU_STATIC
static const bool code_is_known = false;
#else
static const bool code_is_known = true;
#endif

internal bool os_was_interrupted(uintptr_t from, uintptr_t to) {
  enum { WORDS = 512, AFTER = 2 };
  uintptr_t word[WORDS + AFTER];
  if (!code_is_known)
    return true;
  for (from &= -sizeof *word; from < to; from += WORDS * sizeof *word) {
    size_t count = min_size(WORDS + AFTER, (to - from) / sizeof *word);
    if (!os_read_memory((const void *)from, word, count * sizeof *word))
      return true;
    for (size_t i = 0; i + AFTER < count; i++)
      if (os_is_own_code(word[i]) && are_flags(&word[i + 1]))
        return true;
  }
  return false;
}
