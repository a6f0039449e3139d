"""The store `ring`: one preallocated file, the log written round it, a write for each group.

A group is written behind the one before; where the segment is full it goes on in the lowest free slot of the file
(`ring_segments.py` draws it). A message's record is found by its position. What is settled is not looked for: space comes back
in the order of the log, a segment at a time. The engine is given the oldest groups (`oldest`), writes what of them is live once
more, and says when that is durable (`release`): a live message in the way is carried forward, not waited for.
"""

from __future__ import annotations

import errno
import os
import secrets
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from xump_ext.errors import Closed, Conflict, ForkedError, StoreCorrupt, StoreFailed, StoreFull
from xump_ext.records import record_whole
from xump_ext.store import DURABILITIES, Report

from . import places, ring_lock, ring_repair
from .ring_disk import sync, sync_name, write_zeros
from .ring_segments import (
    HEAD_BYTES,
    RECORD_HEAD,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SLOTS_AT,
    SLOTS_MIN,
    Segments,
    make,
)
from .ring_space import BOUND_SLOTS_MIN, NO_SPACE, RingSpace

SEGMENT_BYTES_USUAL = 4 << 20
WINDOW_BYTES = 64 << 10     # what `fetch` reads: a few hundred small messages, which will be asked for next
ENTER = 5
MIN_BYTES_MAX = 1 << 44     # more than a file system has in one file

instances: weakref.WeakSet[RingStore] = weakref.WeakSet()


class RingStore(RingSpace):
    """A ring in the file at `path`, made if it is not there; `scan` it before anything else.

    `durability`, `group_ms`: see `xump_ext.store`. `min_bytes` are preallocated and kept; the file grows up to `max_bytes`
    (None: as the disk has), both counted in whole segments, the 8 KiB before them apart, and may differ each time.
    `segment_bytes`, a power of two, is for good (None: what the file has; a new one 4 MiB, or about a 32nd of `max_bytes`).
    TypeError, ValueError, Conflict, StoreLocked, StoreCorrupt, StoreFull, OSError: nothing was changed. O(segments). """

    type = "ring"
    durable = True

    def __init__(self, name: str, *, path: str | os.PathLike[str], durability: str = "group", group_ms: float = 2.0,
                 min_bytes: int = 16 << 20, max_bytes: int | None = None, segment_bytes: int | None = None) -> None:
        _checked(path, durability, group_ms, min_bytes, max_bytes, segment_bytes)
        self.name = name
        self.path = places.absolute(path)
        self.durability = durability
        self.group_ms = float(group_ms)
        self.cut = 0
        self._barred: Exception | None = None
        self._fd = self._open(segment_bytes, min_bytes, max_bytes)
        self._scanned = self._usable = False
        try:
            self._segments = segments = Segments.load(self._fd, self.path)
            if segment_bytes is not None and segment_bytes != segments.segment_bytes:
                raise Conflict(f"segment_bytes={segment_bytes}: {self.path} was made with {segments.segment_bytes}")
            self._bound(min_bytes, max_bytes, segments.segment_bytes)
            self._check_disk(self._slots_min - segments.slots, segments.segment_bytes)
        except BaseException:
            ring_lock.give_up(self._fd)
            raise
        self.salt = segments.salt
        self.group_bytes = min(self.group_bytes, segments.capacity >> 2)
        self._groups = self._syncs = 0
        self._prepare_space()
        instances.add(self)

    def _bound(self, min_bytes: int, max_bytes: int | None, segment_bytes: int) -> None:
        self._slots_min = max(SLOTS_MIN, min_bytes // segment_bytes)
        self._slots_max = None if max_bytes is None else max_bytes // segment_bytes
        if self._slots_max is not None and self._slots_max < BOUND_SLOTS_MIN:
            raise ValueError(f"max_bytes={max_bytes}: at least {BOUND_SLOTS_MIN} segments of {segment_bytes} bytes, which is "
                             f"{BOUND_SLOTS_MIN * segment_bytes}; or make the store with smaller ones (segment_bytes=)")

    def _check_disk(self, slots: int, segment_bytes: int) -> None:
        """Before anything is written: zeros until there is no room would take it from all others, for a while."""
        disk = os.statvfs(os.path.dirname(self.path))
        free = disk.f_bavail * disk.f_frsize
        if slots * segment_bytes > free:
            raise StoreFull(errno.ENOSPC, f"{self.path} would take {slots * segment_bytes} bytes more (min_bytes=), and its disk "
                            f"has {free} free; nothing was changed")

    def _open(self, segment_bytes: int | None, min_bytes: int, max_bytes: int | None) -> int:
        while True:
            try:
                return ring_lock.claim(self.path)
            except OSError as error:
                places.check(self.path)
                if places.is_denied(error):
                    raise places.denied(error, self.path) from error
                if not isinstance(error, FileNotFoundError):
                    raise
            made = self._make(_usual_segment(max_bytes) if segment_bytes is None else segment_bytes, min_bytes, max_bytes)
            if made is not None:
                return made

    def _make(self, segment_bytes: int, min_bytes: int, max_bytes: int | None) -> int | None:
        """Under another name first: a crash leaves no half store. None: somebody else made one meanwhile."""
        self._bound(min_bytes, max_bytes, segment_bytes)
        self._check_disk(self._slots_min, segment_bytes)
        temporary = f"{self.path}.new-{secrets.token_hex(4)}"
        try:
            fd = make(temporary, segment_bytes, self._slots_min, secrets.randbits(32))
        except OSError as error:
            if places.is_denied(error):
                raise places.denied(error, self.path) from error
            if error.errno not in NO_SPACE:
                raise
            raise StoreFull(error.errno, f"{self.path} cannot be made: {error.strerror}; it takes "
                            f"{self._slots_min * segment_bytes + SLOTS_AT} bytes (min_bytes=)") from error
        try:
            self._give_name(temporary)
        except BaseException as error:
            ring_lock.give_up(fd)
            if os.path.lexists(temporary):
                os.unlink(temporary)
            if isinstance(error, FileExistsError):
                return None
            raise
        return fd

    def _give_name(self, temporary: str) -> None:
        try:
            os.link(temporary, self.path)       # never over a file that is there
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS) or os.path.lexists(self.path):
                raise
            os.rename(temporary, self.path)     # a file system without links
        else:
            os.unlink(temporary)
        sync_name(self.path)

    # ---- once, at the beginning

    def scan(self) -> Iterator[tuple[int, memoryview]]:
        """The log from its first group that may be needed: see `Backend.scan`. In the order in which it was written: a QUEUE or
        STATE that was carried forward stands behind entries of its queue. O(bytes), and they are read once."""
        self._begin_scan()
        segments = self._segments
        self.end, state, failed = yield from segments.groups(segments.begin)
        last, evidence = segments.behind(self.end)
        if max(segments.synced, evidence) > self.end:
            raise StoreCorrupt(f"{self._where(failed, state)}; the log was synced up to {max(segments.synced, evidence)}; "
                               f"run: xump repair {self.path}")
        self.cut = last - self.end
        try:
            self._mend(last)
        except OSError as error:
            raise self._failed("making durable what was found", error) from error
        self._usable = True

    def _begin_scan(self) -> None:
        self._check_open()
        if self._scanned:
            raise RuntimeError(f"store {self.name!r} was scanned before")
        self._scanned = True

    def _mend(self, last: int) -> None:
        """The end of the log is as if nothing had ever been written behind it, heads are whole, and all is durable."""
        segments = self._segments
        if self.cut:
            ring_repair.logger.warning("store %r: %d bytes of a torn tail cut off at position %d of %s", self.name, self.cut,
                                       self.end, self.path)
        capacity = segments.capacity
        for number in [number for number in segments.slot_of if number * capacity >= self.end]:
            at = segments.at(segments.slot_of[number])
            write_zeros(self._fd, at, HEAD_BYTES + min(capacity, max(0, last - number * capacity)))
            segments.free.append(segments.forget(number))
        segments.free.sort()
        segments.former.clear()
        number, offset = divmod(self.end, capacity)
        if offset and last > self.end:
            at = segments.at(segments.slot_of[number]) + HEAD_BYTES + offset
            write_zeros(self._fd, at, min(last - self.end, capacity - offset))
        size = os.fstat(self._fd).st_size
        if size < segments.at(segments.slots):
            write_zeros(self._fd, size, segments.at(segments.slots) - size)
        if segments.damaged:
            ring_repair.logger.warning("store %r: mended in %s: %s", self.name, self.path, "; ".join(segments.damaged))
            segments.mend_heads(self.end)
        if segments.slots < self._slots_min:
            self._grow(self._slots_min - segments.slots)
        sync(self._fd, size_too=True)
        self._resized = False
        self._synced = self._opened = self.end
        segments.write_superblock(self.end)

    # ---- the writing thread

    def write(self, batch: Any) -> None:
        """One write; two or more where the group goes on in the next segment. O(bytes)."""
        self._check_usable()
        view = memoryview(batch).cast("B")
        if batch.position != self.end:
            raise ValueError(f"a group for position {batch.position}; the log of {self.path} goes on at {self.end}")
        try:
            self._segments.append(view, self.end, self._synced, self._ready)
        except OSError as error:
            raise self._failed("a write", error) from error
        self._last, self._groups, self.end = len(view), self._groups + 1, self.end + len(view)

    def _ready(self) -> None:
        """A slot is free."""
        segments = self._segments
        while not segments.free and (segments.released or segments.resting):
            self._sync()        # what they were released upon, then the superblock that says so
        if not segments.free and not self._grow(1):
            raise OSError(errno.ENOSPC, "the disk is full; more was written than there was room for")

    def sync(self) -> None:
        """fdatasync; fsync when the file has grown or shrunk."""
        self._check_usable()
        try:
            self._sync()
        except OSError as error:
            raise self._failed("a sync", error) from error

    def _sync(self) -> None:
        segments = self._segments
        sync(self._fd, size_too=self._resized)
        self._resized = False
        self._syncs += 1
        self._synced = self.end
        segments.superblock_synced()
        self._shrink()
        if segments.released:
            segments.write_superblock(self._synced)

    # ---- any thread

    def fetch(self, queue: int, id: int, position: int) -> tuple[int, memoryview]:
        """See `Backend.fetch`. A message that was just carried forward is still found in its old place until that is written to
        again; then: KeyError. O(bytes of the record, at least 64 KiB)."""
        self._check_open()
        if not 0 <= position < self.end:
            raise KeyError(f"message {id} of queue {queue} at position {position}: the log ends at {self.end}")
        size = min(WINDOW_BYTES, self.end - position)
        data = self._read(position, size)
        state = record_whole(data, position, self.salt)
        if state == "cut" and size >= RECORD_HEAD.size:
            length = RECORD_HEAD.unpack_from(data)[4]
            if size < length <= self.end - position:
                data = self._read(position, length)
                state = record_whole(data, position, self.salt)
        if state != "whole":
            if position < self._segments.begin:
                raise KeyError(f"message {id} of queue {queue} is not at position {position} any more")
            raise StoreCorrupt(f"{self._where(position, state)}: message {id} of queue {queue}; run: xump repair {self.path}")
        _, _, kind, _, length, of_queue, _, of_id = RECORD_HEAD.unpack_from(data)
        if (kind, of_queue, of_id) != (ENTER, queue, id):
            raise KeyError(f"message {id} of queue {queue} is not at position {position}: there is a record of kind {kind}, "
                           f"queue {of_queue}, id {of_id}")
        while length + RECORD_HEAD.size <= len(data):       # whole records only
            following = RECORD_HEAD.unpack_from(data, length)[4]
            if following < RECORD_HEAD.size or length + following > len(data):
                break
            length += following
        return position, data[:length]

    def _read(self, position: int, size: int) -> memoryview:
        try:
            return self._segments.read(position, size)
        except OSError as error:
            raise StoreFailed(error.errno, f"{self.path} cannot be read: {error.strerror}") from error

    def stats(self) -> dict[str, Any]:
        segments = self._segments
        return {
            "path": self.path, "file_bytes": SLOTS_AT + segments.slots * segments.segment_bytes,
            "bytes_max": None if self._slots_max is None else self._slots_max * segments.segment_bytes,
            "segment_bytes": segments.segment_bytes, "segments": segments.slots, "segments_free": len(segments.free),
            "log_bytes": self.end - segments.begin, "live_bytes": self.live_bytes, "groups": self._groups, "syncs": self._syncs,
            "cut": self.cut,
        }

    # ---- the end

    def close(self) -> None:
        """Idempotent. What was synced is written down, so that damage to the last group is no torn tail."""
        if isinstance(self._barred, Closed):
            return
        barred, self._barred = self._barred, Closed(f"store {self.name!r} is closed")
        instances.discard(self)
        if isinstance(barred, ForkedError):
            os.close(self._fd)
            return
        try:
            if self._usable and barred is None and self.durability != "none":
                self._write_down()
        except OSError as error:
            raise StoreFailed(error.errno, f"store {self.name!r} at {self.path}: closing failed: {error.strerror}") from error
        finally:
            ring_lock.give_up(self._fd)

    def _write_down(self) -> None:
        """Both superblocks, one after the other, say up to where the log is synced."""
        if self._synced < self.end:
            self._sync()
        for _ in range(2):
            self._segments.write_superblock(self._synced)
            sync(self._fd, size_too=self._resized)
            self._segments.superblock_synced()

    def _check_open(self) -> None:
        if self._barred is not None and not isinstance(self._barred, StoreFailed):
            raise self._barred

    @classmethod
    def recognises(cls, path: str) -> bool:
        """See `Backend.recognises`: a file that has a superblock, or had one."""
        return ring_repair.recognises(path)

    @classmethod
    def view(cls, path: str) -> RingStore:
        """See `Backend.view`. O(segments); others may look at it at the same time."""
        from .ring_view import RingView

        return RingView(path)

    @classmethod
    def check(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """See `Backend.check`. O(bytes)."""
        return ring_repair.check(path, progress)

    @classmethod
    def repair(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """See `Backend.repair`. A log with damaged records is written anew beside the old one, without them. O(bytes)."""
        return ring_repair.repair(path, progress)

    @classmethod
    def compact(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """See `Backend.compact`. What is live is written anew beside the old file. O(bytes)."""
        return ring_repair.compact(path, progress)


def _usual_segment(max_bytes: int | None) -> int:
    """Of a file with a bound so many that what is kept free, some segments, is a small part of it."""
    if max_bytes is None:
        return SEGMENT_BYTES_USUAL
    return max(SEGMENT_BYTES_MIN, min(SEGMENT_BYTES_USUAL, 1 << max(0, (max_bytes >> 5).bit_length() - 1)))


def _checked(path: object, durability: object, group_ms: object, min_bytes: object, max_bytes: object,
             segment_bytes: object) -> None:
    if not isinstance(path, str) and not (isinstance(path, os.PathLike) and isinstance(os.fspath(path), str)):
        raise TypeError(f"path must be a str or PathLike, got {path!r}")
    if not isinstance(durability, str):
        raise TypeError(f"durability must be a str, got {durability!r}")
    if durability not in DURABILITIES:
        raise ValueError(f"durability={durability!r}; allowed are {', '.join(map(repr, DURABILITIES))}")
    if isinstance(group_ms, bool) or not isinstance(group_ms, (int, float)):
        raise TypeError(f"group_ms must be a float, got {group_ms!r}")
    if not 0 <= group_ms < float("inf"):
        raise ValueError(f"group_ms={group_ms}: milliseconds, at least 0")
    for name, value in (("min_bytes", min_bytes), ("max_bytes", max_bytes), ("segment_bytes", segment_bytes)):
        none = name != "min_bytes"
        if isinstance(value, bool) or not (isinstance(value, int) or (none and value is None)):
            raise TypeError(f"{name} must be an int{' or None' if none else ''}, got {value!r}")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name}={value}: at least 0")
        if isinstance(value, int) and name == "min_bytes" and value > MIN_BYTES_MAX:
            raise ValueError(f"min_bytes={value}: at most {MIN_BYTES_MAX}, which are preallocated")
    if isinstance(segment_bytes, int) and not (
            SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_MAX and segment_bytes & (segment_bytes - 1) == 0):
        raise ValueError(f"segment_bytes={segment_bytes}: a power of two from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}")
    if isinstance(max_bytes, int) and isinstance(min_bytes, int) and max_bytes < min_bytes:
        raise ValueError(f"max_bytes={max_bytes}: less than min_bytes={min_bytes}")


def _after_fork() -> None:
    for store in list(instances):
        store._barred = ForkedError(f"store {store.name!r} belongs to the parent process; open it there only")


os.register_at_fork(after_in_child=_after_fork)
