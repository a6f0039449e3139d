"""Memory ends: the Nth allocation of the core fails, N counting up, once and for ever.

Either the call raises MemoryError and nothing has changed, or the engine is shut: every call says so, and `close` does not
crash. Each case runs in a process of its own, `python -m tests.memory.test_allocation_failures NAME`, which tells of every N.
"""

import sys

import pyarrow
import pytest

from tests.memory.failing_malloc import outcomes_of, tell_outcomes
from xump import INFINITE, Closed, Engine, always, copy_to, default, deliver, match, move_to, overflow, where


def batch(rows):
    return pyarrow.table({"address": ["x.y"] * rows, "body": [b"body"] * rows})


def in_a_transaction(engine):
    deliveries = engine.take(3)
    with engine.transaction() as transaction:
        transaction.publish("a", "x.new", b"body")
        transaction.ack(deliveries[0])
        transaction.nack(deliveries[1])
        transaction.reject(deliveries[2])


def in_building(engine):
    with engine.building():
        engine.publish("a", "x.y")
        engine.publish("a", "x.z")


CALLS = {
    "publish": lambda engine: engine.publish("a", "x.new", b"body", {"n": 1}),
    "publish to many": lambda engine: engine.publish("fan", "x", b"body"),
    "publish_many": lambda engine: engine.publish_many("a", [(f"x.{number}", b"body") for number in range(200)]),
    "publish_batch": lambda engine: engine.publish_batch("a", batch(300)),
    "publish_batch to no selector": lambda engine: engine.publish_batch("z", batch(300)),
    "publish what is parked": lambda engine: engine.publish("p", "x", b"body"),
    "overflow": lambda engine: engine.publish_many("full", [("x",)] * 3),
    "building": in_building,
    "create_queue": lambda engine: engine.create_queue("new"),
    "create_selector": lambda engine: engine.create_selector("a", when=match("prefix", "x"), do=copy_to("c")),
    "a replay": lambda engine: engine.selectors[max(engine.selectors)].enable(),
    "create a mover": lambda engine: engine.create_selector("b", when=always, do=move_to("c"), credit=100),
    "take and nack": lambda engine: [delivery.nack() for delivery in engine.take(3)],
    "take and reject": lambda engine: [delivery.reject() for delivery in engine.take(3)],
    "take_batch and nack": lambda engine: engine.take_batch(3).nack(),
    "take and ack": lambda engine: engine.ack(engine.take(16, "lines")),
    "take with a deadline": lambda engine: engine.take(16, "deadline"),
    "take what is bound": lambda engine: engine.take(40, "bound"),
    "delete what was offered": lambda engine: [engine.queues[f"line-{number}"].delete(1) for number in range(8)],
    "transaction": in_a_transaction,
    "delete_queue": lambda engine: engine.delete_queue("a"),
    "delete_selector": lambda engine: next(each for each in engine.selectors.values() if each.source.name == "c").delete(),
    "purge": lambda engine: engine.queues["h"].purge(),
}


def busy_engine():
    engine = Engine(dead_letter="z")
    for name in ("b", "c", "z", "fan", *(f"fan-{number}" for number in range(50))):
        engine.create_queue(name)
    engine.create_queue("a")
    engine.create_queue("full", limit=0)
    engine.create_queue("h", history_limit=None)
    engine.create_selector("full", when=overflow, do=move_to("c"), credit=10)
    for number in range(50):
        engine.create_selector("fan", when=always, do=copy_to(f"fan-{number}"))
    engine.create_selector("a", when=match("topic", "x.#"), do=copy_to("b"))
    engine.create_selector("a", when=always, do=copy_to("h"))
    engine.create_selector("a", when=match("eq", "x.y"), do=move_to("c"), credit=3)
    engine.create_selector("h", when=where({"n": 1}), do=copy_to("b"))
    engine.create_selector("c", when=always, do=deliver("d"), credit=5)
    engine.create_queue("r").hold()         # nothing was routed there: what is known of its selectors is found out by the replay
    engine.publish_many("r", [("x",)] * 3)
    engine.create_selector("r", when=always, do=copy_to("b"))
    engine.create_selector("r", when=where({"n": 1}), do=copy_to("c"))
    engine.create_selector("r", when=default, do=copy_to("h"), start="head", enabled=False)
    engine.create_queue("p")
    engine.create_selector("p", when=always, do=copy_to("b"), enabled=False)
    for number in range(70):
        engine.publish("a", f"x.{'y' if number % 5 == 0 else number % 5}", bytes(number), {"n": number % 3})
    for number in range(8):                 # all of them go on in one call, which its heap has no place for yet
        engine.create_queue(f"line-{number}")
        engine.create_selector(f"line-{number}", when=always, do=deliver("lines"), credit=2)
        engine.publish_many(f"line-{number}", [("x",)] * 3)
        engine.create_queue(f"bound-{number}", limit=2)
        engine.create_queue(f"after-{number}")
        engine.create_selector(f"bound-{number}", when=always, do=deliver("bound"), credit=INFINITE)
        engine.create_selector(f"after-{number}", when=always, do=move_to(f"bound-{number}"), credit=INFINITE)
        engine.publish_many(f"after-{number}", [("x",)] * 5)
    engine.create_queue("late")
    engine.create_selector("late", when=always, do=deliver("deadline"), credit=16, ack_timeout=60)
    engine.publish_many("late", [("x",)] * 16)
    assert engine.queues["c"].outstanding == 3
    return engine


def one(name, at, ever, shim):
    """What happened: "done", "unchanged", "shut"."""
    engine = busy_engine()
    before = engine.stats()
    shim.fail_at(at, ever)
    raised = None
    try:
        CALLS[name](engine)
    except (MemoryError, Closed) as error:
        raised = error
    failed = shim.failures()
    try:
        engine.check()
    except Closed:
        outcome = "shut"
        with pytest.raises(Closed):
            engine.publish("a")
    else:
        if raised is not None:
            after = engine.stats()
            assert after == before or name in ("transaction", "building", "purge") or name.startswith("take"), (name, at, ever)
        if name == "take with a deadline" and raised is not None:
            assert len(engine.take(16, "deadline")) == 16, (at, ever)       # no message is taken that no delivery has
        engine.publish("a", "x.y", b"later")
        engine.check()
        outcome = "done" if raised is None else "unchanged"
    engine.close()
    return outcome, failed


@pytest.mark.parametrize("name", CALLS)
def test_every_allocation_may_fail(name, shim):
    assert outcomes_of("tests.memory.test_allocation_failures", name, shim)[-1] == "done"


if __name__ == "__main__":
    tell_outcomes(one, sys.argv[1])
