"""What comes in: rows are what pamqp encoded, however the bytes are cut; what is wrong ends the connection and nothing else."""

import struct

import pytest
from hypothesis import given, strategies as st
from pamqp import commands

from tests.amqp.frames import (
    ack, any_method, bodies, cut, encoded_properties, events, exchanges, method, nack, plain, properties, publish, raw, read,
    reject, short_texts,
)
from xump_ext.amqp.decoder import KIND_ACK, KIND_NACK, KIND_PUBLISH, KIND_REJECT, ROWS, Decoder

publishes = st.builds(
    publish, st.sampled_from([1, 2, 7]), exchanges, short_texts, bodies, properties, st.booleans(), st.booleans())
tags = st.integers(0, 2**63 - 1)
settles = (
    st.builds(ack, st.sampled_from([1, 2, 7]), tags, st.booleans())
    | st.builds(nack, st.sampled_from([1, 2, 7]), tags, st.booleans(), st.booleans())
    | st.builds(reject, st.sampled_from([1, 2, 7]), tags, st.booleans())
)
rare = st.sampled_from([
    any_method(1, commands.Queue.Declare(queue="jobs", arguments={"x-message-ttl": 5})), any_method(2, commands.Confirm.Select()),
    any_method(0, commands.Connection.CloseOk()), raw(8, 0, b""), any_method(9, commands.Channel.Open()),
])
streams = st.lists(publishes | settles | rare, max_size=8).map(b"".join)


@given(exchange=exchanges, key=short_texts, content=bodies, properties=properties, mandatory=st.booleans())
def test_a_message_comes_as_it_was_sent(exchange, key, content, properties, mandatory):
    [row] = events([publish(2, exchange, key, content, properties, mandatory)])
    kind, channel, bits, *names, listed, body, headers, expiration, user_id, reply_to, priority, mode, copies = row
    assert (kind, channel, bits, body) == (KIND_PUBLISH, 2, int(mandatory), content)
    assert names == [exchange.encode(), key.encode()]
    assert listed == encoded_properties(properties)
    # pamqp does not send what is empty.
    for name, value in (("expiration", expiration), ("user_id", user_id), ("reply_to", reply_to)):
        assert (value or b"") == properties.get(name, "").encode()
    assert max(priority, 0) == properties.get("priority", 0)
    assert mode == properties.get("delivery_mode", -1)
    assert copies == bool({"CC", "BCC"} & set(properties.get("headers", ())))
    assert (headers or b"") in listed


@given(stream=streams, places=st.lists(st.integers(0, 10**6), max_size=10))
def test_bytes_may_be_cut_anywhere(stream, places):
    whole = events([stream])
    assert events(cut(stream, places)) == whole
    if len(stream) < 2000:
        assert events([bytes([octet]) for octet in stream]) == whole


@given(stream=streams, place=st.integers(0, 10**6))
def test_what_is_cut_off_is_waited_for(stream, place):
    part = events([stream[:place % (len(stream) + 1)]])
    assert part == events([stream])[:len(part)]
    assert not any(said[0] == "error" for said in part)


@given(stream=streams, place=st.integers(0, 10**6), octet=st.integers(0, 255), places=st.lists(st.integers(0, 10**6), max_size=4))
def test_a_wrong_octet_ends_it_the_same_way_however_it_is_cut(stream, place, octet, places):
    if stream:
        place %= len(stream)
        stream = stream[:place] + bytes([octet]) + stream[place + 1:]
    whole = events([stream])
    assert events(cut(stream, places)) == whole
    assert [said for said in whole if said[0] == "error"] == [said for said in whole[-1:] if said[0] == "error"]


@given(data=st.binary(max_size=300), places=st.lists(st.integers(0, 300), max_size=4))
def test_anything_may_come(data, places):
    assert events(cut(data, places)) == events([data])


@given(tag=tags, multiple=st.booleans(), requeue=st.booleans())
def test_acks_nacks_and_rejects_are_rows(tag, multiple, requeue):
    stream = ack(1, tag, multiple) + nack(2, tag, multiple, requeue) + reject(7, tag, requeue)
    assert events([stream]) == [
        (KIND_ACK, 1, tag, multiple, False), (KIND_NACK, 2, tag, multiple, requeue), (KIND_REJECT, 7, tag, False, requeue)]


def test_channels_send_between_each_other():
    one, two = publish(1, key="one", content=b"x" * 9000), publish(2, key="two", content=b"y" * 9000)
    frames = [one[at:at + 4096] for at in range(0, len(one), 4096)]
    assert len(frames) > 2
    first = one[:one.index(b"\xCE", 20) + 1]
    said = events([first + two + one[len(first):]])
    assert [(row[1], row[4], row[6]) for row in said] == [(2, b"two", b"y" * 9000), (1, b"one", b"x" * 9000)]


def test_a_batch_of_rows_has_an_end():
    decoder = Decoder(rows_max=3)
    decoder.open(1)
    stream = b"".join(publish(1, key=str(at)) for at in range(7))
    decoder.feed(stream, len(stream))
    sizes = []
    while decoder.next() == ROWS:
        sizes.append([plain(row)[4] for row in decoder.rows()])
        decoder.clear()
    sizes.append([plain(row)[4] for row in decoder.rows()])
    assert sizes == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]


HEAD = publish(1, content=b"abc")[:publish(1, content=b"abc").index(b"\xCE") + 1]


def content_header(size=3, kind=60, weight=0, listed=b"\0\0"):
    return raw(2, 1, struct.pack(">HHQ", kind, weight, size) + listed)


WRONG = {
    "an unknown type": (raw(4, 1, b"abc"), 501, 'type 4, all octets = <<"abc">>: unknown_frame'),
    "an unknown type on channel 0": (raw(9, 0, b""), 501, "type 9, all octets = <<>>: unknown_frame"),
    "a wrong end": (
        raw(1, 1, b"\0\x3c\0\x0a", end=0x41), 501, "type 1, all octets = <<0,60,0,10>>: {invalid_frame_end_marker,65}"),
    "a frame that is too long": (raw(3, 1, bytes(4097)), 501, "type 3, all octets = <<>>: {frame_too_large,4097,4088}"),
    "a method without its number": (raw(1, 1, b"\0\x3c"), 501, "type 1, all octets = <<0,60>>: unknown_frame"),
    "a heartbeat of a channel": (raw(8, 1, b""), 505, "type 8, all octets = <<>>"),
    "a heartbeat that says something": (raw(8, 0, b"x"), 501, 'type 8, all octets = <<"x">>: unknown_frame'),
    "a body on channel 0": (raw(3, 0, b"x" * 20), 505, f'type 3, first 16 octets = <<"{"x" * 16}">>'),
    "a body first": (raw(3, 1, b"x"), 505, "expected method frame, got non method frame instead"),
    "a body first, on a channel that is not open": (raw(3, 3, b"x"), 505, "expected method frame, got non method frame instead"),
    "a method in a message": (HEAD + HEAD, 505, "expected content header for class 60, got non content header frame instead"),
    "a body without a header": (
        HEAD + raw(3, 1, b"x"), 505, "expected content header for class 60, got non content header frame instead"),
    "a header of another class": (
        HEAD + content_header(kind=50), 505, "expected content header for class 60, got one for class 50 instead"),
    "a header with a weight": (
        HEAD + content_header(weight=1), 505, "expected content header for class 60, got non content header frame instead"),
    "a method instead of a body": (
        HEAD + content_header() + HEAD, 505, "expected content body, got non content body frame instead"),
    "a body that is too long": (
        HEAD + content_header() + raw(3, 1, b"abcd"), 505, "expected content body, got non content body frame instead"),
    "properties that are cut off": (
        HEAD + content_header(listed=b"\x80\0\x05ab"), 502, "the properties of the message cannot be decoded"),
    "more flags than there are": (
        HEAD + content_header(listed=b"\x80\x01\0\0\x01a"), 502, "the properties of the message cannot be decoded"),
    "an ack without its bits": (method(1, 60 << 16 | 80, bytes(8)), 501, "cannot decode <<0,0,0,0,0,0,0,0>>"),
    "a publish with a byte too many": (
        method(1, 60 << 16 | 40, b"\0\0\0\0\0\0"), 501, "cannot decode <<0,0,0,0,0,0>>"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_has_a_code_and_a_text(name):
    stream, code, text = WRONG[name]
    before = publish(1, key="before", content=b"x")
    said = events([before + stream + publish(1, key="after")])
    assert [row[4] for row in said[:-1]] == [b"before"]
    assert said[-1][:3] == ("error", code, text)
    assert events([bytes([octet]) for octet in before + stream]) == said


def test_tables_nest_only_so_deep():
    """Each level is a call of C."""
    deep = b""
    for _level in range(99):
        deep = b"\x01aF" + struct.pack(">I", len(deep)) + deep
    for levels, code in ((0, None), (1, 502)):
        nested = deep
        for _level in range(levels):
            nested = b"\x01aF" + struct.pack(">I", len(nested)) + nested
        said = events([HEAD + content_header(0, listed=b"\x20\0" + struct.pack(">I", len(nested)) + nested)])
        assert (said[0][1] if said[0][0] == "error" else None) == code


def test_a_body_that_is_too_large_ends_its_channel_only():
    stream = publish(1, key="large", content=b"x" * 101) + publish(1, key="lost") + publish(2, key="kept")
    said = events([stream], body_bytes_max=100)
    assert said[0] == ("channel error", 1, 406, "message size 101 is larger than configured max size 100", 60 << 16 | 40)
    assert [row[4] for row in said[1:]] == [b"kept"]
    assert events([bytes([octet]) for octet in stream], body_bytes_max=100) == said


def test_what_messages_promise_is_not_believed():
    """Memory grows as bodies come, and what is on its way at the same time has a bound."""
    decoder = Decoder(bytes_in_flight_max=100_000)
    decoder.open(1)
    decoder.open(2)
    promise = publish(1)[:publish(1).index(b"\xCE") + 1] + content_header(60 << 20)
    decoder.feed(promise, len(promise))
    assert (read(decoder), decoder.bytes_in_flight) == ([], 2)         # the flags of its properties
    piece = raw(3, 1, b"x" * 4000)
    said = []
    for _piece in range(40):
        decoder.feed(piece, len(piece))
        said += read(decoder)
    assert said == [("error", 506, "messages in the making have more than 100000 bytes on this connection", 60 << 16 | 40)]


def test_bodies_are_counted_from_their_headers_until_they_are_whole():
    decoder = Decoder()
    method = publish(1)[:publish(1).index(b"\xCE") + 1]
    for channel in (1, 2, 3):
        decoder.open(channel)
        for frame in (method, content_header(1000)):
            frame = frame[:1] + struct.pack(">H", channel) + frame[3:]
            decoder.feed(frame, len(frame))
            assert read(decoder) == []
    assert decoder.bytes_promised == 3000
    decoder.closing(3)
    assert decoder.bytes_promised == 2000
    for left in (2000, 1000):
        piece = raw(3, 1, b"x" * 500)
        decoder.feed(piece, len(piece))
        read(decoder)
        assert decoder.bytes_promised == left


def test_headers_count_among_what_is_on_its_way():
    """Else each channel could hold a frame of them beside the bound."""
    decoder = Decoder(bytes_in_flight_max=10_000)
    headers = content_header(1, listed=b"\x20\0" + struct.pack(">I", 3006) + b"\x01aS" + struct.pack(">I", 2999) + b"x" * 2999)
    method = publish(1)[:publish(1).index(b"\xCE") + 1]
    said = []
    for channel in range(1, 5):
        decoder.open(channel)
        for frame in (method, headers):
            frame = frame[:1] + struct.pack(">H", channel) + frame[3:]
            decoder.feed(frame, len(frame))
            said += read(decoder)
        if channel == 2:
            decoder.closing(channel)            # what it was sending does not count any more
            assert decoder.bytes_in_flight == 3012
    assert (said, decoder.bytes_in_flight) == ([], 9036)
    decoder.open(5)
    for frame in (method, headers):
        frame = frame[:1] + struct.pack(">H", 5) + frame[3:]
        decoder.feed(frame, len(frame))
        said += read(decoder)
    assert said == [("error", 506, "messages in the making have more than 10000 bytes on this connection", 60 << 16 | 40)]


def test_a_burst_leaves_nothing_behind_and_a_cut_frame_stays():
    decoder = Decoder()
    decoder.open(1)
    burst = publish(1, key="k") * 1000
    decoder.feed(burst, len(burst))
    assert len(read(decoder)) == 1000
    assert decoder.room > 10_000
    decoder.trim()
    assert decoder.room == 0
    whole = publish(1, key="k", content=b"x" * 3000)
    for piece in (whole[:2000], whole[2000:]):
        decoder.feed(piece, len(piece))
        said = read(decoder)
        decoder.trim()
        assert (decoder.room > 0) == (said == [])
    assert said[0][6] == b"x" * 3000


def test_a_channel_that_closes_drops_all_but_its_end():
    stream = (publish(1, key="late") + ack(1, 5) + publish(2, key="kept") + any_method(1, commands.Queue.Declare(queue="late"))
              + any_method(1, commands.Channel.CloseOk()))
    said = events([stream], closing=[1])
    assert [row[4] if row[0] == KIND_PUBLISH else row for row in said] == [b"kept", ("method", 1, b"\0\x14\0\x29")]


def test_whoever_feeds_reads_before_feeding_again():
    decoder = Decoder()
    decoder.feed(b"abcdefgh", 8)
    with pytest.raises(ValueError, match="call next"):
        decoder.feed(b"x", 1)
    with pytest.raises(ValueError, match="at most 1"):
        Decoder().feed(b"x", 2)
