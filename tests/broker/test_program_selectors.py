"""Selectors of the program on the queue of an exchange see what clients publish there, however the broker routes it."""

import pytest

from tests.broker.raw_client import Link, table_of
from tests.broker.steps import Connect, Publish
from tests.broker.test_clients_that_misbehave import queue_of, ready
from tests.broker.test_traps import ask
from xump import always, copy_to, default, match
from xump.broker import Broker

WAYS = {
    "straight": {},
    "a user id, which the broker looks at": {"user_id": "guest"},
    "copies": {"headers": {"CC": ["b"], "BCC": ["c"]}},
    "an expiration that the broker reads": {"expiration": "0900000"},
}


@pytest.fixture
def link(broker):
    made = Link("a", broker.address, [])
    made.connect(Connect())
    queue_of(made)
    ask(made, "exchange.declare", exchange="news", exchange_type="topic")
    ask(made, "queue.bind", queue="jobs", exchange="news", routing_key="a.#")
    yield made
    made.socket.close()


def publish(link, key="a", mandatory=False, channel=1, **properties):
    link.publish(Publish(exchange="news", key=key, mandatory=mandatory, channel=channel, properties=properties))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_they_see_it_by_whatever_way(link, engine, way, special):
    """Also if a queue somewhere makes the broker route all messages itself."""
    audit = engine.create_queue("audit")
    engine.create_selector("amq.x/news", when=always, do=copy_to("audit"))
    if special:
        queue_of(link, "other", arguments=table_of({"x-max-length": 10, "x-overflow": "reject-publish"}))
    publish(link, **WAYS[way])
    assert (ready(link), audit.ready) == (1, 1)
    message = audit.fetch(1)
    assert message.address == "a" and (message.expires is not None) == ("expiration" in WAYS[way])


def test_by_other_exchanges(link, engine):
    """That lead there, or have it as their alternate."""
    audit = engine.create_queue("audit")
    engine.create_selector("amq.x/news", when=match("eq", "a"), do=copy_to("audit"))
    ask(link, "exchange.bind", source="amq.fanout", destination="news")
    ask(link, "exchange.declare", exchange="empty", exchange_type="direct", arguments=table_of({"alternate-exchange": "news"}))
    for number, exchange in enumerate(("amq.fanout", "empty"), 1):
        link.publish(Publish(exchange=exchange, key="a", properties={"user_id": "guest"}))
        link.publish(Publish(exchange=exchange, key="b", properties={"user_id": "guest"}))
        assert (ready(link), audit.ready) == (number, number)


def test_what_nobody_wants_comes_back(link, engine):
    engine.create_queue("audit")
    engine.create_selector("amq.x/news", when=match("eq", "b"), do=copy_to("audit"))
    ask(link, "confirm.select")
    for key, count in (("a", 0), ("b", 0), ("c", 1)):
        del link.said[:]
        link.confirmed.clear()
        publish(link, key, mandatory=True, user_id="guest")
        while not link.confirmed:
            found = link.event()
            if found is not None:
                link.note(*found)
        assert [said[1] for said in link.said] == ["basic.return"] * count
    assert (ready(link), engine.queues["audit"].ready) == (1, 1)


def test_a_queue_that_takes_no_more_refuses(link, engine):
    engine.create_queue("audit")
    engine.create_selector("amq.x/news", when=always, do=copy_to("audit"))
    queue_of(link, "small", arguments=table_of({"x-max-length": 1, "x-overflow": "reject-publish"}))
    ask(link, "queue.bind", queue="small", exchange="news", routing_key="#")
    ask(link, "confirm.select")
    for _message in range(2):
        publish(link, "b")
    while len(link.confirmed.get(1, {})) < 2:
        link.event()
    assert link.confirmed[1] == {1: "ack", 2: "nack"}
    assert (ready(link, "small"), engine.queues["audit"].ready) == (1, 2)


def test_the_default_exchange_has_a_queue_for_dead_letters_only(link, engine):
    queue_of(link, "dying", arguments=table_of({"x-dead-letter-exchange": ""}))
    audit = engine.create_queue("audit")
    engine.create_selector("amq.x/", when=always, do=copy_to("audit"))
    for properties in ({}, {"user_id": "guest"}):
        link.publish(Publish(key="jobs", properties=properties))
    assert (ready(link), audit.ready) == (2, 0)


def test_in_a_transaction(link, engine):
    audit = engine.create_queue("audit")
    engine.create_selector("amq.x/news", when=always, do=copy_to("audit"))
    ask(link, "tx.select")
    publish(link)
    assert (ready(link), audit.ready) == (0, 0)
    ask(link, "tx.commit")
    assert (ready(link), audit.ready) == (1, 1)


def test_a_default_selector_has_what_no_binding_wants(link, engine):
    rest = engine.create_queue("rest")
    engine.create_selector("amq.x/news", when=default, do=copy_to("rest"))
    for key in ("a", "b"):
        publish(link, key, user_id="guest")
    assert (ready(link), rest.ready) == (1, 1)


def test_they_come_and_go(link, engine, broker):
    vhost = broker.vhosts["/"]
    engine.create_queue("audit")
    ask(link, "queue.bind", queue="jobs", exchange="news", routing_key="b")
    assert not vhost.program_selectors.exchanges()
    made = engine.create_selector("amq.x/news", when=always, do=copy_to("audit"))
    assert vhost.program_selectors.exchanges() == {"news"}
    ask(link, "queue.unbind", queue="jobs", exchange="news", routing_key="b")
    made.delete()
    assert not vhost.program_selectors.exchanges()
    engine.create_selector("amq.x/news", when=always, do=copy_to("audit"))
    engine.delete_queue("audit")
    assert not vhost.program_selectors.exchanges()
    ask(link, "exchange.delete", exchange="news")
    ask(link, "queue.delete", queue="jobs")
    assert not vhost.program_selectors._all and not vhost.graph.own


def test_they_may_be_there_before_the_broker(engine):
    engine.create_queue("amq.x/news", transit=True)
    audit = engine.create_queue("audit")
    engine.create_selector("amq.x/news", when=always, do=copy_to("audit"))
    with Broker(engine, amqp="127.0.0.1:0") as broker:
        link = Link("a", broker.address, [])
        with link.socket:
            link.connect(Connect())
            ask(link, "exchange.declare", exchange="news", exchange_type="topic")
            publish(link)
            queue_of(link)
            assert audit.ready == 1
