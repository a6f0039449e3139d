"""Filters, operators and clocks of the user's: what they raise, that they may not call the engine, that others wait for them."""

import itertools
import logging
import threading
import time
import weakref

import pyarrow
import pytest

from tests.model.seen import seen_of
from xump import (
    INFINITE, Engine, always, copy_to, default, deliver, discard, field, match, move_to, where,
)
from xump.errors import Closed, Reentrant, TransactionError, XumpError
from xump.operators import operator_names, register_operator
from xump_ext.arrow.batch import DeliveryBatch


class Odd(Exception):
    """What the user's code raises."""


@pytest.fixture
def engine():
    with Engine() as engine:
        yield engine
        engine.check()


def operator(name, matches):
    """Registers an operator, or says that the one of that name now does this."""
    if name not in operator_names():
        register_operator(name, lambda pattern, value: bool(OPERATORS[name](pattern, value)))
    OPERATORS[name] = matches
    return name


OPERATORS = {}


def names(engine, *queues):
    for queue in queues:
        engine.create_queue(queue)


def held_in(engine, name):
    return [message.address for message in engine.queues[name].browse()]


def errors_of(engine, *selectors):
    return [engine.stats()["selectors"][selector.id]["errors"] for selector in selectors]


def logged(caplog):
    return [(record.name, record.levelno, record.args, record.exc_info[1]) for record in caplog.records]


# ---- what they raise

def raises_odd(message):
    raise Odd(message.address)


class NoTruth:
    """An answer that is neither true nor false."""

    def __bool__(self):
        raise Odd("no truth in it")


@pytest.mark.parametrize("filter", [raises_odd, lambda message: NoTruth(), lambda: True, lambda message: message.headers["n"]])
def test_a_filter_that_raises_is_no_match_counted_and_logged_once(engine, caplog, filter):
    names(engine, "q", "r")
    selectors = [engine.create_selector("q", when=where(filter), do=do) for do in (copy_to("r"), deliver("d"), copy_to("r"))]
    engine.create_selector("q", when=default, do=deliver("rest"), credit=INFINITE)
    for n in range(1, 4):
        assert engine.publish("q", "a") == n
    assert [delivery.destination for delivery in engine.take(9)] == ["rest"] * 3
    assert engine.queues["r"].ready == 0
    assert errors_of(engine, *selectors) == [3, 3, 3]
    told = logged(caplog)       # of two conditions: COPY, and DELIVER
    assert [(name, level) for name, level, _, _ in told] == [("xump", logging.ERROR)] * 2
    assert {args[0] for _, _, args, _ in told} <= {selector.id for selector in selectors}
    assert all(isinstance(error, Exception) for _, _, _, error in told)


def test_a_filter_that_raises_for_some_selects_the_others(engine, caplog):
    names(engine, "q")
    selector = engine.create_selector("q", when=where(lambda message: 1 / message.headers["n"] > 0), do=deliver("d"), credit=9)
    engine.create_selector("q", when=default, do=discard)
    engine.publish_many("q", [(str(n), b"", {"n": n}) for n in (-1, 0, 1, 0, 2)])
    assert [delivery.message.address for delivery in engine.take(9)] == ["1", "2"]
    assert errors_of(engine, selector) == [2]
    assert [type(error) for _, _, _, error in logged(caplog)] == [ZeroDivisionError]


def test_after_a_filter_that_raises_the_others_are_asked(engine):
    names(engine, "q", "r", "s")
    engine.create_selector("q", when=where(raises_odd), do=copy_to("r"))
    engine.create_selector("q", when=match("eq", "a") & where(raises_odd), do=copy_to("r"))
    engine.create_selector("q", when=where(lambda message: True), do=copy_to("s"))
    engine.publish("q", "a")
    assert (held_in(engine, "r"), held_in(engine, "s")) == ([], ["a"])


@pytest.mark.parametrize("what_raises", [raises_odd, lambda message: NoTruth()])
def test_a_filter_that_raises_while_selectors_come_go_and_replay(engine, what_raises):
    names(engine, "q", "r")
    engine.publish_many("q", [("a",), ("b",)])
    condition = where(lambda message: what_raises(message) if message.address == "b" else True)
    with engine.building():
        replay = engine.create_selector("q", when=condition, do=copy_to("r"), start="head")
        assert held_in(engine, "r") == ["a"]
        taker = engine.create_selector("q", when=condition, do=deliver("d"), credit=9)
        engine.create_selector("q", when=default, do=deliver("rest"), credit=9)
    assert [delivery.message.address for delivery in engine.take(9, "rest")] == ["b"]
    [delivery] = engine.take(9, "d")
    delivery.nack()
    assert [delivery.message.address for delivery in engine.take(9, "d")] == ["a"]
    replay.delete()
    taker.delete()
    engine.create_selector("q", when=condition, do=deliver("late"), credit=9)
    assert [delivery.message.address for delivery in engine.take(9)] == ["a"]
    assert engine.queues["q"].outstanding == 2


def test_an_operator_that_raises_is_no_match_counted_and_logged_once(engine, caplog):
    def some(pattern, value):
        if value == "bad":
            raise Odd(pattern)
        return value.startswith(pattern)

    names(engine, "q", "r")
    condition = match(operator("user_code_some", some), "b")
    selectors = [engine.create_selector("q", when=condition, do=copy_to("r")) for _ in range(2)]
    engine.create_selector("q", when=default, do=discard)
    engine.publish_many("q", [("bad",), ("better",), ("a",)])
    assert held_in(engine, "r") == ["better"]
    assert errors_of(engine, *selectors) == [1, 1]
    assert [(name, level, type(error)) for name, level, _, error in logged(caplog)] == [("xump", logging.ERROR, Odd)]


def test_an_operator_is_asked_once_per_pattern_and_address(engine):
    asked = []

    def spy(pattern, value):
        asked.append((pattern, value))
        return value.endswith(pattern)

    names(engine, "q", "r", "s")
    name = operator("user_code_spy", spy)
    engine.create_selector("q", when=match(name, "x"), do=copy_to("r"))
    engine.create_selector("q", when=match(name, "y"), do=copy_to("s"))
    for _ in range(3):
        engine.publish_many("q", [("ax",), ("by",), ("c",)])
    assert sorted(asked) == sorted(itertools.product("xy", ["ax", "by", "c"]))
    assert (held_in(engine, "r"), held_in(engine, "s")) == (["ax"] * 3, ["by"] * 3)
    del asked[:]
    engine.create_selector("q", when=match(name, "z"), do=discard)
    engine.publish("q", "ax")
    assert ("z", "ax") in asked and len(asked) == len(set(asked))


def test_an_operator_on_other_fields_is_asked_with_their_text(engine):
    asked = []

    def spy(pattern, value):
        asked.append(value)
        return True

    names(engine, "q", "r")
    name = operator("user_code_fields", spy)
    engine.create_selector("q", when=match(name, "p", "headers.region"), do=copy_to("r"))
    engine.create_selector("q", when=match(name, "p", "reply_to"), do=copy_to("r"))
    engine.publish("q", "a", b"", {"region": "ä"}, reply_to="b")
    engine.publish("q", "a", b"", {"region": 5})
    assert sorted(asked) == ["b", "ä"]
    assert engine.queues["r"].ready == 1


def test_what_a_filter_is_given_can_be_kept(engine):
    kept = []
    names(engine, "q", "r")
    engine.create_selector("q", when=where(lambda message: kept.append(message) or True), do=move_to("r"), credit=INFINITE)
    for n in range(2000):
        engine.publish("q", str(n), b"%d" % n, {"n": n})
    engine.queues["r"].purge()
    assert [(m.address, m.body, m.headers["n"], m.id) for m in kept] == [(str(n), b"%d" % n, n, n + 1) for n in range(2000)]


def test_a_filter_is_let_go_with_its_selector(engine):
    class Asked:
        def __call__(self, message):
            return True

    names(engine, "q", "r")
    asked = Asked()
    there = weakref.ref(asked)
    selector = engine.create_selector("q", when=where(asked), do=copy_to("r"))
    engine.publish("q")
    selector.delete()
    del asked, selector
    assert there() is None


# ---- they may not call the engine

CALLS = {
    "ack": lambda w: w["engine"].ack([w["delivery"]]),
    "building": lambda w: w["engine"].building().__enter__(),
    "check": lambda w: w["engine"].check(),
    "close": lambda w: w["engine"].close(),
    "create_queue": lambda w: w["engine"].create_queue("new"),
    "create_selector": lambda w: w["engine"].create_selector("q", when=always, do=discard),
    "create_store": lambda w: w["engine"].create_store("new"),
    "delete_queue": lambda w: w["engine"].delete_queue("q"),
    "delete_selector": lambda w: w["engine"].delete_selector(1),
    "delete_store": lambda w: w["engine"].delete_store("new"),
    "deliveries": lambda w: next(w["engine"].deliveries()),
    "publish": lambda w: w["engine"].publish("q"),
    "publish_many": lambda w: w["engine"].publish_many("q", [("a",)]),
    "stats": lambda w: w["engine"].stats(),
    "sync": lambda w: w["engine"].sync(),
    "take": lambda w: w["engine"].take(1, timeout=None),
    "take_batch": lambda w: w["engine"].take_batch(1, timeout=None),
    "transaction": lambda w: w["engine"].transaction().__enter__().__exit__(None, None, None),
    "topology": lambda w: w["engine"].topology(),
    "to_dot": lambda w: w["engine"].to_dot(),
    "queue.browse": lambda w: next(w["queue"].browse()),
    "queue.delete": lambda w: w["queue"].delete(1),
    "queue.fetch": lambda w: w["queue"].fetch(1),
    "queue.hold": lambda w: w["queue"].hold(),
    "queue.purge": lambda w: w["queue"].purge(),
    "queue.release": lambda w: w["queue"].release(),
    "selector.grant": lambda w: w["selector"].grant(1),
    "selector.pay": lambda w: w["selector"].pay(1),
    "selector.disable": lambda w: w["selector"].disable(),
    "selector.delete": lambda w: w["selector"].delete(),
    "delivery.ack": lambda w: w["delivery"].ack(),
    "delivery.nack": lambda w: w["delivery"].nack(),
    "delivery.reject": lambda w: w["delivery"].reject(),
}


@pytest.mark.parametrize("call", CALLS)
def test_user_code_that_calls_the_engine_gets_reentrant_and_changes_nothing(call):
    caught = []

    def calls(*_):
        if world.get("armed"):
            try:
                CALLS[call](world)
            except XumpError as error:
                caught.append(error)
                raise
        return True

    world = {}

    def run(world, armed):
        name = operator("user_code_reentrant", calls)
        engine = world["engine"] = Engine(clock=lambda: 1)
        world["queue"] = engine.create_queue("q")
        world["selector"] = engine.create_selector("q", when=match("eq", "held"), do=deliver("d"), credit=2)
        engine.publish_many("q", [("held",)] * 2)
        [world["delivery"]] = engine.take(1)
        filtering = engine.create_selector("q", when=where(calls), do=copy_to("q"))
        operating = engine.create_selector("q", when=match(name, "p"), do=copy_to("q"))
        engine.create_selector("q", when=default, do=discard)
        world["armed"] = armed
        engine.publish("q", "a")
        world["armed"] = False
        engine.check()
        # what selectors count as errors is all that may differ
        return seen_of(engine), errors_of(engine, filtering, operating)

    after, errors = run(world, True)
    assert [type(error) for error in caught] == [Reentrant] * len(caught) and sum(errors) == len(caught) > 0
    world["engine"].close()
    without, no_errors = run(world, False)
    assert no_errors == [0, 0]
    for id in (2, 3):       # neither of the two copied, into the queue that the message was in
        assert after["selectors"][id] == without["selectors"][id] | {"copied": 0}
    assert after["messages"]["q"]["outstanding"] == without["messages"]["q"]["outstanding"]
    assert world["delivery"].ack() is None
    world["engine"].close()


def test_a_filter_that_catches_reentrant_goes_on(engine):
    def cautious(message):
        with pytest.raises(Reentrant, match="inside a filter"):
            engine.publish("q")
        return True

    names(engine, "q", "r")
    engine.create_selector("q", when=where(cautious), do=copy_to("r"))
    engine.publish("q", "a")
    assert held_in(engine, "r") == ["a"]


def test_a_filter_may_look_at_properties_and_call_another_engine(engine):
    names(engine, "q", "r")
    with Engine() as other:
        log = other.create_queue("log")
        engine.create_selector(
            "q", when=where(lambda message: log.publish(message.address) and engine.queues["q"].last_id), do=copy_to("r"))
        engine.publish("q", "a")
        assert [message.address for message in log.browse()] == held_in(engine, "r") == ["a"]


def test_a_waiting_consumer_wakes_when_a_filter_raised(engine):
    names(engine, "q")
    engine.create_selector("q", when=where(raises_odd), do=discard)
    engine.create_selector("q", when=default, do=deliver("d"))
    taken = []
    consumer = threading.Thread(target=lambda: taken.extend(engine.take(1, timeout=None)))
    consumer.start()
    engine.publish("q", "a")
    consumer.join()
    assert [delivery.message.address for delivery in taken] == ["a"]


# ---- what is no Exception comes out

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


def commit(engine, delivery):
    with engine.transaction() as tx:
        tx.ack(delivery)
        tx.publish("q", "a")


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


# ---- clocks

def snapshot(engine, clock):
    before, clock.now = clock.now, 5
    seen = seen_of(engine)
    clock.now = before
    return seen


class Faulty:
    """A clock that gives what it is told to, or raises it."""

    def __init__(self):
        self.now = 5

    def __call__(self):
        if isinstance(self.now, type):
            raise self.now
        return self.now


@pytest.mark.parametrize("now, error", [
    (Odd, Odd), (KeyboardInterrupt, KeyboardInterrupt), (None, TypeError), ("12:00", TypeError), (b"", TypeError),
    ([], TypeError), (1.5, TypeError), (True, TypeError), (2**63, ValueError), (-2**63, ValueError), (10**30, ValueError),
])
def test_a_clock_that_raises_or_gives_nonsense_changes_nothing(now, error):
    clock = Faulty()
    with Engine(clock=clock) as engine:
        queue = engine.create_queue("q", history_limit=None)
        selector = engine.create_selector("q", when=match("eq", "a"), do=deliver("d"), credit=2)
        engine.publish_many("q", [("a",)] * 4)
        first, second = engine.take(2)
        iterator = engine.deliveries()
        before = snapshot(engine, clock)
        clock.now = now
        for call in (
            lambda: engine.publish("q"), lambda: engine.publish_many("q", [("a",)]), lambda: engine.take(1),
            lambda: next(iterator),
            lambda: engine.ack([first, second]), first.ack, first.nack, second.reject, selector.pay, lambda: selector.grant(1),
            selector.disable, selector.delete, lambda: engine.create_queue("r"), lambda: engine.delete_queue("q"), queue.hold,
            lambda: engine.create_selector("q", when=always, do=discard, name="new"), queue.purge, lambda: queue.delete(1),
            lambda: commit(engine, first), engine.tick, lambda: engine.get("q"),
            lambda: engine.building().__enter__(), lambda: engine.take_batch(1),
        ):
            with pytest.raises(error, match="^clock must return" if error is not now else None):
                call()
        clock.now = 6
        assert not engine.closed
        engine.check()
        assert seen_of(engine) == before
        engine.ack([first, second])
        assert [delivery.id for delivery in iterator] == [3, 4]
        assert (engine.create_selector("q", when=always, do=discard).id, engine.create_queue().name) == (2, "queue-1")
        engine.check()


@pytest.mark.parametrize("now", [Odd, KeyboardInterrupt, None, 2**63])
def test_an_engine_can_be_closed_and_a_block_ends_whatever_the_clock_does(now):
    clock = Faulty()
    engine = Engine(clock=clock)
    queue = engine.create_queue("q")
    engine.create_selector("q", when=match("eq", "a"), do=deliver("d"), credit=9)
    with pytest.raises((TypeError, ValueError, Odd, KeyboardInterrupt)), engine.building():
        with engine.building():
            queue.publish("a")
            engine.create_queue("nobody's")
            engine.publish("nobody's")
        clock.now = now
    clock.now = 6
    engine.check()
    assert queue.frontier == 1
    queue.publish("a")      # the block has ended, and what it held is routed by the next call
    engine.check()
    assert [(d.id, d.message.timestamp) for d in engine.take(9)] == [(1, 5), (2, 6)]
    clock.now = now
    with pytest.raises((TypeError, ValueError, Odd, KeyboardInterrupt)):
        queue.publish()
    engine.close()
    assert engine.closed
    with pytest.raises(Closed):
        queue.publish()


def test_a_clock_in_seconds_is_told():
    with Engine(clock=time.time) as engine, pytest.raises(TypeError, match="nanoseconds as an int, got float"):
        engine.create_queue("q")


def test_a_clock_that_calls_the_engine_gets_reentrant():
    def clock():
        return engine.queues["q"].publish("again") if started else 1

    started = []
    with Engine(clock=clock) as engine:
        queue = engine.create_queue("q")
        started.append(True)
        with pytest.raises(Reentrant, match="clock"):
            queue.publish("a")
        started.clear()
        assert queue.last_id == 0
        engine.check()


def test_a_clock_may_go_back_and_the_times_in_a_queue_do_not():
    times = iter([1, 50, 20, 60, -5])
    now = [0]
    with Engine(clock=lambda: now[0]) as engine:
        queue = engine.create_queue("q")
        for now[0] in times:
            queue.publish()
        assert [message.timestamp for message in queue.browse()] == [1, 50, 50, 60, 60]
        engine.check()


# ---- others wait

class Gate:
    """User code that stops in the middle, until the test lets it go on."""

    def __init__(self):
        self.inside, self.go_on, self.calls = threading.Event(), threading.Event(), 0

    def __call__(self, *_):
        self.calls += 1
        self.inside.set()
        self.go_on.wait()
        return True


def in_thread(call, results):
    def run():
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["filter", "operator", "clock"])
def test_others_wait_while_user_code_works_and_then_go_on(kind):
    gate = Gate()
    with Engine(clock=lambda: int(armed and threading.current_thread() is first and gate() or 1)) as engine:
        armed, first = [], None
        names(engine, "q", "r")
        if kind == "filter":
            engine.create_selector("q", when=where(gate), do=copy_to("r"))
        elif kind == "operator":
            engine.create_selector("q", when=match(operator("user_code_gate", gate), "p"), do=copy_to("r"))
        else:
            armed.append(True)
        results, started = [], []
        first = threading.Thread(target=lambda: results.append(engine.publish("q", "first")))
        first.start()
        gate.inside.wait()

        def counted(call):
            def run():
                started.append(True)
                return call()
            return run

        others = [
            in_thread(counted(call), results) for call in (
                lambda: engine.publish("r", "x"), lambda: engine.take(1), lambda: engine.queues["q"].fetch(99),
                lambda: engine.create_queue("s").name, lambda: bool(engine.stats()), engine.check)
            for _ in range(3)]
        while len(started) < len(others):
            pass
        assert results == []
        armed.clear()
        gate.go_on.set()
        for thread in (first, *others):
            thread.join()
        assert [type(result) for result in results if isinstance(result, BaseException)] == []
        assert len(results) == 19 and gate.calls == 1
        assert engine.queues["r"].ready == 3 + (kind != "clock")
        engine.check()


def test_a_filter_in_the_middle_of_a_long_run_lets_threads_switch_but_nobody_in(engine):
    """Two publishers whose filters give way at every message: each call's messages stay together."""
    names(engine, "q", "r")
    turn = threading.Barrier(2)
    engine.create_selector("q", when=where(lambda message: threading.Event().wait(0) or True), do=move_to(field("reply_to")),
                           credit=INFINITE)

    def publish(name):
        turn.wait()
        for n in range(20):
            engine.publish_many("q", [(f"{name}{n}", b"", None, "r")] * 10)

    threads = [threading.Thread(target=publish, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    addresses = held_in(engine, "r")
    assert len(addresses) == 400 and [len(set(addresses[at:at + 10])) for at in range(0, 400, 10)] == [1] * 40
