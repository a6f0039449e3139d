"""Bodies that a client has begun to send: they count as memory, as messages do (decision 230)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xump.broker.limits import Limits
    from xump.broker.memory import Memory
    from xump_ext.amqp.decoder import Decoder


class Bodies:
    """Those of one client."""

    def __init__(self, decoder: Decoder, limits: Limits, memory: Memory) -> None:
        self._decoder = decoder
        self._limits = limits
        self._memory = memory
        self.counted = 0
        """So many bytes of them count as memory."""
        self._come = 0                  # so many had memory when they were looked at …
        self._grew = 0.0                # … and since when they have not grown

    @property
    def are_there(self) -> bool:
        """Whether some have begun, or count."""
        return bool(self._decoder.bytes_promised or self.counted)

    def count(self, most: int | None = None) -> None:
        """Count them as large as their headers say, as far as the client may have them at the same time, and up to so much."""
        count = min(self._decoder.bytes_promised, self._limits.bytes_in_flight_max)
        self._set(count if most is None else min(count, most))

    def look(self, now: float) -> None:
        """Those that do not grow count with the memory that they take, not with what their headers say."""
        come = self._decoder.bytes_in_flight
        if come != self._come:
            self._come, self._grew = come, now
        elif self.counted > come and now - self._grew > self._limits.stalled_seconds:
            self._set(come)

    def _set(self, count: int) -> None:
        self._memory.promised += count - self.counted
        self.counted = count
