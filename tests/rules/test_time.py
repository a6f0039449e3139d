"""What falls due: moments, delays, retries. Each test is one sentence of docs/decisions.md, whose number it has."""

from datetime import UTC, datetime
from random import Random
from time import time_ns

import pytest

from tests.rules.seen import SECOND, addresses, reasons, stats, taken, worker
from xump import INFINITE, Engine, always, copy_to, discard, move_to, overflow
from xump.errors import QueueFull


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 3_155_760_001, 1e300])
def test_135_seconds_are_finite_not_negative_and_not_huge(engine, seconds):
    engine.create_queue("q")
    for call in (
        lambda: engine.publish("q", delay=seconds), lambda: engine.publish("q", ttl=seconds),
        lambda: engine.publish_many("q", [("a",)], delay=seconds), lambda: engine.create_queue("r", ttl=seconds),
        lambda: engine.create_queue("r", retry_delay=[1, seconds]), lambda: engine.create_queue("r", dedup=seconds),
        lambda: worker(engine, "q", ack_timeout=seconds),
    ):
        with pytest.raises(ValueError):
            call()
    assert stats(engine, "q")["entered"] == 0 and "r" not in engine.queues


def test_135_a_hundred_years_are_not_too_long(engine, clock):
    engine.create_queue("q", ttl=3_155_760_000)
    engine.publish("q", delay=3_155_760_000.0)
    assert engine.next_due == clock.now + 3_155_760_000 * SECOND


def publish_in_transaction(engine, queue, **terms):
    with engine.transaction() as tx:
        tx.publish(queue, **terms)


@pytest.mark.parametrize("terms", [
    {"delay": 1, "at": 5}, {"ttl": 1, "expires": 5}, {"at": datetime(2030, 1, 1)}, {"expires": datetime(2030, 1, 1)},
    {"at": 2**64}, {"at": datetime.max.replace(tzinfo=UTC)}, {"priority": 256}, {"priority": -1},
])
def test_135_what_a_publish_may_not_say(engine, terms):
    engine.create_queue("q")
    for call in (lambda: engine.publish("q", **terms), lambda: engine.publish_many("q", [("a",)], **terms),
                 lambda: publish_in_transaction(engine, "q", **terms)):
        with pytest.raises(ValueError):
            call()
    assert stats(engine, "q")["entered"] == 0


@pytest.mark.parametrize("terms", [{"delay": "1"}, {"delay": True}, {"at": 1.5}, {"expires": "now"}, {"priority": 1.0},
                                   {"priority": True}, {"correlation_id": 7}])
def test_135_what_is_of_another_type(engine, terms):
    engine.create_queue("q")
    with pytest.raises(TypeError):
        engine.publish("q", **terms)
    assert stats(engine, "q")["entered"] == 0


@pytest.mark.parametrize("properties", [{"retry_delay": []}, {"priority": 0}, {"priority": 256}, {"dedup_limit": 0},
                                        {"limit_bytes": -1}, {"when_full": "drop"}, {"unmatched": "wait"}])
def test_135_what_a_queue_may_not_have(engine, properties):
    with pytest.raises(ValueError):
        engine.create_queue("q", **properties)
    assert "q" not in engine.queues


def test_135_a_time_may_be_a_datetime_and_the_same_seconds_are_the_same_properties(engine, clock):
    queue = engine.create_queue("q", retry_delay=5, ttl=60)
    assert engine.create_queue("q", retry_delay=[5.0], ttl=60.0) is queue
    at = datetime.fromtimestamp(clock.now // SECOND + 5, UTC)
    engine.publish("q", "a", at=at)
    assert engine.next_due == clock.now + 5 * SECOND and queue.delayed == 1


def test_136_what_is_due_is_done_at_its_own_moment(engine, clock):
    engine.create_queue("q", dead_letter="dead")
    engine.create_queue("dead")
    for seconds in (7, 3):
        engine.publish("q", str(seconds), ttl=seconds)
    start = clock.now
    clock.tick(100)
    engine.tick()
    assert [m.timestamp - start for m in engine.queues["dead"].browse()] == [3 * SECOND, 7 * SECOND]


def test_136_what_is_due_at_the_clock_is_due_and_expiries_go_first(engine, clock):
    engine.create_queue("q")
    worker(engine, "q")
    engine.publish("q", "both", delay=5, expires=clock.now + 5 * SECOND)
    engine.publish("q", "delay", delay=5)
    clock.tick(5)
    assert taken(engine) == ["delay"] and stats(engine, "q")["dropped"] == {"expired": 1}


def test_136_expiries_go_first_among_others_too(engine, clock):
    engine.create_queue("q", delivery_limit=1, dead_letter="dead")
    engine.create_queue("dead", limit=1)
    worker(engine, "q", ack_timeout=5)
    engine.publish("q", "taken")
    engine.take(1)
    engine.publish("q", "expires", ttl=5)
    clock.tick(5)
    engine.tick()
    assert addresses(engine, "dead") == ["expires"] and stats(engine, "q")["dropped"] == {"delivery-limit": 1}


def test_136_looking_does_nothing(engine, clock):
    engine.create_queue("q")
    engine.publish("q", "a", delay=5)
    clock.tick(5)
    assert engine.queues["q"].delayed == 1 and engine.next_due == clock.now
    assert addresses(engine, "q", "delayed") == ["a"] and engine.queues["q"].fetch(1).address == "a"
    assert stats(engine, "q")["delayed"] == 1
    engine.tick()
    assert (engine.queues["q"].delayed, engine.queues["q"].ready, engine.next_due) == (0, 1, None)


def test_136_a_call_that_raises_has_done_what_was_due(engine, clock):
    engine.create_queue("full", limit=0)
    engine.create_queue("q")
    engine.publish("q", "a", delay=5)
    clock.tick(5)
    with pytest.raises(QueueFull):
        engine.publish("full")
    assert engine.queues["q"].ready == 1


def test_136_room_that_came_too_late_is_no_room_for_what_was_refused_at_its_moment(engine, clock):
    """More or fewer calls in between change nothing."""
    engine.create_queue("q", limit=1)
    engine.create_queue("src", dead_letter="q")
    engine.publish("q", "first", ttl=5)
    engine.publish("src", "early", ttl=4)
    engine.publish("src", "late", ttl=6)
    clock.tick(60)
    engine.tick()
    assert addresses(engine, "q") == ["late"] and stats(engine, "src")["dropped"] == {"expired": 1}


def test_137_a_clock_that_runs_backwards_undoes_nothing_and_durations_count_from_the_highest_time(engine, clock):
    engine.create_queue("q", ttl=10)
    engine.publish("q", "a")
    clock.tick(-100)
    engine.publish("q", "b")
    engine.create_queue("other")
    engine.publish("other", "c", ttl=10)
    assert engine.queues["q"].ready == 2 and engine.queues["other"].fetch(1).timestamp == clock.now
    clock.tick(109)
    engine.tick()
    assert engine.queues["q"].ready == 2 and engine.queues["other"].ready == 1
    clock.tick(1)
    engine.tick()
    assert engine.queues["q"].ready == 0 and engine.queues["other"].ready == 0


def test_138_what_was_due_before_a_block_is_routed_before_it_and_what_is_due_in_it_at_its_end(engine, clock):
    engine.create_queue("q")
    engine.create_queue("out")
    engine.create_selector("q", when=always, do=move_to("out"), credit=INFINITE)
    engine.publish("q", "before", delay=5)
    engine.publish("q", "within", delay=6)
    engine.publish("q", "gone", expires=clock.now + 6 * SECOND, delay=20)
    clock.tick(5)
    with engine.building():
        assert addresses(engine, "out") == ["before"]
        clock.tick(1)
        engine.tick()
        assert addresses(engine, "q", "ready") == ["within"] and stats(engine, "q")["dropped"] == {"expired": 1}
    assert addresses(engine, "out") == ["before", "within"]


def test_139_what_is_late_at_its_entry_needs_no_room_and_has_an_id(engine, clock):
    engine.create_queue("q", limit=0, dead_letter="dead")
    engine.create_queue("dead")
    engine.create_selector("q", when=always, do=discard)
    assert engine.publish("q", "a", expires=clock.now - 1) == 1
    assert reasons(engine, "dead") == ["expired"] and engine.queues["dead"].fetch(1).expires is None
    engine.create_queue("none")
    assert engine.publish_many("none", [("a",), ("b",)], expires=clock.now - 1) == range(1, 3)
    assert stats(engine, "none")["dropped"] == {"expired": 2}


def test_140_a_delayed_message_is_neither_ready_nor_routed_and_counts(engine, clock):
    queue = engine.create_queue("q", limit=2)
    worker(engine, "q")
    assert engine.publish("q", "later", delay=5) == 1 and engine.publish("q", "now") == 2
    assert (queue.delayed, queue.ready, queue.outstanding) == (1, 0, 1) and queue.frontier == 3
    engine.publish("q", "more", delay=9)
    with pytest.raises(QueueFull):
        engine.publish("q")
    assert queue.purge() == 2 and queue.delayed == 0


def test_140_a_time_that_is_over_delays_nothing(engine, clock):
    engine.create_queue("q")
    engine.publish("q", "a", at=clock.now)
    engine.publish("q", "b", delay=0)
    assert engine.queues["q"].ready == 2


def test_140_an_overflow_selector_takes_no_delayed_message(engine):
    engine.create_queue("q", limit=1, dead_letter="dead")
    for name in ("out", "dead"):
        engine.create_queue(name)
    engine.create_selector("q", when=overflow, do=move_to("out"), credit=INFINITE)
    engine.publish_many("q", [("a",), ("b",)])
    assert engine.publish("q", "c", delay=5) == 0
    assert addresses(engine, "out") == ["b"] and reasons(engine, "dead") == ["overflow"] and engine.queues["dead"].ready == 1


@pytest.mark.parametrize("start", ["current", "tail", "head"])
def test_140_what_was_delayed_has_just_come_when_its_delay_ends(engine, clock, start):
    for name in ("q", "copies"):
        engine.create_queue(name)
    engine.publish("q", "later", delay=5)
    engine.publish("q", "now")
    engine.create_selector("q", when=always, do=copy_to("copies"), start=start)
    assert "later" not in addresses(engine, "copies")
    clock.tick(5)
    engine.tick()
    assert addresses(engine, "copies").count("later") == 1


@pytest.mark.parametrize("start", ["current", "tail", "head"])
@pytest.mark.parametrize("ticks", [True, False], ids=["before", "in the call"])
def test_140_a_selector_that_is_enabled_after_the_delay_has_ended_copies_it_once(engine, clock, start, ticks):
    queue = engine.create_queue("q", history_limit=None)
    engine.create_queue("copies")
    engine.publish("q", "later", delay=5)
    engine.publish("q", "now")
    selector = engine.create_selector("q", when=always, do=copy_to("copies"), start=start, enabled=False)
    clock.tick(5)
    if ticks:
        engine.tick()
    selector.enable()
    assert addresses(engine, "copies").count("later") == 1
    assert queue.ready == (1 if start == "tail" else 0)


def test_140_a_replay_leaves_out_what_is_late(engine, clock):
    engine.create_queue("q", history_limit=None)
    engine.create_queue("copies")
    for address, ttl in (("late", 5), ("in time", 60)):
        engine.publish("q", address, ttl=ttl)
        engine.get("q").ack()
    clock.tick(6)
    engine.create_selector("q", when=always, do=copy_to("copies"), start="head")
    assert addresses(engine, "copies") == ["in time"] and stats(engine, "copies")["entered"] == 1


def test_140_it_goes_at_its_old_place(engine, clock):
    engine.create_queue("q")
    engine.publish("q", "first", delay=5)
    engine.publish("q", "second")
    clock.tick(5)
    worker(engine, "q", credit=1)
    assert taken(engine) == ["first"]


def test_141_nack_with_a_delay_keeps_the_place_and_frees_the_credit(engine, clock):
    queue = engine.create_queue("q")
    worker(engine, "q", credit=1)
    engine.publish_many("q", [("a",), ("b",)])
    delivery, = engine.take(1)
    delivery.nack(delay=5)
    assert queue.delayed == 1 and taken(engine) == ["b"]
    clock.tick(5)
    engine.selectors[1].grant(1)
    again, = engine.take(1)
    assert again.message.address == "a" and again.redelivered and again.delivery_count == 2


def test_141_a_list_of_delays_has_one_for_each_delivery_and_the_last_for_the_rest(engine, clock):
    engine.create_queue("q", retry_delay=[1, 5])
    worker(engine, "q")
    engine.publish("q", "a")
    for seconds in (1, 5, 5):
        delivery, = engine.take(1)
        delivery.nack()
        assert engine.next_due == clock.now + seconds * SECOND
        clock.tick(seconds)
    delivery, = engine.take(1)
    delivery.nack(delay=0)
    assert engine.queues["q"].delayed == 0 and taken(engine) == ["a"]


def test_141_the_nearest_queue_upstream_has_the_word_and_the_message_waits_there(engine, clock):
    engine.create_queue("pack", retry_delay=5)
    engine.create_queue("wolf")
    engine.create_selector("pack", when=always, do=move_to("wolf"), credit=1)
    worker(engine, "wolf")
    engine.publish_many("pack", [("a",), ("b",)])
    delivery, = engine.take(1)
    delivery.nack()
    assert engine.queues["pack"].delayed == 1 and taken(engine) == ["b"]
    assert stats(engine, "wolf")["deleted"] == 1


def test_141_explicit_delays_wait_where_the_message_is(engine):
    engine.create_queue("pack", retry_delay=5)
    engine.create_queue("wolf")
    engine.create_selector("pack", when=always, do=move_to("wolf"), credit=1)
    worker(engine, "wolf")
    engine.publish("pack", "a")
    engine.take(1)[0].nack(delay=9)
    assert engine.queues["wolf"].delayed == 1 and engine.queues["pack"].outstanding == 1


def test_141_delivery_limit_is_asked_before_and_refusals_never_wait(engine):
    engine.create_queue("q", retry_delay=5, delivery_limit=1)
    worker(engine, "q")
    engine.publish_many("q", [("a",), ("b",), ("c",)])
    first, second, third = engine.take(3)
    first.nack()
    second.nack(requeue=False)
    third.reject()
    assert stats(engine, "q")["dropped"] == {"delivery-limit": 1, "rejected": 2}


def test_141_delay_and_requeue_false_contradict_each_other(engine):
    engine.create_queue("q")
    worker(engine, "q")
    engine.publish("q", "a")
    delivery, = engine.take(1)
    with pytest.raises(ValueError):
        delivery.nack(requeue=False, delay=5)
    delivery.ack()


def test_141_recalls_and_deleted_selectors_give_back_at_once(engine):
    engine.create_queue("q", retry_delay=5)
    selector = worker(engine, "q")
    engine.publish("q", "a")
    engine.take(1)
    selector.delete()
    assert engine.queues["q"].ready == 1


def test_141_what_is_tried_again_is_not_copied_again(engine, clock):
    engine.create_queue("q", retry_delay=5)
    engine.create_queue("copies")
    engine.create_selector("q", when=always, do=copy_to("copies"))
    selector = worker(engine, "q")
    engine.publish("q", "a")
    engine.take(1)[0].nack()
    selector.delete()
    clock.tick(5)
    engine.tick()
    assert addresses(engine, "copies") == ["a"] and engine.queues["q"].ready == 1


def test_142_what_came_back_by_time_is_yielded_again(engine, clock):
    engine.create_queue("q")
    worker(engine, "q")
    engine.publish("q", "a")
    seen = []
    for delivery in engine.deliveries():
        seen.append(delivery.delivery_count)
        if len(seen) == 3:
            delivery.ack()
        else:
            delivery.nack(delay=5)
            clock.tick(5)
    assert seen == [1, 2, 3]


def test_142_a_delay_of_0_is_no_time(engine):
    engine.create_queue("q")
    worker(engine, "q")
    engine.publish("q", "a")
    for count, delivery in enumerate(engine.deliveries()):
        assert count == 0
        delivery.nack(delay=0)


def test_136_many_delays_end_each_at_its_own_moment_in_one_late_call(engine, clock):
    """With others between them: equal moments, what is cancelled meanwhile, and an expiry."""
    engine.create_queue("src")
    engine.create_queue("log")
    engine.create_queue("rare", ttl=30)
    engine.create_selector("src", when=always, do=copy_to("log"))
    engine.create_selector("src", when=always, do=move_to("rare"), credit=INFINITE)
    draw, now = Random(136), clock.now
    delays = [draw.randrange(1, 90) for _ in range(300)]
    for delay in delays:
        engine.publish("src", str(delay), delay=delay)
    gone = draw.sample(range(300), 60)
    for number in gone:
        assert engine.queues["src"].delete(number + 1)
    clock.tick(100)
    engine.tick()
    seen = [(message.timestamp - now, message.address) for message in engine.queues["log"].browse()]
    left = sorted((delay, number) for number, delay in enumerate(delays) if number not in set(gone))
    assert seen == [(delay * SECOND, str(delay)) for delay, _ in left]
    assert addresses(engine, "rare") == [address for moment, address in seen if moment > 70 * SECOND]
    assert engine.queues["src"].delayed == 0 and engine.next_due == now + min(
        moment + 30 * SECOND for moment, _ in seen if moment > 70 * SECOND)


def test_136_with_the_clock_of_the_system_too():
    """Moments that no call has met are past when the next one comes: each is done at its own time."""
    ahead = 1_000_000
    with Engine() as engine:
        engine.create_queue("src")
        engine.create_queue("log")
        engine.create_selector("src", when=always, do=copy_to("log"))
        while engine.queues["src"].delayed < 3:         # on a slow machine the moment is past before all are published
            engine.queues["src"].purge()
            engine.queues["log"].purge()
            ahead *= 2
            first = time_ns() + ahead
            for late in (0, 7, 3):
                engine.publish("src", at=first + late)
        while time_ns() < first + 1_000_000:
            pass
        engine.tick()
        assert [message.timestamp - first for message in engine.queues["log"].browse()] == [0, 3, 7]
        assert engine.queues["log"].fetch(engine.publish("log")).timestamp >= first + 1_000_000
