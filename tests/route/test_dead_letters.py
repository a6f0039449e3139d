"""Rules 11 and 12: bounces, dead letters and cycles, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""

import pytest

from tests.model import engine as model
from tests.route.steps import held_in, nothing_changes, publish, queue_stats, queues, selector_stats, take
from xump.actions import bounce_to, copy_to, deliver, discard, move_to
from xump.conditions import always, match, overflow
from xump.errors import QueueNotFound

INFINITE = model.INFINITE


def test_rule_11_bounce_mangles_the_envelope(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=bounce_to("b"), credit=9)
    engine.publish("a", "x", b"body", {"n": 1}, reply_to="me", message_id="m")
    engine.publish("a", "y")
    first, second = engine.queues["b"].browse()
    assert (first.address, first.reply_to, first.body, first.message_id) == ("me", None, b"body", "m")
    assert first.headers == {"n": 1, "xump_original_address": "x", "xump_bounced_from": "a", "xump_reason": "bounced"}
    assert (second.address, second.reply_to, second.headers["xump_original_address"]) == ("y", None, "y")
    assert engine.queues["a"].outstanding == 2


def test_rule_11_the_original_address_is_set_once(engine):
    queues(engine, "a", "b", "c")
    engine.create_selector("a", when=always, do=bounce_to("b"), credit=9)
    engine.create_selector("b", when=always, do=bounce_to("c"), credit=9)
    engine.publish("a", "x", reply_to="me")
    [message] = engine.queues["c"].browse()
    assert message.headers == {"xump_original_address": "x", "xump_bounced_from": "b", "xump_reason": "bounced"}


def test_rule_11_dead_letters_are_looked_up_upstream_then_at_the_engine(make):
    engine = make(dead_letter="engine")
    queues(engine, "a", dead_letter="above")
    queues(engine, "b", "above", "engine")
    queues(engine, "c", dead_letter="missing")
    for credit in (1, INFINITE):
        for source, target in ("ab", "bc"):
            engine.create_selector(source, when=always, do=move_to(target), credit=credit, name=f"{source}{credit}")
        engine.create_selector("c", when=match("eq", "never"), do=discard, name="sink")
        publish(engine, "a", "x")
        for selector in list(engine.selectors.values()):
            if selector.name != "sink":
                selector.delete()
    assert held_in(engine, "above") == ["x"]    # nobody upstream waits for a payment after INFINITE moves
    assert held_in(engine, "engine") == ["x"]


def test_rule_11_publishing_to_an_unknown_queue(make):
    engine = make(dead_letter="dead")
    with pytest.raises(QueueNotFound):
        engine.publish("nowhere", "x")
    queues(engine, "dead", limit=1)
    assert engine.publish("nowhere", "x", reply_to="me") == 0
    [dead] = engine.queues["dead"].browse()
    assert dead.address == "me"
    assert dead.headers == {"xump_original_address": "x", "xump_bounced_from": "nowhere", "xump_reason": "no-queue"}
    with nothing_changes(engine), pytest.raises(QueueNotFound):
        engine.publish("nowhere", "y")


def test_decision_25_what_is_dead_lettered_was_processed(engine):
    queues(engine, "a", history_limit=5, dead_letter="dead")
    queues(engine, "dead")
    engine.create_selector("a", when=match("eq", "never"), do=discard)
    publish(engine, "a", "x")
    assert held_in(engine, "a", "history") == ["x"]


def test_rule_12_each_copy_move_and_bounce_adds_a_hop(engine):
    queues(engine, "a", "b", "c", "d")
    engine.create_selector("a", when=always, do=copy_to("b"))
    engine.create_selector("b", when=always, do=move_to("c"), credit=1)
    engine.create_selector("c", when=always, do=bounce_to("d"), credit=1)
    publish(engine, "a", "x")
    assert [message.hops for name in "bcd" for message in engine.queues[name].browse()] == [1, 2, 3]


@pytest.mark.parametrize("credit", [9, INFINITE])
def test_rule_12_past_the_hop_limit_it_is_dead_lettered(make, credit):
    engine = make(hop_limit=4, dead_letter="dead")
    queues(engine, "a", "b", "dead")
    with engine.building():
        first = engine.create_selector("a", when=always, do=move_to("b"), credit=credit)
        second = engine.create_selector("b", when=always, do=move_to("a"), credit=credit)
    publish(engine, "a", "x")
    [dead] = engine.queues["dead"].browse()
    assert (dead.headers["xump_reason"], dead.headers["xump_bounced_from"]) == ("hops", "a")
    assert [queue_stats(engine, name)["entered"] for name in "ab"] == [3, 2]
    assert engine.queues["a"].outstanding == engine.queues["b"].outstanding == 0
    assert [selector_stats(engine, s)["served"] for s in (first, second)] == [3, 2]
    paid = 0 if credit == INFINITE else 3
    assert selector_stats(engine, first)["paid"] == paid


def test_rule_12_else_dropped_and_counted(make):
    engine = make(hop_limit=2)
    queues(engine, "a", "b", "c", "d")
    for source, target in ("ab", "bc"):
        engine.create_selector(source, when=always, do=move_to(target), credit=1)
    copier = engine.create_selector("c", when=always, do=copy_to("d"))
    publish(engine, "a", "x")
    assert selector_stats(engine, copier)["dropped"] == 1
    assert engine.queues["d"].ready == 0
    assert queue_stats(engine, "c")["settled"] == 1


def test_decision_32_a_copy_past_the_hop_limit_is_dead_lettered_from_its_source(make):
    engine = make(hop_limit=1)
    queues(engine, "a", "b", "dead")
    queues(engine, "source", dead_letter="dead")
    engine.create_selector("a", when=always, do=copy_to("source"))
    copier = engine.create_selector("source", when=always, do=copy_to("b"))
    publish(engine, "a", "x")
    [dead] = engine.queues["dead"].browse()
    assert (dead.headers["xump_reason"], dead.headers["xump_bounced_from"]) == ("hops", "source")
    assert queue_stats(engine, "source")["dead_lettered"] == {"hops": 1}
    assert selector_stats(engine, copier)["dropped"] == 0


def test_rule_12_a_dead_letter_never_loops(make):
    engine = make(dead_letter="dead")
    queues(engine, "a", "b", dead_letter="dead")
    queues(engine, "dead", dead_letter="a")
    for name in ("a", "dead"):
        engine.create_selector(name, when=match("eq", "never"), do=discard)
    publish(engine, "a", "x")
    assert queue_stats(engine, "a")["dead_lettered"] == {"unroutable": 1}
    assert queue_stats(engine, "dead")["dropped"] == {"unroutable": 1}


def test_rule_12_into_the_queue_that_it_is_in_or_a_full_one_it_is_dropped(make):
    engine = make(dead_letter="dead")
    queues(engine, "dead", limit=0)
    queues(engine, "a")
    engine.create_selector("dead", when=match("eq", "never"), do=discard)
    engine.create_selector("a", when=match("eq", "never"), do=discard)
    publish(engine, "a", "x")
    assert queue_stats(engine, "a")["dropped"] == {"unroutable": 1}
    spill = engine.create_selector("dead", when=overflow, do=deliver("spilled"), credit=1)
    publish(engine, "a", "y")
    assert take(engine) == ["y"]
    assert spill.outstanding == 1


def test_rule_12_once_it_has_waited_it_may_be_dead_lettered_again(make):
    engine = make(dead_letter="last")
    queues(engine, "a", dead_letter="dead")
    queues(engine, "dead", "last")
    engine.create_selector("a", when=match("eq", "never"), do=discard)
    publish(engine, "a", "x")
    engine.create_selector("dead", when=match("eq", "never"), do=discard)
    [message] = engine.queues["last"].browse()
    assert message.headers["xump_bounced_from"] == "dead"


def test_rule_12_once_it_has_waited_its_hops_start_at_zero(make):
    engine = make(hop_limit=1, dead_letter="dead")
    queues(engine, "a", "b", "c", "dead")
    for source, target in ("ab", "bc"):
        engine.create_selector(source, when=always, do=move_to(target), credit=1)
    publish(engine, "a", "x")
    assert [message.hops for message in engine.queues["dead"].browse()] == [0]
    engine.create_selector("dead", when=always, do=move_to("c"), credit=1)
    assert [message.hops for message in engine.queues["c"].browse()] == [1]
