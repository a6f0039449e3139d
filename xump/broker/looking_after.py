"""Looks after connections: sends heartbeats, ends those that say, read or answer nothing, and knows what changed users may do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from xump.broker.errors import ProtocolError, precondition

if TYPE_CHECKING:
    from xump.broker.connection import Connection

logger = logging.getLogger("xump")

IDLE_SECONDS = 2.0
"""After so long without a read or a write the buffers of a connection go."""


def look_after(connection: Connection, now: float) -> None:
    """Send a heartbeat if it is time; end the connection if nothing came for two intervals, or if it does not read. Give
    back what a burst has left, if nothing happens any more."""
    if connection.state not in ("running", "closing"):
        return
    if connection.paused and now - connection.stalled_since > connection.limits.stalled_seconds:
        seconds = connection.limits.stalled_seconds
        logger.warning("connection %s is closed: the client has read nothing for %.0f s", connection.peer, seconds)
        connection.abort()
        return
    connection.bodies.look(now)
    if now - max(connection.received, connection.sent) > IDLE_SECONDS:
        connection.decoder.trim()
        connection.output.trim()
    if not connection.heartbeat:
        return
    if now - connection.sent >= connection.heartbeat / 2:
        connection.output.heartbeat()
        connection.flush()
    if not connection.held and now - connection.received > 2 * connection.heartbeat:
        logger.warning("connection %s is closed: missed heartbeats, timeout %d s", connection.peer, connection.heartbeat)
        connection.abort()


def look_for_late(connection: Connection, now: float) -> None:
    """Close channels on which a delivery was not answered in time."""
    span = connection.limits.consumer_timeout
    for channel in list(connection.channels.values()) if span is not None else ():
        sent = channel.unacked.oldest()
        if sent is not None and span is not None and now - sent > span:
            connection.close_channel(channel.number, precondition(
                f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: "
                f"{round(span * 1000)} ms. This timeout value can be configured, see consumers doc guide to learn more"))


def look_up_user(connection: Connection) -> None:
    """The users have changed: it has what the user may do now; one who has gone is disconnected, as by RabbitMQ."""
    if not hasattr(connection, "user"):
        return
    user = connection.broker.users.get(connection.user.name)
    if user is None:
        connection.fail(ProtocolError(320, f"user '{connection.user.name}' was deleted", 0))
    else:
        connection.user = user
