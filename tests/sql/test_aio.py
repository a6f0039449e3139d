"""The same with asyncio, on both databases. What the synchronous tests show of statements is not shown again."""

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.util import await_only, greenlet_spawn

import xump
import xump.sql
from tests.sql.conftest import BUSINESS, set_up, until
from xump.sql import aio
from xump.sql.hosts import LoopEvent, LoopHost


@pytest.fixture
def run(url):
    return running_on(url)


def running_on(url):
    def run(main):
        async def around():
            database = set_up(create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:")))
            try:
                await aio.check(database)
                return await main(database)
            finally:
                await database.dispose()

        return asyncio.run(around())

    return run


async def business(database):
    async with database.connect() as connection:
        return len((await connection.execute(BUSINESS.select())).all())


def test_outbox_and_relay(run):
    async def main(database):
        box = aio.Outbox()
        async with database.begin() as connection:
            await box.publish(connection, "orders", "new", b"1", key="k")
            await box.publish_many(connection, [{"queue": "orders", "body": b"2", "key": "k"}])
        async with AsyncSession(database) as session, session.begin():
            await box.publish(session, "orders", "new", b"3", key="k")
        with xump.Engine() as engine:
            engine.create_queue("orders")
            relay = box.relay(engine, engine=database, poll=1000)
            running = asyncio.create_task(relay.run())
            async with AsyncSession(database) as session, session.begin():
                await box.publish(session, "orders", "new", b"4", key="k")
            engine.create_selector("orders", when=xump.always, do=xump.deliver("reader"), credit=10)
            found = []
            while len(found) < 4:
                found += [delivery.body for delivery in await asyncio.to_thread(engine.take, 1, "reader", timeout=30)]
            relay.stop()
            await running
            async with database.connect() as connection:
                assert (await box.stats(connection))["waiting"] == 0
            return found

    assert run(main) == [b"1", b"2", b"3", b"4"]


def test_inbox(run):
    async def main(database):
        box, results = aio.Inbox(), []

        async def handler(connection, message):
            await connection.execute(BUSINESS.insert().values(what=message.message_id))

        with xump.Engine() as engine:
            engine.create_queue("jobs")
            engine.create_selector("jobs", when=xump.always, do=xump.deliver("worker"), credit=10)
            for name in ("a", "a", "b"):
                engine.publish("jobs", message_id=name)
            for delivery in engine.take(2, "worker"):
                results.append(await box.handle(database, delivery, handler))
            results.append(await box.receive(database, engine.take(9, "worker")))
            results.append(await box.process(handler, engine=database, workers=2).step())
            for _ in range(2):
                async with database.begin() as connection:
                    async with box.once(connection, source="s", message_id="1") as fresh:
                        results.append(fresh)
            with pytest.raises(KeyError):
                async with database.begin() as connection, box.once(connection, source="s", message_id="2"):
                    raise KeyError
            async with database.begin() as connection, box.once(connection, source="s", message_id="2") as fresh:
                results.append(fresh)
            results.append(await box.purge(database))
            engine.check()
        return results, await business(database)

    assert run(main) == ([True, False, 1, 1, True, False, True, 0], 2)


@pytest.mark.parametrize("how", ["handle", "once"])
def test_a_handler_that_rolls_back_has_nothing_acked(run, how):
    async def main(database):
        box = aio.Inbox()

        async def handler(connection, message):
            await connection.execute(BUSINESS.insert().values(what="lost"))
            await connection.rollback()

        with xump.Engine() as engine:
            jobs = engine.create_queue("jobs")
            engine.create_selector("jobs", when=xump.always, do=xump.deliver("worker"), credit=1)
            engine.publish("jobs", message_id="1")
            [delivery] = engine.take(1, "worker")
            with pytest.raises(xump.sql.TransactionAborted):
                if how == "handle":
                    await box.handle(database, delivery, handler)
                else:
                    with delivery:
                        async with AsyncSession(database) as session, box.once(session, delivery):
                            await handler(session, delivery.message)
            return len(engine.take(1, "worker")), jobs.outstanding

    assert run(main) == (1, 1)


def test_tasks(run):
    async def main(database):
        tasks, seen = aio.Tasks(database), []
        both = asyncio.Event()

        @tasks.task()
        async def note(number):
            seen.append(number)
            if len(seen) == 2:
                both.set()
            await both.wait()               # they run at once

        @tasks.task(transaction=True, retry_delay=1000)
        async def pay(connection, what, fails=False):
            await connection.execute(BUSINESS.insert().values(what=what))
            if fails:
                raise KeyError("broken")

        async with database.begin() as connection:
            await tasks.enqueue(connection, "note", [1])
            await tasks.enqueue_many(connection, [{"name": "note", "payload": 2}, {"name": "pay", "payload": ["a"]},
                                                  {"name": "pay", "payload": {"what": "b", "fails": True}}])
            assert await tasks.cancel(connection, await tasks.enqueue(connection, "note", [3]))
        worker = tasks.worker(concurrency=2)
        done = await worker.drain()
        cleaned = await tasks.cleaner().step()
        async with database.connect() as connection:
            stats = await tasks.stats(connection)
        return done, sorted(seen), worker.loop.failed, cleaned["retried"], stats["delayed"], await business(database)

    assert run(main) == (3, [1, 2], 1, 0, 1, 1)


def test_a_processor_handles_as_many_at_once_as_it_has_workers(postgres_url):
    async def main(database):
        box, running, both = aio.Inbox(), [], asyncio.Event()

        async def handler(connection, message):
            running.append(message.message_id)
            if len(running) == 2:
                both.set()
            await both.wait()

        with xump.Engine() as engine:
            engine.create_queue("jobs")
            engine.create_selector("jobs", when=xump.always, do=xump.deliver("worker"), credit=10)
            for name in ("a", "b"):
                engine.publish("jobs", message_id=name)
            await box.receive(database, engine.take(9, "worker"))
        processor = box.process(handler, engine=database, workers=2, batch=1)
        run = asyncio.create_task(processor.run())
        await asyncio.wait_for(both.wait(), 60)
        processor.stop()
        await run
        return processor.loop.handled

    assert running_on(postgres_url)(main) == 2          # SQLite has one writer at a time, and so one handler


def test_a_processor_that_is_cancelled_leaves_none_of_its_workers_behind(run):
    async def main(database):
        box = aio.Inbox()
        others = asyncio.all_tasks()
        processor = box.process(None, engine=database, workers=3, poll=1000)
        host, waiting = processor.loop._host, []
        wait, all_wait = host.wait, asyncio.Event()

        def waited(event, seconds):
            waiting.append(seconds)
            if len(waiting) == 3:
                all_wait.set()
            return wait(event, seconds)

        host.wait = waited
        running = asyncio.create_task(processor.run())
        await asyncio.wait_for(all_wait.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return asyncio.all_tasks() - others

    assert run(main) == set()


def test_a_worker_that_is_cancelled_writes_down_what_ended_while_it_waited(run):
    async def main(database):
        tasks, began, go_on = aio.Tasks(database), asyncio.Event(), asyncio.Event()

        @tasks.task()
        async def note():
            began.set()
            await go_on.wait()              # it ends while the worker waits for it

        async with database.begin() as connection:
            await tasks.enqueue(connection, "note")
        worker = tasks.worker(poll=1000)
        host, idle = worker.loop._host, asyncio.Event()
        wait = host.wait

        def waited(event, seconds):
            idle.set()
            return wait(event, seconds)

        host.wait = waited
        running = asyncio.create_task(worker.run())
        await asyncio.wait_for(began.wait(), 60)
        await asyncio.wait_for(idle.wait(), 60)
        running.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await running
        async with database.connect() as connection:
            return worker.loop.finished, (await tasks.stats(connection))["running"]

    assert run(main) == (1, 0)


def test_what_is_done_again_and_again_ends_behind_its_transaction():
    async def main():
        host, began, go_on, ended = LoopHost(create_async_engine("sqlite+aiosqlite://")), asyncio.Event(), asyncio.Event(), []

        def beat():
            began.set()
            await_only(go_on.wait())
            ended.append("whole")

        def loop():
            end = host.every(0.001, beat)
            await_only(began.wait())
            asyncio.get_running_loop().call_soon(go_on.set)
            end()
            return list(ended)

        return await greenlet_spawn(loop)

    assert asyncio.run(main()) == ["whole"]


@pytest.mark.parametrize("ticks", range(5))
def test_a_cancellation_that_comes_with_a_wake_up_is_not_forgotten(ticks):
    async def main():
        event = LoopEvent()

        async def loop():
            while True:
                await event.wait(1000)
                event.clear()

        running = asyncio.create_task(loop())
        await asyncio.sleep(0)
        event.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        running.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        cancelled = running.cancelled()
        running.cancel()
        return cancelled

    assert asyncio.run(main())


def test_a_task_is_enqueued_by_itself_and_a_core_connection_wakes(run):
    async def main(database):
        tasks, ran, box = aio.Tasks(database), asyncio.Event(), aio.Outbox()

        @tasks.task()
        async def note(number, more=0):
            """What it does."""
            if number + more == 3:
                ran.set()
            return number

        assert (note.__name__, note.__doc__, await note(7)) == ("note", "What it does.", 7)
        worker = tasks.worker(poll=1000, retry_time=1000)
        running = asyncio.create_task(worker.run())
        with tasks.waking(), box.waking():
            async with database.begin() as connection:
                assert await note.enqueue(connection, 1, more=2) >= 1
        await asyncio.wait_for(ran.wait(), 60)
        worker.stop()
        await running
        return worker.loop.finished

    assert run(main) == 1


def test_a_worker_that_waits_is_woken_and_stopped(run):
    async def main(database):
        tasks, ran = aio.Tasks(database), asyncio.Event()

        @tasks.task()
        async def note():
            ran.set()

        worker = tasks.worker(poll=1000)
        running = asyncio.create_task(worker.run())
        for _ in range(3):
            async with AsyncSession(database) as session, session.begin():
                await tasks.enqueue(session, "note")
            await asyncio.wait_for(ran.wait(), 30)
            ran.clear()
        worker.stop()
        await running
        return worker.loop.finished

    assert run(main) == 3


def test_metrics(run):
    async def main(database):
        box, jobs = aio.Outbox(), aio.Tasks(database)
        worker = jobs.worker()
        watch = aio.Metrics(database, outbox=box, tasks=jobs, loops={"tasks": [worker]}, every=0.01)
        with box.waking(None):
            async with database.begin() as connection:
                await box.publish(connection, "orders")
        assert (await watch.look())["outbox"]["waiting"] == 1
        running = asyncio.create_task(watch.run())
        async with database.begin() as connection:
            await box.publish(connection, "orders")
        await asyncio.to_thread(until, lambda: watch.numbers["outbox"]["waiting"] == 2)
        watch.stop()
        await running
        assert watch.numbers["tasks"]["per_second"] == 0
        worker.loop.finished += 5
        assert (await watch.look())["tasks"]["per_second"] > 0

        class Broker:
            beside = {}

        watch.show_on(Broker)
        return Broker.beside["outbox"]()["waiting"]

    assert run(main) == 2


def test_it_has_what_programs_need_beside_it():
    """A program that imports `xump.sql.aio` alone finds all names of the synchronous one that need no await, too."""
    for name in ("tables", "configure_sqlite", "Wake"):
        assert getattr(aio, name) is getattr(xump.sql, name)
    for kind in ("Outbox", "Inbox", "Tasks", "Metrics"):
        there = {name for name in vars(getattr(xump.sql, kind)) if not name.startswith("_")}
        assert there <= set(dir(getattr(aio, kind))), kind
