"""Two full stores whose messages go on in each other, by MOVE or as dead letters: they never stand still for good, though your
program publishes into them until they are full."""

import contextlib
import time
from collections import Counter

import pytest

from tests.durability.test_dead_letter_room import filled
from tests.model.full import SMALL
from tests.patience import PATIENCE
from xump import INFINITE, Engine, StoreFull, always, copy_to, deliver, move_to

KINDS = [("ring", "lmdb"), ("lmdb", "ring"), ("ring", "ring"), ("lmdb", "lmdb")]


def next_delivery(engine, clock):
    until = time.monotonic() + PATIENCE
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
    """Other messages want more room, or were dropped. The store is still cleaned for those that a clean log has room for."""
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
        until = time.monotonic() + PATIENCE
        while taken < sent and time.monotonic() < until:
            deliveries = engine.take(1_000)
            engine.ack(deliveries)
            taken += sum(delivery.destination == "out" for delivery in deliveries)
            time.sleep(0 if deliveries else 0.01)
        assert taken == sent, f"nothing goes on: {engine.queues}"
        engine.check()
