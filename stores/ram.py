"""The store `ram`: queues whose messages live in the core alone. Nothing survives the process."""

from __future__ import annotations


class RamStore:
    """A name; takes no options."""

    type = "ram"
    durable = False

    def __init__(self, name: str) -> None:
        self.name = name

    def close(self) -> None:
        """Does nothing: a store in memory has nothing to make durable."""
