"""The masu command: runs programs on the masu memory allocator."""
