"""Two full stores whose messages go on in each other, by MOVE or as dead letters: they never stand still for good, though your
program publishes into them until they are full."""

import contextlib
import itertools
import threading
import time
from collections import Counter

import pytest

from tests.durability.test_dead_letter_room import filled
from tests.model.full import SEGMENT, SMALL
from xump import INFINITE, Engine, StoreFull, always, copy_to, deliver, move_to

SECONDS = 60
KINDS = [("ring", "lmdb"), ("lmdb", "ring"), ("ring", "ring"), ("lmdb", "lmdb")]


def next_delivery(engine, clock):
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        clock.tick(6)
        engine.tick()
        for delivery in engine.deliveries("out", timeout=0.05):
            return delivery
    raise AssertionError(f"nothing goes on: {engine.queues}")


@pytest.mark.parametrize("way", ["move", "expiry"])
@pytest.mark.parametrize(("durability", "size"), [("group", 100), ("group", 2_000), ("process", 2_000), ("process", 9_000)])
@pytest.mark.parametrize("kinds", KINDS, ids=" ".join)
def test_all_that_is_published_comes_to_its_end(tmp_path, clock, kinds, durability, size, way):
    """From `in` in the first store to `middle` in the second one, and back to `out` in the first."""
    found, sent = Counter(), 0
    with Engine(clock=clock) as engine:
        for store, kind in zip("ab", kinds, strict=True):
            engine.create_store(store, kind, path=tmp_path / store, durability=durability, **SMALL[kind])
        with engine.building():
            engine.create_queue("out", store="a")
            engine.create_queue("middle", store="b", **({"dead_letter": "out", "ttl": 5} if way == "expiry" else {}))
            engine.create_queue("in", store="a")
            engine.create_selector("in", when=always, do=move_to("middle"), credit=INFINITE)
            if way == "move":
                engine.create_selector("middle", when=always, do=move_to("out"), credit=INFINITE)
            engine.create_selector("out", when=always, do=deliver("out"), credit=20)
        for turn in range(12):
            if turn < 8:
                sent = filled(engine, "in", size, sent)
            clock.tick(6)
            engine.tick()
            for delivery in engine.take(10**6, "out"):
                delivery.ack()
                found[int(delivery.message.body)] += 1
            engine.check()
        while found.total() < sent:
            delivery = next_delivery(engine, clock)
            delivery.ack()
            found[int(delivery.message.body)] += 1
        assert found == Counter(range(sent))
        engine.check()


@pytest.mark.parametrize("beside", ["nothing", "messages from RAM", "copies", "a large message"])
@pytest.mark.parametrize("kinds", KINDS, ids=" ".join)
def test_a_line_of_two_stores_goes_on_whatever_else_wants_room(tmp_path, kinds, beside):
    """What is refused, and wants more room or nothing any more, hides nothing that a cleaned log has room for."""
    sent = taken = 0
    with Engine() as engine:
        for store, kind in zip("ab", kinds, strict=True):
            engine.create_store(store, kind, path=tmp_path / store, durability="process", **SMALL[kind])
        with engine.building():
            engine.create_queue("in", store="a")
            for name in ("work", "done", "log"):
                engine.create_queue(name, store="b")
            engine.create_queue("ram")
            engine.create_selector("in", when=always, do=move_to("work"), credit=INFINITE)
            engine.create_selector("ram", when=always, do=move_to("work"), credit=INFINITE)
            step = engine.create_selector("work", when=always, do=move_to("done"), credit=3, enabled=False)
            engine.create_selector("done", when=always, do=deliver("out"), credit=20)
            if beside == "copies":
                engine.create_selector("work", when=always, do=copy_to("log"))
                engine.create_selector("log", when=always, do=deliver("log"), credit=20)
        for queue, count in (("in", 3_000), ("ram", 20 if beside == "messages from RAM" else 0)):
            for number in range(count):
                with contextlib.suppress(StoreFull):
                    engine.publish(queue, "x", bytes(14_000 if beside == "a large message" and number == 2_000 else 100))
                    sent += 1
        step.enable()
        until = time.monotonic() + SECONDS
        while taken < sent and time.monotonic() < until:
            deliveries = engine.take(1_000)
            engine.ack(deliveries)
            taken += sum(delivery.destination == "out" for delivery in deliveries)
            time.sleep(0 if deliveries else 0.01)
        assert taken == sent, f"nothing goes on: {engine.queues}"
        engine.check()


def test_what_a_lap_writes_anew_is_no_gain(tmp_path):
    """A ring that is full of live messages lacks a few bytes for one that waits: fewer than the heads of the groups take that
    copying writes. The thread tries it once, and does not go round and round, with the turn in its hands."""
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s", **SMALL["ring"])
        engine.create_queue("kept", store="s")
        engine.create_queue("upstream")
        engine.create_selector("upstream", when=always, do=move_to("kept"), credit=INFINITE)
        filled(engine, "kept", 9_000)
        [committer] = engine._committers()
        tried = 0
        for size in range(1_600, 0, -16):       # some of them lack so few
            engine.publish("upstream", "x", bytes(size))
            if 0 < committer._port.demand(0).refused_bytes - committer._backend.room() < 1_200:
                engine.sync(timeout=SECONDS)
                eventually(lambda: not committer._standstill._watching)
                tried += 1
            engine.queues["upstream"].purge()
            engine.check()
        assert tried > 10


@pytest.fixture
def still(tmp_path):
    """An engine whose ring is full."""
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s", durability="process", segment_bytes=SEGMENT, min_bytes=0,
                            max_bytes=16 * SEGMENT)
        engine.create_queue("kept", store="s")
        engine.create_queue("target", store="s")
        engine.create_queue("upstream")
        engine.create_selector("upstream", when=always, do=move_to("target"), credit=INFINITE)
        with pytest.raises(StoreFull):
            while True:
                engine.publish_many("kept", [("x", bytes(1_000))] * 20)
        yield engine
        engine.check()


def eventually(condition):
    until = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    assert condition()


def wait_upstream(engine):
    engine.publish("upstream", "x", bytes(4_000))
    assert engine.queues["upstream"].ready == 1


def end_some(engine, count=35):
    """So many messages end that a clean log has room for the one upstream: 22 are enough, and 53 would be worth cleaning."""
    for message in itertools.islice(engine.queues["kept"].browse(), count):
        engine.queues["kept"].delete(message.id)


def test_a_store_that_stands_still_is_cleaned_for_a_small_gain(still):
    wait_upstream(still)
    end_some(still)
    eventually(lambda: still.queues["target"].ready == 1)


def test_it_is_not_asked_again_while_cleaning_gains_nothing(still):
    [committer] = still._committers()
    wait_upstream(still)
    eventually(lambda: not committer._standstill._watching)
    asked = []
    oldest, committer._backend.oldest = committer._backend.oldest, asked.append
    end_some(still)
    eventually(lambda: any(demand.stands_still for demand in asked) and not committer._standstill._watching)
    committer._backend.oldest = oldest


def test_a_system_that_gives_no_threads(still, monkeypatch, caplog):
    """The calls succeed, and the first one that gets a thread has the log cleaned."""
    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        wait_upstream(still)
        end_some(still)
    assert caplog.messages == ["store 's': messages wait for room, and no thread looks after it: can't start new thread"]
    end_some(still, 1)
    eventually(lambda: still.queues["target"].ready == 1)
