"""The envelope of a body: the exchange that a message was published to, and its properties as they came.

Both travel through the engine as the annex of a message: the name of the exchange after an octet of length, then property flags
and list. Routing keys of CC and BCC stand before them, so that a dead letter goes to all of them. A message that the embedding
program published has no such annex; its envelope is encoded from its attributes.
"""

from __future__ import annotations

import datetime
import decimal
import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pamqp import commands

from xump.broker.tables import NAME_BYTES_MAX, Table, Typed, decode_table, encode_table
from xump_ext.amqp.envelope import KEYS_KIND, KIND
from xump_ext.message.message import Message

logger = logging.getLogger("xump")

NO_PROPERTIES = b"\0\0"
SHORT_BYTES_MAX = 255
"""Of a routing key, and of a property that is a text."""
SAID_MAX = 100
"""Of so many headers the log says that clients do not get them."""
_said: set[str] = set()

FLAGS = {
    "content_type": 15, "content_encoding": 14, "headers": 13, "delivery_mode": 12, "priority": 11, "correlation_id": 10,
    "reply_to": 9, "expiration": 8, "message_id": 7, "timestamp": 6, "type": 5, "user_id": 4, "app_id": 3, "cluster_id": 2,
}
"""The properties in their order in the list, and the bit that says that one is there."""


@dataclass
class Envelope:
    """The envelope of a delivery."""

    exchange: bytes
    """The exchange that the message was published to."""
    key: bytes
    """Its routing key."""
    properties: bytes
    """Property flags and list."""


def annex(exchange: bytes, properties: bytes, keys: tuple[bytes, ...] = ()) -> tuple[int, bytes]:
    """The bytes that travel with the body; `keys`: the further routing keys."""
    plain = bytes([len(exchange)]) + exchange + properties
    if not keys:
        return KIND, plain
    block = b"".join(struct.pack(">H", len(key)) + key for key in keys)
    return KEYS_KIND, struct.pack(">I", len(block)) + block + plain


def unpacked(message: Message) -> tuple[bytes, bytes] | None:
    """Exchange and properties in the annex of a message; None: it did not come by AMQP."""
    kind, annex = message.annex or (0, b"")
    if kind == KEYS_KIND:
        annex = annex[4 + int.from_bytes(annex[:4], "big"):]
    elif kind != KIND:
        return None
    size = annex[0] + 1
    return annex[1:size], annex[size:]


def envelope_of(message: Message) -> Envelope:
    """The envelope of a message in the engine."""
    key = _shortened(message.address.encode())
    came = unpacked(message)
    return Envelope(b"", key, encoded_properties(message)) if came is None else Envelope(came[0], key, came[1])


def envelope_to_send(message: Message, delivery_count: int) -> tuple[bytes, bytes]:
    """Exchange and properties of a message that did not come by AMQP, or that says how often it came."""
    envelope = envelope_of(message)
    if delivery_count:
        envelope.properties = with_header(envelope.properties, "x-delivery-count", Typed("l", delivery_count))
    return envelope.exchange, envelope.properties


def encoded_properties(message: Message) -> bytes:
    """The properties of a message that the embedding program published."""
    given: dict[str, bytes] = {}
    if message.headers:
        given["headers"] = encode_table(table_of(message))
    if message.priority:
        given["priority"] = bytes([message.priority])
    for name in ("correlation_id", "reply_to", "message_id"):
        value = getattr(message, name)
        if value is not None:
            given[name] = _short(value.encode())
    return join(given)


def table_of(message: Message) -> Table:
    """The headers of a message that the embedding program published, as AMQP has them. One whose name is too long for AMQP is
    left out: a consumer gets the rest, and the log says what it does not get."""
    found = {}
    for name, value in message.headers.items():
        if len(name.encode()) <= NAME_BYTES_MAX:
            found[name] = typed_value(value)
        elif name not in _said and len(_said) < SAID_MAX:
            _said.add(name)
            logger.warning("clients of AMQP do not get header %.40r... of messages: its name has %d bytes, allowed are %d",
                           name, len(name.encode()), NAME_BYTES_MAX)
    return found


def _short(text: bytes) -> bytes:
    text = _shortened(text)
    return bytes([len(text)]) + text


def _shortened(text: bytes) -> bytes:
    """As much of a text as AMQP can say, in whole characters."""
    return text if len(text) <= SHORT_BYTES_MAX else text[:SHORT_BYTES_MAX].decode(errors="ignore").encode()


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


# ---- for the embedding program

TEXTS = ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id",
         "app_id", "cluster_id")


def properties_of(message: Message) -> dict[str, Any]:
    """The AMQP properties of a message in the engine, by name, in Python's types; headers with lists and tables.

    `message.headers` has only those headers that Xump's own can be (a timestamp is its seconds). Timestamps are aware datetimes,
    decimals `Decimal`, and texts that are not UTF-8 have surrogates.

    Cost: that of the properties.
    """
    found: dict[str, Any] = {}
    for name, encoded in split(envelope_of(message).properties).items():
        if name == "headers":
            found[name] = {key: python_value(value) for key, value in decode_table(encoded[4:]).items()}
        elif name in TEXTS:
            found[name] = encoded[1:].decode(errors="surrogateescape")
        else:
            number = int.from_bytes(encoded, "big")
            found[name] = moment(number) if name == "timestamp" else number
    return found


def typed_value(value: object) -> Typed:
    """A value of Python as a value of a table. Raises TypeError for what has no type there."""
    if value is None:
        return Typed("V", None)
    if isinstance(value, bool):
        return Typed("t", value)
    if isinstance(value, int):
        if not -1 << 63 <= value < 1 << 63:
            raise ValueError(f"an int in a header has {value.bit_length()} bits, allowed are -2**63 to 2**63 - 1")
        return Typed("l", value)
    if isinstance(value, float):
        return Typed("d", value)
    if isinstance(value, str):
        return Typed("S", value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return Typed("x", value)
    if isinstance(value, datetime.datetime):
        if value.timestamp() < 0:
            raise ValueError(f"{value} in a header is before 1970, where AMQP's timestamps begin")
        return Typed("T", int(value.timestamp()))
    if isinstance(value, Mapping):
        return Typed("F", {name: typed_value(item) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return Typed("A", [typed_value(item) for item in value])
    raise TypeError(f"AMQP has no type for {type(value).__name__}: {value!r:.60}; allowed are None, bool, int, float, str, "
                    "bytes, datetime, dict and list")


def python_value(typed: Typed) -> Any:
    """A value of a table in Python's types."""
    kind, value = typed
    if kind == "F":
        return {name: python_value(item) for name, item in value.items()}
    if kind == "A":
        return [python_value(item) for item in value]
    if kind == "S":
        return value.decode(errors="surrogateescape")
    if kind == "T":
        return moment(value)
    if kind == "D":
        return decimal.Decimal(value[1]).scaleb(-value[0])
    return value


def moment(seconds: int) -> datetime.datetime | int:
    """A timestamp; the number itself if no datetime is that late."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return seconds


def message_of(address: str, body: bytes, properties: Mapping[str, Any], *, exchange: str = "") -> Message:
    """A message to publish in the engine that clients receive with these AMQP properties.

    Args:
        address: The routing key.
        body: The body.
        properties: By name: `content_type`, `content_encoding`, `headers` (with lists and dicts), `delivery_mode`, `priority`,
            `correlation_id`, `reply_to`, `expiration`, `message_id`, `timestamp`, `type`, `user_id`, `app_id`.
        exchange: The exchange that deliveries name.

    Raises:
        TypeError, ValueError: A property is unknown, or its value is none that AMQP has.

    Cost: that of the properties.

    >>> from xump.broker import message_of, properties_of
    >>> message = message_of("mail", b"...", {"content_type": "text/plain", "headers": {"to": ["ann", "bob"], "size": 3}})
    >>> properties_of(message)["headers"]["to"], message.headers["size"]
    (['ann', 'bob'], 3)
    """
    others = {"message_type" if name == "type" else name: value for name, value in properties.items() if name != "headers"}
    try:
        given = split(commands.Basic.Properties(**others).marshal())
    except struct.error:
        numbers = {name: value for name, value in others.items() if isinstance(value, int)}
        raise ValueError(f"a number does not fit in its property: {numbers}; a priority, for instance, is 0 to 255") from None
    if properties.get("headers") is not None:
        given["headers"] = encode_table({name: typed_value(value) for name, value in properties["headers"].items()})
    priority = properties.get("priority") or 0
    return Message(address, body, priority=priority, annex=annex(exchange.encode(), join(given)))
