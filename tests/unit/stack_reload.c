/* Libraries that only differ in what FRAME says, and so in their tables: a function with a
 * frame of so many bytes, which calls back. */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

void call_back(void (*function)(void));
__asm__(".text\n"
        ".globl call_back\n"
        ".type call_back, @function\n"
        "call_back:\n"
        ".cfi_startproc\n"
        "  subq $" TEXT(FRAME) ", %rsp\n"
        ".cfi_adjust_cfa_offset " TEXT(FRAME) "\n"
        "  call *%rdi\n"
        "  addq $" TEXT(FRAME) ", %rsp\n"
        ".cfi_adjust_cfa_offset -" TEXT(FRAME) "\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size call_back, . - call_back\n");
