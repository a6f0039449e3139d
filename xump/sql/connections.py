"""The end of a connection of pika's."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def end(connection: Any) -> None:
    """Close a `BlockingConnection` that is given up, whatever state it is in. Raises nothing."""
    from pika.exceptions import AMQPError

    with suppress(AMQPError, OSError):
        if connection.is_open:
            connection.close()
    # Where a call finds that the broker has begun to close, pika leaves the sockets of its loop open.
    connection._cleanup()
