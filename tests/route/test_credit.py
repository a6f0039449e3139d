"""Rule 8: credit, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""

import pytest

from tests.model import engine as model
from tests.route.steps import drain, held_in, nothing_changes, publish, queue_stats, queues, selector_stats, take
from xump.actions import bounce_to, copy_to, deliver, discard, move_to
from xump.conditions import always, match
from xump.errors import QueueFull, StaleDelivery

INFINITE = model.INFINITE


def test_rule_08_taking_spends_a_credit_and_ack_pays_for_that_very_message(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    publish(engine, "a", "x", "y", "z")
    first, second = engine.take(9)
    assert (selector.credit, selector.available, selector.outstanding) == (2, 0, 2)
    second.ack()
    assert held_in(engine, "a", "outstanding") == ["x", "z"]
    assert selector_stats(engine, selector)["paid"] == 1
    first.ack()
    assert (selector.available, selector.outstanding) == (1, 1)


def test_rule_08_grant_widens_the_window_and_settles_nothing(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x", "y", "z")
    selector.grant(1)
    assert take(engine) == ["x", "y"]
    assert (selector.credit, selector.available, selector.outstanding) == (2, 0, 2)
    with nothing_changes(engine), pytest.raises(ValueError):
        selector.grant(-1)
    engine.ack([])
    selector.pay()
    assert take(engine) == ["z"]
    selector.pay(2)
    selector.grant(-2)
    assert (selector.credit, selector.available) == (0, 0)


def test_rule_08_pay_settles_the_oldest_taken(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=3)
    publish(engine, "a", "x", "y", "z")
    [first, second] = engine.take(2)
    with nothing_changes(engine), pytest.raises(ValueError):
        selector.pay(3)                 # z is outstanding, but your program has not taken it
    selector.pay()
    with pytest.raises(StaleDelivery):
        first.ack()
    second.ack()
    assert held_in(engine, "a") == ["z"]


def test_rule_08_pay_is_for_deliveries_of_finite_credit(engine):
    queues(engine, "a", "b")
    for action, credit in ((move_to("b"), 1), (deliver("x", "b"), 1), (bounce_to("b"), 1), (discard, 1), (copy_to("b"), 1),
                           (deliver("x"), INFINITE)):
        selector = engine.create_selector("a", when=match("eq", "never"), do=action, credit=credit)
        selector.pay(0)                 # nothing is asked for
        with pytest.raises(ValueError):
            selector.pay()
    with pytest.raises(ValueError):
        selector.grant(1)               # INFINITE


def test_rule_08_payment_climbs(engine):
    queues(engine, "a", "b", "c", history_limit=None)
    selectors = [engine.create_selector("a", when=always, do=move_to("b"), credit=2),
                 engine.create_selector("b", when=always, do=move_to("c"), credit=1),
                 engine.create_selector("c", when=always, do=deliver("out"), credit=1)]
    publish(engine, "a", "x", "y")
    assert [q.outstanding for q in engine.queues.values()] == [2, 1, 1]
    [delivery] = engine.take(9)
    delivery.ack()
    assert [held_in(engine, name, "history") for name in "abc"] == [["x"]] * 3
    assert drain(engine) == ["y"]
    assert [(s.available, selector_stats(engine, s)["paid"]) for s in selectors] == [(2, 2), (1, 2), (1, 2)]


@pytest.mark.parametrize("end", ["copied", "discarded", "dead-lettered", "dropped", "deleted", "purged"])
def test_rule_08_payment_climbs_by_any_end(engine, end):
    queues(engine, "a", "c", "dead")
    queues(engine, "b", dead_letter="dead" if end == "dead-lettered" else None)
    selector = engine.create_selector("a", when=always, do=move_to("b"), credit=1)
    if end == "copied":
        engine.create_selector("b", when=always, do=copy_to("c"))
    elif end == "discarded":
        engine.create_selector("b", when=always, do=discard)
    elif end in ("dead-lettered", "dropped"):
        engine.create_selector("b", when=match("eq", "never"), do=discard)
    publish(engine, "a", "x")
    if end == "deleted":
        assert engine.queues["b"].delete(1)
    elif end == "purged":
        assert engine.queues["b"].purge() == 1
    assert (selector.available, engine.queues["a"].outstanding) == (1, 0)
    assert (selector_stats(engine, selector)["paid"], queue_stats(engine, "a")["settled"]) == (1, 1)


def test_rule_08_infinite_move_leaves_nothing_outstanding(engine):
    queues(engine, "a", "b", history_limit=None)
    selector = engine.create_selector("a", when=always, do=move_to("b"), credit=INFINITE)
    publish(engine, "a", "x", "y")
    assert (held_in(engine, "a", "history"), held_in(engine, "b")) == (["x", "y"], ["x", "y"])
    assert (selector.credit, selector.available, selector.outstanding) == (INFINITE, INFINITE, 0)


def test_rule_08_infinite_move_hands_the_parent_on(engine):
    queues(engine, "a", "b", "c")
    first = engine.create_selector("a", when=always, do=move_to("b"), credit=1)
    engine.create_selector("b", when=always, do=move_to("c"), credit=INFINITE)
    engine.create_selector("c", when=always, do=deliver("out"), credit=9)
    publish(engine, "a", "x", "y")
    assert (held_in(engine, "b"), first.outstanding, take(engine, 1)) == ([], 1, ["x"])
    first.delete()      # recalls what became of it, two queues on
    assert (held_in(engine, "a", "ready"), held_in(engine, "c")) == (["x", "y"], [])


def test_rule_08_infinite_deliver_is_ready_and_bound_until_taken(engine):
    [queue] = queues(engine, "a", limit=2)
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=INFINITE)
    publish(engine, "a", "x", "y")
    assert (queue.ready, queue.outstanding, selector.outstanding) == (2, 0, 0)
    with pytest.raises(QueueFull):
        engine.publish("a", "z")
    engine.create_selector("a", when=always, do=deliver("other"), credit=9)
    [delivery] = engine.take(1)
    assert (delivery.destination, queue.ready, queue_stats(engine, "a")["settled"]) == ("out", 1, 1)
    for act in (delivery.ack, delivery.ack, delivery.nack, delivery.reject):
        act()
    assert take(engine, 9, "other") == []


def test_rule_08_take_goes_on_with_what_infinite_deliveries_release(engine):
    queues(engine, "a")
    queues(engine, "b", limit=1)
    engine.create_selector("a", when=always, do=move_to("b"), credit=9)
    engine.create_selector("b", when=always, do=deliver("out"), credit=INFINITE)
    publish(engine, "a", *"12345")
    assert take(engine, 3) == ["1", "2", "3"]
    assert take(engine, 9) == ["4", "5"]


def test_decision_28_deleting_unbinds_disabling_does_not(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=INFINITE)
    publish(engine, "a", "x", "y")
    selector.disable()
    assert take(engine, 1) == ["x"]
    selector.delete()
    assert take(engine) == []
    engine.create_selector("a", when=always, do=deliver("new"), credit=1)
    assert [(d.destination, d.redelivered) for d in engine.take(9)] == [("new", False)]
