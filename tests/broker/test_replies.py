"""Direct reply-to, and queues that a connection has for itself: what other clients may do with them."""

import re

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.broker.http.conftest import Client
from xump.broker import Broker, Users
from xump.broker.users import User

REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def connect(broker):
    connections = []

    def made():
        connections.append(pika.BlockingConnection(pika.ConnectionParameters(*broker.address)))
        return connections[-1].channel()

    yield made
    for connection in connections:
        connection.close()


@pytest.fixture
def asked(connect):
    """A client that waits for replies, and the name of the queue that it waits at."""
    client = connect()
    client.queue_declare("rpc")
    client.basic_consume(REPLY_TO, lambda *_: None, auto_ack=True)
    client.basic_publish("", "rpc", b"request", pika.BasicProperties(reply_to=REPLY_TO))
    _method, properties, _body = client.basic_get("rpc", auto_ack=True)
    return client, properties.reply_to


@pytest.mark.parametrize("how", [{}, {"passive": True}, {"durable": True, "exclusive": True}])
def test_a_declaration_asks_whether_the_client_waits(connect, asked, how):
    client, name = asked
    found = connect().queue_declare(name, **how).method
    assert (found.queue, found.message_count, found.consumer_count) == (name, 0, 1)
    client.close()
    with pytest.raises(ChannelClosedByBroker, match=re.escape(f"NOT_FOUND - no queue '{name}' in vhost '/'")):
        connect().queue_declare(name, **how)


@pytest.mark.parametrize("do", [
    lambda channel, name: channel.basic_consume(name, print, auto_ack=True),
    lambda channel, name: channel.basic_get(name),
    lambda channel, name: channel.queue_purge(name),
    lambda channel, name: channel.queue_bind(name, "amq.fanout"),
], ids=["consume", "get", "purge", "bind"])
def test_there_is_no_such_queue_for_anything_else(connect, asked, do):
    client, name = asked
    for channel in (connect(), client.connection.channel()):
        with pytest.raises(ChannelClosedByBroker, match="NOT_FOUND"):
            do(channel, name)
    assert connect().queue_delete(name).method.message_count == 0
    assert connect().queue_declare(name).method.consumer_count == 1


def test_its_own_replies_need_no_permission(engine):
    nothing = {name: re.compile("^$") for name in ("configure", "read")}
    users = Users({"anna": User("anna", "", {"/": {**nothing, "write": re.compile("")}})})
    users.authenticate = lambda *_: users.get("anna")
    with Broker(engine, amqp="127.0.0.1:0", users=users) as broker:
        with pika.BlockingConnection(pika.ConnectionParameters(*broker.address)) as connection:
            channel = connection.channel()
            channel.basic_consume(REPLY_TO, print, auto_ack=True)
            with pytest.raises(ChannelClosedByBroker, match="reply consumer already set"):
                channel.basic_consume(REPLY_TO, print)
            with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
                connection.channel().basic_consume("jobs", print)


@pytest.mark.parametrize("other", [{}, {"durable": True}, {"auto_delete": True}, {"arguments": {"x-expires": 5000}}])
def test_who_has_a_queue_comes_before_what_else_differs(connect, other):
    own = connect()
    own.queue_declare("mine", exclusive=True)
    for channel in (connect(), own):
        with pytest.raises(ChannelClosedByBroker, match="RESOURCE_LOCKED"):
            channel.queue_declare("mine", **other)


def test_http_and_a_queue_of_a_connection(engine):
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        client = Client(broker.http.url)
        connection = pika.BlockingConnection(pika.ConnectionParameters(*broker.address))
        channel = connection.channel()
        channel.queue_declare("mine", exclusive=True)
        channel.basic_consume(REPLY_TO, print, auto_ack=True)
        [reply] = [name for name in engine.queues if name.startswith(REPLY_TO)]
        for path in ("/queues/mine", f"/queues/{reply}"):
            answer = client("DELETE", path)
            assert answer.status == 403, answer
        assert [queue["name"] for queue in client("GET", "/queues").json] == ["mine"]
        topology = client("GET", "/topology")
        assert topology.status == client("GET", "/graph.svg").status == 200
        assert "mine" in topology.json["queues"] and reply not in topology.json["queues"]
        assert reply not in [selector["source"] for selector in topology.json["selectors"]]
        channel.queue_declare("mine", exclusive=True, passive=True)
        connection.close()
        assert client("DELETE", "/queues/mine").json == {"deleted": False}
