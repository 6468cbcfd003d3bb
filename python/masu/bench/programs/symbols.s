# Symbols, fixups and jumps.
.altmacro
.macro one n
label\n:
  movq $\n, %rax
  call other\n
  jmp label\n
  .quad label\n, symbol\n
.endm
.set n, 0
.rept 150000
  one %n
  .set n, n + 1
.endr
