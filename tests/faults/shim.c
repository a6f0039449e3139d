/* Stands between a process and its files: records what goes to the disk, and fails calls on request.
 *
 * Loaded by LD_PRELOAD (`shim.py` compiles it), so it sees every call of every library in the process, LMDB's own included. It
 * looks at files under one folder only, and only between `faults_begin` and `faults_end`. One lock is held around each call and
 * its event, so the record has the calls in the order in which the system carried them out.
 *
 * An event in the record, little-endian: this head, two names relative to the folder, and the bytes of a write.
 *
 *     0 kind u8    1 durable at once u8    2 length of the first name u16    4 of the second u16    6 0 u16
 *     8 file u64 (inode)    16 offset u64 (MARK: what the program says)    24 length u64
 *
 * What it cannot record ends the process with a message: a writable shared map, a hole that is punched. Only LMDB's lock file may
 * be mapped for writing: it says nothing of the store.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MARK, CREATE, WRITE, TRUNCATE, ALLOCATE, SYNC, SYNC_DIRECTORY, RENAME, LINK, UNLINK, MKDIR, RMDIR, OPEN, READ, CLOSE };

#define FILES 65536
#define EXPORTED __attribute__((visibility("default")))

typedef struct { unsigned era; int synchronous, directory, lock; uint64_t number; } watched_t;

static pthread_mutex_t guard = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char folder[PATH_MAX];
static size_t folder_length;
static unsigned era;                    /* a descriptor of an earlier recording is watched no more */
static int record_fd = -1, cheap, frozen;
static watched_t files[FILES];

static struct { uint32_t kinds; uint64_t nth; int forever, error, part; } fault;
static uint64_t calls, failures;
static int part_was_written;            /* by a short write: the rest finds no space */

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void give_up(const char* what, const char* name)
{
    fprintf(stderr, "the shim cannot record this: %s %s\n", what, name);
    abort();
}

/* ---- the record */

static void record(int kind, uint64_t file, uint64_t offset, uint64_t length, const char* name, const char* other,
                   const void* data)
{
    if (record_fd < 0)
        return;
    unsigned char head[32] = { kind & 255, kind >> 8 };
    uint16_t names[2] = { name ? strlen(name) : 0, other ? strlen(other) : 0 };
    memcpy(head + 2, names, 4);
    memcpy(head + 8, &file, 8);
    memcpy(head + 16, &offset, 8);
    memcpy(head + 24, &length, 8);
    struct iovec parts[4] = {
        { head, 32 }, { (void*)name, names[0] }, { (void*)other, names[1] }, { (void*)data, data ? length : 0 },
    };
    static ssize_t (*real)(int, const struct iovec*, int);
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "writev");
    if (real(record_fd, parts, 4) != (ssize_t)(32 + names[0] + names[1] + parts[3].iov_len))
        give_up("the record is full", "");
}

/* Whether a path is under the folder; gives its name there. */
static int is_ours(int at, const char* path, char* name)
{
    char full[2 * PATH_MAX];
    if (folder_length == 0 || path == NULL)
        return 0;
    if (path[0] == '/' || at == AT_FDCWD) {
        snprintf(full, sizeof full, "%s", path);
    } else {
        char link[64], base[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t size = readlink(link, base, sizeof base - 1);
        if (size < 0)
            return 0;
        base[size] = 0;
        snprintf(full, sizeof full, "%s/%s", base, path);
    }
    if (strncmp(full, folder, folder_length) != 0 || (full[folder_length] != '/' && full[folder_length] != 0))
        return 0;
    if (name != NULL)
        snprintf(name, PATH_MAX, "%s", full[folder_length] ? full + folder_length + 1 : "");
    return 1;
}

static watched_t* watched(int fd)
{
    return fd >= 0 && fd < FILES && folder_length > 0 && files[fd].era == era ? &files[fd] : NULL;
}

/* ---- faults: true if this call is to fail; errno is set then */

static int fails(int kind)
{
    if (frozen && kind != READ && kind != CLOSE) {
        errno = EIO;
        return 1;
    }
    if (!(fault.kinds & (1u << kind)))
        return 0;
    calls++;
    if (calls != fault.nth && !(fault.forever && calls > fault.nth))
        return 0;
    failures++;
    errno = fault.error;
    return 1;
}

/* How many bytes a write takes: all, a part, or none (-1). */
static ssize_t taken(size_t size)
{
    if (part_was_written) {
        part_was_written = fault.forever;
        errno = ENOSPC;
        return -1;
    }
    if (!fails(WRITE))
        return size;
    if (!fault.part)
        return -1;
    part_was_written = 1;
    return size / 2 + (size > 1 ? 0 : size);
}

/* ---- what the program calls */

EXPORTED void faults_begin(const char* path, const char* record_path)
{
    pthread_mutex_lock(&guard);
    era++;
    folder_length = strlen(path);
    memcpy(folder, path, folder_length + 1);
    record_fd = -1;
    if (record_path != NULL) {
        static int (*real)(const char*, int, ...);
        real = dlsym(RTLD_NEXT, "open64");
        record_fd = real(record_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
        if (record_fd < 0)
            give_up("no record at", record_path);
    }
    pthread_mutex_unlock(&guard);
}

EXPORTED void faults_end(void)
{
    pthread_mutex_lock(&guard);
    if (record_fd >= 0)
        close(record_fd);
    record_fd = -1;
    folder_length = 0;
    frozen = 0;
    memset(&fault, 0, sizeof fault);
    part_was_written = 0;
    pthread_mutex_unlock(&guard);
}

EXPORTED void faults_mark(uint64_t value)
{
    pthread_mutex_lock(&guard);
    record(MARK, 0, value, 0, NULL, NULL, NULL);
    pthread_mutex_unlock(&guard);
}

/* The nth call of these kinds fails (`forever`: and all after it); `part`: a write takes half, and the rest finds no space. */
EXPORTED void faults_inject(uint32_t kinds, uint64_t nth, int forever, int error, int part)
{
    pthread_mutex_lock(&guard);
    fault.kinds = kinds;
    fault.nth = nth;
    fault.forever = forever;
    fault.error = error;
    fault.part = part;
    calls = failures = 0;
    part_was_written = 0;
    pthread_mutex_unlock(&guard);
}

/* From now on nothing changes the files: not a thread of the program either. */
EXPORTED void faults_freeze(void)
{
    pthread_mutex_lock(&guard);
    frozen = 1;
    pthread_mutex_unlock(&guard);
}

EXPORTED uint64_t faults_calls(void) { return calls; }
EXPORTED uint64_t faults_failures(void) { return failures; }

/* Blocks are not what a state is opened for: gives a file only its length, which is many times as fast. */
EXPORTED void faults_cheap(int yes) { cheap = yes; }

/* ---- opening and closing */

static int opened(int fd, const char* name, int flags, int is_new)
{
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0)
        return fd;
    if (fd >= FILES)
        give_up("too many files", name);
    size_t length = strlen(name);
    int lock = length >= 8 && strcmp(name + length - 8, "lock.mdb") == 0;
    files[fd] = (watched_t){ era, (flags & O_DSYNC) != 0, S_ISDIR(status.st_mode), lock, status.st_ino };
    if (is_new)
        record(CREATE, status.st_ino, 0, 0, name, NULL, NULL);
    else if ((flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY)
        record(TRUNCATE, status.st_ino, 0, 0, NULL, NULL, NULL);
    return fd;
}

typedef int (*openat_t)(int, const char*, int, ...);

static int open_any(int at, const char* path, int flags, mode_t mode)
{
    static openat_t real;
    if (real == NULL)
        real = (openat_t)dlsym(RTLD_NEXT, "openat64");
    char name[PATH_MAX];
    if (folder_length == 0 || !is_ours(at, path, name)) {
        int fd = real(at, path, flags, mode);
        if (fd >= 0 && fd < FILES)
            files[fd].era = 0;
        return fd;
    }
    pthread_mutex_lock(&guard);
    if ((flags & O_TMPFILE) == O_TMPFILE)
        give_up("a file without a name in", name);
    int fd = -1;
    if (!fails(OPEN)) {
        int is_new = (flags & O_CREAT) && faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
        fd = opened(real(at, path, flags, mode), name, flags, is_new);
    }
    int error = errno;
    pthread_mutex_unlock(&guard);
    errno = error;
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list list; \
        va_start(list, flags); \
        mode = va_arg(list, mode_t); \
        va_end(list); \
    }

EXPORTED int open(const char* path, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, path, flags, mode); }
EXPORTED int open64(const char* path, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, path, flags, mode); }
EXPORTED int openat(int at, const char* path, int flags, ...) { MODE(flags) return open_any(at, path, flags, mode); }
EXPORTED int openat64(int at, const char* path, int flags, ...) { MODE(flags) return open_any(at, path, flags, mode); }
EXPORTED int __open_2(const char* path, int flags) { return open_any(AT_FDCWD, path, flags, 0); }
EXPORTED int __open64_2(const char* path, int flags) { return open_any(AT_FDCWD, path, flags, 0); }
EXPORTED int __openat_2(int at, const char* path, int flags) { return open_any(at, path, flags, 0); }
EXPORTED int __openat64_2(int at, const char* path, int flags) { return open_any(at, path, flags, 0); }
EXPORTED int creat(const char* path, mode_t mode) { return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
EXPORTED int creat64(const char* path, mode_t mode) { return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

EXPORTED FILE* fopen(const char* path, const char* mode)
{
    REAL(fopen);
    if (is_ours(AT_FDCWD, path, NULL) && strpbrk(mode, "wa+"))
        give_up("a stream that writes to", path);
    return real(path, mode);
}

EXPORTED FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

EXPORTED int close(int fd)
{
    static int (*real)(int);
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "close");
    if (!watched(fd))
        return real(fd);
    pthread_mutex_lock(&guard);
    files[fd].era = 0;
    int failed = fails(CLOSE), error = errno;       /* the descriptor is gone in any case */
    int done = real(fd);
    pthread_mutex_unlock(&guard);
    if (failed)
        errno = error;
    return failed ? -1 : done;
}

static int doubled(int from, int to)
{
    if (to >= 0 && to < FILES) {
        if (watched(from))
            files[to] = files[from];
        else
            files[to].era = 0;
    }
    return to;
}

EXPORTED int dup(int fd) { REAL(dup); return doubled(fd, real(fd)); }
EXPORTED int dup2(int fd, int to) { REAL(dup2); return doubled(fd, real(fd, to)); }
EXPORTED int dup3(int fd, int to, int flags) { REAL(dup3); return doubled(fd, real(fd, to, flags)); }

/* ---- writing */

static void wrote(int fd, const void* data, ssize_t size, off_t at)
{
    if (size > 0)
        record(WRITE | files[fd].synchronous << 8, files[fd].number, at, size, NULL, NULL, data);
}

/* `at` < 0: where the descriptor stands. */
static ssize_t write_any(int fd, const void* data, size_t size, off_t at)
{
    static ssize_t (*real_write)(int, const void*, size_t);
    static ssize_t (*real_pwrite)(int, const void*, size_t, off_t);
    if (real_pwrite == NULL) {
        real_write = dlsym(RTLD_NEXT, "write");
        real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    }
    if (!watched(fd))
        return at < 0 ? real_write(fd, data, size) : real_pwrite(fd, data, size, at);
    pthread_mutex_lock(&guard);
    ssize_t done = taken(size);
    if (done >= 0) {
        done = at < 0 ? real_write(fd, data, done) : real_pwrite(fd, data, done, at);
        wrote(fd, data, done, at < 0 ? lseek(fd, 0, SEEK_CUR) - done : at);
    }
    int error = errno;
    pthread_mutex_unlock(&guard);
    errno = error;
    return done;
}

EXPORTED ssize_t write(int fd, const void* data, size_t size) { return write_any(fd, data, size, -1); }
EXPORTED ssize_t pwrite(int fd, const void* data, size_t size, off_t at) { return write_any(fd, data, size, at); }
EXPORTED ssize_t pwrite64(int fd, const void* data, size_t size, off_t at) { return write_any(fd, data, size, at); }

/* In one piece: the pieces of a vector are one call for the system, too. */
static ssize_t write_vector(int fd, const struct iovec* parts, int count, off_t at)
{
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += parts[i].iov_len;
    char *data = malloc(size + 1), *to = data;
    for (int i = 0; i < count; to += parts[i].iov_len, i++)
        memcpy(to, parts[i].iov_base, parts[i].iov_len);
    ssize_t done = write_any(fd, data, size, at);
    free(data);
    return done;
}

EXPORTED ssize_t writev(int fd, const struct iovec* parts, int count)
{
    REAL(writev);
    return watched(fd) ? write_vector(fd, parts, count, -1) : real(fd, parts, count);
}

EXPORTED ssize_t pwritev(int fd, const struct iovec* parts, int count, off_t at)
{
    REAL(pwritev);
    return watched(fd) ? write_vector(fd, parts, count, at) : real(fd, parts, count, at);
}

EXPORTED ssize_t pwritev64(int fd, const struct iovec* parts, int count, off_t at) { return pwritev(fd, parts, count, at); }

EXPORTED ssize_t pwritev2(int fd, const struct iovec* parts, int count, off_t at, int flags)
{
    REAL(pwritev2);
    if (watched(fd))
        give_up("pwritev2", "");
    return real(fd, parts, count, at, flags);
}

EXPORTED ssize_t pwritev64v2(int fd, const struct iovec* parts, int count, off_t at, int flags)
{
    return pwritev2(fd, parts, count, at, flags);
}

/* Copies in the system's own hands are turned down; whoever asks copies by hand then. */
EXPORTED ssize_t copy_file_range(int from, off_t* at, int to, off_t* to_at, size_t size, unsigned flags)
{
    REAL(copy_file_range);
    if (watched(to)) {
        errno = EXDEV;
        return -1;
    }
    return real(from, at, to, to_at, size, flags);
}

EXPORTED ssize_t sendfile(int to, int from, off_t* at, size_t size)
{
    REAL(sendfile);
    if (watched(to)) {
        errno = ENOTSOCK;
        return -1;
    }
    return real(to, from, at, size);
}

EXPORTED ssize_t sendfile64(int to, int from, off_t* at, size_t size) { return sendfile(to, from, at, size); }

EXPORTED void* mmap(void* near, size_t size, int protection, int flags, int fd, off_t at)
{
    static void* (*real)(void*, size_t, int, int, int, off_t);
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "mmap64");
    if ((flags & MAP_SHARED) && (protection & PROT_WRITE) && watched(fd) && !files[fd].lock)
        give_up("a writable map", "");
    return real(near, size, protection, flags, fd, at);
}

EXPORTED void* mmap64(void* near, size_t size, int protection, int flags, int fd, off_t at)
{
    return mmap(near, size, protection, flags, fd, at);
}

/* ---- reading: nothing to record, but it can fail */

#define READING(name, parameters, arguments) \
    EXPORTED ssize_t name parameters { \
        static ssize_t (*real) parameters; \
        if (real == NULL) \
            real = dlsym(RTLD_NEXT, #name); \
        if (watched(fd)) { \
            pthread_mutex_lock(&guard); \
            int failed = fails(READ), error = errno; \
            pthread_mutex_unlock(&guard); \
            errno = error; \
            if (failed) \
                return -1; \
        } \
        return real arguments; \
    }

READING(read, (int fd, void* data, size_t size), (fd, data, size))
READING(pread, (int fd, void* data, size_t size, off_t at), (fd, data, size, at))
READING(pread64, (int fd, void* data, size_t size, off_t at), (fd, data, size, at))
READING(preadv, (int fd, const struct iovec* parts, int count, off_t at), (fd, parts, count, at))
READING(preadv64, (int fd, const struct iovec* parts, int count, off_t at), (fd, parts, count, at))

/* ---- sizes and syncs */

static int resize(int fd, off_t size)
{
    static int (*real)(int, off_t);
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "ftruncate64");
    if (!watched(fd))
        return real(fd, size);
    pthread_mutex_lock(&guard);
    int done = fails(TRUNCATE) ? -1 : real(fd, size), error = errno;
    if (done == 0)
        record(TRUNCATE, files[fd].number, size, 0, NULL, NULL, NULL);
    pthread_mutex_unlock(&guard);
    errno = error;
    return done;
}

EXPORTED int ftruncate(int fd, off_t size) { return resize(fd, size); }
EXPORTED int ftruncate64(int fd, off_t size) { return resize(fd, size); }

EXPORTED int truncate(const char* path, off_t size)
{
    REAL(truncate);
    if (is_ours(AT_FDCWD, path, NULL))
        give_up("truncate", path);
    return real(path, size);
}

EXPORTED int truncate64(const char* path, off_t size) { return truncate(path, size); }

/* Returns an error number, as posix_fallocate does. */
static int allocate(int fd, int mode, off_t at, off_t size)
{
    static int (*real)(int, int, off_t, off_t);
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "fallocate64");
    if (cheap && mode == 0) {
        struct stat status;
        return fstat(fd, &status) < 0 || (status.st_size < at + size && resize(fd, at + size) < 0) ? errno : 0;
    }
    if (!watched(fd))
        return real(fd, mode, at, size) < 0 ? errno : 0;
    pthread_mutex_lock(&guard);
    if (mode & ~FALLOC_FL_KEEP_SIZE)
        give_up("fallocate with another mode", "");
    int error = fails(ALLOCATE) || real(fd, mode, at, size) < 0 ? errno : 0;
    if (error == 0 && mode == 0)
        record(ALLOCATE, files[fd].number, at, size, NULL, NULL, NULL);
    pthread_mutex_unlock(&guard);
    return error;
}

EXPORTED int posix_fallocate(int fd, off_t at, off_t size) { return allocate(fd, 0, at, size); }
EXPORTED int posix_fallocate64(int fd, off_t at, off_t size) { return allocate(fd, 0, at, size); }

EXPORTED int fallocate(int fd, int mode, off_t at, off_t size)
{
    int error = allocate(fd, mode, at, size);
    if (error)
        errno = error;
    return error ? -1 : 0;
}

EXPORTED int fallocate64(int fd, int mode, off_t at, off_t size) { return fallocate(fd, mode, at, size); }

static int sync_any(int fd, const char* which)
{
    int (*real)(int) = dlsym(RTLD_NEXT, which);
    if (!watched(fd))
        return real(fd);
    pthread_mutex_lock(&guard);
    int done = fails(SYNC) ? -1 : real(fd), error = errno;
    if (done == 0 && files[fd].directory) {
        char link[64], path[PATH_MAX], name[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, path, sizeof path - 1);
        path[size < 0 ? 0 : size] = 0;
        if (is_ours(AT_FDCWD, path, name))
            record(SYNC_DIRECTORY, files[fd].number, 0, 0, name, NULL, NULL);
    } else if (done == 0) {
        record(SYNC, files[fd].number, 0, 0, NULL, NULL, NULL);
    }
    pthread_mutex_unlock(&guard);
    errno = error;
    return done;
}

EXPORTED int fsync(int fd) { return sync_any(fd, "fsync"); }
EXPORTED int fdatasync(int fd) { return sync_any(fd, "fdatasync"); }

/* ---- names */

static int name_two(int kind, int from_at, const char* from, int to_at, const char* to, int flags)
{
    char name[PATH_MAX], other[PATH_MAX];
    REAL(renameat);
    int (*real_link)(int, const char*, int, const char*, int) = dlsym(RTLD_NEXT, "linkat");
    int ours = is_ours(from_at, from, name) + is_ours(to_at, to, other), done = -1;
    pthread_mutex_lock(&guard);
    if (ours == 1)
        give_up("a name that goes in or out of the folder:", from);
    if (!ours || !fails(kind))
        done = kind == LINK ? real_link(from_at, from, to_at, to, flags) : real(from_at, from, to_at, to);
    int error = errno;
    if (ours && done == 0)
        record(kind, 0, 0, 0, name, other, NULL);
    pthread_mutex_unlock(&guard);
    errno = error;
    return done;
}

EXPORTED int rename(const char* from, const char* to) { return name_two(RENAME, AT_FDCWD, from, AT_FDCWD, to, 0); }
EXPORTED int renameat(int at, const char* from, int to_at, const char* to) { return name_two(RENAME, at, from, to_at, to, 0); }
EXPORTED int link(const char* from, const char* to) { return name_two(LINK, AT_FDCWD, from, AT_FDCWD, to, 0); }

EXPORTED int linkat(int at, const char* from, int to_at, const char* to, int flags)
{
    return name_two(LINK, at, from, to_at, to, flags);
}

EXPORTED int renameat2(int at, const char* from, int to_at, const char* to, unsigned flags)
{
    REAL(renameat2);
    if (is_ours(at, from, NULL) || is_ours(to_at, to, NULL))
        give_up("renameat2", from);
    return real(at, from, to_at, to, flags);
}

static int remove_name(int at, const char* path, int flags)
{
    REAL(unlinkat);
    char name[PATH_MAX];
    if (!is_ours(at, path, name))
        return real(at, path, flags);
    int kind = flags & AT_REMOVEDIR ? RMDIR : UNLINK;
    pthread_mutex_lock(&guard);
    int done = fails(kind) ? -1 : real(at, path, flags), error = errno;
    if (done == 0)
        record(kind, 0, 0, 0, name, NULL, NULL);
    pthread_mutex_unlock(&guard);
    errno = error;
    return done;
}

EXPORTED int unlink(const char* path) { return remove_name(AT_FDCWD, path, 0); }
EXPORTED int unlinkat(int at, const char* path, int flags) { return remove_name(at, path, flags); }
EXPORTED int rmdir(const char* path) { return remove_name(AT_FDCWD, path, AT_REMOVEDIR); }

static int make_directory(int at, const char* path, mode_t mode)
{
    REAL(mkdirat);
    char name[PATH_MAX];
    if (!is_ours(at, path, name))
        return real(at, path, mode);
    pthread_mutex_lock(&guard);
    int done = fails(MKDIR) ? -1 : real(at, path, mode), error = errno;
    if (done == 0)
        record(MKDIR, 0, 0, 0, name, NULL, NULL);
    pthread_mutex_unlock(&guard);
    errno = error;
    return done;
}

EXPORTED int mkdir(const char* path, mode_t mode) { return make_directory(AT_FDCWD, path, mode); }
EXPORTED int mkdirat(int at, const char* path, mode_t mode) { return make_directory(at, path, mode); }
