"""A message on its way into a virtual host, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from xump.broker.exchanges import Exchange


@dataclass
class Incoming:
    """A message that is to be routed."""

    exchange: Exchange
    """Where it was published."""
    keys: tuple[str, ...]
    """The routing key, and those in CC and BCC."""
    annex: tuple[int, bytes]
    """What travels with its body."""
    properties: bytes
    """Property flags and list."""
    body: bytes
    """The body."""
    priority: int = 0
    """Its priority."""
    expiration_ms: int | None = None
    """After how many milliseconds it expires; None: never."""


@dataclass(slots=True)
class Outcome:
    """What became of a message."""

    queues: int = 0
    """How many queues it was for."""
    refused: bool = False
    """Whether a queue had no room for it."""
    full_store: bool = False
    """Whether a store had no room for it."""
    durable: bool = False
    """Whether it lies in a durable store."""
