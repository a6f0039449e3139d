"""A method that brings something into a store is tried again when that has made room, and the loop does not wait for it."""

import threading

import pytest

import xump.aio
from tests.broker.raw_client import Link
from tests.broker.steps import Connect
from xump.broker import Broker
from xump.broker.tables import Typed
from xump.durability.committer import Committer

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


def test_methods_go_on_when_the_store_has_made_room(broker, link, monkeypatch):
    """What was deleted is in the log until that is cleaned, which begins here when a method waits for it."""
    relieved, write, waits = xump.aio.relieved, Committer._write, threading.Event()
    writers = set()

    def noted(*arguments, **named):
        writers.add(threading.get_ident())
        assert waits.wait(10)
        return write(*arguments, **named)

    async def waited(engine):
        waits.set()
        await relieved(engine)

    monkeypatch.setattr(Committer, "_write", noted)
    monkeypatch.setattr(xump.aio, "relieved", waited)
    for _round in range(3):
        for name in map(str, range(8)):
            link.send(1, "queue.declare", queue=name, durable=True, arguments=LONG, nowait=True)
        for name in map(str, range(8)):
            link.send(1, "queue.delete", queue=name, nowait=True)
    link.send(1, "basic.qos", prefetch_count=1)
    assert link.read_until({"basic.qosok"}, channel=1)
    assert waits.is_set()
    assert broker.thread not in writers


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
