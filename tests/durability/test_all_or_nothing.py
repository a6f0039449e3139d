"""A call of many messages enters whole or not at all, also where a store is nearly full: messages that end at once where they
enter, and what overflow selectors and dead letter queues take of them, use the store's room, too."""

import random

import pyarrow
import pytest

from xump import Engine, QueueFull, StoreFull, always, deliver, move_to, overflow

SEGMENT = 1 << 16
STORES = {"lmdb": {"max_bytes": 1 << 20}, "ring": {"segment_bytes": SEGMENT, "min_bytes": 0, "max_bytes": 16 * SEGMENT}}
ROOM = {"lmdb": 700_000, "ring": 900_000}
SIZES = [10, 300, 4_000, 16_000, 40_000, 70_000]
NOW, PAST, FUTURE = 1_000, 500, 2_000


def by_batch(engine, chance, rows, taken):
    engine.publish_batch("jobs", pyarrow.table({
        "address": ["x"] * len(rows), "body": pyarrow.array([body for body, _ in rows], pyarrow.binary()),
        "expires": pyarrow.array([expires for _, expires in rows], pyarrow.timestamp("ns", "UTC"))}))


def by_transaction(engine, chance, rows, taken):
    with engine.transaction() as tx:
        for body, expires in rows:
            tx.publish("jobs", "x", body, expires=expires)
            if taken and chance.random() < 0.4:
                answer = chance.choice([tx.ack, tx.nack, tx.reject])
                answer(taken.pop(chance.randrange(len(taken))))


@pytest.mark.parametrize("publish", [by_batch, by_transaction])
@pytest.mark.parametrize("kind", STORES)
def test_all_or_nothing_at_the_bound_of_a_store(tmp_path, kind, publish):
    """Of each batch it finds the room that is just enough, and looks at what happens with a little more and a little less."""
    tried = 0

    def enters(seed, left):
        nonlocal tried
        tried += 1
        return all_or_nothing(tmp_path / str(tried), kind, publish, random.Random(f"{kind} {publish.__name__} {seed}"), left)
    refused = 0
    for seed in range(14):
        least, most = 0, ROOM[kind]
        if not enters(seed, most):
            refused += 1
            continue
        while most - least > 1_000:
            middle = (least + most) // 2
            least, most = (least, middle) if enters(seed, middle) else (middle, most)
        for left in range(most - 10_000, most + 10_000, 1_000):
            enters(seed, left)
    assert refused < 11 and tried > 150


def all_or_nothing(path, kind, publish, chance, left):
    """Whether it enters where so much room is left."""
    with Engine(clock=lambda: NOW) as engine:
        engine.create_store("s", kind, path=str(path), durability="none", **STORES[kind])
        engine.create_queue("filling", store="s")
        engine.create_queue("late", store="s", limit=chance.choice([None, None, 3]))
        engine.create_queue("over", store="s", limit=chance.choice([None, 1]))
        engine.create_queue("jobs", store="s", limit=chance.choice([1, 2, 4]), dead_letter=chance.choice([None, "late", "late"]))
        if chance.random() < 0.6:
            engine.create_selector("jobs", when=overflow, do=move_to("over"), credit=chance.choice([1, 2, 9]))
        engine.create_selector("filling", when=always, do=deliver("filling"), credit=100)
        rows = [(bytes(chance.choice(SIZES)), chance.choice([None, PAST, FUTURE])) for _ in range(chance.randint(2, 6))]
        fill(engine, left)
        taken = engine.take(3, "filling")
        engine.sync()
        before = state(engine)
        try:
            publish(engine, chance, rows, taken)
        except (QueueFull, StoreFull):
            assert state(engine) == before
            return False
        finally:
            engine.check()
        return True


def fill(engine, left):
    """Until so much room is left, or messages of that size find none."""
    committer = engine._stores["s"].committer
    for size in (20_000, 100):
        try:
            while committer._backend.room() - committer._port.open_bytes > left + size:
                engine.publish("filling", "x", bytes(size))
        except StoreFull:
            pass


def state(engine):
    return engine.stats(), {name: [message.id for message in queue.browse()] for name, queue in engine.queues.items()}
