"""Clocks that raise, give nonsense, call the engine, or go back."""

import time

import pytest

from tests.model.seen import seen_of
from xump import (
    Engine, always, deliver, discard, match,
)
from xump.errors import Closed, Reentrant
from tests.engine.user_code.steps import Odd, commit


def snapshot(engine, clock):
    before, clock.now = clock.now, 5
    seen = seen_of(engine)
    clock.now = before
    return seen


class Faulty:
    """A clock that gives what it is told to, or raises it."""

    def __init__(self):
        self.now = 5

    def __call__(self):
        if isinstance(self.now, type):
            raise self.now
        return self.now


@pytest.mark.parametrize("now, error", [
    (Odd, Odd), (KeyboardInterrupt, KeyboardInterrupt), (None, TypeError), ("12:00", TypeError), (b"", TypeError),
    ([], TypeError), (1.5, TypeError), (True, TypeError), (2**63, ValueError), (-2**63, ValueError), (10**30, ValueError),
])
def test_a_clock_that_raises_or_gives_nonsense_changes_nothing(now, error):
    clock = Faulty()
    with Engine(clock=clock) as engine:
        queue = engine.create_queue("q", history_limit=None)
        selector = engine.create_selector("q", when=match("eq", "a"), do=deliver("d"), credit=2)
        engine.publish_many("q", [("a",)] * 4)
        first, second = engine.take(2)
        iterator = engine.deliveries()
        before = snapshot(engine, clock)
        clock.now = now
        for call in (
            lambda: engine.publish("q"), lambda: engine.publish_many("q", [("a",)]), lambda: engine.take(1),
            lambda: next(iterator),
            lambda: engine.ack([first, second]), first.ack, first.nack, second.reject, selector.pay, lambda: selector.grant(1),
            selector.disable, selector.delete, lambda: engine.create_queue("r"), lambda: engine.delete_queue("q"), queue.hold,
            lambda: engine.create_selector("q", when=always, do=discard, name="new"), queue.purge, lambda: queue.delete(1),
            lambda: commit(engine, first), engine.tick, lambda: engine.get("q"),
            lambda: engine.building().__enter__(), lambda: engine.take_batch(1),
        ):
            with pytest.raises(error, match="^clock must return" if error is not now else None):
                call()
        clock.now = 6
        assert not engine.closed
        engine.check()
        assert seen_of(engine) == before
        engine.ack([first, second])
        assert [delivery.id for delivery in iterator] == [3, 4]
        assert (engine.create_selector("q", when=always, do=discard).id, engine.create_queue().name) == (2, "queue-1")
        engine.check()


@pytest.mark.parametrize("now", [Odd, KeyboardInterrupt, None, 2**63])
def test_an_engine_can_be_closed_and_a_block_ends_whatever_the_clock_does(now):
    clock = Faulty()
    engine = Engine(clock=clock)
    queue = engine.create_queue("q")
    engine.create_selector("q", when=match("eq", "a"), do=deliver("d"), credit=9)
    with pytest.raises((TypeError, ValueError, Odd, KeyboardInterrupt)), engine.building():
        with engine.building():
            queue.publish("a")
            engine.create_queue("nobody's")
            engine.publish("nobody's")
        clock.now = now
    clock.now = 6
    engine.check()
    assert queue.frontier == 1
    queue.publish("a")      # the block has ended, and what it held is routed by the next call
    engine.check()
    assert [(d.id, d.message.timestamp) for d in engine.take(9)] == [(1, 5), (2, 6)]
    clock.now = now
    with pytest.raises((TypeError, ValueError, Odd, KeyboardInterrupt)):
        queue.publish()
    engine.close()
    assert engine.closed
    with pytest.raises(Closed):
        queue.publish()


def test_a_clock_in_seconds_is_told():
    with Engine(clock=time.time) as engine, pytest.raises(TypeError, match="nanoseconds as an int, got float"):
        engine.create_queue("q")


def test_a_clock_that_calls_the_engine_gets_reentrant():
    def clock():
        return engine.queues["q"].publish("again") if started else 1

    started = []
    with Engine(clock=clock) as engine:
        queue = engine.create_queue("q")
        started.append(True)
        with pytest.raises(Reentrant, match="clock"):
            queue.publish("a")
        started.clear()
        assert queue.last_id == 0
        engine.check()


def test_a_clock_may_go_back_and_the_times_in_a_queue_do_not():
    times = iter([1, 50, 20, 60, -5])
    now = [0]
    with Engine(clock=lambda: now[0]) as engine:
        queue = engine.create_queue("q")
        for now[0] in times:
            queue.publish()
        assert [message.timestamp for message in queue.browse()] == [1, 50, 50, 60, 60]
        engine.check()


def test_a_clock_that_says_the_last_moment_there_is():
    now = [0]
    with Engine(clock=lambda: now[0]) as engine:
        engine.create_queue("q")
        engine.create_selector("q", when=always, do=deliver("d"), credit=1, ack_timeout=10)
        engine.publish("q")
        assert len(engine.take(1)) == 1
        now[0] = 2**63 - 1
        engine.tick()
        assert engine.stats()["queues"]["q"]["offered"] == 1        # it was nacked, and nothing else is due
        engine.check()
