"""Memory ends in an engine with two durable stores: the Nth allocation of the core fails, N counting up, once and for ever.

Messages are copied from one store into the other, and come back by RAM, where durable messages own them: ends, MARKs and
frontiers wait behind fences, which take memory in the middle of an ack. The call raises MemoryError and the laws hold, or a
store has failed and says so, or the engine is shut. Either way `close` does not crash, and what was durable and not acked is
there when the stores are opened again. Each case runs in a process of its own,
`python -m tests.memory.test_two_stores_without_memory NAME`.
"""

import sys
import tempfile

import pytest

from tests.durability.log_in_memory import LOGS
from tests.memory.failing_malloc import outcomes_of, tell_outcomes
from xump import INFINITE, Closed, Engine, StoreFailed, always, copy_to, deliver, move_to

IN_MEMORY = {"l": "log shelf", "r": "key shelf"}
ON_DISK = {"l": "ring", "r": "lmdb"}
SWAPPED = {"l": "lmdb", "r": "ring"}
COUNT = 70


def transaction(engine, taken):
    with engine.transaction() as changes:
        for delivery in taken[:5]:
            changes.ack(delivery)
        for delivery in taken[5:9]:
            changes.nack(delivery)


def acked_and_written(engine, taken):
    engine.ack(taken[:20])
    engine.sync()       # so this thread writes, and the store fails if there is no memory to


def take_again(engine, taken):
    engine.ack(taken[:5])
    for delivery in taken[5:10]:
        delivery.nack()
    engine.take(10, "x")


CALLS = {       # and the numbers of the messages that may be gone then
    "ack": (lambda engine, taken: taken[0].ack(), range(1)),
    "ack and sync": (acked_and_written, range(20)),
    "ack many": (lambda engine, taken: engine.ack(taken[:20]), range(20)),
    "nack": (lambda engine, taken: [one.nack() for one in taken[:5]], ()),
    "reject": (lambda engine, taken: [one.reject("why") for one in taken[:5]], ()),
    "take again": (take_again, range(5)),
    "transaction": (transaction, range(5)),
    "get": (lambda engine, taken: [engine.get("b") for _ in range(5)], ()),
    "delete messages": (lambda engine, taken: [engine.queues["c"].delete(id) for id in range(1, 30)], range(29)),
    "delete in RAM": (lambda engine, taken: [engine.queues["ram"].delete(id) for id in range(40, 71)], range(39, 70)),
    "delete_queue": (lambda engine, taken: engine.delete_queue("c"), ()),
    "delete_selector": (lambda engine, taken: next(one for one in engine.selectors.values() if one.name == "down").delete(), ()),
}
CASES = {**{name: (name, IN_MEMORY) for name in CALLS},
         **{f"{name} {kinds['l']}": (name, kinds)
            for kinds in (ON_DISK, SWAPPED) for name in ("ack", "delete messages", "ack and sync")}}


def with_stores(kinds, folder):
    engine = Engine()
    for name, kind in kinds.items():
        engine.create_store(name, kind, path=f"{folder}/{name}")
    return engine


def filled(kinds, folder):
    """The engine, and deliveries of the last queue, all of whose messages came by `ram`."""
    engine = with_stores(kinds, folder)
    with engine.building():
        engine.create_queue("dead", store="r")
        engine.create_queue("a", store="l", dead_letter="dead", history_limit=2)
        engine.create_queue("ram")
        engine.create_queue("b", store="r")
        engine.create_queue("c", store="l", dead_letter="dead")
        engine.create_selector("a", when=always, do=copy_to("b"))
        engine.create_selector("a", when=always, do=move_to("ram"), credit=INFINITE)
        engine.create_selector("ram", when=always, do=copy_to("b"))
        engine.create_selector("ram", when=always, do=move_to("c"), credit=50, name="down")
        engine.create_selector("c", when=always, do=deliver("x"), credit=50)
    engine.publish_many("a", [(f"m{number}", b"x" * 30) for number in range(COUNT // 2)])
    engine.sync()
    engine.publish_many("a", [(f"m{number}", b"x" * 30) for number in range(COUNT // 2, COUNT)])    # ends that wait
    return engine, engine.take(25, "x")


def found(kinds, folder):
    """The addresses in each queue that the stores have."""
    with with_stores(kinds, folder) as engine:
        engine.check()
        return {name: {message.address for message in queue.browse()} for name, queue in engine.queues.items()}


def one(name, at, ever, shim):
    """What happened: "done", "raised", "failed" (a store) or "shut"; and how many allocations failed."""
    call, kinds = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        LOGS.clear()
        engine, taken = filled(kinds, folder)
        change, gone = CALLS[call]
        outcome = "done"
        shim.fail_at(at, ever)
        try:
            change(engine, taken)
        except (MemoryError, Closed):
            outcome = "raised"
        except StoreFailed:
            outcome = "failed"
        failed = shim.failures()
        try:
            engine.check()
        except Closed:
            outcome = "shut"
        try:
            engine.close()
        except StoreFailed:
            assert outcome in ("failed", "shut"), (name, at, ever)
        there, written = found(kinds, folder), COUNT // 2 if outcome in ("failed", "shut") else COUNT
        kept = {f"m{number}" for number in range(written) if number not in gone}
        assert kept <= there["a"] | there.get("c", set()) | there["dead"], (name, at, ever)
        assert written < COUNT or len(there["b"]) == COUNT, (name, at, ever)
        return outcome, failed


@pytest.mark.parametrize("name", CASES)
def test_the_laws_hold_or_the_engine_is_shut(name, shim):
    assert outcomes_of("tests.memory.test_two_stores_without_memory", name, shim)[-1] == "done"


if __name__ == "__main__":
    tell_outcomes(one, sys.argv[1])
