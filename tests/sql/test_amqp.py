"""Relays to a broker over AMQP: Xump's own by transactions, and the same broker by confirms, as any other would be."""

import pika
import pytest

import xump
from tests.sql.conftest import count
from xump.broker import Broker
from xump.sql import Outbox
from xump.sql.amqp import AmqpTarget


@pytest.fixture
def broker():
    with xump.Engine() as engine, Broker(engine, amqp="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def url(broker):
    host, port = broker.address
    return f"amqp://guest:guest@{host}:{port}/%2F"


@pytest.fixture
def channel(url):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("orders")
    yield channel
    connection.close()


def taken(channel, queue="orders"):
    found = []
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((properties, body))


@pytest.fixture(params=[True, False], ids=["transactions", "confirms"])
def target(request, url):
    return AmqpTarget(url, transactions=request.param)


def test_a_message_arrives_as_it_was_given(sqlite_url, target, channel, made):
    from tests.sql.conftest import engine_of

    database = engine_of(sqlite_url)
    outbox = Outbox()
    channel.exchange_declare("news", "topic")
    channel.queue_declare("sport")
    channel.queue_bind("sport", "news", "sport.#")
    with database.begin() as connection:
        outbox.publish(connection, "orders", "", b"\0\xff", {"a": 1, "b": True}, message_id="1", correlation_id="c", ttl=600)
        outbox.publish(connection, "news", "sport.chess", b"draw")
    relay = outbox.relay(target, engine=database)
    assert relay.step() == 2
    [(properties, body)] = taken(channel)
    assert (properties.message_id, properties.correlation_id, properties.headers, properties.delivery_mode, body) == (
        "1", "c", {"a": 1, "b": True}, 2, b"\0\xff")
    assert [body for _, body in taken(channel, "sport")] == [b"draw"]
    assert count(database, made.outbox) == 0
    relay._leave()
    database.dispose()


def test_x11_unroutable_mandatory(sqlite_url, target, channel, made):
    """A queue or an exchange that is not there: the row stays, its key waits, and other keys go on."""
    from tests.sql.conftest import engine_of

    database = engine_of(sqlite_url)
    outbox = Outbox()
    with database.begin() as connection:
        for number in range(6):
            queue, address = [("nowhere", ""), ("nowhere", "address")][number // 2] if number in (1, 2) else ("orders", "")
            outbox.publish(connection, queue, address, b"%d" % number, key=f"{number % 3}", message_id=str(number))
    relay = outbox.relay(target, engine=database, retry_delay=1000)
    relay.step()
    relay.step()
    bodies = [body for _, body in taken(channel)]
    assert sorted(set(bodies)) == [b"0", b"3"]
    with database.connect() as connection:
        assert outbox.stats(connection)["parked"] == 4
    channel.queue_declare("nowhere")
    channel.exchange_declare("nowhere", "fanout")
    channel.queue_bind("nowhere", "nowhere")
    with database.begin() as connection:
        connection.execute(made.outbox.update().where(made.outbox.c.retry_at.is_not(None)).values(retry_at=0))
    while relay.step():
        pass
    assert count(database, made.outbox) == 0
    assert sorted({body for _, body in taken(channel, "nowhere")}) == [b"1", b"2"]
    assert sorted({body for _, body in taken(channel)}) == [b"4", b"5"]
    relay._leave()
    database.dispose()


def test_a_broker_that_is_not_there_is_waited_for(sqlite_url, made):
    from tests.sql.conftest import engine_of
    from tests.sql.postgres import free_port

    database = engine_of(sqlite_url)
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders")
    relay = outbox.relay(f"amqp://127.0.0.1:{free_port()}", engine=database)
    assert relay.step() == 0
    assert relay.pressed
    assert count(database, made.outbox, made.outbox.c.attempts == 0) == 1
    relay._leave()
    database.dispose()


def test_the_broker_tells_whether_it_is_xump(url):
    target = AmqpTarget(url)
    target._open()
    assert target.atomic
    target.close()


COMMIT, PUBLISHED = b"\x00\x5a\x00\x14", b"\x00\x3c\x00\x28"
COMMITTED, CONFIRMED = b"\x00\x5a\x00\x15", b"\x00\x3c\x00\x50"
"""tx.commit and basic.publish, and their answers, by class and method."""


@pytest.mark.parametrize("step", ["r3_send_failed_not_sent", "r7_batch_sent_confirm_lost"])
@pytest.mark.parametrize("transactions", [True, False], ids=["transactions", "confirms"])
def test_the_connection_is_cut_at_the_step(sqlite_url, broker, channel, made, transactions, step):
    """Before the broker is asked, or when it has done it and its answer comes: sent again, once too often in the second case."""
    from tests.sql.conftest import engine_of
    from tests.sql.tap import Tap

    database = engine_of(sqlite_url)
    outbox = Outbox()
    with database.begin() as connection:
        for number in range(3):
            outbox.publish(connection, "orders", body=b"%d" % number, key="k")
    tap = Tap(broker.address[1])
    relay = outbox.relay(AmqpTarget(f"amqp://guest:guest@127.0.0.1:{tap.port}/%2F", transactions), engine=database)
    is_sent = step == "r7_batch_sent_confirm_lost"
    if is_sent:
        tap.arm(answer=COMMITTED if transactions else CONFIRMED)
    else:
        tap.arm(request=COMMIT if transactions else PUBLISHED)
    try:
        assert relay.step() == 0
        assert tap.cut.is_set()
        assert relay.pressed
        assert count(database, made.outbox, made.outbox.c.attempts == 0) == 3
        while relay.step():
            pass
        relay._leave()
    finally:
        tap.close()
    bodies = [body for _, body in taken(channel)]
    twice = ([b"0", b"1", b"2"] if transactions else [b"0"]) if is_sent else []
    assert bodies == [*twice, b"0", b"1", b"2"]
    assert count(database, made.outbox) == 0
    database.dispose()
