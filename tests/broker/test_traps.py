"""Where other brokers for this protocol went wrong; each of these was somebody's bug."""

import pytest

from tests.broker.raw_client import Link, table_of
from tests.broker.steps import Connect, Publish
from tests.broker.test_clients_that_misbehave import content, queue_of, ready
from tests.broker.test_consumers import consume, delivered, read_deliveries
from xump.broker import Broker


@pytest.fixture
def connect(broker):
    links = []

    def one(**tune):
        links.append(Link("a", broker.address, []))
        links[-1].connect(Connect(**tune))
        return links[-1]

    yield one
    for link in links:
        link.socket.close()


def ask(link, method, channel=1, **fields):
    link.send(channel, method, **fields)
    assert link.read_until({f"{method}ok"}, channel=channel), link.said[-1]
    return link.last


def bodies(link):
    return [said[3]["body"] for said in link.said if said[1] in ("basic.deliver", "basic.getok")]


def test_a_body_of_many_frames_goes_to_several_queues(connect):
    """Each consumer's frames have the size that it agreed on, whatever the publisher's were."""
    publisher, small, large = connect(), connect(frame_max=4096), connect()
    body = "".join(f"{number:08}" for number in range(40_000))
    for name in ("one", "two"):
        queue_of(publisher, name)
        ask(publisher, "queue.bind", queue=name, exchange="amq.fanout")
    for link, name in ((small, "one"), (large, "two")):
        ask(link, "basic.consume", queue=name, consumer_tag="c")
    publisher.publish(Publish(exchange="amq.fanout", body=body))
    for link in (small, large):
        read_deliveries(link, 1)
    assert bodies(small) == bodies(large) and bodies(small)[0].startswith("320000 bytes")


def test_a_refused_declaration_declares_nothing(connect):
    link = connect()
    link.send(1, "queue.declare", queue="jobs", arguments=table_of({"x-max-length": -1}))
    assert link.read_until({"channel.close"}) and link.last["reply_code"] == 406
    link.send(2, "queue.declare", queue="jobs", passive=True)
    assert link.read_until({"channel.close"}) and link.last["reply_code"] == 404


def test_what_was_got_counts_as_unacknowledged(connect, engine):
    link = connect()
    queue_of(link)
    link.write(b"".join(content(b"x")))
    link.send(1, "basic.get", queue="jobs")
    assert link.read_until({"basic.getok"})
    assert (engine.queues["jobs"].ready, engine.queues["jobs"].outstanding) == (0, 1)
    ask(link, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    assert (engine.queues["jobs"].ready, engine.queues["jobs"].outstanding) == (1, 0)


@pytest.mark.parametrize(("pattern", "keys"), [("#", ["", "a", "a.b"]), ("a.#", ["a", "a.b", "a.b.c"]), ("#.a", ["a", "b.a"]),
                                               ("a.#.b", ["a.b", "a.x.b", "a.x.y.b"])])
def test_a_hash_stands_for_no_word_too(connect, pattern, keys):
    link = connect()
    queue_of(link)
    ask(link, "queue.bind", queue="jobs", exchange="amq.topic", routing_key=pattern)
    for key in keys:
        link.publish(Publish(exchange="amq.topic", key=key))
    assert ready(link) == len(keys)


def test_an_exclusive_queue_is_gone_for_the_next_connection(connect):
    """Also if messages of it are out, and bindings lead to it."""
    for _round in range(20):
        link = connect()
        queue_of(link, exclusive=True)
        ask(link, "queue.bind", queue="jobs", exchange="amq.fanout")
        link.write(b"".join(content(b"x")))
        link.send(1, "basic.get", queue="jobs")
        assert link.read_until({"basic.getok"})
        ask(link, "connection.close", channel=0, reply_code=200, reply_text="", class_id=0, method_id=0)
        other = connect()
        other.send(1, "queue.declare", queue="jobs", passive=True)
        assert other.read_until({"channel.close"}) and other.last["reply_code"] == 404


def test_a_queue_of_the_program_stays_that_took_the_place_of_an_exclusive_one(connect, engine):
    link = connect()
    for name in ("taken", "own"):
        queue_of(link, name, exclusive=True)
    engine.delete_queue("taken")
    engine.create_queue("taken")
    engine.publish("taken", "x")
    ask(link, "connection.close", channel=0, reply_code=200, reply_text="", class_id=0, method_id=0)
    assert ("own" in engine.queues, engine.queues["taken"].ready) == (False, 1)
    assert ready(connect(), "taken") == 1


def test_recover_in_a_transaction_leaves_what_is_acked(connect, engine):
    """An ack that is not committed yet is neither lost nor done by recover."""
    link = connect()
    queue_of(link)
    for number in range(2):
        link.write(b"".join(content(b"%d" % number)))
    ask(link, "tx.select")
    for _message in range(2):
        link.send(1, "basic.get", queue="jobs")
        assert link.read_until({"basic.getok"})
    link.send(1, "basic.ack", delivery_tag=1)
    ask(link, "tx.commit")
    ask(link, "basic.recover", requeue=True)
    assert (engine.queues["jobs"].ready, engine.queues["jobs"].outstanding) == (1, 0)


def test_two_queues_without_time_that_are_each_others_dead_letters(connect):
    """A message goes round once, and not for ever."""
    link = connect()
    for name, other in (("one", "two"), ("two", "one")):
        ask(link, "queue.declare", queue=name, arguments=table_of(
            {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}))
    link.write(b"".join(content(b"x", "one")))
    assert ready(link, "one") == ready(link, "two") == 0


def test_confirms_are_in_order_though_some_are_ready_sooner(engine, tmp_path):
    """A message in RAM is published at once, one on disk later: no tag is confirmed twice, and none before an earlier one."""
    engine.create_store("disk", "ring", path=str(tmp_path / "disk.xump"))
    with Broker(engine, amqp="127.0.0.1:0", store="disk") as broker:
        link = Link("a", broker.address, [])
        try:
            link.connect(Connect())
            queue_of(link, "fast")
            queue_of(link, "slow", durable=True)
            ask(link, "confirm.select")
            count = 1000
            for number in range(count):
                link.write(b"".join(content(b"x", ("slow", "fast")[number % 2])))
            tags = []
            while not tags or tags[-1] < count:
                kind, _channel, payload = link.read_frame()
                assert kind == 1 and payload[:4] == b"\0\x3c\0\x50", payload
                tags.append(int.from_bytes(payload[4:12], "big"))
            assert tags == sorted(set(tags))
        finally:
            link.socket.close()


def test_a_window_that_is_made_smaller_than_what_is_out(connect):
    """It waits until so much is acknowledged; it neither delivers more nor spins."""
    link = connect()
    queue_of(link)
    for number in range(20):
        link.write(b"".join(content(b"%d" % number)))
    ask(link, "basic.qos", prefetch_count=10, global_=True)
    consume(link, "c")
    read_deliveries(link, 10)
    ask(link, "basic.qos", prefetch_count=2, global_=True)
    link.send(1, "basic.ack", delivery_tag=8, multiple=True)
    ask(link, "basic.qos", prefetch_count=2, global_=True)       # what 8 acks would have brought, has come before this answer
    assert ready(link) == 10 and delivered(link) == list(range(1, 11))
    link.send(1, "basic.ack", delivery_tag=10, multiple=True)
    read_deliveries(link, 12)
    assert delivered(link) == list(range(1, 13))
