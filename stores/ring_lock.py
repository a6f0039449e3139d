"""One process owns a file, and in it one store.

A POSIX record lock says which process: it goes when that dies, and it knows its owner's pid. It has two gaps, which are filled
here. It does not keep out its own process, which would lose it, moreover, by closing any other descriptor of that file: so
files are registered by device and inode before one is opened. And a child does not inherit it: after a fork the child owns
nothing. """

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import threading

from xump_ext.errors import StoreCorrupt, StoreLocked

# type, whence, start, length, pid, as the C compiler lays out `struct flock`.
_FLOCK = struct.Struct("qqihh" if sys.platform == "darwin" else "hhqqixxxx")

_guard = threading.Lock()
_owned: set[tuple[int, int]] = set()


def claim(path: str, *, shared: bool = False) -> int:
    """A descriptor of a file that this process now owns; `shared`: to read only, beside other readers.

    StoreLocked, with the owner's pid; StoreCorrupt where no file can be; else what `os.open` raises."""
    with _guard:
        while True:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                what = "a directory" if stat.S_ISDIR(found.st_mode) else "no ordinary file"
                raise StoreCorrupt(f"{path} is {what}; a ring store is one file: give the path of a file")
            if (found.st_dev, found.st_ino) in _owned:
                raise StoreLocked(f"{path} is open in this process already, pid {os.getpid()}; a store is open once: close it "
                                  "first")
            fd = _opened(path, os.O_RDONLY if shared else os.O_RDWR)
            try:
                lock(fd, path, shared=shared)
                if os.path.samestat(found, os.fstat(fd)) and os.path.samestat(found, os.stat(path)):
                    _owned.add((found.st_dev, found.st_ino))
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)        # another file was put there in between, by a repair


def _opened(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise PermissionError(error.errno, f"{error.strerror}: the process must be able to read a store's file, and to write "
                                  "it unless it only checks it", path) from error
        raise


def claim_made(fd: int, path: str) -> None:
    """The same for a file that was just made, before it has its name."""
    with _guard:
        lock(fd, path)
        found = os.fstat(fd)
        _owned.add((found.st_dev, found.st_ino))


def lock(fd: int, path: str, *, shared: bool = False) -> None:
    try:
        fcntl.lockf(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        raise StoreLocked(f"{path} is owned by {_owner(fd)}; one process owns a store: close it there first") from error


def _owner(fd: int) -> str:
    asked = (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET) if sys.platform == "darwin" else (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    answer = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(*asked)))
    kind, pid = (answer[3], answer[2]) if sys.platform == "darwin" else (answer[0], answer[4])
    # Of a lock beyond this process's namespace the system does not tell the pid; and it may be gone by now.
    return f"process {pid}" if kind != fcntl.F_UNLCK and pid > 0 else "another process"


def give_up(fd: int) -> None:
    """Closes the descriptor; the lock goes with it."""
    with _guard:
        found = os.fstat(fd)
        _owned.discard((found.st_dev, found.st_ino))
        os.close(fd)


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()
    _owned.clear()


os.register_at_fork(after_in_child=_after_fork)
