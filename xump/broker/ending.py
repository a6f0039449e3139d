"""How a broker ends: consumers are cancelled, what they have is waited for, and what was confirmed reaches its publisher."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from xump.broker.errors import ProtocolError

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.vhost import Vhost

LOOK_SECONDS = 0.02
"""How often it looks whether everything is acknowledged."""

ACCEPT_TURNS = 3
"""After so many turns of the loop at most, a connection that was accepted has called `connection_made`."""


def shutdown() -> ProtocolError:
    """The words that clients are told."""
    return ProtocolError(320, "broker forced connection closure with reason 'shutdown'", 0)


async def listen_no_more(server: asyncio.Server) -> None:
    """Close a server, after connections that it has just accepted have come to know their broker.

    asyncio makes their transports a turn of the loop later. If the server is closed in between, that fails, and nothing closes
    the sockets (seen in CPython 3.11).
    """
    for listening in server.sockets:
        server.get_loop().remove_reader(listening.fileno())
    for _ in range(ACCEPT_TURNS):
        await asyncio.sleep(0)
    server.close()


def cancel_consumers(broker: Broker) -> None:
    """Nothing more is delivered; what was delivered may still be acknowledged. Clients that understand it are told."""
    for connection in list(broker.connections):
        with connection.not_waiting():
            for channel in list(connection.channels.values()):
                for consumer in list(channel.consumers.values()):
                    channel.remove(consumer)
                    channel.consumer_cancelled(consumer)


async def acknowledged(broker: Broker, seconds: float, hurry: asyncio.Event) -> None:
    """Wait until clients have answered all that they have, or `seconds` have passed, or `hurry` is set."""
    deadline = broker.loop.time() + seconds
    while broker.loop.time() < deadline and any(
            len(channel.unacked) for connection in broker.connections for channel in connection.channels.values()):
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await hurry.wait()
                return


async def confirmed(broker: Broker) -> None:
    """Read nothing more, and wait until all that was published is on disk and its confirms are written."""
    for connection in list(broker.connections):
        connection.read_no_more()
    for vhost in broker.vhosts.values():
        await _durable(vhost)


async def _durable(vhost: Vhost) -> None:
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(error: BaseException | None) -> None:
        """After those that asked before were told, of errors, too."""
        if not told.done():
            told.set_result(None)

    vhost.when_durable(tell)
    await told
