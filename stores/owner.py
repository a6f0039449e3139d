"""One process owns a store, and opens it once.

A POSIX record lock on one file of the store says which process owns it. The system drops the lock when the process ends,
however it ends, and tells the owner's pid. Two gaps remain, and this module fills them:

- The lock does not keep out its own process, which would even lose it by closing any other descriptor of that file. So each
  claimed file is registered by its device and inode, and no second descriptor of it is closed before the claim is released:
  whoever only wants to look into a file that may be a store's asks `reading`. The program may do it all the same. So the lock is
  taken again before the store writes what it will sync, and when it has synced (`assure`).
- A child does not inherit the lock. After a fork the child owns nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from xump_ext.errors import StoreFailed, StoreLocked

# `struct flock` as the C compiler lays it out, and the places in it of type, whence, start, length and pid.
_FLOCK, _ORDER = (("qqihh", (3, 4, 0, 1, 2)) if sys.platform == "darwin" else ("hhqqi4x", (0, 1, 2, 3, 4)))

_guard = threading.Lock()
_owned: dict[tuple[int, int], Claim] = {}
"""Every file that this process has claimed, by device and inode."""


class Claim:
    """A file that this process owns until `release`, and its descriptor `fd`."""

    def __init__(self, fd: int, file: str, purpose: str, *, shared: bool, made: bool) -> None:
        self.fd = fd
        self.file = file
        self.purpose = purpose
        self.made = made
        """Whether the claim made the file."""
        self._more: list[int] = []      # further descriptors of the file
        self._shared = shared
        self._key = _key(os.fstat(fd))
        _owned[self._key] = self

    def release(self, *, remove: bool = False) -> None:
        """Closes the descriptor, and the lock goes with it. `remove`: deletes the file, too. So does a reader that made it, not
        while others read by it: a writer would find no file, make another one, and keep nobody away.

        Does nothing the second time, or in a forked child."""
        with _guard:
            if _owned.get(self._key) is not self:
                return
            del _owned[self._key]
            try:
                if remove or (self._shared and self.made and _is_alone(self.fd)):
                    os.unlink(self.file)
            finally:
                for fd in (self.fd, *self._more):
                    os.close(fd)

    def assure(self, store: str, *more: int) -> None:
        """Takes the lock again if this process has lost it, as when the program copied the file and closed it. Raises StoreFailed
        if another process owns the store meanwhile, or if the file, or one of these descriptors, has lost its name.

        To be called before the store writes into what may be another process's by now, and before it says that something is
        durable. Two system calls, 3 µs: with "process" and "none", only for a sync."""
        try:
            _lock(self.fd, store, self._shared)
        except StoreLocked as error:
            raise StoreFailed(errno.EBUSY, f"{error}. This process has lost its lock, as a program does that opens and closes "
                              "the files of its open store, perhaps to copy them: copy closed stores only") from error
        if not all(os.fstat(fd).st_nlink for fd in (self.fd, *more)):
            raise StoreFailed(errno.ENOENT, f"{store} was deleted or replaced while it was open: what is written now is lost")

    def forsake(self) -> None:
        """Closes the descriptor in a forked child, which owns nothing by it.

        The child may have claimed the file itself since, and that lock would go with any descriptor of the file: then this one
        stays open with it."""
        with _guard:
            owner = _owned.get(self._key)
            if owner is None:
                os.close(self.fd)
            else:
                owner.keep(self.fd)

    def keep(self, fd: int) -> None:
        """Takes over a further descriptor of the file, which must stay open as long as the lock is needed."""
        self._more.append(fd)


@contextmanager
def reading(file: str | os.PathLike[str]) -> Iterator[int]:
    """A descriptor to read a file by, also one that this process has claimed: that stays locked. Raises what `os.open` raises."""
    with _guard:
        owner = _owned.get(_key(os.stat(file)))
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC) if owner is None else owner.fd
        try:
            yield fd
        finally:
            if owner is None and (meanwhile := _owned.get(_key(os.fstat(fd)))) is not None:
                meanwhile.keep(fd)      # a claimed file got this name
            elif owner is None:
                os.close(fd)


def fill_standard() -> None:
    """Opens the null device in the place of standard input, output and error, if one of them is closed, and leaves it there.

    Else the next file that is opened gets its number, and what the process prints goes into that: into a store (SQLite's
    `SQLITE_MINIMUM_FILE_DESCRIPTOR`). Nothing can be read from a standard input that was closed, as before."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_WRONLY), True)      # the lowest number that is free


def claim(file: str, *, store: str | None = None, purpose: str = "", shared: bool = False, create: bool = False) -> Claim:
    """Claims the file that stands for a store.

    `store`: the path that messages name (None: the file). `purpose`: told to a second claim in this process. `shared`: read only,
    beside other readers. `create`: makes a file that is missing.

    Raises StoreLocked, with the owner's pid; else what `os.stat` and `os.open` raise."""
    name = file if store is None else store
    fill_standard()
    with _guard:
        while True:
            found = _found(file, create)
            if found is not None and (owner := _owned.get(_key(found))) is not None:
                why = f", {owner.purpose}" if owner.purpose else ""
                raise StoreLocked(f"{name} is open in this process already, pid {os.getpid()}{why}; a store is open once: close "
                                  "it first")
            access = os.O_RDWR | os.O_CREAT if found is None else os.O_RDONLY if shared else os.O_RDWR
            try:
                fd = os.open(file, access | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                if found is None or not create:
                    raise
                continue        # its owner removed it meanwhile
            try:
                _lock(fd, name, shared)
                if (found is None or os.path.samestat(found, os.fstat(fd))) and _is_at(file, fd):
                    return Claim(fd, file, purpose, shared=shared, made=found is None)
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)        # a repair put another file there meanwhile, or the owner removed it


def claim_made(fd: int, file: str) -> Claim:
    """Claims a file that this process just made, before the file gets its name."""
    with _guard:
        _lock(fd, file, False)
        return Claim(fd, file, "", shared=False, made=True)


def _found(file: str, create: bool) -> os.stat_result | None:
    try:
        return os.stat(file)
    except FileNotFoundError:
        if not create:
            raise
        return None


def _is_at(file: str, fd: int) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.stat(file), os.fstat(fd))
    except FileNotFoundError:
        return False


def _is_alone(fd: int) -> bool:
    """Makes a shared lock one that keeps all others away; returns whether nobody else has one."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False
    return True


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _lock(fd: int, name: str, shared: bool) -> None:
    try:
        fcntl.lockf(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        raise StoreLocked(f"{name} is owned by {_holder(fd)}; one process owns a store: close it there first") from error


def _holder(fd: int) -> str:
    """The process that has the file locked, as text."""
    fields = [0] * 5
    for field, at in zip((fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0), _ORDER, strict=True):
        fields[at] = field
    answer = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_FLOCK, *fields)))
    kind, pid = answer[_ORDER[0]], answer[_ORDER[4]]
    # The system hides the pid of a lock that another machine or container holds; and the lock may be gone by now.
    return f"process {pid}" if kind != fcntl.F_UNLCK and pid > 0 else "another process"


def _after_fork() -> None:
    """The child holds none of the parent's locks."""
    global _guard
    _guard = threading.Lock()
    _owned.clear()


os.register_at_fork(after_in_child=_after_fork)
