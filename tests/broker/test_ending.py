"""The end in good order: consumers are cancelled, acks are waited for, confirms are written, then connections are closed."""

import asyncio
import gc
import signal
import socket
import threading
import time
from contextlib import suppress

import pytest

from tests.broker.http.conftest import Client
from tests.broker.raw_client import Link
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content, queue_of
from tests.broker.test_consumers import consume, delivered, read_deliveries
from tests.broker.test_serve import serve  # noqa: F401 — a fixture
from tests.patience import PATIENCE
from xump import Engine
from xump.broker import Broker, vhost
from xump.broker.connection import Connection
from xump.broker.limits import Limits
from xump.errors import XumpError
from xump.watch import Watch

LONG = 60.0


@pytest.fixture
def linked(engine):
    """A broker, and a way to connect to it."""
    links = []
    with Broker(engine, amqp="127.0.0.1:0") as broker:

        def connect():
            links.append(Link("a", broker.address, []))
            links[-1].connect(Connect())
            return links[-1]

        yield broker, connect
    for link in links:
        link.socket.close()


def ending(broker, **options):
    """Begins to end the broker; the thread that it is joined by."""
    thread = threading.Thread(target=broker.close, kwargs=options)
    thread.start()
    return thread


def consumer_of(link, count):
    queue_of(link)
    for number in range(count):
        link.write(b"".join(content(b"%d" % number)))
    consume(link, "c")
    read_deliveries(link, count)


def test_consumers_are_cancelled_and_acks_are_waited_for(linked, engine):
    broker, connect = linked
    link = connect()
    consumer_of(link, 3)
    thread = ending(broker, ack_timeout=LONG)
    assert link.read_until({"basic.cancel"})
    engine.publish("jobs", "jobs", b"late")
    link.send(1, "basic.ack", delivery_tag=2, multiple=True)
    link.send(1, "basic.nack", delivery_tag=3, requeue=True)
    assert link.read_until({"connection.close"})
    assert link.last["reply_code"] == 320 and delivered(link) == [1, 2, 3]
    thread.join()
    assert [message.body for message in engine.queues["jobs"].browse()] == [b"2", b"late"]


def test_what_is_not_acked_in_time_returns(linked, engine):
    broker, connect = linked
    link = connect()
    consumer_of(link, 3)
    thread = ending(broker, ack_timeout=0.1)
    assert link.read_until({"connection.close"})
    thread.join()
    assert engine.queues["jobs"].ready == 3


def test_nobody_begins_to_consume_any_more(linked):
    broker, connect = linked
    link, other = connect(), connect()
    consumer_of(link, 1)
    thread = ending(broker, ack_timeout=LONG)
    assert link.read_until({"basic.cancel"})
    other.send(1, "basic.consume", queue="jobs", consumer_tag="c")
    assert other.read_until({"connection.close"}) and other.last["reply_code"] == 320
    link.send(1, "basic.ack", delivery_tag=1)
    assert link.read_until({"connection.close"})
    thread.join()


def test_a_disk_that_answers_after_the_end_finds_nobody(engine, tmp_path, monkeypatch, caplog):
    """A broker waits for the disk as long as it was told. Then its loop has ended, and with it what waited in the loop."""
    engine.create_store("disk", "ring", path=tmp_path / "disk.xump", group_ms=0, segment_bytes=1 << 16)
    [committer] = engine._committers()
    sync, go_on = committer._backend.sync, threading.Event()
    with Broker(engine, amqp="127.0.0.1:0", store="disk") as broker:
        link = Link("a", broker.address, [])
        link.connect(Connect())
        queue_of(link, durable=True)
        monkeypatch.setattr(committer._backend, "sync", lambda: go_on.wait(PATIENCE) and sync())
        link.send(1, "confirm.select")
        link.write(b"".join(b"".join(content(bytes(1000))) for _message in range(1000)))
        [connection] = broker.connections
        while "stores" not in connection._held:     # it reads no more until the disk has caught up
            time.sleep(0.01)
        broker.close(timeout=0)
        link.socket.close()
    go_on.set()
    engine.sync(timeout=PATIENCE)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_what_was_published_is_confirmed_before_the_end(engine, tmp_path):
    """Also if the disk is slow: the close comes after the confirms."""
    engine.create_store("disk", "ring", path=str(tmp_path / "disk.xump"), group_ms=100)
    with Broker(engine, amqp="127.0.0.1:0", store="disk") as broker:
        link = Link("a", broker.address, [])
        try:
            link.connect(Connect())
            queue_of(link, durable=True)
            link.send(1, "confirm.select")
            assert link.read_until({"confirm.selectok"})
            link.write(b"".join(b"".join(content(b"x")) for _message in range(100)))
            link.send(2, "queue.declare", queue="jobs", passive=True)       # all were taken, when this is answered
            assert link.read_until({"queue.declareok"})
            thread = ending(broker)
            assert link.read_until({"connection.close"})
            assert list(link.confirmed[1].values()) == ["ack"] * 100
            thread.join()
        finally:
            link.socket.close()


def test_a_consumer_with_nothing_does_not_hold_up_the_end(linked):
    broker, connect = linked
    link = connect()
    consumer_of(link, 0)
    thread = ending(broker, ack_timeout=LONG)
    assert link.read_until({"connection.close"})
    thread.join()
    assert [said[1] for said in link.said][-2:] == ["basic.cancel", "connection.close"]


def test_sigterm_waits_for_acks_and_a_second_one_does_not(serve):  # noqa: F811
    served = serve("--ack-timeout", "600")
    link = Link("a", served.address, [])
    try:
        link.connect(Connect())
        consumer_of(link, 2)
        served.process.send_signal(signal.SIGTERM)
        assert link.read_until({"basic.cancel"})
        link.send(1, "basic.ack", delivery_tag=1)
        served.process.send_signal(signal.SIGTERM)
        assert link.read_until({"connection.close"}) and link.last["reply_code"] == 320
        assert served.process.wait(60) == 0
    finally:
        link.socket.close()


def test_it_ends_in_a_loop_of_the_caller(engine):
    async def main():
        async with Broker(engine, amqp="127.0.0.1:0") as broker:
            hurry = asyncio.Event()
            hurry.set()
            await broker.stop(ack_timeout=LONG, hurry=hurry)

    asyncio.run(main())


def test_a_start_that_fails_leaves_nothing_behind(engine, monkeypatch):
    """The port is taken."""
    begun, ended = [], []
    watch, stop = Engine.watch, Watch.stop
    monkeypatch.setattr(Engine, "watch", lambda self, call: begun.append(watch(self, call)) or begun[-1])
    monkeypatch.setattr(Watch, "stop", lambda self: ended.append(self) or stop(self))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        before = set(threading.enumerate())
        for options in ({"amqp": address}, {"amqp": "127.0.0.1:0", "http": address}, {"amqp": None, "flight": address}):
            with pytest.raises(OSError), Broker(engine, **options):
                pass
    assert set(threading.enumerate()) <= before     # those of an earlier broker may just end
    assert len(begun) >= 3 and set(map(id, begun)) == set(map(id, ended))


def test_without_amqp(engine):
    with pytest.raises(ValueError, match="listens nowhere"):
        Broker(engine, amqp=None)
    with Broker(engine, amqp=None, http="127.0.0.1:0") as first, Broker({"/": engine}, amqp=None, http="127.0.0.1:0") as second:
        assert first.address == second.address == ("", 0)
        assert Client(second.http.url)("PUT", "/queues/jobs", {}).status == 201
        assert [queue["name"] for queue in Client(first.http.url)("GET", "/overview").json["queues"]] == ["jobs"]


def test_a_connection_that_was_let_in_just_before_the_end_is_closed(engine):
    """The broker listens no more, but the loop hears of the client only now."""
    async def last_words():
        broker = Broker(engine, amqp="127.0.0.1:0", limits=Limits(handshake_seconds=10 * LONG))
        await broker.start()
        await broker.stop()
        near, far = socket.socketpair()
        with far:
            far.setblocking(False)
            await broker.loop.connect_accepted_socket(lambda: Connection(broker), near)
            async with asyncio.timeout(LONG):
                said = await broker.loop.sock_recv(far, 100)
        return said, len(broker.connections)

    assert asyncio.run(last_words()) == (b"", 0)


@pytest.mark.parametrize("ack_timeout", [0.0, LONG])
def test_a_durable_queue_with_auto_delete_outlives_the_end(tmp_path, ack_timeout):
    """As it outlives a crash: its consumers have gone since the broker has. After the start it goes with its last one."""
    for number in range(2):
        with Engine(hop_limit=1024) as engine:
            engine.create_store("disk", "ring", path=str(tmp_path / "disk.xump"))
            with Broker(engine, amqp="127.0.0.1:0", store="disk") as broker:
                link = Link("a", broker.address, [])
                link.connect(Connect())
                queue_of(link, durable=True, auto_delete=True)
                queue_of(link, "passing", auto_delete=True)
                if number == 0:
                    link.write(b"".join(content(b"x")))
                    consume(link, "mine")
                    link.send(1, "basic.consume", queue="passing", consumer_tag="other")
                    assert link.read_until({"basic.consumeok"})
                    read_deliveries(link, 1)
                    thread = ending(broker, ack_timeout=ack_timeout)
                    if ack_timeout:
                        assert link.read_until({"basic.cancel"})        # else it would be delivered again
                        link.send(1, "basic.nack", delivery_tag=1, requeue=True)
                    link.read_until({"connection.close"})
                    thread.join()
                    assert list(engine.queues) == ["jobs"]
                else:
                    assert engine.queues["jobs"].ready == 1
                    consume(link, "mine")
                    link.send(1, "basic.cancel", consumer_tag="mine")
                    assert link.read_until({"basic.cancelok"})
                    link.send(2, "queue.declare", queue="jobs", passive=True)
                    assert link.read_until({"channel.close"}) and link.last["reply_code"] == 404
                link.socket.close()


@pytest.mark.parametrize("error", [RuntimeError("a defect"), XumpError("a store failed")])
def test_an_error_of_what_falls_due_does_not_end_that(engine, monkeypatch, caplog, error):
    monkeypatch.setattr(vhost, "PAUSE_SECONDS", 0.0)
    calls, done, tick = [], threading.Event(), engine.tick

    def fails_twice():
        calls.append(1)
        if len(calls) < 3:
            raise error
        tick()
        done.set()

    monkeypatch.setattr(engine, "tick", fails_twice)
    with Broker(engine, amqp="127.0.0.1:0"):
        engine.create_queue("late")
        jobs = engine.create_queue("jobs", dead_letter="late")
        jobs.publish("", ttl=0.001)
        assert done.wait(LONG)
        assert (jobs.ready, engine.queues["late"].ready) == (0, 1)
    said = [record.exc_info[1] for record in caplog.records if "an error of what fell due in" in record.getMessage()]
    assert said == [error, error]


def test_connections_that_were_just_accepted_end_with_it(engine):
    """asyncio makes their transports in a later turn of the loop, and forgets the sockets if the server is closed by then."""
    async def run():
        broker = Broker(engine, amqp="127.0.0.1:0")
        await broker.start()
        clients = [socket.create_connection(broker.address) for _ in range(3)]
        for _ in range(2):              # they are accepted in the first turn
            await asyncio.sleep(0)
        await broker.stop()
        return clients

    clients = asyncio.run(run())
    gc.collect()                        # tells of sockets that nothing has closed
    for client in clients:
        client.settimeout(60)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
        client.close()
