"""Rule 1: entry, limits, overflow and back-pressure, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""

import pytest

from tests.model import engine as model
from tests.route.steps import drain, held_in, nothing_changes, publish, queue_stats, queues, selector_stats, take
from xump.actions import bounce_to, copy_to, deliver, discard, field, move_to
from xump.conditions import always, overflow
from xump.errors import QueueFull

INFINITE = model.INFINITE


def test_rule_01_ids_are_one_two_three(engine):
    queues(engine, "a")
    assert publish(engine, "a", "x", "y", "z") == [1, 2, 3]
    assert engine.queues["a"].delete(3)
    assert publish(engine, "a", "x") == [4]


def test_rule_01_publish_to_a_full_queue_raises_and_changes_nothing(engine):
    queues(engine, "a", limit=2)
    publish(engine, "a", "x", "y")
    with nothing_changes(engine), pytest.raises(QueueFull, match="'a'"):
        engine.publish("a", "z")


def test_rule_01_only_ready_messages_count_against_the_limit(engine):
    queues(engine, "a", limit=1, history_limit=None)
    engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    publish(engine, "a", "x", "y", "z")
    with pytest.raises(QueueFull):
        engine.publish("a", "full")
    assert drain(engine) == ["x", "y", "z"]
    assert engine.queues["a"].history == 3
    assert engine.publish("a", "more") == 4


def test_rule_01_overflow_takes_what_comes_beyond_the_limit(engine):
    queues(engine, "a", limit=1)
    queues(engine, "spill")
    spill = engine.create_selector("a", when=overflow, do=move_to("spill"), credit=1)
    assert publish(engine, "a", "x", "y") == [1, 2]
    assert held_in(engine, "a", "ready") == ["x"]
    assert held_in(engine, "a", "outstanding") == held_in(engine, "spill") == ["y"]
    assert (spill.outstanding, spill.available) == (1, 0)
    with pytest.raises(QueueFull):      # no credit
        engine.publish("a", "z")


def test_rule_01_the_targets_own_overflow_is_not_room(engine):
    queues(engine, "a", "b", limit=1)
    queues(engine, "c")
    engine.create_selector("a", when=overflow, do=move_to("b"), credit=9)
    engine.create_selector("b", when=overflow, do=move_to("c"), credit=9)
    publish(engine, "a", "x", "y")
    with nothing_changes(engine), pytest.raises(QueueFull):
        engine.publish("a", "z")
    assert engine.publish("b", "w") == 2
    assert held_in(engine, "c") == ["w"]


def test_rule_01_overflow_discards_and_delivers(engine):
    queues(engine, "a", "b", limit=0)
    engine.create_selector("a", when=overflow, do=discard)
    engine.create_selector("b", when=overflow, do=deliver("out"), credit=1)
    assert publish(engine, "a", "x", "y") == [1, 2]
    assert queue_stats(engine, "a")["settled"] == 2
    assert publish(engine, "b", "x") == [1]
    assert drain(engine) == ["x"]


def test_rule_01_a_disabled_overflow_selector_takes_nothing(engine):
    queues(engine, "a", limit=0)
    selector = engine.create_selector("a", when=overflow, do=discard, enabled=False)
    with pytest.raises(QueueFull):
        engine.publish("a", "x")
    selector.enable()
    assert engine.publish("a", "x") == 1


def test_rule_01_publish_beyond_the_limit_is_dead_lettered(engine):
    queues(engine, "a", limit=1, dead_letter="dead")
    queues(engine, "dead")
    assert publish(engine, "a", "x", "y", reply_to="me") == [1, 0]
    [dead] = engine.queues["dead"].browse()
    assert (dead.address, dead.reply_to) == ("me", None)
    assert dead.headers == {"xump_original_address": "y", "xump_bounced_from": "a", "xump_reason": "overflow"}
    assert queue_stats(engine, "a")["entered"] == 1
    assert queue_stats(engine, "a")["dead_lettered"] == {"overflow": 1}


def test_rule_01_overflow_goes_before_the_dead_letter(engine):
    queues(engine, "a", limit=0, dead_letter="dead")
    queues(engine, "dead")
    engine.create_selector("a", when=overflow, do=deliver("out"), credit=1)
    assert publish(engine, "a", "x", "y") == [1, 0]
    assert (take(engine), held_in(engine, "dead")) == (["x"], ["y"])


def test_rule_01_only_the_queues_own_dead_letter_takes_an_overflow(make):
    engine = make(dead_letter="dead")
    queues(engine, "a", limit=0)
    queues(engine, "dead")
    with pytest.raises(QueueFull):
        engine.publish("a", "x")


@pytest.mark.parametrize("dead_letter", ["a", "missing", "full"])
def test_rule_01_a_dead_letter_that_cannot_take_it(engine, dead_letter):
    queues(engine, "a", limit=0, dead_letter=dead_letter)
    queues(engine, "full", limit=0)
    with nothing_changes(engine), pytest.raises(QueueFull):
        engine.publish("a", "x")


def test_rule_01_move_waits_for_room_whatever_dead_letters_there_are(make):
    engine = make(dead_letter="dead")
    queues(engine, "a", dead_letter="dead")
    queues(engine, "b", limit=1, dead_letter="dead")
    queues(engine, "dead")
    selector = engine.create_selector("a", when=always, do=move_to("b"), credit=5)
    publish(engine, "a", "x", "y", "z")
    assert (held_in(engine, "b"), held_in(engine, "a", "ready"), held_in(engine, "dead")) == (["x"], ["y", "z"], [])
    assert selector.blocked and selector_stats(engine, selector)["blocked"] is True
    engine.create_selector("b", when=always, do=deliver("out"), credit=1)
    assert held_in(engine, "b", "outstanding") == ["x"]
    assert held_in(engine, "b", "ready") == ["y"]
    assert drain(engine) == ["x", "y", "z"]
    assert not selector.blocked


def test_rule_01_the_longest_blocked_selector_goes_first_then_to_the_back(engine):
    queues(engine, "a", "b")
    queues(engine, "c", limit=1)
    publish(engine, "c", "first")
    engine.create_selector("b", when=always, do=move_to("c"), credit=INFINITE)
    engine.create_selector("a", when=always, do=move_to("c"), credit=INFINITE)
    publish(engine, "a", "a1", "a2")
    publish(engine, "b", "b1", "b2")
    seen = []
    while engine.queues["c"].ready:
        message = next(engine.queues["c"].browse())
        seen.append(message.address)
        engine.queues["c"].delete(message.id)
    assert seen == ["first", "a1", "b1", "a2", "b2"]


def test_rule_01_a_copy_beyond_the_limit_is_dead_lettered_or_dropped_and_counted(engine):
    queues(engine, "a")
    queues(engine, "b", limit=0, dead_letter="dead")
    queues(engine, "c", limit=0)
    queues(engine, "dead")
    to_b = engine.create_selector("a", when=always, do=copy_to("b"))
    to_c = engine.create_selector("a", when=always, do=copy_to("c"))
    publish(engine, "a", "x")
    [dead] = engine.queues["dead"].browse()
    assert (dead.headers["xump_reason"], dead.headers["xump_bounced_from"]) == ("overflow", "b")
    assert queue_stats(engine, "b")["dead_lettered"] == {"overflow": 1}
    assert selector_stats(engine, to_b)["dropped"] == 0
    assert selector_stats(engine, to_c)["dropped"] == 1
    assert selector_stats(engine, to_c)["copied"] == 0
    assert engine.queues["a"].ready == 0


def test_rule_01_a_copy_taken_by_the_targets_overflow_counts_as_copied(engine):
    queues(engine, "a")
    queues(engine, "b", limit=0)
    copier = engine.create_selector("a", when=always, do=copy_to("b"))
    engine.create_selector("b", when=overflow, do=deliver("out"))
    publish(engine, "a", "x")
    assert take(engine) == ["x"]
    assert selector_stats(engine, copier)["copied"] == 1


def test_rule_01_returned_messages_pass_the_limit(engine):
    queues(engine, "a", limit=1)
    engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x", "y")
    selector = next(iter(engine.selectors.values()))
    engine.take(1)
    selector.delete()
    assert held_in(engine, "a", "ready") == ["x", "y"]
    with pytest.raises(QueueFull):
        engine.publish("a", "z")


def test_decision_05_a_move_within_its_own_queue_makes_its_own_room(make):
    engine = make(hop_limit=3)
    queues(engine, "a", limit=1)
    engine.create_selector("a", when=always, do=move_to("a"), credit=INFINITE)
    publish(engine, "a", "x")
    assert queue_stats(engine, "a")["entered"] == 4
    assert queue_stats(engine, "a")["dropped"] == {"hops": 1}


def test_decision_06_entry_happens_at_the_call_also_inside_building(engine):
    queues(engine, "a", limit=1)
    engine.create_selector("a", when=overflow, do=deliver("out"), credit=1)
    with engine.building():
        engine.create_selector("a", when=always, do=deliver("late"), credit=9)
        assert publish(engine, "a", "x", "y") == [1, 2]
        assert take(engine) == ["y"]
        with pytest.raises(QueueFull):
            engine.publish("a", "z")
    assert take(engine) == ["x"]


def test_decision_07_overflow_consumes_into_another_queue(engine):
    queues(engine, "a", "b", limit=0)
    for action in (copy_to("b"), move_to("a"), bounce_to("a")):
        with nothing_changes(engine), pytest.raises(ValueError):
            engine.create_selector("a", when=overflow, do=action)
    engine.create_selector("a", when=overflow, do=move_to(field("address")))
    for address in ("a", "missing", ""):
        with pytest.raises(QueueFull):
            engine.publish("a", address)
