"""What the engine is told of time, order and bounds, wrong in every way, at every place where it may be said.

Each time there is an error that names what was given and what is allowed, and nothing has changed. `errors` has the other
arguments.
"""

import asyncio
import datetime
import math

import pyarrow
import pytest

import xump
from xump import INFINITE, Conflict, Message, always, bounce_to, copy_to, deliver, discard, field, move_to

AWARE = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
NAIVE = datetime.datetime(2030, 1, 1)          # that is what is wrong with it

SECONDS = {
    "negative": (-1, ValueError), "a bit negative": (-1e-9, ValueError), "not a number": (math.nan, ValueError),
    "infinite": (math.inf, ValueError), "minus infinite": (-math.inf, ValueError), "huge": (3_155_760_001, ValueError),
    "a huge float": (1e300, ValueError), "more than 64 bits": (2**64, ValueError), "a bool": (True, TypeError),
    "a str": ("5", TypeError), "a timedelta": (datetime.timedelta(seconds=5), TypeError),
}
MOMENTS = {
    "naive": (NAIVE, ValueError), "too late": (2**63 - 1, ValueError), "too early": (-(2**63), ValueError),
    "the last day": (datetime.datetime.max.replace(tzinfo=datetime.UTC), ValueError), "a float": (1.5, TypeError),
    "a bool": (True, TypeError), "a str": ("2030-01-01", TypeError), "a date": (datetime.date(2030, 1, 1), TypeError),
}
PRIORITIES = {
    "beyond a byte": (256, ValueError), "negative": (-1, ValueError), "huge": (2**70, ValueError), "a float": (1.0, TypeError),
    "a bool": (True, TypeError), "None": (None, TypeError), "a str": ("9", TypeError),
}


class World:
    """An engine with something of each kind, and what can be seen of it."""

    def __init__(self, clock):
        self.engine = xump.Engine(clock=clock)
        self.jobs = self.engine.create_queue("jobs", limit=100)
        self.engine.create_queue("other")
        self.engine.create_selector("jobs", when=always, do=deliver("worker"), credit=5, ack_timeout=60)
        self.engine.publish_many("jobs", [("a",), ("b",), ("c",)])
        self.delivery, self.other = self.engine.take(2)
        self.message = Message("m", message_id="1")

    def seen(self):
        engine = self.engine
        return engine.topology(), engine.stats(), engine.next_due, [
            pyarrow.record_batch(queue.browse_batch()).to_pylist() for queue in engine.queues.values()]


@pytest.fixture
def world(clock):
    world = World(clock)
    yield world
    world.engine.check()
    world.engine.close()


def in_transaction(call):
    def begin_and_call(world, **given):
        with world.engine.transaction() as tx:
            call(world, tx, **given)
    return begin_and_call


PUBLISHES = {
    "publish": lambda w, **given: w.engine.publish("jobs", "x", **given),
    "publish a Message": lambda w, **given: w.engine.publish("jobs", w.message, **given),
    "publish and wait": lambda w, **given: w.engine.publish("jobs", "x", timeout=5, **given),
    "Queue.publish": lambda w, **given: w.jobs.publish("x", **given),
    "Queue.publish and wait": lambda w, **given: w.jobs.publish("x", timeout=5, **given),
    "publish_many": lambda w, **given: w.engine.publish_many("jobs", [("x",), ("y",)], **given),
    "publish_many of none": lambda w, **given: w.engine.publish_many("jobs", [], **given),
    "publish_many of Messages": lambda w, **given: w.engine.publish_many("jobs", [w.message], **given),
    "tx.publish": in_transaction(lambda w, tx, **given: tx.publish("jobs", "x", **given)),
    "tx.publish a Message": in_transaction(lambda w, tx, **given: tx.publish("jobs", w.message, **given)),
    "aio.publish": lambda w, **given: asyncio.run(xump.aio.publish(w.engine, "jobs", "x", **given)),
    "aio.publish and wait": lambda w, **given: asyncio.run(xump.aio.publish(w.engine, "jobs", "x", timeout=5, **given)),
}


def refused(world, call, error, *words):
    before = world.seen()
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) in (error, TypeError, ValueError) and all(word in str(caught.value) for word in words), caught.value
    assert world.seen() == before


def cases(values):
    return pytest.mark.parametrize(("value", "error"), values.values(), ids=values)


def shown(value):
    """How an error names the value: by its type if that is wrong."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


# ---- publishes

@pytest.mark.parametrize("place", PUBLISHES)
@pytest.mark.parametrize("name", ["delay", "ttl"])
@cases(SECONDS)
def test_seconds_of_a_publish(world, place, name, value, error):
    refused(world, lambda: PUBLISHES[place](world, **{name: value}), error, name,
            shown(value) if error is ValueError else type(value).__name__)


@pytest.mark.parametrize("place", PUBLISHES)
@pytest.mark.parametrize("name", ["at", "expires"])
@cases(MOMENTS)
def test_moments_of_a_publish(world, place, name, value, error):
    refused(world, lambda: PUBLISHES[place](world, **{name: value}), error, name)


@pytest.mark.parametrize("place", PUBLISHES)
@cases(PRIORITIES)
def test_priorities_of_a_publish(world, place, value, error):
    refused(world, lambda: PUBLISHES[place](world, priority=value), error, "priority")


@pytest.mark.parametrize("place", PUBLISHES)
@pytest.mark.parametrize("given", [
    {"delay": 1, "at": AWARE}, {"delay": 0, "at": 5}, {"ttl": 1, "expires": AWARE}, {"ttl": 0, "expires": 5},
    {"delay": 1, "at": AWARE, "ttl": 1, "expires": AWARE}], ids=str)
def test_two_that_say_the_same(world, place, given):
    refused(world, lambda: PUBLISHES[place](world, **given), ValueError, "both say when", "give one of them")


@pytest.mark.parametrize("place", PUBLISHES)
@pytest.mark.parametrize("value", [5, b"id", True, ["a"]])
def test_a_correlation_id_that_is_no_text(world, place, value):
    refused(world, lambda: PUBLISHES[place](world, correlation_id=value), TypeError, "correlation_id", type(value).__name__)


@pytest.mark.parametrize("place", [place for place in PUBLISHES if "Message" in place])
@pytest.mark.parametrize("given", [{"priority": 1}, {"expires": AWARE}, {"correlation_id": "c"}], ids=str)
def test_what_a_message_says_itself_is_not_given_beside_it(world, place, given):
    refused(world, lambda: PUBLISHES[place](world, **given), TypeError, "published as it is")


@pytest.mark.parametrize("place", [place for place in PUBLISHES if "Message" in place])
def test_no_ttl_beside_a_message_that_expires(world, place):
    world.message = Message("m", expires=AWARE)
    refused(world, lambda: PUBLISHES[place](world, ttl=5), (ValueError, TypeError)[0], "expires")


@pytest.mark.parametrize("given", [{"priority": 256}, {"expires": NAIVE}, {"expires": 1.5}, {"priority": True}], ids=str)
def test_a_message_that_cannot_be_made(world, given):
    before = world.seen()
    with pytest.raises((ValueError, TypeError)):
        Message("x", **given)
    with pytest.raises((ValueError, TypeError)):
        world.message.replace(**given)
    assert world.seen() == before


# ---- publish_batch

@pytest.mark.parametrize(("name", "values", "error", "words"), [
    ("priority", pyarrow.array([0, 256], pyarrow.int16()), ValueError, "row 1: 256, allowed are 0 to 255"),
    ("priority", pyarrow.array([0, -1], pyarrow.int8()), ValueError, "row 1: -1, allowed are 0 to 255"),
    ("priority", [0.0, 1.0], TypeError, "is of type float64"),
    ("at", [1.0, 2.0], TypeError, "is of type float64, allowed are timestamps"),
    ("expires", ["now", "then"], TypeError, "is of type utf8, allowed are timestamps"),
    ("expires", pyarrow.array([0, 2**63 - 1], pyarrow.int64()), ValueError, "row 1: 9223372036854775807, allowed are"),
    *((name, pyarrow.array([0, None], pyarrow.timestamp(unit)), TypeError, f"column '{name}' has timestamps without a time zone")
      for name in ("at", "expires") for unit in ("s", "ms", "us", "ns")),
    ("at", pyarrow.array([0, 2**40], pyarrow.timestamp("s", "UTC")), ValueError, "row 1: 1099511627776, allowed are"),
    ("at", pyarrow.array([0, -(2**62)], pyarrow.timestamp("us", "UTC")), ValueError, "row 1: -4611686018427387904, allowed are"),
    ("correlation_id", [1, 2], TypeError, "is of type int64"),
    ("delay", [1, 2], ValueError, "'delay' is unknown"), ("ttl", [1, 2], ValueError, "'ttl' is unknown"),
    ("timeout", [1, 2], ValueError, "'timeout' is unknown"),
])
def test_columns(world, name, values, error, words):
    table = pyarrow.table({"address": ["x", "y"], name: values})
    refused(world, lambda: world.engine.publish_batch("jobs", table), error, name, words)


# ---- queues and selectors

QUEUES = {
    **{f"{name}: {what}": ({name: value}, error, name)
       for name in ("ttl", "dedup", "retry_delay") for what, (value, error) in SECONDS.items()},
    **{f"retry_delay in a list: {what}": ({"retry_delay": [1, value]}, error, "retry_delay")
       for what, (value, error) in SECONDS.items()},
    "retry_delay: none": ({"retry_delay": []}, ValueError, "retry_delay"),
    "retry_delay: no delays in a tuple": ({"retry_delay": ()}, ValueError, "retry_delay"),
    "retry_delay: None among them": ({"retry_delay": [None]}, TypeError, "retry_delay"),
    "retry_delay: too many": ({"retry_delay": [1] * 1001}, ValueError, "1001"),
    "retry_delay: a set": ({"retry_delay": {1, 2}}, TypeError, "retry_delay"),
    "priority: 0": ({"priority": 0}, ValueError, "from 1 to 255"),
    "priority: 256": ({"priority": 256}, ValueError, "from 1 to 255"),
    "priority: a bool": ({"priority": True}, TypeError, "priority"),
    "priority: a float": ({"priority": 1.0}, TypeError, "priority"),
    "group: a name": ({"group": "customer"}, TypeError, "group must be a field('...')"),
    "group: a header's name": ({"group": "headers.customer"}, TypeError, "group must be a field('...')"),
    "group: a function": ({"group": len}, TypeError, "group must be a field('...')"),
    "dedup_limit: 0": ({"dedup_limit": 0}, ValueError, "dedup_limit"),
    "dedup_limit: None": ({"dedup_limit": None}, TypeError, "dedup_limit"),
    "dedup_limit: a bool": ({"dedup_limit": True}, TypeError, "dedup_limit"),
    "limit_bytes: negative": ({"limit_bytes": -1}, ValueError, "limit_bytes"),
    "limit_bytes: a float": ({"limit_bytes": 1e6}, TypeError, "limit_bytes"),
    "limit_bytes: huge": ({"limit_bytes": 2**63}, ValueError, "limit_bytes"),
    "when_full: unknown": ({"when_full": "drop_newest"}, ValueError, "'refuse' or 'drop_oldest' or 'drop_to_fit'"),
    "when_full: None": ({"when_full": None}, ValueError, "when_full"),
    "unmatched: unknown": ({"unmatched": "wait"}, ValueError, "'drop' or 'keep'"),
    "unmatched: a bool": ({"unmatched": True}, ValueError, "unmatched"),
    "transit: a text": ({"transit": "yes"}, TypeError, "transit"),
    "transit: with a ttl": ({"transit": True, "ttl": 5}, ValueError, "is for queues that keep messages"),
    "transit: with a history": ({"transit": True, "history_limit": None}, ValueError, "limit is for queues that keep"),
}


@pytest.mark.parametrize("case", QUEUES)
def test_queues(world, case):
    properties, error, words = QUEUES[case]
    refused(world, lambda: world.engine.create_queue("new", **properties), error, words)
    refused(world, lambda: world.engine.create_queue("jobs", limit=100, **properties), error, words)


def test_a_group_that_is_no_field():
    for name in ("customer", "headers.", "body", "", 5, None):
        with pytest.raises((ValueError, TypeError), match="field"):
            field(name)


ACK_TIMEOUTS = SECONDS | {"nothing": (0, ValueError), "nothing as a float": (0.0, ValueError)}


@cases(ACK_TIMEOUTS)
def test_ack_timeouts(world, value, error):
    refused(world, lambda: world.engine.create_selector("jobs", when=always, do=deliver("d"), ack_timeout=value), error,
            "ack_timeout")


@pytest.mark.parametrize("do", [move_to("other"), copy_to("other"), bounce_to("other"), discard, deliver("d", "other")], ids=str)
def test_ack_timeouts_are_for_deliveries(world, do):
    refused(world, lambda: world.engine.create_selector("jobs", when=always, do=do, ack_timeout=5), ValueError, "ack_timeout")


def test_ack_timeouts_are_for_finite_credit(world):
    refused(world, lambda: world.engine.create_selector("jobs", when=always, do=deliver("d"), credit=INFINITE, ack_timeout=5),
            ValueError, "ack_timeout", "INFINITE")


# ---- answers

ANSWERS = {
    "nack": lambda w, seconds: w.delivery.nack(delay=seconds),
    "tx.nack": in_transaction(lambda w, tx, seconds: tx.nack(w.delivery, delay=seconds)),
    "extend": lambda w, seconds: w.delivery.extend(seconds),
}


@pytest.mark.parametrize("place", ANSWERS)
@cases(SECONDS)
def test_seconds_of_an_answer(world, place, value, error):
    words = shown(value) if error is ValueError else "number of seconds"
    refused(world, lambda: ANSWERS[place](world, seconds=value), error, words)
    world.delivery.ack()        # it is still the program's to answer


def test_a_delay_of_what_does_not_come_back(world):
    refused(world, lambda: world.delivery.nack(requeue=False, delay=1), ValueError, "delay", "requeue=False")
    refused(world, lambda: ANSWERS["tx.nack"](world, seconds=-1), ValueError, "delay")
    with pytest.raises(ValueError, match="requeue=False"), world.engine.transaction() as tx:
        tx.nack(world.delivery, requeue=False, delay=1)
    world.delivery.ack()


def test_extend_without_a_deadline(world):
    world.engine.publish("other")
    delivery = world.engine.get("other")
    refused(world, lambda: delivery.extend(5), ValueError, "deadline")
    delivery.ack()


# ---- topologies

def applied(properties):
    return {name: {"field": value.name} if isinstance(value, xump.actions.Field) else value for name, value in properties.items()}


@pytest.mark.parametrize("case", [case for case in QUEUES if "None" not in case])
def test_queues_of_a_topology(world, case):
    properties, _, _ = QUEUES[case]
    description = {"version": 1, "queues": {"first": {}, "new": applied(properties)}}
    assert any("'new'" in fault and next(iter(properties)) in fault for fault in xump.topology.check(description))
    refused(world, lambda: world.engine.apply(description), Conflict, "'new'", next(iter(properties)))


@cases(ACK_TIMEOUTS)
def test_selectors_of_a_topology(world, value, error):
    description = {"version": 1, "queues": {"new": {}}, "selectors": [
        {"source": "new", "when": "always", "do": {"deliver": "d"}, "ack_timeout": value, "name": "late"}]}
    refused(world, lambda: world.engine.apply(description), Conflict, "'late'", "ack_timeout")


@pytest.mark.parametrize("do", [{"move_to": "new"}, "discard", {"deliver": "d", "queue": "new"}], ids=str)
def test_ack_timeouts_of_a_topology_are_for_deliveries(world, do):
    description = {"version": 1, "queues": {"new": {}}, "selectors": [
        {"source": "new", "when": "always", "do": do, "ack_timeout": 5, "name": "late"}]}
    refused(world, lambda: world.engine.apply(description), Conflict, "'late'", "ack_timeout")


# ---- what is let in

def test_without_an_id_nothing_is_a_duplicate(world):
    queue = world.engine.create_queue("once", dedup=60)
    assert [queue.publish("x"), queue.publish("x"), queue.publish("x", message_id="1"), queue.publish("x", message_id="1")] == [
        1, 2, 3, 3]
    assert world.engine.publish_many("once", [("x",), ("x",)]) == range(4, 6)
    assert world.engine.publish_batch("once", pyarrow.table({"message_id": [None, None, "2", "2"]})) == range(6, 9)
    assert world.engine.stats()["queues"]["once"]["duplicates"] == 2
