"""Calls that wait in a thread: for room, for a message, for a reply, and for what falls due. The clock is the test's."""

import asyncio
import inspect
import threading

import pytest

import xump
import xump.aio
from tests.patience import PATIENCE
from xump import Engine, always, deliver
from xump.queue import Queue
from xump.transaction import Transaction

SECOND = 1_000_000_000


@pytest.fixture
def engine(clock):
    with Engine(clock=clock) as engine:
        yield engine
        if not engine.closed:
            engine.check()
            assert engine._waiting_destinations == []


class Waiting(threading.Thread):
    """A call in a thread of its own. It has begun to wait when the engine knows it."""

    def __init__(self, engine, call):
        super().__init__(daemon=True)
        self.call = call
        self.outcome = None
        before = len(engine._waiting_destinations)
        self.start()
        while self.is_alive() and len(engine._waiting_destinations) == before:
            self.join(0.001)

    def run(self):
        try:
            self.outcome = self.call()
        except (xump.XumpError, ValueError) as error:
            self.outcome = error

    def ended(self):
        self.join(PATIENCE)
        assert not self.is_alive()
        return self.outcome


# ---- room

@pytest.mark.parametrize("publish", [
    lambda engine, *given, **more: engine.publish("jobs", *given, **more),
    lambda engine, *given, **more: engine.queues["jobs"].publish(*given, **more)], ids=["Engine.publish", "Queue.publish"])
def test_a_publish_waits_for_room(engine, publish):
    jobs = engine.create_queue("jobs", limit=1)
    assert publish(engine, "first", timeout=5) == 1
    waiting = Waiting(engine, lambda: publish(engine, "second", b"body", {"n": 1}, priority=3, timeout=60))
    engine.get("jobs").ack()
    assert waiting.ended() == 2
    [message] = jobs.browse()
    assert (message.address, message.body, dict(message.headers), message.priority) == ("second", b"body", {"n": 1}, 3)
    with pytest.raises(xump.QueueFull):
        publish(engine, "third", timeout=0.001)
    with pytest.raises(xump.QueueFull):
        publish(engine, "third", timeout=0)
    assert jobs.last_id == 2


def test_in_a_block_of_its_own_a_publish_does_not_wait(engine):
    jobs = engine.create_queue("jobs", limit=1)
    with engine.building():
        assert engine.publish("jobs", "a", timeout=None) == 1
        with pytest.raises(xump.QueueFull):
            engine.publish("jobs", "b", timeout=None)
        with pytest.raises(xump.QueueFull):
            jobs.publish("b", timeout=60)
    assert jobs.last_id == 1


def test_in_a_block_of_another_thread_it_enters_when_its_wait_is_over(engine):
    jobs = engine.create_queue("jobs", limit=1)
    with engine.building():
        waiting = Waiting(engine, lambda: engine.publish("jobs", "a", timeout=0.01))
        assert waiting.ended() == 1
        waiting = Waiting(engine, lambda: engine.publish("jobs", "b", timeout=0.01))
        assert isinstance(waiting.ended(), xump.QueueFull)
    assert jobs.last_id == 1


def test_who_was_interrupted_publishes_nothing_later(engine, monkeypatch):
    jobs = engine.create_queue("jobs", limit=0)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_sleep", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        engine.publish("jobs", "a", timeout=None)
    engine.create_queue("more")
    engine.create_selector("jobs", when=xump.overflow, do=xump.move_to("more"), credit=xump.INFINITE)
    assert jobs.last_id == 0 and engine.queues["more"].ready == 0


def together(engine, address, position, timeout):
    """A publish and a change of the map of `jobs`, that happen together."""
    with Transaction(engine, timeout) as transaction:
        transaction.publish("jobs", address)
        transaction.set_meta("jobs", "position", position)
    return transaction.ids


def test_a_transaction_waits_for_room_in_line(engine):
    jobs = engine.create_queue("jobs", limit=1)
    assert together(engine, "first", b"1", 60) == [1]
    waiting = [Waiting(engine, lambda: together(engine, "second", b"2", 60)),
               Waiting(engine, lambda: engine.publish("jobs", "third", timeout=60)),
               Waiting(engine, lambda: together(engine, "fourth", b"4", None))]
    assert jobs.meta["position"] == b"1"
    for number, found in ((2, [2]), (3, 3), (4, [4])):
        engine.get("jobs").ack()
        assert waiting[number - 2].ended() == found
        assert jobs.meta["position"] == (b"4" if number == 4 else b"2")
    with pytest.raises(xump.QueueFull):
        together(engine, "fifth", b"5", 0.001)
    assert (jobs.last_id, jobs.meta["position"]) == (4, b"4")


def test_a_transaction_that_waits_fails_whole(engine):
    jobs = engine.create_queue("jobs", limit=1)
    jobs.publish("first")
    wrong = Waiting(engine, lambda: together(engine, "second", bytes(70_000), 60))
    last = Waiting(engine, lambda: together(engine, "third", b"3", 60))
    with pytest.raises(ValueError, match="70"):
        together(engine, "x", bytes(70_000), 60)
    engine.get("jobs").ack()
    assert last.ended() == [2]
    assert isinstance(wrong.ended(), ValueError)
    assert [message.address for message in jobs.browse()] == ["third"]
    engine.delete_queue("jobs")
    with pytest.raises(xump.QueueNotFound):
        together(engine, "fourth", b"4", 60)


def test_in_a_block_of_its_own_a_transaction_does_not_wait(engine):
    jobs = engine.create_queue("jobs", limit=1)
    with engine.building():
        assert together(engine, "a", b"1", None) == [1]
        with pytest.raises(xump.QueueFull):
            together(engine, "b", b"2", None)
    assert (jobs.last_id, jobs.meta["position"]) == (1, b"1")


def test_in_a_block_of_another_thread_a_transaction_enters_when_its_wait_is_over(engine):
    jobs = engine.create_queue("jobs", limit=1)
    with engine.building():
        assert Waiting(engine, lambda: together(engine, "a", b"1", 0.01)).ended() == [1]
        assert isinstance(Waiting(engine, lambda: together(engine, "b", b"2", 0.01)).ended(), xump.QueueFull)
    assert (jobs.last_id, jobs.meta["position"]) == (1, b"1")


def test_time_makes_room(engine, clock):
    engine.create_queue("jobs", limit=1)
    engine.publish("jobs", "old", ttl=30)
    waiting = Waiting(engine, lambda: engine.publish("jobs", "new", timeout=None))
    clock.tick(31)
    engine.tick()
    assert waiting.ended() == 2


# ---- messages and replies

def test_whoever_waits_wakes_for_what_falls_due(engine, clock):
    for name in ("jobs", "hand"):
        engine.create_queue(name)
        engine.publish(name, "later", delay=3600)
    engine.create_selector("jobs", when=always, do=deliver("worker"))
    calls = [Waiting(engine, call) for call in (
        lambda: engine.take(1, "worker", timeout=None), lambda: next(engine.deliveries("nobody", timeout=None)),
        lambda: engine.get("hand", timeout=None))]
    clock.tick(3600)
    engine.tick()
    [delivery] = calls[0].ended()
    assert delivery.message.address == calls[2].ended().message.address == "later"
    engine.create_selector("hand", when=always, do=deliver("nobody"))
    engine.publish("hand", "at last")
    assert calls[1].ended().message.address == "at last"


def test_a_request_that_is_answered_and_one_that_is_not(engine):
    engine.create_queue("upper")
    engine.create_selector("upper", when=always, do=deliver("upper"))
    waiting = Waiting(engine, lambda: engine.request("upper", body=b"x", timeout=None))
    with engine.take(1, "upper")[0] as message:
        assert message.reply_to == "xump.replies" and message.message_id
        engine.publish("xump.replies", correlation_id=message.message_id, body=b"X")
    assert waiting.ended().body == b"X"
    with pytest.raises(xump.RequestTimeout, match="'upper'"):
        engine.request("upper", timeout=0.001)


def test_closing_ends_every_wait(engine):
    engine.create_queue("full", limit=0)
    engine.create_queue("jobs")
    engine.create_queue("asked")
    calls = [Waiting(engine, call) for call in (
        lambda: engine.take(1, "d", timeout=None), lambda: engine.take(1, [], timeout=None),
        lambda: engine.get("jobs", timeout=None), lambda: engine.publish("full", timeout=None),
        lambda: engine.request("asked", timeout=None))]
    engine.close()
    assert [type(call.ended()) for call in calls] == [xump.Closed] * 5


def test_taking_from_no_destination_at_all(engine):
    assert engine.take(1, [], timeout=0.001) == [] and len(engine.take_batch(1, (), timeout=0.001)) == 0
    assert engine._waiting_destinations == []
    engine.publish(engine.create_queue("q"), delay=5)           # wakes those who sleep until something falls due: nobody
    assert list(engine.deliveries(set(), timeout=0.001)) == []


# ---- each keyword, wherever one publishes

TERMS = ("correlation_id", "delay", "at", "ttl", "expires", "priority")


@pytest.mark.parametrize(("call", "more"), [
    (Engine.publish, ("timeout",)), (Queue.publish, ("timeout",)), (xump.aio.publish, ("timeout",)), (Transaction.publish, ()),
    (Engine.publish_many, ("outcomes",))])
def test_what_a_publish_may_say_it_may_say_anywhere(call, more):
    parameters = inspect.signature(call).parameters
    named = [name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY]
    assert [name for name in named if name not in ("reply_to", "message_id")] == [*TERMS, *more]


def test_and_it_comes_through(engine, clock):
    given = {"correlation_id": "c", "delay": 5, "ttl": 7, "priority": 9}
    queue = engine.create_queue("q")
    engine.publish("q", "1", **given)
    queue.publish("2", **given)
    engine.publish_many("q", [("3",), ("4",)], **given)
    with engine.transaction() as tx:
        tx.publish("q", "5", **given)
    waiting = Waiting(engine, lambda: engine.publish("q", "6", **given, timeout=1))
    waiting.ended()
    assert [(message.address, message.correlation_id, message.priority, message.expires) for message in queue.browse()] == [
        (str(n), "c", 9, clock.now + 12 * SECOND) for n in range(1, 7)]
    assert queue.delayed == 6


@pytest.mark.parametrize("iterate", ["deliveries", "aio"])
def test_an_iteration_that_waits_beside_what_was_nacked_says_so_once(engine, iterate):
    """It does not give again what was nacked, so with all credit used up it would wait in silence, for ever."""
    jobs = engine.create_queue("jobs")
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=1)
    jobs.publish("bad")

    async def work():
        async for delivery in xump.aio.deliveries(engine, "worker"):
            delivery.nack()
            asyncio.get_running_loop().call_later(0.01, engine.close)

    def wait():
        if iterate == "aio":
            asyncio.run(work())
        for delivery in engine.deliveries("worker", timeout=None):
            delivery.nack()
            threading.Timer(0.01, engine.close).start()
    with pytest.warns(UserWarning, match="Give the queue a retry_delay, or take in a loop") as warned, pytest.raises(xump.Closed):
        wait()
    assert len(warned) == 1


@pytest.mark.usefixtures("no_garbage")
def test_an_iteration_that_waits_for_the_first_message_warns_of_nothing(engine, recwarn):
    jobs = engine.create_queue("jobs")
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=9)
    jobs.publish("bad")
    engine.take(1)[0].nack()
    iteration = engine.deliveries("worker", timeout=None)
    next(iteration).nack()
    jobs.publish("good")
    assert next(iteration).address == "good"
    assert not list(recwarn)
