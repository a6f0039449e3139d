"""The store `ring`: one preallocated file, the log written round it, a write for each group.

A group is written behind the one before; where the segment is full it goes on in the lowest free slot of the file (`ring_segments.py`
draws it). A message's record is found by its position. What is settled is not looked for: space comes back in the order of the log,
a segment at a time. The engine is given the oldest groups (`oldest`), writes what of them is live once more, and says when that is
durable (`release`): a live message in the way is carried forward, not waited for.

When the log is cleaned
-----------------------
Room is wanted when less is left than the next few groups need. The file then grows, if it may and less than half of the log is dead;
else the log is cleaned: what is carried is then at most as much as what is gained. A file that may not grow is cleaned as soon as a
sixteenth of it, and half a segment, is dead: 16 bytes carried for one that is gained, at worst, when the store is full. For this the
store has to know how many bytes are live: the engine sets `live_bytes`. It shrinks when it is more than twice as large as it
would have to be for twice its log: then it must double again to grow, and halve again to shrink.

What is kept free
-----------------
C: bytes of a segment; L: of the largest group in the log, at least C/8; A: of all slots. `room` keeps 2C + 2L + A/8:

    C + L    is carried at most before a slot gets free: a segment, and the group that goes on in the next
    C/2 + L  may be dead before cleaning begins, and the beginning of the oldest segment that belongs to a group before it
    C/2      is settled in between: a group that settles is at most half a segment; the engine divides larger ones
    A/8      of which A/16 may be dead before cleaning begins, so that this costs at most 16 times what it gains

Of N slots that makes room for one group of (7N/8 - 2) C/3, when one segment is in use. That N is at least 6 where the file has a
bound sees to it that there is room again behind such a group: (7N/8 - 3) C is more than twice of it.

Settling makes no live bytes, and as long as something is dead a lap gains it: so it never ends. A group of g bytes may become the
largest, so it needs g + 2g beside the rest; what is carried is at most C/8, or one group, unless the engine joins it with more.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from xump_ext.errors import Closed, Conflict, ForkedError, StoreCorrupt, StoreFailed, StoreFull
from xump_ext.records import record_whole, whole_groups
from xump_ext.store import DURABILITIES, Backend, Report

from . import ring_lock, ring_repair
from .ring_disk import set_size, sync, sync_name, write_zeros
from .ring_segments import (
    HEAD_BYTES,
    RECORD_HEAD,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SLOTS_AT,
    SLOTS_MIN,
    U64,
    Segments,
    make,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

WINDOW_BYTES = 64 << 10     # what `fetch` reads: a few hundred small messages, which will be asked for next
BOUND_SLOTS_MIN = 6
GROWTH_BYTES_MAX = 64 << 20     # at once: a write must not wait long for it
ENTER = 5
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_instances: weakref.WeakSet[RingStore] = weakref.WeakSet()


class RingStore(Backend):
    """A ring in the file at `path`, made if it is not there; `scan` it before anything else.

    `durability`, `group_ms`: see `xump_ext.store`. `min_bytes` are preallocated and kept; the file grows up to `max_bytes` (None: as
    the disk has), both counted in whole segments, the 8 KiB before them apart, and may differ each time. `segment_bytes`, a power of
    two (4 MiB), is for good (None: what the file has). TypeError, ValueError, Conflict, StoreLocked, StoreCorrupt, StoreFull,
    OSError: nothing was changed. O(segments).
    """

    type = "ring"
    durable = True

    def __init__(self, name: str, *, path: str | os.PathLike[str], durability: str = "group", group_ms: float = 2.0,
                 min_bytes: int = 16 << 20, max_bytes: int | None = None, segment_bytes: int | None = None) -> None:
        _checked(path, durability, group_ms, min_bytes, max_bytes, segment_bytes)
        self.name = name
        self.path = os.path.abspath(os.fspath(path))
        self.durability = durability
        self.group_ms = float(group_ms)
        self.live_bytes = 0
        """Bytes of the records that are live: the engine sets it before it calls `oldest`."""
        self.cut = 0
        self._lock = threading.Lock()       # slots and the file's size: `room` may make it grow while something is written
        self._barred: Exception | None = None
        self._fd = self._open(segment_bytes, min_bytes, max_bytes)
        self._scanned = self._usable = False
        try:
            self._segments = segments = Segments.load(self._fd, self.path)
            if segment_bytes is not None and segment_bytes != segments.segment_bytes:
                raise Conflict(f"segment_bytes={segment_bytes}: {self.path} was made with {segments.segment_bytes}, and keeps them")
            self._bound(min_bytes, max_bytes, segments.segment_bytes)
        except BaseException:
            ring_lock.give_up(self._fd)
            raise
        self.salt = segments.salt
        self.end = self._given = segments.begin
        self._synced = segments.synced
        self._opened = 0
        self._resized = False
        self._last = self._asked = self._groups = self._syncs = 0
        self._tidied = 0                        # bytes given by `oldest`
        self._lap = -1                          # where the log ended when cleaning began
        self._doubtful = 0                      # fewer dead bytes than that are no reason to clean again
        self._no_growth = 0                     # until the log ends there
        _instances.add(self)

    def _bound(self, min_bytes: int, max_bytes: int | None, segment_bytes: int) -> None:
        self._slots_min = max(SLOTS_MIN, min_bytes // segment_bytes)
        self._slots_max = None if max_bytes is None else max_bytes // segment_bytes
        if self._slots_max is not None and self._slots_max < BOUND_SLOTS_MIN:
            raise ValueError(f"max_bytes={max_bytes}: at least {BOUND_SLOTS_MIN} segments of {segment_bytes} bytes, which is "
                             f"{BOUND_SLOTS_MIN * segment_bytes}; or make the store with smaller ones (segment_bytes=)")

    def _open(self, segment_bytes: int | None, min_bytes: int, max_bytes: int | None) -> int:
        while True:
            try:
                return ring_lock.claim(self.path)
            except FileNotFoundError:
                if os.path.islink(self.path) or not os.path.isdir(os.path.dirname(self.path)):
                    raise
            made = self._make(4 << 20 if segment_bytes is None else segment_bytes, min_bytes, max_bytes)
            if made is not None:
                return made

    def _make(self, segment_bytes: int, min_bytes: int, max_bytes: int | None) -> int | None:
        """Under another name first: a crash leaves no half store. None: somebody else made one meanwhile."""
        self._bound(min_bytes, max_bytes, segment_bytes)
        temporary = f"{self.path}.new-{secrets.token_hex(4)}"
        try:
            fd = make(temporary, segment_bytes, self._slots_min, secrets.randbits(32))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise StoreFull(error.errno, f"{self.path} cannot be made: {error.strerror}; it takes "
                            f"{self._slots_min * segment_bytes + SLOTS_AT} bytes (min_bytes=)") from error
        try:
            os.link(temporary, self.path)
            os.unlink(temporary)
            sync_name(self.path)
        except BaseException as error:
            ring_lock.give_up(fd)
            if os.path.lexists(temporary):
                os.unlink(temporary)
            if isinstance(error, FileExistsError):
                return None
            raise
        return fd

    # ---- once, at the beginning

    def scan(self) -> Iterator[tuple[int, memoryview]]:
        """The log from its first group that may be needed: see `Backend.scan`. In the order in which it was written: a QUEUE or STATE
        that was carried forward stands behind entries of its queue. O(bytes), and they are read once."""
        self._check_open()
        if self._scanned:
            raise RuntimeError(f"store {self.name!r} was scanned before")
        self._scanned = True
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

    def _where(self, failed: int, state: str) -> str:
        segments = self._segments
        if state == "cut":      # it goes on where no segment is
            failed, number = segments.reach(failed), segments.reach(failed) // segments.capacity
        else:
            number = failed // segments.capacity
        if number not in segments.slot_of:
            return f"{self.path} is damaged at position {failed}: segment {number} of the log is missing"
        at = segments.at(segments.slot_of[number]) + HEAD_BYTES + failed % segments.capacity
        what = "a record with a damaged payload" if state == "payload" else "no record, or one with a damaged head"
        return f"{self.path} is damaged at position {failed}: {what}, in segment {number}, byte {at} of the file"

    def _mend(self, last: int) -> None:
        """The end of the log is as if nothing had ever been written behind it, heads are whole, and all is durable."""
        segments = self._segments
        if self.cut:
            ring_repair.logger.warning("store %r: %d bytes of a torn tail cut off at position %d of %s", self.name, self.cut, self.end,
                                       self.path)
        capacity = segments.capacity
        for number in [number for number in segments.slot_of if number * capacity >= self.end]:
            at = segments.at(segments.slot_of[number])
            write_zeros(self._fd, at, HEAD_BYTES + min(capacity, max(0, last - number * capacity)))
            segments.free.append(segments.forget(number))
        segments.free.sort()
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
        with self._lock:
            if not segments.free and not self._grow(1):
                raise OSError(errno.ENOSPC, "more was written than there was room for")

    def sync(self) -> None:
        """fdatasync; fsync when the file has grown or shrunk."""
        self._check_usable()
        try:
            self._sync()
        except OSError as error:
            raise self._failed("a sync", error) from error

    def _sync(self) -> None:
        segments = self._segments
        with self._lock:
            resized, self._resized = self._resized, False
        sync(self._fd, size_too=resized)
        self._syncs += 1
        self._synced = self.end
        with self._lock:
            segments.superblock_synced()
            self._shrink()
        if segments.released:
            segments.write_superblock(self._synced)

    # ---- space

    def room(self, wanted: int = 0) -> int:
        """Bytes. Where they are fewer than `wanted` the file grows, if that makes them enough; else `oldest` gives what can be cleaned.
        O(1), or the bytes that it grows."""
        self._check_usable()
        found = self._room()
        if found >= wanted:
            return found
        with self._lock:
            more = 0
            while self._room(more) < wanted and self._may_grow(more + 1):
                more += 1
            try:
                if more and self._room(more) >= wanted:
                    self._grow(more)
            except OSError as error:
                raise self._failed("making room", error) from error
            found = self._room()
            if found < wanted:
                self._asked = wanted
            return found

    def _room(self, more: int = 0, given: int = 0) -> int:
        """Of groups, with so many slots more, and so many bytes of the log free."""
        segments, capacity = self._segments, self._segments.capacity
        spare = (len(segments.free) + len(segments.resting) + len(segments.released) + more - 2) * capacity + -self.end % capacity + given
        spare -= (segments.slots + more) * capacity >> 3
        largest = max(capacity >> 3, *segments.largest.copy().values(), 0)
        # A group of g bytes that is the largest from now on: g + 2 g <= spare; one that is not: g + 2 largest <= spare.
        return max(0, min(spare // 3, spare - 2 * largest)) & ~7

    def _may_grow(self, count: int) -> bool:
        """By so many slots, one more on the disk left for others."""
        segments = self._segments
        if self._slots_max is not None and segments.slots + count > self._slots_max:
            return False
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize >= (count + 1) * segments.segment_bytes

    def _grow(self, count: int) -> bool:
        """Whether there was space on the disk. The caller has the lock."""
        segments = self._segments
        self._resized = True
        try:
            segments.grow(count)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            set_size(self._fd, segments.at(segments.slots))
            self._no_growth = self.end + (segments.slots * segments.capacity >> 2)
            ring_repair.logger.warning("store %r: %s cannot grow: %s", self.name, self.path, error.strerror)
            return False
        return True

    def oldest(self) -> tuple[int, int, memoryview] | None:
        """Whole groups, at most an eighth of a segment or one group; each is given once. While it gives none the file may grow.
        O(bytes given)."""
        self._check_usable()
        segments, capacity = self._segments, self._segments.capacity
        begin = self._given = max(self._given, segments.begin)
        wanted = self._room(given=begin - segments.begin) < max(capacity >> 4, min(2 * self._last, capacity), self._asked)
        if not wanted:
            self._asked = 0
            if not self._idle(self.end - begin):
                self._lap, self._doubtful = -1, 0
                return None
        try:
            growing = wanted and self.end >= self._no_growth and self._may_grow(1)
            if begin // capacity == self.end // capacity or not self._worth(self.end - begin, wanted, growing):
                if growing:
                    self._grow_ahead()
                return None
            data = self._oldest_groups(begin)
        except StoreCorrupt:
            raise
        except OSError as error:
            raise self._failed("making room", error) from error
        if self._lap < 0:
            self._lap = self.end
        self._given = begin + len(data)
        self._tidied += len(data)
        return begin, self._given, data

    def _idle(self, log: int) -> bool:
        """Whether so many bytes of log are cleaned though nobody needs the room: most of it is dead, it is more than the half of what
        the file keeps in any case, and not more was cleaned than four times what was written."""
        return (4 * self.live_bytes <= log and 2 * log > self._slots_min * self._segments.capacity
                and self._tidied < 4 * (self.end - self._opened))

    def _worth(self, log: int, wanted: bool, growing: bool) -> bool:
        """Whether so many bytes of log are cleaned, rather than that the file grows, or StoreFull is raised, or nothing happens."""
        segments, dead = self._segments, log - self.live_bytes
        some = (segments.capacity >> 1) + (segments.slots * segments.capacity >> 4)
        if 0 <= self._lap <= self._given:
            # A whole lap did not bring the room: so much is not dead as `live_bytes` says, or died meanwhile. Not again at once.
            self._lap, self._doubtful, self._asked = -1, dead + some // 2, 0
            if growing:
                return False
        if dead < self._doubtful:
            return False
        return not wanted or 2 * dead >= log or (not growing and dead >= some)

    def _oldest_groups(self, begin: int) -> memoryview:
        segments, capacity = self._segments, self._segments.capacity
        data = segments.read(begin, min(capacity >> 3, self.end - begin))
        used, _, state, failed = whole_groups(data, begin, self.salt)
        if used == 0 and state == "cut":
            data = segments.read(begin, min(U64.unpack_from(data, 40)[0], self.end - begin))
            used, _, state, failed = whole_groups(data, begin, self.salt)
        if used == 0:
            raise StoreCorrupt(f"{self._where(begin if failed is None else failed, state)}; run: xump repair {self.path}")
        # Not what begins in the segment that is being filled: nothing is gained there.
        return data[: segments.first_group(data[:used], begin, self.end // capacity * capacity) - begin]

    def _grow_ahead(self) -> None:
        """By a quarter, so that growing costs little for each byte written."""
        segments = self._segments
        count = max(1, min(segments.slots >> 2, GROWTH_BYTES_MAX // segments.segment_bytes))
        with self._lock:
            self._grow(count if self._may_grow(count) else 1)

    def release(self, position: int) -> None:
        """Frees what lies before the group that begins at that position, or before it: O(segments freed), a small write for each."""
        self._check_usable()
        segments = self._segments
        if not 0 <= position <= self.end:
            raise ValueError(f"release({position}): the log of {self.path} has the positions {segments.begin} to {self.end}")
        number = position // segments.capacity
        known = [first for first in (segments.first.get(number), segments.first.get(number - 1)) if first is not None]
        begin = max((at for at in (*known, self._given, self.end) if at <= position), default=0)
        if begin <= segments.begin:
            return
        old, segments.begin = segments.begin // segments.capacity, begin
        try:
            self._free(range(old, begin // segments.capacity))
        except OSError as error:
            raise self._failed("giving space back", error) from error

    def _free(self, numbers: range) -> None:
        segments = self._segments
        with self._lock:
            segments.released += [segments.forget(number) for number in numbers]
        if numbers and self.durability == "none":
            segments.write_superblock(self._synced)
            with self._lock:
                segments.superblock_synced()
                self._shrink()

    def _shrink(self) -> None:
        segments = self._segments
        used = segments.slots - len(segments.free)
        keep = max(self._slots_min, 2 * used + SLOTS_MIN)
        if segments.slots < 2 * keep and (self._slots_max is None or segments.slots <= self._slots_max):
            return
        free, slots = set(segments.free), segments.slots
        while slots > keep and slots - 1 in free:
            slots -= 1
        if slots < segments.slots:
            set_size(self._fd, segments.at(slots))
            segments.free = sorted(slot for slot in free if slot < slots)
            segments.slots = slots
            self._resized = True

    # ---- any thread

    def fetch(self, queue: int, id: int, position: int) -> tuple[int, memoryview]:
        """See `Backend.fetch`. KeyError: that position is not in the log any more, or not yet; the message was carried forward
        meanwhile. O(bytes of the record, at least 64 KiB)."""
        self._check_open()
        segments = self._segments
        if not segments.begin <= position < self.end:
            raise KeyError(f"message {id} of queue {queue} at position {position}: the log has {segments.begin} to {self.end}")
        size = min(WINDOW_BYTES, self.end - position)
        data = self._read(position, size)
        state = record_whole(data, position, self.salt)
        if state == "cut" and size >= RECORD_HEAD.size:
            length = RECORD_HEAD.unpack_from(data)[4]
            if size < length <= self.end - position:
                data = self._read(position, length)
                state = record_whole(data, position, self.salt)
        if position < segments.begin:       # its slot may have been written to
            raise KeyError(f"message {id} of queue {queue} is not at position {position} any more")
        if state != "whole":
            raise StoreCorrupt(f"{self._where(position, state)}: message {id} of queue {queue}; run: xump repair {self.path}")
        _, _, kind, _, _, of_queue, _, of_id = RECORD_HEAD.unpack_from(data)
        if (kind, of_queue, of_id) != (ENTER, queue, id):
            raise StoreCorrupt(f"message {id} of queue {queue} is not at position {position} of {self.path}: there is a record of kind "
                               f"{kind}, queue {of_queue}, id {of_id}")
        return position, data

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
        _instances.discard(self)
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

    def _check_usable(self) -> None:
        if self._barred is not None:
            raise self._barred
        if not self._usable:
            raise RuntimeError(f"store {self.name!r} must be scanned to its end before it is used")

    def _failed(self, what: str, error: OSError) -> StoreFailed:
        self._barred = StoreFailed(error.errno, f"store {self.name!r} at {self.path}: {what} failed: {error.strerror}; nothing more is "
                                   "written; open it anew to go on")
        self._barred.__cause__ = error
        return self._barred

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


def _checked(path: object, durability: object, group_ms: object, min_bytes: object, max_bytes: object, segment_bytes: object) -> None:
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
    for name, value, none in (("min_bytes", min_bytes, False), ("max_bytes", max_bytes, True), ("segment_bytes", segment_bytes, True)):
        if isinstance(value, bool) or not (isinstance(value, int) or (none and value is None)):
            raise TypeError(f"{name} must be an int{' or None' if none else ''}, got {value!r}")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name}={value}: at least 0")
    if isinstance(segment_bytes, int) and not (
            SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_MAX and segment_bytes & (segment_bytes - 1) == 0):
        raise ValueError(f"segment_bytes={segment_bytes}: a power of two from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}")
    if isinstance(max_bytes, int) and isinstance(min_bytes, int) and max_bytes < min_bytes:
        raise ValueError(f"max_bytes={max_bytes}: less than min_bytes={min_bytes}")


def _after_fork() -> None:
    for store in list(_instances):
        store._barred = ForkedError(f"store {store.name!r} belongs to the parent process; open it there only")


os.register_at_fork(after_in_child=_after_fork)
