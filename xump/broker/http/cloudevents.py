"""Events in the CloudEvents format (version 1.0) as messages, and messages as events.

An event has attributes and data. The data is the body of the message. An attribute is a header `cloudEvents_NAME`, as their own
binding for AMQP names it, so `where("cloudEvents_type = 'order.new'")` works. All attributes are texts.

An event comes in one of three modes: *binary* (attributes as HTTP headers `ce-NAME`), *structured* (the event as a JSON object),
*batched* (a JSON array of them). Source and id together name an event; they become the `message_id`, so a queue with `dedup` lets
in each event once. The type becomes the address, unless the request gives one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from xump.broker.http.problems import Problem
from xump.types import HeaderValue

PREFIX = "cloudEvents_"
"""Begins the header of an attribute."""

CONTENT_TYPE = "content-type"
"""The header that says of what type the body is."""

REQUIRED = ("specversion", "id", "source", "type")
NAME = re.compile("[a-z0-9]+")
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Names that a header of HTTP may have (RFC 9110, section 5.6.2)."""

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"

Event = tuple[str, bytes, dict[str, HeaderValue], str]
"""Address, body, headers and message_id of the message that an event becomes."""


def mode_of(headers: Mapping[str, str]) -> str | None:
    """`"binary"`, `"structured"`, `"batched"`, or None: the request has no event."""
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind.startswith("application/cloudevents-batch"):
        return "batched"
    if kind.startswith("application/cloudevents"):
        return "structured"
    return "binary" if "ce-specversion" in headers else None


def events_in(mode: str, headers: Mapping[str, str], body: bytes) -> list[Event]:
    """The events of a request. Raises `Problem` 400 or 415."""
    if mode == "binary":
        attributes = {name[3:].lower(): unquote(value) for name, value in headers.items() if name.lower().startswith("ce-")}
        return [_event(attributes, body, headers.get("Content-Type"))]
    kind = headers["Content-Type"].partition(";")[0].strip().lower()
    if kind not in (STRUCTURED, BATCH):
        raise Problem(415, f"events are read as {STRUCTURED} and {BATCH}, got {kind}")
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the event is not JSON: {error}") from None
    if mode == "structured":
        return [_structured(given)]
    if not isinstance(given, list):
        raise Problem(400, f"a batch of events is a JSON array, got {type(given).__name__}")
    return [_structured(event) for event in given]


def _structured(given: object) -> Event:
    if not isinstance(given, dict):
        raise Problem(400, f"an event is a JSON object, got {type(given).__name__}")
    rest = dict(given)
    kind = rest.pop("datacontenttype", None)
    if kind is not None and not isinstance(kind, str):
        raise Problem(400, f"datacontenttype must be a text, got {kind!r}")
    if "data" in rest and "data_base64" in rest:
        raise Problem(400, "an event has `data` or `data_base64`, not both")
    attributes = {name: _text(name, value) for name, value in rest.items()
                  if name not in ("data", "data_base64") and value is not None}
    if "data_base64" in rest:
        return _event(attributes, _decoded(rest["data_base64"]), kind)
    if "data" not in rest:
        return _event(attributes, b"", kind)
    if isinstance(rest["data"], str) and kind is not None and not _is_json(kind):
        try:
            return _event(attributes, rest["data"].encode(), kind)
        except UnicodeEncodeError as error:
            raise Problem(400, f"data is a text that is not Unicode: {error}") from None
    return _event(attributes, json.dumps(rest["data"], separators=(",", ":")).encode(), kind or "application/json")


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except ValueError:
        raise Problem(400, "data_base64 must be a text in base64") from None


def _is_json(kind: str) -> bool:
    kind = kind.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise Problem(400, f"the attribute {name!r} must be a text, a whole number or a boolean, got {value!r}")


def _event(attributes: dict[str, str], body: bytes, kind: str | None) -> Event:
    for name in REQUIRED:
        if not attributes.get(name):
            raise Problem(400, f"an event needs {', '.join(REQUIRED)}; {name!r} is missing")
    if not attributes["specversion"].startswith("1."):
        raise Problem(400, f"events of specversion 1.0 are understood, got {attributes['specversion']!r}")
    for name in attributes:
        if not NAME.fullmatch(name):
            raise Problem(400, f"an attribute's name has the characters a to z and 0 to 9 only, got {name!r}")
    headers: dict[str, HeaderValue] = {PREFIX + name: value for name, value in attributes.items()}
    if kind is not None:
        headers[CONTENT_TYPE] = kind
    return attributes["type"], body, headers, f"{quote(attributes['source'], safe=OF_SOURCES)}#{attributes['id']}"


def is_attribute(name: str, value: object) -> bool:
    """Whether a message's header is an attribute of an event that may be a header of HTTP, too. Not all names and values may."""
    return name.startswith(PREFIX) and TOKEN.fullmatch(name) is not None and isinstance(value, str | int)


def http_headers(headers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The HTTP headers of an event in binary mode, from the headers of its message; none, if it is no event."""
    for name, value in headers.items():
        if is_attribute(name, value):
            yield "ce-" + name.removeprefix(PREFIX), quote(_text(name, value), safe=SAFE)


OF_SOURCES = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%#")
"""These stand in the source of a message's id as they are. The number sign comes once, before the event's own id."""

SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '%"')
"""These stand in a header as they are: printable ASCII without space, the double quote and the percent sign (section 3.1.3.2)."""
