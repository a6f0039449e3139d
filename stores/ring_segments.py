"""The segments of a ring: the slot of each, and how the log is read and extended. Nothing here knows which records are live.

The log is endless. Its segment number n has the positions from n * capacity on, and lies in any slot of the file
(`ring_file.py` draws it). When no position before some later one is needed any more, a slot takes another segment. Numbers are
never used again.

A slot is used again only after a superblock that says so was synced. That superblock is written only after everything the release
rests on was itself synced, such as the SETTLE of a message. A segment's head is written once, together with the first records in
it. The head saves time and is not needed: any record in a slot tells which segment the slot holds, and opening mends the head. So
a crash may tear a head, and damage to it costs nothing.

Behind the end of the log stand the remains of an earlier lap, which their positions give away, or a torn tail, with the very
positions that will be written next. No later group may join up with those. Opening overwrites the remains it sees with zeros,
durably, before anything is written. It misses remains in segments whose heads, and the segment before them, did not reach the
disk. So each slot is read once, before its first use after opening.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from xump_ext.errors import StoreCorrupt
from xump_ext.records import kinds, next_record, read_groups, record_whole, whole_records

from .ring_disk import sync, write_all, write_zeros
from .ring_file import COPY_AT, HEAD_BYTES, SEGMENT, SLOTS_AT, SLOTS_MIN, VERSION, Head, newest_superblock

WIPED_BYTES = 1 << 20
"""Of a slot that looks unused so much is searched for records, which opening has to wait for."""
AHEAD_BYTES = 2 << 20
"""A thread reads so much ahead of a log's records, if there is more than that."""


class Piece(NamedTuple):
    """A piece of the log that begins with a group."""

    buffer: memoryview
    data: memoryview
    """As much of the buffer as was read."""
    used: int
    """Bytes of whole groups."""
    state: str
    failed: int | None
    """See `whole_groups`."""


def _meanwhile(reader: ThreadPoolExecutor, read: Callable[[], Piece]) -> Callable[[], Piece]:
    """Has a thread read; the result waits for it. Where no thread can be started, at the end of the process or of what the system
    allows, it reads when it is asked."""
    try:
        return reader.submit(read).result
    except RuntimeError:
        return read


class Segments:
    """Maps segments to slots, and knows the free slots."""

    def __init__(self, fd: int, path: str, superblock: Head, copy: int, slots: int) -> None:
        self.fd = fd
        self.path = path
        self.superblock = superblock
        self.segment_bytes = superblock.segment_bytes
        self.capacity = self.segment_bytes - HEAD_BYTES
        self.salt = superblock.salt
        self.slots = slots
        self.begin = superblock.begin
        self.synced = superblock.synced
        self.slot_of: dict[int, int] = {}
        self.former: dict[int, int] = {}
        """Released segments, still where they were until another one takes the slot: a `fetch` may just read there."""
        self.free: list[int] = []
        """Slots, a heap: the lowest is taken first, so that those at the end of the file get empty."""
        self.released: list[int] = []
        """Slots that the next superblock may call free, once everything written until now is synced."""
        self.resting: list[int] = []
        """Slots that become free when the superblock that says so is synced."""
        self.headless: list[int] = []
        """Segments with damaged heads."""
        self.damaged: list[str] = []
        """Damage other than to records, in words."""
        self._copy = copy
        self._unsynced = False
        self._strange = set(range(slots))       # slots with unknown remains

    def at(self, slot: int) -> int:
        """The byte of the file where a slot begins."""
        return SLOTS_AT + slot * self.segment_bytes

    # ---- opening

    @classmethod
    def load(cls, fd: int, path: str) -> Segments:
        """Reads superblocks and heads, and changes nothing. Raises StoreCorrupt."""
        found, copy, both_whole = newest_superblock(fd, path)
        slots = (os.fstat(fd).st_size - SLOTS_AT) // found.segment_bytes
        # A rest behind the last slot is left by a crash while the file grew. A rest with a head was a slot, and the file was cut.
        rest = Head.read(os.pread(fd, HEAD_BYTES, SLOTS_AT + slots * found.segment_bytes), SEGMENT)
        self = cls(fd, path, found, copy, slots + (rest is not None))
        if not both_whole:
            self.damaged.append("one of the two superblocks")
        self._read_heads()
        return self

    def _read_heads(self) -> None:
        unknown, blank = [], []
        for slot in range(self.slots):
            data = os.pread(self.fd, HEAD_BYTES, self.at(slot))
            head = Head.read(data, SEGMENT)
            if head is not None and (head.salt, head.segment_bytes, head.version) == (self.salt, self.segment_bytes, VERSION):
                self._place(slot, head.number)
                self.begin, self.synced = max(self.begin, head.begin), max(self.synced, head.synced)
            elif data.strip(b"\0"):
                unknown.append(slot)
            else:
                blank.append(slot)
        self._find(unknown)
        self._look_for_next(blank)
        if self.missing():
            self._find(blank)
        lost = self.missing()
        if len(lost) == 1 and len(unknown) == 1 and unknown[0] not in self.slot_of.values():
            # No record begins in it, so the middle of a large one must lie there; the record's own crc will tell.
            self._place_headless(unknown[0], lost[0])
        for number in [number for number in self.slot_of if number < self.begin // self.capacity]:
            self.forget(number)
        taken = set(self.slot_of.values())
        self.free = [slot for slot in range(self.slots) if slot not in taken]
        self._see_the_beginning()
        self._see_the_end()

    def _look_for_next(self, blank: list[int]) -> None:
        """Zeros may have taken the head of the last segments, and the records behind it. The lowest free slot is taken first, so
        slots that were never used are above all others: such a segment is in the lowest slot that looks blank."""
        following = max(self.slot_of, default=self.begin // self.capacity - 1) + 1
        while blank and self._number_in(blank[0], min(WIPED_BYTES, self.segment_bytes)) == following:
            self._place_headless(blank.pop(0), following)
            following += 1

    def _see_the_beginning(self) -> None:
        """A log that begins in the middle of a segment has that segment. A power failure under "none" may have taken it, and
        nothing need say then how far the log went. So it counts as synced up to its last remains: damage, not a torn tail."""
        number, offset = divmod(self.begin, self.capacity)
        if offset and number not in self.slot_of:
            last, _ = self.behind(self.begin)
            self.synced = max(self.synced, last, (number + 1) * self.capacity)

    def _see_the_end(self) -> None:
        """A ring has its first slots before it has its name, so no crash leaves it without them: a shorter file was cut. The
        part behind is not known, so the log counts as synced beyond all that is left: damage, not a torn tail."""
        if os.fstat(self.fd).st_size < self.at(SLOTS_MIN):
            self.synced = max(self.synced, self.reach(self.begin) + 8)

    def _place(self, slot: int, number: int) -> None:
        if number in self.slot_of:
            raise StoreCorrupt(f"{self.path} is damaged: segment {number} is in slot {self.slot_of[number]} and in slot {slot}; "
                               "restore it from a copy")
        self.former = {number: other for number, other in self.former.items() if other != slot}
        self.slot_of[number] = slot

    def _place_headless(self, slot: int, number: int) -> None:
        self._place(slot, number)
        self.headless.append(number)
        self.damaged.append(f"the head of segment {number}, at byte {self.at(slot)} of the file")

    def _find(self, slots: list[int]) -> None:
        """Places slots by the first record in each. The remains of an earlier lap stand behind that record."""
        for slot in slots:
            number = self._number_in(slot, self.segment_bytes)
            if number is not None and number >= self.begin // self.capacity:
                self._place_headless(slot, number)

    def _number_in(self, slot: int, within: int) -> int | None:
        """The segment whose records a slot holds, by the first whole one that begins within so many bytes."""
        data, at = os.pread(self.fd, within, self.at(slot)), HEAD_BYTES
        if data == bytes(len(data)):        # usual, and 25 times as fast as a search
            return None
        while (at := data.find(kinds.MAGIC_BYTES, at + 1)) >= 0:
            start = at - kinds.MAGIC_AT
            if start >= HEAD_BYTES and start % 8 == 0 and start + kinds.HEAD.size <= len(data):
                _, _, _, _, length, _, position, _ = kinds.HEAD.unpack_from(data, start)
                if position % self.capacity == start - HEAD_BYTES:
                    record = os.pread(self.fd, min(length, self.segment_bytes - start), self.at(slot) + start)
                    if record_whole(record, position, self.salt) in ("whole", "payload"):
                        return int(position) // self.capacity
        return None

    def missing(self) -> list[int]:
        """The segments of the log that lie in no slot."""
        first, last = self.begin // self.capacity, max((*self.slot_of, (self.synced - 1) // self.capacity))
        return [number for number in range(first, last + 1) if number not in self.slot_of]

    # ---- changing

    def append(self, group: memoryview, position: int, synced: int, ready: Callable[[], None]) -> None:
        """Writes a group at the end of the log. Calls `ready` before it takes a slot: `ready` has to see to a free one."""
        while group:
            number, offset = divmod(position, self.capacity)
            part = group[: self.capacity - offset]
            if number in self.slot_of:
                write_all(self.fd, part, self.at(self.slot_of[number]) + HEAD_BYTES + offset)
            else:
                ready()
                head = self._take(number, synced)
                write_all(self.fd, head + part, self.at(self.slot_of[number]))
            group, position = group[len(part) :], position + len(part)

    def _take(self, number: int, synced: int) -> bytes:
        """Gives a new segment the lowest free slot; returns its head."""
        slot = heapq.heappop(self.free)
        if slot in self._strange:
            self._strange.remove(slot)
            data = os.pread(self.fd, self.segment_bytes, self.at(slot))[HEAD_BYTES:]
            if next_record(data, number * self.capacity, self.salt) is not None:
                write_zeros(self.fd, self.at(slot), self.segment_bytes)
                sync(self.fd)
        self.former = {number: other for number, other in self.former.items() if other != slot}
        self.slot_of[number] = slot
        return Head(SEGMENT, self.segment_bytes, self.salt, number, self.superblock.begin, synced).packed()

    def grow(self, count: int) -> None:
        """Adds slots to the file. OSError: nothing changed but the file, which may have got longer."""
        write_zeros(self.fd, self.at(self.slots), count * self.segment_bytes)
        for slot in range(self.slots, self.slots + count):
            heapq.heappush(self.free, slot)
        self.slots += count

    def mend_heads(self, synced: int) -> None:
        """Writes damaged heads anew."""
        for number in filter(self.slot_of.__contains__, self.headless):
            head = Head(SEGMENT, self.segment_bytes, self.salt, number, self.begin, synced)
            write_all(self.fd, head.packed(), self.at(self.slot_of[number]))
        self.headless.clear()
        self.damaged.clear()

    def forget(self, number: int) -> int:
        """Takes a segment out of the log; returns its slot."""
        self.former[number] = self.slot_of[number]
        return self.slot_of.pop(number)

    def write_superblock(self, synced: int) -> None:
        """Writes a superblock with the present `begin`. The caller has synced the log up to `synced`, and everything else that
        was written; the next sync makes the superblock durable."""
        if not self._unsynced:
            self._copy = 1 - self._copy
        self._unsynced = True
        self.superblock = replace(self.superblock, number=self.superblock.number + 1, begin=self.begin, synced=synced)
        write_all(self.fd, self.superblock.packed(), self._copy * COPY_AT)
        self.resting += self.released
        self.released.clear()

    def superblock_synced(self) -> None:
        self._unsynced = False
        self.rested()

    def rested(self) -> None:
        for slot in self.resting:
            heapq.heappush(self.free, slot)
        self.resting.clear()

    # ---- reading

    def read_into(self, view: memoryview, position: int) -> None:
        """Reads a piece of the log; zeros stand for a part that is not there."""
        while view:
            number, offset = divmod(position, self.capacity)
            part = view[: self.capacity - offset]
            view, position = view[len(part) :], position + len(part)
            slot = self.slot_of.get(number, self.former.get(number))
            at = -1 if slot is None else self.at(slot) + HEAD_BYTES + offset
            while part:
                got = os.preadv(self.fd, [part], at) if at >= 0 else 0
                if got == 0:
                    part[:] = bytes(len(part))
                    break
                part, at = part[got:], at + got

    def read(self, position: int, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        self.read_into(view, position)
        return view

    def reach(self, position: int) -> int:
        """The position up to which segments follow each other without a gap."""
        number = position // self.capacity
        while number in self.slot_of:
            number += 1
        return max(position, number * self.capacity)

    def groups(self, position: int) -> Generator[tuple[int, memoryview], None, tuple[int, str, int]]:
        """Reads the log from a position where a group begins, or its beginning, which may be in the middle of a group.

        Yields (position, whole groups, or the rest of one), verified; use each buffer before you ask for the next. Of a long log
        a thread reads and verifies the next piece meanwhile. Returns where the first group stands that is not whole, its fault,
        and the position of the fault."""
        chunk, stop = max(self.capacity >> 3, 1 << 13), self.reach(position)
        rest, state, failed = self._rest_of_group(position, chunk, stop) if position == self.begin else (b"", "whole", None)
        if failed is not None:
            return position, state, failed
        if rest:
            yield position, memoryview(rest)
            position += len(rest)
        spare = memoryview(b"")
        with ThreadPoolExecutor(1, "xump-read-ahead") as reader:
            piece = self._piece(position, memoryview(bytearray(min(chunk, stop - position))), 0, stop)
            while True:
                whole, left = piece.data[: piece.used], piece.data[piece.used :]
                following = position + len(whole)
                if piece.state in ("head", "payload") or (not whole and following + len(left) == stop):
                    if whole:
                        yield position, whole
                    return following, piece.state if left else "cut", following if piece.failed is None else piece.failed
                size = min(AHEAD_BYTES + len(left), stop - following)
                if not size <= len(spare) <= 4 * AHEAD_BYTES:
                    spare = memoryview(bytearray(max(size, min(2 * AHEAD_BYTES, stop - following))))
                spare[: len(left)] = left
                read: Callable[[], Piece] = partial(self._piece, following, spare[:size], len(left), stop)
                spare = memoryview(piece.buffer.obj)
                if stop - following > AHEAD_BYTES:
                    read = _meanwhile(reader, read)
                if whole:
                    yield position, whole
                position, piece = following, read()

    def _piece(self, position: int, buffer: memoryview, kept: int, stop: int) -> Piece:
        """The log from a position on, into a buffer that has `kept` bytes of it: up to the end of a segment, or further if a
        group is larger."""
        while True:
            number, offset = divmod(position + kept, self.capacity)
            size = min(len(buffer), kept + self.capacity - offset)
            slot = self.slot_of.get(number)
            at = -1 if slot is None else self.at(slot) + HEAD_BYTES + offset
            used, _, state, failed = read_groups(self.fd, at, buffer[:size], kept, position, self.salt)
            if used or state in ("head", "payload") or position + size == stop:
                return Piece(buffer, buffer[:size], used, state, failed)
            kept = size
            if size == len(buffer):         # the head of the group is whole, and says how large it is
                larger = memoryview(bytearray(min(max(kinds.U64.unpack_from(buffer, kinds.GROUP_SIZE_AT)[0], 2 * size),
                                                  stop - position)))
                larger[:size] = buffer
                buffer = larger

    def _rest_of_group(self, position: int, size: int, stop: int) -> tuple[memoryview | bytes, str, int | None]:
        """The records before the first group, their state, and the position of a fault in them. They were synced before the log
        began there, so they end at a group, or where the log was synced up to."""
        while True:
            size = min(size, stop - position)
            data = self.read(position, size)
            used, state, failed = whole_records(data, position, self.salt, to_group=True)
            at_end = state in ("head", "payload") or position + size == stop
            if (state == "whole" and used < size) or (at_end and used and position + used >= self.synced):
                return data[:used], state, None
            if at_end:
                return b"", state, failed if used else None     # where no record begins, no group does: the caller finds that out
            size *= 2

    def behind(self, position: int) -> tuple[int, int]:
        """Looks behind the whole groups of this lap, which end at a position.

        Returns where the last record with a whole head ends, or the beginning of a head behind it; and the position up to which
        some group says that the log was synced. O(bytes)."""
        last, synced = position, 0
        for start, view in self.lap(position):
            end, offset = min(self.capacity - start % self.capacity, len(view)), 0
            while offset < end and (found := next_record(view[offset:], start + offset, self.salt)) is not None:
                offset += found[0]
                if offset >= end:
                    break
                if view[offset + kinds.KIND_AT] == kinds.GROUP:
                    synced = max(synced, kinds.U64.unpack_from(view, offset + kinds.SYNCED_AT)[0])
                offset += found[2]
                last = start + offset
            at = last - start
            torn = 0 <= at <= len(view) - kinds.HEAD.size and view[at + kinds.MAGIC_AT : at + kinds.KIND_AT] == kinds.MAGIC_BYTES
            if torn and kinds.U64.unpack_from(view, at + kinds.POSITION_AT)[0] in (0, last):
                last += kinds.HEAD.size        # the beginning of a head; 0: it was torn before its position
        return last, synced

    def lap(self, position: int) -> Iterator[tuple[int, memoryview]]:
        """Yields all segments from a position on, each with as much of the next one as a record's head may reach into."""
        for number in sorted(number for number in self.slot_of if number >= position // self.capacity):
            start, end = max(position, number * self.capacity), (number + 1) * self.capacity
            yield start, self.read(start, end - start + (kinds.FIXED_BYTES_MAX if number + 1 in self.slot_of else 0))
