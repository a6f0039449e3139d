"""Exchanges of the type `x-delayed-message`: messages reach queues after their header `x-delay`, as with RabbitMQ's plug-in."""

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

import xump
from tests.conftest import Clock
from xump.broker import Broker

HOURS = 1000 * 3600 * 1000
"""Milliseconds."""


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def engine(clock):
    with xump.Engine(clock=clock, hop_limit=1024) as engine:
        yield engine
        engine.check()


@pytest.fixture
def later(channel):
    """An exchange that delays, and a queue behind it."""
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.queue_declare("jobs")
    channel.queue_bind("jobs", "later", "job")


def publish(channel, delay=None, exchange="later", key="job", mandatory=True, **properties):
    headers = {"kind": "a"} | ({} if delay is None else {"x-delay": delay})
    channel.basic_publish(exchange, key, b"x", pika.BasicProperties(headers=headers, **properties), mandatory=mandatory)


def counts(engine, name="jobs"):
    return engine.queues[name].ready, engine.queues[name].delayed


def headers(channel, name="jobs"):
    _method, properties, _body = channel.basic_get(name, auto_ack=True)
    return properties.headers


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("given", [5000, "5000", 2**33 // 1000 * 1000])
def test_a_message_is_delivered_when_its_time_has_come(channel, engine, clock, given):
    publish(channel, given)
    seconds = int(given) / 1000
    assert counts(engine) == (0, 1)
    clock.tick(int(seconds) - 1)
    assert channel.basic_get("jobs") == (None, None, None)
    clock.tick(1)
    assert headers(channel) == {"kind": "a", "x-delay": -int(given)}


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("given", [None, 0, -5, "soon", True])
def test_what_says_no_delay_has_none(channel, engine, given):
    publish(channel, given)
    assert counts(engine) == (1, 0)
    assert headers(channel) == {"kind": "a"} | ({} if given is None else {"x-delay": given})


@pytest.mark.usefixtures("later")
def test_each_comes_in_its_own_time(channel, clock):
    for delay in (3000, 1000, 2000):
        publish(channel, delay)
    for delay in (1000, 2000, 3000):
        assert channel.basic_get("jobs") == (None, None, None)
        clock.tick(1)
        assert headers(channel)["x-delay"] == -delay


@pytest.mark.usefixtures("later")
def test_a_time_to_live_begins_when_the_delay_ends(channel, clock):
    publish(channel, 5000, expiration="2000")
    publish(channel, 5000, expiration="2000")
    clock.tick(6)
    assert headers(channel)["x-delay"] == -5000
    clock.tick(1)
    assert channel.basic_get("jobs") == (None, None, None)


@pytest.mark.usefixtures("later")
def test_a_way_over_other_exchanges(channel, engine, clock):
    """One that leads straight to the queue is not delayed, and one before an exchange that delays is."""
    channel.exchange_declare("first", "fanout")
    channel.exchange_bind("later", "first")
    channel.queue_declare("now")
    channel.queue_bind("now", "first")
    publish(channel, 5000, exchange="first")
    assert (counts(engine), counts(engine, "now")) == ((0, 1), (1, 0))
    channel.exchange_unbind("later", "first")
    publish(channel, 5000, exchange="first")
    assert (counts(engine), counts(engine, "now")) == ((0, 1), (2, 0))
    channel.exchange_declare("other", "direct", arguments={"alternate-exchange": "later"})
    publish(channel, 5000, exchange="other")
    assert counts(engine) == (0, 2)
    clock.tick(5)
    assert [headers(channel)["x-delay"] for _ in range(2)] == [-5000, -5000]


@pytest.mark.usefixtures("later")
def test_in_a_transaction(channel, engine, clock):
    channel = channel.connection.channel()
    channel.tx_select()
    publish(channel, 5000)
    channel.tx_commit()
    assert counts(engine) == (0, 1)
    clock.tick(5)
    assert headers(channel)["x-delay"] == -5000


@pytest.mark.usefixtures("later")
def test_what_no_binding_wants_is_returned_at_once(channel):
    with pytest.raises(pika.exceptions.UnroutableError):
        publish(channel, 5000, key="other")


@pytest.mark.usefixtures("later")
def test_a_delay_that_is_too_long_is_refused(channel, engine):
    with pytest.raises(ChannelClosedByBroker, match=r"406.*x-delay of 10000000000000 ms: at most 1000000000000 are possible"):
        publish(channel, 10**13)
    assert counts(engine) == (0, 0)


@pytest.mark.parametrize("arguments", [
    {}, {"x-delayed-type": "none"}, {"x-delayed-type": "x-delayed-message"}, {"x-delayed-type": 5}])
def test_the_type_of_its_bindings_must_be_one(channel, arguments, broker):
    with pytest.raises(ChannelClosedByBroker, match=r"406.*'x-delayed-type' must be an existing exchange type"):
        channel.exchange_declare("later", "x-delayed-message", arguments=arguments)
    assert "later" not in broker.vhosts["/"].exchanges


@pytest.mark.usefixtures("later")
def test_it_is_declared_again_alike_only(channel):
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    with pytest.raises(ChannelClosedByBroker, match=r"406.*x-delayed-type"):
        channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "topic"})


@pytest.mark.parametrize("routes, key, arguments, wanted", [
    ("topic", "job.#", {}, [1, 1, 0]), ("fanout", "", {}, [1, 1, 1]), ("headers", "", {"kind": "a"}, [1, 1, 1])])
def test_its_bindings_are_of_that_type(channel, engine, routes, key, arguments, wanted):
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": routes})
    channel.queue_declare("jobs")
    channel.queue_bind("jobs", "later", key, arguments)
    for number, sent in enumerate(("job", "job.a", "other")):
        before = counts(engine)[1]
        publish(channel, HOURS, key=sent, mandatory=False)
        assert counts(engine)[1] - before == wanted[number]


def test_it_and_its_messages_outlive_the_process(tmp_path, clock):
    def run(do):
        with xump.Engine(clock=clock) as engine:
            engine.create_store("broker", "ring", path=tmp_path / "broker.xump")
            with Broker(engine, amqp="127.0.0.1:0", store="broker") as broker, \
                    pika.BlockingConnection(pika.ConnectionParameters(*broker.address)) as connection:
                return do(connection.channel())

    def first(channel):
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
        channel.queue_declare("jobs", durable=True)
        channel.queue_bind("jobs", "later", "job")
        channel.confirm_delivery()
        publish(channel, 5000)

    def second(channel):
        channel.confirm_delivery()
        publish(channel, 7000)

    run(first)
    run(second)
    assert run(lambda channel: channel.basic_get("jobs")) == (None, None, None)
    clock.tick(7)
    assert run(lambda channel: [headers(channel)["x-delay"] for _ in range(2)]) == [-5000, -7000]


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(("given", "said"), [("9" * 5000, "9" * 40), ("1" + "0" * 13, "1" + "0" * 13)])
def test_a_text_of_many_digits_is_too_long_or_a_number(channel, engine, given, said):
    """Python makes no int of more than 4,300 digits."""
    publish(channel, "0" * 5000 + "0")
    assert counts(engine) == (1, 0)
    with pytest.raises(ChannelClosedByBroker, match=rf"406.*x-delay of {said} ms: at most 1000000000000 are possible"):
        publish(channel, given)
    assert counts(engine) == (1, 0)
