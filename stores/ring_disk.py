"""What the ring asks of the disk: every write, sync and change of size goes through here, so that tests can fail each of them."""

from __future__ import annotations

import errno
import os


def write_all(fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(fd, view, at)
        if written <= 0:
            raise OSError(errno.EIO, f"the system wrote {written} of {len(view)} bytes")
        view, at = view[written:], at + written


def write_zeros(fd: int, at: int, size: int) -> None:
    """Preallocates, too: zeros written for real.

    PREALLOC_FIGURES
    """
    zeros = memoryview(bytes(min(size, 1 << 20)))
    end = at + size
    while at < end:
        write_all(fd, zeros[: end - at], at)
        at += len(zeros)


def sync(fd: int, *, size_too: bool = False) -> None:
    """fdatasync; where the size of the file changed, or there is no such call, fsync."""
    if size_too or not hasattr(os, "fdatasync"):
        os.fsync(fd)
    else:
        os.fdatasync(fd)


def sync_name(path: str) -> None:
    """Makes durable that a file has that name."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def set_size(fd: int, size: int) -> None:
    os.ftruncate(fd, size)
