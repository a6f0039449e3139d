"""Rules 6 and 7: without a selector; what counts as processed, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""

import pytest

from tests.route.steps import addresses, drain, held_in, publish, queue_stats, queues, take
from xump.actions import copy_to, deliver, discard, field, move_to
from xump.conditions import always, default, match, overflow


def test_rule_06_without_selectors_messages_stay_before_the_frontier(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=overflow, do=discard)
    publish(engine, "a", "x", "y")
    engine.create_selector("a", when=always, do=copy_to("b"))       # from the frontier on
    assert held_in(engine, "b") == ["x", "y"]


def test_rule_06_a_held_queue_routes_nothing(engine):
    [queue] = queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x", "y")
    queue.hold()
    assert queue.held
    publish(engine, "a", "z")
    selector.grant(5)
    assert take(engine) == ["x"]        # it was delivered before
    assert held_in(engine, "a", "ready") == ["y", "z"]
    queue.release()
    assert not queue.held
    assert take(engine) == ["y", "z"]


def test_rule_06_an_empty_hit_set_goes_to_the_default_and_waits_for_it(engine):
    queues(engine, "a", dead_letter="dead")
    queues(engine, "dead")
    engine.create_selector("a", when=match("eq", "x"), do=deliver("x"), credit=0)
    fallback = engine.create_selector("a", when=default, do=deliver("rest"), credit=0)
    publish(engine, "a", "x", "y")
    assert (held_in(engine, "a", "ready"), held_in(engine, "dead")) == (["x", "y"], [])
    fallback.grant(9)
    assert take(engine) == ["y"]


def test_rule_06_a_disabled_default_is_a_default(engine):
    queues(engine, "a")
    fallback = engine.create_selector("a", when=default, do=deliver("rest"), credit=9, enabled=False)
    publish(engine, "a", "x")
    assert held_in(engine, "a", "ready") == ["x"]
    fallback.enable()
    assert take(engine) == ["x"]


def test_rule_06_then_to_the_dead_letter(engine):
    queues(engine, "a", dead_letter="dead", history_limit=5)
    queues(engine, "dead")
    engine.create_selector("a", when=match("eq", "x"), do=deliver("x"))
    assert publish(engine, "a", "y") == [1]
    [dead] = engine.queues["dead"].browse()
    assert dead.headers == {"xump_original_address": "y", "xump_bounced_from": "a", "xump_reason": "unroutable"}
    assert queue_stats(engine, "a")["dead_lettered"] == {"unroutable": 1}
    assert engine.queues["a"].history == 1


def test_rule_06_else_it_is_dropped_and_counted(engine):
    queues(engine, "a", history_limit=5)
    engine.create_selector("a", when=match("eq", "x"), do=deliver("x"))
    assert publish(engine, "a", "y") == [1]
    assert queue_stats(engine, "a")["dropped"] == {"unroutable": 1}
    assert engine.queues["a"].history == 0      # decision 25


def test_rule_06_what_waits_is_never_dropped_because_selectors_went(engine):
    queues(engine, "a", dead_letter="dead")
    queues(engine, "dead")
    one = engine.create_selector("a", when=match("eq", "x"), do=deliver("x"), credit=0)
    two = engine.create_selector("a", when=match("eq", "y"), do=deliver("y"), credit=0)
    publish(engine, "a", "x")
    one.disable()
    one.delete()
    two.delete()
    assert held_in(engine, "a", "ready") == ["x"]
    publish(engine, "a", "unrouted")            # decision 38
    engine.create_selector("a", when=match("eq", "x"), do=deliver("x"), credit=9)
    assert take(engine) == ["x"]
    assert addresses(engine.queues["dead"].browse()) == ["unrouted"]


def test_rule_07_copied_only_is_processed_at_once(engine):
    queues(engine, "a", history_limit=2)
    queues(engine, "b")
    queues(engine, "full", limit=0)
    engine.create_selector("a", when=always, do=copy_to("b"))
    engine.create_selector("a", when=match("eq", "z"), do=copy_to("full"))
    publish(engine, "a", "x", "y", "z")
    assert held_in(engine, "a", "history") == ["y", "z"]
    assert queue_stats(engine, "a")["settled"] == 1


def test_rule_07_a_copy_that_nobody_took_is_processed_all_the_same(engine):
    queues(engine, "a")
    queues(engine, "full", limit=0)
    engine.create_selector("a", when=always, do=copy_to("full"))
    publish(engine, "a", "x")
    assert queue_stats(engine, "a")["settled"] == 1


def test_rule_07_none_of_its_hit_set_may_act_it_waits_until_one_is_enabled(engine):
    queues(engine, "a", "b", "c")
    selectors = [engine.create_selector("a", when=always, do=copy_to(name), enabled=False) for name in "bc"]
    publish(engine, "a", "x")
    assert held_in(engine, "a", "ready") == ["x"]
    selectors[1].enable()
    assert (held_in(engine, "a"), held_in(engine, "b"), held_in(engine, "c")) == ([], [], ["x"])


def test_rule_07_parked_messages_are_taken_by_newer_selectors(engine):
    queues(engine, "a", "b")
    copier = engine.create_selector("a", when=always, do=copy_to("b"), enabled=False)
    publish(engine, "a", "x")
    engine.create_selector("a", when=always, do=deliver("out"))
    assert take(engine) == ["x"]
    copier.enable()
    assert held_in(engine, "b") == []


def test_decision_49_a_copy_whose_field_names_no_queue_any_more_is_made_when_there_is_one(engine):
    queues(engine, "q", "t")
    copier = engine.create_selector("q", when=always, do=copy_to(field("headers.to")), enabled=False)
    engine.publish("q", "parked", headers={"to": "t"})
    engine.delete_queue("t")
    copier.enable()
    assert held_in(engine, "q") == ["parked"]
    engine.create_queue("u")
    assert held_in(engine, "q") == ["parked"]
    engine.create_queue("t")
    assert (held_in(engine, "q"), held_in(engine, "t")) == ([], ["parked"])


def test_decision_42_parked_messages_are_routed_in_their_turn_among_what_waits(engine):
    (q, *_) = queues(engine, "q", "b")
    copier = engine.create_selector("q", when=match("prefix", "p"), do=copy_to("b"), enabled=False)
    publish(engine, "q", "p1", "p2", "p3", "x4", "p5")
    first = engine.create_selector("q", when=match("eq", "p1"), do=move_to("b"), credit=0)
    with engine.building():
        copier.enable()
        first.grant(1)      # is younger than the copier, and p1 is parked: the copier's turn
        engine.create_selector("q", when=match("eq", "x4"), do=move_to("b"))     # x4 was dropped
        engine.create_selector("q", when=match("eq", "y"), do=move_to("b"), credit=1)
        publish(engine, "q", "y6")
        q.delete(2)
    assert (held_in(engine, "b"), held_in(engine, "q"), q.outstanding) == (["p1", "p3", "p5"], [], 0)


def test_decision_42_what_is_older_and_waits_is_taken_before_a_parked_message_is_routed(engine):
    queues(engine, "q", "b")
    copier = engine.create_selector("q", when=match("eq", "parked"), do=copy_to("b"), enabled=False)
    taker = engine.create_selector("q", when=match("prefix", "w"), do=move_to("b"), credit=0)
    publish(engine, "q", "w1", "parked", "w2")
    with engine.building():
        copier.enable()
        taker.grant(2)
    assert held_in(engine, "b") == ["w1", "parked", "w2"]


def test_decision_42_a_parked_message_that_is_taken_first_is_not_routed_again(engine):
    queues(engine, "q", "b")
    engine.create_queue("full", limit=1)
    publish(engine, "full", "x")
    blocked = engine.create_selector("q", when=match("eq", "m"), do=move_to("full"), enabled=False)
    publish(engine, "q", "m", "m", "m")
    mover = engine.create_selector("q", when=match("eq", "m"), do=move_to("b"), credit=0)
    blocked.enable()
    with engine.building():
        mover.grant(2)
        blocked.disable()
        blocked.enable()
    assert (held_in(engine, "b"), held_in(engine, "q", "ready"), blocked.outstanding) == (["m", "m"], ["m"], 0)


def test_decision_15_with_a_disabled_consumer_in_the_hit_set_it_waits(engine):
    queues(engine, "a", "b", "c")
    engine.create_selector("a", when=always, do=copy_to("b"))
    late = engine.create_selector("a", when=always, do=copy_to("c"), enabled=False)
    consumer = engine.create_selector("a", when=always, do=deliver("out"), enabled=False)
    publish(engine, "a", "x")
    assert held_in(engine, "a", "ready") == held_in(engine, "b") == ["x"]
    late.enable()       # the message was routed: its copies are made
    assert held_in(engine, "c") == []
    consumer.enable()
    assert take(engine) == ["x"]


@pytest.mark.parametrize("limit, kept", [(0, []), (2, ["2", "1"]), (None, ["3", "2", "1"])])
def test_rule_07_history_drops_what_was_processed_first(engine, limit, kept):
    queues(engine, "a", history_limit=limit)
    engine.create_selector("a", when=always, do=deliver("out"), credit=3)
    publish(engine, "a", "1", "2", "3")
    for delivery in reversed(engine.take(3)):
        delivery.ack()
    assert held_in(engine, "a", "history") == sorted(kept)
    assert queue_stats(engine, "a")["settled"] == 3 - len(kept)


def test_rule_07_what_overflow_took_goes_to_the_history_when_settled(engine):
    queues(engine, "a", limit=0, history_limit=5)
    engine.create_selector("a", when=overflow, do=deliver("out"))
    publish(engine, "a", "x")
    assert held_in(engine, "a", "history") == []
    assert drain(engine) == ["x"]
    assert held_in(engine, "a", "history") == ["x"]
