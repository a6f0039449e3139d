"""Rules about outlets, which call back for the first offer, and about watching the graph."""

import logging

import pytest

from tests.rules.seen import addresses, stats
from xump import INFINITE, always, deliver, discard, match


def reader(engine, name, credit=20, **options):
    if name not in engine.queues:
        engine.create_queue(name)
    return engine.create_selector(name, when=always, do=deliver(name), credit=credit, **options)


def fill(engine, name, *given):
    for address in given:
        engine.publish(name, address)


class Called:
    """How often it was."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1


@pytest.fixture
def called():
    return Called()


def drained(outlet, n=100):
    return [delivery.message.address for delivery in outlet.take(n)]


# ---- 198: outlets

def test_198_the_first_offer_calls_back_once(engine, called):
    reader(engine, "a")
    outlet = engine.outlet(called, ["a"])
    assert called.times == 0
    fill(engine, "a", "x", "y")
    assert called.times == 1 and drained(outlet) == ["x", "y"]
    fill(engine, "a", "z")
    assert called.times == 2


def test_198_it_is_quiet_again_only_when_nothing_is_left(engine, called):
    reader(engine, "a")
    outlet = engine.outlet(called, ["a"])
    fill(engine, "a", "w", "x")
    assert drained(outlet, 1) == ["w"]
    fill(engine, "a", "y")
    assert called.times == 1 and drained(outlet, 2) == ["x", "y"]
    fill(engine, "a", "z")
    assert called.times == 2 and drained(outlet, 0) == [] and drained(outlet) == ["z"]


def test_198_what_the_call_itself_offers_is_given_when_there_is_nothing_else(engine, clock, called):
    """What fell due is offered as the call ends: nobody would be called back for it."""
    reader(engine, "a")
    outlet = engine.outlet(called, ["a"])
    fill(engine, "a", "x")
    engine.publish("a", "y", delay=2)
    engine.queues["a"].delete(1)        # it was offered, and called back
    clock.tick(5)
    assert called.times == 1 and drained(outlet) == ["y"] and drained(outlet) == []


def test_198_what_is_offered_already_calls_back_too(engine, called):
    reader(engine, "a")
    fill(engine, "a", "x")
    outlet = engine.outlet(called, ["a"])
    assert called.times == 1 and drained(outlet) == ["x"]


def test_198_destinations_have_turns_of_16(engine, called):
    for name in "ab":
        reader(engine, name, 40)
    outlet = engine.outlet(called, ["a", "b"])
    for name in "ab":
        engine.publish_many(name, [(name,)] * 20)
    assert "".join(drained(outlet)) == "a" * 16 + "b" * 16 + "aaaa" + "bbbb"
    engine.publish_many("b", [("b",)] * 5)
    engine.publish_many("a", [("a",)] * 5)
    assert "".join(drained(outlet, 3) + drained(outlet, 100)) == "bbbbbaaaaa"


def test_198_ahead_limits_what_is_offered_at_once(engine, called):
    reader(engine, "a", 10, ahead=2)
    outlet = engine.outlet(called, ["a"])
    fill(engine, "a", *"uvwxyz")
    assert stats(engine, "a")["outstanding"] == 2 and drained(outlet) == ["u", "v"] and drained(outlet) == ["w", "x"]
    assert drained(outlet) == ["y", "z"] and drained(outlet) == [] and called.times == 1


def test_198_infinite_credit_settles_what_is_taken(engine, called):
    reader(engine, "a", INFINITE)
    outlet = engine.outlet(called, ["a"])
    fill(engine, "a", "x", "y")
    assert drained(outlet) == ["x", "y"] and stats(engine, "a")["settled"] == 2


def test_198_what_is_offered_there_does_not_expire(engine, clock, called):
    reader(engine, "a", 1)
    outlet = engine.outlet(called, ["a"])
    for address in "xy":
        engine.publish("a", address, ttl=1)
    clock.tick(5)
    engine.tick()
    assert drained(outlet) == ["x"] and stats(engine, "a")["dropped"]["expired"] == 1


def test_198_ttl_0_reaches_one_that_waits_or_nobody(engine, called):
    engine.create_queue("dead")
    engine.create_queue("a", ttl=0, dead_letter="dead")
    reader(engine, "a", 1)
    outlet = engine.outlet(called, ["a"])
    fill(engine, "a", "x", "y")
    engine.publish("a", "z", ttl=0)
    assert drained(outlet) == ["x"] and addresses(engine, "dead") == ["y", "z"]


def test_198_what_comes_back_late_expires(engine, clock, called):
    selector = reader(engine, "a")
    engine.outlet(called, ["a"])
    engine.publish("a", "x", ttl=1)
    clock.tick(5)
    selector.delete()
    assert stats(engine, "a")["dropped"]["expired"] == 1


@pytest.mark.parametrize("leave", ["discard", "close"])
def test_198_what_is_in_no_outlet_any_more_may_expire(engine, clock, called, leave):
    reader(engine, "a")
    outlet = engine.outlet(called, ["a"])
    engine.publish("a", "x", ttl=1)
    engine.publish("a", "y", ttl=90)
    clock.tick(5)
    assert outlet.discard("a") if leave == "discard" else outlet.close() is None
    assert stats(engine, "a")["dropped"]["expired"] == 1
    fill(engine, "a", "z")
    assert called.times == 1 and outlet.take(9) == [] and outlet.destinations == ()
    assert [d.message.address for d in engine.take(9)] == ["y", "z"]


def test_198_a_destination_belongs_to_one_outlet(engine, called):
    first, second = engine.outlet(called, ["a"]), engine.outlet(called)
    assert not first.add("a") and first.destinations == ("a",)
    with pytest.raises(ValueError, match="a"):
        second.add("a")
    assert first.discard("a") and not first.discard("a") and second.add("a")


def test_198_take_takes_from_it_too(engine, called):
    reader(engine, "a")
    outlet = engine.outlet(called, ["a"])
    fill(engine, "a", "x", "y")
    assert len(engine.take(9)) == 2 and outlet.take(9) == []
    fill(engine, "a", "z")
    assert called.times == 2


def test_198_a_call_back_may_call_the_engine(engine):
    seen = []
    reader(engine, "a")

    def call():
        for delivery in outlet.take(1):
            seen.append(delivery.message.address)
            delivery.ack()
            if len(seen) < 4:
                engine.publish("a", f"{len(seen)}")
    outlet = engine.outlet(call, ["a"])
    engine.publish("a", "0")
    assert seen == ["0", "1", "2", "3"] and stats(engine, "a")["settled"] == 4


def test_198_n_is_not_negative(engine, called):
    with pytest.raises(ValueError, match="n must"):
        engine.outlet(called).take(-1)


# ---- 199: watches

def test_199_what_came_and_went_is_told_after_the_call(engine):
    seen = []
    watch = engine.watch(seen.append)
    queue = engine.create_queue("q")
    selector = engine.create_selector("q", when=always, do=discard)
    assert [[tuple(change) for change in changes] for changes in seen] == [
        [("queue", True, queue)], [("selector", True, selector)]]
    seen.clear()
    engine.delete_queue("q")
    assert sorted((what, came) for changes in seen for what, came, _ in changes) == [("queue", False), ("selector", False)]
    watch.stop()
    watch.stop()
    engine.create_queue("r")
    assert len(seen) == 1


def test_199_a_queue_that_deletes_itself(engine):
    seen = []
    engine.create_queue("q", auto_delete=True)
    selector = engine.create_selector("q", when=match("eq", "a"), do=discard)
    engine.watch(seen.append)
    selector.delete()
    assert sorted((what, came) for what, came, _ in seen[0]) == [("queue", False), ("selector", False)]


def test_199_what_is_refused_is_not_told(engine):
    seen = []
    engine.create_queue("q")
    engine.watch(seen.append)
    engine.create_queue("q")
    with pytest.raises(ValueError, match="credit"):
        engine.create_selector("q", when=always, do=deliver("d"), credit=-1)
    assert not engine.delete_queue("none") and seen == []


def test_what_call_backs_raise_is_logged(caplog):
    import xump
    with xump.Engine() as engine, caplog.at_level(logging.ERROR, "xump"):
        engine.watch(lambda changes: 1 / 0)
        engine.outlet(lambda: 1 / 0, ["a"])
        reader(engine, "a")
        assert engine.publish("a", "x") == 1
    assert [record.levelname for record in caplog.records if record.name == "xump"] == ["ERROR"] * 3
    assert all("ZeroDivisionError" in str(record.exc_info[1].__class__) for record in caplog.records if record.name == "xump")


def test_call_backs_are_not_called_inside_one_another():
    import xump
    with xump.Engine() as engine:
        inside, order = [], []

        def told(name):
            assert not inside
            inside.append(name)
            order.append(name)
            if name == "q":
                engine.create_queue("r")
                order.append("made r")
            inside.pop()
        engine.watch(lambda changes: told(changes[0].thing.name))
        engine.create_queue("q")
        assert order == ["q", "made r", "r"]


def test_an_interrupt_in_a_call_back_ends_the_call_and_the_rest_is_told_later():
    import xump
    with xump.Engine() as engine:
        seen = []

        def interrupted():
            raise KeyboardInterrupt
        outlet = engine.outlet(interrupted, ["a"])
        other = engine.outlet(lambda: seen.append("other"), ["b"])
        for name in "ab":
            reader(engine, name)
        with pytest.raises(KeyboardInterrupt), engine.building():
            engine.publish("a", "x")
            engine.publish("b", "y")
        engine.tick()
        assert seen == ["other"] and len(outlet.take(9)) == len(other.take(9)) == 1


def test_an_interrupt_in_a_watch_hides_nothing_from_the_others():
    import xump
    first, second = [], []

    def interrupted(changes):
        first.append(len(changes))
        if len(first) == 1:
            raise KeyboardInterrupt
    with xump.Engine() as engine:
        engine.watch(interrupted)
        engine.watch(lambda changes: second.extend(change.thing.name for change in changes))
        with pytest.raises(KeyboardInterrupt):
            engine.create_queue("a")
        assert second == []
        engine.create_queue("b")
        assert second == ["a", "b"] and first == [1, 1]


def test_a_watch_compares_no_thing_with_every_other(monkeypatch):
    import xump
    compared, seen = [], []
    with xump.Engine() as engine:
        engine.watch(seen.append)
        monkeypatch.setattr(xump.Queue, "__eq__", lambda queue, other: compared.append(other) or queue is other)
        with engine._graph_lock:        # so all is told at once
            queues = [engine.create_queue() for _ in range(101)]
            for queue in reversed(queues[1:]):
                engine.delete_queue(queue.name)
    assert [[change.thing for change in changes] for changes in seen] == [queues[:1]] and len(compared) <= 100


@pytest.mark.parametrize("wrong", [5, "elsewhere"])
def test_a_refused_outlet_calls_nobody(engine, called, wrong):
    """Its destinations are added all, or none."""
    reader(engine, "w")
    fill(engine, "w", "1")
    other = engine.outlet(Called(), ["elsewhere"])
    with pytest.raises((TypeError, ValueError)):
        engine.outlet(called, ["w", "nobody knows it", wrong])
    engine.check()
    assert called.times == 0 and other.destinations == ("elsewhere",)
    assert drained(engine.outlet(called, ["w", "w"])) == ["1"]
    assert called.times == 1
