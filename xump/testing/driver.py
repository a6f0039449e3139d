"""The parts with which the conformance suite drives a store: a driver in place of the engine, a model, programs at random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from xump.testing import records_by_hand as hand
from xump_ext.records import kinds, record_whole
from xump_ext.store import Demand

CARRIED_MAX = 1000


def records_in(data: Any, salt: int) -> Iterator[tuple[int, int, int, int, bytes]]:
    """(kind, flags, queue, id, record) of whole records one behind the other; each is verified."""
    data = bytes(data)
    at = 0
    while at < len(data):
        assert len(data) - at >= kinds.HEAD.size, f"{len(data) - at} bytes behind the last record"
        _, _, kind, flags, length, queue, position, id = kinds.HEAD.unpack_from(data, at)
        record = data[at : at + length]
        state = record_whole(record, position, salt)
        assert state == "whole", f"the record at byte {at} is not whole: {state}"
        yield kind, flags, queue, id, record
        at += length


def position_of(record: bytes) -> int:
    position: int = kinds.HEAD.unpack_from(record)[6]
    return position


def content(record: bytes) -> bytes:
    """The meaning of a record, wherever in the log it stands."""
    return record[4:16] + record[24:]


class Model:
    """The contents of a store: records by their subject, applied one by one. `lenient`: some may have been lost."""

    def __init__(self, salt: int, lenient: bool = False) -> None:
        self.salt, self.lenient = salt, lenient
        self.queues: dict[int, bytes] = {}
        self.states: dict[int, bytes] = {}
        self.entries: dict[tuple[int, int], bytes] = {}
        self.marks: dict[tuple[int, int], bytes] = {}

    def apply(self, data: Any) -> None:
        """Records in an order in which they may be applied."""
        for kind, _, queue, id, record in records_in(data, self.salt):
            if kind == kinds.QUEUE:
                self.queues[queue] = record
            elif kind in (kinds.STATE, kinds.ENTER, kinds.MARK):
                if kind == kinds.STATE:
                    self.states[queue] = record
                elif kind == kinds.ENTER:
                    self.entries[queue, id] = record
                else:
                    self.marks[queue, id] = record
            elif kind == kinds.SETTLE:
                for gone in range(id, id + kinds.U64.unpack_from(record, kinds.HEAD.size)[0]):
                    self.entries.pop((queue, gone), None)
                    self.marks.pop((queue, gone), None)
            elif kind == kinds.GONE:
                self.queues.pop(queue, None)
                self.states.pop(queue, None)

    def check_queues(self) -> None:
        """Each record belongs to a queue. Its record may stand behind, where it was carried forward."""
        for queue in (*self.states, *(queue for queue, _ in self.entries)):
            assert self.lenient or queue in self.queues, f"there are records of queue {queue}, and no queue"

    def group(self, data: bytes) -> None:
        """A group: what it settles counts after all else."""
        found = list(records_in(data, self.salt))
        for late in (False, True):
            self.apply(b"".join(record for kind, _, _, _, record in found if (kind in (kinds.SETTLE, kinds.GONE)) == late))

    def live(self, kind: int, queue: int, id: int) -> bytes | None:
        """The newest record of its kind, or None."""
        if kind in (kinds.QUEUE, kinds.STATE):
            return (self.queues if kind == kinds.QUEUE else self.states).get(queue)
        return (self.entries if kind == kinds.ENTER else self.marks if kind == kinds.MARK else {}).get((queue, id))

    def live_bytes(self) -> int:
        """Of the live records."""
        return sum(len(record) for part in (self.queues, self.states, self.entries, self.marks) for record in part.values())

    def largest_bytes(self) -> int:
        """The size of the largest live message."""
        return max(map(len, self.entries.values()), default=0)

    def says(self) -> dict[Any, bytes]:
        """To be compared. A mark of what is gone says nothing."""
        said: dict[Any, bytes] = {}
        for name, part in (("queue", self.queues), ("state", self.states), ("entry", self.entries), ("mark", self.marks)):
            said |= {(name, key): content(record) for key, record in part.items() if name != "mark" or key in self.entries}
        return said


class Driver:
    """Uses an open store as the engine does, and knows what should be in it."""

    def __init__(self, store: Any, lenient: bool = False) -> None:
        self.store = store
        self.model = Model(store.salt, lenient)
        self.scanned = 0
        for _, data in store.scan():
            self.model.apply(data)
            self.scanned += len(bytes(data))
        self.model.check_queues()
        assert store.end >= 0 and store.end % 8 == 0, f"end is {store.end}"
        self.log = hand.Log(store.salt, store.end)
        self.carried = 0
        self.copied_bytes = 0

    def room(self, largest: int = 0) -> int:
        """The room that the engine gives to publishes, if the largest message among them takes so many bytes."""
        largest = 2 * max(largest, self.model.largest_bytes())
        kept: int = getattr(self.store, "kept_bytes", 0) + largest
        room: int = self.store.room()
        return max(0, room - kept - (largest if getattr(self.store, "copies_forward", False) else 0))

    def batch(self, *records: hand.Record) -> hand.Batch:
        return hand.batch(self.log, *records)

    def write(self, *records: hand.Record) -> None:
        """One group; and what the store wants to have moved."""
        self._write(self.batch(*records))
        for _ in range(CARRIED_MAX):
            oldest = self.store.oldest(Demand(0, self.model.live_bytes(), self.model.largest_bytes(), self.copied_bytes))
            if oldest is None:
                return
            self._copy_forward(*oldest)
        raise AssertionError(f"oldest() gave records to copy forward {CARRIED_MAX} times in a row, and made no room")

    def _write(self, batch: hand.Batch) -> None:
        self.store.write(batch)
        self.model.group(batch)

    def _copy_forward(self, begin: int, end: int, data: Any) -> None:
        """Writes what is live once more, and gives the place free when that is durable."""
        assert begin < end <= self.log.end, f"oldest() gave {begin} to {end}; the log ends at {self.log.end}"
        live = [record for kind, _, queue, id, record in records_in(data, self.model.salt)
                if self.model.live(kind, queue, id) == record]
        if live:
            self._write(self.batch(*map(hand.unpacked, live)))
        self.copied_bytes += sum(map(len, live))
        self.sync()
        self.store.release(end)
        self.carried += 1

    def sync(self) -> None:
        self.store.sync()
        self.log.synced = self.log.end

    def fetch(self, queue: int, id: int) -> list[tuple[int, int, bytes]]:
        """(queue, id, record) of what came: the one asked for first."""
        expected = self.model.entries.get((queue, id))
        position = 0 if expected is None else position_of(expected)
        found, data = self.store.fetch(queue, id, position)
        came = [(of, number, record) for kind, _, of, number, record in records_in(data, self.model.salt) if kind == kinds.ENTER]
        assert came[0][:2] == (queue, id), f"asked for {queue}, {id}, got {came[0][:2]}"
        assert found == position_of(came[0][2]), f"fetch gave position {found}, the record has another"
        return came

    def check_fetches(self, of: list[tuple[int, int]] | None = None) -> None:
        """Every live message can be fetched; what comes along is live, or was."""
        for queue, id in sorted(self.model.entries) if of is None else of:
            came = self.fetch(queue, id)
            same(content(came[0][2]), content(self.model.entries[queue, id]), f"message {id} of queue {queue}")
            for number, following, record in came[1:]:
                live = self.model.entries.get((number, following))
                assert live is None or content(live) == content(record), f"{following} of queue {number} came along changed"


def same(got: Any, expected: Any, what: str) -> None:
    if got == expected:
        return
    if isinstance(got, dict) and isinstance(expected, dict):
        more, less = sorted(map(str, got.keys() - expected.keys())), sorted(map(str, expected.keys() - got.keys()))
        other = sorted(str(key) for key in got.keys() & expected.keys() if got[key] != expected[key])
        raise AssertionError(f"{what}: too much {more[:5]}, missing {less[:5]}, other {other[:5]}")
    raise AssertionError(f"{what}: got {str(got)[:200]}, expected {str(expected)[:200]}")


class Program:
    """Groups at random that an engine might write."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.numbers = 0
        self.live: dict[int, list[int]] = {}
        self.next_id: dict[int, int] = {}
        self.marked: set[tuple[int, int]] = set()

    def group(self) -> list[hand.Record]:
        early: list[hand.Record] = []
        late: list[hand.Record] = []
        for _ in range(self.choose.randrange(1, 12)):
            queue = self.choose.choice(list(self.live)) if self.live else 0
            what = self.choose.random()
            if not queue or (what < 0.05 and len(self.live) < 12):
                self.create(early)
            elif what < 0.06:
                late += [*self.runs(queue, len(self.live[queue])), hand.gone(queue)]
                del self.live[queue]
            elif what < 0.55:
                self.enter(queue, early)
            elif what < 0.7 and self.live[queue]:
                id = self.choose.choice(self.live[queue])
                flags = self.choose.choice((0, kinds.REDELIVERED, kinds.HISTORIC))
                early.append(hand.mark(queue, id, self.choose.randrange(9), flags))
                self.marked.add((queue, id))
            elif what < 0.8:
                early.append(hand.state(queue, self.next_id[queue], settled=self.choose.randrange(1000)))
            else:
                late += self.runs(queue, self.choose.choice((0, 1, 1, 2, 30)))
        return early + late

    def create(self, early: list[hand.Record]) -> None:
        self.numbers += 1
        limit = self.choose.choice((None, 5))
        early += [hand.queue(self.numbers, f"queue {self.numbers} é", limit=limit), hand.state(self.numbers, 1)]
        self.live[self.numbers], self.next_id[self.numbers] = [], 1

    def enter(self, queue: int, early: list[hand.Record]) -> None:
        for _ in range(self.choose.choice((1, 1, 2, 40))):
            id = self.next_id[queue] + self.choose.choice((0, 0, 0, 5))
            sizes = (0, 10, 200, 200, 3000, 5000, 70_000) if self.choose.random() < 0.2 else (0, 10, 100)
            body, name = self.choose.randbytes(self.choose.choice(sizes)), self.choose.choice((None, "", "id"))
            early.append(hand.enter(queue, id, f"address.{id}", body, message_id=name, timestamp=id))
            self.live[queue].append(id)
            self.next_id[queue] = id + 1

    def runs(self, queue: int, count: int) -> list[hand.Record]:
        """Settles the oldest, or some in the middle, by runs of ids that follow each other."""
        ids = self.live[queue]
        start = self.choose.choice((0, 0, self.choose.randrange(len(ids)))) if ids and count < len(ids) else 0
        gone = ids[start : start + count]
        del ids[start : start + count]
        found: list[hand.Record] = []
        for id in gone:
            marked = (queue, id) in self.marked
            if found and found[-1][3] + kinds.U64.unpack(found[-1][4])[0] == id and (found[-1][1] == kinds.MARKED) == marked:
                found[-1] = hand.settle(queue, found[-1][3], id - found[-1][3] + 1, marked)
            else:
                found.append(hand.settle(queue, id, 1, marked))
        return found
