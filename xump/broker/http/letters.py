"""Dead letters: which way they came, and the messages that they were before.

The engine adds headers to a dead letter, `xump_bounced_from` and others. Those of AMQP queues have `x-death` instead, an array of
tables, the last death first. Headers of AMQP may be lists and tables, which `Message.headers` leaves out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from xump._header_json import encoded
from xump.broker.envelope import annex, headers_of, join, properties_of, python_value, split, unpacked
from xump.broker.tables import encode_table

if TYPE_CHECKING:
    from xump_ext.message.message import Message

BOUNCED = ("xump_bounced_from", "xump_reason", "xump_detail", "xump_original_address")
"""Headers that the engine adds to a dead letter."""

DEATHS = "x-death"
DIED = (DEATHS, "x-first-death-reason", "x-first-death-queue", "x-first-death-exchange")
"""Those that dead letters of AMQP queues have."""


def way_of(message: Message) -> list[dict[str, Any]]:
    """The queues in which a message has died, in order: name, reason, and how often."""
    bounced = message.headers.get("xump_bounced_from")
    earlier = [{"queue": one.get("queue"), "reason": one.get("reason"), "count": one.get("count", 1)}
               for one in reversed(_deaths(message))]
    if not isinstance(bounced, str):
        return earlier
    return [*earlier, {"queue": bounced, "reason": message.headers.get("xump_reason"), "count": 1}]


def came_from(letter: Message) -> str | None:
    """The queue that a dead letter came from; None: it does not say."""
    way = way_of(letter)
    found = way[-1]["queue"] if way else None
    return found if isinstance(found, str) else None


def as_before(letter: Message) -> Message:
    """The message that became this dead letter, without the time at which it expired, if it did: else it would again."""
    if "xump_bounced_from" in letter.headers:
        headers = {name: value for name, value in letter.headers.items() if name not in BOUNCED}
        address = letter.headers.get("xump_original_address", letter.address)
        # As it bounced, its `reply_to` became the address (rule 11).
        reply_to = letter.address if letter.address not in ("", address) else None
        return letter.replace(address=address, reply_to=reply_to, headers=headers)
    deaths = _deaths(letter)
    return _before_death(letter, deaths[0]) if deaths else letter


def _deaths(message: Message) -> list[Mapping[str, Any]]:
    """The tables in `x-death`. It is a header that clients may write, too."""
    came = unpacked(message)
    typed = None if came is None else headers_of(came[1]).get(DEATHS)
    found = None if typed is None else python_value(typed)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _before_death(letter: Message, death: Mapping[str, Any]) -> Message:
    """As `as_before`, for one of an AMQP queue: exchange, routing keys and headers are those of before."""
    came = unpacked(letter)
    assert came is not None
    given = split(came[1])
    headers = {name: value for name, value in headers_of(came[1]).items() if name not in DIED}
    given["headers"] = encode_table(headers)
    if not headers:
        del given["headers"]
    keys, exchange = death.get("routing-keys"), death.get("exchange")
    address = keys[0] if isinstance(keys, list) and keys and isinstance(keys[0], str) else letter.address
    return letter.replace(
        address=address, annex=annex(exchange.encode() if isinstance(exchange, str) else came[0], join(given)))


def properties_shown(message: Message) -> dict[str, Any] | None:
    """The envelope of a message that came by AMQP: exchange and properties, as JSON; None: it came otherwise."""
    came = unpacked(message)
    if came is None:
        return None
    return {"exchange": came[0].decode(errors="replace"), **plain(properties_of(message))}


def plain(value: Any) -> Any:
    """A value of a table, as JSON has it."""
    if isinstance(value, Mapping):
        return {plain(name): plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="replace")
    return str(value) if isinstance(value, datetime | Decimal) else encoded(value)
