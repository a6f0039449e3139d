"""Large queues are emptied by slices: others are served meanwhile, and the client that asked gets its answers in order."""

import asyncio

import pytest

from tests.broker.raw_client import Link
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content, ready
from xump.broker import purging
from xump.errors import QueueNotFound

MANY = 5 * purging.SLICE + 1


@pytest.fixture
def link(broker):
    link = Link("a", broker.address, [])
    link.connect(Connect())
    yield link
    link.socket.close()


@pytest.fixture
def jobs(engine):
    jobs = engine.create_queue("jobs")
    engine.publish_many("jobs", [("jobs", b"x")] * MANY)
    return jobs


def test_others_have_their_turn_between_slices(engine, jobs):
    async def main():
        task = asyncio.create_task(purging.purge(jobs))
        seen = []
        await asyncio.sleep(0)
        while not task.done():
            seen.append(jobs.ready)
            engine.publish("jobs", "late")
            await asyncio.sleep(0)
        return await task, seen

    purged, seen = asyncio.run(main())
    assert purged == MANY and len(seen) >= 5 and jobs.ready == len(seen)     # what came meanwhile stays


def test_what_was_taken_stays(engine, jobs):
    taken = [engine.get("jobs") for _message in range(3)]
    assert asyncio.run(purging.purge(jobs)) == MANY - 3
    assert jobs.outstanding == 3
    for delivery in taken:
        delivery.ack()


def test_a_queue_that_goes_meanwhile(engine, jobs):
    async def main():
        task = asyncio.create_task(purging.purge(jobs))
        await asyncio.sleep(0)
        engine.delete_queue("jobs")
        return await task

    assert 0 < asyncio.run(main()) < MANY
    with pytest.raises(QueueNotFound):
        asyncio.run(purging.purge(jobs))


@pytest.mark.parametrize("method", ["purge", "delete"])
def test_what_comes_after_it_waits(link, jobs, method):
    """All in one write: what was published before is gone, what is published after is there."""
    link.write(b"".join([*content(b"before")]))
    link.send(1, f"queue.{method}", queue="jobs")
    link.send(1, "queue.declare", queue="jobs", passive=method == "purge")
    link.write(b"".join([*content(b"after")]))
    link.send(1, "basic.get", queue="jobs", no_ack=True)
    assert link.read_until({f"queue.{method}ok"}) and link.last["message_count"] == MANY + 1
    assert link.read_until({"basic.getok"}) and link.said[-1][3]["body"] == "after"
    assert ready(link) == 0


def test_a_client_that_goes_meanwhile_has_purged(broker, link, jobs):
    other = Link("b", broker.address, [])
    other.connect(Connect())
    other.send(1, "queue.purge", queue="jobs", nowait=True)
    other.socket.close()
    while ready(link):
        pass
    assert jobs.ready == 0


def test_a_queue_on_disk(engine, tmp_path):
    engine.create_store("disk", "ring", path=str(tmp_path / "disk.xump"))
    jobs = engine.create_queue("orders", store="disk")
    engine.publish_many("orders", [("orders", b"x")] * MANY)
    assert asyncio.run(purging.purge(jobs)) == MANY and jobs.ready == 0
