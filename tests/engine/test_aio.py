"""Deliveries for asyncio: the right task wakes, a cancelled task takes nothing with it, and nothing stays registered."""

import asyncio
import random
import threading

import pytest

import xump
from tests.patience import PATIENCE
from xump import INFINITE, Parrot, Wolfpack, always, deliver
from xump.aio import SWITCH_AFTER, deliveries, take


@pytest.fixture
def engine(clock):
    with xump.Engine(clock=clock) as engine:
        for name in ("alice", "bob"):
            engine.create_queue(name)
            engine.create_selector(name, when=always, do=deliver(name), credit=INFINITE)
        yield engine
        if not engine.closed:
            engine.check()
            assert engine._waiting_destinations == []


async def turns(n=5):
    """Whatever is due in the loop happens."""
    for _ in range(n):
        await asyncio.sleep(0)


async def waiting(engine, number=1):
    """Until so many wait in the engine."""
    while len(engine._waiting_destinations) != number:
        await turns(1)


def address_of(delivery):
    return delivery.message.address


def started(coroutine):
    return asyncio.ensure_future(coroutine)


def credited(engine, name="work", credit=1):
    """A queue of finite credit, whose deliveries must be acked."""
    queue = engine.create_queue(name)
    engine.create_selector(name, when=always, do=deliver(name), credit=credit)
    return queue


# ---- what is yielded

def test_what_is_there_is_yielded_without_waiting(engine):
    async def main():
        return [address_of(delivery) async for delivery in deliveries(engine, "alice", timeout=0)]

    for n in range(3):
        engine.publish("alice", str(n))
        engine.publish("bob", "not this")
    assert asyncio.run(main()) == ["0", "1", "2"]


def test_every_destination_in_order_of_delivery(engine):
    async def main():
        return [address_of(delivery) async for delivery in deliveries(engine, timeout=0)]

    for n in range(4):
        engine.publish(("alice", "bob")[n % 2], str(n))
    assert asyncio.run(main()) == ["0", "1", "2", "3"]


def test_acks_release_more(engine):
    queue = credited(engine)

    async def main():
        seen = []
        async for delivery in deliveries(engine, "work", timeout=0):
            with delivery as message:
                seen.append(message.address)
        return seen

    for n in range(5):
        queue.publish(str(n))
    assert asyncio.run(main()) == ["0", "1", "2", "3", "4"]


def test_what_was_nacked_is_not_yielded_again(engine):
    queue = credited(engine, credit=5)

    async def main():
        seen = []
        async for delivery in deliveries(engine, "work", timeout=0.01):
            seen.append(address_of(delivery))
            delivery.nack()
        return seen

    queue.publish("a")
    queue.publish("b")
    assert asyncio.run(main()) == ["a", "b"]
    assert asyncio.run(main()) == ["a", "b"], "another iteration has them again"


def test_it_waits_for_what_comes(engine):
    async def main():
        seen = []

        async def consume():
            async for delivery in deliveries(engine, "alice"):
                seen.append(address_of(delivery))
                if seen[-1] == "stop":
                    return

        task = started(consume())
        for address in ("a", "b", "stop"):
            await waiting(engine)
            engine.publish("bob", "wakes nobody")
            await turns()
            assert len(engine._waiting_destinations) == 1
            engine.publish("alice", address)
            await turns()
            assert seen[-1] == address
        await task
        return seen

    assert asyncio.run(main()) == ["a", "b", "stop"]


def test_it_ends_after_the_timeout(engine):
    async def main():
        assert [delivery async for delivery in deliveries(engine, "alice", timeout=0.001)] == []
        assert await take(engine, 5, "alice", timeout=0.001) == []
        assert await take(engine, 5, "alice", timeout=0) == []
        assert await take(engine, 0, "alice") == []

    asyncio.run(main())


def test_take_gives_what_there_is(engine):
    async def main():
        engine.publish_many("alice", [("a",), ("b",), ("c",)])
        assert list(map(address_of, await take(engine, 2, "alice"))) == ["a", "b"]
        assert list(map(address_of, await take(engine, 2))) == ["c"]
        task = started(take(engine, 5, "alice", timeout=None))
        await waiting(engine)
        engine.publish_many("alice", [("d",), ("e",)])
        assert list(map(address_of, await task)) == ["d", "e"]

    asyncio.run(main())


def test_a_recipient(engine):
    polly = Parrot(engine, "parrot").join("polly", "#", credit=2)

    async def main():
        task = started(take(engine, 1, polly.destination, timeout=None))
        await waiting(engine)
        engine.publish("parrot", "news")
        return [address_of(delivery) for delivery in await task]

    assert asyncio.run(main()) == ["news"]


@pytest.mark.parametrize(("arguments", "error"), [
    ({"destination": 1}, TypeError), ({"timeout": "1"}, TypeError), ({"timeout": -1}, ValueError), ({"timeout": True}, TypeError),
])
def test_arguments_are_checked(engine, arguments, error):
    async def main():
        with pytest.raises(error):
            await take(engine, 1, **arguments)
        with pytest.raises(ValueError):
            await take(engine, -1)

    with pytest.raises(error):
        deliveries(engine, **arguments)
    asyncio.run(main())


# ---- tasks

def test_each_delivery_goes_to_one_task(engine):
    async def main():
        seen = []

        async def consume(name):
            async for delivery in deliveries(engine, "alice"):
                seen.append((address_of(delivery), name))

        tasks = [started(consume(n)) for n in range(4)]
        await waiting(engine, 4)
        for n in range(20):
            engine.publish("alice", str(n))
            if n % 3 == 0:
                await turns()
        await waiting(engine, 4)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seen

    assert [address for address, _ in asyncio.run(main())] == [str(n) for n in range(20)]


def test_a_backlog_lets_other_tasks_go_on(engine):
    async def main():
        engine.publish_many("alice", [("x",)] * (3 * SWITCH_AFTER))
        counted = 0

        async def other():
            nonlocal counted
            while True:
                counted += 1
                await asyncio.sleep(0)

        task = started(other())
        async for _ in deliveries(engine, "alice", timeout=0):
            pass
        task.cancel()
        return counted

    assert asyncio.run(main()) >= 2


def test_waiting_costs_no_thread_and_no_poll(engine):
    asked = []

    class Counting(xump.Engine):
        def take(self, *arguments, **keywords):
            asked.append(arguments)
            return super().take(*arguments, **keywords)

    async def main(counting):
        threads = set(threading.enumerate())
        tasks = [started(take(counting, 1, "nobody", timeout=None)) for _ in range(50)]
        await waiting(counting, 50)
        before = len(asked)
        counting.create_queue("q")
        counting.create_selector("q", when=always, do=deliver("somebody"))
        for _ in range(100):
            counting.publish("q")
            await turns(1)
        assert len(asked) == before
        assert set(threading.enumerate()) <= threads
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert counting._waiting_destinations == []

    with Counting() as counting:
        asyncio.run(main(counting))


# ---- cancellation

def test_a_task_that_is_cancelled_while_it_waits_takes_nothing(engine):
    queue = credited(engine)

    async def main():
        for waits in (lambda: take(engine, 1, "work", timeout=None), lambda: anext(deliveries(engine, "work"))):
            task = started(waits())
            await waiting(engine)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert engine._waiting_destinations == []
        queue.publish("x")
        return [address_of(delivery) for delivery in await take(engine, 1, "work", timeout=None)]

    assert asyncio.run(main()) == ["x"]


def test_a_task_that_is_cancelled_when_it_was_woken_takes_nothing(engine):
    queue = credited(engine)

    async def main():
        for n in range(3):
            task = started(anext(deliveries(engine, "work")))
            await waiting(engine)
            queue.publish(str(n))
            for _ in range(n):
                await asyncio.sleep(0)          # 0: the callback is due; 1: the future is done
            if not task.done():
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                [delivery] = await take(engine, 1, "work", timeout=None)
            else:
                delivery = task.result()
            assert address_of(delivery) == str(n)
            delivery.ack()

    asyncio.run(main())


def test_an_iterator_goes_on_after_a_cancelled_wait(engine):
    async def main():
        source = deliveries(engine, "alice")
        for n in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await anext(source)
            engine.publish("alice", str(n))
            assert address_of(await anext(source)) == str(n)

    asyncio.run(main())


def test_another_task_gets_what_a_cancelled_one_was_woken_for(engine):
    async def main():
        first, second = started(take(engine, 1, "alice", timeout=None)), started(take(engine, 1, "alice", timeout=None))
        await waiting(engine, 2)
        engine.publish("alice", "x")
        first.cancel()
        assert address_of((await second)[0]) == "x"
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(main())


def test_cancelled_at_random_nothing_is_lost(engine):
    chance = random.Random(4)
    queue = credited(engine, credit=3)
    seen = []

    async def consume():
        async for delivery in deliveries(engine, "work"):
            with delivery as message:
                seen.append(message.address)

    async def main():
        tasks = [started(consume()) for _ in range(3)]
        for n in range(300):
            queue.publish(str(n))
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            unlucky = chance.randrange(3)
            tasks[unlucky].cancel()
            if chance.random() < 0.5:
                await asyncio.gather(tasks[unlucky], return_exceptions=True)
            tasks[unlucky] = started(consume())
        while len(seen) < 300:
            await turns(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert sorted(map(int, seen)) == list(range(300))
    assert queue.outstanding == 0


def test_a_loop_that_ends_leaves_nothing_behind(engine):
    async def main():
        started(take(engine, 1, "alice", timeout=None))
        await waiting(engine)

    asyncio.run(main())
    assert engine._waiting_destinations == []
    engine.publish("alice", "x")


def test_a_loop_that_was_abandoned_harms_nobody(engine):
    loop = asyncio.new_event_loop()
    task = loop.create_task(take(engine, 1, "alice", timeout=None))
    loop.run_until_complete(waiting(engine))
    loop.close()
    engine.publish("alice", "x")
    assert [address_of(delivery) for delivery in engine.take(1, "alice")] == ["x"]
    assert not task.done()
    task._log_destroy_pending = False


# ---- threads and loops

def test_publishers_in_other_threads_wake_the_loop(engine):
    async def main():
        seen = []

        def publish(name):
            for n in range(200):
                engine.publish("alice", f"{name} {n}")

        threads = [threading.Thread(target=publish, args=(name,)) for name in "abc"]
        task = started(take(engine, 1, "alice", timeout=None))
        await waiting(engine)
        for thread in threads:
            thread.start()
        seen += map(address_of, await task)
        async for delivery in deliveries(engine, "alice"):
            seen.append(address_of(delivery))
            if len(seen) == 600:
                break
        for thread in threads:
            thread.join()
        return seen

    seen = asyncio.run(main())
    for name in "abc":
        assert [address for address in seen if address[0] == name] == [f"{name} {n}" for n in range(200)]


def test_loops_and_threads_share_a_pack(engine):
    pack = Wolfpack(engine, "pack")
    for name in ("loop-1", "loop-2", "thread"):
        pack.join(name, credit=2)
    seen = []

    async def consume(name):
        async for delivery in deliveries(engine, name):
            with delivery as message:
                seen.append(int(message.address))
                if message.headers:
                    return

    def wait(name):
        for delivery in engine.deliveries(name, timeout=None):
            with delivery as message:
                seen.append(int(message.address))
                if message.headers:
                    return

    threads = [threading.Thread(target=lambda name=name: asyncio.run(consume(name))) for name in ("loop-1", "loop-2")]
    threads.append(threading.Thread(target=wait, args=("thread",)))
    for thread in threads:
        thread.start()
    for n in range(300):
        engine.publish("pack", str(n))
    for n, name in enumerate(("loop-1", "loop-2", "thread")):
        engine.publish(name, str(300 + n), headers={"last": True})
    for thread in threads:
        thread.join()
    assert len(seen) == len(set(seen))
    left = [int(address_of(delivery)) for delivery in engine.take(1000)]
    assert set(seen) | set(left) | {int(m.address) for m in engine.queues["pack"].browse()} == set(range(303))


# ---- the end

@pytest.mark.parametrize("in_thread", [False, True])
def test_closing_wakes_all_and_they_raise(engine, in_thread):
    async def main():
        waits = take(engine, 1, "alice", timeout=None), anext(deliveries(engine, "bob")), take(engine, 1, timeout=PATIENCE)
        tasks = [started(wait) for wait in waits]
        await waiting(engine, 3)
        if in_thread:
            thread = threading.Thread(target=engine.close)
            thread.start()
            thread.join()
        else:
            engine.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(result) for result in asyncio.run(main())] == [xump.Closed] * 3
    assert engine._waiting_destinations == []


def test_after_the_end(engine):
    engine.close()
    with pytest.raises(xump.Closed):
        deliveries(engine, "alice")
    with pytest.raises(xump.Closed):
        asyncio.run(take(engine, 1, timeout=None))
