"""The space of a ring: how much is left, when its log is cleaned, when its file grows and shrinks.

When the log is cleaned
-----------------------
Room is wanted when less is left than the next few groups need. The file then grows, if it may and less than half of the log is
dead; else the log is cleaned: what is carried is then at most as much as what is gained. A file that may not grow is cleaned as
soon as a sixteenth of it, and half a segment, is dead: 16 bytes carried for one that is gained, at worst, when the store is full.
For this the store has to know how many bytes are live: the engine sets `live_bytes`. That may be too few; `carried_bytes` tells.

A log of which three quarters are dead is cleaned without need, as it goes on: the file shrinks behind a backlog that was worked
off, and is opened faster. When it cannot double any more, half is enough: room that could be had is not refused.

The file shrinks when it is more than twice as large as it would have to be for twice its log: then that must double before it
grows again, and halve before it shrinks again.

What is kept free
-----------------
C: bytes of a segment; L: of the largest group in the log, at least C/8; A: of all slots. `room` keeps 2C + 2L + A/8:

    C + L    is carried at most before a slot gets free: a segment, and the group that goes on in the next
    C/2 + L  may be dead before cleaning begins, and the beginning of the oldest segment that belongs to a group before it
    C/2      is settled in between: a group that settles is at most half a segment: ids that follow each other are one record
    A/8      of which A/16 may be dead before cleaning begins, so that this costs at most 16 times what it gains

Of N slots, all empty, that makes room for one group of (7N/8 - 2) C/3. Where nothing is live, one segment is in use, and there
may have been a group of up to C in it, which is L: so there is always room for (7N/8 - 5) C. That is C/4 where N is 6, the
fewest that a file with a bound may have.

Settling makes no live bytes, and as long as something is dead a lap gains it: so it never ends. A group of g bytes may become the
largest, so it needs g + 2g beside the rest; what is given to be carried is at most C/8, or one record.

What the file may grow by is room, too, half of the disk's free space left aside: it grows ahead of what is written as a rule,
but for a large group only when that is written.
"""

from __future__ import annotations

import errno
import os

from xump_ext.errors import StoreCorrupt, StoreFailed
from xump_ext.records import whole_groups
from xump_ext.store import Backend

from . import ring_repair
from .ring_disk import set_size
from .ring_segments import HEAD_BYTES, RECORD_HEAD, SLOTS_MIN, U64, Segments

BOUND_SLOTS_MIN = 6              # where there is a `max_bytes`
GROWTH_BYTES_MAX = 16 << 20     # at once: the next sync waits for it
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RingSpace(Backend):
    """The half of a ring store that knows what is free."""

    path: str
    live_bytes: int | None
    """Bytes of the records that are live: the engine sets it before it calls `oldest`. None: it does not say."""
    _segments: Segments
    _fd: int
    _slots_min: int
    _slots_max: int | None
    _usable: bool
    _barred: Exception | None
    _synced: int

    def _prepare_space(self) -> None:
        self.live_bytes = None
        self.end = self._given = self._segments.begin
        self._wanted = 0
        self._resized = False               # and not synced since
        self._last = 0                      # bytes of the last group
        self._boundary = self._given        # where the last group that was wholly given ends
        self._group: tuple[memoryview, int] | None = None       # what is being given in pieces, and its position
        self._tidied = self._opened = 0     # bytes given by `oldest`; where the log ended when it was opened
        self._lap = -1                      # where the log ended when cleaning began …
        self._lap_live = 0                  # … how much of it was live, as the engine says …
        self._lap_carried = 0               # … and how much had been carried before
        self._doubtful = 0                  # fewer dead bytes than that are no reason to clean again
        self._left = self._look_at = 0      # slots that the disk has, and where the log ends when it is asked again
        self._no_growth = 0                 # until the log ends there: the disk is full

    @property
    def wanted_bytes(self) -> int:
        return self._wanted

    @wanted_bytes.setter
    def wanted_bytes(self, wanted: int) -> None:
        """A call that lacks room is worth a lap, whatever the laps before have brought."""
        self._wanted = wanted
        if wanted:
            self._lap, self._doubtful = -1, 0

    @property
    def kept_bytes(self) -> int:    # type: ignore[override]
        """What is said of twice what may be dead before cleaning begins, and the segment where the log begins: when messages have
        used up three quarters of it by moving on, what they leave behind is cleaned."""
        segments = self._segments
        return self._said(2 * segments.capacity + (segments.slots * segments.capacity >> 3))

    def room(self) -> int:
        """Bytes, with what the file may still grow by. O(1), one call of the system."""
        if self._barred is not None:
            raise self._barred
        return self._room(self._growable())

    def _room(self, more: int = 0, given: int = 0) -> int:
        """Of groups, with so many slots more, and so many bytes of the log free."""
        segments, capacity = self._segments, self._segments.capacity
        slots = segments.slots - len(segments.slot_of) + more
        if self._slots_max is not None:     # it was allowed more before: that does not count
            slots -= max(0, segments.slots - self._slots_max)
        spare = (slots - 2) * capacity + -self.end % capacity + given
        spare -= (segments.slots + more) * capacity >> 3
        return self._said(spare)

    def _said(self, spare: int) -> int:
        """How large a group may be, with so much to spare."""
        largest = max(self._segments.capacity >> 3, *self._segments.largest.copy().values(), 0)
        # A group of g bytes that is the largest from now on: g + 2 g <= spare; one that is not: g + 2 largest <= spare.
        return max(0, min(spare // 3, spare - 2 * largest)) & ~7

    def _growable(self) -> int:
        """Slots that the file may get: half of what the disk has is left to others, who may take it before it is needed here. The
        disk is asked now and then."""
        segments = self._segments
        if self.end < self._no_growth:
            return 0
        if self.end >= self._look_at:
            disk = os.statvfs(self.path)
            self._left = (disk.f_bavail * disk.f_frsize >> 1) // segments.segment_bytes
            self._look_at = self.end + (segments.capacity >> 2)
        count = self._left
        return count if self._slots_max is None else max(0, min(count, self._slots_max - segments.slots))

    def _grow(self, count: int) -> bool:
        """Whether there was space on the disk."""
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
        """Whole records, at most an eighth of a segment or one record; each is given once. While it gives none the file may grow.
        O(bytes given)."""
        self._check_usable()
        segments, capacity = self._segments, self._segments.capacity
        if self._given < segments.begin:
            self._given, self._group = segments.begin, None
        begin = self._given
        least = max(capacity >> 4, min(2 * self._last, capacity)) + (0 if self._growable() else self.kept_bytes)
        wanted = self._room(given=begin - segments.begin) < least or (
            self._wanted > 0 and self._room(self._growable()) < self._wanted)
        start = begin if self._group is None else self._group[1]
        done = start // capacity == self.end // capacity    # nothing is gained in the segment that is being filled
        if done or not (wanted or self._idle(self.end - begin)):
            self._lap, self._doubtful = -1, 0
            if not wanted:
                return None
        try:
            growing = self._growable() if wanted else 0
            if done or not self._worth(self.end - begin, wanted, growing > 0):
                if growing:
                    self._grow_ahead(growing)
                return None
            if self._group is None:
                self._group = self._oldest_groups(begin), begin
        except StoreCorrupt:
            raise
        except OSError as error:
            raise self._failed("making room", error) from error
        if self._lap < 0:
            self._lap, self._lap_carried = self.end, self.carried_bytes
            self._lap_live = self.end - begin - self._dead(self.end - begin)
        data = self._next_records(*self._group)
        self._tidied += len(data)
        return begin, self._given, data

    def _idle(self, log: int) -> bool:
        """Whether so many bytes of log are cleaned though little room is enough at the moment: because most of it is dead, and
        not more was cleaned than four times what was written; or because half of it is, and the file cannot double any more."""
        segments = self._segments
        if self.live_bytes is None:
            return False
        if self._growable() < segments.slots:
            return 2 * self.live_bytes <= log
        return (4 * self.live_bytes <= log and self.end - segments.begin > segments.capacity
                and self._tidied < 4 * (self.end - self._opened))

    def _worth(self, log: int, wanted: bool, growing: bool) -> bool:
        """Whether so many bytes of log are cleaned, rather than that the file grows, or StoreFull is raised, or nothing
        happens."""
        segments, dead = self._segments, self._dead(log)
        some = (segments.capacity >> 1) + (segments.slots * segments.capacity >> 4)
        if 0 <= self._lap <= self._given:
            # A whole lap did not bring the room, or what came meanwhile took it. What was carried beyond `live_bytes` is not dead
            # as that says: not again at once, unless more than that died.
            self._lap = -1
            self._doubtful = max(0, self.carried_bytes - self._lap_carried - self._lap_live) + some // 2
        if dead < self._doubtful:
            return False
        return not wanted or 2 * dead >= log or (not growing and dead >= some)

    def _dead(self, log: int) -> int:
        """Of so many bytes of log, if the engine does not say: half of them."""
        return log - (log >> 1 if self.live_bytes is None else self.live_bytes)

    def _oldest_groups(self, begin: int) -> memoryview:
        segments, capacity = self._segments, self._segments.capacity
        data = segments.read(begin, min(capacity >> 3, self.end - begin))
        used, _, state, failed = whole_groups(data, begin, self.salt)
        if used == 0 and state == "cut":
            data = segments.read(begin, min(U64.unpack_from(data, 40)[0], self.end - begin))
            used, _, state, failed = whole_groups(data, begin, self.salt)
        if used == 0:
            raise StoreCorrupt(f"{self._where(begin if failed is None else failed, state)}; run: xump repair {self.path}")
        return data[: segments.first_group(data[:used], begin, self.end // capacity * capacity) - begin]

    def _next_records(self, groups: memoryview, position: int) -> memoryview:
        """Of whole groups. A large one is given in pieces: what is carried of it becomes small groups, which it may then stay."""
        start = end = self._given - position
        while end < len(groups):
            length = RECORD_HEAD.unpack_from(groups, end)[4]
            if end > start and end + length - start > self._segments.capacity >> 3:
                break
            end += length
        self._given = position + end
        if end == len(groups):
            self._group, self._boundary = None, self._given
        return groups[start:end]

    def _grow_ahead(self, most: int) -> None:
        """By a quarter, so that growing costs little for each byte written."""
        segments = self._segments
        self._grow(max(1, min(most, segments.slots >> 2, GROWTH_BYTES_MAX // segments.segment_bytes)))

    def release(self, position: int) -> None:
        """Frees what lies before the group that begins at that position, or before it: O(segments freed), a small write for
        each."""
        self._check_usable()
        segments = self._segments
        if not 0 <= position <= self.end:
            raise ValueError(f"release({position}): the log of {self.path} has positions {segments.begin} to {self.end}")
        number = position // segments.capacity
        known = [first for first in (segments.first.get(number), segments.first.get(number - 1)) if first is not None]
        begin = max((at for at in (*known, self._boundary, self.end) if at <= position), default=0)
        if begin <= segments.begin:
            return
        old, segments.begin = segments.begin // segments.capacity, begin
        try:
            self._free(range(old, begin // segments.capacity))
        except OSError as error:
            raise self._failed("giving space back", error) from error

    def _free(self, numbers: range) -> None:
        segments = self._segments
        segments.released += [segments.forget(number) for number in numbers]
        if numbers and self.durability == "none":
            segments.write_superblock(self._synced)
            segments.rested()
            self._shrink()

    def _shrink(self) -> None:
        segments = self._segments
        used = segments.slots - len(segments.free)
        keep = max(self._slots_min, 2 * used + SLOTS_MIN)
        if self._slots_max is not None:
            keep = min(keep, self._slots_max)
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
