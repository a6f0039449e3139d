"""Dead letters: what a message says of its deaths, and where it goes on.

The header `x-death` is a list, newest first, with an entry for each queue and reason: how often (`count`), when first (`time`),
and how the message had come there (`exchange`, `routing-keys`).
"""

from __future__ import annotations

import time

from xump.broker.envelope import annex, join, split
from xump.broker.exchanges import Exchange
from xump.broker.incoming import Incoming
from xump.broker.tables import Table, Typed, decode_table, encode_table, text

DEAD_LETTERS = "amq.dead-letters"
"""The engine's queue of dead letters, which are sent on from there."""

REASONS = {"rejected": "rejected", "expired": "expired", "overflow": "maxlen", "delivery-limit": "delivery_limit",
           "maxlen": "maxlen"}
"""What RabbitMQ calls the reasons of the engine."""


def dead_letter(
    exchange: Exchange, queue: str, new_key: str | None, reason: str, key: str, travelled: bytes, body: bytes
) -> Incoming:
    """What a message that died in this queue is for the exchange that it goes on to."""
    reason = REASONS.get(reason, reason)
    size = travelled[0] + 1
    given = split(travelled[size:])
    headers = decode_table(given["headers"][4:]) if "headers" in given else {}
    keys = (key, *copies(headers))
    record_death(headers, queue, reason, travelled[1:size], keys, given.pop("expiration", None))
    if new_key is not None:
        headers.pop("CC", None)
        keys = (new_key,)
    given["headers"] = encode_table(headers)
    properties = join(given)
    return Incoming(
        exchange, keys, annex(exchange.name.encode(), properties), properties, body,
        priority=given["priority"][0] if "priority" in given else 0, barred=barred(headers, reason))


def copies(headers: Table) -> tuple[str, ...]:
    """The further routing keys in CC and BCC."""
    found = []
    for name in ("CC", "BCC"):
        typed = headers.get(name)
        if typed is not None and typed.kind == "A":
            found += [item.value.decode() for item in typed.value if item.kind == "S"]
    return tuple(found)


def record_death(
    headers: Table, queue: str, reason: str, exchange: bytes, keys: tuple[str, ...], expiration: bytes | None
) -> None:
    """Put this death in front of the others."""
    before = headers.get("x-death")
    deaths = list(before.value) if before is not None and before.kind == "A" else []
    deaths = [death for death in deaths if death.kind == "F"]
    same = next((death for death in deaths if _field(death, "queue") == queue and _field(death, "reason") == reason), None)
    if same is not None:
        deaths.remove(same)
        count = same.value.get("count", Typed("l", 0))
        entry = {**same.value, "count": Typed("l", count.value + 1)}
    else:
        entry = {
            "count": Typed("l", 1), "reason": text(reason), "queue": text(queue), "time": Typed("T", int(time.time())),
            "exchange": Typed("S", exchange), "routing-keys": Typed("A", [text(key) for key in keys]),
        }
        if expiration is not None:
            entry["original-expiration"] = Typed("S", expiration[1:])
    headers["x-death"] = Typed("A", [Typed("F", entry), *deaths])
    if "x-first-death-reason" not in headers:
        headers["x-first-death-reason"] = text(reason)
        headers["x-first-death-queue"] = text(queue)
        headers["x-first-death-exchange"] = Typed("S", exchange)


def _field(death: Typed, name: str) -> str:
    typed = death.value.get(name)
    return typed.value.decode(errors="replace") if typed is not None and isinstance(typed.value, bytes) else ""


def barred(headers: Table, reason: str) -> frozenset[str]:
    """The queues that a message must not enter again: those where it died since it was last rejected. Whoever rejects a message
    may send it round for ever; a message that goes round by itself is dropped."""
    if reason == "rejected":
        return frozenset()
    names = []
    for death in headers["x-death"].value:
        if _field(death, "reason") == "rejected":
            break
        names.append(_field(death, "queue"))
    return frozenset(names)
