"""What expires, and deadlines of deliveries. Each test is one sentence of docs/decisions.md, whose number it has."""

import pytest

from tests.rules.seen import SECOND, addresses, reasons, stats, taken, worker
from xump import INFINITE, always, bounce_to, copy_to, deliver, discard, move_to, overflow
from xump.errors import StaleDelivery


def test_143_ttl_counts_from_the_end_of_the_delay(engine, clock):
    engine.create_queue("q", ttl=4)
    engine.publish("q", "of the queue", delay=5)
    engine.publish("q", "of the message", delay=5, ttl=2)
    assert engine.queues["q"].fetch(2).expires == clock.now + 7 * SECOND
    seen = {}
    for second in range(1, 12):
        clock.tick(1)
        engine.tick()
        seen[second] = addresses(engine, "q", "ready")
    assert (seen[4], seen[6], seen[8], seen[9]) == ([], ["of the queue", "of the message"], ["of the queue"], [])


def test_143_expires_travels_but_not_with_a_dead_letter(engine, clock):
    for name in ("a", "b", "c", "d"):
        engine.create_queue(name)
    engine.create_selector("a", when=always, do=move_to("b"), credit=INFINITE)
    engine.create_selector("b", when=always, do=copy_to("c"))
    engine.create_selector("c", when=always, do=bounce_to("d"), credit=1)
    engine.publish("a", "x", ttl=5, priority=7, correlation_id="c")
    message = engine.queues["d"].fetch(1)
    assert (message.expires, message.priority, message.correlation_id) == (clock.now + 5 * SECOND, 7, "c")


def test_143_a_dead_letter_keeps_priority_and_correlation_only(engine, clock):
    engine.create_queue("q", dead_letter="dead")
    engine.create_queue("dead")
    worker(engine, "q")
    engine.publish("q", "x", ttl=5, priority=7, correlation_id="c")
    engine.take(1)[0].reject()
    message = engine.queues["dead"].fetch(1)
    assert (message.expires, message.priority, message.correlation_id) == (None, 7, "c")


def test_143_what_is_offered_is_withdrawn_and_what_is_taken_is_not(engine, clock):
    engine.create_queue("q", ttl=5)
    selector = worker(engine, "q")
    engine.publish_many("q", [("taken",), ("offered",)])
    delivery, = engine.take(1)
    clock.tick(5)
    assert engine.take(9) == [] and selector.available == 9
    assert engine.stats()["selectors"][selector.id]["returned"] == 1
    delivery.ack()
    assert stats(engine, "q")["settled"] == 1 and stats(engine, "q")["dropped"] == {"expired": 1}


def test_143_what_is_bound_expires(engine, clock):
    engine.create_queue("q", ttl=5, history_limit=2, dead_letter="dead")
    engine.create_queue("dead")
    worker(engine, "q", credit=INFINITE)
    engine.publish("q", "x")
    clock.tick(5)
    assert engine.take(1) == [] and reasons(engine, "dead") == ["expired"] and engine.queues["q"].history == 1


def test_143_with_a_ttl_of_0_it_is_routed_in_its_call_or_never(engine):
    for name in ("q", "out"):
        engine.create_queue(name)
    engine.publish("q", "nobody", ttl=0)
    assert stats(engine, "q")["dropped"] == {"expired": 1}
    worker(engine, "q")
    engine.publish("q", "offered only", ttl=0)
    assert engine.take(1) == [] and stats(engine, "q")["dropped"] == {"expired": 2}
    engine.create_queue("sink")
    engine.create_selector("sink", when=always, do=discard)
    engine.publish("sink", "settled", ttl=0)
    assert stats(engine, "sink")["settled"] == 1


def test_144_what_returns_after_its_time_expires_at_once(engine, clock):
    engine.create_queue("q", ttl=5, retry_delay=1)
    worker(engine, "q")
    engine.publish("q", "a")
    delivery, = engine.take(1)
    clock.tick(60)
    delivery.nack()
    assert stats(engine, "q")["dropped"] == {"expired": 1} and engine.queues["q"].delayed == 0


def test_144_a_retry_that_would_come_too_late_expires_at_its_time(engine, clock):
    engine.create_queue("q", ttl=5)
    worker(engine, "q")
    engine.publish("q", "a")
    engine.take(1)[0].nack(delay=60)
    assert engine.next_due == clock.now + 5 * SECOND
    clock.tick(5)
    engine.tick()
    assert stats(engine, "q")["dropped"] == {"expired": 1}


def test_144_what_is_further_down_expires_where_it_comes_from_when_it_is_recalled(engine, clock):
    engine.create_queue("up", ttl=5)
    engine.create_queue("down")
    mover = engine.create_selector("up", when=always, do=move_to("down"), credit=1)
    engine.publish("up", "a")
    clock.tick(60)
    engine.tick()
    assert engine.queues["down"].ready == 1
    mover.delete()
    assert stats(engine, "up")["dropped"] == {"expired": 1}


def test_144_a_queue_that_is_being_deleted_takes_no_dead_letters(engine, clock):
    engine.create_queue("up", ttl=5, dead_letter="down")
    engine.create_queue("down")
    engine.create_selector("up", when=always, do=move_to("down"), credit=1)
    engine.publish("up", "a")
    clock.tick(60)
    engine.delete_queue("down")
    assert stats(engine, "up")["dropped"] == {"expired": 1}


def test_144_it_is_not_offered_once_more_when_its_time_is_over_just_now(engine, clock):
    engine.create_queue("q", ttl=5)
    selector = worker(engine, "q")
    engine.publish("q", "a")
    delivery, = engine.take(1)
    clock.tick(5)
    delivery.nack()
    assert engine.stats()["selectors"][selector.id]["served"] == 1 and stats(engine, "q")["dropped"] == {"expired": 1}


def test_144_a_queue_that_is_being_deleted_counts_as_none(engine_of, clock):
    engine = engine_of(dead_letter="dead")
    engine.create_queue("up", ttl=5, dead_letter="down")
    for name in ("down", "dead"):
        engine.create_queue(name)
    engine.create_selector("up", when=always, do=move_to("down"), credit=1)
    engine.publish("up", "a")
    clock.tick(60)
    engine.delete_queue("down")
    assert reasons(engine, "dead") == ["expired"]


def test_144_nor_does_it_take_what_overflows(engine, clock):
    engine.create_queue("up", ttl=5, dead_letter="full")
    engine.create_queue("down")
    engine.create_queue("full", limit=0)
    engine.create_selector("up", when=always, do=move_to("down"), credit=1)
    engine.create_selector("full", when=overflow, do=move_to("down"), credit=INFINITE)
    engine.publish("up", "a")
    clock.tick(60)
    engine.delete_queue("down")
    assert stats(engine, "up")["dropped"] == {"expired": 1}


def test_145_two_queues_that_expire_into_each_other_end(engine_of, clock):
    engine = engine_of(hop_limit=3)
    engine.create_queue("a", ttl=1, dead_letter="b")
    engine.create_queue("b", ttl=1, dead_letter="a")
    engine.publish("a", "x")
    clock.tick(1000)
    engine.tick()
    assert (stats(engine, "a")["entered"], stats(engine, "b")["entered"]) == (2, 2)
    assert stats(engine, "b")["dropped"] == {"expired": 1} and engine.next_due is None


def test_145_in_one_moment_a_message_is_dead_lettered_once(engine):
    engine.create_queue("a", ttl=0, dead_letter="b")
    engine.create_queue("b", ttl=0, dead_letter="a")
    engine.publish("a", "x")
    assert stats(engine, "b")["dropped"] == {"expired": 1} and stats(engine, "a")["entered"] == 1


def test_145_what_your_program_rejected_sets_out_anew(engine_of, clock):
    """A parking queue: rejected, it comes again after a while, as long as you like."""
    engine = engine_of(hop_limit=4)
    engine.create_queue("work", dead_letter="parking")
    engine.create_queue("parking", ttl=5, dead_letter="work")
    worker(engine, "work")
    engine.publish("work", "x")
    for _ in range(10):
        delivery, = engine.take(1)
        delivery.reject()
        clock.tick(5)
    assert taken(engine) == ["x"]


def test_146_what_is_not_answered_in_time_is_nacked(engine, clock):
    engine.create_queue("q", retry_delay=3)
    worker(engine, "q", ack_timeout=5)
    engine.publish("q", "a")
    delivery, = engine.take(1)
    clock.tick(4)
    delivery.extend(5)
    clock.tick(4)
    engine.tick()
    assert engine.queues["q"].outstanding == 1
    clock.tick(1)
    with pytest.raises(StaleDelivery):
        delivery.ack()
    with pytest.raises(StaleDelivery):
        delivery.extend(1)
    assert engine.queues["q"].delayed == 1
    clock.tick(3)
    assert engine.take(1)[0].delivery_count == 2


def test_146_time_spends_deliveries(engine, clock):
    engine.create_queue("q", delivery_limit=1)
    worker(engine, "q", ack_timeout=5)
    engine.publish("q", "a")
    engine.take(1)
    clock.tick(5)
    engine.tick()
    assert stats(engine, "q")["dropped"] == {"delivery-limit": 1}


def test_146_only_deliveries_of_finite_credit_have_a_deadline(engine):
    for name in ("q", "r"):
        engine.create_queue(name)
    for do, credit, timeout in ((move_to("r"), 1, 5), (deliver("d", queue="r"), 1, 5), (deliver("d"), INFINITE, 5),
                                (copy_to("r"), 1, 5), (discard, 1, 5), (deliver("d"), 1, 0)):
        with pytest.raises(ValueError):
            engine.create_selector("q", when=always, do=do, credit=credit, ack_timeout=timeout)
    worker(engine, "q")
    engine.publish("q", "a")
    delivery, = engine.take(1)
    with pytest.raises(ValueError):
        delivery.extend(5)


def test_146_a_block_whose_time_is_over_raises_unless_it_raises_itself(engine, clock):
    engine.create_queue("q")
    worker(engine, "q", ack_timeout=5)
    engine.publish("q", "a")
    with pytest.raises(StaleDelivery), engine.take(1)[0]:
        clock.tick(5)
    with pytest.raises(ZeroDivisionError), engine.take(1)[0]:
        clock.tick(5)
        raise ZeroDivisionError


def test_a_dead_letter_is_routed_by_the_graph_that_is_left(engine, clock):
    """Its queue was deleted while it was in `d`: it comes back, has expired, and its dead letter queue has no selector now."""
    engine.create_queue("q", dead_letter="dead", ttl=1)
    engine.create_queue("dead")
    engine.create_queue("d")
    engine.create_selector("q", when=always, do=move_to("d"), credit=1)
    engine.create_selector("dead", when=always, do=move_to("d"), credit=INFINITE)
    engine.publish("q", "x")
    clock.tick(2)
    engine.delete_queue("d")
    assert addresses(engine, "dead") == ["x"] and stats(engine, "dead")["dropped"] == {}


def test_what_has_expired_in_an_outlet_s_hands_makes_room_when_its_selector_goes(engine, clock):
    for name in ("q", "jobs"):
        engine.create_queue(name, limit=1, ttl=5 if name == "jobs" else None)
    engine.create_selector("q", when=always, do=move_to("jobs"), credit=INFINITE)
    selector = worker(engine, "jobs", credit=INFINITE)
    engine.outlet(lambda: None, ["jobs"])
    engine.publish("jobs", "old")
    clock.tick(1)
    engine.publish("q", "new")
    clock.tick(7)
    engine.delete_selector(selector)
    assert (addresses(engine, "q"), addresses(engine, "jobs")) == ([], ["new"])
