"""A library to preload that fails, or ends the process at, the Nth call of the system that has to do with files below a path.

It sees LMDB's calls as well as our own. A program that runs under it (`run`) makes `Calls()`, and then calls

    watch(path, n, code, forever)   counts the calls from now on. The call number n (from 0 on) fails with that errno and, if
                                    `forever`, so does each one after it. code 0: the process is killed before that call
    watched()                       ends that; returns the number of calls
    last_call()                     the name of the last call that failed
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "build" / "failing_calls.so"

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

static char watched_path[4096];
static long nth = -1, calls = 0;
static int code = 0, for_ever = 0, on = 0;
static char last_call[32];

void watch(const char *path, long n, int errno_, int forever) {
    snprintf(watched_path, sizeof watched_path, "%s", path);
    nth = n; code = errno_; for_ever = forever; calls = 0; last_call[0] = 0; on = 1;
}

long watched(void) { on = 0; return calls; }
const char *last_call_name(void) { return last_call; }

static int below(const char *path) {
    return path && !strncmp(path, watched_path, strlen(watched_path));
}

static int fails(const char *name, const char *path, int fd) {
    char link[64], found[4096];
    ssize_t size;
    if (!on) return 0;
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        on = 0;
        size = readlink(link, found, sizeof found - 1);
        on = 1;
        if (size < 0) return 0;
        found[size] = 0;
        path = found;
    }
    if (!below(path)) return 0;
    long this = calls++;
    if (nth < 0 || this < nth || (this > nth && !for_ever)) return 0;
    snprintf(last_call, sizeof last_call, "%s", name);
    if (!code) kill(getpid(), SIGKILL);
    errno = code;
    return 1;
}

#define REAL(name) ((__typeof__(name) *) dlsym(RTLD_NEXT, #name))
#define ON_FD(type, name, parameters, ...) \
    type name parameters { return fails(#name, NULL, fd) ? (type) -1 : REAL(name)(__VA_ARGS__); }
#define ON_PATH(type, name, parameters, ...) \
    type name parameters { return fails(#name, path, -1) ? (type) -1 : REAL(name)(__VA_ARGS__); }
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
        return fails(#name, path, -1) ? -1 : REAL(name)(path, flags, mode); }

OPEN(open)
OPEN(open64)
ON_PATH(int, mkdir, (const char *path, mode_t mode), path, mode)
ON_PATH(int, unlink, (const char *path), path)
ON_PATH(int, chmod, (const char *path, mode_t mode), path, mode)
ON_PATH(int, rename, (const char *path, const char *to), path, to)
ON_PATH(int, link, (const char *path, const char *to), path, to)
ON_PATH(int, statvfs, (const char *path, struct statvfs *found), path, found)
ON_PATH(int, statvfs64, (const char *path, struct statvfs64 *found), path, found)
ON_FD(int, fstatvfs, (int fd, struct statvfs *found), fd, found)
ON_FD(int, fstatvfs64, (int fd, struct statvfs64 *found), fd, found)
ON_FD(int, fsync, (int fd), fd)
ON_FD(int, fdatasync, (int fd), fd)
ON_FD(int, fchmod, (int fd, mode_t mode), fd, mode)
ON_FD(int, ftruncate, (int fd, off_t size), fd, size)
ON_FD(int, ftruncate64, (int fd, off64_t size), fd, size)
ON_FD(ssize_t, pread, (int fd, void *to, size_t size, off_t at), fd, to, size, at)
ON_FD(ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), fd, to, size, at)
ON_FD(ssize_t, preadv, (int fd, const struct iovec *to, int count, off_t at), fd, to, count, at)
ON_FD(ssize_t, preadv64, (int fd, const struct iovec *to, int count, off64_t at), fd, to, count, at)
ON_FD(ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at), fd, from, size, at)
ON_FD(ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), fd, from, size, at)
ON_FD(ssize_t, writev, (int fd, const struct iovec *from, int count), fd, from, count)
ON_FD(ssize_t, pwritev, (int fd, const struct iovec *from, int count, off_t at), fd, from, count, at)
ON_FD(ssize_t, write, (int fd, const void *from, size_t size), fd, from, size)

int close(int fd) {     /* the descriptor is gone all the same */
    int failed = fails("close", NULL, fd), done = REAL(close)(fd);
    if (failed) errno = code;
    return failed ? -1 : done;
}

int posix_fallocate(int fd, off_t at, off_t size) {
    return fails("posix_fallocate", NULL, fd) ? code : REAL(posix_fallocate)(fd, at, size);
}

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    return fails("posix_fallocate64", NULL, fd) ? code : REAL(posix_fallocate64)(fd, at, size);
}
"""


def run(module, *arguments):
    """Runs a module of the tests in a new process, with the library, which is compiled once for each source; returns its
    output."""
    source = SHIM.with_suffix(".c")
    if not SHIM.exists() or source.read_text() != SOURCE:
        SHIM.parent.mkdir(exist_ok=True)
        source.write_text(SOURCE)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", SHIM, source, "-ldl"], check=True)
    run = subprocess.run([sys.executable, "-m", module, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
                         env={**os.environ, "LD_PRELOAD": str(SHIM)}, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    return run.stdout


class Calls:
    """The library, in the process that it is preloaded into."""

    def __init__(self):
        self._library = ctypes.CDLL(str(SHIM))
        self._library.last_call_name.restype = ctypes.c_char_p

    def watch(self, path, nth=-1, code=0, forever=False):
        self._library.watch(os.fsencode(path), ctypes.c_long(nth), code, forever)

    def watched(self):
        """The number of calls since `watch`."""
        return int(self._library.watched())

    def last_call(self):
        return self._library.last_call_name().decode()
