"""The answers of a broker that the command line reads: their shapes, and whether an answer has its shape.

A URL may be that of another server. So an answer is looked at once, where it comes in, as far down as commands read it.

A shape is a type, or several; a dict of the names that must be there, or may (`?`), with their shapes; a list of the shape that
each item has; or a function that says whether a value is right.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from xump._header_json import decoded

NUMBER = (int, float)
TEXT_OR_NONE = (str, type(None))
NUMBER_OR_NONE = (int, type(None))


def _is_base64(value: object) -> bool:
    return isinstance(value, str) and _can(lambda: base64.b64decode(value, validate=True))


def _are_headers(value: object) -> bool:
    return isinstance(value, dict) and _can(lambda: list(map(decoded, value.values())))


def _can(read: Callable[[], object]) -> bool:
    """Whether it raises no ValueError."""
    try:
        read()
    except ValueError:
        return False
    return True


MESSAGE = {
    "id": int, "address": str, "headers": _are_headers, "timestamp": int, "hops": int, "priority": int, "reply_to?": TEXT_OR_NONE,
    "message_id?": TEXT_OR_NONE, "correlation_id?": TEXT_OR_NONE, "expires?": NUMBER_OR_NONE, "body?": str,
    "body_base64?": _is_base64,
}
MESSAGES = [{**MESSAGE, "state": str, "until": NUMBER_OR_NONE}]
TAKEN = [{**MESSAGE, "delivery": str, "delivery_count": int}]
PUBLISHED = {"ids": [object]}
REQUEUED = {"requeued": int}
TOPOLOGY = {"version": int}
OVERVIEW = {
    "now": int, "connections": [object],
    "queues": [{
        "name": str, "ready": int, "delayed": int, "outstanding": int, "history": int, "oldest": NUMBER_OR_NONE,
        "rates": lambda rates: fits(rates, [NUMBER]) and len(rates) == 2}],
    "selectors": [{"id": int, "name": TEXT_OR_NONE, "source": str, "do": str, "why": TEXT_OR_NONE}],
}


def fits(value: object, shape: Any) -> bool:
    """Whether an answer has a shape.

    >>> fits({"ids": [1, 2]}, PUBLISHED), fits({}, PUBLISHED), fits([3], MESSAGES)
    (True, False, False)
    """
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            fits(value[name.removesuffix("?")], part) if name.removesuffix("?") in value else name.endswith("?")
            for name, part in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(item, shape[0]) for item in value)
    if isinstance(shape, (type, tuple)):
        return isinstance(value, shape)
    return bool(shape(value))
