"""Relays to a broker over AMQP: Xump's own by transactions, the same one by confirms, as any other would be; and RabbitMQ, where
it is installed."""

import pika
import pytest

import xump
from benchmarks.ports import free_port
from tests.sql.conftest import count
from xump.broker import Broker
from xump.sql import Outbox
from xump.sql.amqp import AmqpTarget


@pytest.fixture
def broker():
    with xump.Engine() as engine, Broker(engine, amqp="127.0.0.1:0") as broker:
        broker.engine = engine
        yield broker


@pytest.fixture
def url(request):
    """Of the broker that the test's `target` is; Xump's, if it has none."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    of_rabbit = parameters.get("target") == RABBITMQ
    host, port = request.getfixturevalue("rabbit") if of_rabbit else request.getfixturevalue("broker").address
    return f"amqp://guest:guest@{host}:{port}/%2F"


@pytest.fixture
def channel(url):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("orders")
    yield channel
    for queue in ("orders", "sport", "nowhere", "small"):       # what these tests declare
        channel.queue_delete(queue)
    for exchange in ("news", "nowhere"):
        channel.exchange_delete(exchange)
    connection.close()


@pytest.fixture
def database(sqlite_url):
    from tests.sql.conftest import engine_of

    database = engine_of(sqlite_url)
    yield database
    database.dispose()


def taken(channel, queue="orders"):
    found = []
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((properties, body))


RABBITMQ = "RabbitMQ"


@pytest.fixture(params=["transactions", "confirms", RABBITMQ])
def target(request, url):
    """Of RabbitMQ it finds out by itself that it confirms."""
    return AmqpTarget(url) if request.param == RABBITMQ else AmqpTarget(url, transactions=request.param == "transactions")


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


def test_an_exchange_without_a_way_on_loses_nothing(database, target, channel, made):
    """A transaction tells of it only when it is committed; its other rows are there then."""
    outbox = Outbox()
    channel.exchange_declare("news", "topic")
    with database.begin() as connection:
        for number in range(4):
            queue, address = ("news", "sport") if number == 2 else ("orders", "")
            outbox.publish(connection, queue, address, b"%d" % number, key=f"{number}", message_id="the same")
    relay = outbox.relay(target, engine=database, retry_delay=1000)
    assert relay.step() == 3
    assert [body for _, body in taken(channel)] == [b"0", b"1", b"3"]
    channel.queue_bind("orders", "news", "sport")
    assert count(database, made.outbox, made.outbox.c.parked, made.outbox.c.attempts == 1) == 1
    with database.begin() as connection:
        connection.execute(made.outbox.update().values(retry_at=0))
    assert relay.step() == 1
    assert [body for _, body in taken(channel)] == [b"2"]
    relay._leave()


LONG = "ö" * 10_000
WRONG = {
    "queue": {"queue": LONG}, "address": {"address": LONG}, "message_id": {"message_id": LONG}, "reply_to": {"reply_to": LONG},
    "correlation_id": {"correlation_id": LONG}, "the name of a header": {"headers": {LONG: 1}},
    "the headers take": {"headers": {"a": "b" * 300_000}},
}


@pytest.mark.parametrize("said", WRONG)
def test_what_amqp_does_not_have_is_refused_and_other_rows_go_on(database, target, channel, made, said):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, **{"queue": "orders", **WRONG[said]}, key="wrong")
        for number in range(3):
            outbox.publish(connection, "orders", body=b"%d" % number, key="k")
    relay = outbox.relay(target, engine=database, max_attempts=1)
    relay.step()
    relay.step()
    assert [body for _, body in taken(channel)] == [b"0", b"1", b"2"]
    with database.begin() as connection:
        [dead] = outbox.dead(connection)
        assert said in dead["error"]
    relay._leave()


def test_a_broker_that_ends_the_connection_for_a_row_is_not_asked_for_ever(database, target, channel, made, monkeypatch):
    """As it does for a frame that is too large, if nobody has seen that before."""
    monkeypatch.setattr("xump.sql.amqp.CHAR_BYTES_MAX", 0)
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders", headers={"a": "b" * 300_000}, key="wrong")
        outbox.publish(connection, "orders", body=b"fine")
    relay = outbox.relay(target, engine=database, max_attempts=1)
    relay.step()
    relay.step()
    assert [body for _, body in taken(channel)] == [b"fine"]
    with database.begin() as connection:
        [dead] = outbox.dead(connection)
        assert "FRAME_ERROR" in dead["error"]
    relay._leave()


@pytest.mark.parametrize("target", ["transactions", "confirms"], indirect=True)
def test_all_types_of_headers_arrive(database, target, broker, channel, made):
    headers = {"a": 0.5, "b": -(2**63), "c": True, "d": "ö", "e": b"\0\xff", "g": float("inf"), "x" * 255: 1}
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders", headers=headers)
    relay = outbox.relay(target, engine=database)
    assert relay.step() == 1
    [message] = broker.engine.queues["orders"].browse()         # pika cannot read floats
    assert [(name, type(value), value) for name, value in message.headers.items()] == [
        (name, type(value), value) for name, value in headers.items()]
    relay._leave()


def test_a_full_queue_is_waited_for_and_nothing_is_lost(database, target, channel, made):
    channel.queue_declare("small", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    outbox = Outbox()
    with database.begin() as connection:
        for number in range(4):
            outbox.publish(connection, "small", body=b"%d" % number, key="s")
            outbox.publish(connection, "orders", body=b"%d" % number, key="o")
    relay = outbox.relay(target, engine=database)
    assert (relay.step(), relay.step()) == (6, 0)
    assert relay.pressed
    assert count(database, made.outbox, made.outbox.c.attempts == 0) == 2
    assert [body for _, body in taken(channel, "small")] == [b"0", b"1"]
    assert (relay.step(), count(database, made.outbox)) == (2, 0)
    assert [body for _, body in taken(channel, "small")] == [b"2", b"3"]
    assert [body for _, body in taken(channel)] == [b"0", b"1", b"2", b"3"]
    relay._leave()


def test_what_is_delayed_is_sent_when_it_is_due_and_its_key_waits(database, target, channel, made):
    """AMQP has no delay, so the row stays where it is, out of the way of polls."""
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders", body=b"later", key="k", delay=1000)
        outbox.publish(connection, "orders", body=b"behind it", key="k")
        outbox.publish(connection, "orders", body=b"alone", delay=1000)
        outbox.publish(connection, "orders", body=b"other", key="other")
        outbox.publish(connection, "orders", body=b"at once", delay=0)
    relay = outbox.relay(target, engine=database)
    while relay.step():
        pass
    assert {body for _, body in taken(channel)} == {b"other", b"at once"}
    assert count(database, made.outbox, made.outbox.c.parked, made.outbox.c.attempts == 0) == 3
    with database.begin() as connection:
        connection.execute(made.outbox.update().values(at=made.outbox.c.at - 1_000_000_000,
                                                       retry_at=made.outbox.c.retry_at - 1_000_000_000))
    while relay.step():
        pass
    assert [body for _, body in taken(channel) if body != b"alone"] == [b"later", b"behind it"]
    assert count(database, made.outbox) == 0
    relay._leave()


def test_what_is_left_of_a_time_to_live_is_sent(database, target, channel, made):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders", ttl=1000)
        connection.execute(made.outbox.update().values(created=made.outbox.c.created - 400_000_000))
    relay = outbox.relay(target, engine=database)
    assert relay.step() == 1
    [(properties, _)] = taken(channel)
    assert 300_000 < int(properties.expiration) <= 600_000
    relay._leave()


def test_what_went_before_the_broker_went_away_counts_as_sent(database, channel, url, made, monkeypatch):
    """A row at fault divides the batch. Then the broker goes away: of what it has nothing is sent again."""
    target = AmqpTarget(url, transactions=True)
    outbox = Outbox()
    with database.begin() as connection:
        for number in range(4):
            outbox.publish(connection, "orders" if number != 3 else "nowhere", body=b"%d" % number, key=f"{number}")
    relay, commits = outbox.relay(target, engine=database), []
    whole = target._look

    def look(rows):
        commits.append(len(rows))
        if len(commits) == 3:
            target._connection.close()
        whole(rows)

    monkeypatch.setattr(target, "_look", look)
    assert (relay.step(), commits) == (2, [4, 2, 2])
    assert relay.pressed
    assert count(database, made.outbox) == 2
    relay.step()
    assert [body for _, body in taken(channel)] == [b"0", b"1", b"2"]
    relay._leave()


def test_a_broker_that_is_not_there_is_waited_for(sqlite_url, made):
    from tests.sql.conftest import engine_of

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


def test_a_connection_that_ended_while_nothing_was_sent_is_made_anew(database, broker, channel, made):
    from tests.sql.tap import Tap

    tap = Tap(broker.address[1])
    outbox = Outbox()
    relay = outbox.relay(AmqpTarget(f"amqp://guest:guest@127.0.0.1:{tap.port}/%2F", True), engine=database)
    try:
        for number in range(2):
            with database.begin() as connection:
                outbox.publish(connection, "orders", body=b"%d" % number)
            assert (relay.step(), relay.pressed) == (1, None)
            for end in tap._ends:
                tap._shut(end)
        relay._leave()
    finally:
        tap.close()
    assert [body for _, body in taken(channel)] == [b"0", b"1"]


@pytest.mark.parametrize("step", ["r4_single_sent_confirm_lost", "r7_batch_sent_confirm_lost"])
def test_into_a_queue_with_dedup_a_copy_enters_once(database, broker, made, step):
    """The ok of the commit is lost, and all is sent again."""
    from tests.sql.tap import Tap

    orders = broker.engine.create_queue("orders", dedup=3600)
    outbox, rows = Outbox(), 1 if "single" in step else 5
    with database.begin() as connection:
        for number in range(rows):
            outbox.publish(connection, "orders", body=b"%d" % number, key="k")
    tap = Tap(broker.address[1])
    relay = outbox.relay(AmqpTarget(f"amqp://guest:guest@127.0.0.1:{tap.port}/%2F"), engine=database)
    tap.arm(answer=COMMITTED)
    try:
        assert relay.step() == 0
        assert (tap.cut.is_set(), orders.ready, count(database, made.outbox)) == (True, rows, rows)
        assert relay.step() == rows
        relay._leave()
    finally:
        tap.close()
    assert [message.body for message in orders.browse()] == [b"%d" % number for number in range(rows)]
    assert count(database, made.outbox) == 0


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
