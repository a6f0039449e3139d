"""Messages as JSON: one an object, many a line each (NDJSON). `POST` takes messages as `GET …/messages` gives them."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

import xump
from xump._header_json import decoded, encoded
from xump.broker.http.letters import properties_shown, way_of
from xump.broker.http.problems import Problem, asking

if TYPE_CHECKING:
    from xump_ext.message.message import Message

LINES = "application/x-ndjson"
"""The type of a body with a message a line."""

GIVEN = ("address", "body", "body_base64", "headers", "reply_to", "message_id", "correlation_id", "expires", "priority")
"""The names that a line may have."""

IGNORED = ("id", "state", "until", "timestamp", "hops", "delivery", "delivery_count", "way", "amqp")
"""Names in a message that was read: where it is published it gets these anew."""


BODIES_BYTES_MAX = 16 << 20
"""When the messages of an answer have so many bytes of bodies, it has no more of them."""


def shown(message: Message) -> dict[str, Any]:
    """A message as JSON has it: a body that is no text is in base64, as CloudEvents writes it; headers are as in
    `xump._header_json`. `way`: the queues in which it has died. `amqp`: the exchange that it was published to, and its
    properties, if it came by AMQP."""
    found: dict[str, Any] = {
        "id": message.id, "address": message.address,
        "headers": {name: encoded(value) for name, value in message.headers.items()}, "timestamp": message.timestamp,
        "hops": message.hops, "priority": message.priority,
    }
    for name in ("reply_to", "message_id", "correlation_id", "expires"):
        value = getattr(message, name)
        if value is not None:
            found[name] = value
    found |= {name: more for name, more in (("way", way_of(message)), ("amqp", properties_shown(message))) if more}
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode()
    return found


def read_headers(given: Any) -> Any:
    """Headers as JSON has them. Raises `Problem` 400; whatever else is wrong is left to `Message`."""
    if not isinstance(given, dict):
        return given
    found = {}
    for name, value in given.items():
        try:
            found[name] = decoded(value)
        except ValueError as error:
            raise Problem(400, f"header {name!r}: {error}") from None
    return found


def read_lines(body: bytes) -> list[Message]:
    """The messages of a body with one a line. Raises `Problem` 400, which says in which line what is wrong."""
    found = []
    for number, line in enumerate(body.splitlines(), 1):
        if line.strip():
            try:
                found.append(_read(line))
            except Problem as problem:
                raise Problem(problem.status, f"line {number}: {problem}") from None
    return found


def _read(line: bytes) -> Message:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Problem(400, f"expected a JSON object, got {type(given).__name__}")
    unknown = [name for name in given if name not in GIVEN + IGNORED]
    if unknown:
        raise Problem(400, f"no {unknown[0]!r} in a message; there are {', '.join(GIVEN)}")
    options = {name: given[name] for name in GIVEN[4:] if given.get(name) is not None}
    with asking():
        return xump.Message(given.get("address", ""), _body(given), read_headers(given.get("headers")), **options)


def _body(given: dict[str, Any]) -> bytes:
    encoded, text = given.get("body_base64"), given.get("body", "")
    if encoded is None:
        if not isinstance(text, str):
            raise Problem(400, f"body must be a text, got {type(text).__name__}: bytes go into body_base64")
        return text.encode()
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise Problem(400, f"body_base64 is not base64: {error}") from None
