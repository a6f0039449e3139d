"""`xump.aio` and time: `request`, `publish`, `get` and `take` wait for what falls due, by one timer a loop.

The loop of these tests has the test's clock, which jumps to the next timer when nothing else is left to do. So a wait of an hour
takes no time, and ends at its moment.
"""

import asyncio
import inspect
import math
import selectors
import threading

import pytest

import xump
from xump import always, deliver
from xump.aio import deliveries, get, publish, request, take

SECOND = 1_000_000_000


class Jumping(selectors.DefaultSelector):
    """Moves the clock instead of waiting for it."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def select(self, timeout=None):
        events = super().select(None if timeout is None else 0)
        if not events and timeout:
            self.clock.now += math.ceil(timeout * SECOND)
        return events


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock):
        super().__init__(Jumping(clock))
        self.clock = clock

    def time(self):
        return self.clock.now / SECOND

    def timers(self):
        return [timer for timer in self._scheduled if not timer.cancelled()]


@pytest.fixture
def run(clock):
    def run(main):
        with asyncio.Runner(loop_factory=lambda: JumpingLoop(clock)) as runner:
            return runner.run(main())

    return run


@pytest.fixture
def engine(clock):
    with xump.Engine(clock=clock) as engine:
        for name in ("alice", "bob"):
            engine.create_queue(name)
            engine.create_selector(name, when=always, do=deliver(name), credit=9)
        yield engine
        if not engine.closed:
            engine.check()
            assert engine._waiting_destinations == [] and engine._alarms == {}


async def turns(n=5):
    for _ in range(n):
        await asyncio.sleep(0)


def addresses(given):
    return [delivery.message.address for delivery in given]


started = asyncio.ensure_future


# ---- what falls due

def test_one_timer_wakes_whom_it_concerns(engine, clock, run):
    looked = []

    class Counting(xump.Engine):
        def _take(self, n, destination):
            looked.append(destination)
            return super()._take(n, destination)

    async def main():
        loop = asyncio.get_running_loop()
        waiting = [started(take(counting, 1, f"nobody {n}", timeout=None)) for n in range(50)]
        first = started(take(counting, 1, "worker", timeout=None))
        await turns()
        assert len(loop.timers()) == 1
        looked.clear()
        began = clock.now
        assert addresses(await first) == ["later"] and clock.now == began + 60 * SECOND
        assert looked == ["worker"]
        assert loop.timers() == []
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    with Counting(clock=clock) as counting:
        counting.create_queue("q")
        counting.create_selector("q", when=always, do=deliver("worker"))
        counting.publish("q", "later", delay=60)
        run(main)
        assert counting._alarms == {}


def test_what_falls_due_earlier_than_was_known_moves_the_timer(engine, clock, run):
    began = clock.now
    engine.publish("alice", "late", delay=60)

    async def main():
        first = started(take(engine, 1, "alice", timeout=None))
        second = started(take(engine, 1, "alice", timeout=None))
        await turns()
        thread = threading.Thread(target=lambda: engine.publish("alice", "early", delay=5))
        thread.start()
        thread.join()
        assert addresses(await first) == ["early"] and clock.now == began + 5 * SECOND
        assert addresses(await second) == ["late"] and clock.now == began + 60 * SECOND

    run(main)


def test_what_comes_back_by_time_is_yielded_again(engine, clock, run):
    engine.publish("alice", "x")

    async def main():
        seen = []
        async for delivery in deliveries(engine, "alice", timeout=100):
            seen.append((delivery.delivery_count, clock.now))
            if len(seen) < 3:
                delivery.nack(delay=10)
            else:
                delivery.ack()
        return seen

    began = clock.now
    assert run(main) == [(n + 1, began + 10 * n * SECOND) for n in range(3)]
    assert clock.now == began + 120 * SECOND


def test_a_clock_that_raises_is_told_to_one_who_waits_and_the_others_go_on(clock, run):
    class Unreadable(Exception):
        pass

    def read():
        if fail:
            fail.clear()
            raise Unreadable
        return clock.now

    fail = []

    async def main(engine):
        tasks = [started(take(engine, 1, "alice", timeout=None)) for _ in range(2)]
        await turns()
        engine.publish("alice", "x", delay=3)
        await turns()
        asyncio.get_running_loop().call_later(2.999_999, fail.append, True)
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], Unreadable) and addresses(done[1]) == ["x"]

    with xump.Engine(clock=read) as engine:
        engine.create_queue("alice")
        engine.create_selector("alice", when=always, do=deliver("alice"))
        run(lambda: main(engine))
        assert engine._alarms == {}


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("wait", [
    lambda engine: take(engine, 1, "alice", timeout=None),
    lambda engine: take(engine, 1, [], timeout=None),
    lambda engine: get(engine, "alice", timeout=None),
    lambda engine: request(engine, "alice", timeout=None),
    lambda engine: publish(engine, "full", timeout=None),
    lambda engine: anext(deliveries(engine, "alice")),
], ids=["take", "take from none", "get", "request", "publish", "deliveries"])
@pytest.mark.parametrize("end", ["close", "cancel"])
def test_whoever_waits_ends_with_the_engine_and_when_cancelled(engine, run, wait, end, caplog):
    engine.create_queue("full", limit=0)

    async def main():
        task = started(wait(engine))
        await turns()
        assert not task.done() and len(engine._waiting_destinations) == 1
        if end == "close":
            engine.close()
        else:
            task.cancel()
        with pytest.raises(xump.Closed if end == "close" else asyncio.CancelledError):
            await task

    run(main)
    assert engine._alarms == {} and engine._waiting_destinations == []
    assert [record for record in caplog.records if record.name in ("asyncio", "xump")] == []
    if end == "cancel":
        assert engine.queues["full"].last_id == 0


# ---- get

def test_get_waits_for_a_message_and_for_what_is_due(engine, clock, run):
    jobs = engine.create_queue("jobs")

    async def main():
        assert await get(engine, "jobs") is None
        task = started(get(engine, jobs, timeout=None))
        await turns()
        jobs.publish("now")
        assert (await task).message.address == "now"
        began = clock.now
        jobs.publish("later", delay=7)
        assert (await get(engine, "jobs", timeout=60)).message.address == "later" and clock.now == began + 7 * SECOND
        assert await get(engine, "jobs", timeout=2) is None and clock.now == began + 9 * SECOND
        with engine.building():
            assert await get(engine, "jobs", timeout=None) is None

    run(main)


def test_get_from_a_queue_that_is_deleted_meanwhile(engine, run):
    jobs = engine.create_queue("jobs")

    async def main():
        task = started(get(engine, jobs, timeout=None))
        await turns()
        engine.delete_queue("jobs")
        with pytest.raises(xump.QueueNotFound):
            await task
        with pytest.raises(xump.QueueNotFound):
            await get(engine, "jobs", timeout=None)

    run(main)


# ---- publish

def test_publish_waits_for_room_first_come_first_served(engine, run):
    jobs = engine.create_queue("jobs", limit=1)

    async def main():
        assert await publish(engine, jobs, "a") == 1
        with pytest.raises(xump.QueueFull):
            await publish(engine, jobs, "b")
        waiting = [started(publish(engine, "jobs", str(n), b"body", {"n": n}, message_id=str(n), timeout=None)) for n in range(3)]
        await turns()
        seen = []
        for n in range(3):
            seen.append(engine.get("jobs").message)
            await turns()
            assert [task.done() for task in waiting] == [at <= n for at in range(3)]
        seen.append(engine.get("jobs").message)
        assert [message.address for message in seen] == ["a", "0", "1", "2"]
        assert (seen[3].body, dict(seen[3].headers), seen[3].message_id) == (b"body", {"n": 2}, "2")
        return await asyncio.gather(*waiting)

    assert run(main) == [2, 3, 4]


def test_publish_waits_for_room_that_time_makes_and_no_longer_than_its_timeout(engine, clock, run):
    jobs = engine.create_queue("jobs", limit=1)
    began = clock.now
    jobs.publish("old", ttl=30)

    async def main():
        with pytest.raises(xump.QueueFull):
            await publish(engine, jobs, "impatient", timeout=10)
        assert clock.now == began + 10 * SECOND
        assert await publish(engine, jobs, "patient", timeout=60) == 2
        assert clock.now == began + 30 * SECOND

    run(main)
    assert [message.address for message in jobs.browse()] == ["patient"]


def test_publish_does_not_wait_in_its_own_block(engine, run):
    jobs = engine.create_queue("jobs", limit=0)

    async def main():
        with engine.building(), pytest.raises(xump.QueueFull):
            await publish(engine, jobs, timeout=None)
        with engine.building():
            assert await publish(engine, engine.queues["alice"], "x", timeout=None) == 1

    run(main)
    assert jobs.last_id == 0 and engine.queues["alice"].last_id == 1


def test_in_the_block_of_another_thread_it_waits_for_its_end_and_enters(engine, run):
    jobs = engine.create_queue("jobs", limit=1)
    begun, end = threading.Event(), threading.Event()

    def build():
        with engine.building():
            begun.set()
            end.wait()

    async def main():
        thread = threading.Thread(target=build)
        thread.start()
        begun.wait()
        try:
            assert await publish(engine, jobs, "a", timeout=5) == 1
            with pytest.raises(xump.QueueFull):
                await publish(engine, jobs, "b", timeout=5)
        finally:
            end.set()
            thread.join()

    run(main)
    assert jobs.last_id == 1


# ---- request

async def answer_all(engine, destination, n=1, delay=None):
    async for delivery in deliveries(engine, destination):
        with delivery as message:
            if delay is not None:
                await asyncio.sleep(delay)
            delivery.reply(message.body.upper())
        n -= 1
        if n == 0:
            return


def test_requests_go_side_by_side_and_each_has_its_own_reply(engine, run):
    async def main():
        worker = started(answer_all(engine, "alice", 20))
        replies = await asyncio.gather(*(request(engine, "alice", body=b"a%d" % n) for n in range(20)))
        await worker
        return [reply.body for reply in replies]

    assert run(main) == [b"A%d" % n for n in range(20)]
    assert engine.stats()["queues"]["xump.replies"]["late"] == 0


def test_a_reply_that_takes_its_time(engine, clock, run):
    began = clock.now

    async def main():
        worker = started(answer_all(engine, "alice", delay=12))
        reply = await request(engine, "alice", body=b"x")
        await worker
        return reply.body

    assert run(main) == b"X" and clock.now == began + 12 * SECOND


def test_without_a_reply_it_raises_at_its_time_and_what_comes_later_is_late(engine, clock, run):
    began = clock.now

    async def main():
        with pytest.raises(xump.RequestTimeout, match="'alice' within 30.0 seconds"):
            await request(engine, "alice", body=b"x")
        assert clock.now == began + 30 * SECOND
        with pytest.raises(xump.RequestTimeout):
            await request(engine, "alice", timeout=0)
        with engine.building(), pytest.raises(xump.RequestTimeout):
            await request(engine, "alice")
        await answer_all(engine, "alice")

    run(main)
    assert engine.stats()["queues"]["xump.replies"]["late"] == 1


def test_what_bounced_is_the_answer(engine, run):
    engine.create_queue("nowhere", dead_letter="xump.replies", ttl=5)

    async def main():
        return await request(engine, "nowhere", "who is there")

    reply = run(main)
    assert reply.headers["xump_reason"] == "expired" and reply.headers["xump_original_address"] == "who is there"


def test_a_request_that_cannot_be_published_leaves_nothing(engine, run):
    async def main():
        with pytest.raises(xump.QueueNotFound):
            await request(engine, "missing")

    run(main)


# ---- the same as without tasks

@pytest.mark.parametrize(("waits", "plain"), [
    (take, xump.Engine.take), (get, xump.Engine.get), (publish, xump.Engine.publish), (request, xump.Engine.request)])
def test_arguments_and_defaults_are_those_of_the_engine(waits, plain):
    ours, theirs = (list(inspect.signature(call).parameters.values())[1:] for call in (waits, plain))
    assert [(one.name, one.default, one.kind) for one in ours] == [
        (one.name, one.default, one.kind) for one in theirs if one.name != "self"]


@pytest.mark.parametrize("call", [get, request, publish])
@pytest.mark.parametrize(("timeout", "error"), [("1", TypeError), (True, TypeError), (-1, ValueError), (math.nan, ValueError)])
def test_timeouts_are_checked_before_anything_happens(engine, run, call, timeout, error):
    async def main():
        with pytest.raises(error, match="timeout"):
            await call(engine, "alice", timeout=timeout)

    run(main)
    assert engine.queues["alice"].last_id == 0


def test_a_wrong_timeout_takes_no_message(engine, run):
    queue = engine.create_queue("jobs")
    queue.publish("m")

    async def main():
        with pytest.raises(ValueError, match="timeout"):
            await get(engine, queue, timeout=-1)

    run(main)
    assert queue.ready == 1
