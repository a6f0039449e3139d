"""One process owns a store, and has it open once.

LMDB would let more processes in. So the directory of a store has a file `owner`, which is locked by `fcntl.lockf` as long as the
store is open: the system gives the lock up when the process ends, however it ends. Such a lock belongs to the process and is lost
when the process closes any descriptor of the file, so what is open in this process is known here, and the file is not opened a
second time.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import threading

from xump_ext.errors import StoreLocked

OWNER = "owner"

# struct flock, as the system has it, and where in it type, whence, start, length and pid are.
_FLOCK, _ORDER = (("qqihh", (3, 4, 0, 1, 2)) if sys.platform == "darwin" else ("hhqqi4x", (0, 1, 2, 3, 4)))

_owned: dict[tuple[int, int], str] = {}
"""Device and number of each `owner` file that this process has locked: what for."""
_lock = threading.Lock()


class Owner:
    """The lock of a store's directory, which must exist; `shared`: to read only, beside other readers. Raises `StoreLocked`;
    PermissionError."""

    def __init__(self, directory: str, purpose: str, shared: bool = False) -> None:
        self.file = os.path.join(directory, OWNER)
        self.shared = shared
        with _lock:
            while True:
                self._check_own()
                self.made = not os.path.exists(self.file)
                reads = shared and not self.made
                try:
                    self.fd = os.open(self.file, (os.O_RDONLY if reads else os.O_RDWR | os.O_CREAT) | os.O_CLOEXEC, 0o666)
                except FileNotFoundError:
                    if reads:       # who made it removed it
                        continue
                    raise
                try:
                    fcntl.lockf(self.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                except OSError as error:
                    pid = _holder(self.fd)
                    os.close(self.fd)
                    if not isinstance(error, BlockingIOError | PermissionError):
                        raise
                    who = f"process {pid}" if pid else "another process"      # of another machine or container
                    raise StoreLocked(f"{directory} is owned by {who}; one process owns a store: close it there first") from None
                status = os.fstat(self.fd)
                self.key = status.st_dev, status.st_ino
                if _is(self.file, self.key):
                    break
                os.close(self.fd)       # who made it gave it up meanwhile, and removed it
            _owned[self.key] = purpose

    def _check_own(self) -> None:
        try:
            status = os.stat(self.file)
        except FileNotFoundError:
            return
        purpose = _owned.get((status.st_dev, status.st_ino))
        if purpose is not None:
            raise StoreLocked(f"{os.path.dirname(self.file)} is open in this process already, pid {os.getpid()}, {purpose}; "
                              "a store is open once: close it first")

    def release(self, remove: bool = False) -> None:
        """`remove`: the file, too: where there is no store. Who only read leaves none behind that was not there."""
        with _lock:
            if _owned.pop(self.key, None) is not None:
                if remove or (self.shared and self.made):
                    os.unlink(self.file)
                os.close(self.fd)


def _is(file: str, key: tuple[int, int]) -> bool:
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return False
    return (status.st_dev, status.st_ino) == key


def _holder(fd: int) -> int:
    """The pid of who has the file locked; 0: not to be known."""
    fields = [0] * 5
    for field, at in zip((fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0), _ORDER, strict=True):
        fields[at] = field
    answer: tuple[int, ...] = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_FLOCK, *fields)))
    return max(0, answer[_ORDER[4]])


def _after_fork() -> None:
    """The child has none of the parent's locks."""
    global _lock
    _lock = threading.Lock()
    _owned.clear()


os.register_at_fork(after_in_child=_after_fork)
