"""The rules of routing, one small test for each sentence that can be seen from outside, run over both engines.

Named after what they show: `test_rule_04_...` is rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md,
`test_call_...` a call of `xump.Engine`.
"""

import itertools
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.model import engine as model
from xump.actions import bounce_to, copy_to, deliver, discard, field, move_to
from xump.conditions import always, default, match, overflow, where
from xump.errors import (
    Conflict, InvalidPattern, QueueFull, QueueNotFound, SelectorNotFound, StaleDelivery, TransactionError,
)
from xump.operators import operator_names, register_operator

INFINITE = model.INFINITE


def queues(engine, *names, **properties):
    return [engine.create_queue(name, **properties) for name in names]


def addresses(messages):
    return [message.address for message in messages]


def held_in(engine, name, state=None):
    """The addresses in a queue, oldest first."""
    return addresses(engine.queues[name].browse(state=state))


def take(engine, n=100, destination=None):
    """The addresses of what your program is given now; it keeps all of it."""
    return [delivery.message.address for delivery in engine.take(n, destination)]


def drain(engine, destination=None):
    """The same, acked one by one."""
    seen = []
    for delivery in engine.deliveries(destination):
        with delivery as message:
            seen.append(message.address)
    return seen


def publish(engine, name, *addresses, **message):
    return [engine.publish(name, address, **message) for address in addresses]


def name_of(thing):
    return getattr(thing, "name", thing)


def nothing_changes(engine):
    """A context: whatever is raised in it, the engine's state is as before."""
    return _Unchanged(engine)


class _Unchanged:
    def __init__(self, engine):
        self.engine = engine

    def state(self):
        held = {name: list(queue.browse()) for name, queue in self.engine.queues.items()}
        return self.engine.stats(), [[(m.id, m.address, m.timestamp) for m in held[name]] for name in sorted(held)]

    def __enter__(self):
        self.before = self.state()

    def __exit__(self, kind, error, traceback):
        assert self.state() == self.before


def queue_stats(engine, name):
    return engine.stats()["queues"][name]


def selector_stats(engine, selector):
    return engine.stats()["selectors"][selector.id]


# Rule 1: entry

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


# Rule 2: match, then filter

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


# Rule 3: all COPYs first

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


# Rule 4: one consuming action

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


def test_rule_04_round_robin_over_the_ready_ones(engine):
    queues(engine, "a")
    for name in "xyz":
        engine.create_selector("a", when=always, do=deliver(name), credit=9)
    publish(engine, "a", *"123456")
    assert [d.destination for d in engine.take(9)] == list("xyzxyz")


def test_rule_04_one_without_credit_keeps_its_place(engine):
    queues(engine, "a")
    selectors = {name: engine.create_selector("a", when=always, do=deliver(name), credit=9) for name in "xy"}
    starved = engine.create_selector("a", when=always, do=deliver("z"), credit=0)
    publish(engine, "a", *"123")
    starved.grant(2)
    publish(engine, "a", *"456")
    assert [d.destination for d in engine.take(9)] == list("xyxzyx")
    assert selectors["x"].outstanding == 3


def test_rule_04_only_one_takes_it(engine):
    queues(engine, "a", "b", "c")
    engine.create_selector("a", when=always, do=move_to("b"), credit=9)
    engine.create_selector("a", when=match("eq", "x"), do=move_to("c"), credit=9)
    publish(engine, "a", "x")
    assert engine.queues["b"].ready + engine.queues["c"].ready == 1


def test_rule_04_discard_needs_no_credit(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=discard, credit=0)
    publish(engine, "a", "x", "y")
    assert queue_stats(engine, "a")["settled"] == 2
    assert selector_stats(engine, selector)["served"] == 2


def test_rule_04_one_without_room_is_passed_over(engine):
    queues(engine, "a", "c")
    queues(engine, "b", limit=1)
    for name in "bc":
        engine.create_selector("a", when=always, do=move_to(name), credit=9)
    publish(engine, "a", *"1234")
    assert (held_in(engine, "b"), held_in(engine, "c")) == (["1"], ["2", "3", "4"])


# Rule 5: waiting

def test_rule_05_credit_for_green_takes_the_oldest_green_past_the_red(engine):
    queues(engine, "a")
    engine.create_selector("a", when=match("prefix", "red"), do=deliver("red"), credit=0)
    green = engine.create_selector("a", when=match("prefix", "green"), do=deliver("green"), credit=0)
    publish(engine, "a", "red1", "green1", "red2", "green2")
    green.grant(1)
    assert take(engine) == ["green1"]
    assert held_in(engine, "a", "ready") == ["red1", "red2", "green2"]


def test_rule_05_copies_are_made_once_while_the_message_waits(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=copy_to("b"))
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=0)
    publish(engine, "a", "x")
    assert held_in(engine, "b") == held_in(engine, "a") == ["x"]
    selector.grant(1)
    assert take(engine) == ["x"]
    assert held_in(engine, "b") == ["x"]


def test_rule_05_a_newer_selector_takes_what_waits_but_a_newer_copy_does_not(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=deliver("old"), credit=0)
    publish(engine, "a", "x", "y")
    engine.create_selector("a", when=always, do=copy_to("b"))
    engine.create_selector("a", when=match("eq", "y"), do=deliver("new"), credit=9)
    assert take(engine) == ["y"]
    assert held_in(engine, "b") == []


def test_rule_05_the_default_takes_only_what_was_routed_to_it(engine):
    queues(engine, "a")
    ordinary = engine.create_selector("a", when=match("eq", "x"), do=deliver("x"), credit=0)
    publish(engine, "a", "x")
    ordinary.delete()
    fallback = engine.create_selector("a", when=default, do=deliver("default"), credit=1)
    publish(engine, "a", "y", "z")
    assert take(engine) == ["y"]
    fallback.delete()
    assert [d.message.address for d in engine.take(9)] == []
    assert held_in(engine, "a", "ready") == ["x", "y", "z"]
    engine.create_selector("a", when=default, do=deliver("default"), credit=9)     # later ones take marked messages too
    assert take(engine) == ["y", "z"]
    engine.create_selector("a", when=always, do=deliver("all"), credit=9)
    assert take(engine) == ["x"]


def test_rule_05_an_ordinary_selector_takes_what_the_default_could_not(engine):
    queues(engine, "a")
    engine.create_selector("a", when=default, do=deliver("default"), credit=0)
    publish(engine, "a", "y")
    engine.create_selector("a", when=always, do=deliver("all"), credit=9)
    assert [d.destination for d in engine.take(9)] == ["all"]


def test_rule_05_between_queues_the_oldest_entry_first(engine):
    queues(engine, "a", "b", "c")
    with engine.building():
        engine.create_selector("b", when=always, do=move_to("c"), credit=9)
        engine.create_selector("a", when=always, do=move_to("c"), credit=9)
        publish(engine, "a", "1")
        publish(engine, "b", "2")
        publish(engine, "a", "3")
    assert held_in(engine, "c") == ["1", "2", "3"]


def test_rule_05_what_waits_goes_before_what_is_unrouted(engine):
    queues(engine, "a", "b", "c")
    engine.create_selector("a", when=match("eq", "red"), do=move_to("c"), credit=0)
    publish(engine, "a", "red")
    engine.queues["b"].hold()
    engine.create_selector("b", when=always, do=move_to("c"), credit=9)
    publish(engine, "b", "older")
    publish(engine, "a", "red")
    with engine.building():
        engine.selectors[1].grant(9)
        engine.queues["b"].release()
    assert held_in(engine, "c") == ["red", "red", "older"]


# Rule 6: nobody is responsible

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


# Rule 7: processed

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


# Rule 8: credit

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


# Rule 9: deleting a selector

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
        ("x", True, 2), ("y", True, 1), ("z", False, 1)]


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


# Rule 10: nack

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


# Rule 11: bounce and dead letters

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


# Rule 12: cycles

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


# Rule 13: a selector's start

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


# Rule 14: the end of queues

def test_rule_14_creating_a_queue_runs_the_graph(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=move_to(field("address")), credit=9)
    engine.create_selector("a", when=always, do=deliver("out"), credit=0)
    publish(engine, "a", "later", "b")
    assert held_in(engine, "a", "ready") == ["later"]
    queues(engine, "later")
    assert held_in(engine, "later") == ["later"]


def test_rule_14_auto_delete_with_the_last_selector_never_before_it_had_one(engine):
    queues(engine, "a", auto_delete=True)
    queues(engine, "b")
    publish(engine, "a", "x", "y")
    one = engine.create_selector("a", when=always, do=deliver("out"))
    two = engine.create_selector("a", when=overflow, do=discard)
    into = engine.create_selector("b", when=always, do=move_to("a"), credit=0)
    one.delete()
    assert "a" in engine.queues
    two.delete()
    assert "a" not in engine.queues
    assert into.id not in engine.selectors


def test_rule_14_deleting_a_queue_deletes_its_selectors_and_returns_what_came_from_elsewhere(engine):
    queues(engine, "a", "b", "c")
    named = engine.create_selector("a", when=match("eq", "x"), do=move_to("b"), credit=9)
    by_field = engine.create_selector("a", when=match("eq", "b"), do=move_to(field("address")), credit=9)
    engine.create_selector("b", when=always, do=move_to("c"), credit=1)
    publish(engine, "a", "x", "b")
    publish(engine, "b", "own")
    assert engine.delete_queue("b") is True
    assert list(engine.selectors) == [by_field.id]
    assert named.id not in engine.selectors
    assert (held_in(engine, "a", "ready"), held_in(engine, "c")) == (["x", "b"], [])
    assert selector_stats(engine, by_field)["returned"] == 1
    queues(engine, "b")
    assert held_in(engine, "b") == ["b"]


def test_rule_14_all_before_anything_is_routed_again(engine):
    queues(engine, "a", "b", "c")
    engine.create_selector("a", when=always, do=move_to("b"), credit=9)
    publish(engine, "a", "1", "2")
    engine.create_selector("a", when=always, do=deliver("out"), credit=9)
    engine.delete_queue("b")
    assert take(engine) == ["1", "2"]


def test_decision_37_auto_delete_cascades(engine):
    queues(engine, "a", "b", auto_delete=True)
    queues(engine, "root", "sink")
    engine.create_selector("root", when=always, do=move_to("a"), credit=9)
    engine.create_selector("a", when=always, do=move_to("b"), credit=9)
    engine.create_selector("b", when=always, do=move_to("sink"), credit=9)
    publish(engine, "root", "x")
    engine.delete_queue("sink")
    assert list(engine.queues) == ["root"]
    assert held_in(engine, "root", "ready") == ["x"]
    assert dict(engine.selectors) == {}


# Section 2: the calls

def test_call_create_queue_again(engine):
    queue = engine.create_queue("a", limit=5, dead_letter="dead")
    assert engine.create_queue("a", limit=5, dead_letter="dead") is queue
    for properties in ({}, {"limit": 6, "dead_letter": "dead"}, {"limit": 5}):
        with nothing_changes(engine), pytest.raises(Conflict):
            engine.create_queue("a", **properties)


def test_call_create_queue_names_queues(engine):
    queues(engine, "queue-2")
    assert [engine.create_queue().name for _ in range(2)] == ["queue-1", "queue-3"]
    engine.delete_queue("queue-1")
    assert engine.create_queue().name == "queue-4"


def test_call_create_selector_again(engine):
    queues(engine, "a", "b")
    arguments = {"when": match("eq", "x"), "do": move_to("b"), "credit": 5}
    selector = engine.create_selector("a", **arguments, name="s")
    selector.grant(3)
    selector.disable()
    assert engine.create_selector("a", **arguments, name="s") is selector       # decision 34
    with nothing_changes(engine), pytest.raises(Conflict):
        engine.create_selector("a", **(arguments | {"credit": 8}), name="s")
    assert engine.create_selector("a", **arguments).id != engine.create_selector("a", **arguments).id


def test_decision_101_equal_is_the_same(engine):
    queues(engine, "a", "b")
    at = datetime(2026, 3, 1, 9, tzinfo=UTC)
    number = type("Number", (int,), {"__repr__": lambda self: "many"})
    arguments = {"when": match("eq", "x") & where({"n": 1, "tier": ["gold", "silver"]}), "do": copy_to("b")}
    selector = engine.create_selector("a", **arguments, credit=3, start=at, name="s")
    arguments["when"] = match("eq", "x") & where({"tier": ["silver", "gold"], "n": 1})
    there = at.astimezone(timezone(timedelta(hours=2)))
    assert engine.create_selector("a", **arguments, credit=number(3), start=there, name="s") is selector
    arguments["when"] = match("eq", "x") & where({"tier": ["silver", "gold"], "n": True})
    with nothing_changes(engine), pytest.raises(Conflict):
        engine.create_selector("a", **arguments, credit=3, start=at, name="s")


def test_call_create_selector_refuses(engine):
    queues(engine, "a", "b")
    for source, action in (("missing", discard), ("a", move_to("missing")), ("a", copy_to("missing"))):
        with nothing_changes(engine), pytest.raises(QueueNotFound, match="missing"):
            engine.create_selector(source, when=always, do=action)
    engine.create_selector("a", when=default, do=discard)
    with nothing_changes(engine), pytest.raises(Conflict):
        engine.create_selector("a", when=default, do=move_to("b"))
    second = engine.create_selector("a", when=default, do=move_to("b"), enabled=False)
    with nothing_changes(engine), pytest.raises(Conflict):
        second.enable()
    with pytest.raises(ValueError):
        engine.create_selector("a", when=always, do=discard, credit=-1)
    assert [s.id for s in engine.selectors.values()] == [1, 2]


def test_call_mappings_are_read_only(engine):
    [queue] = queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=discard, name="s")
    assert (engine.queues["a"], engine.selectors[1]) == (queue, selector)
    assert (selector.name, name_of(selector.source), selector.when, selector.do) == ("s", "a", always, discard)
    for mapping in (engine.queues, engine.selectors):
        with pytest.raises(TypeError):
            mapping["x"] = None


def test_call_queue_attributes(engine):
    queue = engine.create_queue("a", limit=3, history_limit=4, auto_delete=True, dead_letter="d", delivery_limit=5)
    assert (queue.name, queue.limit, queue.history_limit, queue.auto_delete) == ("a", 3, 4, True)
    assert (queue.dead_letter, queue.delivery_limit, queue.held) == ("d", 5, False)
    assert queue.publish("x", b"body", {"n": 1}, reply_to="r", message_id="m") == 1
    assert (queue.ready, queue.outstanding, queue.history, queue.durable_id) == (1, 0, 0, 0)


def test_call_message_attributes(engine, clock):
    queues(engine, "a")
    headers = {"n": 1, "f": 0.5, "b": True, "s": "text", "y": b"bytes"}
    engine.publish("a", "x", b"body", headers, reply_to="r", message_id="m")
    message = engine.queues["a"].fetch(1)
    assert (message.address, message.body, message.reply_to, message.message_id) == ("x", b"body", "r", "m")
    assert (message.destination, message.id, message.timestamp, message.hops) == (None, 1, clock.now, 0)
    assert dict(message.headers) == headers


def test_call_timestamps_never_descend(engine, clock):
    queues(engine, "a")
    start = clock.now
    publish(engine, "a", "1")
    clock.tick(-5)
    publish(engine, "a", "2")
    clock.tick(6)
    publish(engine, "a", "3")
    assert [m.timestamp for m in engine.queues["a"].browse()] == [start, start, start + 1_000_000_000]


def test_call_building_routes_at_its_end_also_when_it_raises(engine):
    queues(engine, "a")
    with pytest.raises(ZeroDivisionError), engine.building():
        with engine.building():
            publish(engine, "a", "x")
            engine.create_selector("a", when=always, do=deliver("out"))
        assert take(engine) == []
        raise ZeroDivisionError
    assert take(engine) == ["x"]


def test_call_deliver_with_a_queue_stamps_the_destination(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=deliver("alice", "b"), credit=9)
    engine.create_selector("b", when=always, do=deliver(field("destination")), credit=9)
    publish(engine, "a", "x")
    [delivery] = engine.take(9)
    assert (delivery.destination, delivery.message.destination, delivery.message.hops) == ("alice", "alice", 1)


def test_call_delivery_attributes(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=9)
    publish(engine, "a", "x", "y")
    delivery = engine.take(2)[1]
    assert (delivery.destination, delivery.id, delivery.delivery_count, delivery.redelivered) == ("out", 2, 1, False)
    assert (name_of(delivery.queue), getattr(delivery.selector, "id", delivery.selector)) == ("a", selector.id)


def test_call_take_by_destination_in_order_of_delivery(engine):
    queues(engine, "a")
    engine.create_selector("a", when=match("prefix", "x"), do=deliver("x"), credit=9)
    engine.create_selector("a", when=match("prefix", "y"), do=deliver("y"), credit=9)
    publish(engine, "a", "x1", "y1", "x2", "y2")
    assert take(engine, 1, "y") == ["y1"]
    assert take(engine, 9) == ["x1", "x2", "y2"]
    assert take(engine, 9, "nobody") == []


def test_call_delivery_is_a_context_manager(engine):
    queues(engine, "a")
    engine.create_selector("a", when=always, do=deliver("out"), credit=9)
    publish(engine, "a", "x", "y")
    first, second = engine.take(2)
    with first as message:
        assert message.address == "x"
    with pytest.raises(ZeroDivisionError), second:
        raise ZeroDivisionError
    assert held_in(engine, "a") == ["y"]
    [third] = engine.take(2)
    with third:
        third.ack()     # answered already
    assert queue_stats(engine, "a")["settled"] == 2


def test_call_ack_twice_is_stale_and_changes_nothing(engine):
    queues(engine, "a")
    engine.create_selector("a", when=always, do=deliver("out"), credit=9)
    publish(engine, "a", "x", "y")
    first, second = engine.take(2)
    first.ack()
    for act in (first.ack, first.nack, first.reject, lambda: engine.ack([second, first]), lambda: engine.ack([second, second])):
        with nothing_changes(engine), pytest.raises(StaleDelivery):
            act()
    engine.ack([second])
    assert queue_stats(engine, "a")["settled"] == 2


def test_call_publish_many_enters_all_then_runs(engine):
    queues(engine, "a", "b", limit=3)
    engine.create_selector("a", when=always, do=move_to("b"), credit=INFINITE)
    assert engine.publish_many("a", [("x", b"1", {"n": 1}), ("y",)]) == range(1, 3)
    entered = [(m.address, m.body, dict(m.headers)) for m in engine.queues["b"].browse()]
    assert entered == [("x", b"1", {"n": 1}), ("y", b"", {})]
    with nothing_changes(engine), pytest.raises(QueueFull):
        engine.publish_many("a", [("x",)] * 4)      # the run would have made room
    assert len(engine.publish_many("a", [])) == 0


def test_decision_100_nothing_goes_to_no_queue_no_more_than_something(make):
    engine = make(dead_letter="dead")
    with nothing_changes(engine), pytest.raises(QueueNotFound, match="nope"):
        engine.publish_many("nope", [])
    queues(engine, "dead")
    assert len(engine.publish_many("nope", iter([]))) == 0


def test_call_publish_many_counts_overflow_and_dead_letter_in(engine):
    queues(engine, "a", limit=1, dead_letter="dead")
    queues(engine, "dead", limit=1)
    engine.create_selector("a", when=overflow, do=deliver("out"), credit=1)
    with nothing_changes(engine), pytest.raises(QueueFull):
        engine.publish_many("a", [(address,) for address in "1234"])
    assert engine.publish_many("a", [(address,) for address in "123"]) == range(1, 3)
    assert (held_in(engine, "a", "ready"), take(engine), held_in(engine, "dead")) == (["1"], ["2"], ["3"])


def test_call_transaction(engine):
    queues(engine, "a", "b", limit=1)
    engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x")
    [delivery] = engine.take(1)
    with engine.transaction() as tx:
        tx.publish("a", "y")
        tx.ack(delivery)
        tx.publish("b", "z")
        assert (held_in(engine, "a"), held_in(engine, "b")) == (["x"], [])
    assert tx.ids == [2, 1]
    assert (take(engine), held_in(engine, "b")) == (["y"], ["z"])
    with pytest.raises(TransactionError):
        tx.publish("a", "late")


def test_call_transaction_does_all_or_nothing(engine):
    queues(engine, "a", "b", limit=1)
    engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    publish(engine, "a", "x", "y")
    first, second = engine.take(2)

    def raises(error, *acked, publishes=()):
        with nothing_changes(engine), pytest.raises(error), engine.transaction() as tx:
            for address in publishes:
                tx.publish("b", address)
            for delivery in acked:
                tx.ack(delivery)
            if error is ZeroDivisionError:
                raise ZeroDivisionError

    raises(ZeroDivisionError, first, publishes=["z"])
    raises(QueueFull, first, publishes=["z", "z"])
    raises(StaleDelivery, first, first, publishes=["z"])
    second.ack()
    raises(StaleDelivery, first, second, publishes=["z"])
    with engine.transaction() as tx:
        tx.publish("b", "z")
        tx.ack([first])
    assert (engine.queues["a"].outstanding, held_in(engine, "b")) == (0, ["z"])


def test_call_browse(engine, clock):
    [queue] = queues(engine, "a", history_limit=None)
    engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    for address in "12345":
        publish(engine, "a", address)
        clock.tick()
    engine.take(1)[0].ack()
    queue.hold()
    publish(engine, "a", "6")
    moment = datetime.fromtimestamp(queue.fetch(3).timestamp / 1e9, UTC)

    def browse(*arguments, **options):
        return "".join(addresses(queue.browse(*arguments, **options)))

    assert browse() == browse("head") == "123456"
    assert (browse("current"), browse(4), browse(moment)) == ("6", "456", "3456")
    assert (browse(state="history"), browse(state="outstanding"), browse(state="ready")) == ("1", "23", "456")
    assert (browse(limit=2), browse(limit=0)) == ("12", "")
    assert (browse(reverse=True), browse(3, reverse=True, limit=2)) == ("654321", "32")
    assert browse(where="sys.address IN ('2', '5')") == browse(where=where("sys.address IN ('2', '5')")) == "25"
    assert [message.id for message in queue.browse(4)] == [4, 5, 6]
    for arguments, options in ((("tail",), {}), ((datetime(2020, 1, 1),), {}), ((), {"state": "gone"})):
        with pytest.raises(ValueError):
            list(queue.browse(*arguments, **options))


def test_call_fetch_delete_purge(engine):
    [queue] = queues(engine, "a", history_limit=1)
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    publish(engine, "a", "1", "2", "3", "4")
    delivery, other = engine.take(2)
    delivery.ack()
    assert (queue.fetch(1).address, queue.fetch(9)) == ("1", None)
    assert (queue.delete(9), queue.delete(1), queue.fetch(1)) == (False, True, None)
    assert queue.delete(2) is True      # outstanding: recalled first
    with pytest.raises(StaleDelivery):
        other.ack()
    assert selector_stats(engine, selector)["returned"] == 1
    assert held_in(engine, "a", "outstanding") == ["3", "4"]
    publish(engine, "a", "5")
    assert queue.purge() == 1
    assert queue_stats(engine, "a")["deleted"] == 3


def test_call_delete_of_an_outstanding_message_recalls_and_pays_the_supplier(engine):
    queues(engine, "a", "b", "c")
    selectors = [engine.create_selector(source, when=always, do=move_to(target), credit=1) for source, target in ("ab", "bc")]
    publish(engine, "a", "x")
    assert engine.queues["b"].delete(1)
    assert [held_in(engine, name) for name in "abc"] == [[], [], []]
    assert [(s.available, selector_stats(engine, s)["paid"], selector_stats(engine, s)["returned"]) for s in selectors] == [
        (1, 1, 0), (1, 0, 1)]


def test_call_stats(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    publish(engine, "a", "x", "y", "z")
    engine.take(1)[0].ack()
    of_queue = {"entered": 3, "ready": 0, "outstanding": 2, "history": 0, "settled": 1, "dropped": {}, "deleted": 0,
                "dead_lettered": {}}
    of_selector = {"credit": 2, "available": 0, "outstanding": 2, "served": 3, "copied": 0, "dropped": 0, "paid": 1,
                   "returned": 0, "errors": 0, "blocked": False}
    assert of_queue.items() <= queue_stats(engine, "a").items()      # there may be more of them
    assert of_selector.items() <= selector_stats(engine, selector).items()


def test_call_sequence_is_deterministic(make):
    def play():
        engine = make(hop_limit=5)
        queues(engine, "a", "b", limit=2)
        queues(engine, "c", limit=1, dead_letter="a")
        for (source, target), credit in zip(itertools.permutations("abc", 2), (1, 2, INFINITE, 3, 1, 2), strict=True):
            engine.create_selector(source, when=always, do=move_to(target), credit=credit)
        for i in range(9):
            try:
                engine.publish("abc"[i % 3], str(i))
            except QueueFull:
                pass
        return engine.stats(), [held_in(engine, name) for name in "abc"]

    assert play() == play()


def test_rule_4_who_stands_in_a_line_may_take_what_comes_back(engine):
    """Deleting a selector brings its message back, and makes room for another one, which was served longest ago and waits for
    it."""
    queues(engine, "q0")
    engine.create_selector("q0", when=always, do=discard)
    queues(engine, "q1", limit=1, dead_letter="q0")
    queues(engine, "q2", "q3", limit=1)
    bounce = engine.create_selector("q1", when=always, do=bounce_to(field("reply_to")), credit=1)
    inner = engine.create_selector("q1", when=always, do=move_to("q1"))
    engine.publish("q3", reply_to="q0")
    engine.publish("q1", reply_to="q3")
    engine.create_selector("q3", when=always, do=move_to("q1"))
    waits = engine.create_selector("q1", when=always, do=move_to("q2"), credit=2)
    engine.publish("q1")
    assert waits.blocked
    engine.delete_selector(inner)
    assert (bounce.available, waits.blocked) == (1, True)
    assert [message.reply_to for message in engine.queues["q2"].browse()] == ["q3"]
    engine.check()


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


def test_rule_04_a_selector_that_waits_for_room_takes_its_turn_beside_selectors_whose_target_a_field_names(engine):
    engine.create_queue("b")
    engine.create_queue("d", limit=1)
    dropper = engine.create_selector("b", when=always, do=discard)
    engine.create_selector("b", when=always, do=move_to(field("address")), credit=9)
    engine.create_selector("d", when=overflow, do=move_to(field("address")), credit=9)
    engine.publish("b", "b")
    mover = engine.create_selector("b", when=always, do=move_to("d"), credit=9)
    engine.publish("d", "")
    engine.publish("b", "")         # the mover is first in the waiting list of d
    engine.publish("b", "b")        # has no room in d, but its overflow selector has
    served = {id: selector["served"] for id, selector in engine.stats()["selectors"].items()}
    assert (served[mover.id], served[dropper.id]) == (1, 3)
