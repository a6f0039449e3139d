"""Looks after a ring that no process has open: check, repair, compact.

Repair and compact write the log anew (`ring_rewrite.py`). Repair leaves damaged records out: a group with fewer records is as
good a group as any. The damaged records go byte for byte into PATH.quarantine-N, and everything else stays: the records behind
the lost head of a group tell the same as the head did. A queue whose QUEUE record is lost gets one with the name `recovered-` and
its number, because its messages would belong to nothing otherwise. A lost record may have said of any message before it that it
was settled, processed or handed out. So each of those messages that would be ready gets a MARK that says redelivered.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from xump_ext.errors import StoreCorrupt
from xump_ext.records import kinds, next_group, next_record, record_whole
from xump_ext.records.kinds import NAMES
from xump_ext.recovery.salvage import Salvage, salvage_of
from xump_ext.store import Damage, Report

from .owner import Claim
from .ring_disk import sync, write_all
from .ring_file import COPY_AT, HEAD_BYTES, SEGMENT, SLOTS_AT, SUPERBLOCK, Head, claim_file, superblocks
from .ring_rewrite import Record, quarantine, write_anew
from .ring_segments import Segments

Progress = Callable[[int, int], None] | None
Piece = tuple[int, memoryview, list[Damage]]
"""A piece of the log: its position, its bytes (whole records, or the remains of some), and the damage in it."""

# What a MARK says behind its head (`mark_record_t`): the deliveries, the closing that tries the message again, and when.
MARK_FIELDS = struct.Struct("<IIq")
NEVER = (1 << 63) - 1

# Lengths of the records that tell how messages went on: SETTLE and MARK, GONE, STATE.
TELLING_BYTES = tuple(kinds.FIXED_BYTES[kind] for kind in (kinds.SETTLE, kinds.MARK, kinds.GONE, kinds.STATE))


def check(path: str | os.PathLike[str], progress: Progress = None) -> Report:
    """See `Backend.check`."""
    path, claim = claimed(path, shared=True)
    try:
        log = Segments.load(claim.fd, path)
        report = Report()
        for _ in walk(log, report, progress):
            pass
        if report.damage:
            count_remains(log, report)
        report.damage += [Damage(None, 0, 0, HEAD_BYTES, f"{what} is damaged", harmless=True) for what in log.damaged]
        return report
    finally:
        claim.release()


def repair(path: str | os.PathLike[str], progress: Progress = None) -> Report:
    """See `Backend.repair`."""
    path, claim = claimed(path)
    try:
        log, report = _loaded(claim.fd, path)
        lost: list[bytes] = []
        for position, view, damage in walk(log, report, progress):
            lost += [bytes(view[one.position - position : one.position - position + one.bytes]) for one in damage
                     if one.position is not None]
        salvage = count_remains(log, report) if lost else None
        nameless = [] if salvage is None else salvage.nameless()
        report.damage += [Damage(None, queue, 0, 0, f"the name and properties of queue {queue} are lost; it is now called "
                                 f"'recovered-{queue}'") for queue, _ in nameless]
        report.damage += [Damage(None, 0, 0, HEAD_BYTES, f"{what} was damaged and is mended") for what in log.damaged]
        if salvage is not None:
            report.quarantine = quarantine(path, lost)
            write_anew(log, _left(log, [record for _, record in nameless], [record for _, _, record in salvage.marks(0)]))
        elif log.damaged:
            log.mend_heads(log.synced)
            for _ in range(2):
                log.write_superblock(log.synced)
                sync(claim.fd)
                log.superblock_synced()
        return report
    finally:
        claim.release()


def compact(path: str | os.PathLike[str], progress: Progress = None) -> Report:
    """See `Backend.compact`."""
    path, claim = claimed(path)
    try:
        log, report = Segments.load(claim.fd, path), Report()
        kept, last = Kept({}, {}, {}, {}), 0
        for _, view, damage in walk(log, report, progress):
            if damage:
                raise StoreCorrupt(f"{path} is damaged: {damage[0].what}; run: xump repair {path}")
            last = _note(view, kept)
        write_anew(log, _live(log, kept, last))
        return report
    finally:
        claim.release()


def claimed(path: str | os.PathLike[str], *, shared: bool = False) -> tuple[str, Claim]:
    """The real path of a ring, and the claim on it. Raises as `claim_file`; StoreCorrupt where nothing is."""
    path = os.path.realpath(os.fspath(path))      # a new file takes the place of the file, not of a link to it
    try:
        return path, claim_file(path, shared=shared)
    except FileNotFoundError:
        raise StoreCorrupt(f"there is no ring store at {path}, nor anything else; give the path of its file") from None


# ---- reading

def walk(log: Segments, report: Report, progress: Progress) -> Iterator[Piece]:
    """Yields the whole log, group by group where something is damaged, and counts into the report."""
    position, evidence, size = log.begin, log.synced, max(1, len(log.slot_of) * log.capacity)
    while True:
        reader = log.groups(position)
        while True:
            try:
                position, view = next(reader)
            except StopIteration as stop:
                position, _, _ = stop.value
                break
            report.bytes += len(view)
            report.records += _count(view)
            if progress is not None:
                progress(min(position + len(view) - log.begin, size), size)
            yield position, view, []
        if evidence <= position:
            last, synced = log.behind(position)
            evidence = max(evidence, synced)
            if evidence <= position:
                report.cut = last - position
                break
        view, damage = _salvaged(log, position, evidence)
        report.damage += damage
        left = sum(1 for _ in records(view, position, damage))
        report.records += left
        report.bytes += len(view) - sum(one.bytes for one in damage)
        yield position, view, damage
        position += len(view)
    if progress is not None:
        progress(size, size)


def _count(view: memoryview) -> int:
    """How many records, without the heads of groups, are in groups, or in the rest of one."""
    count = at = 0
    while at < len(view):
        if view[at + kinds.KIND_AT] == kinds.GROUP:
            count += kinds.U64.unpack_from(view, at + kinds.COUNT_AT)[0]
            at += kinds.U64.unpack_from(view, at + kinds.GROUP_SIZE_AT)[0]
        else:
            count += 1
            at += kinds.HEAD.unpack_from(view, at)[4]
    return int(count)


def _salvaged(log: Segments, position: int, known: int) -> tuple[memoryview, list[Damage]]:
    """A group that is not whole, and the damage in it. Its head says where it ends; else it ends where the next one begins."""
    head = log.read(position, kinds.GROUP_BYTES)
    if record_whole(head, position, log.salt) == "whole" and head[kinds.KIND_AT] == kinds.GROUP:
        size, at = kinds.U64.unpack_from(head, kinds.GROUP_SIZE_AT)[0], kinds.GROUP_BYTES
    else:
        size, at = _next_group(log, position + 8, known) - position, 0
    view, damage = log.read(position, size), []
    while at < size:
        state = record_whole(view[at:], position + at, log.salt)
        if state == "whole":
            at += kinds.HEAD.unpack_from(view, at)[4]
            continue
        where = f"at position {position + at}, {_place(log, position + at)}"
        if state == "payload":
            _, _, kind, _, length, queue, _, id = kinds.HEAD.unpack_from(view, at)
            what = f"{NAMES[kind]} of message {id} in queue {queue}: its payload is damaged"
            damage.append(Damage(position + at, queue, id, length, f"{what}, {where}"))
        else:
            found = next_record(view[at + 8 :], position + at + 8, log.salt)
            length = size - at if found is None else 8 + found[0]
            what = "the head of a group" if at == 0 and length == kinds.GROUP_BYTES else "a record with a damaged head"
            damage.append(Damage(position + at, 0, 0, length, f"{what}, {where}"))
        at += length
    return view, damage


def _place(log: Segments, position: int) -> str:
    number, offset = divmod(position, log.capacity)
    if number not in log.slot_of:
        return f"in segment {number}, which is missing"
    return f"in segment {number}, byte {log.at(log.slot_of[number]) + HEAD_BYTES + offset} of the file"


def _next_group(log: Segments, position: int, known: int) -> int:
    for start, view in log.lap(position):
        found = next_group(view, start, log.salt)
        if found is not None:
            return min(start + found[0], known)
    return known


def records(view: memoryview, position: int, damage: Iterable[Damage]) -> Iterator[memoryview]:
    """Yields the whole records, without the heads of groups."""
    skipped = {one.position: one.bytes for one in damage}
    at = 0
    while at < len(view):
        if position + at in skipped:
            at += skipped[position + at]
            continue
        length = kinds.HEAD.unpack_from(view, at)[4]
        if view[at + kinds.KIND_AT] != kinds.GROUP:
            yield view[at : at + length]
        at += length


# ---- counting the remains

def count_remains(log: Segments, report: Report) -> Salvage:
    """Reads all whole records as opening does, and reports the remains of each queue."""
    salvage, blind = salvage_of(log.path, log.salt), 0
    for position, view, damage in walk(log, Report(), None):
        salvage.feed(b"".join(records(view, position, damage)) if damage else view)
        if damage:
            missing = _missing(view, position, damage)
            blind = max(blind, _blind(position, damage, missing))
            report.lost += len(damage) if missing is None else missing
    for number in salvage.numbers():
        salvage.doubt(number, before=blind, state=True)
    report.remains = salvage.remains()
    nameless = {number for number, _ in salvage.nameless()}
    report.queues = {number: left.name for number, left in report.remains.items() if number not in nameless}
    return salvage


def _missing(view: memoryview, position: int, damage: list[Damage]) -> int | None:
    """How many records of a group are not whole. None: the head is not, so the number of records is unknown."""
    if damage[0].position == position or view[kinds.KIND_AT] != kinds.GROUP:
        return None
    return int(kinds.U64.unpack_from(view, kinds.COUNT_AT)[0]) - sum(1 for _ in records(view, position, damage))


def _blind(position: int, damage: list[Damage], missing: int | None) -> int:
    """Where in a group the last damage ends that may have said something of messages before it; 0: there is none."""
    unknown = [one for one in damage if not one.queue and (one.position, one.bytes) != (position, kinds.GROUP_BYTES)]
    if missing == len(damage):      # each piece of damage is one record, of the same length
        unknown = [one for one in unknown if one.bytes in TELLING_BYTES]
    return max(((one.position or 0) + one.bytes for one in unknown), default=0)


# ---- writing anew

def _left(log: Segments, names: list[bytes], marks: list[bytes]) -> Iterator[tuple[int, list[Record]]]:
    """Yields groups as (number, records), without the damage: first the names of queues, last the marks."""
    yield 0, list(names)
    number = 0
    for position, view, damage in walk(log, Report(), None):
        if damage:
            whole = damage[0].position != position and view[kinds.KIND_AT] == kinds.GROUP
            number = kinds.U64.unpack_from(view, kinds.ID_AT)[0] if whole else number + 1
            yield number, list(records(view, position, damage))
            continue
        at = 0
        if view[kinds.KIND_AT] != kinds.GROUP:      # the rest of a group
            number, at = number + 1, len(view)
            yield number, list(records(view, position, ()))
        while at < len(view):
            size = kinds.U64.unpack_from(view, at + kinds.GROUP_SIZE_AT)[0]
            number = kinds.U64.unpack_from(view, at + kinds.ID_AT)[0]
            yield number, list(records(view[at : at + size], position + at, ()))
            at += size
    few = max(1, (log.capacity >> 4) // len(marks[0])) if marks else 1
    for first in range(0, len(marks), few):
        number += 1
        yield number, list(marks[first : first + few])


class Mark(NamedTuple):
    """A MARK, and all that it says of its message."""

    position: int
    flags: int
    delivery_count: int
    closing: int
    due: int

    def within(self, newer: Mark) -> bool:
        """Whether a MARK behind this one says all that this one does."""
        return (self.flags & ~newer.flags == 0 and self.delivery_count <= newer.delivery_count
                and (self.due == NEVER or (self.closing == newer.closing and newer.due != NEVER)))


class Kept(NamedTuple):
    """The records that a compacted log keeps."""

    live: dict[tuple[int, int, int], int]
    """Where the ENTER and SEEN of each kind, queue and id is."""
    marks: dict[tuple[int, int], list[Mark]]
    """By queue and id: the MARKs of a message that say something which no other one says."""
    first: dict[tuple[int, int, int], bytes]
    """The QUEUE, STATE, META and ADOPT records."""
    forgotten: dict[int, int]
    """By queue: its SEENs up to this id are gone."""


def _note(view: memoryview, kept: Kept) -> int:
    """Follows the log, and notes what is still needed. Returns the last group's number."""
    live, marks, first, forgotten = kept
    at, number, end = 0, 0, len(view)       # the rest of a group ends with the view
    gone: list[tuple[int, int, bool]] = []
    while at < len(view):
        _, _, kind, flags, length, queue, position, id = kinds.HEAD.unpack_from(view, at)
        if kind == kinds.GROUP:
            number, end = id, at + kinds.U64.unpack_from(view, at + kinds.GROUP_SIZE_AT)[0]
        elif kind in (kinds.ENTER, kinds.SEEN):
            live[kind, queue, id] = position
        elif kind == kinds.MARK:
            said = MARK_FIELDS.unpack_from(view, at + kinds.HEAD.size)
            _note_mark(marks.setdefault((queue, id), []), Mark(position, flags, *said))
        elif kind in (kinds.QUEUE, kinds.STATE):
            first[kind, queue, 0] = bytes(view[at : at + length])
        elif kind in (kinds.META, kinds.ADOPT):
            before = first.get((kind, queue, 0))
            if before is None or id >= kinds.U64.unpack_from(before, kinds.ID_AT)[0]:
                first[kind, queue, 0] = bytes(view[at : at + length])
        elif kind == kinds.SETTLE:
            gone += [(queue, one, flags & kinds.MARKED != 0) for one in range(
                id, id + kinds.U64.unpack_from(view, at + kinds.COUNT_AT)[0])]
        elif kind == kinds.FORGET:
            forgotten[queue] = max(id, forgotten.get(queue, 0))
        elif kind == kinds.GONE:
            first.pop((kinds.QUEUE, queue, 0), None)
            first.pop((kinds.STATE, queue, 0), None)
            first.pop((kinds.META, queue, 0), None)
            first.pop((kinds.ADOPT, queue, 0), None)
            forgotten[queue] = kinds.UNLIMITED
        at += length
        if at == end:       # in a group, SETTLEs take effect last
            for queue, id, marked in gone:
                live.pop((kinds.ENTER, queue, id), None)
                if marked:
                    marks.pop((queue, id), None)
            gone.clear()
    return number


def _note_mark(noted: list[Mark], mark: Mark) -> None:
    """Recovery takes nothing back that any MARK of a message said: one that was copied forward stands behind newer ones. So all
    stay that say something of their own; most often that is the last one."""
    noted[:] = [one for one in noted if not one.within(mark)]
    if mark.due != NEVER or not any(mark.within(one) for one in noted):
        noted.append(mark)


def _live(log: Segments, kept: Kept, number: int) -> Iterator[tuple[int, list[Record]]]:
    group: list[Record] = [kept.first[key] for key in sorted(kept.first)]
    size = 0
    for position, view, _ in walk(log, Report(), None):
        for record in records(view, position, ()):
            _, _, kind, _, length, queue, at, id = kinds.HEAD.unpack_from(record)
            if kind == kinds.SEEN and id <= kept.forgotten.get(queue, 0):
                continue
            if kept.live.get((kind, queue, id)) == at or (
                    kind == kinds.MARK and any(mark.position == at for mark in kept.marks.get((queue, id), ()))):
                group.append(bytes(record))
                size += length
            if size > log.capacity >> 4:
                number += 1
                yield number, group
                group, size = [], 0
    yield number + 1, group


def _loaded(fd: int, path: str) -> tuple[Segments, Report]:
    """Loads the log even where both superblocks are damaged: the head of the first segment says the same."""
    raw = superblocks(fd)
    head = Head.read(os.pread(fd, HEAD_BYTES, SLOTS_AT), SEGMENT)
    report = Report()
    ours = any(data[:8] == SUPERBLOCK for data in raw)
    if ours and head is not None and all(Head.read(data, SUPERBLOCK) is None for data in raw):
        made = Head(SUPERBLOCK, head.segment_bytes, head.salt, 0, head.begin, head.synced)
        for at in (0, COPY_AT):
            write_all(fd, made.packed(), at)
        sync(fd)
        what = "both superblocks were damaged; they were made anew from the head of a segment"
        report.damage.append(Damage(None, 0, 0, 2 * HEAD_BYTES, what))
    return Segments.load(fd, path), report
