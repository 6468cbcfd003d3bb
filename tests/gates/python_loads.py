"""Gate: a running Python, on its own allocator, loads libmasu late: by ctypes, and
by an extension module linked with it (argument 2, when it was built).
Usage: python_loads.py libmasu.so [directory of the extension]"""
import ctypes
import os
import sys
import threading

masu = ctypes.CDLL(sys.argv[1])
masu.masu_malloc.restype = masu.masu_realloc.restype = ctypes.c_void_p
masu.masu_malloc.argtypes = [ctypes.c_size_t]
masu.masu_realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
masu.masu_free.argtypes = [ctypes.c_void_p]


def exercise():
    for _ in range(20):
        for size in (1, 100, 5000, 100_000, 5_000_000):
            p = masu.masu_malloc(size)
            ctypes.memset(p, 65, size)
            p = masu.masu_realloc(p, size * 2)
            assert ctypes.string_at(p, size) == b"A" * size
            masu.masu_free(p)


def in_threads():
    threads = [threading.Thread(target=exercise) for _ in range(4)]
    for thread in threads:
        thread.start()
    exercise()
    for thread in threads:
        thread.join()


in_threads()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
masu.masu_free(libc.malloc(1000))  # forwarded

pid = os.fork()
if pid == 0:
    in_threads()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0

if len(sys.argv) > 2:
    sys.path.insert(0, sys.argv[2])
    import masu_test_extension

    assert masu_test_extension.fill(100_000, ord("x")) == b"x" * 100_000
    threads = [
        threading.Thread(target=masu_test_extension.fill, args=(n * 1000, 7))
        for n in range(1, 50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("extension module: works")
