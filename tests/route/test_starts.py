"""Rule 13: a selector's start, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""

from datetime import UTC, datetime, timedelta

import pytest

from tests.route.steps import held_in, nothing_changes, publish, queue_stats, queues, take
from xump.actions import copy_to, deliver, discard, field, move_to
from xump.conditions import always, match, overflow
from xump.errors import QueueFull


def started(engine, start, **options):
    """What a COPY with this start makes of 1 and 2 (routed; 1 is in the history), 3 (unrouted) and 4 (later)."""
    queues(engine, "a", history_limit=None)
    queues(engine, "b")
    engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "1", "2")
    engine.take(1)[0].ack()
    engine.queues["a"].hold()
    publish(engine, "a", "3")
    engine.create_selector("a", when=always, do=copy_to("b"), start=start, **options)
    at_once = held_in(engine, "b")
    publish(engine, "a", "4")
    engine.queues["a"].release()
    return at_once, held_in(engine, "b")


@pytest.mark.parametrize("start, at_once, finally_", [
    ("current", "", "34"), ("tail", "", "4"), ("head", "123", "1234"), (2, "23", "234"), (4, "", "4"), (9, "", "4"),
])
def test_rule_13_starts(engine, start, at_once, finally_):
    assert started(engine, start) == (list(at_once), list(finally_))


def test_rule_13_an_aware_datetime(engine, clock):
    queues(engine, "a", "b", "c")
    publish(engine, "a", "1")
    clock.tick(10)
    publish(engine, "a", "2", "3")
    moment = datetime.fromtimestamp(clock.now / 1e9, UTC)
    engine.create_selector("a", when=always, do=copy_to("b"), start=moment, enabled=False)
    engine.create_selector("a", when=always, do=copy_to("c"), start=moment - timedelta(microseconds=1))
    assert held_in(engine, "c") == ["2", "3"]
    with nothing_changes(engine), pytest.raises(ValueError):
        engine.create_selector("a", when=always, do=copy_to("b"), start=datetime(2020, 1, 1))


def test_rule_13_a_replay_selects(engine):
    queues(engine, "a", "b")
    publish(engine, "a", "x", "y", "x")
    engine.create_selector("a", when=match("eq", "x"), do=copy_to("b"), start="head")
    assert held_in(engine, "b") == ["x", "x"]
    assert queue_stats(engine, "a")["dropped"] == {} and held_in(engine, "a") == ["y"]      # what waited is not dropped


def test_rule_13_a_replay_happens_at_the_call_also_inside_building(engine):
    queues(engine, "a", "b")
    publish(engine, "a", "x")
    with engine.building():
        engine.create_selector("a", when=always, do=copy_to("b"), start="head")
        assert held_in(engine, "b") == ["x"]
        publish(engine, "a", "y")
        assert held_in(engine, "b") == ["x"]
    assert held_in(engine, "b") == ["x", "y"]


def test_rule_13_a_replay_without_room_for_all_changes_nothing(engine):
    queues(engine, "a", history_limit=None)
    queues(engine, "b", limit=2, dead_letter="dead")
    queues(engine, "dead")
    engine.create_selector("a", when=always, do=discard)
    publish(engine, "a", "1", "2", "3")
    with nothing_changes(engine), pytest.raises(QueueFull, match="'b'"):
        engine.create_selector("a", when=always, do=copy_to("b"), start="head")
    assert engine.create_selector("a", when=always, do=copy_to("b"), start=2).id == 2
    assert held_in(engine, "b") == ["2", "3"]


def test_rule_13_a_replays_room_counts_overflow_in(engine):
    queues(engine, "a", history_limit=None)
    queues(engine, "b", limit=2)
    engine.create_selector("a", when=always, do=discard)
    engine.create_selector("b", when=overflow, do=deliver("out"), credit=1)
    publish(engine, "a", "1", "2", "3")
    engine.create_selector("a", when=always, do=copy_to("b"), start="head")
    assert (held_in(engine, "b", "ready"), take(engine)) == (["1", "2"], ["3"])


def test_rule_13_a_dead_letter_that_a_replay_brings_about_takes_room_too(make):
    """Message 1 may not go on, for its hops: its dead letter would have the room that the copy of 2 needs."""
    engine = make(hop_limit=1, dead_letter="c")
    queues(engine, "a")
    queues(engine, "b", history_limit=None)
    queues(engine, "c", limit=1)
    engine.create_selector("a", when=always, do=move_to("b"))
    publish(engine, "a", "1")
    publish(engine, "b", "2")
    with nothing_changes(engine), pytest.raises(QueueFull, match="'c'"):
        engine.create_selector("b", when=always, do=copy_to("c"), start="head")


def test_rule_13_so_does_one_of_an_overflow_selector_of_its_target(make):
    """The copy of 1 is moved on, which its hops do not allow: its dead letter would have the room that the copy of 2 needs."""
    engine = make(hop_limit=1)
    queues(engine, "a", history_limit=None)
    queues(engine, "b", limit=1, dead_letter="c")
    queues(engine, "c", limit=1)
    queues(engine, "d")
    engine.create_selector("b", when=overflow, do=move_to("d"), credit=9)
    publish(engine, "b", "first")
    engine.publish("a", "b", b"1")
    engine.publish("a", "c", b"2")
    with nothing_changes(engine), pytest.raises(QueueFull, match="'c'"):
        engine.create_selector("a", when=always, do=copy_to(field("address")), start="head")


def test_decision_16_a_selector_created_disabled_replays_when_it_is_first_enabled(engine):
    queues(engine, "a", history_limit=None)
    queues(engine, "b", limit=2)
    publish(engine, "a", "1")
    selector = engine.create_selector("a", when=always, do=copy_to("b"), start="head", enabled=False)
    publish(engine, "a", "2", "3")
    with nothing_changes(engine), pytest.raises(QueueFull):
        selector.enable()
    assert not selector.enabled
    engine.queues["a"].delete(1)
    selector.enable()
    assert (held_in(engine, "b"), held_in(engine, "a", "history")) == (["2", "3"], ["2", "3"])
    engine.queues["b"].purge()
    selector.disable()
    selector.enable()
    assert held_in(engine, "b") == []


def test_rule_13_consuming_selectors_start_at_the_current(engine):
    queues(engine, "a", "b")
    for start in ("head", "tail", 1, datetime(2020, 1, 1, tzinfo=UTC)):
        with nothing_changes(engine), pytest.raises(ValueError):
            engine.create_selector("a", when=always, do=move_to("b"), start=start)


def test_decision_16_a_replay_does_not_act_for_a_selector_that_was_there_before_with_the_same_condition(engine):
    for name in "abc":
        engine.create_queue(name)
    first = engine.create_selector("c", when=always, do=copy_to("b"), enabled=False)
    engine.publish("c", "parked")
    engine.create_selector("c", when=always, do=copy_to("a"), start="head")
    assert (engine.queues["a"].ready, engine.queues["c"].ready) == (1, 1)
    first.enable()
    assert (engine.queues["b"].ready, engine.queues["c"].ready) == (1, 0)
    assert engine.queues["a"].ready == 1


def test_decision_16_a_replay_acts_for_messages_that_were_routed_while_its_selector_was_disabled(engine):
    for name in "abc":
        engine.create_queue(name)
    engine.create_selector("c", when=always, do=copy_to("b"), enabled=False)
    late = engine.create_selector("c", when=always, do=copy_to("a"), start="head", enabled=False)
    engine.publish("c", "parked")
    assert engine.queues["c"].ready == 1
    late.enable()
    assert [engine.queues[name].ready for name in "abc"] == [1, 0, 0]
