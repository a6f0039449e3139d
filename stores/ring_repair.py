"""A ring that no process has open: checked, repaired, compacted.

Repairing and compacting write the log anew, from position 0 on, into PATH.repair, which then takes the place of PATH: so a
crash leaves the old file or the new one. A damaged record is left out: a group with fewer records is a group as good as any.
Lost is that record, which goes byte for byte into PATH.quarantine-N, and nothing else: what a lost head of a group told is seen
from what follows. A queue whose QUEUE record is lost gets one that says `recovered-` and its number, or its messages would
belong to nothing. """

from __future__ import annotations

import errno
import logging
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Self

from xump_ext.errors import StoreCorrupt, StoreFull
from xump_ext.records import NAMES, crc, describe, next_group, next_record, record_whole
from xump_ext.store import Damage, Report

from . import ring_lock
from .ring_disk import sync, sync_name, write_all
from .ring_segments import (
    COPY_AT,
    GROUP_BYTES,
    HEAD_BYTES,
    RECORD_HEAD,
    RECORD_MAGIC_NUMBER,
    SEGMENT,
    SLOTS_AT,
    SLOTS_MIN,
    SUPERBLOCK,
    U64,
    Head,
    Segments,
    make,
)

Progress = Callable[[int, int], None] | None
Record = memoryview | bytes
Piece = tuple[int, memoryview, list[Damage]]
"""Of the log: its position, whole records or what is left of some, and what of it is damaged."""

GROUP, QUEUE, GONE, STATE, ENTER, MARK, SETTLE = range(1, 8)
ENTER_HEAD_BYTES = 96       # which its crc covers; of all other records it covers all

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
        for what in log.damaged:
            report.damage.append(Damage(None, 0, 0, HEAD_BYTES, f"{what} is damaged; opening the store mends it"))
        if report.damage:
            for position, view, damage in walk(log, Report(), None):
                for record in records(view, position, damage):
                    _note_name(record, report)
        return report
    finally:
        ring_lock.give_up(fd)


def repair(path: str | os.PathLike[str], progress: Progress = None) -> Report:
    path, fd = claimed(path)
    try:
        log, report = _loaded(fd, path)
        lost: list[bytes] = []
        named: set[int] = set()
        used: set[int] = set()
        for position, view, damage in walk(log, report, progress):
            lost += [bytes(view[one.position - position : one.position - position + one.bytes]) for one in damage
                     if one.position is not None]
            for record in records(view, position, damage):
                _, _, kind, _, _, queue, _, _ = RECORD_HEAD.unpack_from(record)
                (named if kind in (QUEUE, GONE) else used).add(queue)
                _note_name(record, report)
        nameless = sorted(used - named - {0}) if lost else []
        report.damage += [Damage(None, queue, 0, 0, f"the name and properties of queue {queue} are lost; it is now called "
                                 f"'recovered-{queue}'") for queue in nameless]
        report.damage += [Damage(None, 0, 0, HEAD_BYTES, f"{what} was damaged and is mended") for what in log.damaged]
        if lost:
            report.quarantine = _quarantine(path, lost)
            _write_anew(log, _left(log, nameless))
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
        _write_anew(log, _live(log, live, first, last))
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


def _note_name(record: memoryview, report: Report) -> None:
    if record[6] == QUEUE:
        told = describe(record)
        report.queues[told["queue"]] = told["name"]


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


# ---- writing anew

def _left(log: Segments, nameless: list[int]) -> Iterator[tuple[int, list[Record]]]:
    """Groups, as (number, records), without what is damaged."""
    if nameless:
        yield 0, [_queue_record(number) for number in nameless]
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


def _queue_record(number: int) -> bytes:
    name = f"recovered-{number}".encode()
    text = name + bytes(-len(name) % 8)
    everything = 2**64 - 1      # no limit; and what was in its history stays there
    fixed = struct.pack("<QQIHH", everything, everything, 0, len(name), 65535)
    length = RECORD_HEAD.size + len(fixed) + len(text)
    return RECORD_HEAD.pack(0, RECORD_MAGIC_NUMBER, QUEUE, 0, length, number, 0, 0) + fixed + text


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


def _write_anew(log: Segments, groups: Iterable[tuple[int, list[Record]]]) -> None:
    """A file with these groups takes the place of the log's."""
    temporary = f"{log.path}.repair"
    if os.path.lexists(temporary):
        os.unlink(temporary)        # of a repair that crashed; nobody else makes one: the log is ours
    try:
        with _Copy(log, temporary) as copy:
            for number, group in groups:
                copy.group(number, group)
            copy.finish(os.fstat(log.fd))
        os.rename(temporary, log.path)
        sync_name(log.path)
    except OSError as error:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StoreFull(error.errno, f"{log.path} is written anew beside itself, for which the disk has no space; nothing was "
                        "changed") from error


class _Copy:
    """A new ring that is written from the beginning."""

    def __init__(self, log: Segments, path: str) -> None:
        self.fd = make(path, log.segment_bytes, SLOTS_MIN, log.salt)
        self.segments = Segments.load(self.fd, path)
        self.end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ring_lock.give_up(self.fd)

    def group(self, number: int, group: list[Record]) -> None:
        if not group:
            return
        data = bytearray(RECORD_HEAD.pack(0, RECORD_MAGIC_NUMBER, GROUP, 0, GROUP_BYTES, 0, 0, number))
        data += struct.pack("<QQQ", len(group), GROUP_BYTES + sum(map(len, group)), self.end)
        starts = [0]
        for record in group:
            starts.append(len(data))
            data += record
        view = memoryview(data)
        for start in starts:
            self._place(view[start:], self.end + start)
        self.segments.append(view, self.end, 0, self._ready)
        self.end += len(data)

    def _place(self, view: memoryview, position: int) -> None:
        """Gives a record its position, and the crc that goes with it."""
        U64.pack_into(view, 16, position)
        size = ENTER_HEAD_BYTES if view[6] == ENTER else RECORD_HEAD.unpack_from(view)[4]
        struct.pack_into("<I", view, 0, crc(view[4:size], self.segments.salt))

    def _ready(self) -> None:
        if not self.segments.free:
            self.segments.grow(1)

    def finish(self, like: os.stat_result) -> None:
        sync(self.fd, size_too=True)
        os.fchmod(self.fd, like.st_mode & 0o7777)
        made = os.fstat(self.fd)
        if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(self.fd, like.st_uid, like.st_gid)
        for _ in range(2):
            self.segments.write_superblock(self.end)
        sync(self.fd, size_too=True)


def _quarantine(path: str, lost: list[bytes]) -> str:
    number = 1
    while os.path.lexists(f"{path}.quarantine-{number}"):
        number += 1
    name = f"{path}.quarantine-{number}"
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, b"".join(lost), 0)
        sync(fd, size_too=True)
    except BaseException:
        os.unlink(name)
        raise
    finally:
        os.close(fd)
    sync_name(path)
    return name


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
