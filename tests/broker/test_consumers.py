"""What consumers get, and when: prefetch, several consumers, queues that end, answers that do not come."""

import pytest

from tests.broker.raw_client import Link, table_of
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content, limited, queue_of, ready
from xump.broker import Broker, envelope
from xump_ext.amqp.decoder import KIND_ACK, KIND_NACK, KIND_REJECT
from xump_ext.amqp.outgoing import Unacked


@pytest.fixture
def link(broker):
    made = []

    def connect():
        made.append(Link("a", broker.address, []))
        made[-1].connect(Connect())
        return made[-1]

    yield connect
    for one in made:
        one.socket.close()


def consume(link, tag, channel=1, **options):
    link.send(channel, "basic.consume", queue="jobs", consumer_tag=tag, **options)
    assert link.read_until({"basic.consumeok"}, channel=channel)


def delivered(link, tag=None):
    return [said[2]["delivery_tag"] for said in link.said
            if said[1] == "basic.deliver" and tag in (None, said[2]["consumer_tag"])]


def read_deliveries(link, count):
    while len(delivered(link)) < count:
        found = link.event()
        if found is not None:
            link.note(*found)


def test_prefetch_0_of_a_million_leaves_the_broker_free(engine):
    """A consumer that does not answer gets what it can hold; the rest stays ready for others, and no call takes long."""
    engine.create_queue("jobs")
    engine.publish_many("jobs", [("jobs", b"x" * 10)] * 1_000_000)
    with Broker(engine, amqp="127.0.0.1:0") as broker:
        one, other = Link("a", broker.address, []), Link("b", broker.address, [])
        try:
            one.connect(Connect())
            other.connect(Connect())
            consume(one, "c")
            assert ready(other) > 500_000
        finally:
            one.socket.close()
            other.socket.close()


def test_a_second_consumer_without_acks_gets_its_share(link):
    one, publisher = link(), link()
    queue_of(one)
    consume(one, "first", no_ack=True)
    consume(one, "second", no_ack=True)
    for number in range(10):
        publisher.write(b"".join(content(b"%d" % number)))
    read_deliveries(one, 10)
    assert len(delivered(one, "first")) == len(delivered(one, "second")) == 5


def test_a_queue_that_the_program_deletes_cancels_its_consumers(engine, broker, link):
    one = link()
    queue_of(one)
    consume(one, "c")
    assert engine.delete_queue("jobs")
    assert one.read_until({"basic.cancel"}, channel=1)


def test_ttl_0_reaches_a_consumer_that_waits(link):
    one, publisher = link(), link()
    queue_of(one, arguments=table_of({"x-message-ttl": 0}))
    publisher.write(b"".join(content(b"nobody waits")))
    assert ready(publisher) == 0
    consume(one, "c")
    publisher.write(b"".join(content(b"one waits")))
    read_deliveries(one, 1)


def test_a_channel_that_does_not_answer_in_time_is_closed(engine):
    with limited(engine, consumer_timeout=0.1) as broker:
        one = Link("a", broker.address, [])
        try:
            one.connect(Connect())
            queue_of(one)
            consume(one, "c")
            one.write(b"".join(content(b"x")))
            read_deliveries(one, 1)
            assert one.read_until({"channel.close"}, channel=1)
            assert one.last["reply_code"] == 406 and "timed out" in one.last["reply_text"]
            assert engine.queues["jobs"].ready == 1
        finally:
            one.socket.close()


# ---- the book of delivery tags

@pytest.fixture
def book(engine):
    queue = engine.create_queue("q")
    engine.publish_many("q", [(str(number),) for number in range(100)])
    unacked = Unacked(engine)

    def take(count):
        for _ in range(count):
            unacked.keep(engine.get(queue), 7.0)
        return unacked
    return take


def test_what_the_engine_took_back_before_it_got_its_tag_is_stale(engine):
    queue, unacked = engine.create_queue("q"), Unacked(engine)
    queue.publish("a")
    delivery = engine.get(queue)
    engine.delete_queue(queue)
    assert unacked.keep(delivery, 7.0) == len(unacked) == 1
    assert unacked.settle_all([(KIND_ACK, 1, False, False)]) is None
    assert len(unacked) == 0


def test_tags_are_settled_one_by_one_and_together(engine, book):
    unacked = book(80)
    queue = engine.queues["q"]
    assert (unacked.last_tag, len(unacked), queue.outstanding, unacked.oldest()) == (80, 80, 80, 8)
    assert unacked.settle_all([(KIND_ACK, 5, False, False), (KIND_ACK, 70, True, False)]) is None
    assert len(unacked) == queue.outstanding == 10 and engine.stats()["queues"]["q"]["settled"] == 70
    for tag, multiple in ((5, False), (70, False), (70, True), (81, False), (81, True), (0, False)):
        assert not unacked.knows(tag, multiple)
        assert unacked.settle_all([(KIND_ACK, tag, multiple, False)]) is not None
    assert unacked.settle_all([(KIND_NACK, 71, False, True), (KIND_REJECT, 72, False, False)]) is None
    assert queue.ready == 21 and engine.stats()["queues"]["q"]["dropped"]["rejected"] == 1
    assert unacked.settle_all([(KIND_NACK, 0, True, True), (KIND_NACK, 0, True, True)]) is None
    assert len(unacked) == 0 and unacked.oldest() is None and queue.ready == 29
    engine.check()


def test_what_the_engine_took_back_is_only_forgotten(engine, book):
    unacked = book(40)
    engine.delete_queue("q")
    assert unacked.knows(3, False)
    assert unacked.settle_all([(KIND_ACK, 3, False, False), (KIND_REJECT, 4, False, False), (KIND_NACK, 0, True, True)]) is None
    assert len(unacked) == 0


def test_a_book_that_goes_leaves_its_messages_outstanding(engine, book):
    book(40)
    engine.check()
    assert engine.queues["q"].outstanding == 40


LONG_NAME = "h" * 256


@pytest.mark.parametrize("how", ["basic.consume", "basic.get", "dead letters", "a quorum queue"])
def test_a_header_whose_name_is_too_long_holds_up_no_consumer(link, engine, caplog, how):
    """It is left out; the rest of the message, and other messages, come."""
    envelope._said.clear()
    one = link()
    if how == "a quorum queue":
        queue_of(one, durable=True, arguments=table_of({"x-queue-type": "quorum"}))
    else:
        queue_of(one)
    if how == "dead letters":
        one.send(1, "queue.declare", queue="dying", arguments=table_of(
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "jobs", "x-message-ttl": 0}))
        assert one.read_until({"queue.declareok"}, channel=1)
    for number in range(2):
        engine.publish("dying" if how == "dead letters" else "jobs", "a", b"%d" % number, {LONG_NAME: 1, "short": 2})
    if how == "basic.get":
        for _message in range(2):
            one.send(1, "basic.get", queue="jobs")
            assert one.read_until({"basic.getok"})
    else:
        consume(one, "c")
        read_deliveries(one, 2)
        if how == "a quorum queue":
            one.send(1, "basic.nack", delivery_tag=2, multiple=True, requeue=True)
            read_deliveries(one, 4)
    contents = [said[3] for said in one.said if said[1] in ("basic.deliver", "basic.getok")]
    assert [each["body"] for each in contents[:2]] == ["0", "1"]
    for each in contents:
        headers = each["properties"]["headers"]
        assert headers["short"] == "l 2" and not any(len(name) > 100 for name in headers)
    said = [record for record in caplog.records if "do not get header 'hhhh" in record.getMessage()]
    assert len(said) == (0 if how == "dead letters" else 1)     # the core rewrites these, and has no log


@pytest.mark.parametrize("method", ["basic.consume", "basic.get"])
def test_a_long_address_ends_with_its_last_whole_character(link, engine, method):
    one = link()
    queue_of(one)
    address = "a" + "ü" * 200                       # octet 255 is in the middle of one
    engine.publish("jobs", address, b"x", {}, reply_to=address, correlation_id=address)
    if method == "basic.get":
        one.send(1, "basic.get", queue="jobs")
        assert one.read_until({"basic.getok"})
    else:
        consume(one, "c")
        read_deliveries(one, 1)
    [said] = [said for said in one.said if said[1] in ("basic.deliver", "basic.getok")]
    assert said[2]["routing_key"] == said[3]["properties"]["reply_to"] == said[3]["properties"]["correlation_id"] == address[:128]


@pytest.mark.parametrize("method", ["basic.consume", "basic.get"])
def test_what_cannot_be_sent_for_a_defect_is_outstanding_nowhere(link, engine, monkeypatch, method):
    monkeypatch.setattr(envelope, "encoded_properties", lambda _message: 1 / 0)
    one = link()
    queue_of(one)
    engine.publish("jobs", "a", b"x")
    one.send(1, method, queue="jobs")
    assert one.read_until({"connection.close"}) and one.last["reply_code"] == 541
    assert not one.read_bytes(1)
    assert (engine.queues["jobs"].ready, engine.queues["jobs"].outstanding) == (1, 0)
