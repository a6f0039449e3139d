"""Publishes what a decoder has read, straight from the receive buffer into an engine: one call for a run of messages."""

from collections.abc import Mapping
from typing import Self

from xump_ext.amqp.decoder import Decoder
from xump_ext.engine.handles import QueueHandle
from xump_ext.engine.publish import EnginePublish

class Inlet:
    """The way of plain messages into one engine.

    `special`: names of queues for which the broker routes itself.
    """

    special: set[str]
    def __new__(cls, engine: EnginePublish) -> Self: ...
    def plain_until(self, decoder: Decoder, at: int, end: int, exchanges: Mapping[bytes, QueueHandle | None]) -> int:
        """Where the plain messages end that begin at row `at`."""
    def rare_until(self, decoder: Decoder, at: int, end: int, exchanges: Mapping[bytes, QueueHandle | None]) -> int:
        """Where the rare messages end that begin at row `at`."""
    def publish(
        self, decoder: Decoder, at: int, end: int, exchanges: Mapping[bytes, QueueHandle | None]
    ) -> tuple[list[int], list[int], bool, bool] | None:
        """Publish plain messages: rows `at` to `end`.

        Returns:
            None if another thread is in a `building()` block: nothing was done. Else (places of those that were refused, places
            of those that went nowhere though they are mandatory, whether a store had no room, whether something is to be
            written to disk); places count from `at`.
        """
