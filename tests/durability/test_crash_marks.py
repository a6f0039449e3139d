"""What a crash leaves of how often a message was delivered, and whether it may be in two places: at every moment of the log."""

import contextlib
import errno
import itertools
import shutil

import pytest

from tests.ring import ring_engine

from xump import INFINITE, Engine, StoreFailed, always, copy_to, deliver, discard, match, move_to
from xump.stores import ring_segments
from xump.stores.ring import RingStore
from xump.testing import records_by_hand as hand

OPTIONS = {"segment_bytes": 1 << 16, "min_bytes": 0, "durability": "sync"}


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """Copies of the folder `stores`, one after each write of a ring: what a kill at that moment leaves."""
    found, write, numbers = [], RingStore.write, itertools.count()

    def copied_write(store, batch):
        write(store, batch)
        found.append(tmp_path / f"copy-{next(numbers)}")
        shutil.copytree(tmp_path / "stores", found[-1])

    (tmp_path / "stores").mkdir()
    monkeypatch.setattr(RingStore, "write", copied_write)
    return found


def engine_on(folder, *names, **options):
    engine = Engine()
    for name in names:
        engine.create_store(name, "ring", path=folder / name, **OPTIONS | options)
    return engine


@pytest.mark.parametrize("history_limit", [0, 5])
def test_copying_forward_forgets_no_delivery(tmp_path, copies, history_limit):
    """The message has ended in its queue, which may keep it in its history; in RAM it goes on. Its ENTER and its MARKs are copied
    forward in different groups."""
    with engine_on(tmp_path / "stores", "s", max_bytes=1 << 20) as engine:
        with engine.building():
            engine.create_queue("jobs", store="s", history_limit=history_limit)
            engine.create_queue("work")
            engine.create_queue("noise", store="s")
            engine.create_queue("keep", store="s")
            engine.create_selector("jobs", when=always, do=move_to("work"), credit=INFINITE)
            engine.create_selector("work", when=always, do=deliver("worker"))
            engine.create_selector("noise", when=always, do=discard)
        engine.publish("jobs", "x")
        for _ in range(3):
            engine.take(1, "worker")[0].nack()
            for _ in range(4):
                engine.publish("keep", "x", bytes(9_000))
        assert engine.take(1, "worker")[0].delivery_count == 4
        del copies[:]
        for _ in range(60):
            engine.publish("noise", "x", bytes(20_000))
        assert engine.stores["s"].backend._segments.begin > 0
        moments = copies[:]
    for folder in moments:
        with engine_on(folder, "s") as engine:
            with engine.building():
                engine.create_selector("jobs", when=always, do=deliver("worker"))
            [delivery] = engine.take(1, "worker")
            assert (delivery.delivery_count, delivery.redelivered) == (5, True), folder


def test_what_has_ended_does_not_come_back_while_its_group_is_cleaned(tmp_path, copies):
    """One record ends two messages, the second of which comes behind it in the same group, far away."""
    with engine_on(tmp_path / "stores", "s", max_bytes=1 << 20) as engine:
        with engine.building():
            for name in ("jobs", "keep", "noise"):
                engine.create_queue(name, store="s")
            engine.create_selector("jobs", when=match("eq", "x"), do=deliver("worker"), credit=9)
            engine.create_selector("jobs", when=match("eq", "y"), do=discard)
            engine.create_selector("noise", when=always, do=discard)
        engine.publish("jobs", "x")
        [delivery] = engine.take(1, "worker")
        with engine.transaction() as tx:
            tx.ack(delivery)
            for _ in range(40):
                tx.publish("keep", "x", bytes(3_000))
            tx.publish("jobs", "y")
        engine.sync()
        del copies[:]
        for _ in range(100):
            engine.publish("noise", "x", bytes(20_000))
        assert engine.stores["s"].backend._segments.begin > 3 << 16
        moments = copies[:]
    for folder in moments:
        with engine_on(folder, "s") as engine:
            engine.check()
            jobs = engine.stats()["queues"]["jobs"]
            assert (jobs["entered"], jobs["ready"], jobs["settled"]) == (2, 0, 2), folder


@pytest.mark.parametrize("credit", [1, INFINITE])
@pytest.mark.parametrize("way", [["x"], ["x", "y"], ["x", "y", "z"], ["x", "ram", "z"]])
def test_what_a_crash_leaves_in_two_stores_is_marked_in_the_second(tmp_path, copies, way, credit):
    """However far it went on there in the same run."""
    with engine_on(tmp_path / "stores", "up", "down") as engine:
        with engine.building():
            engine.create_queue("source", store="up")
            for name in way:
                engine.create_queue(name, store="ram" if name == "ram" else "down")
            for name, target in itertools.pairwise(way):
                engine.create_selector(name, when=always, do=move_to(target), credit=credit)
        engine.publish("source", "m")
        engine.create_selector("source", when=always, do=move_to(way[0]), credit=INFINITE)
        moments = copies[:]
    twice = 0
    for folder in moments:
        with engine_on(folder, "up", "down") as engine:
            with engine.building():
                for name in list(engine.queues):
                    engine.create_selector(name, when=always, do=deliver(name), credit=INFINITE)
            found = [(delivery.queue.name, delivery.redelivered) for delivery in engine.take(9)]
            if len(found) > 1:
                twice += 1
                assert ("source", False) in found and [redelivered for name, redelivered in found if name != "source"] == [True]
    assert twice > 0


@pytest.mark.parametrize("before", [None, "down", "ram", "copied into ram"])
def test_a_copy_in_the_second_store_is_marked(tmp_path, copies, before):
    """The message is copied once more when the graph is there again. `before`: the place of a queue from which it is copied. A
    copy in RAM does not know what it is a copy of, nor does what comes from there (docs/stores.md)."""
    strayed = before == "copied into ram"
    with engine_on(tmp_path / "stores", "up", "down") as engine:
        with engine.building():
            engine.create_queue("source", store="up")
            engine.create_queue("copies", store="down")
            if before is not None:
                engine.create_queue("between", store="ram" if strayed else before)
                engine.create_selector("between", when=always, do=move_to("copies") if strayed else copy_to("copies"))
        engine.publish("source", "m")
        do = copy_to("copies") if before is None else copy_to("between") if strayed else move_to("between")
        engine.create_selector("source", when=always, do=do, credit=INFINITE if before == "down" else 1)
        moments = copies[:]
    twice = 0
    for folder in moments:
        with engine_on(folder, "up", "down") as engine:
            with engine.building():
                for name in list(engine.queues):
                    engine.create_selector(name, when=always, do=deliver(name), credit=INFINITE)
            found = {delivery.queue.name: delivery.redelivered for delivery in engine.take(9)}
            if len(found) > 1:
                twice += 1
                assert found == {"source": False, **dict.fromkeys(found.keys() - {"source"}, not strayed)}
    assert twice > 0


def test_a_copy_is_not_marked_after_an_orderly_end(tmp_path):
    with engine_on(tmp_path, "up", "down") as engine:
        with engine.building():
            engine.create_queue("source", store="up")
            engine.create_queue("copies", store="down")
            engine.create_selector("source", when=always, do=copy_to("copies"))
        engine.publish("source", "m")
    with engine_on(tmp_path, "up", "down") as engine:
        with engine.building():
            engine.create_selector("copies", when=always, do=deliver("d"))
        assert [delivery.redelivered for delivery in engine.take(9)] == [False] and engine.queues["source"].ready == 0


@pytest.mark.parametrize("between", ["nothing", "ram"])
def test_a_dead_letter_in_another_store_is_marked_too(tmp_path, copies, between):
    with engine_on(tmp_path / "stores", "up", "down") as engine:
        with engine.building():
            engine.create_queue("dead", store="down")
            engine.create_queue("source", store="up", dead_letter="dead")
            engine.create_queue("work")
            if between == "ram":
                engine.create_selector("source", when=always, do=move_to("work"))
            engine.create_selector("work" if between == "ram" else "source", when=always, do=deliver("worker"))
        engine.publish("source", "m")
        [delivery] = engine.take(1, "worker")
        del copies[:]
        delivery.reject()
        moments = copies[:]
    found = []
    for folder in moments:
        with engine_on(folder, "up", "down") as engine:
            left = list(engine.queues["source"].browse())
            with engine.building():
                engine.create_selector("dead", when=always, do=deliver("d"), credit=9)
            found.append((len(left), [delivery.redelivered for delivery in engine.take(9, "d")]))
    assert (1, [True]) in found and (1, [False]) not in found


def test_what_came_from_a_store_that_failed_is_marked(tmp_path, monkeypatch):
    """The second store is closed in order; the first has the message again."""
    engine = engine_on(tmp_path, "up", "down")
    with engine.building():
        engine.create_queue("source", store="up")
        engine.create_queue("target", store="down")
    engine.publish("source", "m")
    up, write_all = engine.stores["up"].backend, ring_segments.write_all

    def fails(fd, data, at):
        if fd == up._fd:
            raise OSError(errno.EIO, "Input/output error")
        write_all(fd, data, at)

    monkeypatch.setattr(ring_segments, "write_all", fails)
    with pytest.raises(StoreFailed, match="store 'up' .*Input/output error"):
        engine.create_selector("source", when=always, do=move_to("target"), credit=INFINITE)
        engine.publish("source", "n")
    with pytest.raises(StoreFailed, match="store 'up' has failed: .*Input/output error"):
        engine.publish("source", "n")
    with contextlib.suppress(StoreFailed):
        engine.close()
    monkeypatch.undo()
    with engine_on(tmp_path, "up", "down") as engine:
        assert [message.address for message in engine.queues["source"].browse()] == ["m"]
        with engine.building():
            engine.create_selector("target", when=always, do=deliver("d"))
        [delivery] = engine.take(1, "d")
        assert (delivery.message.address, delivery.redelivered) == ("m", True)


def test_a_dead_letter_that_never_waited_keeps_its_hops(tmp_path):
    with engine_on(tmp_path, "s") as engine:
        with engine.building():
            engine.create_queue("dead", store="s", history_limit=None)
            engine.create_queue("jobs", store="s", dead_letter="dead")
            engine.create_selector("jobs", when=match("eq", "other"), do=deliver("worker"))
            engine.create_selector("dead", when=always, do=discard)
            engine.publish("jobs", "straight")
        engine.selectors[2].disable()
        engine.publish("jobs", "waits")
        engine.selectors[2].enable()
        hops = [message.hops for message in engine.queues["dead"].browse(state="history")]
        assert hops == [1, 0]
    with engine_on(tmp_path, "s") as engine:
        assert [message.hops for message in engine.queues["dead"].browse(state="history")] == hops
        engine.check()


@pytest.mark.parametrize(("ended", "count"), [(None, 6), ((3, 1), 1), ((1, 1000), 1)])
def test_a_mark_before_its_message_counts_until_it_has_ended(tmp_path, ended, count):
    """As the log is where the ENTER was copied forward. Few MARKs are looked up by the ids that end, or ids by the MARKs."""
    log = ring_engine.Engine(tmp_path / "s")
    log.write(hand.queue(1, "jobs"), hand.mark(1, 3, 5))
    if ended is not None:
        log._write([hand.settle(1, *ended, marked=True)], True)
    log._write([hand.enter(1, 3, body=b"x"), hand.state(1, 2000)], True)
    log.close()
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s")
        with engine.building():
            engine.create_selector("jobs", when=always, do=deliver("d"))
        assert engine.take(1, "d")[0].delivery_count == count


def test_cleaning_keeps_the_counters_of_a_queue_where_nothing_happens(tmp_path):
    """Its last STATE stands in a group whose ends were merged, so it moved up in it."""
    with engine_on(tmp_path, "s", max_bytes=1 << 20) as engine:
        with engine.building():
            for name in ("idle", "noise"):
                engine.create_queue(name, store="s")
            engine.create_selector("idle", when=always, do=deliver("worker"), credit=200)
            engine.create_selector("noise", when=always, do=discard)
        engine.publish_many("idle", [("x",)] * 200)
        deliveries = engine.take(200, "worker")
        engine.ack(deliveries[::2] + deliveries[1::2])
        for _ in range(100):
            engine.publish("noise", "x", bytes(20_000))
        backend = engine.stores["s"].backend
        assert backend._segments.begin > 3 << 16
        shutil.copy(backend.path, tmp_path / "copy")
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "copy")
        idle = engine.stats()["queues"]["idle"]
        assert (idle["entered"], idle["settled"], engine.publish("idle")) == (200, 200, 201)
