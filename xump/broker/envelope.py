"""What goes with a body: the exchange that a message was published to, and its properties as they came.

Both travel through the engine as the bytes of one header, ANNEX: the name of the exchange after an octet of length, then property
flags and list. A message that the embedding program published has no such header; its envelope is encoded from its attributes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xump.broker.tables import Table, Typed, decode_table, encode_table

if TYPE_CHECKING:
    from xump_ext.message.message import Message

ANNEX = "amqp"
"""The header that holds exchange and properties."""

NO_PROPERTIES = b"\0\0"

FLAGS = {
    "content_type": 15, "content_encoding": 14, "headers": 13, "delivery_mode": 12, "priority": 11, "correlation_id": 10,
    "reply_to": 9, "expiration": 8, "message_id": 7, "timestamp": 6, "type": 5, "user_id": 4, "app_id": 3, "cluster_id": 2,
}
"""The properties in their order in the list, and the bit that says that one is there."""


@dataclass
class Envelope:
    """What a delivery says beside its body."""

    exchange: bytes
    """The exchange that the message was published to."""
    key: bytes
    """Its routing key."""
    properties: bytes
    """Property flags and list."""


def annex(exchange: bytes, properties: bytes) -> bytes:
    """The bytes that travel with the body."""
    return bytes([len(exchange)]) + exchange + properties


def envelope_of(message: Message) -> Envelope:
    """The envelope of a message in the engine."""
    travelled = message.headers.get(ANNEX)
    key = message.address.encode()
    if not isinstance(travelled, bytes):
        return Envelope(b"", key, properties_of(message))
    size = travelled[0] + 1
    return Envelope(travelled[1:size], key, travelled[size:])


def properties_of(message: Message) -> bytes:
    """The properties of a message that the embedding program published."""
    given: dict[str, bytes] = {}
    if message.headers:
        given["headers"] = encode_table({name: _typed(value) for name, value in message.headers.items()})
    if message.priority:
        given["priority"] = bytes([message.priority])
    for name in ("correlation_id", "reply_to", "message_id"):
        value = getattr(message, name)
        if value is not None:
            given[name] = _short(value.encode())
    return join(given)


def _typed(value: object) -> Typed:
    if isinstance(value, bool):
        return Typed("t", value)
    if isinstance(value, int):
        return Typed("l", value)
    if isinstance(value, float):
        return Typed("d", value)
    if isinstance(value, str):
        return Typed("S", value.encode())
    return Typed("x", value)


def _short(text: bytes) -> bytes:
    return bytes([min(len(text), 255)]) + text[:255]


def join(given: dict[str, bytes]) -> bytes:
    """Flags and list of these encoded properties."""
    flags = sum(1 << FLAGS[name] for name in given)
    return struct.pack(">H", flags) + b"".join(given[name] for name in FLAGS if name in given)


def split(properties: bytes) -> dict[str, bytes]:
    """The encoded properties of a list, which the codec has checked."""
    flags = int.from_bytes(properties[:2], "big")
    at, found = 2, {}
    for name, bit in FLAGS.items():
        if not flags >> bit & 1:
            continue
        if name == "headers":
            size = 4 + int.from_bytes(properties[at:at + 4], "big")
        elif name in ("delivery_mode", "priority"):
            size = 1
        else:
            size = 8 if name == "timestamp" else 1 + properties[at]
        found[name] = properties[at:at + size]
        at += size
    return found


def with_header(properties: bytes, name: str, value: Typed) -> bytes:
    """Properties with one header more."""
    given = split(properties)
    headers = decode_table(given["headers"][4:]) if "headers" in given else {}
    given["headers"] = encode_table({**headers, name: value})
    return join(given)


def headers_of(properties: bytes) -> Table:
    """The headers in a list of properties."""
    encoded = split(properties).get("headers")
    return {} if encoded is None else decode_table(encoded[4:])
