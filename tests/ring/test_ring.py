"""The ring in the conformance suite; its reads and syncs, and compacting."""


import pytest

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
        return RingStore("mine", path=path, segment_bytes=SEGMENT, min_bytes=0, max_bytes=24 * SEGMENT)


class TestConformanceOfSmallSegments(StoreConformance):
    seeds = range(4)

    def make(self, path):
        return RingStore("mine", path=path, segment_bytes=SEGMENT, min_bytes=0)


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
