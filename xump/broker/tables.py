"""Tables of AMQP with their types kept: 5 as a short, as an int and as a long are three values, and texts of errors say which.

The arguments of declarations are such tables, and the headers of messages.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

NAME_BYTES_MAX = 255
"""Bytes of the name of a field."""
LEVELS_MAX = 100
"""How deep tables may nest; the codec has the same limit."""


class Typed(NamedTuple):
    """A value, and the letter of its type."""

    kind: str
    """The letter."""
    value: Any
    """The value: a number, bytes, None, a table or a list of such pairs."""


Table = dict[str, Typed]

TYPE_NAMES = {
    "S": "longstr", "I": "signedint", "l": "long", "L": "long", "t": "bool", "T": "timestamp", "d": "double", "f": "float",
    "D": "decimal", "F": "table", "A": "array", "b": "byte", "B": "unsignedbyte", "s": "short", "u": "unsignedshort",
    "i": "unsignedint", "V": "void", "x": "binary",
}
"""RabbitMQ's names of the types in its texts."""

INTEGERS = "IlLbBsui"
"""The types of whole numbers."""

FIXED = {
    "I": struct.Struct(">i"), "l": struct.Struct(">q"), "L": struct.Struct(">q"), "T": struct.Struct(">Q"),
    "d": struct.Struct(">d"), "f": struct.Struct(">f"), "b": struct.Struct(">b"), "B": struct.Struct(">B"),
    "s": struct.Struct(">h"), "u": struct.Struct(">H"), "i": struct.Struct(">I"), "D": struct.Struct(">BI"),
    "t": struct.Struct(">B"),
}
LENGTH = struct.Struct(">I")


class BadTable(ValueError):
    """Bytes that are no table."""


def decode_table(data: bytes, level: int = 0) -> Table:
    """Read the fields of a table, without the length before it. `level`: how deep it counts as; -1: one more than usual may nest
    in it. Raises BadTable."""
    try:
        return _table(data, 0, len(data), level)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadTable(str(error)) from None


def _table(data: bytes, at: int, end: int, level: int) -> Table:
    if level == LEVELS_MAX:
        raise BadTable(f"tables may nest {LEVELS_MAX} deep")
    fields: Table = {}
    while at < end:
        size = data[at]
        name = data[at + 1:at + 1 + size].decode("utf-8", "surrogateescape")
        fields[name], at = _value(data, at + 1 + size, end, level)
    if at != end:
        raise BadTable("a field is longer than its table")
    return fields


def _value(data: bytes, at: int, end: int, level: int) -> tuple[Typed, int]:
    kind = chr(data[at])
    at += 1
    if kind in FIXED:
        form = FIXED[kind]
        read = form.unpack_from(data, at)
        at += form.size
        return Typed(kind, read if kind == "D" else bool(read[0]) if kind == "t" else read[0]), at
    if kind == "V":
        return Typed(kind, None), at
    if kind not in "SxFA":
        raise BadTable(f"there is no type {kind!r}")
    size = LENGTH.unpack_from(data, at)[0]
    at += 4
    stop = at + size
    if stop > end:
        raise BadTable("a value is longer than its table")
    if kind == "F":
        return Typed(kind, _table(data, at, stop, level + 1)), stop
    if kind == "A":
        return Typed(kind, _array(data, at, stop, level + 1)), stop
    return Typed(kind, data[at:stop]), stop


def _array(data: bytes, at: int, end: int, level: int) -> list[Typed]:
    if level == LEVELS_MAX:
        raise BadTable(f"tables may nest {LEVELS_MAX} deep")
    items = []
    while at < end:
        item, at = _value(data, at, end, level)
        items.append(item)
    if at != end:
        raise BadTable("an item is longer than its array")
    return items


def encode_table(table: Table) -> bytes:
    """The fields of a table, with the length before them. Raises ValueError if a name is too long."""
    return _sized(b"".join(_field(name, value) for name, value in table.items()))


def _sized(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def _field(name: str, value: Typed) -> bytes:
    text = name.encode("utf-8", "surrogateescape")
    if len(text) > NAME_BYTES_MAX:
        raise ValueError(
            f"{name:.40}... is no name of a header or argument: it has {len(text)} bytes, allowed are {NAME_BYTES_MAX}")
    return bytes([len(text)]) + text + _encoded(value)


def _encoded(typed: Typed) -> bytes:
    kind, value = typed
    letter = kind.encode()
    if kind in FIXED:
        return letter + (FIXED[kind].pack(*value) if kind == "D" else FIXED[kind].pack(value))
    if kind == "V":
        return letter
    if kind == "F":
        return letter + encode_table(value)
    if kind == "A":
        return letter + _sized(b"".join(_encoded(item) for item in value))
    return letter + _sized(value)


def text(value: str) -> Typed:
    """A text as a value."""
    return Typed("S", value.encode("utf-8", "surrogateescape"))


def plain(typed: Typed) -> str:
    """A value as RabbitMQ's texts show it, without its type."""
    value = typed.value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def shown(typed: Typed | None) -> str:
    """A value as RabbitMQ's texts show it."""
    return "none" if typed is None else f"the value '{plain(typed)}' of type '{TYPE_NAMES[typed.kind]}'"


