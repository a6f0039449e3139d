"""Each bound of `Limits` has its code, ends no more than it must, and changes nothing for others."""

import logging
import struct
import threading
import time

import pytest

from tests.broker.raw_client import Link
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content, limited, queue_of, ready
from xump.broker.looking_after import look_after
from xump_ext.memory.slab import memory_bytes


@pytest.fixture
def connect(engine):
    """Makes a broker with limits, and connections to it."""
    brokers, links = [], []

    def start(**limits):
        brokers.append(limited(engine, **limits).__enter__())

        def one(**tune):
            links.append(Link("a", brokers[-1].address, []))
            links[-1].connect(Connect(**tune))
            return links[-1]

        return brokers[-1], one

    yield start
    for link in links:
        link.socket.close()
    for broker in brokers:
        broker.close()


def closed_with(link):
    """The code of the connection's end."""
    assert link.read_until({"connection.close"})
    return link.last["reply_code"]


def test_one_channel_too_many_ends_the_connection(connect):
    _broker, one = connect(channel_max=2)
    bad, good = one(channel_max=2, channels=2), one(channel_max=2, channels=2)
    bad.send(3, "channel.open")
    assert closed_with(bad) == 530
    queue_of(good)


def test_a_frame_that_is_too_long_ends_the_connection(connect):
    _broker, one = connect(frame_max=4096)
    bad, good = one(frame_max=4096), one(frame_max=4096)
    queue_of(good)
    bad.write(struct.pack(">BHI", 3, 1, 4097))
    assert closed_with(bad) == 501
    assert ready(good) == 0


@pytest.mark.parametrize("headers", [False, True])
def test_too_much_on_its_way_at_once_ends_the_connection(connect, headers):
    """Bodies and headers alike, of all channels together."""
    broker, one = connect(bytes_in_flight_max=150_000)
    bad, good = one(), one()
    queue_of(good)
    for channel in (1, 2, 3):
        method, header, body = content(b"x" * 60_000, channel=channel)
        if headers:
            table = b"\x01aS" + struct.pack(">I", 60_000) + bytes(60_000)
            payload = struct.pack(">HHQH", 60, 0, 1, 1 << 13) + struct.pack(">I", len(table)) + table
            header, body = struct.pack(">BHI", 2, channel, len(payload)) + payload + b"\xCE", b""
        else:
            body = body[:3] + struct.pack(">I", 50_000) + body[7:50_007] + b"\xCE"
        bad.write(method + header + body)
    assert closed_with(bad) == 506
    assert ready(good) == 0
    assert [connection.decoder.bytes_in_flight for connection in broker.connections if connection.state == "running"] == [0]


def test_a_consumer_has_only_so_many_messages_that_it_has_not_settled(connect):
    _broker, one = connect(unacked_max=10)
    link = one()
    queue_of(link)
    for number in range(30):
        link.write(b"".join(content(b"%d" % number)))
    link.send(1, "basic.consume", queue="jobs", consumer_tag="c")
    assert link.read_until({"basic.consumeok"})
    for settled in (0, 10):
        tags = []
        while len(tags) < 10:
            assert link.read_until({"basic.deliver"})
            tags.append(link.last["delivery_tag"])
        assert (tags[-1], ready(link)) == (settled + 10, 20 - settled)
        link.send(1, "basic.ack", delivery_tag=tags[-1], multiple=True)


def test_nonsense_is_logged_once(connect, caplog):
    _broker, one = connect()
    bad, good = one(), one()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "xump"):
        bad.write(b"\xff" * 100)
        bad.write(b"\xff" * 100)
        assert closed_with(bad) == 501
        queue_of(good)
    assert len([record for record in caplog.records if record.name == "xump"]) == 1


def test_an_idle_connection_gives_back_what_a_burst_has_left(connect):
    """Else each client that was busy once would cost hundreds of kilobytes for good."""
    broker, one = connect()
    link = one()
    queue_of(link)
    link.write(b"".join(content(b"x" * 100)) * 2000)
    assert ready(link) == 2000
    connection, = broker.connections
    assert connection.decoder.room > 1000
    looked = threading.Event()

    def later():
        look_after(connection, broker.loop.time() + 60)
        looked.set()

    broker.loop.call_soon_threadsafe(later)
    assert looked.wait(60)
    assert (connection.decoder.room, connection.output.room) == (0, 0)
    assert ready(link) == 2000


def in_transaction(link, name="jobs"):
    queue_of(link, name)
    link.send(1, "tx.select")
    assert link.read_until({"tx.selectok"})


def refused(link):
    """What the end of channel 1 says."""
    assert link.read_until({"channel.close"})
    return link.last["reply_code"], link.last["reply_text"]


@pytest.mark.parametrize("way", ["bodies", "messages", "acks"])
def test_a_transaction_that_is_too_large_ends_its_channel(engine, connect, way):
    """Nothing of it is done, and the other channel, and what was committed before, are as they were."""
    broker, one = connect(transaction_bytes_max=100_000)
    link = one()
    in_transaction(link)
    link.write(b"".join(content(bytes(40_000))))
    link.send(1, "tx.commit")
    assert link.read_until({"tx.commitok"})
    if way == "bodies":
        link.write(b"".join([*content(bytes(40_000))] * 3))
    elif way == "messages":
        link.write(b"".join([*content(b"x")] * 101))
    else:
        engine.publish_many("jobs", [("jobs",)] * 600)
        link.send(1, "basic.consume", queue="jobs", consumer_tag="c")
        for _message in range(601):
            assert link.read_until({"basic.deliver"})
        link.send(1, "basic.ack", delivery_tag=601, multiple=True)
    code, said = refused(link)
    assert code == 406 and "Limits.transaction_bytes_max" in said
    assert ready(link) == (601 if way == "acks" else 1) and broker.memory.uncommitted == 0


def test_a_transaction_that_ends_makes_room(connect):
    _broker, one = connect(transaction_bytes_max=100_000)
    link = one()
    in_transaction(link)
    for end in ("commit", "rollback") * 3:
        link.write(b"".join(content(bytes(80_000))))
        link.send(1, f"tx.{end}")
        assert link.read_until({f"tx.{end}ok"}, channel=1)
    assert ready(link) == 3


def test_transactions_of_all_clients_have_a_quarter_of_the_memory(connect):
    """Three of them fit. The bound is above what engines of other tests have in this process: else publishers would wait."""
    each = 1 + 2 * memory_bytes() // 1_056_000
    broker, one = connect(memory_bytes=each * 1_056_000)
    links = [one() for _client in range(4)]
    for number, link in enumerate(links):
        in_transaction(link, f"jobs{number}")
        for _message in range(each):
            link.write(b"".join(content(bytes(80_000))))
        link.send(2, "queue.declare", queue=f"jobs{number}", passive=True)
        if number < 3:
            assert link.read_until({"queue.declareok"}, channel=2)
    code, said = refused(links[3])
    assert code == 406 and "Limits.memory_bytes" in said
    links[0].socket.close()
    deadline = time.monotonic() + 60
    while broker.memory.uncommitted > 2 * each * 82_000:
        assert time.monotonic() < deadline, "the transaction of a client that went was not dropped"
        time.sleep(0.01)
    links[1].send(1, "tx.commit")
    assert links[1].read_until({"tx.commitok"})
