"""While messages take too much memory, who publishes is not read, and everybody else goes on."""

import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.broker.raw_client import Link
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content, queue_of, ready
from xump.broker import Broker, Limits
from xump.broker.memory import bytes_max
from xump_ext.memory.slab import memory_bytes

pytestmark = pytest.mark.usefixtures("no_garbage")
ROOM = 8 << 20
BODY = b"x" * (1 << 20)


@pytest.fixture
def full(engine):
    """A broker whose bound is reached after some large messages."""
    limits = Limits(memory_bytes=memory_bytes() + ROOM)
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", limits=limits) as broker:
        yield broker


@pytest.fixture
def connect(full):
    links = []

    def one(name="a"):
        links.append(Link(name, full.address, []))
        links[-1].connect(Connect())
        return links[-1]

    yield one
    for link in links:
        link.socket.close()


def large(key="jobs", channel=1):
    """A message of a MiB."""
    frames = list(content(BODY, key, channel))
    pieces = [BODY[at:at + 131_064] for at in range(0, len(BODY), 131_064)]
    bodies = [bytes([3, 0, channel]) + len(piece).to_bytes(4, "big") + piece + b"\xCE" for piece in pieces]
    return b"".join([*frames[:2], *bodies])


def fill(broker, publisher, other):
    """Publish until there is too much. Returns how many messages were published."""
    count = 0
    while not broker.memory.is_high:
        publisher.write(large())
        count += 1
        while not broker.memory.is_high and ready(other) < count:
            pass
    return count


def test_who_publishes_waits_until_there_is_less(full, connect):
    publisher, consumer = connect(), connect("b")
    queue_of(publisher)
    count = fill(full, publisher, consumer)
    assert publisher.read_until({"connection.blocked"})
    assert publisher.last == {"reason": "low on memory"}
    publisher.write(large())
    before = ready(consumer)                # others are answered
    assert before <= count
    consumer.send(1, "queue.purge", queue="jobs")
    assert consumer.read_until({"queue.purgeok"})
    assert publisher.read_until({"connection.unblocked"})
    publisher.send(2, "queue.declare", queue="jobs", passive=True)
    assert publisher.read_until({"queue.declareok"})
    assert publisher.last["message_count"] == count + 1 - before      # what it sent meanwhile was not lost


def test_consumers_free_what_publishers_wait_for(connect):
    publisher, consumer = connect(), connect("b")
    queue_of(publisher)
    publisher.send(1, "confirm.select")
    assert publisher.read_until({"confirm.selectok"})
    count = 3 * ROOM // len(BODY)
    consumer.send(1, "basic.consume", queue="jobs", consumer_tag="c", no_ack=True)
    assert consumer.read_until({"basic.consumeok"})
    got = 0
    for number in range(count):
        publisher.write(large())
        while got < number - 2:             # it is a little behind
            got += consumer.event() is not None
    while len(publisher.confirmed.get(1, ())) < count:
        publisher.event()
    assert list(publisher.confirmed[1].values()) == ["ack"] * count


def test_what_cannot_wait_is_refused(full, connect, engine):
    link = connect()
    queue_of(link)
    while not full.memory.is_too_much():
        engine.publish("jobs", "jobs", BODY)
    for path in ("queues/jobs", "exchanges/amq.topic?address=x"):
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(full.http.url + path, b"x")
        assert raised.value.code == 503 and raised.value.headers["Retry-After"]
        assert b"Limits.memory_bytes" in raised.value.read()
    engine.queues["jobs"].purge()
    while full.memory.is_high:
        ready(link)
    urllib.request.urlopen(full.http.url + "queues/jobs", b"x").close()
    assert ready(link) == 1


def test_a_connection_that_waits_can_be_closed(full, connect):
    link, other = connect(), connect("b")
    queue_of(link)
    fill(full, link, other)
    assert link.read_until({"connection.blocked"})
    full.close()
    assert link.read_until({"connection.close"}) and link.last["reply_code"] == 320
    assert not full.memory.waiting


def test_bytes_are_counted_and_given_back(engine):
    before = memory_bytes()
    jobs = engine.create_queue("jobs")
    engine.publish_many(jobs, [("jobs", bytes(10_000))] * 100)
    assert memory_bytes() - before >= 1_000_000
    jobs.purge()
    assert memory_bytes() - before < 500_000


def test_the_bound_is_a_share_of_what_there_is():
    assert bytes_max(5) == 5
    assert 1 << 20 < bytes_max(None) < 1 << 50


def test_who_vanishes_while_it_is_not_read_gives_everything_back(full, connect, engine):
    publisher, other = connect(), connect("b")
    queue_of(publisher)
    publisher.send(1, "queue.declare", queue="mine", exclusive=True)
    assert publisher.read_until({"queue.declareok"})
    publisher.write(large())
    publisher.send(1, "basic.get", queue="jobs")
    assert publisher.read_until({"basic.getok"})
    count = fill(full, publisher, other)
    assert publisher.read_until({"connection.blocked"})
    publisher.write(large("jobs") + b"".join(content(b"the last", "jobs")))
    publisher.socket.close()
    while ready(other) < count + 3:             # what it had, what came before it was blocked, and what it had sent
        assert full.memory.is_high
    while "mine" in engine.queues:
        ready(other)
    assert next(iter(engine.queues["jobs"].browse(reverse=True, limit=1))).body == b"the last"


def test_a_broker_that_begins_again_forgets_that_memory_was_short(engine):
    """It ended while publishers waited; nobody looks again then."""
    broker = Broker(engine, amqp="127.0.0.1:0")
    with broker:
        broker.memory.is_high = True
    with broker:
        assert not broker.memory.look() and not broker.memory.waiting


# ---- bodies in the making

PIECE = 65_536


def begin(link, size, channel=1, key="nowhere"):
    """The beginning of a message, with a piece of its body. Returns what is left to send."""
    frames = list(content(bytes(size), key, channel))
    head = bytes([3, 0, channel]) + PIECE.to_bytes(4, "big")
    pieces = [head + bytes(PIECE) + b"\xCE"] * (size // PIECE)
    link.write(b"".join([*frames[:2], pieces[0]]))
    return b"".join(pieces[1:])


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_body_that_does_not_grow_counts_with_what_has_come(full, connect):
    """Else headers that promise much would keep all publishers waiting, for nothing."""
    begin(connect(), ROOM)
    until(lambda: full.memory.promised == ROOM)
    connection, = full.connections
    for now, promised in ((1.0, ROOM), (1.0 + full.limits.stalled_seconds, ROOM), (1.1 + full.limits.stalled_seconds, PIECE)):
        looked = threading.Event()
        full.loop.call_soon_threadsafe(lambda now=now, looked=looked: (connection.bodies.look(now), looked.set()))
        assert looked.wait(60)
        assert (full.memory.promised == promised) or (promised == PIECE and PIECE <= full.memory.promised < 2 * PIECE)


def test_who_begins_a_message_waits_while_others_send_theirs(full, connect):
    first, second, third = connect(), connect("b"), connect("c")
    queue_of(second)
    for link in (second, third):
        link.send(1, "confirm.select")
        assert link.read_until({"confirm.selectok"})
    rest = begin(first, 2 * ROOM)                       # more than there is room for: else nothing could be so large
    until(lambda: full.memory.promised == 2 * ROOM)
    rests = [begin(second, ROOM // 2), begin(third, ROOM // 2)]
    for link in (second, third):
        assert link.read_until({"connection.blocked"})
    assert full.memory.promised == 2 * ROOM             # who is not read does not keep others waiting
    first.write(rest)
    for link, left in zip((second, third), rests, strict=True):
        assert link.read_until({"connection.unblocked"})
        link.write(left)
        until(lambda link=link: link.event() is not None or link.confirmed.get(1))
    until(lambda: full.memory.promised == 0)


def test_bodies_end_with_their_connection(full, connect):
    vanishing, failing = connect(), connect("b")
    begin(vanishing, ROOM)
    begin(failing, ROOM)
    until(lambda: full.memory.promised == 2 * ROOM or full.memory.waiting)
    vanishing.socket.close()
    until(lambda: full.memory.promised == ROOM and not full.memory.waiting)
    failing.send(1, "queue.declare", queue="jobs")      # amid a body
    assert failing.read_until({"connection.close"}) and failing.last["reply_code"] == 505
    failing.socket.close()
    until(lambda: full.memory.promised == 0)


def test_two_bodies_of_one_client(full, connect):
    """It may not wait for itself."""
    link = connect()
    rests = [begin(link, ROOM, channel) for channel in (1, 2)]
    until(lambda: full.memory.promised == 2 * ROOM)
    link.write(b"".join(rests))
    link.send(2, "queue.declare", queue="jobs")
    assert link.read_until({"queue.declareok"})
    assert full.memory.promised == 0


def test_a_client_counts_for_no_more_than_it_may_send(engine):
    limits = Limits(memory_bytes=memory_bytes() + ROOM, bytes_in_flight_max=ROOM // 2)
    with Broker(engine, amqp="127.0.0.1:0", limits=limits) as broker:
        link = Link("a", broker.address, [])
        link.connect(Connect())
        for channel in (1, 2):
            begin(link, ROOM, channel)
        other = Link("b", broker.address, [])
        other.connect(Connect())
        queue_of(other)
        other.write(large())
        assert ready(other) == 1 and broker.memory.promised == ROOM // 2
        link.socket.close()
        other.socket.close()
