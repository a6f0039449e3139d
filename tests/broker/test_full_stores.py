"""A method that brings something into a store is tried again when that has made room, and the loop does not wait for it."""

import asyncio
import threading

import pytest

import xump.aio
from tests.broker.raw_client import Link
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content, ready
from xump.broker import Broker
from xump.broker.tables import Typed
from xump.broker.vhost import Vhost
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
    """What was deleted is in the log until then."""
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
