"""Calls that an interrupt ends, of Ctrl-C or out of a filter or a call-back: nothing is left behind."""

import threading

import pytest

from tests.patience import PATIENCE
from xump import INFINITE, Engine, QueueFull, always, copy_to, deliver, move_to, overflow, where


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.fixture
def engine():
    with Engine() as engine:
        yield engine
        engine.check()


def once(address):
    """A condition that matches all messages, and interrupts the call that asks it about one of this address the first time."""
    left = [KeyboardInterrupt()]

    def condition(message):
        if message.address == address and left:
            raise left.pop()
        return True
    return where(condition)


def test_a_building_block_whose_entry_is_interrupted_is_not_entered():
    now = [0]
    with Engine(clock=lambda: now[0]) as engine:
        engine.create_queue("q")
        engine.create_selector("q", when=always, do=deliver("d"), credit=9)
        engine.outlet(interrupted, ["d"])
        engine.publish("q", "late", delay=1)
        now[0] = 2 * 10**9
        with pytest.raises(KeyboardInterrupt), engine.building():
            raise AssertionError("the block was entered")
        engine.publish("q", "now")
        assert [delivery.address for delivery in engine.take(9)] == ["late", "now"]
        engine.check()


def test_a_publisher_whose_call_is_interrupted_waits_no_more(engine):
    engine.create_queue("full", limit=0)
    before = engine._publish_later

    def begun(held, *given):        # a signal comes when it waits, and before that is known
        before(held, *given)
        interrupted()
    engine._publish_later = begun
    with pytest.raises(KeyboardInterrupt):
        engine.publish("full", "phantom", timeout=60)
    del engine._publish_later
    engine.create_queue("more")
    engine.create_selector("full", when=overflow, do=move_to("more"), credit=INFINITE)
    assert engine.queues["more"].ready == 0


@pytest.mark.parametrize("timeout", [0.0, 60.0])
def test_a_message_that_a_condition_interrupts_in_a_transit_queue_enters_once(engine, timeout):
    engine.create_queue("t", transit=True)
    engine.create_queue("q")
    engine.create_selector("t", when=always, do=copy_to("q"))
    engine.create_selector("t", when=once("a"), do=copy_to("q"))
    with pytest.raises(KeyboardInterrupt):
        engine.publish("t", "a", timeout=timeout)
    engine.tick()
    assert [message.address for message in engine.queues["q"].browse()] in ([], ["a"])


def test_what_get_took_when_it_was_interrupted_the_next_get_hands_out(engine):
    engine.create_queue("u")
    engine.create_queue("q", limit=1)
    engine.create_selector("u", when=always, do=move_to("q"), credit=INFINITE)
    engine.create_selector("q", when=once("bad"), do=deliver("d"), enabled=False)
    engine.publish_many("u", [("first",), ("bad",)])
    with pytest.raises(KeyboardInterrupt):
        engine.get("q")
    assert engine.take(9) == []
    engine.create_queue("other").publish("third")
    assert engine.get("other").address == "third"
    first = engine.get("q")
    assert first.address == "first"
    first.ack()
    assert engine.queues["q"].outstanding == 0


def test_a_batch_has_room_for_what_was_kept_while_it_waited_for_the_lock(engine):
    count, inside, go_on = 400, threading.Event(), threading.Event()

    def slow(message):
        if message.address == str(count - 1) and not inside.is_set():
            inside.set()
            assert go_on.wait(PATIENCE)
            raise KeyboardInterrupt
        return True
    with engine.building():
        engine.create_queue("u")
        engine.create_queue("q", limit=1)
        engine.create_selector("u", when=always, do=move_to("q"), credit=INFINITE)
        engine.create_selector("q", when=where(slow), do=deliver("d"), credit=INFINITE)
    taken, raised = [], []

    def take():
        try:
            engine.publish_many("u", [(str(number), b"body") for number in range(count)])
            engine.take(10_000)
        except KeyboardInterrupt as error:
            raised.append(error)
    taker = threading.Thread(target=take)
    taker.start()
    assert inside.wait(PATIENCE)
    waiter = threading.Thread(target=lambda: taken.append(engine._wait(lambda: engine.take_batch(10_000), None, 60.0)))
    waiter.start()
    go_on.set()
    taker.join()
    waiter.join()
    rest = engine.take_batch(10_000)
    assert len(raised) == 1 and len(taken[0]) + len(rest) == count


def test_a_time_without_end_has_not_come_when_the_clock_says_the_last_moment():
    with Engine(clock=lambda: 2**63 - 1) as engine:
        queue = engine.create_queue("q", priority=3)
        queue.publish(priority=1)
        engine.get("q").nack()
        assert queue.ready == 1 and engine.stats()["queues"]["q"]["dropped"] == {}


def test_publish_without_waiting_is_not_what_a_subclass_makes_of_it():
    class Patient(Engine):
        def publish(self, *arguments, timeout=1.0, **named):
            return super().publish(*arguments, timeout=timeout, **named)
    with Patient() as engine:
        engine.create_queue("q", limit=1)
        with engine.building():
            assert engine.publish("q") == 1
            with pytest.raises(QueueFull):
                engine.publish("q")
