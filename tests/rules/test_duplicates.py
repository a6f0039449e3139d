"""Rules about publishes that come twice: many of one call are like one after the other."""

import random

import pytest

from tests.rules.seen import stats
from xump import Engine, Message

IDS = [None, "a", "b", "c", "d", "e" * 40, "f", "grün", "\u4e2d", "g" * 3_000, "h", "i"]
OPTIONS = [{}, {"priority": 3}, {"ttl": 60.0}, {"limit": 1_000}]
"""Of the queue: each goes another way through `publish_many`."""


def one_after_the_other(engine, ids):
    """The range that `publish_many` returns for what entered."""
    entered = []
    for number, message_id in ids:
        before = stats(engine, "q")["duplicates"]
        id = engine.publish("q", f"{number}", message_id=message_id)
        if stats(engine, "q")["duplicates"] == before:
            entered.append(id)
    return range(entered[0], entered[-1] + 1) if entered else range(0)


def there(engine):
    messages = [(message.id, message.address, message.message_id) for message in engine.queues["q"].browse()]
    return messages, stats(engine, "q")["duplicates"]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ", ".join(options) or "nothing else")
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_many_are_like_one_after_the_other(options, limit):
    draw = random.Random(f"{options} {limit}")
    with Engine() as engine, Engine() as other:
        for one in engine, other:
            one.create_queue("q", dedup=60.0, dedup_limit=limit, **options)
        for _ in range(60):
            ids = [(draw.random(), draw.choice(IDS)) for _ in range(draw.choice([0, 1, 2, 7, 8, 9, 16, 17, 30]))]
            messages = [Message(f"{number}", message_id=message_id) for number, message_id in ids]
            assert engine.publish_many("q", messages) == one_after_the_other(other, ids)
            assert there(engine) == there(other)
            engine.check()
