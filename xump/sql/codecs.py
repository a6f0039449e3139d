"""Arguments of a task as bytes, and back: JSON, or an object of yours with `name`, `dumps` and `loads`."""

from __future__ import annotations

import json
from typing import Any, Protocol


class Codec(Protocol):
    """Arguments to bytes, and back."""

    name: str
    """Written beside the bytes; a worker refuses those of another codec."""

    def dumps(self, value: Any) -> bytes:
        """To bytes."""

    def loads(self, content: bytes) -> Any:
        """And back."""


class JsonCodec:
    """JSON, in UTF-8."""

    name = "json"
    """Written beside the bytes."""

    def dumps(self, value: Any) -> bytes:
        """To bytes.

        Raises:
            TypeError: JSON has no such value.
        """
        try:
            return json.dumps(value, separators=(",", ":")).encode()
        except TypeError as error:
            raise TypeError(f"arguments of tasks must be values of JSON, or give Tasks a codec of your own: {error}") from error

    def loads(self, content: bytes) -> Any:
        """And back."""
        return json.loads(content)


def codec_of(given: Any) -> Codec:
    """A codec from its name, or itself.

    Raises:
        ValueError: There is no codec of this name.
    """
    if given == "json":
        return JsonCodec()
    if all(hasattr(given, name) for name in ("name", "dumps", "loads")):
        return given        # type: ignore[no-any-return]
    raise ValueError(f'codec must be "json", or an object with name, dumps and loads, got {given!r}')


def call_of(payload: Any) -> list[Any]:
    """How a task is called with a payload: a list or tuple are its arguments, a dict is those with names, all else is the one."""
    if isinstance(payload, (list, tuple)):
        return [list(payload), {}]
    if isinstance(payload, dict):
        return [[], payload]
    return [[payload], {}] if payload is not None else [[], {}]
