"""The store in the process: queues whose messages live in the core alone. Nothing survives."""

from __future__ import annotations


class RamStore:
    """Takes no options; a name is all it is."""

    type = "ram"
    durable = False

    def __init__(self, name: str) -> None:
        self.name = name

    def close(self) -> None:
        """There is nothing to make durable."""
