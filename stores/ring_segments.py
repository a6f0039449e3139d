"""The file of a ring: its bytes, which segment of the log lies where, and how the log is read. Nothing here knows what is live.

    0            4096         8192          8192 + segment_bytes
    superblock │ its copy   │ slot 0      │ slot 1      │ slot 2      │ …

    slot:  head of 64 bytes │ the log: segment_bytes - 64 bytes of it │

The log is endless; its segment number n has the positions from n * capacity on, and lies in any slot. A slot is used again when
all before some later position is not needed any more; numbers are not. Both heads look alike, little-endian:

     0 magic u64           XUMPRING, XUMPSEGM
     8 version u32
    12 segment_bytes u32
    16 salt u32            of the store
    20 first u32           of a segment: where in its part of the log the first group begins; 2**32 - 1: nowhere, or not known
    24 number u64          of the segment; of a superblock: it is the newer of two if this is higher
    32 begin u64           position: nothing before it is needed
    40 synced u64          position: the log was synced up to it
    48 reserved
    60 crc u32             of the 60 bytes before

A superblock is written over the older copy, or again over the one that is not synced yet: so one is always whole. A slot is used
again only after a superblock that says so was synced, and that is written only after all that the release rests on, be it that a
message was settled, was synced itself. A segment's head is written once, together
with the first records in it. It saves time, it is not needed: which segment a slot holds is seen from any record in it, and
opening mends it. So a crash may tear it, and one flipped bit in it costs nothing.

What stands behind the end of the log is what an earlier lap left, which is told by its positions, or a torn tail, with the very
positions that will be written next. No later group may join up with that: opening overwrites what it sees of it with zeros,
durably, before anything is written. What it does not see, because the head of its segment did not reach the disk, is looked for
when the segment gets a slot again: each slot is read once, before it is used for the first time. """

from __future__ import annotations

import heapq
import os
import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

from xump_ext.errors import StoreCorrupt
from xump_ext.records import crc, next_record, record_whole, whole_groups

from . import ring_lock
from .ring_disk import sync, write_all, write_zeros

VERSION = 1
SUPERBLOCK, SEGMENT = b"XUMPRING", b"XUMPSEGM"
HEAD_BYTES = 64
COPY_AT = 4096
SLOTS_AT = 8192
SEGMENT_BYTES_MIN = 64 << 10
SEGMENT_BYTES_MAX = 1 << 30
SLOTS_MIN = 4       # two that are kept free, one that is being filled, one to be cleaned; `ring.py` has the arithmetic
NOWHERE = 2**32 - 1

GROUP = 1           # records.pxd
GROUP_BYTES = 56
RECORD_HEAD = struct.Struct("<IHBBIIQQ")        # crc, magic, kind, flags, length, queue, position, id
RECORD_MAGIC_NUMBER = 0x5A58
RECORD_MAGIC = RECORD_MAGIC_NUMBER.to_bytes(2, "little")
FIXED_BYTES_MAX = 168                           # of the records whose crc covers no text
U64 = struct.Struct("<Q")

_HEAD = struct.Struct("<8sIIIIQQQ12xI")


@dataclass(frozen=True, slots=True)
class Head:
    magic: bytes
    segment_bytes: int
    salt: int
    first: int
    number: int
    begin: int
    synced: int
    version: int = VERSION

    def packed(self) -> bytes:
        data = _HEAD.pack(self.magic, self.version, self.segment_bytes, self.salt, self.first, self.number, self.begin,
                          self.synced, 0)
        return data[:-4] + crc(data[:-4]).to_bytes(4, "little")

    @classmethod
    def read(cls, data: bytes, magic: bytes) -> Head | None:
        """None: there is none, or it is damaged."""
        if len(data) < HEAD_BYTES or data[:8] != magic or crc(data[:60]) != int.from_bytes(data[60:64], "little"):
            return None
        _, version, segment_bytes, salt, first, number, begin, synced, _ = _HEAD.unpack_from(data)
        return cls(magic, segment_bytes, salt, first, number, begin, synced, version)


class Segments:
    """Which segment lies in which slot, and what slots are free."""

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
        """What was released is still where it was, until the slot is taken: somebody may just be reading there."""
        self.first: dict[int, int | None] = {}
        """By segment: where its first group begins, None where that is not known."""
        self.largest: dict[int, int] = {}
        """By segment: bytes of the largest group that begins there, where that is more than an eighth of it."""
        self.free: list[int] = []
        """Slots, a heap: the lowest is taken first, so that those at the end of the file get empty."""
        self.released: list[int] = []
        """Slots of which a superblock may say that they are free when all is synced that was written until now."""
        self.resting: list[int] = []
        """Slots that are free when the superblock that says so is synced."""
        self.headless: list[int] = []
        """Segments whose heads are damaged."""
        self.damaged: list[str] = []
        """What else than records is damaged, for people."""
        self._copy = copy
        self._unsynced = False
        self._strange = set(range(slots))       # slots that may hold anything

    def at(self, slot: int) -> int:
        return SLOTS_AT + slot * self.segment_bytes

    # ---- opening

    @classmethod
    def load(cls, fd: int, path: str) -> Segments:
        """Reads superblocks and heads; changes nothing. StoreCorrupt."""
        size = os.fstat(fd).st_size
        raw = [os.pread(fd, HEAD_BYTES, at) for at in (0, COPY_AT)]
        heads = [Head.read(data, SUPERBLOCK) for data in raw]
        found = max((head for head in heads if head is not None), key=lambda head: head.number, default=None)
        if found is None:
            raise StoreCorrupt(_no_store(path, size, raw))
        if found.version != VERSION:
            raise StoreCorrupt(f"{path} is a ring store of version {found.version}; this Xump reads version {VERSION}: "
                               "open it with the one that made it")
        if size < SLOTS_AT:
            raise StoreCorrupt(_cut_off(path, size))
        slots = (size - SLOTS_AT) // found.segment_bytes
        # What a crash leaves of a file that grew is no slot, unless it has a head: then the file was cut.
        rest = Head.read(os.pread(fd, HEAD_BYTES, SLOTS_AT + slots * found.segment_bytes), SEGMENT)
        self = cls(fd, path, found, heads.index(found), slots + (rest is not None))
        if None in heads:
            self.damaged.append("one of the two superblocks")
        self._read_heads()
        return self

    def _read_heads(self) -> None:
        unknown, blank = [], []
        for slot in range(self.slots):
            data = os.pread(self.fd, HEAD_BYTES, self.at(slot))
            head = Head.read(data, SEGMENT)
            if head is not None and (head.salt, head.segment_bytes, head.version) == (self.salt, self.segment_bytes, VERSION):
                self._place(slot, head.number, head.first)
                self.begin, self.synced = max(self.begin, head.begin), max(self.synced, head.synced)
            elif data.strip(b"\0"):
                unknown.append(slot)
            else:
                blank.append(slot)
        self._find(unknown)
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

    def _place(self, slot: int, number: int, first: int) -> None:
        if number in self.slot_of:
            raise StoreCorrupt(f"{self.path} is damaged: segment {number} is in slot {self.slot_of[number]} and in slot {slot}; "
                               "restore it from a copy")
        self.former = {number: other for number, other in self.former.items() if other != slot}
        self.slot_of[number] = slot
        self.first[number] = None if first == NOWHERE else number * self.capacity + first

    def _place_headless(self, slot: int, number: int) -> None:
        self._place(slot, number, NOWHERE)
        self.headless.append(number)
        self.damaged.append(f"the head of segment {number}, at byte {self.at(slot)} of the file")

    def _find(self, slots: list[int]) -> None:
        """By the first record in each. What an earlier lap left there stands behind it."""
        for slot in slots:
            data = memoryview(os.pread(self.fd, self.segment_bytes, self.at(slot)))[HEAD_BYTES:]
            number = self._number_of(data)
            if number is not None and number >= self.begin // self.capacity:
                self._place_headless(slot, number)

    def _number_of(self, data: memoryview) -> int | None:
        raw, at = bytes(data), -1
        while (at := raw.find(RECORD_MAGIC, at + 1)) >= 0:
            start = at - 4
            if start >= 0 and start % 8 == 0 and start + RECORD_HEAD.size <= len(raw):
                position = int(RECORD_HEAD.unpack_from(raw, start)[6])
                if position % self.capacity == start and record_whole(data[start:], position, self.salt) in ("whole", "payload"):
                    return position // self.capacity
        return None

    def missing(self) -> list[int]:
        """Segments that must be there and are not."""
        first, last = self.begin // self.capacity, max((*self.slot_of, (self.synced - 1) // self.capacity))
        return [number for number in range(first, last + 1) if number not in self.slot_of]

    # ---- changing

    def append(self, group: memoryview, position: int, synced: int, ready: Callable[[], None]) -> None:
        """Writes a group at the end of the log. `ready` is called where a slot is needed: sees to it that one is free."""
        at, end = position, position + len(group)
        while group:
            number, offset = divmod(at, self.capacity)
            part = group[: self.capacity - offset]
            if number in self.slot_of:
                write_all(self.fd, part, self.at(self.slot_of[number]) + HEAD_BYTES + offset)
            else:
                ready()
                # Where the next group will begin, be it only where this one ends.
                first = 0 if at == position else end - number * self.capacity
                head = self._take(number, first if first < self.capacity else NOWHERE, synced)
                write_all(self.fd, head + part, self.at(self.slot_of[number]))
            group, at = group[len(part) :], at + len(part)
        if end - position > self.capacity >> 3:
            number = position // self.capacity
            self.largest[number] = max(end - position, self.largest.get(number, 0))

    def _take(self, number: int, first: int, synced: int) -> bytes:
        """The head of a new segment, which gets the lowest free slot."""
        slot = heapq.heappop(self.free)
        if slot in self._strange:
            self._strange.remove(slot)
            data = os.pread(self.fd, self.segment_bytes, self.at(slot))[HEAD_BYTES:]
            if next_record(data, number * self.capacity, self.salt) is not None:
                write_zeros(self.fd, self.at(slot), self.segment_bytes)
                sync(self.fd)
        self.former = {number: other for number, other in self.former.items() if other != slot}
        self.slot_of[number] = slot
        self.first[number] = None if first == NOWHERE else number * self.capacity + first
        return Head(SEGMENT, self.segment_bytes, self.salt, first, number, self.superblock.begin, synced).packed()

    def grow(self, count: int) -> None:
        """The file, by so many slots. OSError: nothing changed but the file, which may have got longer."""
        write_zeros(self.fd, self.at(self.slots), count * self.segment_bytes)
        for slot in range(self.slots, self.slots + count):
            heapq.heappush(self.free, slot)
        self.slots += count

    def mend_heads(self, synced: int) -> None:
        """Writes anew what is damaged. Where the first group begins is not known of such a segment."""
        for number in filter(self.slot_of.__contains__, self.headless):
            head = Head(SEGMENT, self.segment_bytes, self.salt, NOWHERE, number, self.begin, synced)
            write_all(self.fd, head.packed(), self.at(self.slot_of[number]))
        self.headless.clear()
        self.damaged.clear()

    def forget(self, number: int) -> int:
        self.first.pop(number, None)
        self.largest.pop(number, None)
        self.former[number] = self.slot_of[number]
        return self.slot_of.pop(number)

    def write_superblock(self, synced: int) -> None:
        """With the present `begin`: all that was written is synced. It is durable after the next sync."""
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
        """A piece of the log; zeros where it is not there."""
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
        """Up to where there are segments without a gap."""
        number = position // self.capacity
        while number in self.slot_of:
            number += 1
        return max(position, number * self.capacity)

    def groups(self, position: int) -> Generator[tuple[int, memoryview], None, tuple[int, str, int]]:
        """The log from a position where a group begins, as (position, whole groups), each verified; at the end: where the first
        group stands that is not whole, what is wrong, and at which position. A buffer is used before the next is asked for."""
        chunk = max(self.capacity >> 3, 1 << 13)
        buffer, kept, stop = memoryview(bytearray(chunk)), 0, self.reach(position)
        small = large = buffer
        while True:
            size = min(len(buffer), stop - position)
            self.read_into(buffer[kept:size], position + kept)
            used, _, state, failed = whole_groups(buffer[:size], position, self.salt)
            if used:
                yield position, buffer[:used]
            position += used
            if state in ("head", "payload") or (used == 0 and position + size == stop):
                return position, state if size else "cut", position if failed is None else failed
            kept = size - used
            left = buffer[used:size]
            if used == 0 and state == "cut":        # a group that is larger: its head is whole and says how large
                bytes_all = min(U64.unpack_from(left, 40)[0], stop - position)
                number = position // self.capacity
                self.largest[number] = max(self.largest.get(number, 0), bytes_all)
                if bytes_all > len(large):
                    large = memoryview(bytearray(bytes_all))
                buffer = large[:bytes_all]
            elif len(buffer) > chunk:
                buffer = small if kept <= chunk else memoryview(bytearray(kept))
            buffer[:kept] = left

    def behind(self, position: int) -> tuple[int, int]:
        """What else of this lap is there, from a position on where the whole groups end: where the last record ends that has a
        whole head, or the beginning of one behind it, and up to where a group says that the log was synced. O(bytes)."""
        last, synced = position, 0
        for start, view in self.lap(position):
            end, offset = min(self.capacity - start % self.capacity, len(view)), 0
            while offset < end and (found := next_record(view[offset:], start + offset, self.salt)) is not None:
                offset += found[0]
                if offset >= end:
                    break
                if view[offset + 6] == GROUP:
                    synced = max(synced, U64.unpack_from(view, offset + 48)[0])
                offset += found[2]
                last = start + offset
            at = last - start
            torn = 0 <= at <= len(view) - RECORD_HEAD.size and view[at + 4 : at + 6] == RECORD_MAGIC
            if torn and U64.unpack_from(view, at + 16)[0] == last:
                last += RECORD_HEAD.size        # the beginning of a head
        return last, synced

    def lap(self, position: int) -> Iterator[tuple[int, memoryview]]:
        """All segments from a position on, each with as much of the next as a record's head may reach into."""
        for number in sorted(number for number in self.slot_of if number >= position // self.capacity):
            start, end = max(position, number * self.capacity), (number + 1) * self.capacity
            yield start, self.read(start, end - start + (FIXED_BYTES_MAX if number + 1 in self.slot_of else 0))

    def first_group(self, data: memoryview, position: int, target: int) -> int:
        """In whole groups that stand at a position: the first that begins at or behind another one."""
        offset = 0
        while position + offset < target and offset < len(data):
            offset += U64.unpack_from(data, offset + 40)[0]
        return position + offset


def _cut_off(path: str, size: int) -> str:
    return f"{path} was cut off: it has {size} bytes, a ring store has more than {SLOTS_AT}; restore it from a copy"


def _no_store(path: str, size: int, raw: list[bytes]) -> str:
    if size == 0:
        return f"{path} is empty, no ring store; remove it to have one made there, or give another path"
    if any(data[:8] == SUPERBLOCK for data in raw):
        if size < SLOTS_AT:
            return _cut_off(path, size)
        return f"{path} is damaged: neither of its two superblocks is whole; run: xump repair {path}"
    return f"{path} is no ring store: it begins with {raw[0][:16]!r}; give another path"


def make(path: str, segment_bytes: int, slots: int, salt: int) -> int:
    """The descriptor of a new, empty ring, owned by this process, whole and synced, but for its name. An error leaves no file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        ring_lock.claim_made(fd, path)
        for number, at in enumerate((0, COPY_AT)):
            write_zeros(fd, at, COPY_AT)
            write_all(fd, Head(SUPERBLOCK, segment_bytes, salt, 0, number, 0, 0).packed(), at)
        write_zeros(fd, SLOTS_AT, slots * segment_bytes)
        sync(fd, size_too=True)
    except BaseException:
        os.unlink(path)
        ring_lock.give_up(fd)
        raise
    return fd
