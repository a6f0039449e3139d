"""A client that vanishes, stalls, floods or sends nonsense harms nobody else."""

import dataclasses
import socket
import struct
import time

import pika
import pytest

import xump
from tests.broker.raw_client import Link, table_of
from tests.broker.steps import Connect, Publish
from xump.broker import Broker, Limits


@pytest.fixture
def link(broker):
    made = []

    def connect():
        made.append(Link("a", broker.address, []))
        made[-1].connect(Connect())
        return made[-1]

    yield connect
    for one in made:
        one.socket.close()


def limited(engine, **limits):
    return Broker(engine, amqp="127.0.0.1:0", limits=Limits(**limits))


def queue_of(link, name="jobs", **bits):
    link.send(1, "queue.declare", queue=name, **bits)
    assert link.read_until({"queue.declareok"}, channel=1)


def ready(link, name="jobs"):
    link.send(2, "queue.declare", queue=name, passive=True)
    assert link.read_until({"queue.declareok"}, channel=2)
    return link.last["message_count"]


def has_ended(one):
    """Whether the other side closes the socket without a word."""
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


def content(body, key="jobs", channel=1):
    """The frames of a message, one by one."""
    method = struct.pack(">HHHBB", 60, 40, 0, 0, len(key)) + key.encode() + b"\0"
    for kind, payload in ((1, method), (2, struct.pack(">HHQ", 60, 0, len(body)) + b"\0\0"), (3, body)):
        yield struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xCE"


@pytest.mark.parametrize("frames", [1, 2])
def test_a_client_that_goes_in_the_middle_of_a_message_has_published_nothing(link, frames):
    other, gone = link(), link()
    queue_of(other)
    for frame in list(content(b"x" * 1000))[:frames]:
        gone.write(frame)
    gone.write(list(content(b"x" * 1000))[frames][:50])
    gone.socket.close()
    assert ready(other) == 0


def test_a_client_that_vanishes_gives_everything_back(link, broker):
    other, gone = link(), link()
    queue_of(other)
    for number in range(3):
        other.write(b"".join(content(b"%d" % number)))
    gone.send(1, "basic.consume", queue="jobs", consumer_tag="c")
    gone.read_until({"basic.consumeok"})
    while len([said for said in gone.said if said[1] == "basic.deliver"]) < 3:
        found = gone.event()
        if found is not None:
            gone.note(*found)
    gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))     # a reset, not an end
    gone.socket.close()
    while ready(other) < 3:
        pass
    other.send(1, "basic.get", queue="jobs", no_ack=True)
    other.read_until({"basic.getok"})
    assert other.last["redelivered"] is True


def test_a_client_that_does_not_read_gets_no_more_than_fits(engine):
    """What it does not read stays in the queue, and the others have theirs."""
    with limited(engine, stalled_seconds=0.2) as broker:
        frozen, other = Link("a", broker.address, []), Link("b", broker.address, [])
        try:
            frozen.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            frozen.connect(Connect())
            other.connect(Connect())
            queue_of(other)
            frozen.send(1, "basic.consume", queue="jobs", consumer_tag="c", no_ack=True)
            for _message in range(400):
                other.write(b"".join(content(b"x" * 100_000)))
            assert ready(other) > 200
            while len(broker.connections) > 1:          # it is disconnected for that
                ready(other)
            left = ready(other)
            other.send(1, "basic.get", queue="jobs", no_ack=True)
            assert other.read_until({"basic.getok"})
            assert ready(other) == left - 1
        finally:
            frozen.socket.close()
            other.socket.close()


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\1\1\0\x0a", b"AMQP\0\1\0\0", b"\0" * 8])
def test_another_protocol_is_told_which_one_it_is(broker, first):
    with socket.create_connection(broker.address, 10) as one:
        one.sendall(first)
        said = b""
        while more := one.recv(100):
            said += more
    assert said == b"AMQP\0\0\x09\x01"


def test_whoever_does_not_log_in_is_disconnected(engine):
    with limited(engine, handshake_seconds=0.05) as broker, socket.create_connection(broker.address, 10) as one:
        one.sendall(b"AMQP\0\0\x09\x01")
        while one.recv(1000):
            pass


def test_one_connection_too_many_is_closed(engine):
    with limited(engine, connections_max=1) as broker:
        host, port = broker.address
        first = pika.BlockingConnection(pika.ConnectionParameters(host, port))
        with socket.create_connection(broker.address, 10) as one:
            one.sendall(b"AMQP\0\0\x09\x01")
            assert has_ended(one)
        first.channel().queue_declare("jobs")
        first.close()


def test_a_body_that_is_too_large_ends_its_channel(engine):
    with limited(engine, body_bytes_max=1000) as broker:
        link = Link("a", broker.address, [])
        link.connect(Connect())
        queue_of(link)
        link.write(b"".join(content(b"x" * 1001)))
        link.read_until({"channel.close"}, channel=1)
        assert (link.last["reply_code"], link.last["reply_text"]) == (
            406, "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000")
        assert ready(link) == 0
        link.socket.close()


def test_silence_ends_a_connection_that_agreed_on_heartbeats(engine):
    with limited(engine, heartbeat=1) as broker:
        link = Link("a", broker.address, [])
        link.socket.sendall(b"AMQP\0\0\x09\x01")
        link.read_until({"connection.start"})
        link.send(0, "connection.startok", mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US")
        link.read_until({"connection.tune"})
        assert link.last["heartbeat"] == 1
        link.send(0, "connection.tuneok", channel_max=10, frame_max=4096, heartbeat=1)
        link.send(0, "connection.open", virtual_host="/")
        link.read_until({"connection.openok"})
        kinds = []
        while link.open:
            kinds.append(link.read_frame()[0])
        assert kinds.count(8) >= 2              # ours came until then
        link.socket.close()


def test_a_queue_that_the_program_deletes_cancels_its_consumers(link, engine):
    one = link()
    queue_of(one)
    one.send(1, "basic.consume", queue="jobs", consumer_tag="c")
    one.read_until({"basic.consumeok"})
    engine.delete_queue("jobs")
    assert one.read_until({"basic.cancel"}, channel=1)
    assert one.last["consumer_tag"] == "c"


def test_bytes_of_nonsense_end_their_own_connection_only(link, engine):
    import random

    chance = random.Random(1)
    good = link()
    queue_of(good)
    for _client in range(50):
        bad = link()
        frame = bytearray(b"".join(content(b"x" * 50)))
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
        bad.write(bytes(frame) + chance.randbytes(100))
        bad.socket.shutdown(socket.SHUT_WR)
        while bad.open:
            bad.event()
    good.write(b"".join(content(b"good")))
    assert ready(good) >= 1
    engine.check()


def test_two_engines_are_two_virtual_hosts():
    with xump.Engine() as one, xump.Engine() as two, Broker({"/": one, "other": two}, amqp="127.0.0.1:0") as broker:
        host, port = broker.address
        for name in ("/", "other"):
            connection = pika.BlockingConnection(pika.ConnectionParameters(host, port, virtual_host=name))
            connection.channel().queue_declare(f"jobs of {name}")
            connection.close()
        assert (list(one.queues), list(two.queues)) == (["jobs of /"], ["jobs of other"])


def test_a_client_that_reads_a_large_body_slowly_is_not_one_that_has_stalled(engine):
    """It is written piece by piece, and each one that the client reads counts."""
    body = bytes(range(256)) * (3 << 14)
    with limited(engine) as broker:
        slow, other = Link("a", broker.address, []), Link("b", broker.address, [])
        try:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
            for link in (slow, other):
                link.connect(Connect())
            queue_of(other)
            other.write(b"".join(list(content(body))[:2]))
            for at in range(0, len(body), 100_000):
                other.frame(3, 1, body[at:at + 100_000])
            other.write(b"".join(content(b"small")))
            slow.send(1, "basic.consume", queue="jobs", consumer_tag="c", no_ack=True)
            assert slow.read_until({"basic.consumeok"})
            connection = next(iter(broker.connections))
            while not connection.paused:
                time.sleep(0.001)
            assert connection.transport.get_write_buffer_size() < len(body) / 8     # the rest was not copied
            since, got = connection.stalled_since, [slow.rest]
            while sum(map(len, got)) < len(body) and connection.stalled_since == since:
                got.append(slow.socket.recv(1 << 20))
                time.sleep(0.001)
            assert connection.stalled_since > since
            while not got[-1].endswith(b"small\xCE"):
                got.append(slow.socket.recv(1 << 20))
                assert got[-1], "disconnected"
        finally:
            slow.socket.close()
            other.socket.close()
    assert b"".join(bodies_in(b"".join(got))) == body + b"small"


def bodies_in(got):
    """The payloads of the body frames, joined."""
    at = 0
    while at < len(got):
        kind, _channel, size = struct.unpack_from(">BHI", got, at)
        assert got[at + 7 + size] == 0xCE
        if kind == 3:
            yield got[at + 7:at + 7 + size]
        at += 8 + size


def test_a_client_that_closes_and_reads_nothing_is_disconnected(link, broker, engine):
    """What it was sent is more than its socket and ours hold; it has so long to read that as to answer."""
    engine.create_queue("jobs")
    engine.publish("jobs", "", b"x" * (32 << 20))
    one, other = link(), link()
    connection = next(iter(broker.connections))
    connection.limits = dataclasses.replace(connection.limits, handshake_seconds=0.01, output_bytes_max=1 << 30)
    one.send(1, "basic.get", queue="jobs")
    one.send(0, "connection.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    while connection in broker.connections:
        ready(other)
    assert ready(other) == 1


def test_a_refused_consumer_of_replies_leaves_no_queue(link, engine):
    """It is not refused for its arguments, which mean nothing there."""
    one = link()
    for number, (no_ack, answer) in enumerate([(False, "channel.close"), (True, "basic.consumeok"), (True, "channel.close")]):
        channel = (1, 2, 2)[number]
        one.send(channel, "basic.consume", queue="amq.rabbitmq.reply-to", no_ack=no_ack, consumer_tag=str(number),
                 arguments=table_of({"x-priority": "high", "x-stream-offset": 5}))
        assert one.read_until({answer}, channel=channel)
        assert len(engine.queues) == (0, 1, 0)[number]


MISTAKES = {
    "arguments": {"durable": True, "arguments": {"x-own": "x" * 70_000}},
    "the routing key of dead letters": {"arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "x" * 70_000}},
    "the exchange of dead letters": {"arguments": {"x-dead-letter-exchange": "x" * 70_000}},
    "bytes that UTF-8 says in three": {"arguments": {"x-dead-letter-exchange": ("S", b"\xff" * 30_000)}},
}


@pytest.mark.parametrize("what", MISTAKES)
def test_what_the_engine_cannot_keep_ends_the_channel(what, engine, tmp_path):
    engine.create_store("disk", "ring", path=str(tmp_path / "disk.xump"))
    with Broker(engine, amqp="127.0.0.1:0", store="disk") as broker:
        one = Link("a", broker.address, [])
        one.connect(Connect())
        fields = {**MISTAKES[what], "arguments": table_of(MISTAKES[what]["arguments"])}
        one.send(1, "queue.declare", queue="jobs", **fields)
        assert one.read_until({"channel.close"}) and one.last["reply_code"] == 406, one.said
        assert not engine.queues
        one.socket.close()


@pytest.mark.parametrize(("given", "limit"), [(2, 3), (65_534, 65_535), (65_535, None), (2**62, None), (-1, 1)])
def test_a_delivery_limit_beyond_what_is_counted_is_none(link, engine, given, limit):
    queue_of(link(), durable=True, arguments=table_of({"x-queue-type": "quorum", "x-delivery-limit": ("l", given)}))
    assert engine.queues["jobs"].delivery_limit == limit


OWN = {"queue.declare": {"passive": True}, "basic.get": {}, "basic.consume": {}, "queue.purge": {}, "queue.delete": {},
       "queue.bind": {"exchange": "amq.fanout"}}


@pytest.mark.parametrize("method", OWN)
@pytest.mark.parametrize(("kind", "code"), [("transit", 403), ("staged", 404)])
def test_queues_that_the_program_keeps_to_itself(link, engine, method, kind, code):
    engine.create_queue("own", **{kind: True})
    one = link()
    one.send(1, method, queue="own", **OWN[method])
    if (method, kind) == ("queue.delete", "staged"):
        assert one.read_until({"queue.deleteok"})           # there is none for clients: RabbitMQ says the same
    else:
        assert one.read_until({"channel.close"}) and one.last["reply_code"] == code
    assert "own" in engine.queues and not engine.selectors


def test_names_of_staged_queues_are_the_brokers(link, engine):
    one = link()
    one.send(1, "queue.declare", queue="xump.staging/jobs/run/0-0")
    assert one.read_until({"channel.close"}) and one.last["reply_code"] == 403
    assert not engine.queues


@pytest.mark.parametrize("kind", ["transit", "staged"])
def test_nothing_goes_by_the_default_exchange_where_no_client_finds_a_queue(link, engine, kind):
    """Be it looked at on its way or not."""
    own = engine.create_queue("own", **{kind: True})
    one = link()
    one.send(1, "queue.declare", queue="own")
    assert one.read_until({"channel.close"}) and one.last["reply_code"] == 403
    for properties in ({}, {"user_id": "guest"}):
        one.publish(Publish(key="own", mandatory=True, properties=properties, channel=2))
        assert one.read_until({"basic.return"}, channel=2)
    assert own.counters()["entered"] == 0


def test_what_a_client_says_is_one_line_in_the_log(engine, caplog):
    with Broker(engine, amqp="127.0.0.1:0") as broker:
        host, port = broker.address
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.ConnectionParameters(host, port, virtual_host="/\nERROR \x1b[31m"))
    [said] = [record.getMessage() for record in caplog.records if "is closed" in record.getMessage()]
    assert "vhost /\\nERROR \\x1b[31m not found" in said and said.isprintable()
