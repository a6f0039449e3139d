"""Has the Nth allocation of the core fail, in a process of its own: once and for ever, N counting up until none is left.

Only the thread that asked for it counts. A store writes in a thread of its own, when it gets there: counted together, the Nth
would be another one each time.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "build" / "failing_malloc.so"

# Preloaded: the Nth allocation that the core asks for in this thread fails, once or from then on. `fail_at(n, for_ever)` arms it.
SHIM_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static __thread long left = -1;
static __thread int for_ever = 0, failed = 0;

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

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void *malloc(size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size); }
int posix_memalign(void **out, size_t alignment, size_t size) {
    if (fails(__builtin_return_address(0))) return ENOMEM;
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}
"""


def compiled():
    """The library, compiled once for each source."""
    source = SHIM.with_suffix(".c")
    if not SHIM.exists() or source.read_text() != SHIM_SOURCE:
        SHIM.parent.mkdir(exist_ok=True)
        source.write_text(SHIM_SOURCE)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", SHIM, source, "-ldl"], check=True)
    return SHIM


def outcomes_of(module, name, shim):
    """What `tell_outcomes` says in a process of its own: `python -m MODULE NAME`."""
    done = subprocess.run([sys.executable, "-m", module, name], cwd=ROOT, capture_output=True,
                          env=os.environ | {"LD_PRELOAD": str(shim)}, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return json.loads(done.stdout)


def tell_outcomes(one, name):
    """Print what `one(name, N, for ever, the library)` says for each N: (outcome, how many allocations failed)."""
    shim = ctypes.CDLL(str(SHIM))
    outcomes = []
    for ever in (0, 1):
        at, failed = 0, 1
        while failed:
            outcome, failed = one(name, at, ever, shim)
            outcomes.append(outcome)
            at += 1
    print(json.dumps(outcomes))
