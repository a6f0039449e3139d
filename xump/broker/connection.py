"""A connection: the handshake, frames in and out, heartbeats, and its end.

All connections of a loop read into one buffer; what is cut, the codec keeps aside. The frames of a read are carried out in the
order of the wire: rows, which are most of it, by their channels, and methods one by one (`dispatch.py`). An error ends a channel
or the connection; what came before it counts.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pamqp import commands

from xump._aio_wait import soon
from xump.broker import login
from xump.broker.bodies import Bodies
from xump.broker.dispatch import dispatch
from xump.broker.envelope import envelope_to_send
from xump.broker.errors import ProtocolError, reply_text
from xump.broker.memory import REASON
from xump.broker.methods import UnknownMethod, encode
from xump.broker.tables import Table
from xump.errors import Closed
from xump.topology.graph import printable
from xump_ext.amqp.decoder import CHANNEL_ERROR, ERROR, METHOD, NEED, Decoder
from xump_ext.amqp.outgoing import Outgoing
from xump_ext.amqp.output import Output

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.channel import Channel
    from xump.broker.queues import BrokerQueue
    from xump.broker.users import User
    from xump.broker.vhost import Vhost

logger = logging.getLogger("xump")

T = TypeVar("T")

FLUSH_BYTES = 64 << 10
"""Deliveries gather so many bytes before they are written."""

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"


class Connection(asyncio.BufferedProtocol):
    """A client."""

    vhost: Vhost
    """The virtual host that it opened."""
    user: User
    """The user that logged in."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        """Its broker."""
        self.limits = broker.limits
        """How much the client may ask for."""
        self.decoder = Decoder(body_bytes_max=self.limits.body_bytes_max, bytes_in_flight_max=self.limits.bytes_in_flight_max)
        """Reads frames."""
        self.output = Output(4096)
        """Frames that are to be written."""
        self.state = "header"
        """`header`, `start`, `tune`, `open`, `running`, `closing` or `closed`: what it waits for."""
        self.channels: dict[int, Channel] = {}
        """Its open channels by number."""
        self.closing_channels: set[int] = set()
        """Channels that we have closed, until the client has answered."""
        self.exclusive_queues: dict[BrokerQueue, None] = {}
        """The queues that end with it."""
        self.client: Table = {}
        """The properties that the client tells of itself."""
        self.heartbeat = 0
        """The interval that both sides agreed on, in seconds; 0: none."""
        self.received = self.sent = broker.loop.time()
        """When something came last, and was written last, on the clock of the loop."""
        self.paused = False
        """Whether the client does not read what we write."""
        self.stalled_since = 0.0
        """Since when it does not."""
        self.channel_max = self.limits.channel_max
        """How many channels both sides agreed on."""
        self.bodies = Bodies(self.decoder, self.limits, broker.memory)
        """Those that it has begun to send."""
        self._header = b""
        self._flushing = False
        self._draining = False
        self._has_left = False
        self._pieces: deque[bytes | memoryview] = deque()       # what is written when the client has read what was before
        self._outgoing: Outgoing | None = None
        self._held: set[str] = set()
        self._later = b""                   # what had come already when it became busy
        self._task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def held(self) -> frozenset[str]:
        """Why nothing is read: `output`, `stores`, `memory`, `busy`, `ending`."""
        return frozenset(self._held)

    # ---- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        self.transport = cast("asyncio.Transport", transport)
        self.broker.connections[self] = None
        # The listening socket may have let one in just before it was closed: nobody would end that connection.
        if self.broker.is_ending or len(self.broker.connections) > self.limits.connections_max:
            self.abort()
            return
        self._deadline = self.broker.loop.call_later(self.limits.handshake_seconds, self._too_slow)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop may put what comes."""
        return self.broker.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        self.broker.heard()
        self.received = self.broker.loop.time()
        start = self._read_header(nbytes) if self.state == "header" else 0
        if self.state in ("header", "closed") or start == nbytes:
            return
        self.decoder.feed(self.broker.buffer[start:nbytes], nbytes - start)
        self._read()
        self.flush()

    def eof_received(self) -> bool:
        """The client writes no more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._pieces.clear()
        self._end()
        self.bodies.count(0)
        self.broker.lost(self)
        self.broker.memory.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def pause_writing(self) -> None:
        """There is too much that the client does not read."""
        self.paused = True
        self.stalled_since = self.broker.loop.time()

    def resume_writing(self) -> None:
        """It has read most of that."""
        self.paused = False
        self.drain_soon()               # not now: asyncio ends a transport twice whose write fails in here

    # ---- reading

    def _read_header(self, nbytes: int) -> int:
        """The first eight bytes. Returns how many of this read belong to it."""
        wanted = len(PROTOCOL_HEADER) - len(self._header)
        self._header += bytes(self.broker.buffer[:min(wanted, nbytes)])
        if not PROTOCOL_HEADER.startswith(self._header):
            logger.warning("a client at %s begins with %r, which is not AMQP 0-9-1", self.peer, self._header)
            self.transport.write(PROTOCOL_HEADER)
            self.state = "closed"
            self.transport.close()
        elif len(self._header) == len(PROTOCOL_HEADER):
            self.state = "start"
            self.send(0, login.start(self.broker))
        return min(wanted, nbytes)

    def _read(self) -> None:
        """Carry out what was read; then nothing more is read until a store that is behind has caught up."""
        self._carry_out_read()
        if self.bodies.are_there:
            self._bodies_have_begun()
        if self.state == "running" and self.vhost.engine.pressed:
            self._wait_for_stores()

    def _carry_out_read(self) -> None:
        decoder = self.decoder
        found = ERROR
        while found != NEED:
            found = decoder.next()
            if len(decoder):
                if self.state == "running":
                    self._rows()
                decoder.clear()
            if self.state == "closed":
                continue                # go on until the codec has nothing more: what it holds is in the buffer
            if found == METHOD:
                self._guard(decoder.channel, lambda: dispatch(self, decoder.channel, decoder.payload))
                if "busy" in self._held:
                    self._later = decoder.rest()
                    return
            elif found == CHANNEL_ERROR:
                self.close_channel(decoder.channel, ProtocolError(decoder.code, decoder.text, decoder.method))
            elif found == ERROR:
                self.fail(ProtocolError(decoder.code, decoder.text, decoder.method))

    def _rows(self) -> None:
        published = False
        for number, are_publishes, first, end in self.decoder.runs():
            channel = self.channels.get(number)
            if channel is None or self.state != "running":
                continue                # closed by an error in a row before
            do = channel.publish if are_publishes else channel.settle
            self._guard(number, partial(do, self.decoder, first, end), BASIC_PUBLISH)
            published = published or are_publishes
        if self.bodies.counted:
            self.bodies.count(self.bodies.counted)      # those that are whole are messages now
        if published and self.broker.memory.look():
            self.block()

    def _bodies_have_begun(self) -> None:
        """The client has begun to send bodies, which take memory as messages do. If there is too much already, it waits before
        the first. Else it may finish: all would wait for each other if clients were stopped amid their bodies."""
        if not self.bodies.counted and self.broker.memory.look():
            self.block()
        if "memory" not in self._held:
            self.bodies.count()

    def _wait_for_stores(self) -> None:
        """A store has to catch up: nothing more is read from this client until it has."""
        if "stores" not in self._held:
            self._hold("stores")
            self.vhost.engine.when_relieved(lambda error: soon(self.broker.loop, self._go_on, "stores"))

    def _hold(self, why: str) -> None:
        """Nothing more is read for now. The client's silence does not count meanwhile."""
        if not self._held:
            self.transport.pause_reading()
        self._held.add(why)

    def _go_on(self, why: str) -> None:
        """This is no reason any more."""
        if why not in self._held:
            return
        self._held.remove(why)
        if not self._held and self.state != "closed":
            self.received = self.broker.loop.time()
            self.transport.resume_reading()

    def read_no_more(self) -> None:
        """The broker ends: what comes from now on is not carried out."""
        if self.state == "running":
            self._hold("ending")

    def block(self) -> None:
        """It has published while messages take too much memory: it is not read until there is less."""
        if "memory" in self._held or self.state != "running" or self._has_left:
            return
        self._hold("memory")
        self.bodies.count(0)            # its bodies do not grow: it must not wait for itself
        self.broker.memory.waiting[self] = None
        if self.capable("connection.blocked"):
            self.send(0, encode(commands.Connection.Blocked, reason=REASON))

    def unblock(self) -> None:
        """There is less."""
        if self.capable("connection.blocked") and self.state == "running":
            self.send(0, encode(commands.Connection.Unblocked))
        self.bodies.count()
        self._go_on("memory")

    def read_the_rest(self) -> None:
        """Its client has gone while it was not read: what is left in the socket is all that comes, and then its end."""
        self._has_left = True
        self._go_on("memory")

    def do_later(self, channel: Channel | None, work: Coroutine[Any, Any, T], then: Callable[[T], None]) -> None:
        """Carry out work of a method that takes long, and then the rest of the method, before anything that came after it.
        `channel`: None for a method of the connection."""
        self._hold("busy")
        method = int.from_bytes(self.decoder.payload[:4], "big")
        self._task = self.broker.loop.create_task(self._do_later(channel, work, then, method))

    async def _do_later(
        self, channel: Channel | None, work: Coroutine[Any, Any, T], then: Callable[[T], None], method: int
    ) -> None:
        try:
            done, error = await work, None
        except Closed:
            return
        except Exception as raised:
            error = raised

        def finish() -> None:
            """In the place of the method."""
            if error is not None:
                raise error
            then(done)

        if self.state not in ("closing", "closed") and (channel is None or channel.open):
            self._guard(0 if channel is None else channel.number, finish, method)
        later, self._later = self._later, b""
        self._go_on("busy")
        if self.state != "closed":
            self.decoder.feed(later, len(later))
            self._read()
            self.flush()

    def carry_out(self, channel: Channel, do: Callable[[], None]) -> None:
        """Carry out what was left to do of a method of a channel."""
        self._guard(channel.number, do, 0)

    def _guard(self, number: int, do: Callable[[], Any], method: int | None = None) -> None:
        """Carry out something of a channel; an error ends the channel or the connection."""
        try:
            with self.not_waiting():
                do()
        except ProtocolError as error:
            if error.method is None:
                error.method = method if method is not None else int.from_bytes(self.decoder.payload[:4], "big")
            if number and error.ends_channel_only and self.state == "running":
                self.close_channel(number, error)
            else:
                self.fail(error)
        except UnknownMethod as error:
            logger.warning("connection %s is closed: %s", self.peer, error)
            self.abort()                # without a word, as by RabbitMQ
        except Exception:
            logger.exception("a defect in Xump's broker: connection %s is closed", self.peer)
            self.fail(ProtocolError(541, "INTERNAL_ERROR", method or 0))

    def not_waiting(self) -> AbstractContextManager[None]:
        """The loop does not wait for disks: the threads of the stores write."""
        if not hasattr(self, "vhost") or self.vhost.engine.closed:
            return nullcontext()
        return self.vhost.engine.not_waiting()

    # ---- channels

    def close_channel(self, number: int, error: ProtocolError) -> None:
        """We close a channel: what comes for it is dropped until the client has answered."""
        channel = self.channels.pop(number, None)
        if channel is None:
            return
        self.decoder.closing(number)
        self.closing_channels.add(number)
        self.send(number, _close(commands.Channel.Close, error))
        with self.not_waiting():
            channel.close()

    # ---- writing

    def send(self, channel: int, payload: bytes) -> None:
        """Write a method frame."""
        self.output.method(channel, payload)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Write when what happens now is over."""
        if not self._flushing:
            self._flushing = True
            self.broker.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what there is."""
        self._flushing = False
        if len(self.output) and self.state != "closed":
            taken = self.output.take()
            if len(taken) == 1 and not self._pieces:
                self.transport.write(taken[0])
            else:
                self._pieces += taken
                self._write_pieces()
            self.sent = self.broker.loop.time()
            if self.transport.get_write_buffer_size() + sum(map(len, self._pieces)) > self.limits.output_bytes_max:
                self._hold("output")

    def _write_pieces(self) -> None:
        """Write as much as the client reads: a transport would copy the rest."""
        while self._pieces and not self.paused and not self.transport.is_closing():
            self.transport.write(self._pieces.popleft())
            self.sent = self.broker.loop.time()

    @property
    def outgoing(self) -> Outgoing:
        """The messages of its consumers."""
        if self._outgoing is None:
            self._outgoing = Outgoing(self.vhost.engine.outlet(self._offered), self.output, envelope_to_send)
        return self._outgoing

    def _offered(self) -> None:
        """Something was offered to a consumer here, perhaps by another thread."""
        if threading.get_ident() == self.broker.thread:
            self.drain_soon()
        else:
            soon(self.broker.loop, self.drain_soon)

    def drain_soon(self) -> None:
        """Write deliveries when what happens now is over."""
        if not self._draining:
            self._draining = True
            self.broker.loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Write what waits, and deliveries, at most so many bytes; then others have their turn."""
        self._draining = False
        self._write_pieces()
        if not self.paused:
            self._go_on("output")
        if self.paused or self.state != "running" or self._outgoing is None or self.vhost.engine.closed:
            return
        self._guard(0, self._deliver, 0)

    def _deliver(self) -> None:
        assert self._outgoing is not None
        more = self._outgoing.drain(FLUSH_BYTES, self.broker.loop.time())
        self.flush()
        if more:
            self.drain_soon()

    # ---- permissions and capabilities

    def check(self, permission: str, kind: str, name: str) -> None:
        """Refuse what the user may not do."""
        if not self.user.may(self.vhost.name, permission, name):
            raise ProtocolError(
                403, f"access to {kind} '{name}' in vhost '{self.vhost.name}' refused for user '{self.user.name}'")

    def capable(self, name: str) -> bool:
        """Whether the client says that it can do something."""
        capabilities = self.client.get("capabilities")
        if capabilities is None or capabilities.kind != "F" or name not in capabilities.value:
            return False
        return bool(capabilities.value[name].value)

    @property
    def takes_qos_by_the_book(self) -> bool:
        """Whether the client means by global=False what the specification says, all consumers of the channel together: kombu,
        over py-amqp, decides so when the server is not called RabbitMQ, and changes the window of consumers that are there."""
        product = self.client.get("product")
        return product is not None and product.value == b"py-amqp" and self.broker.product != "RabbitMQ"

    # ---- the end

    def fail(self, error: ProtocolError) -> None:
        """End the connection with an error."""
        if self.state in ("closing", "closed"):
            return
        logger.warning("connection %s is closed: %s", self.peer, printable(reply_text(error.code, str(error))))
        if self.state in ("header", "start", "tune") and error.code != 403:
            self.abort()            # who is not logged in is told nothing, as by RabbitMQ
        else:
            self.close(error)

    def close(self, error: ProtocolError) -> None:
        """Tell the client, and wait for its answer for a while."""
        if self.state in ("header", "closing", "closed"):
            self.abort()
            return
        self._end()
        self.state = "closing"
        self.send(0, _close(commands.Connection.Close, error))
        self.flush()
        for why in self._held - {"busy", "output"}:
            self._go_on(why)            # its answer is to be read
        self._wait_for(self.limits.handshake_seconds)

    def closed_by_client(self) -> None:
        """The client closes the connection."""
        self._end()
        self.send(0, encode(commands.Connection.CloseOk))
        self.finish()

    def finish(self) -> None:
        """Write what there is, and close; a client that does not read that has so long for it as for its answers."""
        self.flush()
        while self._pieces and not self.transport.is_closing():
            self.transport.write(self._pieces.popleft())
        self.state = "closed"
        self.transport.close()
        self._wait_for(self.limits.handshake_seconds)

    def abort(self) -> None:
        """Close at once."""
        self._end()
        self._pieces.clear()
        self.state = "closed"
        self.transport.abort()

    def logged_in(self) -> None:
        """The handshake is over."""
        self.state = "running"
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _wait_for(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.broker.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self.state != "running":
            self.abort()

    def _end(self) -> None:
        """Its channels and exclusive queues go."""
        channels = list(self.channels.values())
        self.channels.clear()
        if self._outgoing is not None:
            self._outgoing.close()
        with self.not_waiting():
            for channel in channels:
                channel.close()
            for queue in list(self.exclusive_queues):
                self.vhost.delete_queue(queue)

    @property
    def peer(self) -> str:
        """The address of the client, for the log."""
        name = self.transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "local"


BASIC_PUBLISH = 60 << 16 | 40


def _close(kind: type[commands.Connection.Close | commands.Channel.Close], error: ProtocolError) -> bytes:
    method = error.method or 0
    return encode(kind, reply_code=error.code, reply_text=reply_text(error.code, str(error)), class_id=method >> 16,
                  method_id=method & 0xFFFF)
