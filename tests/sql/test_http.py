"""Relays to a broker over HTTP."""

import time

import pytest

import xump
from tests.sql.conftest import count, engine_of
from xump.broker import Broker
from xump.sql import Outbox
from xump.sql.http import HttpTarget
from xump.sql.outcomes import Down


@pytest.fixture
def broker():
    with xump.Engine() as engine, Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        engine.create_queue("orders", dedup=600)
        broker.engine = engine
        yield broker


@pytest.fixture
def database(sqlite_url):
    database = engine_of(sqlite_url)
    yield database
    database.dispose()


def relay_of(outbox, broker, database, **options):
    return outbox.relay(broker.http.url, engine=database, **options)


def test_a_message_arrives_as_it_was_given(database, broker, made):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders", "order.new", b"\0\xff", {"a": 1, "b": True, "c": 0.5, "d": "ö"}, message_id="1",
                       correlation_id="c", reply_to="r", priority=3, ttl=600)
        outbox.publish(connection, "orders", "later", b"x", message_id="2", delay=3600)
    relay = relay_of(outbox, broker, database)
    assert relay.step() == 2
    orders = broker.engine.queues["orders"]
    first, second = orders.browse()
    assert (first.address, first.body, first.headers, first.message_id, first.correlation_id, first.reply_to, first.priority) == (
        "order.new", b"\0\xff", {"a": 1, "b": True, "c": 0.5, "d": "ö"}, "1", "c", "r", 3)
    assert abs(first.expires - time.time_ns() - 600e9) < 60e9
    assert 3500 < (broker.engine.next_due - time.time_ns()) / 1e9 <= 3600 or broker.engine.next_due == first.expires
    assert (second.address, orders.delayed, count(database, made.outbox)) == ("later", 1, 0)
    relay._leave()


def test_a_row_that_is_refused_holds_its_key_back_and_no_other(database, broker, made):
    outbox = Outbox()
    with database.begin() as connection:
        for number in range(6):
            outbox.publish(connection, "nowhere" if number == 1 else "orders", "", b"%d" % number, key=f"{number % 3}")
        outbox.publish(connection, "orders", "", b"6", {"raw": b"\xff"})
    relay = relay_of(outbox, broker, database, retry_delay=1000)
    relay.step()
    relay.step()
    assert sorted(m.body for m in broker.engine.queues["orders"].browse()) == [b"0", b"2", b"3", b"5"]
    assert count(database, made.outbox) == 3
    relay._leave()


def test_a_full_queue_is_waited_for(database, broker, made):
    full = broker.engine.create_queue("full", limit=2)
    outbox = Outbox()
    with database.begin() as connection:
        for number in range(4):
            outbox.publish(connection, "full", "", b"%d" % number, key="a")
    relay = relay_of(outbox, broker, database)
    relay.step()
    assert [m.body for m in full.browse()] == [b"0", b"1"]
    full.purge()
    relay.step()
    assert [m.body for m in full.browse()] == [b"2", b"3"]
    assert count(database, made.outbox) == 0
    relay._leave()


def test_a_broker_that_is_away_is_no_fault_of_a_row(database, broker, made):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders", "", b"0")
    for url in ("http://127.0.0.1:1", broker.http.url.replace("//", "//anna:wrong@")):
        target = HttpTarget(url)
        with database.connect() as connection, pytest.raises(Down):
            target.send(connection.execute(made.outbox.select()).all())
        target.close()
    relay = relay_of(outbox, broker, database)
    assert relay.step() == 1
    relay._leave()


def test_what_went_before_the_broker_went_away_counts_as_sent(database, broker, made, monkeypatch):
    broker.engine.create_queue("mails")
    outbox = Outbox()
    with database.begin() as connection:
        for queue in ("orders", "mails", "orders"):
            outbox.publish(connection, queue, "", queue.encode())
    target = HttpTarget(broker.http.url)
    whole, asked = target._post, []

    def post(path, body):
        asked.append(path)
        if len(asked) == 2:
            raise Down("gone")
        return whole(path, body)

    monkeypatch.setattr(target, "_post", post)
    relay = outbox.relay(target, engine=database)
    assert relay.step() == 1
    assert (relay.pressed, len(asked), count(database, made.outbox)) == ("gone", 2, 2)
    while relay.step():
        pass
    assert (broker.engine.queues["orders"].ready, broker.engine.queues["mails"].ready) == (2, 1)
    relay._leave()


@pytest.mark.parametrize(("status", "kind"), [(405, "refused"), (414, "refused"), (431, "refused"), (401, "down"), (408, "down"),
                                              (429, "down"), (500, "down"), (503, "pressed")])
def test_what_the_answers_of_a_server_mean(database, broker, made, monkeypatch, status, kind):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders")
    target = HttpTarget(broker.http.url)
    monkeypatch.setattr(target, "_post", lambda path, body: (status, "said"))
    relay = outbox.relay(target, engine=database, retry_delay=1000)
    assert (relay.step(), bool(relay.pressed)) == (0, kind != "refused")
    assert count(database, made.outbox, made.outbox.c.attempts == (kind == "refused")) == 1
    relay._leave()


def test_what_is_sent_again_enters_once(database, broker, made):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders", "", b"0", message_id="1")
    with database.connect() as connection:
        rows = connection.execute(made.outbox.select()).all()
    target = HttpTarget(broker.http.url)
    assert target.send(rows) == target.send(rows) == [None]
    target.close()
    assert broker.engine.queues["orders"].ready == 1
