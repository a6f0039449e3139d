"""Transit queues: what comes goes on at once. Each test is one sentence of docs/decisions.md, whose number it has."""

import pytest

from tests.rules.seen import addresses, reasons, stats, taken, worker
from xump import INFINITE, always, bounce_to, copy_to, default, deliver, discard, field, match, move_to, overflow
from xump.errors import Conflict, QueueNotFound


@pytest.fixture
def through(engine):
    """`x` is a transit queue, whose selectors copy `a` to queue `a` and `b` to queue `b`."""
    engine.create_queue("x", transit=True)
    for name in "ab":
        engine.create_queue(name)
        engine.create_selector("x", when=match("eq", name), do=copy_to(name))
    return engine


def gone(engine, name="x"):
    """Of all that came, nothing is there: how many went on, and how many were dropped."""
    counts = stats(engine, name)
    assert addresses(engine, name) == [] and counts["entered"] == counts["settled"] + sum(counts["dropped"].values())
    return counts["settled"], sum(counts["dropped"].values())


# ---- 171: what it is

def test_171_what_is_published_goes_on_and_has_no_id(through):
    assert through.publish("x", "a") == 0 and list(through.publish_many("x", [("b",), ("a",)])) == []
    assert addresses(through, "a") == ["a", "a"] and addresses(through, "b") == ["b"] and gone(through) == (3, 0)


def test_171_a_call_has_its_targets_before_its_next_message(through):
    through.create_selector("x", when=always, do=copy_to("b"))
    through.publish_many("x", [("a",), ("b",), ("c",)])
    assert addresses(through, "b") == ["a", "b", "c"] and addresses(through, "a") == ["a"]
    assert [message.hops for message in through.queues["b"].browse()] == [1, 1, 1]


def test_171_what_leads_nowhere_is_dropped_and_counted(through):
    assert through.publish("x", "z") == 0
    assert gone(through) == (0, 1) and stats(through, "x")["dropped"] == {"unroutable": 1}


def test_171_without_a_selector_everything_leads_nowhere(engine):
    engine.create_queue("x", transit=True)
    engine.publish("x")
    assert gone(engine) == (0, 1)


def test_171_the_default_has_what_no_selector_matches(through):
    through.create_queue("rest")
    through.create_selector("x", when=default, do=copy_to("rest"))
    through.publish_many("x", [("a",), ("z",)])
    assert addresses(through, "rest") == ["z"] and addresses(through, "a") == ["a"] and gone(through) == (2, 0)


def test_171_then_the_dead_letter(engine):
    engine.create_queue("x", transit=True, dead_letter="dead")
    engine.create_queue("dead")
    engine.publish("x", "z")
    assert reasons(engine, "dead") == ["unroutable"] and stats(engine, "x")["dead_lettered"] == {"unroutable": 1}
    assert gone(engine) == (1, 0)


def test_171_it_keeps_nothing_that_a_store_or_a_limit_would_be_for(engine_of):
    engine = engine_of()
    for wrong in ({"limit": 5}, {"history_limit": 1}, {"history_limit": None}, {"delivery_limit": 2}, {"retry_delay": 1},
                  {"ttl": 5}, {"priority": 3}, {"group": field("address")}, {"dedup": 5}, {"dedup_limit": 5}, {"limit_bytes": 9},
                  {"when_full": "drop_oldest"}, {"unmatched": "keep"}):
        with pytest.raises(ValueError):
            engine.create_queue("x", transit=True, **wrong)
    assert list(engine.queues) == []
    engine.create_queue("x", transit=True, auto_delete=True, dead_letter="dead")
    with pytest.raises(Conflict):
        engine.create_queue("x", auto_delete=True, dead_letter="dead")


# ---- 172: its selectors

@pytest.mark.parametrize("do", [move_to("a"), bounce_to("a"), deliver("d"), deliver("d", "a")])
def test_172_its_selectors_copy_or_discard(through, do):
    with pytest.raises(ValueError):
        through.create_selector("x", when=always, do=do)
    with pytest.raises(ValueError):
        through.create_selector("x", when=overflow, do=discard)


@pytest.mark.parametrize("start", ["tail", "head", 1])
def test_172_they_start_with_what_comes(through, start):
    with pytest.raises(ValueError):
        through.create_selector("x", when=always, do=copy_to("a"), start=start)


def test_172_discard_has_what_it_matches_after_the_copies(through):
    first, second = [through.create_selector("x", when=match("prefix", ""), do=discard) for _ in range(2)]
    through.publish_many("x", [("a",), ("z",), ("z",)])
    assert addresses(through, "a") == ["a"] and gone(through) == (3, 0)
    assert [through.stats()["selectors"][selector.id]["served"] for selector in (first, second)] == [2, 1]


def test_172_a_disabled_selector_is_as_if_it_were_not_there(through):
    rest = through.create_queue("rest")
    through.create_selector("x", when=default, do=copy_to(rest.name))
    through.selectors[1].disable()
    through.publish("x", "a")
    assert addresses(through, "a") == [] and addresses(through, "rest") == ["a"]
    through.selectors[1].enable()
    through.publish("x", "a")
    assert addresses(through, "a") == ["a"]


def test_172_so_is_one_whose_field_names_no_queue(engine):
    engine.create_queue("x", transit=True)
    engine.create_selector("x", when=always, do=copy_to(field("address")))
    engine.publish("x", "later")
    engine.create_queue("later")
    engine.publish("x", "later")
    assert addresses(engine, "later") == ["later"] and gone(engine) == (1, 1)


def test_172_auto_delete_looks_at_all_selectors_but_the_default(engine):
    engine.create_queue("a")
    engine.create_queue("x", transit=True, auto_delete=True)
    engine.create_selector("x", when=default, do=copy_to("a")).delete()
    engine.create_selector("x", when=default, do=copy_to("a"))
    assert "x" in engine.queues
    bindings = [engine.create_selector("x", when=match("eq", name), do=copy_to("a")) for name in "ab"]
    bindings[0].delete()
    assert "x" in engine.queues
    bindings[1].delete()
    assert list(engine.queues) == ["a"] and list(engine.selectors) == []


# ---- 173: how messages come there

def test_173_copies_go_through_several_and_come_once_to_each_queue(engine):
    for name in "xyz":
        engine.create_queue(name, transit=True)
    engine.create_queue("a")
    for source, target in ("xy", "xz", "ya", "za", "zx", "yx"):
        engine.create_selector(source, when=always, do=copy_to(target))
    engine.publish("x", "m")
    assert addresses(engine, "a") == ["m"] and [gone(engine, name) for name in "xyz"] == [(1, 0)] * 3


def test_173_a_move_into_it_is_paid_when_it_has_gone_on(through):
    through.create_queue("jobs", history_limit=None)
    mover = through.create_selector("jobs", when=always, do=move_to("x"), credit=1)
    through.publish_many("jobs", [("a",), ("b",), ("z",)])
    assert (addresses(through, "a"), addresses(through, "b"), gone(through)) == (["a"], ["b"], (2, 1))
    assert (mover.available, through.queues["jobs"].history) == (1, 3)


def test_173_so_is_one_that_is_handed_over(through):
    through.create_queue("jobs")
    through.create_selector("jobs", when=always, do=bounce_to("x"), credit=INFINITE)
    through.publish("jobs", "nowhere", reply_to="a")
    assert addresses(through, "a") == ["a"] and gone(through, "jobs") == (1, 0)


def test_173_a_dead_letter_goes_on_in_the_same_run(through):
    through.create_queue("jobs", dead_letter="x")
    worker(through, "jobs")
    through.publish_many("jobs", [("a",), ("z",)])
    for delivery in through.take(2):
        delivery.reject()
    assert reasons(through, "a") == ["rejected"] and gone(through) == (1, 1)


def test_173_nothing_passes_a_dead_letter_that_came_back(engine):
    """`y` overflows, and comes back to `x`. So `z`, published with it, waits for its turn; then there is room."""
    engine.create_queue("x", transit=True)
    engine.create_queue("a", limit=2, dead_letter="x", history_limit=2)
    engine.create_queue("gone", transit=True)
    engine.create_selector("x", when=always, do=copy_to("a"))
    engine.create_selector("a", when=default, do=copy_to("gone"))
    engine.publish_many("x", [(letter,) for letter in "wxyz"])
    assert stats(engine, "a")["dead_lettered"] == {"overflow": 1} and addresses(engine, "a", "history")[-1:] == ["z"]


def test_173_what_was_dead_lettered_and_leads_nowhere_is_not_dead_lettered_again(engine):
    engine.create_queue("jobs", dead_letter="x")
    engine.create_queue("x", transit=True, dead_letter="dead")
    engine.create_queue("dead")
    worker(engine, "jobs")
    engine.publish("jobs", "z")
    engine.take(1)[0].reject()
    assert addresses(engine, "dead") == [] and gone(engine) == (0, 1)


def test_173_held_it_keeps_what_comes(through):
    through.queues["x"].hold()
    assert through.publish("x", "a") == 0 and through.queues["x"].ready == 1
    through.publish("x", "z")
    through.queues["x"].release()
    assert addresses(through, "a") == ["a"] and gone(through) == (1, 1)      # what waited is not kept either


def test_173_in_a_building_block_too(engine):
    with engine.building():
        x = engine.create_queue("x", transit=True)
        engine.publish("x", "a")
        engine.create_queue("a")
        assert x.ready == 1
        engine.create_selector("x", when=match("eq", "a"), do=copy_to("a"))
    assert addresses(engine, "a") == ["a"] and gone(engine) == (1, 0)


def test_173_in_a_transaction_it_goes_on_behind_the_rest(through):
    through.create_queue("small", limit=1)
    through.create_selector("x", when=match("eq", "s"), do=copy_to("small"))
    with through.transaction() as tx:
        tx.publish("x", "s")
        tx.publish("small", "mine")
    assert tx.ids == [0, 1] and addresses(through, "small") == ["mine"]


# ---- 174: time

def test_174_what_it_has_cannot_be_delayed(through, clock):
    with pytest.raises(ValueError):
        through.publish("x", "a", delay=1)
    with pytest.raises(ValueError):
        through.publish_many("x", [("a",)], at=clock() + 1)
    with pytest.raises(ValueError), through.transaction() as tx:
        tx.publish("a", "first")
        tx.publish("x", "a", delay=1)
    assert addresses(through, "a") == [] and gone(through) == (0, 0)
    with pytest.raises(QueueNotFound), through.transaction() as tx:     # of several errors the first one
        tx.publish("missing", "a")
        tx.publish("x", "a", delay=1)
    with pytest.raises(ValueError, match="keeps nothing"), through.transaction() as tx:
        tx.publish("x", "a", delay=1)
        tx.publish("missing", "a")
    through.publish("x", "a", delay=0)
    assert taken(through) == [] and addresses(through, "a") == ["a"]


def test_174_expiry_and_priority_travel_with_the_copies(through, clock):
    through.publish("x", "a", ttl=5, priority=7)
    [message] = through.queues["a"].browse()
    assert message.expires == clock() + 5_000_000_000 and message.priority == 7


def test_174_what_is_late_goes_nowhere_else(through, clock):
    through.publish("x", "a", expires=clock() - 1)
    assert addresses(through, "a") == [] and stats(through, "x")["dropped"] == {"expired": 1} and gone(through) == (0, 1)


def test_171_a_nack_with_a_delay_returns_the_message_at_once(engine):
    """It waits there for nothing, not for its time either."""
    queue = engine.create_queue("x", transit=True)
    queue.hold()
    queue.publish("one")
    engine.get("x").nack(delay=5.0)
    assert (queue.ready, queue.delayed, engine.get("x").delivery_count) == (1, 0, 2)
    engine.check()
