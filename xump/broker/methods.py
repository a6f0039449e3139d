"""Methods that are rare, to and from bytes. Which fields a method has, pamqp knows; tables keep their types."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from pamqp import commands

from xump.broker.errors import ProtocolError
from xump.broker.tables import BadTable, Table, decode_table, encode_table

NUMBERS = {"octet": struct.Struct(">B"), "short": struct.Struct(">H"), "long": struct.Struct(">I"),
           "longlong": struct.Struct(">Q"), "timestamp": struct.Struct(">Q")}

Kind = Any
"""A method as pamqp describes it."""

Call = SimpleNamespace
"""The arguments of a method by name; `kind` is the method."""


class UnknownMethod(Exception):
    """A method that does not exist."""


def decode(payload: bytes) -> Call:
    """Read a method frame. Raises `UnknownMethod`, or `ProtocolError` 501 for arguments that are wrong."""
    number = int.from_bytes(payload[:4], "big")
    kind: Any = commands.INDEX_MAPPING.get(number)
    if kind is None:
        raise UnknownMethod(f"there is no method {number & 0xFFFF} in class {number >> 16}")
    try:
        call = _fields(kind, payload)
    except (struct.error, IndexError, BadTable):
        fields = ",".join(map(str, payload[4:]))
        raise ProtocolError(501, f"cannot decode <<{fields}>>", number) from None
    except UnicodeDecodeError:
        raise ProtocolError(502, f"a name in {kind.name} is not UTF-8", number) from None
    call.kind = kind
    return call


def _fields(kind: Kind, payload: bytes) -> Call:
    call = Call()
    at, bit = 4, 8
    for field in kind.attributes():
        form = kind.amqp_type(field)
        if form == "bit":
            if bit == 8:
                octet, bit = payload[at], 0
                at += 1
            setattr(call, field, bool(octet >> bit & 1))
            bit += 1
            continue
        bit = 8
        value, at = _read(form, payload, at)
        setattr(call, field, value)
    if at != len(payload):
        raise BadTable("there are more bytes than fields")
    return call


def _read(form: str, payload: bytes, at: int) -> tuple[Any, int]:
    if form in NUMBERS:
        return NUMBERS[form].unpack_from(payload, at)[0], at + NUMBERS[form].size
    if form == "shortstr":
        size, at = payload[at], at + 1
    else:
        size, at = NUMBERS["long"].unpack_from(payload, at)[0], at + 4
    if at + size > len(payload):
        raise BadTable("a field is longer than its method")
    octets = payload[at:at + size]
    value = octets.decode() if form == "shortstr" else decode_table(octets) if form == "table" else octets
    return value, at + size


def encode(kind: Kind, **fields: int | str | bytes | Table) -> bytes:
    """The payload of a method frame. Fields that are not given are 0 or empty."""
    parts = [struct.pack(">I", kind.index)]
    bits, bit = 0, 0
    for field in kind.attributes():
        form = kind.amqp_type(field)
        value: Any = fields.get(field, 0)
        if form == "bit":
            bits |= bool(value) << bit
            bit += 1
            continue
        parts += _bits(bits, bit)
        bits = bit = 0
        if form in NUMBERS:
            parts.append(NUMBERS[form].pack(value))
        elif form == "table":
            parts.append(encode_table(value or {}))
        else:
            octets = value.encode() if isinstance(value, str) else value or b""
            parts += [NUMBERS["octet" if form == "shortstr" else "long"].pack(len(octets)), octets]
    return b"".join(parts + _bits(bits, bit))


def _bits(bits: int, count: int) -> list[bytes]:
    return [bytes([bits])] if count else []
