/* Preloaded: the Nth allocation that the core asks for fails, once or from then on. `fail_at(n, for_ever)` arms it, `failures()` tells. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static long left = -1;
static int for_ever = 0, failed = 0;

void fail_at(long n, int ever) { left = n; for_ever = ever; failed = 0; }
int failures(void) { left = -1; return failed; }

static int fails(void *caller) {
    Dl_info info;
    if (left < 0 || !dladdr(caller, &info) || !info.dli_fname || !strstr(info.dli_fname, "xump_ext")) return 0;
    if (left > 0) { left--; return 0; }
    failed++;
    if (!for_ever) left = -1;
    errno = ENOMEM;
    return 1;
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void *malloc(size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size); }
int posix_memalign(void **out, size_t alignment, size_t size) {
    if (fails(__builtin_return_address(0))) return ENOMEM;
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}
