/* os contract for Linux: what is mapped where. System calls go through syscall(), as in linux.c. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* PROCMAP_QUERY of Linux 6.11, which is younger than many headers; proc(5). */
typedef struct map_query {
  uint64_t size, flags, address; /* asked */
  uint64_t start, end, may, page_size, offset, inode;
  uint32_t device_major, device_minor;
  uint32_t name_size, build_id_size; /* asked: the room that there is; with the 0 at the end */
  uint64_t name, build_id;           /* asked: where to */
} map_query;
#define ASK_FOR_MAP _IOWR('f', 17, map_query)
enum { QUERY_EXECUTABLE = 4, QUERY_OR_NEXT = 16 };

/* Of the process, as long as its initial thread has not ended. */
internal int os_mappings_open(void) {
  int saved = errno;
  int file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  errno = saved;
  return file;
}

internal int os_mappings_ask(int maps, uintptr_t address, os_mapping *found) {
  int saved = errno;
  map_query q = {.size = sizeof q, .flags = QUERY_EXECUTABLE | QUERY_OR_NEXT, .address = address,
                 .name_size = sizeof found->path, .build_id_size = sizeof found->build_id,
                 .name = (uintptr_t)found->path, .build_id = (uintptr_t)found->build_id};
  int why = syscall(SYS_ioctl, maps, ASK_FOR_MAP, &q) == 0 ? 0 : errno;
  if (!q.name_size)
    *found->path = 0;
  found->start = q.start;
  found->end = q.end;
  found->offset = q.offset;
  found->build_id_size = q.build_id_size;
  errno = saved;
  return why;
}

internal void os_mappings_close(int maps) {
  int saved = errno;
  if (maps >= 0)
    syscall(SYS_close, maps);
  errno = saved;
}
