"""The client for asyncio does what the other one does."""

import asyncio
import inspect

import pyarrow as pa
import pytest

from tests.broker.flight.conftest import until
from xump.broker import AsyncClient, Client
from xump.broker.aio_client import THREADS_MAX
from xump.broker.answers import BrokerUnreachable, Published
from xump.errors import QueueNotFound, StaleDelivery

ROWS = pa.table({"address": ["a", "b", "c"]})


def test_it_has_the_same_calls_with_the_same_arguments():
    calls = {name for name in vars(Client) if not name.startswith("_")}
    assert calls == {name for name in vars(AsyncClient) if not name.startswith("_")}
    for name in (*calls, "__init__"):
        assert list(inspect.signature(getattr(Client, name)).parameters.values()) == list(
            inspect.signature(getattr(AsyncClient, name)).parameters.values()), name


def test_every_call(engine, flying):
    async def main():
        async with AsyncClient(flying.flight.url) as client:
            await client.apply({"version": 1, "queues": {"jobs": {}}})
            await client.create_queue("other")
            assert await client.publish("jobs", ROWS) == Published(3, 1, 3)
            assert [one.rows async for one in client.publishing("jobs", ROWS.to_batches(2))] == [2, 1]
            assert [batch.num_rows async for batch in client.browse("jobs", start=2, columns=["id"])] == [5]
            assert (await client.offsets("jobs")).last_id == 6
            assert (await client.target("jobs")).is_durable is False
            assert len((await client.plan("jobs", 2)).parts) == 2
            assert [queue["ready"] for queue in await client.queues()] == [6, 0]
            assert (await client.stats())["queues"]["jobs"]["ready"] == 6
            assert await client.topology() == engine.topology()
            await client.sync()
            part = await client.stage("run", 0, 0, "other", ROWS)
            assert (await client.commit("run", "other", [part])).rows == 3
            assert await client.abort("run", "other") == "committed"
            assert await client.purge("other") == 3
            assert await client.delete_queue("other")
            async with client.take("jobs", credit=4, timeout=0.1) as taken:
                seen = []
                async for batch in taken:
                    seen += batch.column("id").to_pylist()
                    await taken.ack(batch)
            assert seen == [1, 2, 3, 4, 5, 6]
            with pytest.raises(StaleDelivery):
                await taken.nack([1])
            with pytest.raises(QueueNotFound):
                await client.publish("nowhere", ROWS)

    asyncio.run(main())
    until(lambda: len(flying.flight.calls) == 0)


def test_a_task_that_is_cancelled_ends_its_stream(engine, flying):
    engine.create_queue("jobs")

    async def take(client):
        async with client.take("jobs") as taken:
            async for batch in taken:
                await taken.ack(batch)

    async def main():
        async with AsyncClient(flying.flight.url) as client:
            task = asyncio.create_task(take(client))
            await asyncio.to_thread(until, lambda: engine.selectors)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    until(lambda: len(flying.flight.calls) == 0 and not engine.selectors)


def test_streams_that_wait_hold_no_call_up(engine, flying):
    engine.create_queue("jobs")

    async def take(client):
        async with client.take("jobs") as taken:
            async for _ in taken:
                pass

    async def main():
        async with AsyncClient(flying.flight.url) as client:
            tasks = [asyncio.create_task(take(client)) for _ in range(THREADS_MAX + 1)]
            await asyncio.to_thread(until, lambda: len(engine.selectors) == len(tasks))
            async with asyncio.timeout(60):
                assert [one["name"] for one in await client.queues()] == ["jobs"]
            for task in tasks:
                task.cancel()
            assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*tasks, return_exceptions=True))

    asyncio.run(main())
    until(lambda: len(flying.flight.calls) == 0 and not engine.selectors)


def test_a_reader_that_is_left_ends(engine, flying):
    engine.create_queue("jobs")
    engine.publish_many("jobs", [("x", bytes(1000))] * 50_000)

    async def main():
        async with AsyncClient(flying.flight.url) as client:
            batches = client.browse("jobs")
            assert (await anext(batches)).num_rows > 0
            await batches.aclose()

    asyncio.run(main())
    until(lambda: len(flying.flight.calls) == 0)


def test_no_broker():
    async def main():
        async with AsyncClient("grpc://127.0.0.1:1", timeout=3) as client:
            with pytest.raises(BrokerUnreachable):
                await client.queues()

    asyncio.run(main())
