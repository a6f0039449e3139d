"""An interrupt in a filter, operator or clock comes out, and the next call goes on where it stopped."""

import itertools
import threading

import pyarrow
import pytest

from xump import (
    INFINITE, always, copy_to, default, deliver, discard, field, match, move_to, where,
)
from xump.errors import TransactionError
from xump_ext.arrow.batch import DeliveryBatch
from tests.engine.user_code.steps import commit, errors_of, held_in, names, operator, raises_odd


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("call", ["publish", "publish_many", "transaction", "ack", "nack", "release", "building", "enable"])
def test_an_interrupt_in_a_filter_comes_out_and_the_books_stay_right(engine, error, call):
    armed = []

    def interrupted(message):
        if armed and message.address != "calm":
            raise error
        return True

    names(engine, "q", "r", "s", "out")
    queue = engine.queues["q"]
    engine.create_selector("out", when=where(interrupted), do=deliver("d"), credit=1)
    off = engine.create_selector("s", when=where(interrupted), do=copy_to("r"), enabled=False)
    engine.publish_many("out", [("first",), ("second",)])
    engine.publish_many("s", [("parked",), ("parked",)])
    queue.hold()
    engine.create_selector("q", when=where(interrupted), do=copy_to("r"))
    engine.create_selector("q", when=default, do=discard)
    [delivery] = engine.take(1)
    queue.publish("waits")
    if call not in ("release", "building"):
        queue.delete(1)
        queue.release()
    armed.append(True)
    calls = {
        "publish": lambda: queue.publish("a"),
        "publish_many": lambda: engine.publish_many("q", [("a",), ("calm",)]),
        "transaction": lambda: commit(engine, delivery),
        "ack": delivery.ack, "nack": delivery.nack, "release": queue.release,
        "building": lambda: release_in_a_block(engine),
        "enable": off.enable,
    }
    interrupts = {"publish", "publish_many", "transaction", "nack", "release", "building"}
    if call in interrupts:
        with pytest.raises(error):
            calls[call]()
    else:
        calls[call]()       # asks no filter again
    engine.check()
    armed.clear()
    assert engine.publish("q", "calm")
    assert "calm" in held_in(engine, "r")
    assert engine.create_selector("q", when=match("eq", "later"), do=discard).id == 5
    assert (queue.ready, queue.frontier) == (0, queue.last_id + 1)


def release_in_a_block(engine):
    with engine.building():
        engine.queues["q"].release()


class Interrupt(BaseException):
    """As KeyboardInterrupt, which would end the tests with the test that fails."""


INTERRUPTED = []


def interrupted(*arguments):
    """A filter, or an operator, that is interrupted at "stop" while it is told to be."""
    if INTERRUPTED and getattr(arguments[-1], "address", arguments[-1]) == "stop":
        raise INTERRUPTED[0]
    return True


@pytest.fixture
def interrupts():
    """Until the test clears it."""
    INTERRUPTED[:] = [Interrupt]
    yield INTERRUPTED
    INTERRUPTED.clear()


def stopping(kind):
    return where(interrupted) if kind == "filter" else match(operator("user_code_stopping", interrupted), "p")


def build(engine):
    with engine.building():
        pass


NEXT_CALLS = {
    "publish": lambda engine: engine.publish("other"),
    "take": lambda engine: engine.take(0),
    "take_batch": lambda engine: engine.take_batch(0),
    "deliveries": lambda engine: list(engine.deliveries("nobody")),
    "ack": lambda engine: engine.ack([]),
    "building": build,
    "create_queue": lambda engine: engine.create_queue("new"),
    "disable": lambda engine: engine.selectors[2].disable(),
}


@pytest.mark.parametrize("kind", ["filter", "operator"])
@pytest.mark.parametrize("next_call", NEXT_CALLS)
def test_an_interrupt_ends_the_run_and_the_next_call_goes_on_with_it(engine, interrupts, kind, next_call):
    names(engine, "q", "r", "rest", "other")
    selector = engine.create_selector("q", when=stopping(kind), do=move_to("r"), credit=INFINITE)
    engine.create_selector("q", when=default, do=move_to("rest"), credit=INFINITE)
    engine.create_selector("other", when=always, do=discard)
    q = engine.queues["q"]
    with pytest.raises(Interrupt):
        engine.publish_many("q", [("a",), ("stop",), ("c",)])
    assert (held_in(engine, "q"), q.frontier, held_in(engine, "r")) == (["stop", "c"], 2, ["a"])
    engine.check()
    with pytest.raises(Interrupt):
        NEXT_CALLS["publish"](engine)
    assert (held_in(engine, "q"), engine.queues["other"].last_id) == (["stop", "c"], 1)
    engine.check()
    interrupts.clear()
    NEXT_CALLS[next_call](engine)
    assert (held_in(engine, "q"), held_in(engine, "r"), held_in(engine, "rest")) == ([], ["a", "stop", "c"], [])
    assert errors_of(engine, selector) == [0] and engine.queues["other"].ready == 0


def test_who_interrupts_every_call_can_be_deleted(engine, interrupts):
    names(engine, "q", "r")
    selector = engine.create_selector("q", when=where(interrupted), do=move_to("r"), credit=INFINITE)
    engine.create_selector("q", when=default, do=deliver("d"), credit=INFINITE)
    for n in (1, 2):
        with pytest.raises(Interrupt):
            engine.publish("q", "stop")
        assert engine.queues["q"].ready == n
    assert selector.delete()
    assert [delivery.id for delivery in engine.take(9)] == [1, 2]


def test_a_trip_goes_on_after_an_interrupt(engine, interrupts):
    """Two paths give one copy, also when the run was interrupted between them."""
    names(engine, "in", "left", "right", "out")
    for name in ("left", "right"):
        engine.create_selector("in", when=always, do=copy_to(name))
    engine.create_selector("in", when=always, do=move_to("left"), credit=INFINITE)
    engine.create_selector("left", when=stopping("filter"), do=copy_to("right"))
    engine.create_selector("left", when=always, do=copy_to("in"))
    with pytest.raises(Interrupt):
        engine.publish("in", "stop")
    engine.check()
    interrupts.clear()
    engine.queues["out"].publish("x")
    assert {name: queue.last_id for name, queue in engine.queues.items()} == {"in": 1, "left": 2, "right": 1, "out": 1}


def test_what_came_back_is_matched_anew_after_an_interrupt(engine, interrupts):
    names(engine, "q")
    first = engine.create_selector("q", when=match("prefix", ""), do=deliver("d"), credit=3)
    engine.publish_many("q", [("a",), ("stop",), ("c",)])
    engine.take(3)
    engine.create_selector("q", when=where(interrupted), do=deliver("e"), credit=9)
    with pytest.raises(Interrupt):
        first.delete()
    engine.check()
    assert engine.queues["q"].ready == 3 and sorted(engine.selectors) == [2]
    with pytest.raises(Interrupt), engine.building():
        engine.queues["q"].delete(1)
    engine.check()
    interrupts.clear()
    assert [delivery.message.address for delivery in engine.take(9)] == ["stop", "c"]


def test_an_interrupt_while_a_new_selector_is_tried_on_what_waits(engine, interrupts):
    """It never was there; inside a block it is, and is tried again."""
    names(engine, "q")
    engine.create_selector("q", when=always, do=deliver("never"), credit=0)
    engine.publish_many("q", [("a",), ("stop",), ("c",)])
    with pytest.raises(Interrupt):
        engine.create_selector("q", when=where(interrupted), do=deliver("d"), credit=9, name="n")
    engine.check()
    assert sorted(engine.selectors) == [1]
    with pytest.raises(Interrupt), engine.building():
        assert engine.create_selector("q", when=where(interrupted), do=deliver("d"), credit=9, name="n").id == 2
    engine.check()
    interrupts.clear()
    assert [delivery.message.address for delivery in engine.take(9)] == ["a", "stop", "c"]


def test_an_interrupt_while_what_waits_is_tried_on_a_new_queue(engine, interrupts):
    """The queue never was there."""
    names(engine, "q")
    engine.create_selector("q", when=where(interrupted), do=move_to(field("address")), credit=9)
    engine.create_selector("q", when=always, do=deliver("never"), credit=0)
    INTERRUPTED.clear()
    engine.publish_many("q", [("new",), ("stop",), ("stop",)])
    INTERRUPTED[:] = [Interrupt]
    with pytest.raises(Interrupt):
        engine.create_queue("stop")
    engine.check()
    assert sorted(engine.queues) == ["q"] and engine.queues["q"].ready == 3
    assert engine.create_queue("new").ready == 1
    interrupts.clear()
    assert engine.create_queue("stop").ready == 2
    assert engine.create_queue().name == "queue-1"


def test_a_transaction_that_was_interrupted_in_its_run_is_committed(engine, interrupts):
    names(engine, "q", "r")
    engine.create_selector("q", when=where(interrupted), do=move_to("r"), credit=INFINITE)
    tx = engine.transaction()
    with pytest.raises(Interrupt), tx:
        tx.publish("q", "a")
        tx.publish("q", "stop")
    assert tx.ids == [1, 2] and held_in(engine, "q") == ["stop"]
    with pytest.raises(TransactionError, match="committed"):
        tx.publish("q")


TAKES = {
    "take": lambda engine, destination=None: engine.take(3, destination),
    "deliveries": lambda engine, destination=None: list(itertools.islice(engine.deliveries(destination), 3)),
    "take_batch": lambda engine, destination=None: engine.take_batch(3, destination),
}


def ids_of(taken):
    if isinstance(taken, DeliveryBatch):
        return pyarrow.record_batch(taken)["id"].to_pylist()
    return [delivery.id for delivery in taken]


@pytest.mark.parametrize("how", TAKES)
@pytest.mark.parametrize("then", TAKES)
def test_an_interrupt_while_deliveries_are_taken_loses_none(engine, interrupts, how, then):
    """The second one is settled by the taking, which makes room for a message that nobody can route."""
    engine.create_queue("p")
    q = engine.create_queue("q", limit=2)
    engine.create_selector("q", when=match("eq", "credit"), do=deliver("d"), credit=1)
    engine.create_selector("q", when=match("prefix", "") & where(interrupted), do=deliver("d"), credit=INFINITE)
    engine.create_selector("p", when=always, do=move_to("q"), credit=5)
    for address in ("credit", "b", "c", "stop"):
        engine.publish("p", address)
    with pytest.raises(Interrupt):
        TAKES[how](engine)
    engine.check()
    interrupts.clear()
    assert ids_of(TAKES[then](engine, "nobody")) == []
    taken = TAKES[then](engine, "d")
    assert ids_of(taken) == ([2, 3, 4] if how == "deliveries" else [1, 2, 3])
    if isinstance(taken, DeliveryBatch):
        taken.ack()
    else:
        engine.ack(taken)
    assert q.outstanding == (how == "deliveries")       # the first one came out, and the list was lost
    assert [delivery.message.address for delivery in engine.take(9)] == ([] if how == "deliveries" else ["stop"])


def test_a_delivery_that_was_kept_back_may_be_taken_back(engine, interrupts):
    names(engine, "p")
    engine.create_queue("q", limit=1)
    first = engine.create_selector("q", when=match("eq", "credit"), do=deliver("d"), credit=1)
    engine.create_selector("q", when=where(interrupted), do=deliver("d"), credit=INFINITE)
    engine.create_selector("p", when=always, do=move_to("q"), credit=5)
    for address in ("credit", "b", "stop"):
        engine.publish("p", address)
    with pytest.raises(Interrupt):
        engine.take(3)
    interrupts.clear()
    first.delete()
    assert [(d.id, d.delivery_count) for d in engine.take(9)] == [(2, 1), (1, 2), (3, 1)]


def test_who_waits_gets_what_another_call_kept_back(engine, interrupts):
    names(engine, "p")
    engine.create_queue("q", limit=1)
    engine.create_selector("q", when=where(interrupted), do=deliver("d"), credit=INFINITE)
    engine.create_selector("p", when=always, do=move_to("q"), credit=5)
    engine.publish_many("p", [("a",), ("stop",)])
    with pytest.raises(Interrupt):
        engine.take(1)
    interrupts.clear()
    taken = []
    consumer = threading.Thread(target=lambda: taken.extend(engine.take(1, "d", timeout=None)))
    consumer.start()
    consumer.join()
    assert [delivery.message.address for delivery in taken] == ["a"]


def test_an_interrupt_in_the_run_of_a_new_selector_leaves_it_there(engine, interrupts):
    """Its number and name are its own; the run goes on with the next call."""
    names(engine, "q", "r")
    engine.publish_many("q", [("stop",), ("a",)])
    with pytest.raises(Interrupt):
        engine.create_selector("q", when=where(interrupted), do=copy_to("r"), name="n")
    engine.check()
    assert (held_in(engine, "r"), [selector.name for selector in engine.selectors.values()]) == ([], ["n"])
    interrupts.clear()
    assert engine.create_selector("q", when=where(interrupted), do=copy_to("r"), name="n").id == 1
    engine.publish("r")
    assert held_in(engine, "r") == ["stop", "a", ""]
    assert engine.create_selector("q", when=match("eq", "x"), do=copy_to("r")).id == 2
    assert engine.delete_selector(1) and sorted(engine.selectors) == [2]


def test_an_interrupt_in_an_operator_comes_out_and_it_is_asked_again(engine):
    armed = [True]

    def interrupted(pattern, value):
        if armed and value == "stop":
            raise KeyboardInterrupt
        return True

    names(engine, "q", "r")
    engine.create_selector("q", when=match(operator("user_code_interrupted", interrupted), "p"), do=copy_to("r"))
    with pytest.raises(KeyboardInterrupt):
        engine.publish("q", "stop")
    engine.check()
    armed.clear()
    engine.publish_many("q", [("a",), ("stop",)])
    assert held_in(engine, "r") == ["stop", "a", "stop"]


def test_a_filter_of_browse_that_raises_selects_nothing(engine):
    names(engine, "q")
    engine.publish_many("q", [("a", b"", {"n": n}) for n in (0, 1, 0, 2)])
    queue = engine.queues["q"]
    assert [m.headers["n"] for m in queue.browse(where=lambda message: 1 / message.headers["n"])] == [1, 2]
    assert list(queue.browse(where=where(raises_odd))) == []

    def interrupted(message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(queue.browse(where=interrupted))


# ---- in a transit queue

@pytest.mark.parametrize("kind", ["filter", "operator"])
def test_a_message_in_a_transit_queue_is_routed_by_the_next_run(engine, interrupts, kind):
    """Those before it have gone on, and those behind it wait for it."""
    x, q = engine.create_queue("x", transit=True), engine.create_queue("q")
    engine.create_selector("x", when=stopping(kind), do=copy_to("q"))
    with pytest.raises(Interrupt):
        engine.publish_many("x", [("one",), ("stop",), ("two",), ("stop",)])
    assert [message.address for message in q.browse()] == ["one"] and x.ready == 3
    interrupts.clear()
    engine.publish("x", "three")
    assert [message.address for message in q.browse()] == ["one", "stop", "two", "stop", "three"] and x.ready == 0
    engine.check()


def test_so_is_one_that_comes_there_by_a_copy(engine, interrupts):
    x, q, r = engine.create_queue("x", transit=True), engine.create_queue("q"), engine.create_queue("r")
    engine.create_selector("x", when=where(interrupted), do=copy_to("r"))
    engine.create_selector("q", when=always, do=copy_to("x"))
    with pytest.raises(Interrupt):
        engine.publish("q", "stop")
    assert (q.ready, x.ready, r.ready) == (0, 1, 0)
    interrupts.clear()
    engine.tick()
    assert (x.ready, r.ready) == (0, 1)
    engine.check()


def test_a_publish_into_a_transit_queue_that_an_interrupt_left_unlooked_at(engine):
    """Its selector came in a block that was interrupted; the next call looks at the queue first."""
    armed = [True]

    def interrupted(message):
        if armed:
            raise KeyboardInterrupt
        return False

    engine.create_queue("dead")
    engine.create_queue("q")
    engine.create_queue("x", transit=True, dead_letter="dead")
    engine.create_selector("q", when=always, do=deliver("d"), credit=1)
    for name in "ab":
        engine.publish("q", name)
    with pytest.raises(KeyboardInterrupt), engine.building():
        engine.create_selector("x", when=match("topic", "nope.#"), do=copy_to("dead"))
        engine.create_selector("q", when=where(interrupted), do=deliver("e"))
    armed.clear()
    assert engine.publish("x", "y") == 0
    assert engine.queues["dead"].ready == 1
    engine.check()
