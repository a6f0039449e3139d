"""Structures that small worlds do not reach: an index of many pages with gaps. After each bit of work the laws are checked, and
what is seen is compared with a list."""

import random
from datetime import UTC, datetime

import pytest

import xump

MICROSECOND = 1_000


@pytest.fixture
def engine(clock):
    made = xump.Engine(clock=clock)
    yield made
    made.check()
    made.close()


def ids(messages):
    return [message.id for message in messages]


@pytest.mark.parametrize("seed", range(5))
def test_an_index_with_gaps_is_found_in_from_anywhere(engine, clock, seed):
    chance = random.Random(seed)
    queue = engine.create_queue("q")
    times = {}
    for _ in range(6):
        for _ in range(400):
            clock.now += chance.choice((0, 0, MICROSECOND))
            times[queue.publish()] = clock.now
        for _ in range(8):      # runs of neighbours, so that pages go, here and there
            first = chance.randrange(1, max(times))
            for id in range(first, first + chance.choice((3, 40, 200))):
                assert queue.delete(id) == (times.pop(id, None) is not None)
        engine.check()
        last = max(times)
        for start in [1, last, last + 1, *(chance.randrange(1, last) for _ in range(20))]:
            assert ids(queue.browse(start, limit=3)) == [id for id in times if id >= start][:3]
            assert ids(queue.browse(start, reverse=True, limit=3)) == [id for id in reversed(times) if id <= start][:3]
        for now in chance.sample(sorted(times.values()), 10):
            start = datetime.fromtimestamp(now // 1_000_000_000, tz=UTC).replace(microsecond=now // 1_000 % 1_000_000)
            assert ids(queue.browse(start, limit=3)) == [id for id, time in times.items() if time >= now][:3]
            assert ids(queue.browse(start, reverse=True, limit=3)) == [id for id in reversed(times) if times[id] <= now][:3]
    assert queue.purge() == len(times)
    assert list(queue.browse()) == []
