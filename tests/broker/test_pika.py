"""pika, as it comes, against the broker."""

import threading

import pika
import pytest
from pika import exceptions


@pytest.fixture
def connect(broker):
    made = []

    def connect(**options):
        host, port = broker.address
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, port, **options))
        made.append(connection)
        return connection

    yield connect
    for connection in made:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(connect):
    return connect().channel()


def taken(channel, queue, count):
    """So many messages, acked."""
    bodies = []
    for method, _properties, body in channel.consume(queue, inactivity_timeout=60):
        assert method is not None, f"{len(bodies)} of {count} messages came"
        channel.basic_ack(method.delivery_tag)
        bodies.append(body)
        if len(bodies) == count:
            break
    channel.cancel()
    return bodies


def test_declare_publish_consume_ack(channel, engine):
    declared = channel.queue_declare("jobs")
    assert (declared.method.queue, declared.method.message_count, declared.method.consumer_count) == ("jobs", 0, 0)
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", "jobs", b"job %d" % number, mandatory=True)
    assert taken(channel, "jobs", 10) == [b"job %d" % number for number in range(10)]
    channel.queue_declare("jobs", passive=True)
    queue = engine.stats()["queues"]["jobs"]
    assert (queue["ready"], queue["outstanding"], queue["settled"]) == (0, 0, 10)


def test_properties_come_as_they_were_sent(channel):
    channel.queue_declare("jobs")
    sent = pika.BasicProperties(
        content_type="text/plain", content_encoding="utf-8", headers={"a": 1, "b": [None, True, {"c": 2}], "d": "x"},
        delivery_mode=2, priority=5, correlation_id="c", reply_to="r", expiration="60000", message_id="m",
        timestamp=1_000_000_000, type="t", user_id="guest", app_id="a", cluster_id="i")
    channel.basic_publish("", "jobs", b"x" * 300_000, sent)
    method, got, body = channel.basic_get("jobs", auto_ack=True)
    assert (got, body) == (sent, b"x" * 300_000)
    assert (method.exchange, method.routing_key, method.redelivered, method.message_count) == ("", "jobs", False, 0)
    assert channel.basic_get("jobs") == (None, None, None)


def test_what_nobody_wants_comes_back(channel):
    channel.confirm_delivery()
    with pytest.raises(exceptions.UnroutableError) as raised:
        channel.basic_publish("", "nowhere", b"body", pika.BasicProperties(message_id="7"), mandatory=True)
    [returned] = raised.value.messages
    assert (returned.method.reply_code, returned.method.reply_text, returned.method.routing_key) == (312, "NO_ROUTE", "nowhere")
    assert (returned.properties.message_id, returned.body) == ("7", b"body")
    channel.basic_publish("", "nowhere", b"body")


@pytest.mark.parametrize(("kind", "key", "expected"), [
    ("direct", "one", ["a"]), ("direct", "none", []), ("fanout", "", ["a", "b"]), ("topic", "one", ["a"]),
    ("topic", "two.x.y", ["b"]),
])
def test_exchanges(channel, kind, key, expected):
    channel.exchange_declare("news", kind)
    for queue, binding in (("a", "one"), ("b", "two.#")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "news", binding)
    channel.basic_publish("news", key, b"x")
    assert [queue for queue in ("a", "b") if channel.basic_get(queue, auto_ack=True)[0]] == expected


def test_prefetch_is_kept_and_what_is_not_acked_comes_again(connect, channel):
    channel.queue_declare("jobs")
    for number in range(5):
        channel.basic_publish("", "jobs", str(number).encode())
    other = connect()
    lazy = other.channel()
    lazy.basic_qos(prefetch_count=2)
    got = []
    lazy.basic_consume("jobs", lambda channel, method, properties, body: got.append(body))
    while len(got) < 2:
        other.process_data_events(time_limit=1)
    other.process_data_events(time_limit=0)
    assert got == [b"0", b"1"]
    assert channel.queue_declare("jobs", passive=True).method.message_count == 3
    other.close()
    again = [channel.basic_get("jobs", auto_ack=True) for _message in range(5)]
    assert [body for _method, _properties, body in again] == [b"0", b"1", b"2", b"3", b"4"]
    assert [method.redelivered for method, _properties, _body in again] == [True, True, False, False, False]


def test_workers_share_a_queue(connect, channel):
    channel.queue_declare("jobs")
    counts = [0, 0]
    workers = [connect(), connect()]
    for at, worker in enumerate(workers):
        one = worker.channel()
        one.basic_qos(prefetch_count=1)

        def handle(channel, method, properties, body, at=at):
            counts[at] += 1
            channel.basic_ack(method.delivery_tag)

        one.basic_consume("jobs", handle)
    for number in range(20):
        channel.basic_publish("", "jobs", str(number).encode())
    while sum(counts) < 20:
        for worker in workers:
            worker.process_data_events(time_limit=0.01)
    assert min(counts) > 0


def test_the_embedding_program_publishes_and_takes_beside_the_clients(channel, engine):
    channel.queue_declare("jobs")
    got = []
    channel.basic_consume("jobs", lambda channel, method, properties, body: got.append((method.routing_key, properties, body)),
                          auto_ack=True)
    publishing = threading.Thread(
        target=lambda: engine.publish("jobs", "resize", b"cat.png", {"size": 700}, reply_to="r", message_id="7"))
    publishing.start()
    while not got:
        channel.connection.process_data_events(time_limit=1)
    publishing.join()
    [(key, properties, body)] = got
    assert (key, properties.headers, properties.reply_to, properties.message_id, body) == (
        "resize", {"size": 700}, "r", "7", b"cat.png")
    channel.queue_declare("results")
    channel.basic_publish("", "results", b"done")
    while engine.queues["results"].ready == 0:
        channel.connection.process_data_events(time_limit=0.01)
    [message] = engine.queues["results"].browse()
    assert (message.address, message.body) == ("results", b"done")


def test_transactions(channel):
    channel.queue_declare("jobs")
    channel.tx_select()
    channel.basic_publish("", "jobs", b"forgotten")
    channel.tx_rollback()
    channel.basic_publish("", "jobs", b"kept")
    assert channel.queue_declare("jobs", passive=True).method.message_count == 0
    channel.tx_commit()
    method, _properties, body = channel.basic_get("jobs")
    assert body == b"kept"
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()


def test_what_a_full_queue_refuses_in_a_transaction_is_told(connect):
    """There are no confirms in a transaction: a mandatory message is returned before the ok."""
    connection, returned = connect(), []
    channel = connection.channel()
    channel.add_on_return_callback(lambda channel, method, properties, body: returned.append((method.reply_code, body)))
    channel.queue_declare("small", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    channel.tx_select()
    for number in range(4):
        channel.basic_publish("", "small", b"%d" % number, mandatory=True)
    channel.tx_commit()
    connection.process_data_events(0)
    assert returned == [(506, b"2"), (506, b"3")]
    assert channel.queue_declare("small", passive=True).method.message_count == 2


def test_errors_end_the_channel_and_say_why(connect):
    connection = connect()
    with pytest.raises(exceptions.ChannelClosedByBroker, match="no queue 'jobs' in vhost '/'") as raised:
        connection.channel().queue_declare("jobs", passive=True)
    assert raised.value.reply_code == 404
    with pytest.raises(exceptions.ChannelClosedByBroker, match="unknown delivery tag 5") as raised:
        channel = connection.channel()
        channel.basic_ack(5)
        channel.queue_declare("jobs")
    assert raised.value.reply_code == 406
    assert connection.is_open and connection.channel().is_open


def test_a_queue_that_is_not_used_goes(connect):
    connection = connect()
    channel = connection.channel()
    channel.queue_declare("jobs", arguments={"x-expires": 20})
    channel.queue_declare("used", arguments={"x-expires": 20})
    other = connection.channel()
    other.basic_consume("used", lambda *message: None)
    with pytest.raises(exceptions.ChannelClosedByBroker, match="no queue 'jobs'"):
        while True:
            connection.process_data_events(time_limit=0.1)
            channel.queue_declare("jobs", passive=True)
    assert other.queue_declare("used", passive=True).method.consumer_count == 1


@pytest.mark.parametrize(("options", "error"), [
    ({"credentials": pika.PlainCredentials("guest", "wrong")}, exceptions.ProbableAuthenticationError),
    ({"virtual_host": "nowhere"}, exceptions.ProbableAccessDeniedError),
])
def test_who_may_not_enter(connect, options, error):
    with pytest.raises(exceptions.AMQPConnectionError) as raised:
        connect(**options)
    assert isinstance(raised.value, error) or "vhost nowhere not found" in str(raised.value)
