"""A ring that no process has open: checked, repaired, compacted.

Repairing and compacting write the log anew (`ring_rewrite.py`). A damaged record is left out: a group with fewer records is a
group as good as any. Lost is that record, which goes byte for byte into PATH.quarantine-N, and nothing else: what a lost head of
a group told is seen from what follows. A queue whose QUEUE record is lost gets one that says `recovered-` and its number, or its
messages would belong to nothing. What was lost may have said of any message before it that it was settled, processed or handed
out: each that would be ready gets a MARK that says redelivered. """

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator

from xump_ext.census import Census, census_of
from xump_ext.errors import StoreCorrupt
from xump_ext.records import NAMES, next_group, next_record, record_whole
from xump_ext.store import Damage, Report

from . import ring_lock
from .ring_disk import sync, write_all
from .ring_rewrite import Record, quarantine, write_anew
from .ring_segments import COPY_AT, GROUP_BYTES, HEAD_BYTES, RECORD_HEAD, SEGMENT, SLOTS_AT, SUPERBLOCK, U64, Head, Segments

Progress = Callable[[int, int], None] | None
Piece = tuple[int, memoryview, list[Damage]]
"""Of the log: its position, whole records or what is left of some, and what of it is damaged."""

GROUP, QUEUE, GONE, STATE, ENTER, MARK, SETTLE = range(1, 8)
# How long records are that say what became of messages: SETTLE and MARK, GONE, STATE.
TELLING_BYTES = (40, 32, 168)

logger = logging.getLogger("xump")


def recognises(path: str | os.PathLike[str]) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb", buffering=0) as file:
        return any(os.pread(file.fileno(), len(SUPERBLOCK), at) == SUPERBLOCK for at in (0, COPY_AT))


def check(path: str | os.PathLike[str], progress: Progress = None) -> Report:
    path, fd = claimed(path, shared=True)
    try:
        log = Segments.load(fd, path)
        report = Report()
        for _ in walk(log, report, progress):
            pass
        if report.damage:
            count_remains(log, report)
        report.damage += [Damage(None, 0, 0, HEAD_BYTES, f"{what} is damaged", harmless=True) for what in log.damaged]
        return report
    finally:
        ring_lock.give_up(fd)


def repair(path: str | os.PathLike[str], progress: Progress = None) -> Report:
    path, fd = claimed(path)
    try:
        log, report = _loaded(fd, path)
        lost: list[bytes] = []
        for position, view, damage in walk(log, report, progress):
            lost += [bytes(view[one.position - position : one.position - position + one.bytes]) for one in damage
                     if one.position is not None]
        census = count_remains(log, report) if lost else None
        nameless = [] if census is None else census.nameless()
        report.damage += [Damage(None, queue, 0, 0, f"the name and properties of queue {queue} are lost; it is now called "
                                 f"'recovered-{queue}'") for queue, _ in nameless]
        report.damage += [Damage(None, 0, 0, HEAD_BYTES, f"{what} was damaged and is mended") for what in log.damaged]
        if census is not None:
            report.quarantine = quarantine(path, lost)
            write_anew(log, _left(log, [record for _, record in nameless], [record for _, _, record in census.marks(0)]))
        elif log.damaged:
            log.mend_heads(log.synced)
            for _ in range(2):
                log.write_superblock(log.synced)
                sync(fd)
                log.superblock_synced()
        return report
    finally:
        ring_lock.give_up(fd)


def compact(path: str | os.PathLike[str], progress: Progress = None) -> Report:
    path, fd = claimed(path)
    try:
        log, report = Segments.load(fd, path), Report()
        live: dict[tuple[int, int, int], int] = {}
        first: dict[tuple[int, int, int], bytes] = {}
        last = 0
        for _, view, damage in walk(log, report, progress):
            if damage:
                raise StoreCorrupt(f"{path} is damaged: {damage[0].what}; run: xump repair {path}")
            last = _note(view, live, first)
        write_anew(log, _live(log, live, first, last))
        return report
    finally:
        ring_lock.give_up(fd)


def claimed(path: str | os.PathLike[str], *, shared: bool = False) -> tuple[str, int]:
    path = os.path.realpath(os.fspath(path))      # a new file takes the place of the file, not of a link to it
    try:
        return path, ring_lock.claim(path, shared=shared)
    except FileNotFoundError:
        raise StoreCorrupt(f"there is no ring store at {path}, nor anything else; give the path of its file") from None


# ---- reading

def walk(log: Segments, report: Report, progress: Progress) -> Iterator[Piece]:
    """The whole log, group by group where something is damaged; what is found goes into the report, too."""
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
    count = at = 0
    while at < len(view):
        count += U64.unpack_from(view, at + 32)[0]
        at += U64.unpack_from(view, at + 40)[0]
    return int(count)


def _salvaged(log: Segments, position: int, known: int) -> tuple[memoryview, list[Damage]]:
    """A group that is not whole, and what of it is damaged. It ends where it says so, or where the next one begins."""
    head = log.read(position, GROUP_BYTES)
    if record_whole(head, position, log.salt) == "whole" and head[6] == GROUP:
        size, at = U64.unpack_from(head, 40)[0], GROUP_BYTES
    else:
        size, at = _next_group(log, position + 8, known) - position, 0
    view, damage = log.read(position, size), []
    while at < size:
        state = record_whole(view[at:], position + at, log.salt)
        if state == "whole":
            at += RECORD_HEAD.unpack_from(view, at)[4]
            continue
        where = f"at position {position + at}, {_place(log, position + at)}"
        if state == "payload":
            _, _, kind, _, length, queue, _, id = RECORD_HEAD.unpack_from(view, at)
            what = f"{NAMES[kind]} of message {id} in queue {queue}: its payload is damaged"
            damage.append(Damage(position + at, queue, id, length, f"{what}, {where}"))
        else:
            found = next_record(view[at + 8 :], position + at + 8, log.salt)
            length = size - at if found is None else 8 + found[0]
            what = "the head of a group" if at == 0 and length == GROUP_BYTES else "a record with a damaged head"
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
    """Those that are whole, without the heads of groups."""
    skipped = {one.position: one.bytes for one in damage}
    at = 0
    while at < len(view):
        if position + at in skipped:
            at += skipped[position + at]
            continue
        length = RECORD_HEAD.unpack_from(view, at)[4]
        if view[at + 6] != GROUP:
            yield view[at : at + length]
        at += length


# ---- what is left

def count_remains(log: Segments, report: Report) -> Census:
    """All records that are whole, read as when the store is opened; what is left of each queue goes into the report."""
    census, blind = census_of(log.path, log.salt), 0
    for position, view, damage in walk(log, Report(), None):
        census.feed(b"".join(records(view, position, damage)) if damage else view)
        if damage:
            missing = _missing(view, position, damage)
            blind = max(blind, _blind(position, damage, missing))
            report.lost += len(damage) if missing is None else missing
    for number in census.numbers():
        census.doubt(number, before=blind, state=True)
    report.remains = census.remains()
    nameless = {number for number, _ in census.nameless()}
    report.queues = {number: left.name for number, left in report.remains.items() if number not in nameless}
    return census


def _missing(view: memoryview, position: int, damage: list[Damage]) -> int | None:
    """How many records of a group are not whole; None: its head, which says how many it has, is not."""
    if damage[0].position == position or view[6] != GROUP:
        return None
    return int(U64.unpack_from(view, 32)[0]) - sum(1 for _ in records(view, position, damage))


def _blind(position: int, damage: list[Damage], missing: int | None) -> int:
    """Where in a group the last damage ends of which it is not known that it said nothing of messages before it; 0: nowhere."""
    unknown = [one for one in damage if not one.queue and (one.position, one.bytes) != (position, GROUP_BYTES)]
    if missing == len(damage):      # each of them is one record, as long as what is damaged
        unknown = [one for one in unknown if one.bytes in TELLING_BYTES]
    return max(((one.position or 0) + one.bytes for one in unknown), default=0)


# ---- writing anew

def _left(log: Segments, names: list[bytes], marks: list[bytes]) -> Iterator[tuple[int, list[Record]]]:
    """Groups, as (number, records), without what is damaged; names of queues before, and marks behind them."""
    yield 0, list(names)
    number = 0
    for position, view, damage in walk(log, Report(), None):
        if damage:
            whole = damage[0].position != position and view[6] == GROUP
            number = U64.unpack_from(view, 24)[0] if whole else number + 1
            yield number, list(records(view, position, damage))
            continue
        at = 0
        while at < len(view):
            size = U64.unpack_from(view, at + 40)[0]
            number = U64.unpack_from(view, at + 24)[0]
            yield number, list(records(view[at : at + size], position + at, ()))
            at += size
    few = max(1, (log.capacity >> 4) // len(marks[0])) if marks else 1
    for first in range(0, len(marks), few):
        number += 1
        yield number, list(marks[first : first + few])


def _note(view: memoryview, live: dict[tuple[int, int, int], int], first: dict[tuple[int, int, int], bytes]) -> int:
    """Follows the log: where the live ENTER and MARK records are, and what the live QUEUE and STATE records are. The last group's
    number."""
    at, number, end = 0, 0, 0
    gone: list[tuple[int, int, int]] = []
    while at < len(view):
        _, _, kind, flags, length, queue, position, id = RECORD_HEAD.unpack_from(view, at)
        if kind == GROUP:
            number, end = id, at + U64.unpack_from(view, at + 40)[0]
        elif kind in (ENTER, MARK):
            live[kind, queue, id] = position
        elif kind in (QUEUE, STATE):
            first[kind, queue, 0] = bytes(view[at : at + length])
        elif kind == SETTLE:
            kinds = (ENTER, MARK) if flags & 1 else (ENTER,)
            gone += [(of, queue, one) for one in range(id, id + U64.unpack_from(view, at + 32)[0]) for of in kinds]
        elif kind == GONE:
            first.pop((QUEUE, queue, 0), None)
            first.pop((STATE, queue, 0), None)
        at += length
        if at == end:       # SETTLEs count after all else
            for key in gone:
                live.pop(key, None)
            gone.clear()
    return number


def _live(log: Segments, live: dict[tuple[int, int, int], int], first: dict[tuple[int, int, int], bytes],
          number: int) -> Iterator[tuple[int, list[Record]]]:
    group: list[Record] = [first[key] for key in sorted(first)]
    size = 0
    for position, view, _ in walk(log, Report(), None):
        for record in records(view, position, ()):
            _, _, kind, _, length, queue, at, id = RECORD_HEAD.unpack_from(record)
            if live.get((kind, queue, id)) == at:
                group.append(bytes(record))
                size += length
            if size > log.capacity >> 4:
                number += 1
                yield number, group
                group, size = [], 0
    yield number + 1, group


def _loaded(fd: int, path: str) -> tuple[Segments, Report]:
    """Also where both superblocks are damaged: the head of the first segment says the same."""
    raw = [os.pread(fd, HEAD_BYTES, at) for at in (0, COPY_AT)]
    head = Head.read(os.pread(fd, HEAD_BYTES, SLOTS_AT), SEGMENT)
    report = Report()
    ours = any(data[:8] == SUPERBLOCK for data in raw)
    if ours and head is not None and all(Head.read(data, SUPERBLOCK) is None for data in raw):
        made = Head(SUPERBLOCK, head.segment_bytes, head.salt, 0, 0, head.begin, head.synced)
        for at in (0, COPY_AT):
            write_all(fd, made.packed(), at)
        sync(fd)
        what = "both superblocks were damaged; they were made anew from the head of a segment"
        report.damage.append(Damage(None, 0, 0, 2 * HEAD_BYTES, what))
    return Segments.load(fd, path), report
