"""The space of a ring: how much is left, when its log is cleaned, when its file grows and shrinks.

When the log is cleaned
-----------------------
Cleaning copies the live records at the beginning of the log forward, to its end, and so frees the oldest segments. The log may
begin with any record, also in the middle of a group: the part of the group before it was copied forward, durably.

Room is *short* when the engine refuses messages, or will refuse them after a few more groups, though the file may grow up to
its bound. Messages that selectors would bring, and dead letters, count as those that are published, if a clean log has the
room that they want (`Demand` says how much). Then the log is cleaned as soon as a sixteenth of the file, and half a segment,
is dead: at worst, in a full store, 16 bytes are copied for one that is gained. Where such messages wait, and nothing is
written any more, any gain is worth it that lets them in: two full stores whose messages wait for each other would else stand
still for good.

If room is short only because the file has not grown yet, it grows while less than half of the log is dead; else the log is
cleaned: the bytes copied forward are then at most as many as the bytes gained. The store has to know how many bytes are live for
this: the engine says so in its `Demand`. That number may be too low; `carried_bytes` tells.

A log that is three quarters dead is cleaned without need, as it goes on: so the file shrinks behind a backlog that was worked
off, and opens faster. When the file cannot double any more, half is enough: the store refuses no room that it could have.

The file shrinks when it is more than twice as large as twice its log would need. Then the log has to double before the file grows
again, and to halve before it shrinks again.

The space that stays free
-------------------------
C: bytes of a segment; A: of all slots; R: of the largest live message, which the engine knows. `room` keeps 2C free, and the
engine leaves 2R of the room because this store copies forward (`copies_forward`):

    C + R    at most copied forward before a slot gets free: a segment, and the record that goes on in the next. The part before
             the beginning of the log in its segment is not copied: it counts as free, and gets free with the slot
    C/2      settled in between, since a group that settles has at most half a segment: ids that follow each other are one record
    C/2 + R  the rest of a segment, and what a record takes that begins in it

Messages that come in also leave D * 4/3 + C/8 of it (`kept_bytes`), and 2R. D = C/2 + A/16 is what has to be dead before
cleaning is worth it. The messages in the store may use three quarters of that to move on; then they have left at least D dead,
and cleaning gives the space back. So nothing ever stands still in a full store. Settling makes no live bytes, and as long as
something is dead a lap gains it: so settling never runs out of room. `oldest` gives at most C/8 at once, or one record.

The space that the file may grow by is room, too, with half of the disk's free space left aside. As a rule the file grows ahead of
the log; for a large group it grows only when that is written.
"""

from __future__ import annotations

import logging
import os

from xump_ext.errors import StoreCorrupt, StoreFailed
from xump_ext.records import kinds, whole_records
from xump_ext.store import Demand

from .owner import Claim
from .paths import NO_SPACE
from .ring_disk import set_size
from .ring_file import SLOTS_MIN
from .ring_reader import RingReader
from .ring_segments import Segments

BOUND_SLOTS_MIN = 6             # where there is a `max_bytes`
GROWTH_BYTES_MAX = 16 << 20     # at once: the next sync waits for it
CRAMPED_SLOTS = 64              # a disk that has less is asked each time, since a full store writes nothing meanwhile

logger = logging.getLogger("xump")


class RingSpace(RingReader):
    """The half of a ring store that knows its free space."""

    copies_forward = True

    def __init__(self, name: str, claim: Claim, segments: Segments, durability: str, group_ms: float, *, slots_min: int,
                 slots_max: int | None) -> None:
        super().__init__(name, claim, segments, durability, group_ms)
        self._slots_min, self._slots_max = slots_min, slots_max
        self._given = segments.begin        # where the next part for `oldest` begins
        self._synced = 0
        self._resized = False               # and not synced since
        self._last = 0                      # bytes of the last group
        self._tidied = self._opened = 0     # bytes given by `oldest`; where the log ended at opening
        self._cleaning = False              # whether `oldest` gave something the last time
        self._lap = -1                      # where the log ended when a lap of cleaning began …
        self._lap_live = 0                  # … how much of it was live, as the engine says …
        self._lap_carried = 0               # … and how much had been copied forward before
        self._overhead = 0                  # … and how much more that was in the end than was live: dead, but no gain
        self._sought = 0                    # the room that messages waited for, the last time
        self._in_vain = False               # whether the last lap gained too little
        self._left = self._look_at = 0      # slots that the disk has; where the log ends when the disk is asked again
        self._no_growth = 0                 # until the log ends there the disk is full …
        self._refused = 0                   # … or until it has a segment more than those bytes, which it had when it refused

    @property
    def kept_bytes(self) -> int:    # type: ignore[override]
        """See `Backend.kept_bytes`. When messages have used up three quarters of it by moving on, cleaning is worth it."""
        return self._worth_bytes(self._growable()) * 4 // 3 + (self._segments.capacity >> 3)

    # ---- how much is left

    def room(self) -> int:
        """Bytes, with those that the file may still grow by. O(1), one system call."""
        if self._barred is not None:
            raise self._barred
        return max(0, self._spare(self._growable())) & ~7

    def _spare(self, more: int = 0, given: int = 0) -> int:
        """Bytes of groups, if the file had so many slots more, and so many bytes of the log were free."""
        segments = self._segments
        slots = segments.slots + more
        if self._slots_max is not None:     # slots beyond the bound, which was higher before, do not count
            slots -= max(0, segments.slots - self._slots_max)
        return (slots - 2) * segments.capacity - (self.end - segments.begin) + given

    def _worth_bytes(self, more: int = 0) -> int:
        """So many bytes must be dead before a lap of cleaning is worth it, if the file had so many slots more."""
        segments = self._segments
        return (segments.capacity >> 1) + ((segments.slots + more) * segments.capacity >> 4)

    # ---- the file grows and shrinks

    def _growable(self) -> int:
        """Slots that the file may get. Leaves half of the disk's free space to others: they may take it before the ring needs it.
        Asks the disk now and then."""
        segments = self._segments
        if self.end < self._no_growth and self._disk_bytes() < self._refused + segments.segment_bytes:
            return 0
        if self.end >= self._look_at or self._left < CRAMPED_SLOTS:
            self._left = (self._disk_bytes() >> 1) // segments.segment_bytes
            self._look_at = self.end + (segments.capacity >> 2)
        count = self._left
        return count if self._slots_max is None else max(0, min(count, self._slots_max - segments.slots))

    def _disk_bytes(self) -> int:
        """Bytes that the disk has free for this program. The file may have another name by now."""
        disk = os.statvfs(self._fd)
        return disk.f_bavail * disk.f_frsize

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
            self._refused = self._disk_bytes()
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
        if (demand.wanted_bytes or demand.refused_bytes > self._sought) and not self._cleaning:
            self._lap, self._in_vain = -1, False    # what lacks room is worth a lap, even after one that gained little
        self._sought = demand.refused_bytes
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
        begin = self._given = max(self._given, segments.begin)
        log, growable = self.end - begin, self._growable()
        short, low = self._is_short(demand, growable), self._is_low(demand)
        done = begin // capacity == self.end // capacity    # the segment that fills up just now has nothing to gain
        if done or not (short or low or self._idle(log, demand.live_bytes)):
            self._lap, self._in_vain = -1, False
        elif self._worth(log, demand, short, low):
            if self._lap < 0:
                self._lap, self._lap_carried, self._lap_live = self.end, demand.carried_bytes, demand.live_bytes
            data = self._next_records(begin)
            self._given += len(data)
            self._tidied += len(data)
            return begin, self._given, data
        if low and growable:
            self._grow_ahead(growable)
        return None

    def _ahead(self) -> int:
        """Bytes that the next few groups need."""
        return max(self._segments.capacity >> 4, min(2 * self._last, self._segments.capacity))

    def _is_short(self, demand: Demand, growable: int) -> bool:
        """Whether the engine refuses messages for lack of room, or soon will, though the file may grow by so many slots. Messages
        that selectors would bring do not count as long as there would be no room for them in a clean log: they may wait long."""
        spare, dead = self._spare(growable, self._given - self._segments.begin), self.end - self._given - demand.live_bytes
        wanted = max(demand.wanted_bytes, self.kept_bytes + 4 * demand.largest_bytes + self._ahead())
        return spare < wanted or spare < demand.refused_bytes <= spare + dead

    def _is_low(self, demand: Demand) -> bool:
        """Whether the slots that there are hardly take the next few groups."""
        return self._spare(0, self._given - self._segments.begin) < 2 * demand.largest_bytes + self._ahead()

    def _idle(self, log: int, live: int) -> bool:
        """Whether to clean so many bytes of log though there is room enough at the moment.

        Yes where three quarters are dead, and not more was cleaned than four times the bytes written; or where half is dead, and
        the file cannot double any more."""
        segments = self._segments
        if self._growable() < segments.slots:
            return 2 * live <= log
        return (4 * live <= log and self.end - segments.begin > segments.capacity
                and self._tidied < 4 * (self.end - self._opened))

    def _worth(self, log: int, demand: Demand, short: bool, low: bool) -> bool:
        """Whether to clean so many bytes of log, rather than let the file grow, or raise StoreFull, or do nothing."""
        dead, some = log - demand.live_bytes, self._worth_bytes()
        if short and self._given < self._lap:
            return True         # what was worth it at the beginning of the lap is so to its end
        if 0 <= self._lap <= self._given:
            # A whole lap did not bring the room, or newcomers took it. Bytes copied forward beyond `live_bytes` count as dead
            # though they are not: so the log is not cleaned again at once, unless more than those died. If nothing else was
            # written meanwhile, that is exactly what is left.
            carried = demand.carried_bytes - self._lap_carried
            self._overhead = dead if carried == self.end - self._lap else max(0, carried - self._lap_live)
            self._lap, self._in_vain = -1, True
            if demand.stands_still:
                return False        # one lap each time
        if demand.stands_still:
            spare = self._spare(self._growable(), self._given - self._segments.begin)
            return spare < demand.refused_bytes <= spare + dead - self._overhead
        if self._in_vain and dead < self._overhead + some // 2:
            return False
        return not (short or low) or 2 * dead >= log or (short and dead >= some)

    def _next_records(self, begin: int) -> memoryview:
        """Whole records from this position on."""
        segments = self._segments
        data = segments.read(begin, min(segments.capacity >> 3, self.end - begin))
        used, state, failed = whole_records(data, begin, self.salt)
        if used == 0 and state == "cut" and len(data) >= kinds.HEAD.size:
            data = segments.read(begin, min(kinds.HEAD.unpack_from(data)[4], self.end - begin))
            used, state, failed = whole_records(data, begin, self.salt)
        if used == 0:
            raise StoreCorrupt(f"{self._where(begin if failed is None else failed, state)}; run: xump repair {self.path}")
        return data[:used]

    def release(self, position: int) -> None:
        """See `Backend.release`. A record begins at that position, or the log ends there. O(segments freed), a small write for
        each."""
        self._check_usable()
        segments = self._segments
        if not 0 <= position <= self.end:
            raise ValueError(f"release({position}): the log of {self.path} has positions {segments.begin} to {self.end}")
        if position <= segments.begin:
            return
        old, segments.begin = segments.begin // segments.capacity, position
        try:
            self._free(range(old, position // segments.capacity))
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
