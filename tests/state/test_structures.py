"""Structures that small worlds do not reach: an index of many pages with gaps, a backlog that came back in any order, parked
waitsets that are divided. After each bit of work the laws are checked, and what is seen is compared with a list."""

import random
from datetime import UTC, datetime

import pytest

import xump
from xump import always, copy_to, deliver, discard, match

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


@pytest.mark.parametrize("seed", range(5))
def test_what_came_back_in_any_order_is_taken_in_order(engine, seed):
    chance = random.Random(seed)
    queue = engine.create_queue("q")
    first = engine.create_selector("q", when=always, do=deliver("d"), credit=200)
    engine.publish_many("q", [("even" if n % 2 == 0 else "odd",) for n in range(1, 301)])
    taken = engine.take(200)
    first.disable()
    chance.shuffle(taken)
    left = set(range(1, 301))
    for at, delivery in enumerate(taken):
        if delivery.id in left:
            delivery.nack()
        if at % 10 == 0:
            gone = chance.choice([delivery.id, chance.choice(sorted(left))])
            assert queue.delete(gone) == (gone in left)
            left.discard(gone)
            engine.check()
    engine.create_selector("q", when=match("eq", "even"), do=deliver("even"), credit=20)       # divides the group
    engine.check()
    evens = sorted(id for id in left if id % 2 == 0)[:20]
    assert [delivery.id for delivery in engine.take(100, "even")] == evens
    engine.check()
    first.enable()
    rest = [delivery.id for delivery in engine.take(300, "d")]
    assert rest == sorted(left - set(evens))[:200]
    engine.delete_queue("q")        # with what stands aside


def test_many_that_come_back_at_once(engine):
    queue = engine.create_queue("q")
    selector = engine.create_selector("q", when=always, do=deliver("d"), credit=100)
    engine.publish_many("q", [("m",)] * 150)
    batch = engine.take_batch(100)
    selector.disable()
    batch.nack([*range(100, 0, -3), *range(99, 0, -3), *range(98, 0, -3)])
    engine.check()
    assert (queue.ready, queue.outstanding) == (150, 0)
    selector.enable()
    assert [delivery.id for delivery in engine.take(100)] == list(range(1, 101))
    selector.delete()               # they come back once more, and wait beside the others
    engine.check()
    engine.create_selector("q", when=always, do=deliver("d"), credit=150)
    assert [delivery.id for delivery in engine.take(150)] == list(range(1, 151))


def test_parked_messages_are_found_after_their_groups_were_divided(engine):
    engine.create_queue("q")
    engine.create_queue("b")
    copier = engine.create_selector("q", when=always, do=copy_to("b"), enabled=False)
    other = engine.create_selector("q", when=match("prefix", "x"), do=copy_to("b"), enabled=False)
    engine.publish_many("q", [("x1",), ("y2",), ("x3",), ("y4",), ("x5",)])
    short = engine.create_selector("q", when=match("eq", "y4"), do=deliver("d"), credit=0)
    engine.check()
    with engine.building():
        other.enable()
        other.disable()             # nothing came of it
    assert engine.queues["b"].ready == 0
    with engine.building():
        copier.enable()
        engine.queues["q"].hold()
    assert engine.queues["b"].ready == 0
    engine.check()
    short.delete()
    engine.queues["q"].release()
    assert [message.address for message in engine.queues["b"].browse()] == ["x1", "y2", "x3", "y4", "x5"]
    assert engine.queues["q"].ready == 0


def test_a_copier_that_starts_later_wakes_only_what_came_since(engine):
    engine.create_queue("q")
    engine.create_queue("b")
    engine.create_selector("q", when=always, do=copy_to("b"), enabled=False)
    engine.publish_many("q", [("early",)] * 3)
    late = engine.create_selector("q", when=always, do=copy_to("b"), enabled=False)
    engine.publish_many("q", [("late",)] * 3)
    late.enable()
    assert [message.address for message in engine.queues["b"].browse()] == ["late"] * 3
    assert [message.address for message in engine.queues["q"].browse(state="ready")] == ["early"] * 3
    engine.create_selector("q", when=always, do=copy_to("b"), start=2)
    assert [message.address for message in engine.queues["b"].browse()][3:] == ["early"] * 2
    engine.check()


def test_queues_come_and_go_while_something_comes_back(engine):
    """Lists of queues are left from anywhere."""
    for name in ("a", "b", "c", "d"):
        engine.create_queue(name)
        engine.create_selector(name, when=always, do=deliver("d"))
        engine.publish(name)
    taken = {delivery.queue.name: delivery for delivery in engine.take(4)}
    with engine.building():
        for name in ("b", "a", "d"):
            taken[name].nack()
            engine.check()
            engine.delete_queue(name)
            engine.check()
        engine.create_selector("c", when=match("eq", "x"), do=discard)
    taken["c"].nack()
    assert [delivery.queue.name for delivery in engine.take(4)] == ["c"]


def test_an_empty_chunk_is_kept_only_alone(engine):
    """The newest message has the second chunk for itself, and goes; then one goes from the first chunk, which was full."""
    first, second = engine.create_queue("first"), engine.create_queue("second")
    for id in range(1, 801):        # a chunk holds some 700
        engine.publish_many("first", [(), ()])
        second.publish()
        second.purge()
        first.delete(id)
        engine.check()
