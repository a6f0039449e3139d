"""A message on its way into a virtual host, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from xump.broker.exchanges import Exchange


@dataclass
class Incoming:
    """A message that is to be routed."""

    exchange: Exchange
    keys: tuple[str, ...]
    """The routing key, and those in CC and BCC."""
    annex: bytes
    properties: bytes
    body: bytes
    priority: int = 0
    expiration_ms: int | None = None
    barred: frozenset[str] = frozenset()
    """Queues that it must not enter: where it would go round for ever."""


@dataclass(slots=True)
class Outcome:
    """What became of a message."""

    queues: int = 0
    refused: bool = False
    full_store: bool = False
    durable: bool = False
