"""What nobody matches, bounds, taking by hand, requests. Each test is one sentence of docs/decisions.md, whose number it has."""

import random

import pytest

from tests.model import requests
from tests.rules.seen import SECOND, addresses, reasons, stats, taken, worker
from xump import INFINITE, always, bounce_to, copy_to, default, deliver, discard, field, match, move_to, overflow
from xump.errors import QueueFull, QueueNotFound, StaleDelivery, TransactionError


# ---- 150: what nobody matches

def test_150_what_waited_is_not_dropped_for_want_of_a_selector(engine):
    engine.create_queue("q")
    engine.publish("q", "waited")
    engine.create_selector("q", when=match("eq", "x"), do=deliver("d"), credit=9)
    engine.publish("q", "new")
    assert addresses(engine, "q") == ["waited"] and stats(engine, "q")["dropped"] == {"unroutable": 1}
    assert engine.queues["q"].frontier == 1
    engine.create_selector("q", when=match("prefix", "w"), do=deliver("d"), credit=9)
    assert taken(engine) == ["waited"]


def test_150_nor_what_was_taken_by_hand_before_its_first_call_ended(engine):
    engine.create_queue("q")
    with engine.building():
        engine.publish("q", "x")
        delivery = engine.get("q")
        engine.create_selector("q", when=match("eq", "y"), do=discard)
    delivery.nack()
    assert addresses(engine, "q") == ["x"]


def test_150_nor_for_want_of_room_in_the_dead_letter_queue(engine):
    engine.create_queue("q", dead_letter="dead")
    engine.create_queue("dead", limit=1)
    engine.publish_many("q", [("a",), ("b",)])
    engine.create_selector("q", when=match("eq", "x"), do=deliver("d"))
    assert addresses(engine, "q") == ["b"] and reasons(engine, "dead") == ["unroutable"]
    engine.queues["dead"].purge()
    assert addresses(engine, "q") == ["b"]      # it waits for a selector now
    engine.create_selector("q", when=default, do=deliver("d"))
    assert taken(engine) == ["b"]


def test_150_keep_keeps_all_dead_letter_or_not(engine):
    engine.create_queue("q", dead_letter="dead", unmatched="keep")
    engine.create_queue("dead")
    engine.create_selector("q", when=match("eq", "x"), do=deliver("d"), credit=9)
    engine.publish_many("q", [("a",), ("x",), ("b",)])
    assert taken(engine) == ["x"] and addresses(engine, "q", "ready") == ["a", "b"]
    engine.create_selector("q", when=match("eq", "b"), do=copy_to("dead"))
    assert addresses(engine, "dead") == ["b"] and addresses(engine, "q", "ready") == ["a"]


# ---- 151 and 152: bounds

def test_151_bytes_of_bodies_count_ready_and_delayed(engine):
    engine.create_queue("q", limit_bytes=4)
    engine.publish("q", "a", b"xx")
    engine.publish("q", "b", b"xxxxxx", delay=5)    # there was room for more
    with pytest.raises(QueueFull):
        engine.publish("q", "c")
    engine.queues["q"].delete(2)
    assert engine.publish("q", "c", b"x") == 3


def test_152_the_oldest_make_room_when_nothing_more_can_be_routed(engine):
    engine.create_queue("q", limit=2, when_full="drop_oldest", dead_letter="dead")
    engine.create_queue("dead")
    assert engine.publish_many("q", [(letter,) for letter in "abcd"]) == range(1, 5)
    assert addresses(engine, "q") == ["c", "d"] and addresses(engine, "dead") == ["a", "b"]
    assert reasons(engine, "dead") == ["overflow"] * 2


def test_152_what_was_too_much_is_dropped_when_its_delay_is_over(engine, clock):
    """Delayed, it could not be dropped. The overflow selector let in more than the limit says."""
    engine.create_queue("q", limit=1, when_full="drop_oldest")
    spare = engine.create_selector("q", when=overflow, do=deliver("spare"), credit=INFINITE)
    with engine.transaction() as transaction:
        transaction.publish("q", "a", delay=2)
        transaction.publish("q", "b")
    engine.delete_selector(spare)
    assert stats(engine, "q")["delayed"] == stats(engine, "q")["ready"] == 1
    clock.tick(3)
    engine.tick()
    assert addresses(engine, "q") == ["b"] and stats(engine, "q")["dropped"] == {"overflow": 1}


def test_152_what_can_be_taken_needs_no_room(engine):
    engine.create_queue("q", limit=1, when_full="drop_oldest")
    worker(engine, "q", credit=2)
    engine.publish_many("q", [(letter,) for letter in "abcd"])
    assert taken(engine) == ["a", "b"] and addresses(engine, "q", "ready") == ["d"]
    assert stats(engine, "q")["dropped"] == {"overflow": 1}


def test_152_the_lowest_priority_goes_first_but_never_the_newest(engine):
    engine.create_queue("q", limit=2, when_full="drop_oldest", priority=9)
    for address, priority in (("a5", 5), ("b1", 1), ("c0", 0)):
        engine.publish("q", address, priority=priority)
    assert addresses(engine, "q") == ["a5", "c0"]


@pytest.mark.parametrize("priority", [None, 9])
@pytest.mark.parametrize("seed", range(8))
def test_152_the_least_goes_in_whatever_order_messages_were_bound(clock, engine, priority, seed):
    """Priorities, delays that end, and messages that came back: bound messages are in no order then. Taking leaves gaps."""
    draw, limit, waiting, delayed = random.Random(seed), 20, {}, {}
    engine.create_queue("q", limit=limit, when_full="drop_oldest", priority=priority)
    worker(engine, "q", credit=INFINITE)
    engine.create_selector("q", when=always, do=deliver("spare"), credit=INFINITE, enabled=False)
    for number in range(1, 300):
        rank = draw.randrange(10)
        if len(delayed) < 5 and draw.random() < 0.2:
            delayed[number] = rank
            engine.publish("q", str(number), priority=rank, delay=draw.randrange(1, 50))
        else:
            waiting[number] = rank
            engine.publish("q", str(number), priority=rank)
        while len(waiting) + len(delayed) > limit:
            newest = max(waiting | delayed)
            del waiting[min(waiting.keys() - {newest}, key=lambda id: (waiting[id] if priority else 0, id))]
        if draw.random() < 0.1:
            for id in map(int, taken(engine, draw.randrange(1, 12))):
                del waiting[id]
        if draw.random() < 0.02:        # what is bound goes to the other selector
            for selector in engine.selectors.values():
                selector.disable() if selector.enabled else selector.enable()
        clock.now += SECOND
        engine.tick()
        for message in list(engine.queues["q"].browse(state="ready")):
            if message.id in delayed:
                waiting[message.id] = delayed.pop(message.id)
        assert {message.id for message in engine.queues["q"].browse(state="ready")} == waiting.keys()
        engine.check()
    assert stats(engine, "q")["dropped"]["overflow"] > 50


def test_152_bytes_until_the_newest_has_room(engine):
    engine.create_queue("q", limit_bytes=4, when_full="drop_oldest")
    for address, size in (("a", 3), ("b", 3), ("c", 3)):
        engine.publish("q", address, b"x" * size)
    assert addresses(engine, "q") == ["b", "c"]


def test_152_the_overflow_selector_is_asked_first(engine):
    engine.create_queue("q", limit=1, when_full="drop_oldest")
    engine.create_selector("q", when=overflow, do=deliver("over"), credit=1)
    engine.publish_many("q", [(letter,) for letter in "abc"])
    assert taken(engine) == ["b"] and addresses(engine, "q", "ready") == ["c"]


def test_152_a_move_waits_and_copies_and_dead_letters_push(engine):
    engine.create_queue("q", limit=1, when_full="drop_oldest")
    engine.create_queue("source")
    engine.create_selector("source", when=match("eq", "copy"), do=copy_to("q"))
    mover = engine.create_selector("source", when=match("eq", "move"), do=move_to("q"), credit=9)
    engine.create_queue("letters", limit=0, dead_letter="q")
    engine.publish("q", "a")
    engine.publish("source", "copy")
    assert addresses(engine, "q") == ["copy"]
    engine.publish("letters", "letter")
    assert addresses(engine, "q") == ["letter"]
    engine.publish("source", "move")
    assert addresses(engine, "q") == ["letter"] and mover.blocked


def test_152_delayed_ones_are_not_dropped_and_may_fill_the_queue(engine):
    engine.create_queue("q", limit=1, when_full="drop_oldest")
    engine.publish("q", "a", delay=5)
    with pytest.raises(QueueFull):
        engine.publish("q", "b")
    assert engine.queues["q"].delayed == 1


def test_152_only_into_its_own_dead_letter_queue(engine_of):
    engine = engine_of(dead_letter="dead")
    engine.create_queue("dead")
    engine.create_queue("q", limit=1, when_full="drop_oldest")
    engine.publish_many("q", [("a",), ("b",)])
    assert engine.queues["dead"].ready == 0 and stats(engine, "q")["dropped"] == {"overflow": 1}


def test_152_two_queues_that_push_each_other_drop_what_was_pushed_before(engine):
    engine.create_queue("a", limit=1, when_full="drop_oldest", dead_letter="b")
    engine.create_queue("b", limit=1, when_full="drop_oldest", dead_letter="a")
    for letter in "xyz":
        engine.publish("a", letter)
    assert (addresses(engine, "a"), addresses(engine, "b")) == (["x"], ["z"]) and stats(engine, "b")["dropped"] == {"overflow": 1}


# ---- 152: drop_to_fit

def test_152_to_fit_nothing_is_left_beyond_the_limits(engine):
    engine.create_queue("q", limit=3, limit_bytes=5, when_full="drop_to_fit", dead_letter="dead")
    engine.create_queue("dead")
    for address, size in (("a", 3), ("b", 2), ("c", 4), ("d", 1)):
        engine.publish("q", address, b"x" * size)
    assert addresses(engine, "q") == ["c", "d"] and addresses(engine, "dead") == ["a", "b"]
    engine.publish_many("q", [(letter,) for letter in "efg"])
    assert addresses(engine, "q") == ["e", "f", "g"] and reasons(engine, "dead") == ["overflow"] * 4


def test_152_to_fit_a_message_that_is_larger_than_the_limit_goes_itself(engine):
    engine.create_queue("q", limit_bytes=5, when_full="drop_to_fit")
    engine.publish("q", "a", b"x")
    assert engine.publish("q", "b", b"x" * 6) == 2
    assert addresses(engine, "q") == [] and stats(engine, "q")["dropped"] == {"overflow": 2}
    engine.publish("q", "c", b"x" * 5)
    engine.publish("q", "d", b"")
    assert addresses(engine, "q") == ["c", "d"]


@pytest.mark.parametrize("limits", [{"limit": 0}, {"limit_bytes": 0}, {"limit": 0, "limit_bytes": 0}])
def test_152_to_fit_a_limit_of_0_is_for_whoever_waits(engine, limits):
    engine.create_queue("q", when_full="drop_to_fit", dead_letter="dead", **limits)
    engine.create_queue("dead")
    engine.publish("q", "nobody waits", b"x")
    selector = worker(engine, "q", credit=1)
    engine.publish("q", "somebody waits", b"x")
    [delivery] = engine.take(5)
    engine.publish("q", "no credit", b"x")
    assert addresses(engine, "dead") == ["nobody waits", "no credit"] and engine.queues["q"].ready == 0
    selector.delete(recall=False)
    delivery.nack()
    assert addresses(engine, "dead")[2:] == ["somebody waits"] and engine.queues["q"].ready == 0


def test_152_to_fit_delayed_ones_are_dropped_when_they_are_due(clock, engine):
    engine.create_queue("q", limit=0, when_full="drop_to_fit")
    engine.publish("q", "a", delay=5)
    with pytest.raises(QueueFull):
        engine.publish("q", "b")
    clock.now += 5 * SECOND
    engine.tick()
    assert (engine.queues["q"].delayed, engine.queues["q"].ready) == (0, 0) and stats(engine, "q")["dropped"] == {"overflow": 1}


# ---- 153: waiting for room (a thread of its own: the model has a call for it, the compiled engine a timeout)

def test_153_publishers_are_let_in_by_the_call_that_makes_room_in_turn(engine):
    engine.create_queue("q", limit=1)
    engine.publish("q", "first")
    second, third = [engine.publish_waiting("q", address) for address in ("second", "third")]
    assert (second.id, third.id) == (None, None)
    engine.get("q").ack()
    assert (second.id, third.id) == (2, None)
    engine.queues["q"].purge()
    assert third.id == 3


def test_153_nobody_passes_who_waits_for_the_same_queue(engine):
    engine.create_queue("q", limit=0)
    engine.create_queue("out")
    engine.create_selector("q", when=overflow, do=move_to(field("address")), credit=9)
    first, second = [engine.publish_waiting("q", address) for address in ("nowhere", "out")]
    assert (first.id, second.id) == (None, None)
    engine.create_queue("nowhere")
    assert (first.id, second.id) == (1, 2)


def test_153_blocked_selectors_go_first(engine):
    engine.create_queue("q", limit=1)
    engine.create_queue("source")
    engine.create_selector("source", when=always, do=move_to("q"), credit=9)
    engine.publish("q", "first")
    publisher = engine.publish_waiting("q", "published")
    engine.publish("source", "moved")
    engine.get("q").ack()
    assert addresses(engine, "q") == ["moved"] and publisher.id is None


def test_153_who_waits_is_dead_lettered_when_that_has_room(engine):
    engine.create_queue("q", limit=0, dead_letter="dead")
    engine.create_queue("dead", limit=1)
    engine.publish("q", "a")
    publisher = engine.publish_waiting("q", "b")
    engine.queues["dead"].purge()
    assert publisher.id == 0 and addresses(engine, "dead") == ["b"]


def test_153_time_makes_room(engine, clock):
    engine.create_queue("q", limit=1)
    engine.publish("q", "a", ttl=5)
    publisher = engine.publish_waiting("q", "b", delay=5)
    clock.tick(60)
    engine.tick()
    assert publisher.id == 2 and engine.queues["q"].ready == 1 and engine.queues["q"].fetch(2).timestamp == clock.now - 55 * 10**9


def test_153_a_deleted_queue_ends_the_wait(engine):
    engine.create_queue("q", limit=0)
    publisher = engine.publish_waiting("q")
    engine.delete_queue("q")
    assert isinstance(publisher.error, QueueNotFound)


# ---- 154: by hand

def test_154_the_first_that_nobody_has_a_claim_to(engine):
    engine.create_queue("q", group=field("headers.key"))
    engine.publish("q", "a1", headers={"key": "a"})
    engine.publish("q", "a2", headers={"key": "a"})
    engine.publish("q", "b1", headers={"key": "b"})
    first, second = engine.get("q"), engine.get("q")
    assert (first.message.address, second.message.address, engine.get("q")) == ("a1", "b1", None)
    assert (first.selector, first.destination, first.group) == (None, None, "a")
    first.ack()
    assert engine.get("q").message.address == "a2" and stats(engine, "q")["outstanding"] == 2


def test_154_held_queues_give_too_and_bound_messages_are_taken(engine):
    engine.create_queue("q")
    engine.queues["q"].hold()
    worker(engine, "q", credit=INFINITE)
    engine.publish_many("q", [("a",), ("b",)])
    engine.get("q").ack()
    engine.queues["q"].release()
    assert engine.get("q") is None and taken(engine) == ["b"]


def test_154_in_a_block_what_is_still_to_be_routed_is_not_given(engine):
    engine.create_queue("q")
    with engine.building():
        engine.publish("q", "a")
        worker(engine, "q")
        assert engine.get("q") is None
    assert taken(engine) == ["a"]


def test_154_in_a_block_what_waits_is_given_whoever_may_take_it_at_its_end(engine):
    engine.create_queue("q")
    parked = engine.create_selector("q", when=always, do=discard, enabled=False)
    engine.publish("q", "parked")
    with engine.building():
        parked.enable()
        assert engine.get("q").message.address == "parked"


def test_154_nacked_it_is_as_it_was(engine):
    engine.create_queue("q")
    engine.create_queue("copies")
    engine.publish_many("q", [("unrouted",), ("next",)])
    delivery = engine.get("q")
    assert engine.queues["q"].frontier == 2
    delivery.nack()
    assert engine.queues["q"].frontier == 1
    again = engine.get("q")
    assert (again.delivery_count, again.redelivered) == (2, True)
    engine.create_selector("q", when=always, do=copy_to("copies"))
    assert addresses(engine, "copies") == ["next"]
    again.nack()
    assert addresses(engine, "copies") == ["next", "unrouted"]


def test_154_what_a_replay_has_copied_meanwhile_is_not_copied_again(engine):
    for name in ("q", "copies"):
        engine.create_queue(name)
    engine.publish("q", "a")
    delivery = engine.get("q")
    engine.create_selector("q", when=always, do=copy_to("copies"), start="head")
    assert addresses(engine, "copies") == ["a"]
    delivery.nack()
    assert addresses(engine, "copies") == ["a"] and stats(engine, "q")["settled"] == 1


@pytest.mark.parametrize("start", ["current", "tail", "head"])
def test_154_a_selector_that_is_enabled_after_it_came_back_copies_it_once(engine, start):
    queue = engine.create_queue("q")
    engine.create_queue("copies")
    engine.publish_many("q", [("a",), ("b",)])
    delivery = engine.get("q")
    selector = engine.create_selector("q", when=always, do=copy_to("copies"), start=start, enabled=False)
    delivery.nack()
    selector.enable()
    assert addresses(engine, "copies").count("a") == 1
    assert queue.ready == (1 if start == "tail" else 0)


def test_154_a_parked_message_is_parked_again(engine):
    for name in ("q", "copies"):
        engine.create_queue(name)
    selector = engine.create_selector("q", when=always, do=copy_to("copies"), enabled=False)
    engine.publish("q", "a")
    delivery = engine.get("q")
    selector.enable()
    assert addresses(engine, "copies") == []
    delivery.nack()
    assert addresses(engine, "copies") == ["a"] and engine.queues["q"].ready == 0


def test_154_retry_delay_and_delivery_limit_hold(engine, clock):
    engine.create_queue("q", retry_delay=5, delivery_limit=2)
    engine.publish("q", "a")
    engine.get("q").nack()
    assert engine.queues["q"].delayed == 1
    clock.tick(5)
    engine.get("q").nack()
    assert stats(engine, "q")["dropped"] == {"delivery-limit": 1}


def test_154_what_was_moved_there_is_paid_for_or_recalled(engine):
    for name in ("up", "down"):
        engine.create_queue(name)
    mover = engine.create_selector("up", when=always, do=move_to("down"), credit=2)
    engine.publish_many("up", [("a",), ("b",)])
    first, second = engine.get("down"), engine.get("down")
    first.ack()
    assert mover.available == 1
    mover.delete()
    with pytest.raises(StaleDelivery):
        second.ack()
    assert addresses(engine, "up") == ["b"]
    with pytest.raises(QueueNotFound):
        engine.get("nowhere")


# ---- 155: answers in transactions

def test_155_what_a_transaction_brings_back_counts(engine):
    engine.create_queue("q", limit=1)
    worker(engine, "q", credit=1)
    engine.publish("q", "a")
    delivery, = engine.take(1)
    with pytest.raises(QueueFull), engine.transaction() as tx:
        tx.nack(delivery)
        tx.publish("q", "b")
    with engine.transaction() as tx:
        tx.reject(delivery, "why")
        tx.publish("q", "b")
    assert stats(engine, "q")["dropped"] == {"rejected": 1} and tx.ids == [2]


def test_155_of_all_answers_each_delivery_has_one(engine):
    engine.create_queue("q")
    worker(engine, "q")
    engine.publish("q", "a")
    delivery, = engine.take(1)
    with pytest.raises(StaleDelivery), engine.transaction() as tx:
        tx.ack(delivery)
        tx.nack(delivery, delay=5)
    with pytest.raises(ValueError):
        engine.transaction().nack(delivery, requeue=False, delay=5)
    with pytest.raises(TransactionError):
        tx.nack(delivery)
    delivery.ack()


# ---- 156: requests (in a thread of its own, as 153)

def test_156_a_reply_goes_to_who_asked(engine):
    engine.create_queue("work")
    one, two = [engine.request_waiting("work", address) for address in ("one", "two")]
    for _ in range(2):
        delivery = engine.get("work")
        delivery.reply(delivery.message.address.encode(), {"n": 1})
        assert engine.queues["work"].outstanding == 1
        delivery.ack()
    assert (one.answer.body, two.answer.body) == (b"one", b"two") and one.answer.correlation_id == one.message_id
    assert stats(engine, "xump.replies")["settled"] == 2


def test_156_what_bounced_is_an_answer_and_what_nobody_waits_for_is_late(engine):
    engine.create_queue("work")
    engine.create_selector("work", when=always, do=bounce_to(field("reply_to")), credit=INFINITE)
    assert engine.request("work", "x").headers["xump_reason"] == "bounced"
    engine.publish("xump.replies", "too late", correlation_id="request-1")
    assert (stats(engine, "xump.replies")["late"], stats(engine, "xump.replies")["dropped"]) == (1, {"late": 1})


def test_156_without_an_answer_it_raises(engine):
    engine.create_queue("work")
    with pytest.raises(requests.RequestTimeout), engine.building():
        engine.request("work")
    engine.get("work").reply(b"")
    assert stats(engine, "xump.replies")["late"] == 1


def test_156_one_that_is_refused_makes_no_queue(engine):
    engine.create_queue("full", limit=0)
    with pytest.raises(QueueFull):
        engine.request("full")
    assert list(engine.queues) == ["full"]


def test_156_a_message_that_names_no_queue_has_no_reply(engine):
    engine.create_queue("q")
    engine.publish("q", "a")
    with pytest.raises(ValueError):
        engine.get("q").reply(b"")


def test_157_several_destinations(engine):
    for name in "abc":
        engine.create_queue(name)
        worker(engine, name)
        engine.publish(name, name)
    assert taken(engine, destination=["c", "a"]) == ["a", "c"]
    assert [d.destination for d in engine.deliveries(("b", "a"))] == ["b"]


def test_158_oldest(engine, clock):
    queue = engine.create_queue("q")
    engine.publish("q", "delayed", delay=5)
    assert queue.oldest is None
    clock.tick(1)
    engine.publish("q", "ready")
    assert queue.oldest == clock.now


def test_the_oldest_message_is_found_behind_one_that_overflow_took_and_gave_back(engine, clock):
    """The younger one is bound first: it was routed before the two that had no selector yet."""
    engine.create_queue("q", limit=2)
    engine.create_selector("q", when=overflow, do=deliver("late"), credit=2)
    for address in "123":
        engine.publish("q", address)
        clock.tick()
    engine.take(1, "late")[0].nack()
    worker(engine, "q", credit=INFINITE)
    assert engine.queues["q"].oldest == clock.now - 3 * SECOND


@pytest.mark.parametrize("priority", [None, 1])
def test_152_what_comes_back_to_a_queue_that_drops_is_routed_first(engine, priority):
    """Its dead letter overflows into the queue that dropped it, where it is too large again, and is dropped for good."""
    engine.create_queue("q", limit_bytes=0, when_full="drop_oldest")
    engine.create_queue("small", limit_bytes=10, when_full="drop_to_fit", unmatched="keep", dead_letter="q", priority=priority)
    engine.create_selector("q", when=overflow, do=move_to("small"), credit=INFINITE)
    engine.create_selector("small", when=match("eq", "x"), do=deliver("worker"))
    engine.publish("q", "y", b"too large by far")
    engine.check()
    assert addresses(engine, "q") == addresses(engine, "small") == []
    assert stats(engine, "small")["dropped"] == {"overflow": 1} and stats(engine, "small")["dead_lettered"] == {"overflow": 1}
