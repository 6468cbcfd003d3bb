/* os contract for Linux: files, and what goes to stderr. System calls go through syscall(), as in linux.c. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- Files ---- */

static int open_file_at(const char *path, int flags) {
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

internal int os_file_make(const char *path) {
  int saved = errno, why = 0;
  int file = open_file_at(path, O_RDWR | O_CREAT | O_EXCL);
  if (file < 0)
    why = errno;
  else
    syscall(SYS_close, file);
  errno = saved;
  return why;
}

/* Beyond its limit a signal would say it. */
static bool may_be_as_long(uint64_t size) {
  struct rlimit most;
  if (getrlimit(RLIMIT_FSIZE, &most) != 0 || size <= most.rlim_cur)
    return true;
  errno = EFBIG;
  return false;
}

static char zeros[16384]; /* never written */

/* It reads as zero, and a full disk has something left again, where the file system can do that. */
static void take_back(int file, uint64_t from, uint64_t to) {
  bool done = syscall(SYS_fallocate, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to - from) == 0;
  for (; !done && from < to; from += sizeof zeros)
    syscall(SYS_pwrite64, file, zeros, min_size(to - from, sizeof zeros), from);
}

/* All parts, in one call where that will do, or none. Uses up the list. False, with errno. */
static bool put_parts(int file, uint64_t offset, struct iovec *part, int parts) {
  uint64_t at = offset;
  while (parts) {
    long done = syscall(SYS_pwritev, file, part, parts, at, 0);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0) {
      int why = done ? errno : ENOSPC;
      if (at > offset)
        take_back(file, offset, at);
      errno = why;
      return false;
    }
    at += (uint64_t)done;
    for (; parts && (size_t)done >= part->iov_len; part++, parts--)
      done -= (long)part->iov_len;
    if (parts)
      *part = (struct iovec){(char *)part->iov_base + done, part->iov_len - (size_t)done};
  }
  return true;
}

/* Filled: room that was promised only (fallocate) takes four times as long to be made
 * resident page by page, and thirty times as long to be given back; and in pieces the system finds smaller ones of memory. */
static bool find_room(int file, uint64_t offset, size_t size) {
  if (!may_be_as_long(offset + size))
    return false;
  for (size_t step; size; offset += step, size -= step) {
    struct iovec part[32];
    int parts = 0;
    for (step = 0; step < size && parts < 32; step += part[parts++].iov_len)
      part[parts] = (struct iovec){zeros, min_size(size - step, sizeof zeros)};
    if (!put_parts(file, offset, part, parts))
      return false;
  }
  return true;
}

internal int os_file_put(const char *path, uint64_t offset, const os_part *part, int parts) {
  struct iovec list[16];
  int saved = errno;
  uint64_t end = offset;
  for (int i = 0; i < parts; i++) {
    list[i] = (struct iovec){(void *)(uintptr_t)part[i].at, part[i].size};
    end += part[i].size;
  }
  int file = open_file_at(path, O_WRONLY);
  bool done = file >= 0 && may_be_as_long(end) && put_parts(file, offset, list, parts);
  int why = done ? 0 : errno;
  if (file >= 0)
    syscall(SYS_close, file);
  errno = saved;
  return why;
}

internal void *os_file_map(const char *path, uint64_t offset, size_t size, int *why) {
  int saved = errno;
  long p = -1;
  int file = open_file_at(path, O_RDWR);
  if (file >= 0 && find_room(file, offset, size))
    p = syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
  *why = p == -1 ? errno : 0;
  if (file >= 0)
    syscall(SYS_close, file);
  errno = saved;
  return p == -1 ? NULL : (void *)p;
}

internal long os_read_some(int file, void *to, size_t size) {
  long n;
  do
    n = syscall(SYS_read, file, to, size);
  while (n < 0 && errno == EINTR);
  return n;
}

internal size_t os_file_read(const char *path, void *to, size_t size, int *why) {
  int saved = errno;
  size_t length = 0;
  int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  long n = file;
  while (n >= 0 && length < size &&
         (n = os_read_some(file, (char *)to + length, size - length)) > 0)
    length += (size_t)n;
  *why = n < 0 ? errno : 0;
  if (file >= 0)
    syscall(SYS_close, file);
  errno = saved;
  return length;
}

/* 0 or an errno value. */
static int write_all(int file, const char *data, size_t size) {
  while (size) {
    long n = syscall(SYS_write, file, data, size);
    if (n == 0 || (n < 0 && errno != EINTR))
      return n ? errno : EIO;
    data += n > 0 ? n : 0;
    size -= n > 0 ? (size_t)n : 0;
  }
  return 0;
}

/* Writes and closes it, which may be when a file server says that it has no room. 0 or an errno value. */
static int fill_file(int file, const void *data, size_t size) {
  int why = may_be_as_long(size) ? write_all(file, data, size) : errno;
  if (syscall(SYS_close, file) != 0 && !why)
    why = errno;
  return why;
}

/* The thread's number keeps writers of the same file apart. 0 or an errno value. */
static int replace_file(const char *path, const void *data, size_t size) {
  char partial[4096];
  if (snprintf(partial, sizeof partial, "%s.%u.part", path, os_thread_id()) >= (int)sizeof partial)
    return ENAMETOOLONG;
  int file = open_file_at(partial, O_WRONLY | O_CREAT | O_TRUNC);
  int why = file < 0 ? errno : fill_file(file, data, size);
  if (!why && syscall(SYS_rename, partial, path) != 0)
    why = errno;
  if (why && file >= 0)
    syscall(SYS_unlink, partial);
  return why;
}

/* 0 or an errno value. */
static int fill_device(const char *path, const void *data, size_t size) {
  int file = open_file_at(path, O_WRONLY | O_NOCTTY);
  return file < 0 ? errno : fill_file(file, data, size);
}

internal int os_file_write(const char *path, const void *data, size_t size) {
  struct stat there;
  int saved = errno, why;
  if (lstat(path, &there) != 0 || S_ISREG(there.st_mode))
    why = replace_file(path, data, size);
  else if (S_ISCHR(there.st_mode))
    why = fill_device(path, data, size);
  else
    why = S_ISLNK(there.st_mode) ? ELOOP : EEXIST;
  errno = saved;
  return why;
}

internal int os_file_write_new(const char *path, const void *data, size_t size) {
  int saved = errno;
  int file = open_file_at(path, O_WRONLY | O_CREAT | O_EXCL);
  int why = file < 0 ? errno : fill_file(file, data, size);
  if (why && file >= 0)
    syscall(SYS_unlink, path);
  errno = saved;
  return why;
}

internal int os_file_remove(const char *path) {
  int saved = errno;
  int why = syscall(SYS_unlinkat, AT_FDCWD, path, 0) == 0 ? 0 : errno;
  errno = saved;
  return why;
}

internal void os_file_copy(const char *from, const char *to) {
  int saved = errno;
  char text[4096];
  int in = open_file_at(from, O_RDONLY), out = open_file_at(to, O_WRONLY | O_CREAT | O_EXCL);
  long n = 0;
  while (in >= 0 && out >= 0 && (n = os_read_some(in, text, sizeof text)) > 0 && !write_all(out, text, (size_t)n))
    ;
  if (in >= 0)
    syscall(SYS_close, in);
  if (out >= 0)
    syscall(SYS_close, out);
  errno = saved;
}

/* ---- stderr ---- */

static int stderr_kept = -1;
static struct stat stderr_was;

/* Out of the way of programs that count on the lowest numbers. */
internal void os_keep_stderr(void) {
  int saved = errno;
  if (stderr_kept < 0 && fstat(STDERR_FILENO, &stderr_was) == 0)
    stderr_kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
  errno = saved;
}

/* Programs close what they don't know of, and then another file of theirs may have the number. */
static int stderr_file(void) {
  struct stat now;
  bool is_kept = stderr_kept >= 0 && fstat(stderr_kept, &now) == 0 && now.st_dev == stderr_was.st_dev &&
                 now.st_ino == stderr_was.st_ino;
  return is_kept ? stderr_kept : STDERR_FILENO;
}

internal void os_write_stderr(const char *text, size_t length) {
  int saved = errno;
  write_all(stderr_file(), text, length);
  errno = saved;
}
