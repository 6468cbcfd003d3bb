/* A library whose thread-local storage has to be static: the loader takes it from
 * the small surplus that it keeps for libraries opened late. dlopen.c opens many
 * copies of it to use the surplus up. */
__thread char static_tls_bytes[32] __attribute__((tls_model("initial-exec")));
char *static_tls(void) { return static_tls_bytes; }
