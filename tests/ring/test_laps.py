"""A ring in its laps: cleaned, grown, shrunk, and always the content of a dict."""

import os
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xump
from xump_ext.records import kinds
from xump.errors import StoreCorrupt
from xump.testing import records_by_hand as hand
from tests.ring.ring_engine import SEGMENT, Engine, State, filled, records_of, reopened
from xump.stores.ring import RingStore
from xump.stores.ring_file import HEAD_BYTES, SLOTS_AT
from xump.stores.ring_segments import Segments
from xump_ext.store import Demand


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([None, 6, 9, 24]), st.sampled_from(["group", "sync", "process", "none"]))
def test_any_program_gives_the_content_of_a_dict(tmp_path_factory, seed, slots, durability):
    rnd, path = random.Random(seed), tmp_path_factory.mktemp("ring") / "a.ring"
    options = {"max_bytes": slots and slots * SEGMENT, "durability": durability}
    engine, bodies, next_id = Engine(path, **options), {}, 1
    engine.write(hand.queue(1, "jobs"))
    for _ in range(rnd.randrange(20, 200)):
        what = rnd.random()
        if what < 0.5:
            sizes = [rnd.choice([0, 9, 100, 1000, 5000]) for _ in range(rnd.choice([1, 3, 20]))]
            if rnd.random() < 0.02:
                sizes = [rnd.choice([30_000, 100_000, 200_000])]
            if engine.has_room(sum(sizes) + 112 * len(sizes) + 56, max(sizes)):
                new = {next_id + n: rnd.randbytes(size) for n, size in enumerate(sizes)}
                next_id += len(sizes)
                bodies |= new
                engine.write(*(hand.enter(1, id, body=body) for id, body in new.items()), sync=rnd.random() < 0.5)
        elif what < 0.85 and bodies:
            gone = rnd.sample(sorted(bodies), min(len(bodies), rnd.choice([1, 3, 40])))
            for id in gone:
                del bodies[id]
            engine.write(*(hand.settle(1, id) for id in gone), sync=rnd.random() < 0.5)
        elif what < 0.92 and bodies:
            id = rnd.choice(sorted(bodies))
            assert engine.fetch(1, id)[64 : 64 + len(bodies[id])] == bodies[id]
        elif what < 0.96:
            engine = reopened(engine, **options)
        elif what < 0.98:
            engine.kill()
            engine = Engine(path, **options)
        assert engine.state.messages() == [(1, id) for id in sorted(bodies)]
        stats = engine.store.stats()
        assert slots is None or stats["segments"] <= max(slots, 4)
        assert path.stat().st_size >= stats["file_bytes"]
    if rnd.random() < 0.5:
        engine.close()
        assert RingStore.check(path).damage == []
        RingStore.compact(path)
        engine = Engine(path, **options)
        assert engine.state.messages() == [(1, id) for id in sorted(bodies)] and (kinds.QUEUE, 1, 0) in engine.state.live
    for id, body in bodies.items():
        assert engine.fetch(1, id)[64 : 64 + len(body)] == body
    engine.close()


@pytest.mark.parametrize("order", ["first", "last", "random"])
@pytest.mark.parametrize("slots, size", [(6, 10), (6, 700), (6, 9000), (20, 700), (20, 9000)])
def test_a_full_store_can_settle_all(path, slots, size, order):
    rnd = random.Random(size)
    engine, n = Engine(path, max_bytes=slots * SEGMENT), 0
    engine.write(hand.queue(1, "jobs"))
    for _ in range(3):
        while engine.has_room(size + 200):
            n += 1
            engine.write(hand.enter(1, n, body=rnd.randbytes(size)))
        messages = engine.state.messages()
        assert sum(length for _, length, _ in engine.state.live.values()) > slots * SEGMENT // (12 if slots == 6 else 3)
        if order == "last":
            messages.reverse()
        elif order == "random":
            rnd.shuffle(messages)
        for message in messages:    # one by one, each with a STATE: settling writes more than it frees
            engine.write(hand.settle(*message), hand.state(1, n + 1))
        assert engine.store.stats()["segments"] <= slots
        assert engine.has_room(size + 200)
        engine = reopened(engine, max_bytes=slots * SEGMENT)
        assert engine.state.messages() == []
    engine.close()


def test_it_grows_and_shrinks(path):
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"))
    filled(engine, 1, 3000)
    large = path.stat().st_size
    assert large > 3000 * 1000
    for n in range(1, 3001):
        engine.write(hand.settle(1, n), hand.state(1, 3001), sync=n % 10 == 0)
    for n in range(3001, 3400):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
    assert path.stat().st_size < large // 3
    sizes = set()
    for n in range(3400, 4000):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
        sizes.add(path.stat().st_size)
    assert len(sizes) <= 2      # it does not grow and shrink all the time
    engine.close()


def test_min_bytes_stay(path):
    engine = Engine(path, min_bytes=20 * SEGMENT)
    for n in range(1, 1500):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
        assert path.stat().st_size == SLOTS_AT + 20 * SEGMENT
    assert engine.copied == 0
    engine.close()


def test_one_old_message_holds_up_nothing(path):
    engine = Engine(path, max_bytes=6 * SEGMENT)
    engine.write(hand.queue(1, "jobs"), hand.enter(1, 1, body=b"old" * 100))
    for n in range(2, 2000):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
    assert engine.state.messages() == [(1, 1)] and engine.copied > 20
    assert engine.fetch(1, 1)[64:67] == b"old"
    engine.close()


def test_a_group_larger_than_the_file(path):
    engine = Engine(path)
    assert path.stat().st_size < 1_000_000 <= engine.store.room()
    body = random.Random(0).randbytes(900_000)
    engine.write(hand.enter(1, 1, body=body))
    for n in range(2, 900):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
    assert engine.fetch(1, 1)[64 : 64 + len(body)] == body
    engine = reopened(engine)
    assert engine.fetch(1, 1)[64 : 64 + len(body)] == body
    engine.close()


def in_the_middle_of_a_group(path, **options):
    """A ring that is killed when its log begins in the middle of a large group; what is in it."""
    engine = Engine(path, max_bytes=12 * SEGMENT, **options)
    engine.write(hand.queue(1, "jobs"), *(hand.enter(1, n, body=bytes([n]) * 1000) for n in range(1, 201)))
    n = 200
    while engine.store._segments.begin < 2 * SEGMENT or next(records_of(*first_part(engine)))[1][6] == kinds.GROUP:
        n += 1
        assert n < 5000, "it is never cleaned"
        engine.write(hand.enter(1, n, body=bytes(500)), hand.settle(1, n))
    engine.kill()
    return engine.state.content(), engine.state.messages()


def first_part(engine):
    begin = engine.store._segments.begin
    return engine.store._segments.read(begin, 2000), begin


@pytest.mark.parametrize("after", ["kill", "compact", "view"])
def test_the_log_may_begin_in_the_middle_of_a_group(path, after):
    """Slots of a group that is larger than many segments are free one by one, as its records are copied forward."""
    content, messages = in_the_middle_of_a_group(path)
    assert [id for _, id in messages] == list(range(1, 201))
    assert RingStore.check(path).damage == []
    if after == "compact":
        RingStore.compact(path)
    if after == "view":
        view, state = RingStore.view(path), State()
        for position, data in view.scan():
            state.apply(data, position)
        view.close()
        assert state.content() == content
    engine = Engine(path)
    assert engine.state.content() == content
    assert all(engine.fetch(1, id)[64:1064] == bytes([id]) * 1000 for id in range(1, 201))
    engine.close()


@pytest.mark.parametrize("where", ["the first record", "a later record", "the payload of a record"])
def test_damage_in_the_rest_of_a_group(path, where):
    content, _ = in_the_middle_of_a_group(path)
    segments = Segments.load(fd := os.open(path, os.O_RDWR), str(path))
    at = segments.begin
    if where != "the first record":
        at += kinds.HEAD.unpack_from(segments.read(at, 2000))[4]
    at += 200 if where == "the payload of a record" else 10
    os.pwrite(fd, b"\xff" * 4, segments.at(segments.slot_of[at // segments.capacity]) + HEAD_BYTES + at % segments.capacity)
    os.close(fd)
    with pytest.raises(StoreCorrupt, match="xump repair"):
        Engine(path)
    assert len(RingStore.check(path).damage) == 1
    assert len(RingStore.repair(path).damage) == 1
    engine = Engine(path)
    assert len(content.keys() - engine.state.content().keys()) <= 1
    engine.close()


def test_a_bound_is_kept(path):
    engine = Engine(path, max_bytes=10 * SEGMENT)
    assert SEGMENT < engine.store.room() < 10 * SEGMENT
    assert engine.store.stats()["segments"] == 4        # it did not grow for nothing
    engine.write(hand.enter(1, 1, body=bytes(engine.store.room() - 200)))
    assert engine.store.stats()["segments"] <= 10
    engine.close()


def test_half_of_the_disk_is_left_to_others(path, monkeypatch):
    engine = Engine(path)
    disk = os.statvfs(path)
    for free, slots in ((100, 50), (5, 2), (1, 0)):
        left = tuple(free * SEGMENT // disk.f_frsize if n == 4 else value for n, value in enumerate(disk))
        monkeypatch.setattr(os, "statvfs", lambda _, left=left: os.statvfs_result(left))
        engine.store._look_at = 0       # it would ask again when it has written a part of a segment
        assert engine.store.room() == engine.store._spare(slots) & ~7
    engine.close()


def test_wrong_live_bytes_do_not_make_it_clean_for_ever(path):
    """The engine says that nothing is live, and all is."""
    engine = Engine(path, max_bytes=12 * SEGMENT)
    store, n, most = engine.store, 0, 0
    while engine.has_room(3000):
        n += 1
        engine._write([hand.enter(1, n, body=bytes(2000))], True)
        given = 0
        while (part := store.oldest(Demand(0, 0, 0, engine.copied_bytes))) is not None:
            given += 1
            assert given < 12 * 8 * 2       # two laps
            engine.copy_forward([raw for _, raw in records_of(part[2], part[0]) if raw[6] != kinds.GROUP])
            store.release(part[1])
        most = max(most, given)
    assert most > 20
    engine.close()


def test_released_without_copying_forward(path):
    engine = Engine(path, max_bytes=6 * SEGMENT)
    for n in range(1, 600):
        batch = hand.batch(engine.log, hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
        engine.store.write(batch)
        engine.store.release(engine.store.end)
        engine.store.sync()
    assert engine.store.stats()["segments_free"] >= 3
    end = engine.store.end
    engine.close()
    engine = Engine(path)
    assert engine.store.end == end and engine.store.stats()["log_bytes"] == 0
    engine.close()


def test_a_message_is_found_while_it_is_copied_forward(path):
    """Another thread fetches all the time: the body, or a KeyError when it has moved meanwhile."""
    engine = Engine(path, max_bytes=6 * SEGMENT)
    for n in range(1, 20):
        engine.write(hand.enter(1, n, body=bytes([n]) * 1500))
    stop, wrong, moved = threading.Event(), [], []

    def fetching():
        rnd = random.Random(1)
        while not stop.is_set():
            id = rnd.randrange(1, 20)
            position = engine.state.live[kinds.ENTER, 1, id][0]
            try:
                _, view = engine.store.fetch(1, id, position)
                if bytes(view[64:1564]) != bytes([id]) * 1500:
                    wrong.append(id)
            except KeyError:
                moved.append(id)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=fetching) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(20, 1500):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and engine.copied > 100
    engine.close()


@pytest.mark.parametrize("durability", ["group", "none"])
def test_there_is_always_room_in_an_empty_store(path, durability):
    """Nothing is live: there is room for a group of a quarter of a segment, after any writes."""
    options = {"max_bytes": 6 * SEGMENT, "durability": durability}
    engine = Engine(path, **options)
    rnd = random.Random(3)
    for n in range(1, 400):
        if rnd.random() < 0.1:
            engine = reopened(engine, **options)
        assert engine.has_room(SEGMENT // 5)
        size = rnd.choice([10, 3000, SEGMENT // 5, engine.room() // 5 - 300])
        engine.write(hand.enter(1, n, body=bytes(size)), hand.settle(1, n), sync=False)
    assert engine.store.end > 40 * SEGMENT
    engine.close()


def test_the_engine_tells_the_live_bytes(path):
    with xump.Engine() as engine:
        with engine.building():
            engine.create_store("s", "ring", path=path, segment_bytes=SEGMENT, min_bytes=0)
            queue = engine.create_queue("jobs", store="s")
        sizes = set()
        for _ in range(60):
            engine.publish_many("jobs", [("", bytes(900))] * 20)
            engine.sync()
            assert 20 * 900 <= engine.stores["s"].backend.stats()["live_bytes"] < 40 * 1100
            queue.purge()
            sizes.add(path.stat().st_size)
        assert max(sizes) <= SLOTS_AT + 8 * SEGMENT     # it is cleaned, it does not grow
