"""How much a client may ask for: every bound in one place, with the code that says no."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """The bounds of a broker."""

    frame_max: int = 131_072
    """Bytes of a frame, agreed on at the beginning; a longer one: 501."""
    channel_max: int = 2_047
    """Channels of a connection; one more: 530."""
    heartbeat: int = 60
    """Seconds, proposed to clients."""
    connections_max: int = 65_536
    """Connections; one more is closed before it says anything."""
    body_bytes_max: int = 64 << 20
    """Bytes of a body: 406."""
    bytes_in_flight_max: int = 256 << 20
    """Bytes of the bodies and headers that a connection is sending at the same time: 506."""
    transaction_bytes_max: int = 64 << 20
    """Bytes that a channel has published, and acknowledged, in a transaction that is not committed; more: 406. All transactions
    together may have a quarter of `memory_bytes`."""
    memory_bytes: int | None = None
    """Bytes that messages take in memory; while there are more, a client that publishes is not read (`connection.blocked`), and
    HTTP and Flight let nothing in. None: two fifths of the machine's memory, or of the control group's."""
    consumer_timeout: float | None = 1800.0
    """After how many seconds without an answer to a delivery its channel is closed, with 406; None: never. Looked at once a
    minute."""
    unacked_max: int = 1 << 20
    """Unacknowledged messages of a consumer; it is sent no more until some are settled."""
    handshake_seconds: float = 10.0
    """Until the client is logged in; and at its end, until it has read and answered what is left."""
    output_bytes_max: int = 1 << 20
    """Beyond so many bytes that a client does not read, nothing more is read from it."""
    stalled_seconds: float = 15.0
    """A client that reads nothing for so long, while there is something to read, is disconnected."""
    flight_calls_max: int = 256
    """Calls over Flight that are open at once, each in a thread; one more is refused."""
    flight_connections_max: int = 1024
    """Connections over Flight; if there are more, those without a call end. One that makes no call of a known user for
    `handshake_seconds` ends, too."""
    flight_idle_seconds: float = 3600.0
    """A client that says nothing in an open stream over Flight, or reads nothing of one, or makes no call for so long is
    disconnected."""
    batch_rows_max: int = 1_000_000
    """Rows of a batch over Flight; a longer one is refused. Others wait while a batch enters: so many take about 0.2 seconds."""
    batch_bytes_max: int = 1 << 30
    """Bytes that the rows of a batch take as messages; a larger one is refused."""
    staging_bytes: int = 16 << 30
    """Bytes of messages that are staged over Flight and have not entered; more: `StoreFull`."""
    staging_seconds: float = 86_400.0
    """After so long without a sign of life what a run has staged is dropped."""

    def __post_init__(self) -> None:
        """Raises ValueError for a bound that none of these can be: one below 0, or not a number; and no memory at all."""
        for field in fields(self):
            value, least = getattr(self, field.name), int(field.name == "memory_bytes")
            if value is not None and not value >= least:
                raise ValueError(f"{field.name} must be at least {least}, got {value}")
