"""Headers and properties as bytes in a column, with what JSON lacks: bytes, NaN and infinities, and floats that stay floats."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
import uuid
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from xump.sql.tables import SLOTS

KEY_CHARS_MAX = 200
"""An index of PostgreSQL takes 2,704 bytes."""
ERROR_CHARS_MAX = 2000
LANE_CHARS_MAX = 200
_BYTES, _FLOAT = "$b", "$f"
_decode = json.JSONDecoder().decode


def pack(values: Mapping[str, Any] | None) -> bytes | None:
    """Values by name: None, bool, int, float, str, bytes.

    Raises:
        TypeError: One is of another type.
    """
    if not values:
        return None
    return json.dumps({name: _plain(name, value) for name, value in values.items()}, ensure_ascii=True).encode()


def _plain(name: str, value: Any) -> Any:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header must be a str, got {name!r}")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {_BYTES: base64.b64encode(bytes(value)).decode()}
    if isinstance(value, float):
        return {_FLOAT: value.hex()}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"header {name!r} must be a bool, int, float, str or bytes, got {type(value).__name__}")


def unpack(column: bytes | None) -> dict[str, Any]:
    """The values that `pack` was given."""
    if column is None:
        return {}
    values: dict[str, Any] = _decode(str(column, "ascii"))
    for name, value in values.items():
        if isinstance(value, dict):
            values[name] = _value(value)
    return values


def unpack_many(columns: Iterable[bytes | None]) -> list[dict[str, Any]]:
    """The values of many rows, as `unpack` gives those of one: decoded at once, which costs an eighth.

    >>> unpack_many([b'{"size": 1}', None])
    [{'size': 1}, {}]
    """
    given = list(columns)
    joined = b",".join([column for column in given if column is not None])
    decoded: list[dict[str, Any]] = _decode("[" + str(joined, "ascii") + "]")
    if joined.count(b"{") > len(decoded):       # a value may be one of ours
        for values in decoded:
            for name, value in values.items():
                if isinstance(value, dict):
                    values[name] = _value(value)
    if len(decoded) == len(given):
        return decoded
    each = iter(decoded)
    return [{} if column is None else next(each) for column in given]


def _value(plain: dict[str, str]) -> Any:
    [(kind, given)] = plain.items()
    return base64.b64decode(given) if kind == _BYTES else float.fromhex(given)


def digest(*texts: str) -> bytes:
    """A key for what does not fit an index. Lengths come first, so that no two lists of texts look the same."""
    hashed = hashlib.sha256()
    for one in texts:
        encoded = one.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(8, "big"))
        hashed.update(encoded)
    return hashed.digest()


def key_column(key: object) -> str:
    """A key as a column has it: of a long one, which would not fit an index, the beginning and a digest.

    >>> key_column("customer 5"), len(key_column("x" * 10_000))
    ('customer 5', 164)

    Raises:
        TypeError, ValueError: A column cannot hold it.
    """
    text = text_column(key, "key")
    return text if len(text) <= KEY_CHARS_MAX else text[:KEY_CHARS_MAX // 2] + digest(text).hex()


def lane_column(lane: object) -> str:
    """The name of a lane.

    Raises:
        TypeError, ValueError: It is none.
    """
    text = text_column(lane, "lane")
    if not 1 <= len(text) <= LANE_CHARS_MAX:
        raise ValueError(f"lane must have 1 to {LANE_CHARS_MAX} characters, got {text[:50]!r}")
    return text


def slot_of(key: str | None) -> int:
    """The share of the outbox that a key is in; without a key, any."""
    if key is None:
        return os.urandom(1)[0] % SLOTS
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % SLOTS


def told(error: BaseException) -> str:
    """The text of an exception, whatever its class makes of it.

    >>> told(KeyError("a"))
    "'a'"
    """
    try:
        return str(error)
    except Exception as wrong:
        return f"(its text cannot be had: str() raises {type(wrong).__name__})"


def error_column(error: str) -> str:
    r"""An error as a column can hold it: without NUL, and without lone surrogates.

    >>> error_column("no file a\udcff")
    'no file a\\udcff'
    """
    return error.encode("utf-8", "backslashreplace").decode().replace("\0", "?")[:ERROR_CHARS_MAX]


def new_id() -> str:
    """A UUID of version 7: later ones sort behind."""
    moment = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (moment & (1 << 48) - 1) << 80 | 7 << 76 | (random >> 64 & 0xFFF) << 64 | 2 << 62 | random & (1 << 62) - 1
    return str(uuid.UUID(int=value))


def text_column(value: object, name: str) -> str:
    """A text that a column can hold.

    Raises:
        TypeError, ValueError: It is none, has a NUL, which PostgreSQL's text cannot hold, or is not UTF-8.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{name} must not contain NUL, got {value[:50]!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be valid Unicode, got {value[:50]!r}") from None
    return value
