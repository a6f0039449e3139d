"""Dead letters by pika: loops that run as long as a client rejects, and those that end."""

import pika
import pytest


@pytest.fixture
def channel(broker):
    with pika.BlockingConnection(pika.ConnectionParameters(*broker.address)) as connection:
        yield connection.channel()


def got(channel, queue):
    """Method, properties and body of the next message."""
    method, properties, body = channel.basic_get(queue)
    assert method is not None, f"nothing in {queue}"
    return method, properties, body


def rejected(channel, queue):
    method, properties, _body = got(channel, queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    return properties


def test_round_a_thousand_times(channel, engine):
    """The retry pattern: work queue, reject, exchange, retry queue, exchange, work queue."""
    for name in ("work", "retry"):
        channel.exchange_declare(f"to {name}", "direct")
    channel.queue_declare("work", arguments={"x-dead-letter-exchange": "to retry"})
    channel.queue_declare("retry", arguments={"x-dead-letter-exchange": "to work"})
    for name in ("work", "retry"):
        channel.queue_bind(name, f"to {name}", "job")
    channel.basic_publish("to work", "job", b"body", pika.BasicProperties(headers={"tags": ["a", None]}, reply_to="me"))
    for _round in range(1000):
        rejected(channel, "work")
        rejected(channel, "retry")
    method, properties, body = got(channel, "work")
    assert (method.exchange, method.routing_key, body, properties.reply_to) == ("to work", "job", b"body", "me")
    deaths = [(death["queue"], death["exchange"], death["count"]) for death in properties.headers["x-death"]]
    assert deaths == [("retry", "to retry", 1000), ("work", "to work", 1000)]
    assert properties.headers["tags"] == ["a", None]
    assert not any(queue["dropped"] for queue in engine.stats()["queues"].values())


@pytest.mark.parametrize("exchange", ["", "own"])
def test_an_exchange_that_leads_back_to_the_queue_where_it_died(channel, exchange):
    if exchange:
        channel.exchange_declare(exchange, "fanout")
    channel.queue_declare("jobs", arguments={"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "jobs"})
    if exchange:
        channel.queue_bind("jobs", exchange)
    channel.basic_publish("", "jobs", b"body")
    for _round in range(50):
        rejected(channel, "jobs")
    method, properties, _body = got(channel, "jobs")
    assert properties.headers["x-death"][0]["count"] == 50 and method.exchange == exchange


def test_what_dies_by_itself_does_not_come_back(channel, engine):
    """RabbitMQ's rule of cycles: it would go round with the clock alone."""
    channel.queue_declare("jobs", arguments={"x-dead-letter-exchange": "", "x-message-ttl": 1})
    channel.basic_publish("", "jobs", b"body", pika.BasicProperties(headers={"n": 1}))
    while not engine.stats()["queues"]["jobs"]["dead_lettered"]:
        channel.connection.process_data_events(time_limit=0.01)
        engine.tick()
    assert engine.stats()["queues"]["jobs"]["ready"] == 0 and channel.basic_get("jobs")[0] is None


def test_an_exchange_that_is_declared_later(channel, engine):
    channel.queue_declare("jobs", arguments={"x-dead-letter-exchange": "later"})
    for _turn in range(2):
        channel.basic_publish("", "jobs", b"body")
    rejected(channel, "jobs")
    channel.exchange_declare("later", "fanout")
    channel.queue_declare("failed")
    channel.queue_bind("failed", "later")
    rejected(channel, "jobs")
    assert channel.queue_declare("failed", passive=True).method.message_count == 1
    assert engine.stats()["queues"]["jobs"]["dropped"] == {"rejected": 1}


@pytest.mark.parametrize(("overflow", "letters"), [("drop-head", [b"0", b"1"]), ("reject-publish", []),
                                                   ("reject-publish-dlx", [b"1", b"2"])])
@pytest.mark.parametrize("way", ["", "news"])
def test_a_full_queue(channel, overflow, letters, way):
    channel.exchange_declare("news", "fanout")
    channel.queue_declare("failed")
    channel.queue_declare("jobs", arguments={
        "x-max-length": 1, "x-overflow": overflow, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "failed"})
    channel.queue_bind("jobs", "news")
    for number in range(3):
        channel.basic_publish(way, "jobs", b"%d" % number)
    found = [got(channel, "failed") for _letter in letters]
    assert [body for _method, _properties, body in found] == letters and channel.basic_get("failed")[0] is None
    assert all(properties.headers["x-death"][0]["reason"] == "maxlen" for _method, properties, _body in found)


def test_what_the_program_published_dies_as_all_else(channel, engine):
    channel.queue_declare("failed")
    channel.queue_declare("jobs", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "failed"})
    engine.publish("jobs", "job", b"body", {"n": 1}, correlation_id="c")
    rejected(channel, "jobs")
    _method, properties, body = got(channel, "failed")
    assert (body, properties.correlation_id, properties.headers["n"]) == (b"body", "c", 1)
    assert properties.headers["x-death"][0]["routing-keys"] == ["job"]
