"""Rules 2 and 3: match, then filter; all COPYs first, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""

import pytest

from tests.model import engine as model
from tests.route.steps import held_in, publish, queue_stats, queues, selector_stats, take
from xump.actions import copy_to, deliver, discard, field, move_to
from xump.conditions import always, default, match, where
from xump.errors import InvalidPattern
from xump.operators import operator_names, register_operator

INFINITE = model.INFINITE


def test_rule_02_match_operators_on_fields(engine):
    queues(engine, "a")
    conditions = {
        "eq": match("eq", "x.y"), "prefix": match("prefix", "x."), "topic": match("topic", "x.*"),
        "reply": match("eq", "me", "reply_to"), "header": match("prefix", "E", "headers.region"),
        "both": match("topic", "#") & match("eq", "EU", "headers.region"), "other": match("eq", "z"),
    }
    for name, condition in conditions.items():
        engine.create_queue(name)
        engine.create_selector("a", when=condition, do=copy_to(name))
    engine.publish("a", "x.y", b"", {"region": "EU"}, reply_to="me")
    engine.publish("a", "x.y", b"", {"region": 5})
    copies = {name: engine.queues[name].ready for name in conditions}
    assert copies == {"eq": 2, "prefix": 2, "topic": 2, "reply": 1, "header": 1, "both": 1, "other": 0}


@pytest.mark.parametrize("pattern, address, matches", [
    ("#", "", True), ("*", "", False), ("#", "a.b", True), ("*", "a", True), ("*", "a.b", False), ("a.#", "a", True),
    ("a.*", "a", False), ("#.b", "b", True), ("#.b", "a.c.b", True), ("#.b.#", "a.b.c", True), ("a.*.b", "a..b", True),
    ("a.b", "a..b", False), ("*.*", "a.b", True), ("#.#", "", True), ("a.#.c", "a.b.b.c", True), ("a", "A", False),
])
def test_rule_02_topics(engine, pattern, address, matches):
    queues(engine, "a", "b")
    engine.create_selector("a", when=match("topic", pattern), do=copy_to("b"))
    engine.publish("a", address)
    assert engine.queues["b"].ready == matches


def test_rule_02_operators_that_a_program_registers(engine):
    if "suffix_of_rules" not in operator_names():
        register_operator("suffix_of_rules", lambda pattern, value: value.endswith(pattern))
    queues(engine, "a", "b")
    engine.create_selector("a", when=match("suffix_of_rules", ".jpg"), do=copy_to("b"))
    publish(engine, "a", "x.jpg", "x.png")
    assert held_in(engine, "b") == ["x.jpg"]
    with pytest.raises(InvalidPattern):
        match("no such operator", "x")


def test_rule_02_filters(engine):
    queues(engine, "a", "text", "table", "call")
    engine.create_selector("a", when=where("size > 100 AND sys.address LIKE 'j%'"), do=copy_to("text"))
    engine.create_selector("a", when=where({"region": ["EU", "US"]}), do=copy_to("table"))
    engine.create_selector("a", when=where(lambda message: message.body == b"yes"), do=copy_to("call"))
    engine.publish("a", "job", b"yes", {"size": 101, "region": "EU"})
    engine.publish("a", "job", b"no", {"size": 100, "region": "AU"})
    engine.publish("a", "other", b"no", {})
    assert [engine.queues[name].ready for name in ("text", "table", "call")] == [1, 1, 1]


def test_rule_02_a_callable_that_raises_counts_as_no_match(engine):
    queues(engine, "a", "b")
    selector = engine.create_selector("a", when=where(lambda message: 1 / 0), do=copy_to("b"))
    engine.create_selector("a", when=default, do=deliver("out"), credit=9)
    publish(engine, "a", "x", "y")
    assert take(engine) == ["x", "y"]
    assert selector_stats(engine, selector)["errors"] == 2


def test_rule_02_a_condition_is_evaluated_once_and_again_when_the_message_returned(engine):
    queues(engine, "a")
    seen = []
    selector = engine.create_selector("a", when=where(lambda message: seen.append(message.id) or True), do=deliver("out"))
    publish(engine, "a", "x", "y")
    assert seen == [1, 2]
    [delivery] = engine.take(1)
    selector.grant(1)
    selector.grant(1)
    assert seen == [1, 2]
    delivery.nack()
    assert seen == [1, 2, 1]


def test_rule_02_filters_are_evaluated_on_what_matched(engine):
    queues(engine, "a", "b")
    seen = []
    condition = match("eq", "x") & where(lambda message: seen.append(message.address) or True)
    engine.create_selector("a", when=condition, do=copy_to("b"))
    publish(engine, "a", "x", "y")
    assert seen == ["x"]


def test_rule_02_disabled_selectors_are_in_the_hit_set_but_take_nothing(engine):
    queues(engine, "a", "b")
    selector = engine.create_selector("a", when=match("eq", "x"), do=deliver("out"), credit=9, enabled=False)
    engine.create_selector("a", when=default, do=deliver("rest"), credit=9)
    publish(engine, "a", "x", "y")
    assert (take(engine), held_in(engine, "a", "ready")) == (["y"], ["x"])
    selector.enable()
    assert take(engine) == ["x"]


def test_decision_12_a_field_that_names_no_queue_does_not_match(engine):
    queues(engine, "a", "b", dead_letter=None)
    engine.create_selector("a", when=always, do=move_to(field("headers.to")), credit=9)
    for header in ({"to": "b"}, {"to": "missing"}, {"to": 5}, {"to": ""}, {}):
        engine.publish("a", "x", b"", header)
    assert engine.queues["b"].ready == 1
    assert queue_stats(engine, "a")["dropped"] == {"unroutable": 4}


def test_decision_12_a_field_names_any_destination(engine):
    queues(engine, "a")
    engine.create_selector("a", when=always, do=deliver(field("reply_to")), credit=9)
    engine.publish("a", "x", reply_to="alice")
    engine.publish("a", "y")
    assert [(d.destination, d.message.address) for d in engine.take(9)] == [("alice", "x")]
    assert queue_stats(engine, "a")["dropped"] == {"unroutable": 1}


@pytest.mark.parametrize("action", [deliver, lambda name: deliver(name, "b")])
def test_decision_12_a_name_has_as_many_bytes_as_an_address(engine, action):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=action(field("headers.to")), credit=9)
    for to in ("x" * 65534, "x" * 65535, "ä" * 32768, "x" * 70000):
        engine.publish("a", "", b"", {"to": to})
    assert queue_stats(engine, "a")["dropped"] == {"unroutable": 3}


def test_rule_03_copies_are_made_in_order_of_id_and_spend_no_credit(engine):
    queues(engine, "a", "b", "c")
    with engine.building():
        selectors = [engine.create_selector("a", when=always, do=copy_to(name), credit=0) for name in ("c", "b")]
        for name in ("b", "c"):
            engine.create_selector(name, when=always, do=deliver(name), credit=9)
    publish(engine, "a", "x")
    assert [d.destination for d in engine.take(9)] == ["c", "b"]
    assert [selector_stats(engine, s)["copied"] for s in selectors] == [1, 1]


def test_rule_03_two_paths_give_one_copy(engine):
    queues(engine, "a", "b", "c", "d")
    for source, target in ("ab", "ac", "bd", "cd"):
        engine.create_selector(source, when=always, do=copy_to(target))
    publish(engine, "a", "x", "y")
    assert held_in(engine, "d") == ["x", "y"]


def test_rule_03_copy_cycles_end_by_themselves(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=copy_to("b"))
    engine.create_selector("b", when=always, do=copy_to("a"))
    engine.create_selector("a", when=always, do=copy_to("a"))
    publish(engine, "a", "x")
    assert [queue_stats(engine, name)["entered"] for name in "ab"] == [1, 1]


def test_rule_03_a_queue_that_could_not_take_its_copy_gets_no_other(engine):
    queues(engine, "a", "b")
    queues(engine, "c", limit=0)
    selectors = [engine.create_selector(source, when=always, do=copy_to(target)) for source, target in ("ab", "ac", "bc")]
    publish(engine, "a", "x")
    assert [selector_stats(engine, s)["dropped"] for s in selectors] == [0, 1, 0]


def test_rule_03_a_trip_ends_with_the_run(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=copy_to("b"))
    back = engine.create_selector("b", when=always, do=move_to("a"), credit=0)
    publish(engine, "a", "x")
    back.grant(1)       # what waited in b starts a visited set of its own
    assert [queue_stats(engine, name)["entered"] for name in "ab"] == [2, 1]


def test_rule_03_the_trip_goes_with_a_move(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=move_to("b"), credit=INFINITE)
    engine.create_selector("b", when=always, do=copy_to("a"))
    publish(engine, "a", "x")
    assert queue_stats(engine, "a")["entered"] == 1


def test_rule_03_a_queue_made_while_a_trip_goes_on_has_not_been_visited(engine):
    queues(engine, "source", "middle")
    publish(engine, "source", "m")
    with engine.building():
        engine.create_selector("middle", when=match("eq", "never"), do=discard)
        engine.create_selector("source", when=always, do=copy_to("middle"), start="head")
        engine.delete_queue("source")       # the copy's visited set has it
        queues(engine, "one", "two")        # whatever the engine gives them that the source had
        for name in ("one", "two"):
            engine.create_selector("middle", when=always, do=copy_to(name))
    assert (held_in(engine, "one"), held_in(engine, "two")) == (["m"], ["m"])


def test_rule_03_the_trip_of_a_parked_message_goes_on_while_it_waits_for_room(engine):
    queues(engine, "q", "b")
    engine.create_queue("c", limit=1)
    copier = engine.create_selector("q", when=always, do=copy_to("b"), enabled=False)
    mover = engine.create_selector("q", when=always, do=move_to("c"), enabled=False)
    publish(engine, "q", "m")
    publish(engine, "c", "x")
    with engine.building():
        copier.enable()
        mover.enable()
        engine.create_selector("c", when=match("eq", "x"), do=discard)      # makes room after the copy was made
        engine.create_selector("c", when=match("eq", "m"), do=copy_to("b"))
    assert (held_in(engine, "b"), held_in(engine, "c")) == (["m"], [])
