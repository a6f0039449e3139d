"""`put_back`: messages that were taken, and that nobody has seen, were not delivered."""

import random

import pytest

from xump import INFINITE, Engine, always, deliver, field, move_to
from xump_ext.engine.taking import put_back


def counts(queue):
    return [(message.address, state) for message, state, _ in queue._browse_detailed("head", None, None, None, False)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("properties", [
    {}, {"limit": 8, "when_full": "drop_oldest"}, {"delivery_limit": 1}, {"retry_delay": 60}, {"priority": 3},
    {"group": field("address")}], ids=str)
def test_as_if_they_had_not_been_taken(seed, properties):
    """Two engines do the same by turns, but one takes messages between, and puts them back: nobody can tell."""
    chance, now = random.Random(seed), [1]
    engines = [Engine(clock=lambda: now[0]) for _ in range(2)]
    queues = [engine.create_queue("q", **properties) for engine in engines]
    for _ in range(40):
        now[0] += 10 ** 9
        what, address, ttl = chance.choice("pptna"), chance.choice("abc"), chance.choice((None, 3.0))
        for engine, queue in zip(engines, queues, strict=True):
            if what == "p":
                queue.publish(address, ttl=ttl)
            else:
                delivery = engine.get(queue)
                if delivery is not None:
                    {"t": lambda: None, "n": delivery.nack, "a": delivery.ack}[what]()
        taken = [delivery for _ in range(chance.randrange(4)) if (delivery := engines[0].get(queues[0])) is not None]
        put_back(engines[0], taken)
        engines[0].check()
        assert counts(queues[0]) == counts(queues[1])
        assert all("stale" in repr(delivery) for delivery in taken)
    assert [take_all(engines[0], queues[0])] == [take_all(engines[1], queues[1])]
    for engine in engines:
        engine.close()


def take_all(engine, queue):
    found = []
    while (delivery := engine.get(queue)) is not None:
        found.append((delivery.address, delivery.delivery_count))
    return found


def test_what_selectors_delivered():
    """It came by a move, and may be delivered once; the credit is there again."""
    with Engine() as engine:
        engine.create_queue("q", delivery_limit=1)
        engine.create_queue("r", limit=4)
        engine.create_selector("q", when=always, do=move_to("r"), credit=5)
        reader = engine.create_selector("r", when=always, do=deliver("d"), credit=3)
        engine.publish_many("q", [(address,) for address in "abcde"])
        for _ in range(3):
            taken = engine.take(9, "d")
            assert [(delivery.address, delivery.delivery_count, delivery.redelivered) for delivery in taken] == [
                (address, 1, False) for address in "abc"]
            put_back(engine, taken)
            engine.check()
            assert (reader.outstanding, engine.stats()["selectors"][reader.id]["paid"]) == (3, 0)
        for delivery in engine.take(9, "d"):
            delivery.ack()
        assert [delivery.address for delivery in engine.take(9, "d")] == ["d", "e"]


@pytest.mark.parametrize("kind", ["ring", "lmdb"])
def test_and_once_more_after_a_restart(kind, tmp_path):
    for turn in range(2):
        with Engine() as engine:
            engine.create_store("s", kind, path=str(tmp_path / "s"))
            queue = engine.create_queue("q", store="s", delivery_limit=2)
            if turn == 0:
                queue.publish("a")
            else:
                queue.release()
            put_back(engine, [engine.get(queue)])
            put_back(engine, [engine.get(queue)])
            assert (queue.ready, queue.outstanding) == (1, 0)
            engine.check()
    with Engine() as engine:
        engine.create_store("s", kind, path=str(tmp_path / "s"))
        queue = engine.queues["q"]
        queue.release()
        assert engine.get(queue).delivery_count == 1


def test_what_is_in_hands_no_more_is_left_out():
    with Engine() as engine:
        for name in "ab":
            engine.create_queue(name).publish(name)
        taken = [engine.get(name) for name in "ab"]
        taken[0].ack()
        engine.delete_queue("b")
        put_back(engine, taken)
        engine.check()
        assert engine.queues["a"].ready == engine.queues["a"].outstanding == 0


def test_its_place_is_that_of_before():
    """Others have been parked, and a selector has come that wants it."""
    with Engine() as engine:
        engine.create_queue("q")
        engine.create_queue("r")
        engine.create_selector("q", when=always, do=move_to("r"), credit=INFINITE, enabled=False)
        engine.publish_many("q", [("a",), ("b",)])
        taken = [engine.get("q")]
        reader = engine.create_selector("q", when=always, do=deliver("d"), credit=9)
        put_back(engine, taken)
        engine.check()
        reader.delete()
        engine.check()
        assert [address for address, _ in counts(engine.queues["q"])] == ["a", "b"]
