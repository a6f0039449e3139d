"""Where features of section 9 meet. Random programs found that one of the two engines went wrong here (`tests/model`)."""

import pyarrow
import pytest

from tests.rules.seen import SECOND, addresses, reasons, stats, taken, worker
from xump import INFINITE, Message, always, copy_to, deliver, field, match, move_to, overflow
from xump.errors import QueueFull


# ---- calls

def test_136_calls_that_find_nothing_to_do_do_what_is_due(engine, clock):
    engine.create_queue("q")
    def named():
        return engine.create_selector("q", when=always, do=deliver("q"), credit=10, name="w")

    named()
    calls = (lambda: engine.delete_queue("none"), lambda: engine.delete_selector(99), lambda: engine.create_queue("q"), named)
    for number, call in enumerate(calls, 1):
        engine.publish("q", delay=1)
        clock.tick(1)
        call()
        assert stats(engine, "q")["delayed"] == 0 and stats(engine, "q")["outstanding"] == number


def test_166_what_is_settled_is_not_answered(engine, clock):
    engine.create_queue("q")
    worker(engine, "q", INFINITE)
    engine.publish("q")
    delivery, = engine.take(1)
    engine.publish("q", delay=1)
    clock.tick(1)
    for answer in (delivery.ack, delivery.nack, delivery.reject):
        answer()
        assert stats(engine, "q")["delayed"] == 1
    with pytest.raises(ValueError):     # nor has it a deadline
        delivery.extend(1)


# ---- publishers that wait for room

def test_153_who_looks_lets_nobody_in(engine, clock):
    engine.create_queue("q", limit=0)
    engine.publish_waiting("q", ttl=1)
    engine.publish_waiting("q", expires=clock.now + SECOND)
    clock.tick(5)
    assert stats(engine, "q")["entered"] == 0 and engine.next_due is None
    engine.check()
    engine.tick()       # one of them is late now, and needs no room
    assert stats(engine, "q")["dropped"] == {} and stats(engine, "q")["entered"] == 0


def test_153_who_is_late_is_let_in_when_a_block_begins(engine, clock):
    engine.create_queue("q", limit=0)
    waiting = engine.publish_waiting("q", expires=clock.now + SECOND)
    clock.tick(5)
    with engine.building():
        assert waiting.id == 1 and stats(engine, "q")["dropped"] == {"expired": 1}


def test_153_a_take_of_two_makes_room_when_it_ends(engine):
    engine.create_queue("q", limit=1)
    worker(engine, "q", INFINITE)
    engine.publish("q", "1")
    waiting = engine.publish_waiting("q", "2")
    assert taken(engine, 2) == ["1"]
    assert waiting.id == 2 and taken(engine, 2) == ["2"]


# ---- duplicates

def test_149_a_window_of_no_time_knows_nothing_not_even_in_one_call(engine):
    engine.create_queue("q", dedup=0)
    assert engine.publish_many("q", [("a", b"", None, None, "m")] * 3) == range(1, 4)
    assert stats(engine, "q")["duplicates"] == 0


# ---- rooms of many messages

def test_139_the_dead_letter_of_a_late_message_takes_room_from_those_behind_it(engine, clock):
    engine.create_queue("q", limit=0, dead_letter="dead")
    engine.create_queue("dead", limit=1)
    messages = [Message("late", expires=clock.now - 1), Message("too much")]
    with pytest.raises(QueueFull):
        engine.publish_many("q", messages)
    assert stats(engine, "q")["entered"] == stats(engine, "dead")["entered"] == 0
    assert engine.publish_many("q", messages[:1]) == range(1, 2) and reasons(engine, "dead") == ["expired"]


def test_167_a_range_spans_what_entered_between(engine, clock):
    """The first message is late; its dead letter overflows into the queue that it came from."""
    engine.create_queue("q")
    engine.create_queue("dead", limit=0)
    engine.create_queue("more", dead_letter="dead")
    engine.create_selector("dead", when=overflow, do=move_to("more"), credit=9)
    assert engine.publish_many("more", [Message("late", expires=clock.now - 1), Message("good")]) == range(1, 4)
    assert addresses(engine, "more") == ["late", "good"]


# ---- drop_oldest

@pytest.mark.parametrize("terms", [{"delay": 5}, {}])
def test_152_what_is_delayed_pushes_too(engine, terms):
    engine.create_queue("q", limit=1, when_full="drop_oldest")
    engine.publish("q", "old")
    engine.publish("q", "new", **terms)
    assert addresses(engine, "q") == ["new"] and stats(engine, "q")["dropped"] == {"overflow": 1}


def test_152_a_nack_with_a_delay_drops_too(engine):
    engine.create_queue("q", limit=2, priority=9, when_full="drop_oldest")
    engine.publish("q", "old")
    engine.publish("q", "taken", priority=9)
    delivery = engine.get("q")
    engine.publish("q", "new")
    delivery.nack(delay=5)
    assert addresses(engine, "q") == ["taken", "new"] and addresses(engine, "q", "delayed") == ["taken"]


def test_152_what_an_overflow_selector_binds_is_ready_and_pushes(engine):
    engine.create_queue("q", limit=1, when_full="drop_oldest")
    engine.create_selector("q", when=overflow, do=deliver("out"), credit=INFINITE)
    engine.publish("q", "old")
    engine.publish("q", "new")
    assert addresses(engine, "q") == ["new"] and taken(engine) == ["new"]


def test_152_the_lowest_priority_goes_first_among_those_that_nobody_matches(engine):
    engine.create_queue("q", limit=2, priority=9, when_full="drop_oldest", unmatched="keep")
    engine.create_selector("q", when=match("eq", "never"), do=deliver("out"))
    engine.publish("q", "high", priority=5)
    engine.publish("q", "low", priority=1)
    engine.publish("q", "new", priority=5)
    assert addresses(engine, "q") == ["high", "new"]


def test_152_the_lowest_priority_goes_first_among_those_that_are_bound(engine):
    engine.create_queue("q", limit=2, priority=9, when_full="drop_oldest")
    worker(engine, "q", INFINITE)
    engine.publish("q", "high", priority=5)
    engine.publish("q", "low", priority=1)
    engine.publish("q", "new", priority=5)
    assert addresses(engine, "q") == ["high", "new"]


def test_152_the_lowest_id_goes_first_also_if_it_was_bound_last(engine, clock):
    engine.create_queue("q", limit=3, when_full="drop_oldest")
    worker(engine, "q", INFINITE)
    engine.publish("q", "1", delay=5)
    first = clock.now
    clock.tick(1)
    engine.publish("q", "2")
    assert engine.queues["q"].oldest == clock.now
    clock.tick(5)
    engine.publish("q", "3")
    assert engine.queues["q"].oldest == first
    engine.publish("q", "4")
    assert addresses(engine, "q") == ["2", "3", "4"] and taken(engine) == ["2", "3", "4"]


# ---- what nobody matches

def test_150_a_dead_letter_may_overflow_into_the_room_that_its_message_leaves(engine):
    engine.create_queue("q", limit=1, dead_letter="dead")
    engine.create_queue("dead", limit=0)
    engine.create_selector("dead", when=overflow, do=move_to("q"), credit=1)
    engine.publish("q", "a")
    engine.create_selector("q", when=match("eq", "never"), do=deliver("out"))
    assert stats(engine, "q")["dead_lettered"] == {"unroutable": 1} and stats(engine, "dead")["settled"] == 1
    assert stats(engine, "q")["dropped"] == {"unroutable": 1}       # it came back, and is dead-lettered once in a run


def test_154_a_block_keeps_nothing_back_that_no_selector_matches(engine):
    engine.create_queue("q", unmatched="keep")
    engine.create_selector("q", when=match("eq", "never"), do=deliver("out"))
    engine.publish_many("q", [("a",), ("b",)])
    with engine.building():
        engine.create_selector("q", when=match("eq", "a"), do=deliver("out"))
        assert engine.get("q").message.address == "b"
        assert engine.get("q") is None
    assert taken(engine) == ["a"]


def test_154_get_goes_by_priority_among_those_that_nobody_matches(engine):
    engine.create_queue("q", unmatched="keep", priority=9)
    engine.create_selector("q", when=match("eq", "never"), do=deliver("out"))
    engine.publish("q", "low")
    engine.publish("q", "high", priority=9)
    assert engine.get("q").message.address == "high"


def test_154_get_goes_by_priority_among_those_that_came_back_to_a_held_queue(engine):
    engine.create_queue("q", priority=9)
    selector = worker(engine, "q")
    engine.publish("q", "low")
    engine.publish("q", "high", priority=9)
    engine.queues["q"].hold()
    selector.delete()
    assert engine.get("q").message.address == "high"


def test_154_get_gives_a_row_of_a_batch_that_nobody_routed(engine):
    """The rows stay in their columns as long as nobody asks for them."""
    engine.create_queue("q")
    if hasattr(engine, "publish_batch"):        # to the model it is `publish_many`
        engine.publish_batch("q", pyarrow.table({"address": ["a", "b"]}))
    else:
        engine.publish_many("q", [("a",), ("b",)])
    assert engine.get("q").message.address == "a" and engine.get("q").message.address == "b"


# ---- the end of selectors and queues

def test_144_what_is_late_when_its_selector_ends_expires_by_id(engine, clock):
    engine.create_queue("q", dead_letter="dead")
    engine.create_queue("dead")
    selector = worker(engine, "q")
    engine.publish_many("q", [("1",), ("2",), ("3",)], ttl=1)
    kept = [delivery for delivery in engine.take(3) if delivery.id != 2 or delivery.nack()]
    kept += engine.take(1)
    clock.tick(1)
    selector.delete()
    assert [message.headers["xump_original_address"] for message in engine.queues["dead"].browse()] == ["1", "2", "3"]


def test_144_what_is_late_in_a_queue_that_is_deleted_is_deleted(engine, clock):
    engine.create_queue("q", dead_letter="dead")
    engine.create_queue("dead")
    engine.publish("q", ttl=1)
    delivery = engine.get("q")
    clock.tick(1)
    engine.delete_queue("q")
    assert delivery is not None and addresses(engine, "dead") == []


# ---- visited sets

def test_165_what_expires_in_the_run_in_which_it_came_goes_on_with_its_visited_set(engine):
    """Two paths lead into `b` and `c`, which expire into `d`, where they expire at once, too, but for one of them."""
    for name, dead in (("a", None), ("b", "d"), ("c", None), ("d", None)):
        engine.create_queue(name, dead_letter=dead, ttl=0 if name == "b" else None)
    with engine.building():
        engine.create_selector("a", when=always, do=copy_to("b"))
        engine.create_selector("a", when=always, do=copy_to("c"))
        engine.create_selector("d", when=always, do=copy_to("c"))
    engine.publish("a", "x")
    assert stats(engine, "b")["dead_lettered"] == {"expired": 1}
    assert stats(engine, "c")["entered"] == 1       # the message itself, and no copy of its dead letter


def test_165_what_was_offered_begins_a_new_visited_set(engine):
    engine.create_queue("b", dead_letter="d", ttl=0)
    engine.create_queue("a")
    engine.create_queue("c")
    engine.create_queue("d")
    with engine.building():
        engine.create_selector("a", when=always, do=copy_to("b"))
        engine.create_selector("a", when=always, do=copy_to("c"))
        worker(engine, "b")
        engine.create_selector("d", when=always, do=copy_to("c"))
    engine.publish("a", "x")
    assert stats(engine, "c")["entered"] == 2


# ---- keys

def test_148_a_delivery_has_its_key_whoever_took_it(engine):
    engine.create_queue("q", limit=0, group=field("address"))
    engine.create_selector("q", when=overflow, do=deliver("out"), credit=9)
    engine.publish("q", "key")
    delivery, = engine.take(1)
    assert delivery.group == "key"


# ---- priority

def test_147_parked_messages_are_routed_by_priority(engine):
    engine.create_queue("q", priority=9)
    parking = engine.create_selector("q", when=always, do=deliver("out"), enabled=False)
    engine.publish("q", "low")
    engine.publish("q", "high", priority=9)
    parking.enable()
    assert taken(engine) == ["high"]


def test_147_between_queues_parked_messages_are_a_merge_of_those_that_are_next(engine):
    """Of `a` the first is the youngest of all, so both messages of `b` go before it."""
    parking = []
    for name, priority in (("a", 9), ("b", None)):
        engine.create_queue(name, priority=priority)
        parking.append(engine.create_selector(name, when=always, do=deliver("out"), credit=9, enabled=False))
    for name, address, priority in (("a", "a low", 0), ("b", "b 1", 0), ("b", "b 2", 0), ("a", "a high", 9)):
        engine.publish(name, address, priority=priority)
    with engine.building():
        for selector in parking:
            selector.enable()
    assert taken(engine) == ["b 1", "b 2", "a high", "a low"]


def test_147_between_queues_a_message_behind_its_key_is_passed_over(engine):
    """After the first `y` the other one waits for its key, so `x` is the next of its queue, and older than `a`."""
    engine.create_queue("q", priority=9, group=field("address"))
    engine.create_queue("other")
    selectors = [worker(engine, name, credit=0) for name in ("q", "other")]
    for name, address, priority in (("q", "y", 1), ("q", "x", 0), ("other", "a", 0), ("q", "y", 1)):
        engine.publish(name, address, priority=priority)
    with engine.building():
        for selector in selectors:
            selector.grant(9)
    assert taken(engine) == ["y", "x", "a"]


def test_148_a_message_whose_delay_ends_puts_others_behind_it_and_so_makes_way(engine, clock):
    """A selector waits for room for the first `x`. When that is behind the older `x`, there is room for `y`, which goes first
    since it waited."""
    engine.create_queue("q", limit_bytes=4, priority=1, group=field("address"))
    engine.publish("q", "x", b"x", delay=5)
    engine.publish("q", "x", priority=1)
    engine.publish("q", "y", b"xxx")
    engine.create_selector("q", when=always, do=move_to("q"))
    assert stats(engine, "q")["outstanding"] == 0
    clock.tick(5)
    engine.tick()
    assert addresses(engine, "q", "outstanding") == ["y"]


@pytest.mark.parametrize("retry_delay, when_full", [
    ([10], "refuse"), ([10], "drop_oldest"), ([10], "drop_to_fit"), ([0], "refuse")])
def test_a_transaction_counts_a_nack_as_the_queue_delays_it(engine, retry_delay, when_full):
    """A delayed message cannot be dropped to make room; so all of the transaction is refused, or none of it."""
    engine.create_queue("other")
    engine.create_queue("q", limit=1, when_full=when_full, retry_delay=retry_delay)
    worker(engine, "q", 1)
    engine.publish("q", "a")
    [delivery] = engine.take(1)
    with pytest.raises(QueueFull), engine.transaction() as transaction:
        transaction.publish("other", "first")
        transaction.nack(delivery)
        transaction.publish("q", "b")
    engine.check()
    assert stats(engine, "other")["ready"] == 0 and stats(engine, "q")["outstanding"] == 1
    delivery.ack()
    engine.check()


# ---- waiting lists, in a building block

@pytest.mark.parametrize("how", ["expired", "purged"])
def test_4_in_a_block_a_selector_whose_messages_end_leaves_its_line(engine, clock, how):
    """If the target has room in the meantime. Else it would be served before one that waited when it did not."""
    engine.create_queue("source", ttl=3)
    for name, terms in (("other", {}), ("target", {"limit": 1})):
        engine.create_queue(name, **terms)
    for name in ("source", "other"):
        engine.create_selector(name, when=always, do=move_to("target"), credit=INFINITE)
    engine.publish("target", "full")
    engine.publish("source", "ends")
    with engine.building():
        engine.queues["target"].purge()
        if how == "expired":
            clock.tick(4)
        else:
            engine.queues["source"].purge()
        engine.publish("target", "full again")
        engine.publish("other", "first")
        engine.publish("source", "second")
    engine.queues["target"].purge()
    assert addresses(engine, "target") == ["first"]


def test_4_in_a_block_so_does_one_whose_messages_are_behind_another_of_their_key(engine, clock):
    for name, terms in (("source", {"limit": 1, "group": field("headers.key"), "retry_delay": 9}), ("other", {}), (
            "target", {"limit": 1})):
        engine.create_queue(name, **terms)
    for name in ("source", "other"):
        engine.create_selector(name, when=match("eq", "x"), do=move_to("target"), credit=INFINITE)
    full = engine.create_selector("source", when=match("eq", "full"), do=deliver("worker"), credit=0)
    engine.create_selector("source", when=overflow, do=deliver("surplus"))
    for name in ("source", "target"):
        engine.publish(name, "full")
    engine.publish("source", "x", headers={"key": "k"})
    [first] = engine.take(1, "surplus")
    full.grant(1)
    engine.ack(engine.take(1, "worker"))
    engine.publish("source", "x", headers={"key": "k"})
    with engine.building():
        engine.queues["target"].purge()
        first.nack()                    # the second one is behind it now
        engine.publish("target", "full again")
        engine.publish("other", "x", b"of the other queue")
    clock.tick(10)
    engine.tick()
    engine.queues["target"].purge()
    assert [message.body for message in engine.queues["target"].browse()] == [b"of the other queue"]
