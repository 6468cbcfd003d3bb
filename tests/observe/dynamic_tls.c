/* A library whose thread-local variables are made when a thread first uses them. */
static __thread void *variables[64] __attribute__((tls_model("global-dynamic")));
void **dynamic_tls(void);
void **dynamic_tls(void) { return variables; }
