"""Filters and operators may not call the engine."""

import gc
import threading

import pytest

from tests.model.seen import seen_of
from xump import (
    Engine, always, copy_to, default, deliver, discard, match, where,
)
from xump.errors import Reentrant, XumpError
from tests.engine.user_code.steps import errors_of, held_in, names, operator, raises_odd


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


class Job:
    """One that refers to itself, so that it ends when the collector finds it, and what it waits in with it."""

    def __init__(self, generator):
        self.generator, self.itself = generator, self
        next(generator)


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_block_of_a_delivery_that_the_collector_ends_inside_a_call(engine, comes_back):
    """A generator is dropped in its block, and the collector finds it while a filter runs: the message returns after the call."""
    names(engine, "q", "f")
    engine.create_selector("q", when=always, do=deliver("d"))
    engine.create_selector("f", when=where(lambda message: gc.collect() >= 0), do=discard)

    def work():
        for delivery in engine.deliveries("d"):
            with delivery:
                if not comes_back:
                    delivery.ack()
                yield

    engine.publish("q", "m")
    Job(work())
    engine.publish("f")
    engine.check()
    assert [delivery.delivery_count for delivery in engine.take(9)] == [2] * comes_back


def test_a_building_block_that_the_collector_ends_inside_a_call():
    """While it lasts nothing is routed, but a clock is read."""
    with Engine(clock=lambda: gc.collect() * 0 + 1) as engine:
        names(engine, "q")
        engine.create_selector("q", when=always, do=deliver("d"), credit=9)

        def build():
            with engine.building():
                yield

        Job(build())
        engine.publish("q", "a")
        engine.publish("q", "b")
        engine.check()
        assert [delivery.address for delivery in engine.take(9)] == ["a", "b"]


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
