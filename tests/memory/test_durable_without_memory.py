"""Memory ends in an engine with a durable store: the Nth allocation of the core fails, N counting up, once and for ever.

The call raises MemoryError and nothing has changed, or the store has failed and says so, or the engine is shut. Whatever happens,
what was confirmed is there when the store is opened again. Each case runs in a process of its own,
`python -m tests.memory.test_durable_without_memory NAME`.
"""

import sys
import tempfile
from collections import Counter

import pyarrow
import pytest

from tests.memory.failing_malloc import outcomes_of, tell_outcomes
from xump import Closed, Engine, StoreFailed, always, deliver

LARGE = bytes(1 << 20)      # more than the buffer has at first
SMALL, EVERYWHERE = bytes(4560), 55      # together they just fit into the buffer
MANY = 600                  # more ends than are written as they come


def reject_some(engine, deliveries):
    with engine.transaction() as transaction:
        for delivery in deliveries[:20]:
            transaction.reject(delivery)
        for delivery in deliveries[20:30]:
            transaction.ack(delivery)
        transaction.publish("q", "new", LARGE)
    return {"q": Counter([LARGE]), "dead": Counter(b"%d" % number for number in range(20))}, range(30)


def nack_batch(engine, deliveries):
    del deliveries
    engine.take_batch(20, "e").nack()
    return {"dead": Counter(b"%d" % number for number in range(20))}, ()


def publish(engine, deliveries):
    del deliveries
    engine.publish("q", "x", LARGE)
    return {"q": Counter([LARGE])}, ()


def publish_many(engine, deliveries):
    del deliveries
    engine.publish_many("q", [("x", LARGE)] * 4)
    return {"q": Counter([LARGE] * 4)}, ()


def publish_batch(engine, deliveries):
    del deliveries
    engine.publish_batch("q", pyarrow.table({"body": [LARGE] * 3}))
    return {"q": Counter([LARGE] * 3)}, ()


def ack_many(engine, deliveries):
    engine.ack(deliveries[::2])             # every other one, so that each end is a record of its own
    return {}, range(0, MANY, 2)


def publish_everywhere(engine, deliveries):
    """The last records of the group say the states of all these queues, and do not fit into the buffer."""
    del deliveries
    with engine.transaction() as transaction:
        for number in range(EVERYWHERE):
            transaction.publish(f"q{number}", "x", SMALL)
    return {f"q{number}": Counter([SMALL]) for number in range(EVERYWHERE)}, ()


CALLS = {call.__name__: call
         for call in (publish, publish_many, publish_batch, ack_many, reject_some, nack_batch, publish_everywhere)}


def filled(path, queues):
    """The engine, the deliveries of its first queue, and what is in its queues."""
    engine = Engine()
    engine.create_store("s", "ring", path=path, durability="sync")
    engine.create_queue("dead", store="s")
    engine.create_queue("q", store="s", dead_letter="dead")
    engine.create_queue("few", store="s", dead_letter="dead", delivery_limit=1)
    with engine.building():
        for number in range(queues):
            engine.create_queue(f"q{number}", store="s")
    engine.publish_many("q", [("x", b"%d" % number) for number in range(MANY)])
    engine.publish_many("few", [("x", b"%d" % number) for number in range(20)])
    engine.create_selector("q", when=always, do=deliver("d"), credit=MANY)
    engine.create_selector("few", when=always, do=deliver("e"), credit=20)
    return engine, engine.take(MANY, "d")


def contents(path):
    with Engine() as engine:
        engine.create_store("s", "ring", path=path)
        engine.check()
        return {name: Counter(message.body for message in queue.browse()) for name, queue in engine.queues.items()}


def one(name, at, ever, shim):
    """What happened: "done", "unchanged", "failed" or "shut"; and how many allocations failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/s"
        engine, deliveries = filled(path, EVERYWHERE if name == "publish_everywhere" else 0)
        raised, came, gone = None, {}, ()
        shim.fail_at(at, ever)
        try:
            came, gone = CALLS[name](engine, deliveries)
        except (MemoryError, Closed, StoreFailed) as error:
            raised = error
        failed = shim.failures()
        outcome = "done" if raised is None else "failed" if isinstance(raised, StoreFailed) else "unchanged"
        try:
            engine.check()
            if outcome == "unchanged":
                assert isinstance(raised, MemoryError), (name, at, ever, raised)
                engine.publish("q", "x", b"later")
                came = {"q": Counter([b"later"])}
        except Closed:
            outcome = "shut"
        try:
            engine.close()
        except StoreFailed:
            assert outcome in ("failed", "shut"), (name, at, ever)
        check_contents(contents(path), came, gone, outcome, (name, at, ever))
        return outcome, failed


def check_contents(found, came, gone, outcome, where):
    """All that was confirmed is there. If nothing had changed, that is all."""
    before = {name: Counter() for name in found}
    before |= {"q": Counter(b"%d" % number for number in range(MANY) if number not in gone),
              "few": Counter(b"%d" % number for number in range(20)), "dead": Counter()}
    if where[0] == "nack_batch" and outcome == "done":
        before["few"] = Counter()
    if outcome in ("done", "unchanged"):
        assert found == {name: count + came.get(name, Counter()) for name, count in before.items()}, where
    else:
        everything = found["q"] + found["few"] + found["dead"]
        assert not before["q"] + before["few"] - everything, where


@pytest.mark.parametrize("name", CALLS)
def test_what_is_confirmed_is_there_wherever_memory_ended(name, shim):
    outcomes = outcomes_of("tests.memory.test_durable_without_memory", name, shim)
    assert outcomes[-1] == "done" and len(set(outcomes)) > 1


if __name__ == "__main__":
    tell_outcomes(one, sys.argv[1])
