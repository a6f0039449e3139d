"""What goes out: pamqp reads what the codec wrote."""

import pytest
from hypothesis import given, strategies as st
from pamqp import body, commands, frame, header, heartbeat

from tests.amqp.frames import bodies, encoded_properties, properties
from xump_ext.amqp.output import Output

names = st.text(max_size=40)


def frames(data):
    """What pamqp reads."""
    found = []
    while data:
        size, channel, one = frame.unmarshal(data)
        found.append((channel, one))
        data = data[size:]
    return found


def content(found, wanted):
    """The body of the frames behind a method, and whether each is small enough."""
    [first, *rest] = [one for _channel, one in found]
    assert isinstance(first, header.ContentHeader)
    parts = [one.value for one in rest if isinstance(one, body.ContentBody)]
    assert len(parts) == len(rest) and all(0 < len(part) <= 4096 - 8 for part in parts)
    assert first.body_size == len(b"".join(parts))
    assert header.ContentHeader(body_size=0, properties=first.properties).marshal()[12:] == encoded_properties(wanted)
    return b"".join(parts)


@given(consumer=names, tag=st.integers(0, 2**63 - 1), redelivered=st.booleans(), exchange=names, key=names, given=properties,
       message=bodies)
def test_deliveries(consumer, tag, redelivered, exchange, key, given, message):
    output = Output()
    output.deliver(5, consumer.encode(), tag, redelivered, exchange.encode(), key.encode(), encoded_properties(given), message)
    (channel, one), *rest = frames(b"".join(output.take()))
    assert isinstance(one, commands.Basic.Deliver) and channel == 5
    assert (one.consumer_tag, one.delivery_tag, one.redelivered, one.exchange, one.routing_key) == (
        consumer, tag, redelivered, exchange, key)
    assert content(rest, given) == message


@given(tag=st.integers(0, 2**63 - 1), exchange=names, key=names, count=st.integers(0, 2**32 - 1), given=properties,
       message=bodies)
def test_what_was_asked_for(tag, exchange, key, count, given, message):
    output = Output()
    output.get_ok(1, tag, True, exchange.encode(), key.encode(), count, encoded_properties(given), message)
    (_channel, one), *rest = frames(b"".join(output.take()))
    assert isinstance(one, commands.Basic.GetOk)
    assert (one.delivery_tag, one.redelivered, one.exchange, one.routing_key, one.message_count) == (
        tag, True, exchange, key, count)
    assert content(rest, given) == message


@given(exchange=names, key=names, given=properties, message=bodies)
def test_what_goes_back(exchange, key, given, message):
    output = Output()
    output.returned(1, 312, b"NO_ROUTE", exchange.encode(), key.encode(), encoded_properties(given), message)
    (_channel, one), *rest = frames(b"".join(output.take()))
    assert isinstance(one, commands.Basic.Return)
    assert (one.reply_code, one.reply_text, one.exchange, one.routing_key) == (312, "NO_ROUTE", exchange, key)
    assert content(rest, given) == message


def test_confirms_methods_and_heartbeats():
    output = Output()
    output.ack(1, 2**63 - 1, True)
    output.nack(2, 7, False)
    output.heartbeat()
    output.method(3, b"\0\x14\0\x29")
    assert len(output) == 21 + 21 + 8 + 12
    (_, one), (_, two), (_, three), (channel, four) = frames(b"".join(output.take()))
    assert isinstance(one, commands.Basic.Ack) and (one.delivery_tag, one.multiple) == (2**63 - 1, True)
    assert isinstance(two, commands.Basic.Nack) and (two.delivery_tag, two.multiple, two.requeue) == (7, False, False)
    assert isinstance(three, heartbeat.Heartbeat)
    assert isinstance(four, commands.Channel.CloseOk) and channel == 3
    assert (len(output), output.take()) == (0, [])


def test_frames_become_larger_when_both_sides_agree():
    output = Output()
    output.tune(131_072)
    output.deliver(1, b"c", 1, False, b"", b"", b"\0\0", bytes(200_000))
    assert [len(one.value) for _, one in frames(b"".join(output.take()))[2:]] == [131_064, 200_000 - 131_064]
    with pytest.raises(ValueError, match="at least 4096, got 100"):
        output.tune(100)


def test_a_name_that_is_too_long_writes_nothing():
    output = Output()
    for names in ((b"c" * 256, b"", b""), (b"", b"e" * 256, b""), (b"", b"", b"k" * 256)):
        consumer, exchange, key = names
        with pytest.raises(ValueError, match="at most 255 bytes, got 256"):
            output.deliver(1, consumer, 1, False, exchange, key, b"\0\0", b"")
    with pytest.raises(ValueError, match="got 256"):
        output.get_ok(1, 1, False, b"e" * 256, b"", 0, b"\0\0", b"")
    assert len(output) == 0


def test_a_burst_leaves_nothing_behind_and_what_is_not_written_stays():
    output = Output()
    output.method(1, bytes(1000))
    output.trim()
    assert len(output) == 1008
    output.take()
    assert output.room > 0
    output.trim()
    assert output.room == 0
    output.heartbeat()
    assert frames(b"".join(output.take()))[0][0] == 0


def test_large_bodies_are_not_copied():
    output, large = Output(), bytes(range(250)) * 2000
    output.tune(131_072)
    output.deliver(1, b"c", 1, False, b"", b"", b"\0\0", large)
    output.deliver(1, b"c", 2, False, b"", b"", b"\0\0", b"small")
    size = len(output)
    taken = output.take()
    assert [one.obj is large for one in taken if isinstance(one, memoryview)] == [True] * 4
    whole = b"".join(taken)
    assert len(whole) == size
    assert b"".join(one.value for _, one in frames(whole) if isinstance(one, body.ContentBody)) == large + b"small"
    assert (len(output), output.take()) == (0, [])
