"""`close()` ends the waiting of all threads."""

import contextlib
import threading

import pytest

from xump import INFINITE, Engine, QueueFull, always, deliver, discard, where
from xump.errors import Closed
from xump.store_types import register_store, store_types
from tests.engine.threads.crew import Crew, THREADS


def closing_calls(engine):
    return [
        lambda: engine.take(1, timeout=None), lambda: engine.take(1, "d", timeout=1e9),
        lambda: engine.take_batch(1, timeout=None), lambda: next(engine.deliveries(timeout=None)),
        lambda: next(engine.deliveries("d", timeout=None)),
    ]


def test_close_wakes_all_who_wait(engine):
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"))
    crew, closed = Crew(), []

    def wait(call):
        try:
            call()
        except Closed:
            closed.append(True)

    calls = closing_calls(engine) * 4
    for call in calls:
        crew.add(wait, call)
    crew.start()
    engine.when_waiting(len(calls))
    engine.close()
    crew.join()
    assert len(closed) == len(calls) and engine._waiting_destinations == []
    with pytest.raises(Closed):
        engine.take(1, timeout=None)


def test_stores_are_closed_once_whoever_closes():
    """Closing a store lets other threads in."""
    class SlowStore:
        def __init__(self, name):
            self.closed = 0

        def close(self):
            self.closed += 1
            threading.Event().wait(0.01)

    if "slow to close" not in store_types():
        register_store("slow to close", SlowStore)
    engine, crew = Engine(), Crew()
    stores = [engine.create_store(f"s{n}", "slow to close").backend for n in range(5)]
    for _ in range(THREADS):
        crew.add(engine.close)
    crew.join()
    assert [store.closed for store in stores] == [1] * 5


def test_close_while_others_are_at_the_door():
    """A filter works, others wait for their turn, one of them to close: after it all of them are told."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(message):
        inside.set()
        go_on.wait()
        return True

    for closer in range(4):
        inside.clear()
        go_on.clear()
        engine = Engine()
        queue = engine.create_queue("q")
        engine.create_selector("q", when=where(slow), do=discard)
        told, begun, crew = [], [], Crew()

        def call(what, told=told, begun=begun):
            begun.append(True)
            try:
                what()
                told.append("done")
            except Closed:
                told.append("closed")

        crew.add(call, lambda queue=queue: queue.publish("first"))
        crew.start()
        inside.wait()
        calls = [lambda engine=engine: engine.take(1), lambda queue=queue: queue.fetch(1), engine.sync, engine.check] * 2
        calls.insert(closer * 2, engine.close)
        for what in calls:
            crew.add(call, what)
        while len(begun) < 1 + len(calls):
            pass
        go_on.set()
        crew.join()
        assert len(told) == 10 and told.count("done") >= 2
        assert engine.closed


def test_publishers_meet_a_close_and_are_told():
    engine = Engine()
    engine.create_queue("q", limit=100)
    engine.create_selector("q", when=always, do=deliver("d"), credit=INFINITE)
    closed, crew = [], Crew()

    def work(n):
        try:
            while True:
                with contextlib.suppress(QueueFull):
                    engine.publish("q")
                for delivery in engine.take(2):
                    delivery.ack()
        except Closed:
            closed.append(n)

    for n in range(THREADS):
        crew.add(work, n)
    crew.start()
    while engine.queues["q"].last_id < 500:
        pass
    engine.close()
    crew.join()
    assert sorted(closed) == list(range(THREADS))
