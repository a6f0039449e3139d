"""The broker: listens for clients, and ends in good order."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from xump import __version__
from xump._arguments import check_count
from xump.broker import ending
from xump.broker.addresses import host_and_port, is_loopback
from xump.broker.busy_poll import MOST, BusyPoll
from xump.broker.connection import Connection
from xump.broker.limits import Limits
from xump.broker.looking_after import look_after, look_for_late, look_up_user
from xump.broker.memory import Memory
from xump.broker.passwords import Passwords
from xump.broker.users import Users, guest
from xump.broker.vhost import Vhost

if TYPE_CHECKING:
    from xump.broker.flight.server import Flight
    from xump.broker.http.server import Http
    from xump.engine import Engine

logger = logging.getLogger("xump")

BUFFER_BYTES = 256 << 10
"""So much is read at once; all connections share it."""

LATE_SECONDS = 60.0
"""How often deliveries are looked for that were not answered in time."""
SWEEP_SECONDS = 0.5
"""How often heartbeats are looked after: half of the shortest interval that a client can ask for."""


class Broker:
    """Lets clients of RabbitMQ, in other processes, use an engine: AMQP 0-9-1.

    Args:
        engine: The engine whose queues clients see, as the virtual host `/`; or several, by the names of their virtual hosts.
        amqp: Where to listen, `HOST:PORT`; port 0: any that is free. `address` says which it is. None: nowhere, as for a program
            that only wants the live page.
        store: The store of the engine for durable queues.
        users: Those that may log in; None: `guest` with the password `guest`, from this machine.
        tls: The context that makes connections secure; None: they are not.
        http: Where to listen for HTTP, `HOST:PORT`; None: nowhere. `url` is then the address of the live page.
        private_targets: Whether webhooks may call private addresses, such as those of this machine.
        flight: Where to listen for Arrow Flight, `grpc://HOST:PORT`; None: nowhere. Clients then connect to `flight.url`.
        flight_certificate: The certificate that makes Flight secure: certificates and private key in PEM, as bytes.
        insecure: Whether an address of other machines is allowed without `tls` and `users`.
        product: The name that clients are told; some behave differently for `"RabbitMQ"`.
        limits: How much a client may ask for.
        busy_poll: For so many microseconds, at most 1,000, the loop stays awake after a client has sent something, and answers
            what comes next sooner. `xump serve` has 50. In a program that does other work beside, each is time taken from it.

    Raises:
        ValueError: `busy_poll` is out of bounds; `amqp` is wrong, or would let other machines in without `tls` and `users`.

    As a context manager it runs in a thread of its own; in `async with` it runs in the loop of the caller.

    >>> from xump import Engine
    >>> with Engine() as engine, Broker(engine, amqp="127.0.0.1:0") as broker:
    ...     broker.address[0]
    '127.0.0.1'
    """

    loop: asyncio.AbstractEventLoop
    """The loop that it runs in."""

    def __init__(
        self,
        engine: Engine | Mapping[str, Engine],
        amqp: str | None = "127.0.0.1:5672",
        *,
        store: str = "ram",
        users: Users | None = None,
        tls: ssl.SSLContext | None = None,
        http: str | None = None,
        flight: str | None = None,
        flight_certificate: tuple[bytes, bytes] | None = None,
        private_targets: bool = False,
        insecure: bool = False,
        product: str = "Xump",
        limits: Limits | None = None,
        busy_poll: int = 0,
    ) -> None:
        self._host, self._port = ("", 0) if amqp is None else host_and_port(amqp, "amqp")
        if amqp is None and http is None and flight is None:
            raise ValueError("amqp=None needs http or flight: else the broker listens nowhere")
        if amqp is not None and not insecure and not is_loopback(self._host) and (tls is None or users is None):
            raise ValueError(f"amqp={amqp!r} lets other machines in: give `tls` and `users`, or insecure=True")
        self.vhosts = {
            name: Vhost(name, one, store) for name, one in (engine if isinstance(engine, Mapping) else {"/": engine}).items()}
        """The virtual hosts by name."""
        self.users = guest() if users is None else users
        """Those that may log in."""
        self.is_open = users is None
        """Whether nobody said who may log in: then whoever is on this machine may, as guest."""
        self.tls = tls
        """The certificate and key that make connections secure, or None."""
        self.product = product
        """The name of the product that clients are told."""
        self.is_ending = False
        """Whether it ends: no consumer comes any more."""
        self.version = __version__ if product == "Xump" else "3.13.0"
        """The version that clients are told."""
        self.name = f"xump@{self._host}"
        """The name of the cluster that clients are told."""
        self.limits = Limits() if limits is None else limits
        """How much a client may ask for."""
        self.beside: dict[str, Callable[[], Mapping[str, float]]] = {}
        """Numbers of other things, by name, that the live page and `/metrics` show. The functions must not block."""
        self.memory = Memory(self, self.limits.memory_bytes)
        """Whether messages take too much memory."""
        self.connections: dict[Connection, None] = {}
        """The clients, in the order in which they came."""
        self.confirmed = self.refused = 0
        """How many publishes of theirs were confirmed so far, and how many refused by a confirm."""
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        """The buffer that all connections read into. A view, since asyncio's TLS reads into slices of it."""
        self.address: tuple[str, int] = (self._host, self._port)
        """Where it listens for AMQP; `("", 0)`: nowhere."""
        self.http: Http | None = None
        """The HTTP API, or None."""
        if http is not None:
            from xump.broker.http.server import Http  # imported here: who speaks AMQP only needs no framework for HTTP

            self.http = Http(self, http, private_targets=private_targets, insecure=insecure)
        self.flight: Flight | None = None
        """The Flight listener, or None."""
        if flight is not None:
            from xump.broker.flight.server import Certificate, Flight

            certificate = None if flight_certificate is None else Certificate(*flight_certificate)
            self.flight = Flight(self, flight, certificate=certificate, insecure=insecure)
        check_count("busy_poll", busy_poll, 0, MOST, "an int of microseconds")
        self._busy_poll = busy_poll
        self._listens = amqp is not None
        self._runs = False
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Event
        self._all_closed: asyncio.Event | None = None

    # ---- in a loop

    async def start(self) -> None:
        """Listen."""
        self.is_ending = False
        self.loop = asyncio.get_running_loop()
        self.heard = BusyPoll(self.loop, self._busy_poll).heard
        """A connection calls it when something has come."""
        self.thread = threading.get_ident()
        """The thread of the loop."""
        self.passwords = Passwords(self)
        """Checks the passwords of clients of AMQP, in threads."""
        self.web_passwords = Passwords(self)
        """Those over HTTP, which need no connection that is counted: they do not keep others from logging in."""
        self._ended = asyncio.Event()
        self._runs = True
        try:
            for vhost in self.vhosts.values():
                vhost.read()
                vhost.begin(self.loop)
            if self._listens:
                self._server = await self.loop.create_server(
                    lambda: Connection(self), self._host, self._port, ssl=self.tls, backlog=1024,
                    ssl_handshake_timeout=None if self.tls is None else self.limits.handshake_seconds)
                name = self._server.sockets[0].getsockname()
                self.address = (name[0], name[1])
            self._looked_for_late = self.loop.time()
            self.memory.keep(self._looked_for_late)
            self._sweep()
            if self.http is not None:
                await self.http.start()
            if self.flight is not None:
                await self.flight.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self, timeout: float = 5.0, *, ack_timeout: float = 0.0, hurry: asyncio.Event | None = None) -> None:
        """End in good order: stop listening, cancel consumers, flush confirms, tell the clients, and end.

        Args:
            timeout: So many seconds at most to write what was published, and again to wait for answers of clients.
            ack_timeout: So many seconds at most to wait until clients have acknowledged what was delivered to them. A message
                that is left then is delivered again after the next start, if its queue is durable.
            hurry: Set it to end that wait.
        """
        if not self._runs:
            return
        self.is_ending = True
        if ack_timeout > 0:
            ending.cancel_consumers(self)
        if self._server is not None:
            await ending.listen_no_more(self._server)
        if self.http is not None:
            await self.http.stop()
        if self.flight is not None:
            await self.flight.stop()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if ack_timeout > 0:
            await ending.acknowledged(self, ack_timeout, hurry or asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await ending.confirmed(self)
        all_closed = self._all_closed = asyncio.Event()
        if not self.connections:
            all_closed.set()
        for connection in list(self.connections):
            connection.close(ending.shutdown())
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await all_closed.wait()
        for connection in list(self.connections):
            connection.abort()
        for vhost in self.vhosts.values():
            await vhost.close()
        self.memory.keep_none()
        self.passwords.stop()
        self.web_passwords.stop()
        self._server = None
        self._runs = False
        self._ended.set()

    def change_users(self, users: Users) -> None:
        """From now on these may log in. Clients that are connected have what the new ones may do from their next method on; the
        connection of a user who is none any more is closed (320). So are calls over Flight of whoever may do something else then.
        Call it in the broker's loop."""
        self.users = users
        for connection in list(self.connections):
            look_up_user(connection)
        if self.flight is not None:
            self.flight.calls.change_users(users)

    async def serve(self) -> None:
        """Listen, until `stop` is called or the task is cancelled."""
        await self.start()
        try:
            await self._ended.wait()
        finally:
            await self.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    # ---- in a thread of its own

    def __enter__(self) -> Self:
        started = threading.Event()
        failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(started, failures), name="xump-broker", daemon=True)
        self._thread.start()
        started.wait()
        if failures:
            self._thread.join()
            raise failures[0]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self, timeout: float = 5.0, *, ack_timeout: float = 0.0) -> None:
        """End a broker that runs in a thread of its own, as `stop` does."""
        if self._thread is not None:
            asyncio.run_coroutine_threadsafe(self.stop(timeout, ack_timeout=ack_timeout), self.loop).result()
            self._thread.join()
            self._thread = None

    def _run(self, started: threading.Event, failures: list[BaseException]) -> None:
        try:
            asyncio.run(self._main(started, failures))
        except BaseException as error:
            if error not in failures:
                logger.exception("the broker's loop ended")

    async def _main(self, started: threading.Event, failures: list[BaseException]) -> None:
        try:
            await self.start()
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            started.set()
        await self._ended.wait()

    # ---- heartbeats

    def _sweep(self) -> None:
        """One timer for all connections: send heartbeats, and end those that say nothing any more or read nothing."""
        now = self.loop.time()
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        self.memory.sweep(now)
        for connection in list(self.connections):
            look_after(connection, now)
        if now - self._looked_for_late >= min(LATE_SECONDS, self.limits.consumer_timeout or LATE_SECONDS):
            self._looked_for_late = now
            for connection in list(self.connections):
                look_for_late(connection, now)

    def lost(self, connection: Connection) -> None:
        """The connection has ended."""
        self.connections.pop(connection, None)
        if not self.connections and self._all_closed is not None:
            self._all_closed.set()

    def is_loopback(self, connection: Connection) -> bool:
        """Whether the client is on this machine."""
        name = connection.transport.get_extra_info("peername")
        return not isinstance(name, tuple) or is_loopback(name[0])
