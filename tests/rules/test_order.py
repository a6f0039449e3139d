"""Priorities, order per key, duplicates. Each test is one sentence of docs/decisions.md, whose number it has."""

import pytest

from tests.rules.seen import addresses, stats, taken, worker
from xump import INFINITE, always, copy_to, deliver, discard, field, match, move_to, overflow, where
from xump.errors import QueueFull


def keyed(engine, name, *addresses):
    """Publishes messages whose key is the first letter of their address."""
    return [engine.publish(name, address, headers={"key": address[0]}) for address in addresses]


# ---- 147: priority

def test_147_the_highest_goes_first_then_the_oldest(engine):
    engine.create_queue("q", priority=5)
    for address, priority in (("a0", 0), ("b3", 3), ("c0", 0), ("d3", 3)):
        engine.publish("q", address, priority=priority)
    assert engine.get("q").message.address == "b3"
    worker(engine, "q")
    assert taken(engine) == ["d3", "a0", "c0"]


def test_147_priorities_beyond_the_queue_s_highest_count_as_that(engine):
    engine.create_queue("q", priority=5)
    engine.publish("q", "five", priority=5)
    engine.publish("q", "nine", priority=9)
    worker(engine, "q")
    assert taken(engine) == ["five", "nine"] and engine.queues["q"].fetch(2).priority == 9


def test_147_elsewhere_it_is_carried_and_ignored(engine):
    engine.create_queue("plain")
    engine.publish("plain", "low")
    engine.publish("plain", "high", priority=9)
    worker(engine, "plain")
    assert taken(engine) == ["low", "high"]


def test_147_between_queues_those_that_are_next_compare_by_age(engine):
    engine.create_queue("q", priority=5)
    for name in ("plain", "out"):
        engine.create_queue(name)
    engine.publish("q", "1 low")
    engine.publish("plain", "2")
    engine.publish("q", "3 high", priority=5)
    with engine.building():
        for name in ("q", "plain"):
            engine.create_selector(name, when=always, do=move_to("out"), credit=INFINITE)
    assert addresses(engine, "out") == ["2", "3 high", "1 low"]


def test_147_what_was_offered_stays_before_what_is_offered_later(engine):
    engine.create_queue("q", priority=5)
    worker(engine, "q")
    engine.publish("q", "low")
    engine.publish("q", "high", priority=5)
    assert taken(engine) == ["low", "high"]


def given_back(engine, when=always):
    """A queue in which a message was given back, `low`, and one came that is unrouted, `high`."""
    engine.create_queue("q", priority=5)
    engine.publish("q", "low", headers={"to": "out"})
    one = engine.create_selector("q", when=when, do=deliver("app"))
    delivery, = engine.take(1)
    one.delete(recall=False)
    delivery.nack()
    engine.publish("q", "high", headers={"to": "out"}, priority=5)


def test_147_unrouted_it_goes_before_what_waits(engine):
    given_back(engine)
    worker(engine, "q")
    assert taken(engine) == ["high", "low"]


def test_147_unrouted_it_does_not_go_before_what_is_older_in_another_queue(engine):
    engine.create_queue("q", priority=5)
    engine.create_queue("other")
    parked = engine.create_selector("other", when=always, do=deliver("app"), credit=0)
    one = engine.create_selector("q", when=always, do=deliver("app"), credit=0)
    engine.publish("q", "low")
    engine.publish("other", "between")
    engine.queues["q"].hold()
    engine.publish("q", "high", priority=5)
    with engine.building():
        engine.queues["q"].release()
        one.grant(9)
        parked.grant(9)
    assert taken(engine) == ["between", "high", "low"]


def test_147_unrouted_it_goes_before_what_waits_for_a_queue_that_the_message_names(engine):
    given_back(engine)
    engine.create_queue("out")
    engine.create_selector("q", when=always, do=move_to(field("headers.to")), credit=2)
    assert addresses(engine, "out") == ["high", "low"]


def test_147_unrouted_it_goes_before_what_waits_for_room(engine):
    """The last selector goes, so `high` stays unrouted. The target has room again when another one has come."""
    engine.create_queue("q", priority=5)
    engine.create_queue("out", limit=1)
    engine.publish("out", "first")
    move = engine.create_selector("q", when=always, do=move_to("out"), credit=2)
    engine.publish("q", "low")
    move.delete()
    engine.publish("q", "high", priority=5)
    with engine.building():
        engine.create_selector("q", when=always, do=move_to("out"), credit=2)
        engine.get("out").ack()
    assert addresses(engine, "out") == ["high"]


@pytest.mark.parametrize("urgent", [1, 2])
def test_147_when_an_urgent_one_has_gone_what_is_next_may_be_older(engine, urgent):
    """And compares with other queues by its own age."""
    for name, terms in (("queue", {"priority": 1}), ("other", {}), ("target", {"limit": 4})):
        engine.create_queue(name, **terms)
    for name in ("queue", "other"):
        engine.create_selector(name, when=always, do=move_to("target"), credit=INFINITE)
    engine.publish_many("target", [("full",)] * 4)
    engine.publish("queue", "old")
    engine.publish_many("other", [("a",), ("b",), ("c",)])
    with engine.building():
        engine.queues["target"].purge()
        for number in range(urgent):
            engine.publish("queue", f"urgent {number}", priority=1)
    assert addresses(engine, "target") == ["urgent 0", "a", "old" if urgent == 1 else "urgent 1", "b"]


def old_ones(engine):
    """Selectors without credit for what is "old", in `q`, which goes by priority, and then in `r`. Their source is their
    destination."""
    engine.create_queue("q", priority=2)
    engine.create_queue("r")
    return [engine.create_selector(name, when=match("eq", "old"), do=deliver(name), credit=0) for name in "qr"]


@pytest.mark.parametrize("taker", ["overflow", "a higher rank"])
def test_147_an_urgent_one_whose_room_was_taken_is_passed_over(engine, taker):
    selectors = old_ones(engine)
    engine.create_queue("target", limit=1)
    engine.create_queue("full", limit=1)
    engine.create_selector("full", when=overflow, do=move_to("target"), credit=INFINITE)
    engine.create_selector("q", when=match("eq", "urgent"), do=move_to("target"), credit=INFINITE)
    if taker == "overflow":
        engine.create_selector("r", when=match("eq", "other"), do=move_to("full"), credit=INFINITE)
    else:
        selectors.append(engine.create_selector("r", when=match("eq", "other"), do=move_to("target"), credit=0, rank=1))
    for name in ("target", "full"):
        engine.publish(name)
    engine.publish("q", "old")
    engine.publish("r", "other")
    engine.publish("r", "old")
    engine.publish("q", "urgent", priority=1)
    with engine.building():
        engine.queues["target"].purge()
        for selector in selectors:
            selector.grant(1)
    assert [delivery.destination for delivery in engine.take(2)] == ["q", "r"]
    assert addresses(engine, "target") == ["other"]


def test_147_an_urgent_one_for_which_no_selector_is_left_is_passed_over(engine):
    one, two = (where("one == 1"), where("two == 1"))
    engine.create_queue("q", priority=2)
    engine.create_queue("r")
    selectors = [engine.create_selector(name, when=when, do=deliver(name), credit=0)
                 for name, when in (("q", one), ("q", two), ("q", match("eq", "old")), ("r", match("eq", "old")))]
    engine.publish("q", headers={"one": 1})
    selectors[0].grant(1)
    engine.take(1)                      # so that the other one is served first
    engine.publish("q", "both", headers={"one": 1, "two": 1}, priority=2)
    engine.publish("q", "old")
    engine.publish("r", "old")
    engine.publish("q", "two", headers={"two": 1}, priority=1)
    with engine.building():
        for selector in selectors:
            selector.grant(1)
    assert [(delivery.destination, delivery.message.address) for delivery in engine.take(9)] == [
        ("q", "both"), ("q", "old"), ("r", "old")]


def test_147_unrouted_it_goes_before_what_was_parked(engine):
    engine.create_queue("q", priority=5)
    off = engine.create_selector("q", when=match("eq", "low"), do=deliver("app"), credit=2, enabled=False)
    engine.publish("q", "low")
    engine.queues["q"].hold()
    engine.publish("q", "high", priority=5)
    with engine.building():
        engine.create_selector("q", when=match("eq", "high"), do=deliver("app"), credit=2)
        off.enable()
        engine.queues["q"].release()
    assert taken(engine) == ["high", "low"]


def test_147_unrouted_and_wanted_by_nobody_it_holds_up_nothing(engine):
    given_back(engine)
    engine.create_selector("q", when=match("eq", "low"), do=deliver("app"))
    assert taken(engine) == ["low"] and stats(engine, "q")["dropped"] == {}


# ---- 148: order per key

def test_148_of_a_key_one_is_taken_and_others_go_past(engine):
    engine.create_queue("q", group=field("headers.key"))
    worker(engine, "q")
    keyed(engine, "q", "a1", "a2", "b1", "b2")
    engine.publish("q", "free")
    engine.publish("q", "also free", headers={"key": ""})
    engine.publish("q", "no text", headers={"key": 1})
    deliveries = engine.take(9)
    assert [d.message.address for d in deliveries] == ["a1", "b1", "free", "also free", "no text"]
    assert [d.group for d in deliveries] == ["a", "b", None, None, None]
    deliveries[0].ack()
    assert taken(engine) == ["a2"]


def test_148_the_lowest_id_whatever_its_priority(engine):
    engine.create_queue("q", group=field("headers.key"), priority=9)
    engine.publish("q", "a1", headers={"key": "a"})
    engine.publish("q", "a2", headers={"key": "a"}, priority=9)
    worker(engine, "q")
    assert taken(engine) == ["a1"]


def test_148_nacked_with_a_delay_it_is_still_the_first(engine, clock):
    engine.create_queue("q", group=field("headers.key"))
    worker(engine, "q")
    keyed(engine, "q", "a1", "a2")
    engine.take(1)[0].nack(delay=5)
    assert taken(engine) == [] and engine.get("q") is None
    clock.tick(5)
    assert taken(engine) == ["a1"]


def test_148_what_was_delayed_at_its_entry_joins_when_it_is_due(engine, clock):
    engine.create_queue("q", group=field("headers.key"))
    worker(engine, "q")
    engine.publish("q", "a1", headers={"key": "a"}, delay=5)
    keyed(engine, "q", "a2", "a3")
    delivery, = engine.take(9)
    clock.tick(5)
    delivery.ack()
    assert delivery.message.address == "a2" and taken(engine) == ["a1"]


def test_148_moved_and_unpaid_counts_in_the_queue_where_the_key_is_kept(engine):
    engine.create_queue("q", group=field("headers.key"))
    engine.create_queue("down")
    engine.create_selector("q", when=always, do=move_to("down"), credit=9)
    keyed(engine, "q", "a1", "a2")
    assert addresses(engine, "down") == ["a1"]
    engine.get("down").ack()
    assert addresses(engine, "down") == ["a2"]


def test_148_what_is_bound_counts(engine):
    engine.create_queue("q", group=field("headers.key"))
    worker(engine, "q", credit=INFINITE)
    keyed(engine, "q", "a1", "a2")
    assert len(engine.take(1)) == 1 and taken(engine) == ["a2"]


def test_148_copies_do_not_count_and_are_made_for_what_is_behind(engine):
    engine.create_queue("q", group=field("headers.key"))
    engine.create_queue("copies")
    engine.create_selector("q", when=always, do=copy_to("copies"))
    worker(engine, "q", credit=1)
    keyed(engine, "q", "a1", "a2")
    assert addresses(engine, "copies") == ["a1", "a2"] and addresses(engine, "q", "ready") == ["a2"]


def test_148_what_an_overflow_selector_took_does_not_count(engine):
    engine.create_queue("q", group=field("headers.key"), limit=1)
    engine.create_selector("q", when=overflow, do=deliver("over"), credit=9)
    keyed(engine, "q", "a1", "a2", "a3")
    worker(engine, "q")
    assert taken(engine, destination="over") == ["a2", "a3"] and taken(engine) == ["a1"]


def test_148_one_that_nobody_takes_holds_up_its_key(engine):
    engine.create_queue("q", group=field("headers.key"))
    engine.create_selector("q", when=match("eq", "a1"), do=deliver("d"), credit=0)
    engine.create_selector("q", when=match("prefix", "a"), do=discard, enabled=False)
    engine.create_selector("q", when=match("eq", "a2"), do=deliver("d"), credit=1)
    keyed(engine, "q", "a1", "a2")
    assert engine.take(1) == []
    engine.queues["q"].delete(1)
    assert taken(engine) == ["a2"]


def test_148_in_a_building_block_the_next_of_a_key_waits_for_its_end(engine):
    engine.create_queue("q")
    queue = engine.create_queue("full", limit=1, group=field("headers.key"))
    with engine.building():
        engine.create_selector("full", when=always, do=move_to("full"), credit=INFINITE)
        engine.create_selector("q", when=always, do=move_to("full"), credit=INFINITE)
        keyed(engine, "full", "a1")
        keyed(engine, "q", "a2")
    delivery = engine.get("full")       # so the other one enters, and waits behind it
    with engine.building():
        delivery.ack()
        engine.check()
        assert queue.ready == 1
    assert queue.ready == 0 and stats(engine, "full")["dropped"] == {"hops": 1}


def test_148_a_group_is_a_field(engine):
    with pytest.raises(TypeError):
        engine.create_queue("q", group="headers.key")


# ---- 149: duplicates

def test_149_a_duplicate_enters_nothing_and_has_the_first_one_s_id(engine, clock):
    engine.create_queue("q", dedup=10)
    assert [engine.publish("q", message_id=text) for text in ("x", "y", "x", "y")] == [1, 2, 1, 2]
    assert [engine.publish("q"), engine.publish("q")] == [3, 4]
    assert stats(engine, "q")["duplicates"] == 2
    clock.tick(10)
    assert engine.publish("q", message_id="x") == 5


def test_149_it_needs_no_room_and_its_message_may_be_gone(engine):
    engine.create_queue("q", dedup=10, limit=1)
    engine.publish("q", message_id="x")
    assert engine.publish("q", message_id="x") == 1
    engine.queues["q"].purge()
    assert engine.publish("q", message_id="x") == 1 and engine.queues["q"].ready == 0


def test_149_of_more_than_dedup_limit_the_oldest_are_forgotten(engine):
    engine.create_queue("q", dedup=10, dedup_limit=2)
    assert [engine.publish("q", message_id=text) for text in "xyzx"] == [1, 2, 3, 4]
    assert engine.publish("q", message_id="z") == 3


def test_149_in_one_call_too_and_a_range_has_new_ids_only(engine):
    engine.create_queue("q", dedup=10)
    rows = [("", b"", None, None, text) for text in "xxyx"]
    assert engine.publish_many("q", rows) == range(1, 3)
    with engine.transaction() as tx:
        for text in "yz":
            tx.publish("q", message_id=text)
    assert tx.ids == [2, 3] and stats(engine, "q")["duplicates"] == 3
    assert engine.publish_many("q", rows) == range(0)


def test_149_what_was_refused_or_dead_lettered_instead_is_forgotten(engine):
    engine.create_queue("q", dedup=10, limit=0, dead_letter="dead")
    engine.create_queue("none", dedup=10, limit=0)
    engine.create_queue("dead")
    assert [engine.publish("q", message_id="x") for _ in range(2)] == [0, 0] and engine.queues["dead"].ready == 2
    for _ in range(2):
        with pytest.raises(QueueFull):
            engine.publish("none", message_id="x")


def test_149_of_many_that_did_not_enter_none_is_remembered(engine):
    engine.create_queue("q", dedup=10, limit=1)
    with pytest.raises(QueueFull):
        engine.publish_many("q", [("", b"", None, None, text) for text in "xy"])
    assert engine.publish("q", message_id="x") == 1 and stats(engine, "q")["duplicates"] == 0


def test_149_only_publishes_ask_and_count(engine):
    engine.create_queue("q", dedup=10)
    engine.create_queue("source")
    engine.create_selector("source", when=always, do=move_to("q"), credit=INFINITE)
    for _ in range(2):
        engine.publish("source", message_id="x")
    assert engine.queues["q"].ready == 2 and engine.publish("q", message_id="x") == 3


def test_149_all_is_forgotten_with_the_queue(engine):
    for _ in range(2):
        engine.create_queue("q", dedup=10)
        assert engine.publish("q", message_id="x") == 1 and stats(engine, "q")["duplicates"] == 0
        engine.delete_queue("q")
