"""Rules 9 and 10: the end of a selector; nack and reject, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""

import pytest

from tests.route.steps import drain, held_in, nothing_changes, publish, queue_stats, queues, selector_stats, take
from xump.actions import copy_to, deliver, discard, move_to
from xump.conditions import always
from xump.errors import SelectorNotFound, StaleDelivery


def test_rule_09_deleting_returns_what_is_outstanding_in_its_old_order(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    publish(engine, "a", "x", "y", "z")
    [delivery] = engine.take(1)
    assert engine.delete_selector(selector) is True
    assert held_in(engine, "a", "ready") == ["x", "y", "z"]
    with nothing_changes(engine), pytest.raises(StaleDelivery):
        delivery.ack()
    engine.create_selector("a", when=always, do=deliver("new"), credit=9)
    assert [(d.message.address, d.redelivered, d.delivery_count) for d in engine.take(9)] == [
        ("x", True, 2), ("y", False, 1), ("z", False, 1)]


def test_rule_09_what_they_became_downstream_is_recalled(engine):
    queues(engine, "a", "b", "c")
    first = engine.create_selector("a", when=always, do=move_to("b"), credit=9)
    second = engine.create_selector("b", when=always, do=move_to("c"), credit=1)
    third = engine.create_selector("c", when=always, do=deliver("out"), credit=9)
    publish(engine, "a", "x", "y")
    [delivery] = engine.take(9)
    first.delete()
    assert [held_in(engine, name) for name in "abc"] == [["x", "y"], [], []]
    assert [queue_stats(engine, name)["deleted"] for name in "abc"] == [0, 2, 1]
    assert [(s.available, selector_stats(engine, s)["returned"]) for s in (second, third)] == [(1, 1), (9, 1)]
    with pytest.raises(StaleDelivery):
        delivery.nack()


def test_rule_09_copies_are_neither_repeated_nor_recalled(engine):
    queues(engine, "a", "b")
    copier = engine.create_selector("a", when=always, do=copy_to("b"))
    mover = engine.create_selector("a", when=always, do=deliver("out"))
    publish(engine, "a", "x")
    mover.delete()
    assert (held_in(engine, "a", "ready"), held_in(engine, "b")) == (["x"], ["x"])
    copier.delete()
    assert held_in(engine, "b") == ["x"]


def test_rule_09_disabling_only_stops_the_taking(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x", "y")
    selector.disable()
    [delivery] = engine.take(9)
    delivery.ack()
    assert (take(engine), selector.enabled) == ([], False)
    selector.enable()
    assert take(engine) == ["y"]


def test_rule_09_a_cycle_of_finite_credits_may_stand_still_and_loses_nothing(engine):
    queues(engine, "a", "b", limit=1)
    with engine.building():
        selectors = [engine.create_selector("a", when=always, do=move_to("b"), credit=1),
                     engine.create_selector("b", when=always, do=move_to("a"), credit=1)]
        publish(engine, "a", "x")
        publish(engine, "b", "y")
    assert sum(s.blocked for s in selectors) == 2
    assert engine.queues["b"].purge() == 1
    assert sum(q.ready for q in engine.queues.values()) > 0


def test_rule_09_deleting_what_is_not_there_is_no_error(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=discard)
    assert selector.delete() is True
    assert (selector.delete(), engine.delete_selector(selector), engine.delete_selector(99)) == (False, False, False)
    assert engine.delete_queue("a") is True
    assert engine.delete_queue("a") is False
    with pytest.raises(SelectorNotFound):
        selector.enable()


def test_rule_10_nack_returns_the_message_to_its_old_place(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x", "y")
    [delivery] = engine.take(9)
    delivery.nack()
    assert selector_stats(engine, selector)["returned"] == 1
    [again] = engine.take(9)
    assert (again.message.address, again.id, again.delivery_count, again.redelivered) == ("x", 1, 2, True)
    with nothing_changes(engine), pytest.raises(StaleDelivery):
        delivery.nack()


@pytest.mark.parametrize("answer, detail", [
    (lambda delivery: delivery.reject("too big"), "too big"), (lambda delivery: delivery.reject(), None),
    (lambda delivery: delivery.nack(requeue=False), None),
])
def test_rule_10_reject_dead_letters(engine, answer, detail):
    queues(engine, "a", dead_letter="dead")
    queues(engine, "dead")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x")
    answer(engine.take(1)[0])
    [dead] = engine.queues["dead"].browse()
    assert (dead.headers["xump_reason"], dead.headers.get("xump_detail")) == ("rejected", detail)
    assert queue_stats(engine, "a")["dead_lettered"] == {"rejected": 1}
    assert selector.available == 1


def test_rule_10_reject_without_a_dead_letter_drops_and_counts(engine):
    queues(engine, "a", history_limit=None)
    engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x")
    engine.take(1)[0].reject("no")
    assert queue_stats(engine, "a")["dropped"] == {"rejected": 1}
    assert list(engine.queues["a"].browse()) == []


def test_rule_10_delivery_limit(engine):
    queues(engine, "a", dead_letter="dead", delivery_limit=2)
    queues(engine, "dead")
    engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x")
    engine.take(1)[0].nack()
    assert held_in(engine, "dead") == []
    engine.take(1)[0].nack()
    [dead] = engine.queues["dead"].browse()
    assert dead.headers["xump_reason"] == "delivery-limit"
    assert engine.take(9) == []


def test_rule_10_a_queue_without_a_limit_has_that_of_the_nearest_upstream(engine):
    queues(engine, "a", delivery_limit=1, dead_letter="dead")
    queues(engine, "b", "dead")
    engine.create_selector("a", when=always, do=move_to("b"), credit=1)
    engine.create_selector("b", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x")
    engine.take(1)[0].nack()
    [dead] = engine.queues["dead"].browse()     # and its dead letter (rule 11)
    assert (dead.headers["xump_reason"], dead.headers["xump_bounced_from"]) == ("delivery-limit", "b")


def test_rule_10_delivery_count_travels_down_with_a_move_and_back_with_a_recall(engine):
    queues(engine, "a", "b")
    first = engine.create_selector("a", when=always, do=move_to("b"), credit=1)
    engine.create_selector("b", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x")
    engine.take(1)[0].nack()
    engine.take(1)
    first.delete()
    engine.create_selector("a", when=always, do=move_to("b"), credit=1)
    [delivery] = engine.take(1)
    assert (delivery.delivery_count, delivery.redelivered) == (3, True)


def test_rule_10_nacked_messages_are_not_yielded_again_by_the_iteration(engine):
    queues(engine, "a")
    engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x", "y")
    seen = []
    for delivery in engine.deliveries():
        seen.append(delivery.message.address)
        delivery.nack()
    assert seen == ["x"]
    assert drain(engine) == ["x", "y"]
