"""A commit of tx is one transaction of the engine: all of it or nothing, in one write."""

import pytest

from tests.broker.raw_client import Link
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content
from xump.broker import Broker
from xump.broker.tables import Typed
from xump.durability import opening

LONG = b"b" * 100_000
"""Of such bodies the store has room for ten."""
FRAME_MAX = 131_072


@pytest.fixture
def broker(engine, tmp_path):
    engine.create_store("broker", "ring", path=tmp_path / "broker.xump", min_bytes=0, max_bytes=1 << 20, durability="sync")
    with Broker(engine, amqp="127.0.0.1:0", store="broker") as broker:
        yield broker


@pytest.fixture
def links(broker):
    made = [Link(name, broker.address, []) for name in "ab"]
    for link in made:
        link.connect(Connect(frame_max=FRAME_MAX))
    yield made
    for link in made:
        link.socket.close()


def ask(link, method, *, answer=None, **arguments):
    link.send(1, method, **arguments)
    assert link.read_until({answer or method.replace("_", "") + "ok"}, channel=1), link.last
    return link.last


def publish(link, *bodies, key="jobs"):
    for body in bodies:
        link.write(b"".join(content(body, key)))


def declare(link, name="jobs", **arguments):
    ask(link, "queue.declare", queue=name, durable=True, arguments=arguments)


def counts(link, *names):
    return [ask(link, "queue.declare", queue=name, passive=True)["message_count"] for name in names]


def take(link, queue="jobs"):
    """The tag of the next message, and whether it came before."""
    got = ask(link, "basic.get", queue=queue, answer="basic.getok")
    return got["delivery_tag"], got["redelivered"]


def begin(link):
    """A transaction that acks the message in the queue."""
    publish(link, b"first")
    ask(link, "tx.select")
    tag, _redelivered = take(link)
    link.send(1, "basic.ack", delivery_tag=tag)


def test_a_commit_is_one_write(broker, links, engine):
    """So a crash leaves all of it or nothing."""
    link, _other = links
    declare(link)
    declare(link, "more")
    publish(link, b"first", b"second")
    ask(link, "tx.select")
    tags = [take(link)[0] for _ in range(2)]
    for tag in tags:
        link.send(1, "basic.ack", delivery_tag=tag)
    publish(link, b"1", b"2", b"3", key="more")
    assert counts(link, "jobs", "more") == [0, 0]
    before = engine.stores["broker"].syncs
    ask(link, "tx.commit")
    assert engine.stores["broker"].syncs == before + 1
    assert counts(link, "jobs", "more") == [0, 3]
    assert not len(next(iter(broker.connections)).channels[1].unacked)


def test_a_commit_for_which_a_store_has_no_room_does_nothing(broker, links):
    link, other = links
    declare(link)
    declare(link, "more")
    begin(link)
    publish(link, *[LONG] * 20, key="more")
    link.send(1, "tx.commit")
    assert not link.read_until({"tx.commitok"}, channel=1)
    assert link.last["reply_code"] == 406
    assert link.last["reply_text"].startswith("PRECONDITION_FAILED - the store of queue 'more' is full"), link.last
    assert counts(other, "jobs", "more") == [1, 0]
    assert take(other) == (1, True)
    ask(other, "tx.select")
    other.send(1, "basic.ack", delivery_tag=1)
    publish(other, LONG, key="more")
    ask(other, "tx.commit")
    assert counts(other, "jobs", "more") == [0, 1]


def test_a_queue_that_takes_no_more_leaves_the_rest_of_a_commit_alone(links):
    link, _other = links
    declare(link, "two", **{"x-max-length": Typed("I", 2), "x-overflow": Typed("S", b"reject-publish")})
    declare(link)
    begin(link)
    publish(link, b"1", b"2", b"3", key="two")
    publish(link, b"4", key="jobs")
    ask(link, "tx.commit")
    assert counts(link, "two", "jobs") == [2, 1]


def test_a_commit_into_two_stores(links, engine, tmp_path):
    link, _other = links
    engine.create_store("else", "ring", path=tmp_path / "else.xump", min_bytes=0)
    engine.create_queue("elsewhere", store="else")
    declare(link)
    ask(link, "tx.select")
    publish(link, b"1", key="elsewhere")
    publish(link, b"2")
    ask(link, "tx.commit")
    assert counts(link, "elsewhere", "jobs") == [1, 1]


def test_what_a_commit_settles_may_have_gone(links):
    link, other = links
    declare(link)
    declare(link, "more")
    begin(link)
    publish(link, b"1", key="more")
    ask(other, "queue.delete", queue="jobs")
    ask(link, "tx.commit")
    assert counts(link, "more") == [1]


def test_nacks_and_rejects_in_a_commit(links):
    link, _other = links
    declare(link, "dead")
    declare(link, **{"x-dead-letter-exchange": Typed("S", b""), "x-dead-letter-routing-key": Typed("S", b"dead")})
    publish(link, b"back", b"nacked", b"rejected")
    ask(link, "tx.select")
    for method, requeue in (("basic.nack", True), ("basic.nack", False), ("basic.reject", False)):
        tag, _redelivered = take(link)
        link.send(1, method, delivery_tag=tag, requeue=requeue)
    assert counts(link, "jobs", "dead") == [0, 0]
    ask(link, "tx.commit")
    assert counts(link, "jobs", "dead") == [1, 2]
    assert take(link)[1]
    assert not take(link, "dead")[1]


def test_a_commit_reads_nothing_that_it_acks(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 0)
    store = engine.create_store("broker", "ring", path=tmp_path / "broker.xump", durability="sync")
    with Broker(engine, amqp="127.0.0.1:0", store="broker") as broker:
        link = Link("a", broker.address, [])
        link.connect(Connect())
        declare(link)
        publish(link, *[b"x" * 2000] * 100)
        ask(link, "tx.select")
        tags = [take(link)[0] for _ in range(100)]
        for tag in tags:
            link.send(1, "basic.ack", delivery_tag=tag)
        asked, fetch = [], store.backend.fetch
        store.backend.fetch = lambda *which: asked.append(which) or fetch(*which)
        ask(link, "tx.commit")
        assert not asked and counts(link, "jobs") == [0] and engine.queues["jobs"].outstanding == 0
        link.socket.close()
