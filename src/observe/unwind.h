/* unwind: where code has put what its caller needs back.
 *
 * Compilers say it for every instruction, in tables that lie in memory beside the code:
 * .eh_frame holds a program of call frame instructions for each function, .eh_frame_hdr
 * finds the function. Here the program of one function is run up to one instruction, and what it says
 * is boiled down to a rule of eight bytes, for somebody to keep.
 *
 * After DWARF 4, section 6.4 (call frame information) and 2.5 (expressions); the Linux
 * Standard Base, "Exception Frames", for what .eh_frame does otherwise and for .eh_frame_hdr;
 * the x86-64 psABI for the numbers of the registers. CFA, the canonical frame address, is the
 * stack pointer of the caller once the call has returned.
 *
 * Most code needs little of it: the caller's stack pointer is a sum of rsp or rbp and a
 * number, its return address lies below, rbp is as it was or lies at a fixed distance.
 * Expressions are evaluated as far as they come down to the same: the linkage table's, of code
 * that aligns its stack, of signal frames. All else is UNWIND_OTHER.
 *
 * Threads: any, also in signal handlers: no lock, no allocation. Reads the tables only, and
 * not beyond the object, whatever they say.
 */
#ifndef MASU_OBSERVE_UNWIND_H
#define MASU_OBSERVE_UNWIND_H

#include "base/attr.h"

typedef enum unwind_kind {
  UNWIND_NONE,    /* no rule */
  UNWIND_OTHER,   /* there is a caller, but none that a rule leads to */
  UNWIND_END,     /* no caller, or no table that knows the code */
  UNWIND_RSP = 4, /* the CFA is rsp + cfa */
  UNWIND_RBP,     /* rbp + cfa */
  UNWIND_AT_RSP,  /* what lies at rsp + cfa */
  UNWIND_AT_RBP,  /* what lies at rbp + cfa */
  UNWIND_SIGNAL,  /* what lies at rsp + cfa; the address that was interrupted lies behind it */
} unwind_kind;

enum { UNWIND_BY_RBP = 1 }; /* a bit of those from UNWIND_RSP on */

/* Where the caller's rbp is: still there, or in memory at that register + rbp. */
typedef enum unwind_saved { UNWIND_SAME, UNWIND_FROM_CFA, UNWIND_FROM_RSP, UNWIND_FROM_RBP } unwind_saved;

/* The return address is at CFA - 8, but for signal frames. */
typedef struct unwind_rule {
  int32_t cfa; /* bytes */
  int16_t rbp; /* bytes */
  uint8_t kind;
  uint8_t saved;
} unwind_rule;

/* A program or library in memory. header: its .eh_frame_hdr, or NULL. */
typedef struct unwind_object {
  const uint8_t *start, *end;
  const uint8_t *header;
} unwind_object;

/* For code of that object. exact: pc is the next instruction (of interrupted code), not the
 * return address of a call, which may belong to the next function already. Never
 * UNWIND_NONE. */
internal unwind_rule unwind_rule_of(const unwind_object *o, uintptr_t pc, bool exact);

#endif
