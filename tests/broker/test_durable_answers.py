"""Answers to methods whose effect is to be durable wait for the disk, and those behind them wait, too; what they do does not."""

from contextlib import contextmanager

import pytest

from tests.broker.raw_client import Link
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content
from xump.broker import Broker
from xump.broker.vhost import Vhost
from xump.errors import StoreFailed


@pytest.fixture
def broker(engine, tmp_path):
    engine.create_store("broker", "ring", path=tmp_path / "broker.xump", min_bytes=0)
    with Broker(engine, amqp="127.0.0.1:0", store="broker") as broker:
        yield broker


@pytest.fixture
def links(broker):
    made = [Link(name, broker.address, []) for name in "ab"]
    for link in made:
        link.connect(Connect())
    yield made
    for link in made:
        link.socket.close()


@pytest.fixture
def slow(broker, links, monkeypatch):
    """A block in which the disk does nothing; its end, or an error given to what it yields, is what the disk says at last."""
    @contextmanager
    def block():
        waiting, said = [], []
        with monkeypatch.context() as patched:
            patched.setattr(Vhost, "when_durable", lambda _vhost, call: waiting.append(call))
            yield said
            if links[0].socket.fileno() != -1:
                assert seen(links[0])
            assert waiting
        broker.loop.call_soon_threadsafe(lambda: [call(said[0] if said else None) for call in waiting])
    return block


def names(link, last):
    """What comes up to this method."""
    del link.said[:]
    assert link.read_until({last})
    return [said[1] for said in link.said]


def seen(link):
    """Whether the broker has carried out what was sent before, and answered nothing."""
    link.send(2, "basic.qos", prefetch_count=0)
    return names(link, "basic.qosok") == ["basic.qosok"]


def ready(link, name):
    link.send(1, "queue.declare", queue=name, passive=True)
    assert link.read_until({"queue.declareok"})
    return link.last["message_count"], link.last["consumer_count"]


def test_answers_keep_their_order(links, slow):
    link, _other = links
    with slow():
        link.send(1, "exchange.declare", exchange="in", exchange_type="fanout", durable=True)
        link.send(1, "queue.declare", queue="jobs", durable=True)
        link.send(1, "queue.bind", queue="jobs", exchange="in")
        link.send(1, "basic.qos", prefetch_count=1)
        link.send(1, "confirm.select")
        link.write(b"".join(content(b"x")))
        link.send(1, "basic.get", queue="jobs")
        link.send(1, "basic.consume", queue="jobs", consumer_tag="c")
        link.send(1, "basic.cancel", consumer_tag="c")
        link.send(1, "queue.unbind", queue="jobs", exchange="in")
        link.send(1, "exchange.delete", exchange="in")
        link.send(1, "queue.delete", queue="jobs")
        assert seen(link) and not link.confirmed
    assert names(link, "queue.deleteok") == [
        "exchange.declareok", "queue.declareok", "queue.bindok", "basic.qosok", "confirm.selectok", "basic.getok",
        "basic.consumeok", "basic.cancelok", "queue.unbindok", "exchange.deleteok", "queue.deleteok"]


def test_what_they_do_is_done_at_once(links, slow):
    link, other = links
    with slow():
        link.send(1, "queue.declare", queue="jobs", durable=True)
        link.write(b"".join(content(b"x")))
        link.send(1, "basic.consume", queue="jobs", consumer_tag="c")
        assert seen(link)
        assert ready(other, "jobs") == (1, 1)
    assert names(link, "basic.deliver") == ["queue.declareok", "basic.consumeok", "basic.deliver"]


def test_an_answer_that_says_nothing_durable_does_not_wait(links, slow):
    link, other = links
    with slow():
        other.send(2, "queue.declare", queue="jobs", durable=True)
        assert ready(other, "jobs") == (0, 0)
        link.send(1, "queue.declare", queue="mine", exclusive=True)
        link.send(1, "exchange.declare", exchange="in", exchange_type="fanout")
        link.send(1, "queue.bind", queue="mine", exchange="in")
        assert names(link, "queue.bindok") == ["queue.declareok", "exchange.declareok", "queue.bindok"]
    assert names(other, "queue.declareok") == ["queue.declareok"]


def test_a_consumer_that_is_cancelled_before_its_answer_gets_nothing(links, slow, engine):
    link, _other = links
    with slow():
        link.send(1, "queue.declare", queue="jobs", durable=True)
        link.send(1, "basic.consume", queue="jobs", consumer_tag="c")
        link.send(1, "basic.cancel", consumer_tag="c")
        link.write(b"".join(content(b"x")))
    assert names(link, "basic.cancelok") == ["queue.declareok", "basic.consumeok", "basic.cancelok"]
    assert ready(link, "jobs") == (1, 0)
    assert not engine.selectors


def test_a_consumer_whose_queue_goes_before_its_answer_hears_of_both(links, slow):
    link, other = links
    with slow():
        link.send(1, "queue.declare", queue="jobs", durable=True)
        link.send(1, "basic.consume", queue="jobs", consumer_tag="c")
        assert seen(link)
        other.send(2, "queue.delete", queue="jobs")
        other.send(1, "basic.qos", prefetch_count=0)
        assert names(other, "basic.qosok") == ["basic.qosok"]
    assert names(link, "basic.cancel") == ["queue.declareok", "basic.consumeok", "basic.cancel"]


@pytest.mark.parametrize("how", ["error", "close", "lost"])
@pytest.mark.parametrize("no_ack", [False, True])
def test_what_basic_get_took_returns_if_its_channel_closes_before_the_answer(links, slow, how, no_ack):
    link, other = links
    link.send(1, "queue.declare", queue="jobs")
    link.write(b"".join(content(b"x")))
    assert names(link, "queue.declareok")
    with slow():
        link.send(1, "queue.declare", queue="kept", durable=True)
        link.send(1, "basic.get", queue="jobs", no_ack=no_ack)
        assert seen(link)
        assert ready(other, "jobs") == (0, 0)
        if how == "error":
            link.send(1, "queue.declare", queue="nowhere", passive=True)
            assert names(link, "channel.close") == ["channel.close"]
        elif how == "close":
            link.send(1, "channel.close")
        else:
            link.socket.close()
        while ready(other, "jobs") != (1, 0):
            pass
    if how == "close":
        assert names(link, "channel.closeok") == ["queue.declareok", "channel.closeok"]
    if how != "lost":
        link.send(1, "channel.open")
        assert names(link, "channel.openok") == ["channel.openok"]


def test_what_basic_get_took_is_sent_although_its_queue_has_gone(links, slow):
    link, other = links
    link.send(1, "queue.declare", queue="jobs")
    link.write(b"".join(content(b"x")) * 2)
    assert names(link, "queue.declareok")
    with slow():
        link.send(1, "queue.declare", queue="kept", durable=True)
        link.send(1, "basic.get", queue="jobs", no_ack=True)
        link.send(1, "basic.get", queue="jobs")
        assert seen(link)
        other.send(1, "queue.delete", queue="jobs")
        assert names(other, "queue.deleteok") == ["queue.deleteok"]
    assert names(link, "basic.getok") == ["queue.declareok", "basic.getok"]
    assert names(link, "basic.getok") == ["basic.getok"]
    link.send(1, "basic.ack", delivery_tag=2)
    link.send(1, "basic.qos", prefetch_count=0)
    assert names(link, "basic.qosok") == ["basic.qosok"]


def test_a_commit_of_acks_waits_for_the_disk(links, slow):
    link, _other = links
    link.send(1, "queue.declare", queue="jobs", durable=True)
    link.send(1, "tx.select")
    link.write(b"".join(content(b"x")))
    link.send(1, "tx.commit")
    link.send(1, "basic.get", queue="jobs")
    assert names(link, "basic.getok") == ["queue.declareok", "tx.selectok", "tx.commitok", "basic.getok"]
    with slow():
        link.send(1, "basic.ack", delivery_tag=1)
        link.send(1, "tx.commit")
        link.send(1, "queue.purge", queue="jobs")
    assert names(link, "queue.purgeok") == ["tx.commitok", "queue.purgeok"]


def test_a_store_that_fails_ends_the_connection(links, slow):
    link, _other = links
    with slow() as said:
        link.send(1, "queue.declare", queue="jobs", durable=True)
        link.send(1, "basic.qos", prefetch_count=1)
        said.append(StoreFailed("no disk"))
    assert names(link, "connection.close") == ["connection.close"]
    assert (link.last["reply_code"], link.last["reply_text"]) == (541, "INTERNAL_ERROR - a store failed: no disk")
