"""Publishers that wait for room in a queue whose store has to clean its log first: the engine is given up meanwhile."""

import asyncio
import threading

import pytest

from tests.durability.unhurried import unhurried
from tests.engine.test_waits import Waiting
from xump import INFINITE, Engine, QueueFull, aio, always, move_to
from xump.durability.committer import Committer
from xump.transaction import Transaction


def publish(engine):
    return engine.publish("jobs", "late", timeout=60)


def commit(engine):
    with Transaction(engine, 60) as transaction:
        transaction.publish("jobs", "late")
        transaction.set_meta("jobs", "position", b"1")
    return transaction.ids[0]


@pytest.fixture
def engine(tmp_path):
    with Engine() as engine:
        # Its thread writes nothing by itself: it would say how much room there really is, and let in what waits.
        unhurried(engine.create_store("s", "lmdb", path=str(tmp_path / "s")))
        engine.create_queue("jobs", store="s", limit=1)
        engine.publish("jobs", "first")
        engine.sync()
        yield engine
        engine.check()


class Cleaning:
    """Does something while the store is cleaned, which gives it much room then."""

    def __init__(self, engine):
        self.engine = engine
        [self.committer] = engine._committers()
        self.threads = []
        self.meanwhile = lambda: None

    def make_room(self, wanted):
        self.threads.append(threading.current_thread())
        if self.committer._patience.waits:
            self.committer._port.has_room(1 << 30)
            self.meanwhile()
            self.committer._port.has_room(1 << 30)

    def take(self):
        """Take the first message while the store has no room."""
        with self.committer._turn:          # its thread does not say how much there really is
            self.committer._port.has_room(0)
            return self.engine.get("jobs")


@pytest.fixture
def cleaning(engine, monkeypatch):
    cleaning = Cleaning(engine)
    monkeypatch.setattr(Committer, "make_room", lambda committer, wanted: cleaning.make_room(wanted))
    return cleaning


def in_another_thread(call):
    other = threading.Thread(target=call)
    other.start()
    other.join()


@pytest.mark.parametrize("enter", [publish, commit])
def test_it_enters_once_if_another_call_lets_it_in_meanwhile(engine, cleaning, enter):
    waiting = Waiting(engine, lambda: enter(engine))
    cleaning.meanwhile = lambda: in_another_thread(engine.tick)
    cleaning.take()
    assert waiting.ended() == 2
    assert len(cleaning.threads) == 1
    assert [message.address for message in engine.queues["jobs"].browse()] == ["first", "late"]


def publisher(engine):
    return engine._publish_later([], lambda: None, "jobs", "late", b"", *[None] * 8, 0)


def committer(engine):
    transaction = Transaction(engine)
    transaction.__enter__()
    transaction.publish("jobs", "late")
    return engine._commit_later([], lambda: None, transaction)


@pytest.mark.parametrize("begin", [publisher, committer])
def test_it_does_not_enter_if_it_was_taken_back_meanwhile(engine, cleaning, begin):
    waiting, last = begin(engine), publisher(engine)
    cleaning.meanwhile = lambda: in_another_thread(lambda: engine._publish_no_more(waiting))
    cleaning.take()
    assert not waiting.waits and not waiting.served
    assert (last.waits, last.id, engine.queues["jobs"].last_id) == (False, 2, 2)


@pytest.mark.parametrize("enter", [publish, commit])
def test_a_call_that_cleans_no_store_leaves_it_to_the_thread_that_waits(engine, cleaning, enter):
    waiting = Waiting(engine, lambda: enter(engine))
    with engine.not_waiting():
        cleaning.take()
    assert waiting.ended() == 2
    assert (cleaning.threads[0], cleaning.threads[-1]) == (threading.current_thread(), waiting)


def test_a_call_that_cleans_no_store_leaves_it_to_the_task_that_waits(engine, cleaning):
    async def main():
        waiting = asyncio.ensure_future(aio.publish(engine, "jobs", "late", timeout=60))
        await asyncio.sleep(0)
        with engine.not_waiting():
            cleaning.take()
        return await waiting
    assert asyncio.run(main()) == 2


def test_each_moment_has_its_own_time_though_a_store_is_cleaned_in_between(tmp_path, clock, monkeypatch):
    """A call does what fell due before, moment by moment. After each it tries the publisher, for which the store, in which one
    more message is, has to clean its log."""
    def make_room(committer, wanted):
        cleaned.append(clock.now)
        committer._port.has_room(wanted + committer._port.open_bytes + 100)

    cleaned = []
    monkeypatch.setattr(Committer, "make_room", make_room)
    with Engine(clock=clock) as engine:
        unhurried(engine.create_store("s", "lmdb", path=str(tmp_path / "s")))
        engine.create_queue("jobs", store="s", limit=1)
        engine.publish("jobs", "first")
        [committer] = engine._committers()
        with committer._turn:       # its thread does not say how much room there really is
            committer._port.has_room(0)
            waiting = engine._publish_later(
                [], lambda: None, "jobs", "late", bytes(100_000), None, None, None, None, None, None, 60.0, None, 0)
            engine.create_queue("kept", store="s")
            engine.create_queue("q")
            engine.create_selector("q", when=always, do=move_to("kept"), credit=INFINITE)
            for seconds in (1, 2, 3):
                engine.publish("q", body=bytes(1000), delay=seconds)
            begun = clock.now
            clock.tick(10)
            engine.tick()
            assert waiting.waits and cleaned[-1] > begun
            times = [message.timestamp - begun for message in engine.queues["kept"].browse()]
            assert times == [1_000_000_000, 2_000_000_000, 3_000_000_000]
            engine.check()


def test_a_publisher_whose_time_ends_while_another_one_is_made_room_for(tmp_path, monkeypatch):
    """Both wait, the first for its queue and for its store; the engine is given up while that cleans its log."""
    with Engine() as engine:
        engine.create_store("s", "ring", path=str(tmp_path / "s"), durability="process")
        for name, store in (("first", "s"), ("second", "ram")):
            engine.create_queue(name, store=store, limit=1)
            engine.publish(name)
        terms = (None, None, None, None, None, None, None, None, 0)
        first = engine._publish_later([], lambda: None, "first", "", bytes(1000), *terms)
        second = engine._publish_later([], lambda: None, "second", "", b"", *terms)
        calls = []

        def make_room(committer, wanted):
            calls.append(wanted)
            if len(calls) == 1:
                committer._port.has_room(committer._backend.room())
                assert engine._publish_no_more(second)      # its time is over
        monkeypatch.setattr(Committer, "make_room", make_room)
        engine.stores["s"].committer._port.has_room(1000)       # hardly any room, just now
        assert calls and first.waits and not second.waits and isinstance(first.error, QueueFull)
        engine._publish_no_more(first)
        monkeypatch.undo()
        engine.check()
