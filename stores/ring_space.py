"""The space of a ring: how much is left, when its log is cleaned, when its file grows and shrinks.

When the log is cleaned
-----------------------
Cleaning copies the live records at the beginning of the log forward, to its end, and so frees the oldest segments. It is due
when less room is left than the next few groups need. The file then grows, if it may and less than half of the log is dead.
Otherwise the log is cleaned: the bytes copied forward are then at most as many as the bytes gained. A file that may not grow is
cleaned as soon as a sixteenth of it, and half a segment, is dead: at worst, in a full store, 16 bytes copied for one that is
gained. The store has to know how many bytes are live for this: the engine says so in its `Demand`. That number may be too low;
`carried_bytes` tells.

A log that is three quarters dead is cleaned without need, as it goes on: so the file shrinks behind a backlog that was worked
off, and opens faster. When the file cannot double any more, half is enough: the store refuses no room that it could have.

The file shrinks when it is more than twice as large as twice its log would need. Then the log has to double before the file grows
again, and to halve before it shrinks again.

The space that stays free
-------------------------
C: bytes of a segment; L: of the largest group in the log, at least C/8; A: of all slots. `room` keeps 2C + 2L + A/8:

    C + L    at most copied forward before a slot gets free: a segment, and the group that goes on in the next
    C/2 + L  dead at most before cleaning begins, and the beginning of the oldest segment that belongs to a group before it
    C/2      settled in between: a group that settles has at most half a segment, since ids that follow each other are one record
    A/8      of which A/16 may be dead before cleaning begins, so that cleaning costs at most 16 times what it gains

Of N empty slots, that makes room for one group of (7N/8 - 2) C/3. Where nothing is live, one segment is in use, and a group of
up to C may have been in it, which is L: so there is always room for (7N/8 - 5) C. That is C/4 where N is 6, the fewest slots of
a file with a bound.

Settling makes no live bytes, and as long as something is dead a lap gains it: so settling never runs out of room. A group of g
bytes may become the largest, so it needs g + 2g beside the rest. `oldest` gives at most C/8 at once, or one record.

The space that the file may grow by is room, too, with half of the disk's free space left aside. As a rule the file grows ahead of
the log; for a large group it grows only when that is written.
"""

from __future__ import annotations

import errno
import logging
import os

from xump_ext.errors import StoreCorrupt, StoreFailed
from xump_ext.records import kinds, whole_groups
from xump_ext.store import Demand

from .owner import Claim
from .ring_disk import set_size
from .ring_file import SLOTS_MIN
from .ring_reader import RingReader
from .ring_segments import Segments

BOUND_SLOTS_MIN = 6             # where there is a `max_bytes`
GROWTH_BYTES_MAX = 16 << 20     # at once: the next sync waits for it
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

logger = logging.getLogger("xump")


class RingSpace(RingReader):
    """The half of a ring store that knows its free space."""

    def __init__(self, name: str, claim: Claim, segments: Segments, durability: str, group_ms: float, *, slots_min: int,
                 slots_max: int | None) -> None:
        super().__init__(name, claim, segments, durability, group_ms)
        self._slots_min, self._slots_max = slots_min, slots_max
        self._given = segments.begin
        self._synced = 0
        self._resized = False               # and not synced since
        self._last = 0                      # bytes of the last group
        self._boundary = self._given        # where the last group that was wholly given ends
        self._group: tuple[memoryview, int] | None = None       # the group given in pieces just now, and its position
        self._tidied = self._opened = 0     # bytes given by `oldest`; where the log ended at opening
        self._cleaning = False              # whether `oldest` gave something the last time
        self._lap = -1                      # where the log ended when a lap of cleaning began …
        self._lap_live = 0                  # … how much of it was live, as the engine says …
        self._lap_carried = 0               # … and how much had been copied forward before
        self._doubtful = 0                  # fewer dead bytes than that are no reason to clean again
        self._left = self._look_at = 0      # slots that the disk has; where the log ends when the disk is asked again
        self._no_growth = 0                 # until the log ends there: the disk is full

    @property
    def kept_bytes(self) -> int:    # type: ignore[override]
        """What `room` says of so many spare bytes: twice the dead bytes before cleaning begins, and the segment where the log
        begins. When messages have used up three quarters of it by moving on, cleaning frees the space that they left behind."""
        segments = self._segments
        return self._said(2 * segments.capacity + (segments.slots * segments.capacity >> 3))

    # ---- how much is left

    def room(self) -> int:
        """Bytes, with those that the file may still grow by. O(1), one system call."""
        if self._barred is not None:
            raise self._barred
        return self._room(self._growable())

    def _room(self, more: int = 0, given: int = 0) -> int:
        """Bytes of groups, if the file had so many slots more, and so many bytes of the log were free."""
        segments, capacity = self._segments, self._segments.capacity
        slots = segments.slots - len(segments.slot_of) + more
        if self._slots_max is not None:     # slots beyond the bound, which was higher before, do not count
            slots -= max(0, segments.slots - self._slots_max)
        spare = (slots - 2) * capacity + -self.end % capacity + given
        spare -= (segments.slots + more) * capacity >> 3
        return self._said(spare)

    def _said(self, spare: int) -> int:
        """The size of the largest group that so many spare bytes have room for."""
        largest = max(self._segments.capacity >> 3, *self._segments.largest.copy().values(), 0)
        # A group of g bytes that is the largest from now on: g + 2 g <= spare; one that is not: g + 2 largest <= spare.
        return max(0, min(spare // 3, spare - 2 * largest)) & ~7

    # ---- the file grows and shrinks

    def _growable(self) -> int:
        """Slots that the file may get. Leaves half of the disk's free space to others: they may take it before the ring needs it.
        Asks the disk now and then."""
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
        """Adds slots; returns whether the disk had space for them."""
        segments = self._segments
        self._resized = True
        try:
            segments.grow(count)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            set_size(self._fd, segments.at(segments.slots))
            self._no_growth = self.end + (segments.slots * segments.capacity >> 2)
            logger.warning("store %r: %s cannot grow: %s", self.name, self.path, error.strerror)
            return False
        return True

    def _grow_ahead(self, most: int) -> None:
        """Grows by a quarter, so that growing costs little for each byte written."""
        segments = self._segments
        self._grow(max(1, min(most, segments.slots >> 2, GROWTH_BYTES_MAX // segments.segment_bytes)))

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

    # ---- the log is cleaned

    def oldest(self, demand: Demand) -> tuple[int, int, memoryview] | None:
        """See `Backend.oldest`. Whole records, at most an eighth of a segment or one record; each is given once. While this gives
        none the file may grow. O(bytes given)."""
        self._check_usable()
        self._live_bytes = demand.live_bytes
        if demand.wanted_bytes and not self._cleaning:
            self._lap, self._doubtful = -1, 0       # a call that lacks room is worth a lap, even after one that gained little
        try:
            part = self._next_part(demand)
        except StoreCorrupt:
            raise
        except OSError as error:
            raise self._failed("making room", error) from error
        self._cleaning = part is not None
        return part

    def _next_part(self, demand: Demand) -> tuple[int, int, memoryview] | None:
        segments, capacity = self._segments, self._segments.capacity
        if self._given < segments.begin:
            self._given, self._group = segments.begin, None
        begin = self._given
        log, wanted = self.end - begin, self._is_wanted(demand.wanted_bytes)
        start = begin if self._group is None else self._group[1]
        done = start // capacity == self.end // capacity    # the segment that fills up just now has nothing to gain
        if done or not (wanted or self._idle(log, demand.live_bytes)):
            self._lap, self._doubtful = -1, 0
            if not wanted:
                return None
        growing = self._growable() if wanted else 0
        if done or not self._worth(log, demand, wanted, growing > 0):
            if growing:
                self._grow_ahead(growing)
            return None
        if self._group is None:
            self._group = self._oldest_groups(begin), begin
        if self._lap < 0:
            self._lap, self._lap_carried, self._lap_live = self.end, demand.carried_bytes, demand.live_bytes
        data = self._next_records(*self._group)
        self._tidied += len(data)
        return begin, self._given, data

    def _is_wanted(self, wanted_bytes: int) -> bool:
        """Whether less room is left than the next few groups need, or a call lacks room for so many bytes."""
        capacity, given = self._segments.capacity, self._given - self._segments.begin
        least = max(capacity >> 4, min(2 * self._last, capacity)) + (0 if self._growable() else self.kept_bytes)
        return self._room(given=given) < least or (wanted_bytes > 0 and self._room(self._growable()) < wanted_bytes)

    def _idle(self, log: int, live: int) -> bool:
        """Whether to clean so many bytes of log though there is room enough at the moment.

        Yes where three quarters are dead, and not more was cleaned than four times the bytes written; or where half is dead, and
        the file cannot double any more."""
        segments = self._segments
        if self._growable() < segments.slots:
            return 2 * live <= log
        return (4 * live <= log and self.end - segments.begin > segments.capacity
                and self._tidied < 4 * (self.end - self._opened))

    def _worth(self, log: int, demand: Demand, wanted: bool, growing: bool) -> bool:
        """Whether to clean so many bytes of log, rather than let the file grow, or raise StoreFull, or do nothing."""
        segments, dead = self._segments, log - demand.live_bytes
        some = (segments.capacity >> 1) + (segments.slots * segments.capacity >> 4)
        if 0 <= self._lap <= self._given:
            # A whole lap did not bring the room, or newcomers took it. Bytes copied forward beyond `live_bytes` count as dead
            # though they are not: so the log is not cleaned again at once, unless more than those died.
            self._lap = -1
            self._doubtful = max(0, demand.carried_bytes - self._lap_carried - self._lap_live) + some // 2
        if dead < self._doubtful:
            return False
        return not wanted or 2 * dead >= log or (not growing and dead >= some)

    def _oldest_groups(self, begin: int) -> memoryview:
        segments, capacity = self._segments, self._segments.capacity
        data = segments.read(begin, min(capacity >> 3, self.end - begin))
        used, _, state, failed = whole_groups(data, begin, self.salt)
        if used == 0 and state == "cut":
            data = segments.read(begin, min(kinds.U64.unpack_from(data, kinds.GROUP_SIZE_AT)[0], self.end - begin))
            used, _, state, failed = whole_groups(data, begin, self.salt)
        if used == 0:
            raise StoreCorrupt(f"{self._where(begin if failed is None else failed, state)}; run: xump repair {self.path}")
        return data[: segments.first_group(data[:used], begin, self.end // capacity * capacity) - begin]

    def _next_records(self, groups: memoryview, position: int) -> memoryview:
        """The next records of whole groups. A large group is given in pieces: the copies of its records become small groups,
        and may stay that."""
        start = end = self._given - position
        while end < len(groups):
            length = kinds.HEAD.unpack_from(groups, end)[4]
            if end > start and end + length - start > self._segments.capacity >> 3:
                break
            end += length
        self._given = position + end
        if end == len(groups):
            self._group, self._boundary = None, self._given
        return groups[start:end]

    def release(self, position: int) -> None:
        """See `Backend.release`. Frees the space before the group that begins at that position, or before it. O(segments
        freed), a small write for each."""
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

    def _failed(self, what: str, error: OSError) -> StoreFailed:
        self._barred = StoreFailed(error.errno, f"store {self.name!r} at {self.path}: {what} failed: {error.strerror}; nothing "
                                   "more is written; open it anew to go on")
        self._barred.__cause__ = error
        return self._barred
