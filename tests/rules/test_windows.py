"""Rules about windows that several selectors share."""

import pytest

from tests.rules.seen import addresses, stats, taken
from xump import INFINITE, always, copy_to, default, deliver, discard, match, move_to, overflow
from xump.errors import Conflict, WindowNotFound


def reader(engine, name, credit=10, **options):
    return engine.create_selector(name, when=always, do=deliver(name), credit=credit, **options)


def readers(engine, *names, credit=1, **options):
    """A queue and a selector each, that share a window."""
    window = engine.create_window(credit)
    for name in names:
        engine.create_queue(name)
        reader(engine, name, window=window, **options)
    return window


def fill(engine, name, *given):
    for address in given:
        engine.publish(name, address)


def gauges(window):
    return window.credit, window.available, window.outstanding


def test_195_together_they_take_what_the_window_allows(engine):
    window = readers(engine, "a", "b", credit=3)
    fill(engine, "a", "a1", "a2")
    fill(engine, "b", "b1", "b2")
    assert taken(engine) == ["a1", "a2", "b1"] and gauges(window) == (3, 0, 3)
    assert addresses(engine, "b", "ready") == ["b2"] and engine.selectors[2].available == 9 and engine.selectors[2].blocked
    assert engine.stats()["windows"] == {window.name: {"credit": 3, "available": 0, "outstanding": 3, "selectors": 2}}


def test_195_each_has_its_own_credit_besides(engine):
    window = engine.create_window(3)
    engine.create_queue("q")
    reader(engine, "q", 1, window=window)
    engine.create_selector("q", when=always, do=deliver("other"), credit=1, window=window)
    fill(engine, "q", *"abcd")
    assert [d.destination for d in engine.take(9)] == ["q", "other"] and gauges(window) == (3, 1, 2)
    assert not engine.selectors[1].blocked


def test_195_an_empty_window_is_stood_in_line_for(engine):
    readers(engine, "a", "b", "c")
    for name in "abc":
        fill(engine, name, name + "1", name + "2")
    order, delivery = [], engine.take(1)
    while delivery:
        order.append(delivery[0].message.address)
        delivery[0].ack()
        delivery = engine.take(1)
    assert order == ["a1", "a2", "b1", "c1", "b2", "c2"]       # a came first into the line, for its second message


def test_195_a_higher_rank_stands_before_the_others(engine):
    window = readers(engine, "a", "b")
    engine.create_queue("c")
    reader(engine, "c", window=window, rank=1)
    for name in "abc":
        fill(engine, name, name + "1", name + "2")
    order = []
    while delivery := engine.take(1):
        order.append(delivery[0].message.address)
        delivery[0].ack()
    assert order == ["a1", "c1", "c2", "a2", "b1", "b2"]


def test_195_one_that_has_nothing_to_take_any_more_holds_up_nobody(engine):
    readers(engine, "a", "b", "c")
    for name in "abc":
        fill(engine, name, name + "1", name + "2")
    [delivery] = engine.take(1)
    engine.queues["a"].purge()
    engine.selectors[2].disable()
    delivery.ack()
    assert taken(engine) == ["c1"]


def test_195_another_selector_takes_what_the_window_does_not_allow(engine):
    readers(engine, "a")
    engine.create_selector("a", when=always, do=deliver("free"), credit=5)
    fill(engine, "a", *"wxyz")
    assert [(d.destination, d.message.address) for d in engine.take(9)] == [
        ("a", "w"), ("free", "x"), ("free", "y"), ("free", "z")]


@pytest.mark.parametrize("answer", ["ack", "nack", "reject"])
def test_195_every_answer_frees_it(engine, answer):
    readers(engine, "a", "b")
    fill(engine, "a", "a1")
    fill(engine, "b", "b1")
    [delivery] = engine.take(1)
    engine.selectors[1].disable()
    getattr(delivery, answer)()
    assert taken(engine) == ["b1"]


def test_195_so_do_deadlines_expiry_and_deletion(engine, clock):
    window = engine.create_window(1)
    for name in ("a", "b"):
        engine.create_queue(name)
    reader(engine, "a", window=window, ack_timeout=5)
    reader(engine, "b", window=window)
    fill(engine, "a", "a1")
    engine.publish("b", "b1", ttl=100)
    engine.take(1)
    engine.selectors[1].disable()
    clock.tick(6)
    engine.tick()
    assert stats(engine, "b")["outstanding"] == 1      # offered, and not taken
    fill(engine, "b", "b2")
    clock.tick(100)
    assert taken(engine) == ["b2"] and gauges(window) == (1, 0, 1)
    fill(engine, "b", "b3")
    engine.queues["b"].delete(2)
    assert taken(engine) == ["b3"]


def test_195_a_window_that_is_made_smaller_waits(engine):
    window = readers(engine, "a", credit=3)
    fill(engine, "a", *"vwxyz")
    first, second, third = engine.take(9)
    window.resize(1)
    assert gauges(window) == (1, 0, 3)
    first.ack()
    second.ack()
    assert taken(engine) == [] and gauges(window) == (1, 0, 1)
    third.ack()
    assert taken(engine) == ["y"]
    window.resize(2)
    assert taken(engine) == ["z"] and gauges(window) == (2, 0, 2)


def test_195_a_window_of_0_takes_nothing_until_it_grows(engine):
    window = readers(engine, "a", "b", credit=0)
    fill(engine, "a", "a1")
    fill(engine, "b", "b1")
    assert taken(engine) == []
    window.resize(2)
    assert taken(engine) == ["a1", "b1"]


def test_195_a_selector_that_is_deleted_leaves_it(engine):
    window = readers(engine, "a", "b", credit=2)
    fill(engine, "a", "a1", "a2")
    fill(engine, "b", "b1", "b2")
    kept, = engine.take(1)
    engine.selectors[1].delete(recall=False)
    assert gauges(window) == (2, 0, 2) and taken(engine) == ["b1", "b2"]
    kept.ack()
    engine.selectors[2].delete()
    assert gauges(window) == (2, 2, 0) and stats(engine, "b")["ready"] == 2


def test_195_ahead_and_the_window(engine):
    window = readers(engine, "a", "b", credit=3, ahead=1)
    fill(engine, "a", "a1", "a2")
    fill(engine, "b", "b1", "b2")
    assert gauges(window) == (3, 1, 2)
    assert taken(engine) == ["a1", "b1", "a2"]


def test_195_in_a_queue_by_priority_and_in_a_held_one(engine):
    window = engine.create_window(1)
    engine.create_queue("a", priority=5)
    engine.create_queue("b")
    reader(engine, "a", window=window)
    reader(engine, "b", window=window)
    fill(engine, "b", "b1", "b2")
    fill(engine, "a", "low")
    engine.publish("a", "high", priority=3)
    engine.queues["b"].hold()
    [delivery] = engine.take(1)
    delivery.ack()
    assert taken(engine) == ["high"]


def test_195_the_default_selector_may_share_one(engine):
    window = engine.create_window(1)
    engine.create_queue("q")
    engine.create_selector("q", when=match("eq", "a"), do=deliver("a"), credit=5, window=window)
    engine.create_selector("q", when=default, do=deliver("rest"), credit=5, window=window)
    fill(engine, "q", "a", "b", "a")
    order = []
    while delivery := engine.take(1):
        order.append(delivery[0].destination)
        delivery[0].ack()
    assert order == ["a", "rest", "a"]


def test_195_names(engine):
    first, second = engine.create_window(1), engine.create_window(1)
    assert first.name != second.name and list(engine.windows) == [first.name, second.name]
    named = engine.create_window(4, name="w")
    assert engine.create_window(4, name="w") is named
    named.resize(5)
    assert engine.create_window(4, name="w") is engine.create_window(5, name="w") is named
    with pytest.raises(Conflict, match="w"):
        engine.create_window(6, name="w")
    engine.create_queue("q")
    reader(engine, "q", window="w")
    with pytest.raises(Conflict, match="w"):
        named.delete()
    engine.selectors[1].delete()
    assert named.delete() and not engine.delete_window("w") and not named.delete() and "w" not in engine.windows
    with pytest.raises(WindowNotFound):
        reader(engine, "q", window="w")


@pytest.mark.parametrize("credit", [-1, 2**62 + 1])
def test_195_credit_has_bounds(engine, credit):
    with pytest.raises(ValueError, match="credit"):
        engine.create_window(credit)
    window = engine.create_window(1)
    with pytest.raises(ValueError, match="credit"):
        window.resize(credit)
    assert gauges(window) == (1, 1, 0)


def test_195_it_is_for_deliveries_of_finite_credit(engine):
    window = engine.create_window(1)
    engine.create_queue("q")
    engine.create_queue("r")
    for do, when, credit in ((move_to("r"), always, 1), (deliver("d", "r"), always, 1), (discard, always, 1),
                             (copy_to("r"), always, 1), (deliver("d"), overflow, 1), (deliver("d"), always, INFINITE)):
        with pytest.raises(ValueError, match="window"):
            engine.create_selector("q", when=when, do=do, credit=credit, window=window)
    assert not engine.selectors and window.delete()


def test_195_a_window_may_change_in_a_building_block(engine):
    """Then its waiting list stands among what is to be done at the end of the block. The laws hold there, too."""
    window = readers(engine, "a", "b", credit=1)
    fill(engine, "a", "a1")
    fill(engine, "b", "b1")
    with engine.building():
        window.resize(2)
        engine.check()
        assert taken(engine) == ["a1"]
    assert taken(engine) == ["b1"] and gauges(window) == (2, 0, 2)
