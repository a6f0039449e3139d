"""Where a method of a connection goes: to the handshake, or to a channel, which opens or ends by it, or carries it out.

A method that needs room in a store that is full waits for that room, and what came behind it waits, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp import commands

import xump.aio
from xump.broker import login
from xump.broker.channel import Channel
from xump.broker.channel_methods import carry_out
from xump.broker.errors import ProtocolError, precondition
from xump.broker.methods import Call, decode, encode
from xump.errors import QueueNotFound, StoreFull

if TYPE_CHECKING:
    from xump.broker.connection import Connection

CHANNEL_OPEN = b"\0\x14\0\x0a"
CHANNEL_CLOSE = b"\0\x14\0\x28"
CHANNEL_CLOSE_OK = b"\0\x14\0\x29"
CONNECTION_CLOSE = b"\0\x0a\0\x32"
CONNECTION_CLOSE_OK = b"\0\x0a\0\x33"
ACCESS_REQUEST = b"\0\x1e\0\x0a"
ACCESS_REQUEST_OK = b"\0\x1e\0\x0b\0\x01"


def dispatch(connection: Connection, number: int, payload: bytes) -> None:
    """Carry out a method of a channel, or of the connection (0)."""
    if connection.state == "closing":
        _while_closing(connection, payload)
        return
    if number and connection.state != "running":
        raise ProtocolError(503, "a channel before the connection is open")
    if number in connection.closing_channels:
        _of_closing_channel(connection, number, payload)
        return
    channel = connection.channels.get(number)
    if number and channel is None and payload[:4] != CHANNEL_OPEN:
        raise ProtocolError(504, "expected 'channel.open'")
    if channel is not None and payload[:4] == ACCESS_REQUEST:
        # Of AMQP 0-8, and unknown to pamqp: some clients ask for a ticket before everything else.
        channel.answer(ACCESS_REQUEST_OK)
        return
    call = decode(payload)
    if number == 0:
        login.carry_out(connection, call)
    elif call.kind is commands.Channel.Open:
        _open(connection, number)
    elif call.kind is commands.Channel.Close:
        _closed_by_client(connection, number)
    elif channel is not None and (channel.settling.waits or not _is_done(channel, call)):
        connection.do_later(channel, _do_when_relieved(channel, call), lambda _done: None)


def _while_closing(connection: Connection, payload: bytes) -> None:
    """We have closed the connection, and wait for the answer."""
    if payload[:4] == CONNECTION_CLOSE:
        connection.send(0, encode(commands.Connection.CloseOk))
        connection.finish()
    elif payload[:4] == CONNECTION_CLOSE_OK:
        connection.finish()


# ---- of channels


def _open(connection: Connection, number: int) -> None:
    if number in connection.channels:
        raise ProtocolError(504, "second 'channel.open' seen")
    if len(connection.channels) >= connection.channel_max:      # their numbers may be higher, as with RabbitMQ
        raise ProtocolError(
            530, f"number of channels opened ({len(connection.channels)}) has reached the negotiated channel_max "
                 f"({connection.channel_max})", 0)
    connection.channels[number] = Channel(connection, number)
    connection.decoder.open(number)
    connection.send(number, encode(commands.Channel.OpenOk))


def _closed_by_client(connection: Connection, number: int) -> None:
    channel = connection.channels.pop(number)
    channel.close(by_client=True)
    connection.decoder.closed(number)
    channel.answer(encode(commands.Channel.CloseOk))


def _of_closing_channel(connection: Connection, number: int, payload: bytes) -> None:
    """We have closed the channel: its number is free again when the client has answered."""
    if payload[:4] == CHANNEL_CLOSE:
        connection.send(number, encode(commands.Channel.CloseOk))
    elif payload[:4] == CHANNEL_CLOSE_OK:
        connection.closing_channels.discard(number)
        connection.decoder.closed(number)


# ---- carried out by a channel


async def _do_when_relieved(channel: Channel, call: Call) -> None:
    """Carry out a method when the stores have made room for it."""
    connection = channel.connection
    while channel.open:
        await xump.aio.relieved(connection.vhost.engine)
        with connection.not_waiting():
            channel.settling.go_on()            # it comes before the method
            if not channel.settling.waits and _is_done(channel, call):
                return


def _is_done(channel: Channel, call: Call) -> bool:
    """Carry out a method. False: a store has to make room first, and nothing has changed."""
    try:
        carry_out(channel, call)
    except QueueNotFound as error:              # another thread deleted it just now
        raise ProtocolError(404, str(error.args[0])) from error
    except StoreFull as error:
        if not channel.connection.vhost.engine.pressed:
            raise precondition(str(error)) from error
        return False
    return True
