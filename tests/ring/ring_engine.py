"""Plays the engine before a ring store: a dict of the live records, groups made by hand, copying forward and releasing as the
contract says."""

from __future__ import annotations


from xump.testing import records_by_hand as hand
from xump.stores.ring import RingStore
from xump_ext.records import kinds
from xump_ext.store import Demand

SEGMENT = 1 << 16


def records_of(view, position):
    """Yields (position, raw bytes) of all records, heads of groups, too."""
    at = 0
    while at < len(view):
        length = kinds.HEAD.unpack_from(view, at)[4]
        yield position + at, bytes(view[at : at + length])
        at += length


class State:
    """The content of a log, applied in order."""

    def __init__(self):
        self.live = {}      # (kind, queue, id): (position, bytes, content)
        self.bytes = 0
        self.groups = []

    def apply(self, view, position):
        late, end = [], position
        for at, raw in records_of(view, position):
            _, _, kind, flags, length, queue, _, id = kinds.HEAD.unpack_from(raw)
            if kind == kinds.GROUP:
                self.groups.append(id)
                self._settle(late)
            elif kind == kinds.SETTLE:
                ids = range(id, id + kinds.U64.unpack_from(raw, kinds.COUNT_AT)[0])
                late += [(of, queue, one) for of in (kinds.ENTER, kinds.MARK) for one in ids]
            elif kind == kinds.GONE:
                late += [key for key in self.live if key[1] == queue]
            else:
                key = kind, queue, id if kind in (kinds.ENTER, kinds.MARK) else 0
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
        return sorted((queue, id) for kind, queue, id in self.live if kind == kinds.ENTER)


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
        self.copied = self.copied_bytes = 0
        self.clean()

    def write(self, *records, sync=True):
        """Writes a group, without a look at the room; then cleans the log."""
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

    def largest(self):
        """Bytes of the largest live message."""
        return max((length for (kind, _, _), (_, length, _) in self.state.live.items() if kind == kinds.ENTER), default=0)

    def room(self, largest=0):
        """As the engine leaves it: see `xump_ext/log/room.pyx`."""
        return self.store.room() - self.store.kept_bytes - 4 * max(largest, self.largest())

    def has_room(self, size, largest=None):
        return self.room(size if largest is None else largest) >= size

    def clean(self):
        while True:
            part = self.store.oldest(Demand(0, self.state.bytes, self.largest(), self.copied_bytes))
            if part is None:
                return
            begin, end, view = part
            assert end == begin + len(view)
            live = {position for position, _, _ in self.state.live.values()}
            copied = [raw for at, raw in records_of(view, begin) if at in live]
            if copied:
                self.copy_forward(copied)
            self.store.release(end)

    def copy_forward(self, records):
        """Writes whole records once more."""
        self._write(map(hand.unpacked, records), True)
        self.copied += len(records)
        self.copied_bytes += sum(map(len, records))

    def enter(self, queue, id, body, **properties):
        self.write(hand.enter(queue, id, body=body, **properties))

    def fetch(self, queue, id):
        position, length, says = self.state.live[kinds.ENTER, queue, id]
        at, view = self.store.fetch(queue, id, position)
        raw = bytes(view[:length])
        assert at == position and (hand.unpacked(raw)[5] or raw[32:]) == says[2]
        return raw

    def close(self):
        self.store.close()

    def kill(self):
        """Lets go of the file as if the process had died: nothing more is written."""
        self.store._claim.release()


def filled(engine, first, count, size=1000):
    for n in range(first, first + count):
        engine.write(hand.enter(1, n, body=bytes([n & 255]) * size), sync=False)
    engine.sync()


def reopened(engine, **options):
    path = engine.store.path
    engine.close()
    return Engine(path, **options)


def content_of(path, **options):
    """The content of a ring, and how many bytes opening cut off."""
    engine = Engine(path, **options)
    try:
        return engine.state.content(), engine.store.cut
    finally:
        engine.close()
