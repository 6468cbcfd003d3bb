/* A plugin that hands blocks to its host and takes the host's. Built twice: linked
 * with libmasu (opened with RTLD_DEEPBIND its malloc is masu's, whatever the host
 * uses) and not linked with it (with RTLD_DEEPBIND its malloc is the libc's, also
 * when the host is on masu). */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *plugin_malloc(size_t size) { return malloc(size); }
void *plugin_realloc(void *p, size_t size) { return realloc(p, size); }
size_t plugin_usable_size(void *p) { return malloc_usable_size(p); }
void plugin_free(void *p) { free(p); }
/* The C library allocates with its own malloc here, the plugin frees. */
void plugin_strdup_free(void) {
  char *text = NULL;
  size_t length = 0;
  free(strdup("a text that the C library allocates"));
  FILE *f = open_memstream(&text, &length);
  fprintf(f, "%100d", 5);
  fclose(f);
  free(text);
  if (asprintf(&text, "%s", "another") > 0)
    free(text);
}
