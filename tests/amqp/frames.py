"""Frames of AMQP made by pamqp, and what the codec of the core makes of bytes, as plain values that can be compared."""

from itertools import pairwise

from hypothesis import strategies as st
from pamqp import base, body, commands, frame, header

from xump_ext.amqp.decoder import CHANNEL_ERROR, ERROR, KIND_PUBLISH, METHOD, NEED, Decoder, Publish

short_texts = st.text(max_size=30)
exchanges = st.text(alphabet="abcXYZ019-_.:", max_size=30)
"""Names that pamqp agrees to encode."""
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, width=32) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=10), inner, max_size=3),
    max_leaves=5,
)
properties = st.fixed_dictionaries({}, optional={
    "content_type": short_texts, "content_encoding": short_texts,
    "headers": st.dictionaries(st.sampled_from(["CC", "BCC", "x", "CCC"]) | st.text(min_size=1, max_size=10), values, max_size=4),
    "delivery_mode": st.sampled_from([1, 2]), "priority": st.integers(0, 255),
    "correlation_id": short_texts, "reply_to": short_texts,
    "expiration": st.integers(0, 10**6).map(str), "message_id": short_texts, "message_type": short_texts, "user_id": short_texts,
    "app_id": short_texts,
})
bodies = st.binary(max_size=40) | st.integers(0, 20_000).map(bytes)


def method(channel, index, *arguments):
    """A method frame, of its number and its encoded arguments."""
    return raw(1, channel, index.to_bytes(4, "big") + b"".join(arguments))


def raw(kind, channel, payload, end=0xCE):
    return bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + bytes([end])


def publish(channel, exchange="", key="", content=b"", given=None, mandatory=False, immediate=False, frame_max=4096):
    """The frames of basic.publish with its content."""
    one = commands.Basic.Publish.__new__(commands.Basic.Publish)
    one.ticket, one.exchange, one.routing_key, one.mandatory, one.immediate = 0, exchange, key, mandatory, immediate
    made = properties_of(given)
    parts = [frame.marshal(one, channel), frame.marshal(header.ContentHeader(body_size=len(content), properties=made), channel)]
    size = frame_max - 8
    parts += [frame.marshal(body.ContentBody(content[at:at + size]), channel) for at in range(0, len(content), size)]
    return b"".join(parts)


def properties_of(given):
    return commands.Basic.Properties(**(given or {}))


def encoded_properties(given):
    """Flags and list, as they stand on the wire."""
    return header.ContentHeader(body_size=0, properties=properties_of(given)).marshal()[12:]


def ack(channel, tag, multiple=False):
    return frame.marshal(commands.Basic.Ack(tag, multiple), channel)


def nack(channel, tag, multiple=False, requeue=True):
    return frame.marshal(commands.Basic.Nack(tag, multiple, requeue), channel)


def reject(channel, tag, requeue=True):
    return frame.marshal(commands.Basic.Reject(tag, requeue), channel)


def any_method(channel, one: base.Frame):
    return frame.marshal(one, channel)


def plain(row):
    """A row as a tuple."""
    if isinstance(row, Publish):
        return (KIND_PUBLISH, row.channel, row.bits, row.exchange, row.key, row.properties, row.body, row.headers, row.expiration,
                row.user_id, row.reply_to, row.priority, row.delivery_mode, row.has_copies)
    return row.kind, row.channel, row.tag, row.multiple, row.requeue


def events(pieces, channels=(1, 2, 7), frame_max=4096, closing=(), **limits):
    """All that a decoder says of these pieces of bytes."""
    decoder = Decoder(**limits)
    decoder.tune(frame_max)
    for channel in channels:
        decoder.open(channel)
    for channel in closing:
        decoder.closing(channel)
    said = []
    for piece in pieces:
        kept = bytearray(piece)
        decoder.feed(kept, len(kept))
        said += read(decoder)
        kept[:] = bytes(len(kept))          # the buffer is used again: what the decoder needs, it has taken
    return said


def read(decoder):
    said = []
    found = METHOD
    while found != NEED:
        found = decoder.next()
        said += [plain(row) for row in decoder.rows()]
        decoder.clear()
        if found == METHOD:
            said.append(("method", decoder.channel, decoder.payload))
        elif found == ERROR:
            said.append(("error", decoder.code, decoder.text, decoder.method))
        elif found == CHANNEL_ERROR:
            said.append(("channel error", decoder.channel, decoder.code, decoder.text, decoder.method))
            decoder.closing(decoder.channel)
    return said


def cut(data, at):
    """The pieces of bytes between these places."""
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[first:last] for first, last in pairwise(places)]
