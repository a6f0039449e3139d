"""Rules 4 and 5: one consuming action; waiting, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""



from tests.route.steps import held_in, publish, queue_stats, queues, selector_stats, take
from xump.actions import bounce_to, copy_to, deliver, discard, field, move_to
from xump.conditions import always, default, match, overflow


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
