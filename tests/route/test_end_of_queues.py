"""Rule 14: the end of queues, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""



from tests.route.steps import held_in, publish, queues, selector_stats, take
from xump.actions import deliver, discard, field, move_to
from xump.conditions import always, match, overflow


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


def test_a_waiting_list_outlives_the_queue_whose_message_it_was_about(engine):
    """What it remembers of a queue that goes by priority is not looked at any more. (With the address sanitizer, a look is an
    error.)"""
    engine.create_queue("first", priority=5)
    engine.create_queue("full", limit=1)
    engine.create_selector("first", when=always, do=move_to("full"), credit=5)
    engine.publish_many("first", [("a",), ("b",)])
    assert engine.queues["full"].ready == 1 and engine.queues["first"].ready == 1
    engine.delete_queue("first")
    engine.check()
    engine.create_queue("second")
    engine.create_selector("second", when=always, do=move_to("full"), credit=5)
    engine.publish_many("second", [("c",), ("d",), ("e",)])
    engine.check()
    engine.queues["full"].purge()
    engine.check()
    engine.delete_queue("full")
    engine.check()
    assert engine.queues["second"].ready == 2
