"""The space of a ring: how much is left, when its log is cleaned, when its file grows and shrinks.

When the log is cleaned
-----------------------
Room is wanted when less is left than the next few groups need. The file then grows, if it may and less than half of the log is
dead; else the log is cleaned: what is carried is then at most as much as what is gained. A file that may not grow is cleaned as
soon as a sixteenth of it, and half a segment, is dead: 16 bytes carried for one that is gained, at worst, when the store is full.
For this the store has to know how many bytes are live: the engine sets `live_bytes`. A log of which three quarters are dead is
cleaned without need, as it goes on: the file shrinks behind a backlog that was worked off, and is opened faster.

The file shrinks when it is more than twice as large as it would have to be for twice its log: then that must double before it
grows again, and halve before it shrinks again.

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
import threading

from xump_ext.errors import StoreCorrupt, StoreFailed
from xump_ext.records import whole_groups
from xump_ext.store import Backend

from . import ring_repair
from .ring_disk import set_size
from .ring_segments import HEAD_BYTES, SLOTS_MIN, U64, Segments

BOUND_SLOTS_MIN = 6              # where there is a `max_bytes`
GROWTH_BYTES_MAX = 16 << 20     # at once: the next sync waits for it
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RingSpace(Backend):
    """The half of a ring store that knows what is free."""

    path: str
    live_bytes: int
    """Bytes of the records that are live: the engine sets it before it calls `oldest`."""
    _segments: Segments
    _fd: int
    _slots_min: int
    _slots_max: int | None
    _usable: bool
    _barred: Exception | None
    _synced: int

    def _prepare_space(self) -> None:
        self.live_bytes = 0
        self.end = self._given = self._segments.begin
        self._lock = threading.Lock()       # slots and the file's size: `room` may make it grow while something is written
        self._resized = False               # and not synced since
        self._last = self._asked = 0        # bytes: of the last group; that `room` was asked for in vain
        self._tidied = self._opened = 0     # bytes given by `oldest`; where the log ended when it was opened
        self._lap = -1                      # where the log ended when cleaning began
        self._doubtful = 0                  # fewer dead bytes than that are no reason to clean again
        self._no_growth = 0                 # until the log ends there: the disk is full

    def room(self, wanted: int = 0) -> int:
        """Bytes. Where they are fewer than `wanted` the file grows, if that makes them enough; else `oldest` gives what can be
        cleaned. O(1), or the bytes that it grows."""
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
        slots = segments.slots - len(segments.slot_of) + more
        spare = (slots - 2) * capacity + -self.end % capacity + given
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
        """Whether so many bytes of log are cleaned though nobody needs the room: most of it is dead, it is more than the half
        of what the file keeps in any case, and not more was cleaned than four times what was written."""
        return (4 * self.live_bytes <= log and 2 * log > self._slots_min * self._segments.capacity
                and self._tidied < 4 * (self.end - self._opened))

    def _worth(self, log: int, wanted: bool, growing: bool) -> bool:
        """Whether so many bytes of log are cleaned, rather than that the file grows, or StoreFull is raised, or nothing
        happens."""
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
        """Frees what lies before the group that begins at that position, or before it: O(segments freed), a small write for
        each."""
        self._check_usable()
        segments = self._segments
        if not 0 <= position <= self.end:
            raise ValueError(f"release({position}): the log of {self.path} has positions {segments.begin} to {self.end}")
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
                segments.rested()
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

    def _check_usable(self) -> None:
        if self._barred is not None:
            raise self._barred
        if not self._usable:
            raise RuntimeError(f"store {self.name!r} must be scanned to its end before it is used")

    def _failed(self, what: str, error: OSError) -> StoreFailed:
        self._barred = StoreFailed(error.errno, f"store {self.name!r} at {self.path}: {what} failed: {error.strerror}; nothing "
                                   "more is written; open it anew to go on")
        self._barred.__cause__ = error
        return self._barred
