"""What few messages and queues have: times, priorities, correlation ids, and the properties of queues that go by them. They are
kept, travel, and can be read; what they do is tested beside the rules."""

import pickle
from datetime import UTC, datetime

import pyarrow
import pytest

from xump import INFINITE, Engine, Message, always, bounce_to, copy_to, deliver, field, move_to

SECOND = 10**9
MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
MOMENT_NS = 1_704_067_200 * SECOND
RICH = {"correlation_id": "c", "expires": 5 * SECOND, "priority": 9}


def rich_of(message):
    return {name: getattr(message, name) for name in RICH}


@pytest.fixture
def engine():
    with Engine(clock=lambda: SECOND, dead_letter="dead") as engine:
        for name in ("q", "r", "dead"):
            engine.create_queue(name)
        yield engine
        engine.check()


# ---- messages

def test_a_message_has_what_it_was_made_with():
    plain, rich = Message("a", b"x", {"n": 1}), Message("a", b"x", {"n": 1}, **RICH)
    assert rich_of(plain) == {"correlation_id": None, "expires": None, "priority": 0} and rich_of(rich) == RICH
    assert repr(rich) == "Message('a', b'x', {'n': 1}, correlation_id='c', expires=5000000000, priority=9)"
    assert rich != plain and rich == Message("a", b"x", {"n": 1}, **RICH) and pickle.loads(pickle.dumps(rich)) == rich
    for name, value in (("correlation_id", None), ("expires", None), ("priority", 0)):
        assert rich.replace(**{name: value}) != rich and rich_of(rich.replace(**{name: value})) == RICH | {name: value}
    assert rich_of(rich.replace(body=b"y", address="b")) == RICH
    assert Message(expires=MOMENT).expires == MOMENT_NS and Message(expires=-1).expires == -1


@pytest.mark.parametrize("headers", [None, {"n": 1}, {"a": "x" * 1000}, {"ä": 0.5}])
@pytest.mark.parametrize("body", [b"", b"1234567", b"x" * 5000])
def test_the_rest_of_a_message_is_as_without_them(headers, body):
    rich = Message("a", body, headers, reply_to="r", message_id="m", **RICH)
    assert (rich.address, rich.body, dict(rich.headers), rich.reply_to, rich.message_id) == ("a", body, headers or {}, "r", "m")
    assert rich_of(rich) == RICH


# ---- publishing

def test_every_publish_takes_them(engine):
    rest = {"correlation_id": "c", "priority": 9}
    engine.publish("q", "a", expires=5 * SECOND, **rest)
    engine.queues["q"].publish("a", ttl=4, **rest)
    engine.publish("q", Message("a", **RICH))
    with engine.transaction() as tx:
        tx.publish("q", "a", ttl=4.0, **rest)
        tx.publish("q", Message("a", **rest), ttl=4, delay=0)
    engine.publish_many("q", [Message("a", **RICH)])
    times = pyarrow.array([5], pyarrow.timestamp("s", "UTC"))
    engine.publish_batch("q", pyarrow.table({"address": ["a"], "correlation_id": ["c"], "priority": [9], "expires": times}))
    assert [rich_of(message) for message in engine.queues["q"].browse()] == [RICH] * 7
    engine.publish_many("r", [("a",), ("a", b"", {"n": 1}, "r", "m")], ttl=4, priority=9, at=0)
    assert [rich_of(message) for message in engine.queues["r"].browse()] == [RICH | {"correlation_id": None}] * 2


def test_a_time_to_live_leaves_a_message_that_was_given_as_it_was(engine):
    given = Message("a", b"x")
    engine.publish("q", given, ttl=1)
    [entered] = engine.queues["q"].browse()
    assert (given.expires, entered.expires) == (None, 2 * SECOND)


def test_the_latest_moment_is_not_never():
    with Engine(clock=lambda: 2**63 - 3) as engine:
        queue = engine.create_queue("q")
        queue.publish("a", ttl=3 * 10**9)
        assert [message.expires for message in queue.browse()] == [2**63 - 2]


@pytest.mark.parametrize("unit, factor", [("s", SECOND), ("ms", 10**6), ("us", 1000), ("ns", 1)])
def test_columns_of_times(unit, factor):
    engine = Engine(clock=lambda: -10**11)      # so that none of them is late
    for name in "qr":
        engine.create_queue(name)
    kind = pyarrow.timestamp(unit, "UTC")
    engine.publish_batch("q", pyarrow.table({"expires": pyarrow.chunked_array([[7, None], [-3]], kind)}))
    assert [message.expires for message in engine.queues["q"].browse()] == [7 * factor, None, -3 * factor]
    whole = pyarrow.table({"expires": [1, 2, 3, None, 5], "priority": pyarrow.array([1, 2, 255, None, 4], "uint8")})
    engine.publish_batch("r", whole.slice(2))
    assert [(message.expires, message.priority) for message in engine.queues["r"].browse()] == [(3, 255), (None, 0), (5, 4)]


# ---- they travel

@pytest.mark.parametrize("do", [copy_to("r"), move_to("r"), deliver("d", "r"), bounce_to("r")])
@pytest.mark.parametrize("credit", [1, INFINITE])
def test_they_travel(engine, do, credit):
    engine.publish("q", "a", b"body", {"n": 1}, reply_to="back", message_id="m", **RICH)
    engine.create_selector("q", when=always, do=do, credit=credit)
    [moved] = engine.queues["r"].browse()
    assert rich_of(moved) == RICH and (moved.body, moved.message_id, moved.headers["n"]) == (b"body", "m", 1)


def test_a_dead_letter_does_not_expire(engine):
    engine.create_selector("q", when=always, do=deliver("d"))
    engine.publish("q", "a", **RICH)
    engine.take(1)[0].reject()
    engine.publish("nowhere", "a", **RICH)
    assert [rich_of(message) for message in engine.queues["dead"].browse()] == [RICH | {"expires": None}] * 2


# ---- properties of queues and selectors

PROPERTIES = {
    "retry_delay": [1, 2.5], "ttl": 0.1, "priority": 255, "group": field("headers.customer"), "dedup": 60, "dedup_limit": 7,
    "limit_bytes": 0, "when_full": "drop_oldest", "unmatched": "keep",
}
DEFAULTS = dict.fromkeys(PROPERTIES) | {"dedup_limit": 100_000, "when_full": "refuse", "unmatched": "drop"}


def properties_of(queue):
    return {name: getattr(queue, name) for name in PROPERTIES}


def test_a_queue_has_what_it_was_made_with(engine):
    queue = engine.create_queue("all", **PROPERTIES)
    assert properties_of(queue) == PROPERTIES and properties_of(engine.queues["q"]) == DEFAULTS
    assert engine.create_queue("all", **PROPERTIES) is queue
    assert engine.create_queue("all", **{**PROPERTIES, "retry_delay": (1.0, 2.5), "dedup": 60.0}) is queue
    for name in ("address", "reply_to", "destination", "headers.größe"):
        assert engine.create_queue(group=field(name)).group == field(name)
    assert engine.create_queue(retry_delay=0).retry_delay == [0] and (queue.delayed, queue.counters()["duplicates"]) == (0, 0)


@pytest.mark.parametrize("name", PROPERTIES)
def test_each_property_is_part_of_a_topology(engine, name):
    one = {name: PROPERTIES[name]}
    engine.create_queue("one", **one)
    described = engine.topology()
    assert list(described["queues"]["one"]) == [name]
    with Engine() as twin:
        twin.apply(described)
        twin.apply(described)
        assert twin.topology() == described and getattr(twin.queues["one"], name) == PROPERTIES[name]


def test_an_ack_timeout_is_a_property_of_its_selector(engine):
    make = {"when": always, "do": deliver("d"), "name": "s"}
    selector = engine.create_selector("q", **make, ack_timeout=1.5)
    assert selector.ack_timeout == 1.5 and engine.create_selector("q", **make, ack_timeout=1.5) is selector
    assert engine.create_selector("r", when=always, do=deliver("d")).ack_timeout is None
    described = engine.topology()
    with Engine(dead_letter="dead") as twin:
        twin.apply(described)
        twin.apply(described)
        assert twin.topology() == described and twin.selectors["s"].ack_timeout == 1.5 and len(twin.selectors) == 2
