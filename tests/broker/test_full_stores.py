"""A method that brings something into a store is tried again when that has made room, and the loop does not wait for it."""

import asyncio
import threading

import pika
import pytest

import xump.aio
from tests.broker.http.conftest import Client
from tests.broker.raw_client import Link
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content, ready
from xump import Engine
from xump.broker import Broker, keeping, vhost_bindings
from xump.broker.patience import in_steps
from xump.broker.tables import Typed
from xump.broker.vhost import Vhost
from xump.durability.committer import Committer
from xump.errors import StoreFull

LONG = {"note": Typed("S", b"n" * 50_000)}
"""Arguments of which a store of a MiB has room for ten."""


@pytest.fixture
def broker(engine, tmp_path):
    engine.create_store("broker", "ring", path=tmp_path / "broker.xump", min_bytes=0, max_bytes=1 << 20)
    with Broker(engine, amqp="127.0.0.1:0", store="broker") as broker:
        yield broker


@pytest.fixture
def link(broker):
    link = Link("a", broker.address, [])
    link.connect(Connect())
    yield link
    link.socket.close()


@pytest.mark.parametrize("routing", ["", "letters"])
@pytest.mark.parametrize("multiple", [True, False])
def test_no_dead_letter_is_lost_in_a_full_store(broker, routing, multiple):
    """Many rejects need more room at once than the store has: each message is in one queue or the other, to the last."""
    rejected, seen = 0, set()
    with pika.BlockingConnection(pika.ConnectionParameters(*broker.address)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("letters", "fanout", durable=True)
        channel.queue_declare("dead", durable=True)
        channel.queue_bind("dead", "letters")
        channel.queue_declare("jobs", durable=True, arguments={
            "x-dead-letter-exchange": routing, "x-dead-letter-routing-key": "dead"})
        sent = filled(channel, "jobs")
        while len(seen) < sent:
            tags = [method.delivery_tag for method, _ in taken(channel, "jobs")]
            try:
                for tag in tags[-1:] if multiple else tags:
                    channel.basic_nack(tag, multiple=multiple, requeue=False)
                channel.queue_declare("dead", passive=True)
            except pika.exceptions.ChannelClosedByBroker as error:
                assert error.reply_code == 406 and "no room for the dead letters" in error.reply_text
                rejected += 1
                channel = connection.channel()
            for method, body in taken(channel, "dead"):
                assert body not in seen
                seen.add(body)
                channel.basic_ack(method.delivery_tag)
    assert sent > 100 and rejected


def taken(channel, queue):
    """All that is in the queue."""
    while (got := channel.basic_get(queue)) != (None, None, None):
        yield got[0], got[2]


def filled(channel, queue):
    """Publish until the store is full; how many there are."""
    sent = 0
    try:
        while True:
            channel.basic_publish("", queue, b"%1000d" % sent, pika.BasicProperties(delivery_mode=2))
            sent += 1
    except pika.exceptions.NackError:
        return sent


def test_a_method_is_carried_out_again_when_the_store_has_made_room(broker, link, engine, monkeypatch):
    """What came behind it waits, and other clients do not."""
    declare, room, tries = Vhost.declare_queue, threading.Event(), []

    def declare_at_last(*arguments):
        tries.append(engine._patience.waits)
        if len(tries) < 3:
            raise StoreFull("there is no room yet")
        return declare(*arguments)

    async def relieved(_engine):
        await asyncio.to_thread(room.wait, 10)

    monkeypatch.setattr(Vhost, "declare_queue", declare_at_last)
    monkeypatch.setattr(xump.Engine, "pressed", property(lambda _engine: 0 < len(tries) < 3))
    monkeypatch.setattr(xump.aio, "relieved", relieved)
    link.send(1, "queue.declare", queue="jobs", durable=True)
    link.write(b"".join(content(b"x")))
    other = Link("b", broker.address, [])
    other.connect(Connect())
    while not tries:
        other.send(1, "basic.qos", prefetch_count=1)
        assert other.read_until({"basic.qosok"})
    other.socket.close()
    assert "jobs" not in engine.queues
    room.set()
    assert link.read_until({"queue.declareok"}, channel=1)
    assert ready(link) == 1
    assert tries == [False, False, False]


def test_methods_go_on_in_a_store_that_is_cleaned(broker, link):
    """A deleted queue takes room in the log until the store is cleaned."""
    for _round in range(4):
        for name in map(str, range(8)):
            link.send(1, "queue.declare", queue=name, durable=True, arguments=LONG, nowait=True)
        for name in map(str, range(8)):
            link.send(1, "queue.delete", queue=name, nowait=True)
    link.send(1, "basic.qos", prefetch_count=1)
    assert link.read_until({"basic.qosok"}, channel=1)


def test_a_method_for_which_there_is_no_room_changes_nothing(broker, link):
    names = [str(number) for number in range(100)]
    for name in names:
        link.send(1, "queue.declare", queue=name, durable=True, arguments=LONG)
        if not link.read_until({"queue.declareok"}, channel=1):
            break
    assert link.last["reply_code"] == 406, link.last
    assert link.last["reply_text"].startswith("PRECONDITION_FAILED - store 'broker' is full"), link.last
    assert name not in broker.vhosts["/"].queues
    link.send(1, "channel.open")
    assert link.read_until({"channel.openok"})
    for other in names[:names.index(name)]:
        link.send(1, "queue.delete", queue=other)
        assert link.read_until({"queue.deleteok"}, channel=1)
    link.send(1, "queue.declare", queue=name, durable=True, arguments=LONG)
    assert link.read_until({"queue.declareok"}, channel=1)


def fill(engine, link):
    """Messages, until the store has no room for anything; they are in a queue of their own."""
    link.send(1, "queue.declare", queue="ballast", durable=True)
    assert link.read_until({"queue.declareok"}, channel=1)
    for size in (10_000, 1_000, 100, 1):
        try:
            while True:
                engine.publish("ballast", "", b"b" * size)
        except StoreFull:
            continue


def refused(link, method, **arguments):
    """Whether the store has no room for what the method writes. The channel is opened again."""
    link.send(1, method, **arguments)
    assert not link.read_until({method + "ok"}, channel=1)
    assert link.last["reply_code"] == 406, link.last
    assert link.last["reply_text"].startswith("PRECONDITION_FAILED - store 'broker' is full"), link.last
    link.send(1, "channel.open")
    return link.read_until({"channel.openok"})


def do(link, method, **arguments):
    link.send(1, method, **arguments)
    assert link.read_until({method + "ok"}, channel=1), link.last


def bound(link):
    """An exchange with auto-delete over one that leads to a queue."""
    do(link, "queue.declare", queue="jobs", durable=True)
    do(link, "exchange.declare", exchange="outer", exchange_type="fanout", durable=True, auto_delete=True)
    do(link, "exchange.declare", exchange="inner", exchange_type="fanout", durable=True, auto_delete=True)
    do(link, "exchange.bind", source="outer", destination="inner")
    do(link, "queue.bind", queue="jobs", exchange="inner")


@pytest.mark.parametrize("method, arguments", [
    ("queue.unbind", {"queue": "jobs", "exchange": "inner"}), ("exchange.unbind", {"source": "outer", "destination": "inner"}),
    ("exchange.delete", {"exchange": "inner"})])
def test_what_a_full_store_cannot_forget_stays(broker, link, engine, method, arguments):
    bound(link)
    fill(engine, link)
    assert refused(link, method, **arguments)
    bindings = {name: list(exchange.bindings) for name, exchange in broker.vhosts["/"].exchanges.items() if exchange.bindings}
    assert sorted(bindings) == ["inner", "outer"]
    do(link, "queue.purge", queue="ballast")
    do(link, method, **arguments)
    assert not {"outer", "inner"} - {arguments.get("destination")} & set(broker.vhosts["/"].exchanges)


def test_exchanges_that_go_with_a_queue_are_forgotten_when_there_is_room(broker, link, engine, monkeypatch):
    monkeypatch.setattr(vhost_bindings, "AGAIN_SECONDS", 0.01)
    bound(link)
    fill(engine, link)
    do(link, "queue.delete", queue="jobs")
    assert not {"outer", "inner"} & set(broker.vhosts["/"].exchanges)
    kept = engine.stores["broker"].meta
    assert len(list(keeping.read_exchanges(kept))) == 2
    do(link, "queue.purge", queue="ballast")
    while list(keeping.read_exchanges(kept)):
        do(link, "basic.qos", prefetch_count=1)
    assert not list(keeping.read_bindings(kept))


@pytest.mark.parametrize("last", ["queue.delete", "channel.close", "the end of the connection", "x-expires"])
def test_no_end_of_a_queue_waits_in_the_loop(broker, link, engine, monkeypatch, last):
    waits, delete = [], xump.Engine.delete_queue

    def seen(engine, queue):
        waits.append(engine._patience.waits)
        delete(engine, queue)

    monkeypatch.setattr(xump.Engine, "delete_queue", seen)
    expires = {"x-expires": Typed("I", 1)} if last == "x-expires" else {}
    do(link, "queue.declare", queue="jobs", durable=True, auto_delete=not expires, arguments=expires)
    if not expires:
        do(link, "basic.consume", queue="jobs", consumer_tag="c")
    if last == "queue.delete":
        do(link, last, queue="jobs")
    elif last == "channel.close":
        do(link, last, reply_code=200, reply_text="", class_id=0, method_id=0)
    elif not expires:
        link.socket.close()
    other = Link("b", broker.address, [])
    other.connect(Connect())
    while "jobs" in engine.queues:
        do(other, "basic.qos", prefetch_count=1)
    other.socket.close()
    assert waits == [False]


# ---- over HTTP

@pytest.fixture
def writers(monkeypatch):
    """The threads that wrote into a store."""
    found, write = [], Committer._write

    def written(*arguments, **options):
        found.append(threading.get_ident())
        return write(*arguments, **options)

    monkeypatch.setattr(Committer, "_write", written)
    return found


@pytest.fixture
def web(tmp_path):
    with Engine() as engine:
        engine.create_store("disk", "ring", path=tmp_path / "disk.xump", durability="sync")
        with Broker(engine, amqp=None, http="127.0.0.1:0", store="disk", private_targets=True) as broker:
            client = Client(broker.http.url)
            client.broker = broker
            yield client


def test_no_request_over_http_writes_in_the_loop(web, writers):
    hook, lines = {"queue": "jobs", "url": "http://127.0.0.1:9/", "where": "false"}, {"Content-Type": "application/x-ndjson"}
    for name, properties in (("dead", {}), ("jobs", {"dead_letter": "dead", "unmatched": "keep"})):
        assert web("PUT", f"/queues/{name}", {"store": "disk", **properties}).status == 201
    for method, path, body, headers in (
            ("PUT", "/queues/jobs", {"store": "disk", "dead_letter": "dead", "unmatched": "keep"}, {}),
            ("PUT", "/webhooks/hook", hook, {}), ("PUT", "/webhooks/hook", {**hook, "credit": 3}, {}),
            ("DELETE", "/webhooks/hook", None, {}), ("POST", "/queues/jobs", b"x", {}),
            ("POST", "/queues/jobs", b"{}\n{}", lines),
            ("POST", "/queues/jobs/hold", b"", {}), ("POST", "/queues/jobs/release", b"", {})):
        assert web(method, path, body, headers).status in (200, 201), path
    tokens = [message["delivery"] for message in web("POST", "/queues/jobs/take?count=3").json]
    for token, do in zip(tokens, ("ack", "nack", "nack?requeue=false"), strict=True):
        assert web("POST", f"/deliveries/{token}/{do}").status == 200
    [lease] = web("POST", "/queues/jobs/take?lease=0.001").json
    assert web("POST", "/queues/jobs/take?wait=60").json[0]["id"] == lease["id"]        # it has ended
    assert web("POST", "/queues/dead/requeue").json == {"requeued": 1}
    assert web("POST", "/queues/jobs/purge").json == {"purged": 1}
    assert web("DELETE", "/queues/jobs").json == {"deleted": True}
    assert writers and web.broker.thread not in writers


def test_each_step_of_a_task_is_in_a_block_and_other_tasks_are_not():
    engine, seen, other = Engine(), [], []

    async def work(first):
        try:
            for _step in range(first):
                seen.append(engine._patience.waits)
                await asyncio.sleep(0)
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append(engine._patience.waits)
            engine.close()
        await asyncio.sleep(0)              # the engine is closed
        return "done"

    async def both():
        task = asyncio.create_task(in_steps(engine, work, 3))
        for _turn in range(5):
            await asyncio.sleep(0)
            other.append(engine._patience.waits)
        task.cancel()
        return await task

    assert asyncio.run(both()) == "done"
    assert (seen, other) == ([False] * 4, [True] * 5)


def test_what_falls_due_is_not_written_in_the_loop(web, monkeypatch):
    tick, waits, told = Engine.tick, [], threading.Event()

    def seen(engine):
        waits.append((threading.get_ident(), engine._patience.waits))
        told.set()
        return tick(engine)

    monkeypatch.setattr(Engine, "tick", seen)
    web.broker.vhosts["/"].engine.create_queue("jobs", store="disk").publish("a", ttl=0.001)
    assert told.wait(30)
    assert waits[0] == (web.broker.thread, False)


@pytest.mark.parametrize("method, path, body", [
    ("POST", "/queues/jobs", b"x"), ("PUT", "/queues/more", {"store": "disk"})])
def test_a_request_is_carried_out_when_the_store_has_made_room(web, monkeypatch, method, path, body):
    web.broker.vhosts["/"].engine.create_queue("jobs", store="disk")
    tries = []

    def at_last(do):
        def carry_out(engine, *arguments, **options):
            tries.append(engine._patience.waits)
            if len(tries) < 3:
                raise StoreFull("there is no room yet")
            return do(engine, *arguments, **options)
        return carry_out

    async def relieved(_engine):
        """At once."""

    for name in ("publish", "create_queue"):
        monkeypatch.setattr(Engine, name, at_last(getattr(Engine, name)))
    monkeypatch.setattr(Engine, "pressed", property(lambda _engine: 0 < len(tries) < 3))
    monkeypatch.setattr(xump.aio, "relieved", relieved)
    assert web(method, path, body).status == 201
    assert tries == [False, False, False]
