"""Calls on stores that are full but for a few bytes: each is done or refused, whole; and what waits for room goes on and comes to
an end. What random programs over tiny stores, beside the model of the engine, have found.
"""

import random
import threading

import pytest

from tests.patience import PATIENCE
from xump import INFINITE, Engine, OutcomeFlag, StoreFull, always, copy_to, deliver, discard, match, move_to
from xump.store_types import register_store, store_types
from xump.stores.lmdb import LmdbStore
from xump.stores.ring import RingStore

SEGMENT = 1 << 16
OPTIONS = {
    "ring": {"segment_bytes": SEGMENT, "min_bytes": 4 * SEGMENT, "max_bytes": 8 * SEGMENT}, "lmdb": {"max_bytes": 1 << 20}}
WRITES_MAX = 10_000


class Patient:
    """A store that is never written for ever."""

    writes = 0

    def write(self, batch):
        self.writes += 1
        assert self.writes < WRITES_MAX, "it is written for ever"
        super().write(batch)


for store in (RingStore, LmdbStore):
    if f"patient {store.type}" not in store_types():
        register_store(f"patient {store.type}", type("Patient", (Patient, store), {}))


def engine_on(path, kind):
    engine = Engine()
    engine.create_store("s", f"patient {kind}", path=str(path), durability="process", **OPTIONS[kind])
    return engine


def fill(engine, queue, size, address="x"):
    with pytest.raises(StoreFull):
        while True:
            engine.publish(queue, address, bytes(size))


@pytest.mark.parametrize("size", range(0, 2_000, 250))
@pytest.mark.parametrize("kind", ["ring", "lmdb"])
def test_a_transaction_that_answers_and_publishes_is_done_or_refused(tmp_path, kind, size):
    """The records of its answers take room, too. Only some of these sizes come so close to the end that this matters."""
    with engine_on(tmp_path / "s", kind) as engine:
        queue = engine.create_queue("jobs", store="s")
        engine.create_selector("jobs", when=always, do=deliver("d"), credit=1_000)
        fill(engine, "jobs", 2_000)
        taken = engine.take(60)[::2]        # whose ends are records of their own
        before = queue.outstanding, queue.last_id
        try:
            with engine.transaction() as tx:
                tx.ack(taken)
                tx.publish("jobs", "x", bytes(size))
        except StoreFull:
            assert (queue.outstanding, queue.last_id) == before
            engine.ack(taken)
        else:
            assert (queue.outstanding, queue.last_id) == (before[0] + 1 - len(taken), before[1] + 1)
        engine.check()


@pytest.mark.parametrize(("kind", "size"), [
    *(("ring", size) for size in range(19_000, 21_000, 500)), ("ring", 40_000), ("lmdb", 20_000), ("lmdb", 40_000)])
def test_a_batch_is_let_in_or_refused(tmp_path, kind, size):
    """Its first messages may be the largest that the store has, for which it keeps more room."""
    with engine_on(tmp_path / "s", kind) as engine:
        queue = engine.create_queue("jobs", store="s")
        fill(engine, "jobs", 100)
        for upto in range(1, queue.last_id, 10):
            queue.purge(upto=upto)
            before = queue.last_id
            try:
                engine.publish_many("jobs", [("x", bytes(size))] * 3)
            except StoreFull:
                assert queue.last_id == before
            else:
                assert queue.last_id == before + 3
                break
        else:
            assert size == 40_000 and kind == "ring"        # five times that are more than it has
        engine.check()


def test_a_backlog_goes_through_a_full_store_however_long_it_is(tmp_path):
    """A few messages at a time find room, and when they are written there is room for the next few."""
    with engine_on(tmp_path / "s", "lmdb") as engine:
        engine.create_queue("in")
        engine.create_queue("work", store="s")
        engine.create_selector("work", when=always, do=discard)
        engine.publish_many("in", [("x", bytes(60_000))] * 2_500)
        engine.create_selector("in", when=always, do=move_to("work"), credit=INFINITE)
        assert engine.stats()["queues"]["work"]["settled"] == 2_500
        engine.check()


def test_the_end_of_the_largest_message_lets_others_go_on(tmp_path):
    """The store keeps less of its room then. It has no more of it: the record of the end takes some."""
    with engine_on(tmp_path / "s", "ring") as engine:
        with engine.building():
            engine.create_queue("in")
            engine.create_queue("large", store="s")
            engine.create_queue("work", store="s")
            engine.create_selector("large", when=always, do=deliver("d"), credit=1)
            engine.create_selector("in", when=always, do=move_to("work"), credit=INFINITE)
        engine.publish("large", "x", bytes(20_000))
        fill(engine, "work", 1_000)
        engine.publish_many("in", [("x", bytes(1_000))] * 5)
        assert engine.queues["in"].ready == 5
        [large] = engine.take(1)
        large.ack()
        assert engine.queues["in"].ready == 0
        engine.check()


@pytest.mark.parametrize("kind", ["ring", "lmdb"])
def test_dead_letters_do_not_go_round_in_a_full_store_for_ever(tmp_path, kind):
    """They move on as soon as there is room, which they make themselves by moving on."""
    with engine_on(tmp_path / "s", kind) as engine:
        with engine.building():
            engine.create_queue("retry", store="s")
            engine.create_queue("work", store="s", dead_letter="retry")
            engine.create_selector("work", when=match("eq", "x"), do=deliver("d"), credit=1)
        fill(engine, "retry", 4_000 if kind == "ring" else 12_000, "nobody wants it")
        engine.create_selector("retry", when=always, do=move_to("work"), credit=1)
        engine.check()


@pytest.mark.parametrize("way", ["direct", "transit", "ram"])
@pytest.mark.parametrize("type", ["ring", "lmdb"])
def test_dead_letters_of_a_full_store_find_room_there(tmp_path, type, way):
    """Each takes the room of the message that ends for it, also where it goes by way of a queue that keeps nothing."""
    options = {"segment_bytes": 1 << 16, "min_bytes": 1 << 22} if type == "ring" else {}
    with Engine() as engine:
        engine.create_store("s", type, path=tmp_path / "s", max_bytes=1 << 22, durability="sync", **options)
        dead = engine.create_queue("dead", store="s")
        if way != "direct":
            engine.create_queue("x", transit=way == "transit")
            engine.create_selector("x", when=always, do=copy_to("dead") if way == "transit" else move_to("dead"), credit=INFINITE)
        engine.create_queue("jobs", store="s", dead_letter="dead" if way == "direct" else "x")
        count = 0
        with pytest.raises(StoreFull):
            while True:
                engine.publish("jobs", "a", bytes(5000))
                count += 1
        for delivery in [engine.get("jobs") for _ in range(count)]:
            delivery.reject()
        engine.check()
        assert (dead.ready, engine.queues["jobs"].outstanding) == (count, 0)


@pytest.mark.parametrize("kind", ["ring", "lmdb"])
@pytest.mark.parametrize("call", [
    lambda queue: queue.publish("x", bytes(4_000), message_id="m"),
    lambda queue: queue.publish("x", bytes(4_000), ttl=1),
    lambda queue: queue.engine.publish_many("work", [("x", bytes(4_000))] * 3, ttl=1),
    lambda queue: queue.engine.publish_many("work", [("x", bytes(4_000))] * 3, outcomes=True, delay=1)])
def test_a_call_keeps_its_time_while_a_store_is_cleaned_for_it(tmp_path, kind, call):
    """At a later one something might be due: no call has done that, and one that is refused does nothing."""
    time = 1_000
    with Engine(clock=lambda: time) as engine:
        engine.create_store("s", kind, path=tmp_path / "s", durability="process", **OPTIONS[kind])
        queue, other = engine.create_queue("work", store="s", dedup=1), engine.create_queue("other")
        fill(engine, "work", 4_000)
        [committer] = engine._committers()
        make_room = committer.make_room

        def make_room_slowly(wanted):
            nonlocal time
            make_room(wanted)
            time += 100
            engine.publish("other", "while it was cleaned", ttl=60e-9)
            time += 100

        other.publish("before", ttl=50e-9)
        committer.make_room = make_room_slowly
        try:
            assert all(outcome.flags & OutcomeFlag.STORE_FULL for outcome in call(queue))
        except StoreFull:
            pass
        assert time == 1_200
        engine.check()
        engine.tick()
        assert other.ready == 0
        engine.check()


@pytest.mark.parametrize("kind", ["ring", "lmdb"])
def test_a_check_judges_no_room_that_the_store_has_not_told(tmp_path, kind, monkeypatch):
    """The end of the largest message makes room. What waits for it goes on when that end is written, by another thread."""
    with engine_on(tmp_path / "s", kind) as engine:
        large, upstream = engine.create_queue("large", store="s"), engine.create_queue("upstream")
        engine.create_queue("work", store="s")
        engine.create_selector("upstream", when=always, do=move_to("work"), credit=INFINITE)
        large.publish("large", bytes(20_000))
        while not upstream.ready:
            upstream.publish("x", bytes(3_000))
            engine.sync()
        delivery = engine.get("large")
        [committer] = engine._committers()
        write, writes, go_on = committer._backend.write, threading.Event(), threading.Event()

        def write_slowly(group):
            writes.set()
            go_on.wait(PATIENCE)
            write(group)

        with monkeypatch.context() as patch:
            patch.setattr(committer._backend, "write", write_slowly)
            acks = threading.Thread(target=delivery.ack)
            acks.start()
            assert writes.wait(PATIENCE)
            assert upstream.ready == 1
            try:
                engine.check()
            finally:
                go_on.set()
                acks.join()
        assert upstream.ready == 0
        engine.check()


@pytest.mark.parametrize("seed", range(60, 100))
def test_a_log_is_cleaned_for_a_move_as_for_a_publish(tmp_path, seed):
    """A large message upstream finds no room in a ring of small ones, of which many have ended. The ring makes room as far as it
    would for a publish. A move leaves a little more."""
    draw = random.Random(seed)
    large, small = draw.choice([4_000, 12_000, 20_000]), draw.choice([500, 1_000, 4_000])
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s", segment_bytes=SEGMENT, min_bytes=0, max_bytes=7 * SEGMENT,
                            durability="process")
        work, upstream = engine.create_queue("work", store="s"), engine.create_queue("upstream")
        fill(engine, "work", small)
        ids = [message.id for message in work.browse()]
        for id in draw.sample(ids, int(draw.choice([0.2, 0.3, 0.4]) * len(ids))):
            work.delete(id)
        engine.create_selector("upstream", when=always, do=move_to("work"), credit=INFINITE)
        upstream.publish("large", bytes(large))
        engine.sync()
        if upstream.ready:
            with pytest.raises(StoreFull):
                work.publish("larger", bytes(large + 8_192))
            assert upstream.ready == 1


def test_a_message_that_finds_no_room_in_a_clean_log_has_it_cleaned_no_more_often(tmp_path):
    """It may wait for long. Until there can be room for it, the ring copies as many bytes forward as without it."""
    copied = []
    for large in (None, 120_000):
        with Engine() as engine:
            engine.create_store("s", "ring", path=tmp_path / f"{large}", segment_bytes=SEGMENT, min_bytes=0,
                                max_bytes=16 * SEGMENT, durability="process")
            kept, work = engine.create_queue("kept", store="s"), engine.create_queue("work", store="s")
            upstream = engine.create_queue("upstream")
            engine.create_selector("upstream", when=always, do=move_to("work"), credit=INFINITE)
            engine.publish_many("kept", [("x", bytes(1_000))] * 250)
            if large is not None:
                upstream.publish("large", bytes(large))
            for _ in range(150):
                work.purge()
                engine.publish_many("work", [("x", bytes(1_000))] * 20)
            assert upstream.ready == (large is not None)
            [committer] = engine._committers()
            copied.append(committer._port.demand(0).carried_bytes)
            kept.purge()
            work.purge()
            engine.sync()
            assert upstream.ready == 0
    assert copied[0] == copied[1] > 0
