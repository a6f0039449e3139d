"""The store `ring`: a circular log in one preallocated file, with one write for each group.

Each group goes behind the one before; where the segment is full, it goes on in the lowest free slot of the file
(`ring_segments.py` explains how). The position of a message's record finds it. Nothing looks for settled records: their space
comes back in the order of the log, a segment at a time. The engine takes the oldest groups (`oldest`), writes their live
records once more, at the end of the log, and says when those are durable (`release`). So a live message in the way is copied
forward, and nothing waits for it.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Iterator
from typing import Any

from xump_ext.errors import Conflict, StoreCorrupt, StoreFull, XumpError
from xump_ext.store import DURABILITIES

from . import paths
from .owner import Claim
from .ring_disk import sync, sync_name, write_zeros
from .ring_file import (
    HEAD_BYTES,
    IN_THE_MAKING,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SLOTS_AT,
    SLOTS_MIN,
    claim_file,
    make,
    remove_file,
    remove_remains,
)
from .ring_segments import Segments
from .ring_space import BOUND_SLOTS_MIN, RingSpace
from .ring_view import RingView

SEGMENT_BYTES_USUAL = 4 << 20
MIN_BYTES_MAX = 1 << 44     # more than a file system has in one file

logger = logging.getLogger("xump")


class RingStore(RingSpace):
    """Opens the ring in the file at `path`, or makes it. `scan` it before anything else.

    `durability`, `group_ms`: see `xump_ext.store`. `min_bytes` are preallocated and kept; the file grows up to `max_bytes`
    (None: as far as the disk allows). Both count whole segments, without the 8 KiB before them, and may differ each time.
    `segment_bytes`, a power of two, is for good (None: that of the file; 4 MiB for a new one, or about a 32nd of `max_bytes`).

    Raises TypeError, ValueError, Conflict, StoreLocked, StoreCorrupt, StoreFull, OSError, and has changed nothing then.
    O(segments).
    """

    def __init__(self, name: str, *, path: str | os.PathLike[str], durability: str = "group", group_ms: float = 2.0,
                 min_bytes: int = 16 << 20, max_bytes: int | None = None, segment_bytes: int | None = None) -> None:
        _check_options(durability, group_ms, min_bytes, max_bytes, segment_bytes)
        place = paths.absolute(path)
        with paths.explaining(place):
            claim = _open(place, segment_bytes, min_bytes, max_bytes)
            try:
                real = os.path.realpath(place)
                remove_remains(real)
                sync_name(real)      # a crash may have come between the file's name and this
                segments = Segments.load(claim.fd, place)
                if segment_bytes is not None and segment_bytes != segments.segment_bytes:
                    raise Conflict(f"segment_bytes={segment_bytes}: {place} was made with {segments.segment_bytes}")
                slots_min, slots_max = _slots(min_bytes, max_bytes, segments.segment_bytes)
                _check_disk(place, slots_min - segments.slots, segments.segment_bytes)
            except BaseException:
                claim.release()
                raise
        super().__init__(name, claim, segments, durability, float(group_ms), slots_min=slots_min, slots_max=slots_max)
        self.group_bytes = min(self.group_bytes, segments.capacity >> 2)

    # ---- once, at the beginning

    def scan(self) -> Iterator[tuple[int, memoryview]]:
        """See `Backend.scan`. Yields the log from the first group that may be needed, in the order of writing: a QUEUE or STATE
        that was copied forward stands behind entries of its queue. Reads all bytes once: O(bytes)."""
        self._begin_scan()
        try:
            yield from self._scanned_log()
        except OSError as error:
            if isinstance(error, XumpError):
                raise
            raise self._failed("reading the log", error) from error
        self._usable = True

    def _scanned_log(self) -> Iterator[tuple[int, memoryview]]:
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
            raise self._failed("making the log durable", error) from error

    def _mend(self, last: int) -> None:
        """Leaves the end of the log as if nothing had ever been written behind it, the heads whole, and everything durable."""
        segments = self._segments
        if self.cut:
            logger.warning("store %r: %d bytes of a torn tail cut off at position %d of %s", self.name, self.cut, self.end,
                           self.path)
        self._clear_behind(last)
        size = os.fstat(self._fd).st_size
        if size < segments.at(segments.slots):
            write_zeros(self._fd, size, segments.at(segments.slots) - size)
        if segments.damaged:
            logger.warning("store %r: mended in %s: %s", self.name, self.path, "; ".join(segments.damaged))
            segments.mend_heads(self.end)
        if segments.slots < self._slots_min:
            self._grow(self._slots_min - segments.slots)
        sync(self._fd, size_too=True)
        self._resized = False
        self._synced = self._opened = self.end
        segments.write_superblock(self.end)

    def _clear_behind(self, last: int) -> None:
        """Writes zeros over the log from its end to the position where its last remains end."""
        segments, capacity = self._segments, self._segments.capacity
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

    # ---- the writing thread

    def write(self, batch: Any) -> None:
        """See `Backend.write`. One write; two or more for a group that goes on in the next segment. O(bytes)."""
        self._check_usable()
        view = memoryview(batch).cast("B")
        if batch.position != self.end:
            raise ValueError(f"a group for position {batch.position}; the log of {self.path} goes on at {self.end}")
        try:
            if self.durability in ("sync", "group"):
                self._claim.assure(self.path)
            self._segments.append(view, self.end, self._synced, self._ready)
        except OSError as error:
            raise self._failed("a write", error) from error
        self._last, self._groups, self.end = len(view), self._groups + 1, self.end + len(view)

    def _ready(self) -> None:
        """Sees to a free slot."""
        segments = self._segments
        while not segments.free and (segments.released or segments.resting):
            self._sync()        # first what the release rests on, then the superblock that says so
        if not segments.free and not self._grow(1):
            raise OSError(errno.ENOSPC, "the disk is full; more was written than there was room for")

    def sync(self) -> None:
        """See `Backend.sync`. One fdatasync; fsync when the file has grown or shrunk."""
        self._check_usable()
        try:
            self._sync()
        except OSError as error:
            raise self._failed("a sync", error) from error

    def _sync(self) -> None:
        segments = self._segments
        sync(self._fd, size_too=self._resized)
        self._claim.assure(self.path)
        self._resized = False
        self._syncs += 1
        self._synced = self.end
        segments.superblock_synced()
        self._shrink()
        if segments.released:
            segments.write_superblock(self._synced)

    def _write_down(self) -> None:
        """Says in both superblocks, one after the other, up to where the log is synced: so damage to the last group is no torn
        tail."""
        if self.durability == "none":
            return
        if self._synced < self.end:
            self._sync()
        for _ in range(2):
            self._segments.write_superblock(self._synced)
            sync(self._fd, size_too=self._resized)
            self._segments.superblock_synced()

    # ---- looked at

    @classmethod
    def view(cls, path: str) -> RingView:
        """See `Backend.view`. Others may look at the same time. O(segments)."""
        return RingView(path)


# ---- a ring is opened or made

def _open(path: str, segment_bytes: int | None, min_bytes: int, max_bytes: int | None) -> Claim:
    while True:
        try:
            return claim_file(path)
        except OSError as error:
            paths.check(path)
            if paths.is_denied(error):
                raise paths.denied(error, path) from error
            if not isinstance(error, FileNotFoundError):
                raise
        made = _make(path, _usual_segment(max_bytes) if segment_bytes is None else segment_bytes, min_bytes, max_bytes)
        if made is not None:
            return made


def _make(path: str, segment_bytes: int, min_bytes: int, max_bytes: int | None) -> Claim | None:
    """Makes the ring under another name first, so that a crash leaves no half store. None: another process made one meanwhile.

    That process owns the store now."""
    slots, _ = _slots(min_bytes, max_bytes, segment_bytes)
    _check_disk(path, slots, segment_bytes)
    temporary = f"{path}{IN_THE_MAKING}{secrets.token_hex(4)}"
    try:
        claim = make(temporary, segment_bytes, slots, secrets.randbits(32))
    except OSError as error:
        if paths.is_denied(error):
            raise paths.denied(error, path) from error
        if error.errno not in paths.NO_SPACE:
            raise
        raise StoreFull(error.errno, f"{path} cannot be made: {error.strerror}; it takes "
                        f"{slots * segment_bytes + SLOTS_AT} bytes (min_bytes=); make room there, and open it again") from error
    try:
        _give_name(temporary, path)
    except BaseException as error:
        for name in (temporary, path):
            remove_file(name, os.fstat(claim.fd))
        claim.release()
        if isinstance(error, FileExistsError | FileNotFoundError):
            return None
        raise
    return claim


def _give_name(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)        # never over a file that is there
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS) or os.path.lexists(path):
            raise
        os.rename(temporary, path)      # a file system without links
    else:
        os.unlink(temporary)
    sync_name(path)


def _slots(min_bytes: int, max_bytes: int | None, segment_bytes: int) -> tuple[int, int | None]:
    """The fewest and the most slots of the file."""
    least = max(SLOTS_MIN, min_bytes // segment_bytes)
    if max_bytes is None:
        return least, None
    if max_bytes // segment_bytes < BOUND_SLOTS_MIN:
        raise ValueError(f"max_bytes={max_bytes}: at least {BOUND_SLOTS_MIN} segments of {segment_bytes} bytes, which is "
                         f"{BOUND_SLOTS_MIN * segment_bytes}; or make the store with smaller ones (segment_bytes=)")
    return least, max_bytes // segment_bytes


def _check_disk(path: str, slots: int, segment_bytes: int) -> None:
    """Raises StoreFull before anything is written: writing zeros until the disk is full would take it from all others for a
    while."""
    disk = os.statvfs(os.path.dirname(path))
    free = disk.f_bavail * disk.f_frsize
    if slots * segment_bytes > free:
        raise StoreFull(errno.ENOSPC, f"{path} would take {slots * segment_bytes} bytes more (min_bytes=), and its disk has "
                        f"{free} free; nothing was changed")


def _usual_segment(max_bytes: int | None) -> int:
    """Makes segments of a bounded file so small that the few segments that stay free are a small part of it."""
    if max_bytes is None:
        return SEGMENT_BYTES_USUAL
    return max(SEGMENT_BYTES_MIN, min(SEGMENT_BYTES_USUAL, 1 << max(0, (max_bytes >> 5).bit_length() - 1)))


def _check_options(durability: object, group_ms: object, min_bytes: object, max_bytes: object, segment_bytes: object) -> None:
    if not isinstance(durability, str):
        raise TypeError(f"durability={durability!r}; allowed is a str: {', '.join(map(repr, DURABILITIES))}")
    if durability not in DURABILITIES:
        raise ValueError(f"durability={durability!r}; allowed are {', '.join(map(repr, DURABILITIES))}")
    if isinstance(group_ms, bool) or not isinstance(group_ms, (int, float)):
        raise TypeError(f"group_ms must be a float, got {group_ms!r}")
    if not 0 <= group_ms <= 60_000:
        raise ValueError(f"group_ms={group_ms!r}; allowed are 0 to 60000 milliseconds")
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
