"""The ring in the conformance suite; its reads and syncs, and compacting."""

import shutil
import struct

import pytest

import xump
from xump_ext.records import kinds
from xump.testing import records_by_hand as hand
from tests.ring.ring_engine import SEGMENT, Engine, filled, records_of
from tests.ring.ring_faults import Quick
from xump.errors import StoreCorrupt
from xump.stores import ring_disk
from xump.stores.ring import RingStore
from xump.stores.ring_file import HEAD_BYTES, SLOTS_AT
from xump.testing import StoreConformance


class TestConformance(StoreConformance):
    def make(self, path):
        return RingStore("mine", path=path)

    def make_small(self, path):
        return RingStore("mine", path=path, segment_bytes=4 * SEGMENT, min_bytes=0, max_bytes=24 * SEGMENT)


class TestConformanceOfSmallSegments(StoreConformance):
    seeds = range(4)

    def make(self, path):
        return RingStore("mine", path=path, segment_bytes=SEGMENT, min_bytes=0)

    def make_small(self, path):
        return RingStore("mine", path=path, segment_bytes=SEGMENT, min_bytes=0, max_bytes=24 * SEGMENT)


# ---- reads and syncs

def test_a_window_goes_on_with_the_next_records(path):
    engine = Engine(path)
    filled(engine, 1, 200)
    for id in (1, 30, 60, 200):
        position = engine.state.live[kinds.ENTER, 1, id][0]
        _, view = engine.store.fetch(1, id, position)
        assert min(64 << 10, engine.store.end - position) - 1200 < len(view) <= 64 << 10
        ids = [int.from_bytes(raw[24:32], "little") for _, raw in records_of(view, position) if raw[6] == kinds.ENTER]
        assert ids == list(range(id, id + len(ids)))        # whole ones only
    engine.close()


@pytest.mark.parametrize("durability, syncs", [("group", 30), ("process", 0), ("none", 0)])
def test_syncs(path, monkeypatch, durability, syncs):
    class Counting(Quick):
        count = 0

        def fdatasync(self, fd):
            Counting.count += 1

        fsync = fdatasync

    monkeypatch.setattr(ring_disk, "os", Counting())
    engine = Engine(path, durability=durability)
    before = Counting.count
    for n in range(1, 31):
        engine.write(hand.enter(1, n), sync=durability == "group")
    assert Counting.count - before == syncs
    before = Counting.count
    engine.close()
    assert (Counting.count == before) == (durability == "none")


def test_a_new_size_is_synced(path, monkeypatch):
    class Noting(Quick):
        calls = []

        def fdatasync(self, fd):
            self.calls.append("fdatasync")

        def fsync(self, fd):
            self.calls.append("fsync")

    engine = Engine(path)
    monkeypatch.setattr(ring_disk, "os", Noting())
    sizes = [engine.store.stats()["segments"]]
    for n in range(1, 60):
        engine.write(hand.enter(1, n, body=bytes(6000)))
        sizes.append(engine.store.stats()["segments"])
    assert sizes[-1] > sizes[0]
    # The file grows behind a group's sync, and the next one has to know.
    assert Noting.calls == ["fsync" if n and sizes[n] != sizes[n - 1] else "fdatasync" for n in range(59)]
    engine.close()


# ---- compacted

def test_compacted(path):
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"), hand.queue(2, "gone"), hand.state(1, 1))
    filled(engine, 1, 3000)
    engine.write(hand.enter(2, 1), hand.mark(1, 7, 2), hand.mark(1, 8, 2), hand.state(1, 3001, 7))
    engine.write(hand.settle(2, 1), hand.gone(2), hand.settle(1, 8, marked=True), *(hand.settle(1, n) for n in range(9, 3000)))
    content, salt, groups = engine.state.content(), engine.store.salt, max(engine.state.groups)
    engine.close()
    mode, large = path.stat().st_mode, path.stat().st_size
    path.chmod(0o640)
    report = RingStore.compact(path)
    assert report.damage == [] and path.stat().st_size == SLOTS_AT + 4 * SEGMENT < large
    assert path.stat().st_mode & 0o777 == 0o640 and mode
    engine = Engine(path)
    assert engine.state.content() == content and engine.store.salt == salt and min(engine.state.groups) > groups
    assert next(iter(engine.state.live))[0] == kinds.QUEUE
    engine.close()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("first, last", [(True, True), (True, False), (False, True), (False, False)])
def test_compaction_keeps_what_all_marks_say(path, first, last):
    """As recovery reads them: no MARK takes back what another one said, in whatever order cleaning left them."""
    marks = [hand.mark(1, 1, 5), hand.mark(1, 1, 3, kinds.REDELIVERED), hand.mark(1, 1, 4, due=70, closing=1),
             hand.mark(1, 1, 2, due=50, closing=1), hand.mark(1, 1, 1, due=90, closing=2), hand.mark(1, 1, 0, kinds.ROUTED)]
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"), hand.state(1, 2))
    if first:
        engine.write(hand.enter(1, 1), hand.enter(1, 2))
    for mark in [*marks, hand.mark(1, 2, 1), hand.mark(1, 2, 2)]:
        engine.write(mark)
    if not first:       # an ENTER that was copied forward stands behind its MARKs
        engine.write(hand.enter(1, 1), hand.enter(1, 2))
    if last:            # an old MARK that was copied forward, of each message
        engine.write(marks[-1], hand.mark(1, 2, 1))
    engine.close()
    assert said_of(path, 1) == (5, kinds.REDELIVERED | kinds.ROUTED, {1: 50, 2: 90})
    RingStore.compact(path)
    assert said_of(path, 1) == (5, kinds.REDELIVERED | kinds.ROUTED, {1: 50, 2: 90})
    assert marks_of(path, 2) == [(0, 2, 0, NEVER)]      # one that says no more than another is gone


NEVER = (1 << 63) - 1


def marks_of(path, message):
    """The MARKs of a message, as (flags, delivery_count, closing, due)."""
    store = RingStore("ring", path=path, min_bytes=0)
    found = []
    for position, view in store.scan():
        for _, raw in records_of(view, position):
            _, _, kind, flags, _, _, _, id = kinds.HEAD.unpack_from(raw)
            if (kind, id) == (kinds.MARK, message):
                found.append((flags, *struct.unpack_from("<IIq", raw, kinds.HEAD.size)))
    store.close()
    return found


def said_of(path, message):
    """What recovery concludes from the MARKs of a message: the deliveries, the flags, and the times of its retries."""
    count, flags, dues = 0, 0, {}
    for said, delivered, closing, due in marks_of(path, message):
        count, flags = max(count, delivered), flags | said
        if due != NEVER:
            dues[closing] = due
    return count, flags, dues


def test_an_engine_reads_the_same_before_and_after_compacting(tmp_path):
    """A MARK that cleaning wrote once more behind newer ones does not take the count of deliveries back."""
    path = tmp_path / "a.ring"
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"), hand.state(1, 2))
    engine.write(hand.enter(1, 1, "x"))
    for count in (3, 5, 3):
        engine.write(hand.mark(1, 1, count, kinds.REDELIVERED))
    engine.close()
    shutil.copy(path, tmp_path / "b.ring")
    RingStore.compact(tmp_path / "b.ring")
    for name in ("a.ring", "b.ring"):
        with xump.Engine() as reading:
            reading.create_store("s", "ring", path=tmp_path / name, min_bytes=0)
            with reading.building():
                reading.create_selector("jobs", when=xump.always, do=xump.deliver("worker"), credit=1)
            [message] = reading.take(1, "worker")
            assert (message.delivery_count, message.redelivered) == (6, True)


def test_compacting_a_damaged_ring(path):
    engine = Engine(path)
    filled(engine, 1, 30)
    engine.close()
    data = bytearray(path.read_bytes())
    data[SLOTS_AT + HEAD_BYTES + 2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match="run: xump repair"):
        RingStore.compact(path)
    assert path.read_bytes() == data and list(path.parent.iterdir()) == [path]
