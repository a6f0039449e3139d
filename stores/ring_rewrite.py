"""The file of a ring is written anew, beside itself: groups behind each other from position 0 on, in PATH.repair, which then
takes the place of PATH. What is not to be in it goes into PATH.quarantine-N. A crash leaves the old file or the new one. """

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from typing import Self

from xump_ext.errors import StoreFull
from xump_ext.records import place_record

from . import ring_lock
from .ring_disk import sync, sync_name, write_all
from .ring_segments import GROUP, GROUP_BYTES, RECORD_HEAD, RECORD_MAGIC_NUMBER, SLOTS_MIN, Segments, make

Record = memoryview | bytes


def write_anew(log: Segments, groups: Iterable[tuple[int, list[Record]]]) -> None:
    """A file with these groups takes the place of the log's."""
    temporary = f"{log.path}.repair"
    if os.path.lexists(temporary):
        os.unlink(temporary)        # of a repair that crashed; nobody else makes one: the log is ours
    try:
        with _Copy(log, temporary) as copy:
            for number, group in groups:
                copy.group(number, group)
            copy.finish(log.fd)
        os.rename(temporary, log.path)
        sync_name(log.path)
    except OSError as error:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StoreFull(error.errno, f"{log.path} is written anew beside itself, for which the disk has no space; nothing was "
                        "changed") from error


class _Copy:
    """A new ring that is written from the beginning."""

    def __init__(self, log: Segments, path: str) -> None:
        self.fd = make(path, log.segment_bytes, SLOTS_MIN, log.salt)
        self.segments = Segments.load(self.fd, path)
        self.end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ring_lock.give_up(self.fd)

    def group(self, number: int, group: list[Record]) -> None:
        if not group:
            return
        data = bytearray(RECORD_HEAD.pack(0, RECORD_MAGIC_NUMBER, GROUP, 0, GROUP_BYTES, 0, 0, number))
        data += struct.pack("<QQQ", len(group), GROUP_BYTES + sum(map(len, group)), self.end)
        starts = [0]
        for record in group:
            starts.append(len(data))
            data += record
        view = memoryview(data)
        for start in starts:
            place_record(view[start:], self.end + start, self.segments.salt)
        self.segments.append(view, self.end, 0, self._ready)
        self.end += len(data)

    def _ready(self) -> None:
        if not self.segments.free:
            self.segments.grow(1)

    def finish(self, like: int) -> None:
        sync(self.fd, size_too=True)
        belong(self.fd, os.fstat(like))
        for _ in range(2):
            self.segments.write_superblock(self.end)
        sync(self.fd, size_too=True)


def quarantine(path: str, lost: list[bytes]) -> str:
    """Puts what was damaged into a file of its own, durably, for whoever may read the store; returns its name."""
    number = 1
    while os.path.lexists(f"{path}.quarantine-{number}"):
        number += 1
    name = f"{path}.quarantine-{number}"
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        belong(fd, os.stat(path))
        write_all(fd, b"".join(lost), 0)
        sync(fd, size_too=True)
    except BaseException:
        os.unlink(name)
        raise
    finally:
        os.close(fd)
    sync_name(path)
    return name


def belong(fd: int, like: os.stat_result) -> None:
    """The file is for whom another one is for."""
    os.fchmod(fd, like.st_mode & 0o7777)
    made = os.fstat(fd)
    if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
        os.fchown(fd, like.st_uid, like.st_gid)
