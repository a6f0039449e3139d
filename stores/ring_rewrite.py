"""Writes the file of a ring anew, and puts damaged bytes aside.

The new file stands beside the old one as PATH.repair- and 16 digits, with its groups behind each other from position 0 on, and
then takes the place of PATH. Bytes that must not be in it go into PATH.quarantine-N. A crash leaves the old file or the new one.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable
from typing import Self

from xump_ext.errors import StoreFull
from xump_ext.records import kinds, place_record

from .belonging import belong
from .ring_disk import sync, sync_name, write_all
from .ring_file import REWRITTEN, SLOTS_MIN, make, remove_remains
from .ring_segments import Segments

Record = memoryview | bytes


def write_anew(log: Segments, groups: Iterable[tuple[int, list[Record]]]) -> None:
    """Replaces the log's file with one that has these groups, as (number, records)."""
    remove_remains(log.path)        # a repair that crashed may have left a file as large as this one will be
    temporary = f"{log.path}{REWRITTEN}{secrets.token_hex(8)}"
    try:
        with _Copy(log, temporary) as copy:
            for number, group in groups:
                copy.group(number, group)
            copy.finish()
        os.rename(temporary, log.path)
        sync_name(log.path)
    except BaseException as error:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StoreFull(error.errno, f"{log.path} is written anew beside itself, for which the disk has no space; nothing was "
                        "changed") from error


class _Copy:
    """A new ring that fills up from the beginning. It has the user, group and mode of the old one before it has its messages."""

    def __init__(self, log: Segments, path: str) -> None:
        self.claim = make(path, log.segment_bytes, SLOTS_MIN, log.salt)
        self.fd = self.claim.fd
        try:
            belong(self.fd, os.fstat(log.fd))
            self.segments = Segments.load(self.fd, path)
        except BaseException:
            self.claim.release(remove=True)
            raise
        self.end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.claim.release()

    def group(self, number: int, group: list[Record]) -> None:
        if not group:
            return
        data = bytearray(kinds.HEAD.pack(0, kinds.MAGIC, kinds.GROUP, 0, kinds.GROUP_BYTES, 0, 0, number))
        data += kinds.GROUP_FIELDS.pack(len(group), kinds.GROUP_BYTES + sum(map(len, group)), self.end)
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

    def finish(self) -> None:
        """Makes the file durable."""
        sync(self.fd, size_too=True)
        for _ in range(2):
            self.segments.write_superblock(self.end)
        sync(self.fd, size_too=True)


def quarantine(path: str, lost: list[bytes]) -> str:
    """Puts damaged bytes into a file of their own, durably, readable like the store; returns its name."""
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
