"""Plays the engine before a ring store: a dict of what is live, groups made by hand, carrying and releasing as the contract
says."""

from __future__ import annotations

import struct

from xump import testing_records as hand
from xump.stores import ring_lock
from xump.stores.ring import RingStore

SEGMENT = 1 << 16
HEAD = struct.Struct("<IHBBIIQQ")


def records_of(view, position):
    """(position, raw bytes) of all records, heads of groups too."""
    at = 0
    while at < len(view):
        length = HEAD.unpack_from(view, at)[4]
        yield position + at, bytes(view[at : at + length])
        at += length


class State:
    """What a log says, applied in order."""

    def __init__(self):
        self.live = {}      # (kind, queue, id): (position, bytes, what it says)
        self.bytes = 0
        self.groups = []

    def apply(self, view, position):
        late, end = [], position
        for at, raw in records_of(view, position):
            _, _, kind, flags, length, queue, _, id = HEAD.unpack_from(raw)
            if kind == hand.GROUP:
                self.groups.append(id)
                self._settle(late)
            elif kind == hand.SETTLE:
                ids = range(id, id + struct.unpack_from("<Q", raw, 32)[0])
                late += [(of, queue, one) for of in (hand.ENTER, hand.MARK) for one in ids]
            elif kind == hand.GONE:
                late += [key for key in self.live if key[1] == queue]
            else:
                key = kind, queue, id if kind in (hand.ENTER, hand.MARK) else 0
                self.bytes += length - self.live.get(key, (0, 0))[1]
                self.live[key] = at, length, (flags, id, hand.unpacked(raw)[5] or raw[32:])
            end = at + length
        self._settle(late)
        return end

    def _settle(self, late):
        for key in late:
            self.bytes -= self.live.pop(key, (0, 0))[1]
        late.clear()

    def content(self):
        return {key: value[2] for key, value in self.live.items()}

    def messages(self):
        return sorted((queue, id) for kind, queue, id in self.live if kind == hand.ENTER)


class Engine:
    """Opens, recovers, writes, cleans."""

    def __init__(self, path, **options):
        options = {"segment_bytes": SEGMENT, "min_bytes": 0, **options}
        self.store = RingStore("ring", path=path, **options)
        self.state = State()
        try:
            end = 0
            for position, view in self.store.scan():
                end = self.state.apply(view, position)
        except BaseException:
            self.kill()
            raise
        assert not end or end == self.store.end
        self.log = hand.Log(self.store.salt, self.store.end)
        self.log.groups = max(self.state.groups, default=0)
        self.log.synced = self.store.end
        self.carried = 0
        self.clean()

    def write(self, *records, sync=True):
        """A group, whatever there is room for; then the log is cleaned."""
        self._write(records, sync)
        self.clean()

    def _write(self, records, sync):
        batch = hand.batch(self.log, *records)
        self.store.write(batch)
        self.state.apply(batch, batch.position)
        if sync:
            self.sync()

    def sync(self):
        self.store.sync()
        self.log.synced = self.store.end

    def has_room(self, size):
        return self.store.room() >= size

    def clean(self):
        while True:
            self.store.live_bytes = self.state.bytes
            part = self.store.oldest()
            if part is None:
                return
            begin, end, view = part
            assert end == begin + len(view)
            live = {position for position, _, _ in self.state.live.values()}
            carried = [raw for at, raw in records_of(view, begin) if at in live]
            if carried:
                self.carry(carried)
            self.store.release(end)

    def carry(self, records):
        """Whole records, once more."""
        self._write(map(hand.unpacked, records), True)
        self.carried += len(records)
        self.store.carried_bytes += sum(map(len, records))

    def enter(self, queue, id, body, **properties):
        self.write(hand.enter(queue, id, body=body, **properties))

    def fetch(self, queue, id):
        position, length, says = self.state.live[hand.ENTER, queue, id]
        at, view = self.store.fetch(queue, id, position)
        raw = bytes(view[:length])
        assert at == position and (hand.unpacked(raw)[5] or raw[32:]) == says[2]
        return raw

    def close(self):
        self.store.close()

    def kill(self):
        """As if the process had died: nothing more is written."""
        ring_lock.give_up(self.store._fd)


def reopened(engine, **options):
    path = engine.store.path
    engine.close()
    return Engine(path, **options)


def content_of(path, **options):
    """What is found there, and how many bytes were cut off."""
    engine = Engine(path, **options)
    try:
        return engine.state.content(), engine.store.cut
    finally:
        engine.close()
