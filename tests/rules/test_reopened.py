"""What durable stores know of time, order and duplicates when they are opened again (decision 159), on the model."""

import pytest

from tests.model.stores import reopened
from tests.model.engine import ModelEngine
from tests.rules.seen import SECOND, addresses, stats, taken, worker
from xump import INFINITE, always, copy_to, deliver, field, match, move_to

ENDS = pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])


@pytest.fixture
def engine(clock):
    engine = ModelEngine(clock=clock)
    engine.stores.append("lmdb")
    return engine


def opened_again(engine, crashed):
    engine.sync()
    engine.check()
    new = reopened(engine, crashed)
    new.check()
    return new


@ENDS
def test_159_a_delay_ends_at_its_time_but_not_before_the_release(engine, clock, crashed):
    engine.create_queue("q", store="lmdb", ttl=4)
    engine.publish("q", "past", delay=5, priority=7, correlation_id="c")
    engine.publish("q", "to come", delay=50)
    engine = opened_again(engine, crashed)
    clock.tick(6)
    engine.tick()
    assert engine.queues["q"].delayed == 2 and engine.next_due is None
    worker(engine, "q")
    engine.queues["q"].release()
    assert taken(engine) == ["past"] and engine.queues["q"].delayed == 1
    assert (engine.queues["q"].fetch(1).priority, engine.queues["q"].fetch(1).correlation_id) == (7, "c")


@ENDS
def test_159_what_expired_meanwhile_does_so_at_the_release_in_order_of_time(engine, clock, crashed):
    engine.create_queue("q", store="lmdb", dead_letter="dead")
    engine.create_queue("dead", store="lmdb")
    for seconds in (9, 3, 6):
        engine.publish("q", str(seconds), ttl=seconds)
    engine = opened_again(engine, crashed)
    clock.tick(60)
    engine.tick()
    assert engine.queues["q"].ready == 3
    engine.create_queue("out")
    with engine.building():
        engine.create_selector("q", when=always, do=move_to("out"), credit=INFINITE)
    assert addresses(engine, "dead") == ["3", "6", "9"] and stats(engine, "out")["entered"] == 0
    assert {message.timestamp for message in engine.queues["dead"].browse()} == {clock.now}


def test_159_a_retry_keeps_its_time_when_the_store_was_closed_in_order(engine, clock):
    engine.create_queue("q", store="lmdb")
    engine.publish("q", "a")
    engine.get("q").nack(delay=5)
    engine = opened_again(engine, crashed=False)
    engine.queues["q"].release()
    assert engine.next_due == clock.now + 5 * SECOND


def test_159_after_a_crash_it_is_due_at_once(engine):
    engine.create_queue("q", store="lmdb")
    engine.publish("q", "a")
    engine.get("q").nack(delay=5)
    engine = opened_again(engine, crashed=True)
    assert engine.queues["q"].ready == 1
    assert engine.get("q").redelivered


@ENDS
def test_159_deadlines_end_and_what_was_taken_is_ready(engine, clock, crashed):
    engine.create_queue("q", store="lmdb")
    worker(engine, "q", ack_timeout=5)
    engine.publish("q", "a")
    engine.take(1)
    engine = opened_again(engine, crashed)
    assert engine.queues["q"].ready == 1 and engine.next_due is None
    worker(engine, "q")
    engine.queues["q"].release()
    delivery, = engine.take(1)
    assert delivery.redelivered
    clock.tick(60)
    delivery.ack()


@ENDS
def test_159_the_order_per_key_and_priorities_go_on(engine, crashed):
    engine.create_queue("q", store="lmdb", group=field("headers.key"), priority=9)
    for address, priority in (("a1", 0), ("a2", 9), ("b1", 5)):
        engine.publish("q", address, headers={"key": address[0]}, priority=priority)
    engine.get("q")
    engine = opened_again(engine, crashed)
    worker(engine, "q")
    engine.queues["q"].release()
    assert taken(engine) == ["b1", "a1"]


@ENDS
def test_159_what_was_taken_by_hand_before_it_was_routed_is_unrouted(engine, crashed):
    for name in ("q", "copies"):
        engine.create_queue(name, store="lmdb")
    engine.publish_many("q", [("a",), ("b",)])
    engine.get("q")
    engine = opened_again(engine, crashed)
    with engine.building():
        engine.create_selector("q", when=always, do=copy_to("copies"))
    assert addresses(engine, "copies") == ["a", "b"]


@ENDS
def test_159_duplicates_are_known_and_counted_anew(engine, clock, crashed):
    engine.create_queue("q", store="lmdb", dedup=10)
    for _ in range(2):
        engine.publish("q", message_id="x")
    engine = opened_again(engine, crashed)
    assert engine.publish("q", message_id="x") == 1 and stats(engine, "q")["duplicates"] == 1
    clock.tick(10)
    assert engine.publish("q", message_id="x") == 2


@ENDS
def test_159_what_was_kept_and_what_was_routed_stays_so(engine, crashed):
    engine.create_queue("q", store="lmdb", unmatched="keep")
    engine.create_queue("copies", store="lmdb")
    engine.create_selector("q", when=match("eq", "b"), do=deliver("d"), credit=0)
    engine.publish_many("q", [("a",), ("b",)])
    engine = opened_again(engine, crashed)
    with engine.building():
        engine.create_selector("q", when=match("prefix", ""), do=copy_to("copies"))
    assert addresses(engine, "copies") == ["a"]
