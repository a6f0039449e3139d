"""The clients that are connected, and their windows: how many messages each consumer may have unanswered, and how many it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from xump.broker.tables import plain

if TYPE_CHECKING:
    from xump.broker.channel import Channel
    from xump.broker.connection import Connection
    from xump.broker.http.call import Call

WHY = {
    "output": "the client does not read what it is sent",
    "stores": "a store makes room for what the client has published",
    "memory": "messages take too much memory, so nothing is read from a client that publishes",
    "busy": "a method of the client waits for a store",
    "ending": "the broker ends",
}
"""Why nothing is read from a connection, in words."""

FLIGHT, HTTP = "Arrow Flight", "HTTP"
"""Names for the clients of the other protocols, which do not say what they are."""


def connections(call: Call, all_of_them: bool) -> Iterator[dict[str, Any]]:
    """The clients in a virtual host; unless it is `all_of_them`, those that are the same user's."""
    name = call.user.name
    for connection in list(call.broker.connections):
        if getattr(connection, "vhost", None) is call.vhost and (
                all_of_them or (connection.user is not None and connection.user.name == name)):
            yield _of_amqp(connection)
    for found in (*_of_flight(call), *_of_http(call)):
        if all_of_them or found["user"] == name:
            yield found


def _of_amqp(connection: Connection) -> dict[str, Any]:
    peer = connection.transport.get_extra_info("peername")
    product = connection.client.get("product")
    channels = list(connection.channels.values())
    return {
        "client": "" if product is None else plain(product),
        "user": None if connection.user is None else connection.user.name,
        "peer": f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer),
        "channels": len(channels),
        "unconfirmed": sum(channel.unconfirmed for channel in channels),
        "windows": [window for channel in channels for window in _windows(channel)],
        "waits": [WHY[why] for why in sorted(connection.held)],
    }


def _windows(channel: Channel) -> Iterator[dict[str, Any]]:
    """Of its consumers; that which they share; and what was taken by basic.get."""
    left = channel.unacked.count
    for consumer in channel.consumers.values():
        if consumer.selector is not None:
            outstanding = consumer.selector.outstanding
            left -= outstanding
            yield _window(consumer.queue.name, outstanding, consumer.prefetch or None, channel.number, consumer.tag)
    if channel.window:
        yield _window(None, channel.unacked.count, channel.window, channel.number)
    elif left > 0:
        yield _window(None, left, None, channel.number)


def _window(
    queue: str | None, outstanding: int, credit: int | None, channel: int | None = None, consumer: str | None = None
) -> dict[str, Any]:
    """`credit` None: any number. `queue` None: of several."""
    return {"queue": queue, "outstanding": outstanding, "credit": credit, "channel": channel, "consumer": consumer}


def _of_flight(call: Call) -> Iterator[dict[str, Any]]:
    if call.broker.flight is None:
        return
    for stream in call.broker.flight.sessions.streams():
        if stream.vhost is call.vhost:
            yield {"client": FLIGHT, "user": stream.user, "peer": stream.peer, "channels": 1, "unconfirmed": 0, "waits": [],
                   "windows": [_window(stream.source, stream.unanswered, stream.credit)]}


def _of_http(call: Call) -> Iterator[dict[str, Any]]:
    taken: dict[str, Counter[str]] = {}
    for user, queue in call.http.leases.taken(call.vhost.engine):
        taken.setdefault(user, Counter())[queue] += 1
    for user, by_queue in taken.items():
        yield {"client": HTTP, "user": user, "peer": None, "channels": 0, "unconfirmed": 0, "waits": [],
               "windows": [_window(queue, count, None) for queue, count in by_queue.items()]}
