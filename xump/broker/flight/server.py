"""Listens for Flight, with threads of its own beside the broker's loop, and ends with the broker."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow
from pyarrow import flight

from xump.broker.addresses import host_and_port, is_loopback
from xump.broker.flight.access import Access
from xump.broker.flight.actions import ACTIONS, STAGING, answer, text
from xump.broker.flight.browse import Browse, columns_of_queues
from xump.broker.flight.buffers import Buffers
from xump.broker.flight.calls import Call, Calls
from xump.broker.flight.chunks import json_object
from xump.broker.flight.entering import Entering
from xump.broker.flight.interceptor import MIDDLEWARE, Interceptor, NoHandshake
from xump.broker.flight.leases import Leases
from xump.broker.flight.problems import problem
from xump.broker.flight.producers import Producers
from xump.broker.flight.put import options_of, put
from xump.broker.flight.staging import Staging, stage_stream
from xump.broker.flight.take import Sessions, Taking

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.limits import Limits
    from xump.broker.vhost import Vhost

logger = logging.getLogger("xump")

LOOK_AFTER_SECONDS = 5.0
"""How often silent clients, and runs that nobody goes on with, are looked for."""


SHUT_SECONDS = 0.1
"""So often the broker ends connections while it ends."""


class Certificate(NamedTuple):
    """The certificate that makes Flight secure: it has no use for an `ssl.SSLContext`."""

    certificate: bytes
    """The certificates, PEM."""
    key: bytes
    """The private key, PEM."""


class Flight:
    """The Flight listener of a broker.

    Args:
        broker: The broker.
        address: Where to listen, `grpc://HOST:PORT` or `HOST:PORT`; port 0: any that is free.
        certificate: Makes connections secure; None: they are not.

    Raises:
        ValueError: `address` is wrong, or would let other machines in without a certificate and users.
    """

    def __init__(self, broker: Broker, address: str, *, certificate: Certificate | None = None, insecure: bool = False) -> None:
        self.broker = broker
        """The broker."""
        self._host, self._port = host_and_port(address.removeprefix("grpc://").removeprefix("grpc+tls://"), "flight")
        if address.startswith("grpc+tls://") and certificate is None:
            raise ValueError(f"flight={address!r} needs `flight_certificate`, the certificate and key in PEM")
        if broker.tls is not None and certificate is None:
            raise ValueError("a broker with `tls` needs `flight_certificate` for Flight, too: certificate and key in PEM")
        if not insecure and not is_loopback(self._host) and (certificate is None or broker.is_open):
            raise ValueError(f"flight={address!r} lets other machines in: give `flight_certificate` and `users`, or "
                             "insecure=True")
        self._certificate = certificate
        self.address: tuple[str, int] = (self._host, self._port)
        """Where it listens."""
        self.access = Access(broker)
        """The permissions of callers."""
        self.interceptor = Interceptor(self.access, self.limits.flight_calls_max)
        """The calls that Flight has begun, some of which wait for the first message of their client."""
        self.calls = Calls(self)
        """The calls that are open."""
        self.sessions = Sessions()
        """The streams that take."""
        self.producers = Producers()
        """The producers that publish with numbers."""
        self.ending = False
        """Whether it ends."""
        self._buffers = Buffers()
        self._staging: dict[str, Staging] = {}
        self._leases: dict[str, Leases] = {}
        self._entering: list[Entering] = []
        self._server: Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limits(self) -> Limits:
        """How much a client may ask for."""
        return self.broker.limits

    @property
    def url(self) -> str:
        """The address that clients connect to."""
        host, port = self.address
        return f"{'grpc' if self._certificate is None else 'grpc+tls'}://{f'[{host}]' if ':' in host else host}:{port}"

    def staging_of(self, vhost: Vhost) -> Staging:
        """The attempts that are staged in a virtual host."""
        return self._staging[vhost.name]

    def leases_of(self, vhost: Vhost) -> Leases:
        """The leases of queues in a virtual host."""
        return self._leases[vhost.name]

    async def start(self) -> None:
        """Listen, and go on with what was staged."""
        self.ending = False
        self._check_free()
        loop = asyncio.get_running_loop()
        for name, vhost in self.broker.vhosts.items():
            entering = Entering(vhost.engine, loop, self.calls.busy)
            self._entering.append(entering)
            self._staging[name] = Staging(vhost.engine, self.limits, entering)
            self._staging[name].start()
            self._leases[name] = Leases(vhost.engine)
            self._leases[name].start()
        host = f"[{self._host}]" if ":" in self._host else self._host
        secure = self._certificate
        try:
            self._server = Server(
                f"{'grpc' if secure is None else 'grpc+tls'}://{host}:{self._port}", auth_handler=NoHandshake(),
                tls_certificates=None if secure is None else [(secure.certificate, secure.key)],
                middleware={MIDDLEWARE: self.interceptor})
        except pyarrow.ArrowException as error:
            raise OSError(f"flight: cannot listen on {self._host}:{self._port}: {error}") from None
        self._server.listener = self
        self._buffers.keep()
        self.address = (self._host, self._server.port)
        self._timer = loop.call_later(LOOK_AFTER_SECONDS, self._look_after)

    def _check_free(self) -> None:
        """Raise OSError if somebody listens there: gRPC would share the port with them."""
        if self._port:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self._host, self._port))

    async def stop(self) -> None:
        """Listen no more, and end what is open."""
        if self._timer is not None:
            self._timer.cancel()
        self.ending = True
        for entering in self._entering:
            entering.close()
        self._entering.clear()
        if self._server is not None:
            await asyncio.to_thread(self._shut, self._server)
            self._server = None
            self._buffers.keep_none()

    def _shut(self, server: Server) -> None:
        """End all connections, until no call is open: a client may connect meanwhile."""
        ends = threading.Thread(target=server.shutdown, name="xump-flight-end", daemon=True)
        ends.start()
        while ends.is_alive():
            self.calls.shut_all()
            ends.join(SHUT_SECONDS)

    def _look_after(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_AFTER_SECONDS, self._look_after)
        loop.run_in_executor(None, self.look_after, time.monotonic())

    def look_after(self, now: float) -> None:
        """End the connections of silent clients, and drop what nobody goes on with."""
        try:
            self.calls.look_after(now)
            if self.calls.were_there():
                self._buffers.give_back()
            for leases in self._leases.values():
                leases.look_after(now)
            for staging in self._staging.values():
                staging.look_after(now)
        except Exception:
            logger.exception("looking after the clients of Flight raised")


class Server(flight.FlightServerBase):      # type: ignore[misc]
    """The calls of Flight, in threads of its own."""

    listener: Flight
    """The listener that it belongs to."""

    def do_put(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader, writer: flight.FlightMetadataWriter,
    ) -> None:
        """Publish a stream, or stage it."""
        try:
            with self.listener.calls.open(context) as call:
                options = options_of(descriptor)
                if set(options) == {"stage"}:
                    self.listener.calls.staging(call)
                    stage_stream(call, self.listener.staging_of(call.vhost), options["stage"], reader, writer)
                else:
                    put(call, options, reader, writer)
        except Exception as error:
            raise problem(error) from None

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Read a queue, or take from it."""
        call = None
        try:
            call = self.listener.calls.begin(context)
            given = ticket.ticket
            options = json_object(given, "the ticket") if given.startswith(b"{") else {"queue": given.decode()}
            stream: Browse | Taking
            if "take" in options:
                stream = Taking(call, options)
                self.listener.sessions.add(stream)
            else:
                stream = Browse(call, options)
            batches = self._stream(call, stream)
            next(batches)               # it has begun, so it ends, also if the client reads nothing
            return flight.GeneratorStream(stream.schema, batches)
        except Exception as error:
            if call is not None:
                self.listener.calls.end(call)
            raise problem(error) from None

    def _stream(self, call: Call, stream: Browse | Taking) -> Iterator[Any]:
        try:
            yield stream.schema.empty_table()
            with closing(stream.batches()) as batches:          # type: ignore[type-var]
                for batch in batches:
                    with call.waiting():
                        yield batch
        except Exception as error:
            raise problem(error) from None
        finally:
            self.listener.calls.end(call)
            if isinstance(stream, Taking):
                stream.end()
                self.listener.sessions.remove(stream)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[flight.Result]:
        """Any other call."""
        try:
            with self.listener.calls.open(context) as call:
                if action.type in STAGING:
                    self.listener.calls.staging(call)
                options = json_object(action.body.to_pybytes() if action.body is not None else None, "the body")
                return [flight.Result(answer(call, action.type, options))]
        except Exception as error:
            raise problem(error) from None

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        """The actions, with what they do."""
        return [(name, (action.__doc__ or "").split("\n")[0]) for name, action in ACTIONS.items()]

    def do_exchange(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader, writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Refuse it."""
        raise problem(ValueError("there is no do_exchange here: publish by do_put, and read or take by do_get"))

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The queues that the user may read; `criteria`: those whose names begin so."""
        try:
            with self.listener.calls.open(context) as call:
                begin = criteria.decode()
                names = [name for name in list(call.engine.queues) if name.startswith(begin) and call.may("read", name)]
                return iter([self._info(call, name) for name in names if name in call.engine.queues])
        except Exception as error:
            raise problem(error) from None

    def get_flight_info(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """A queue."""
        try:
            with self.listener.calls.open(context) as call:
                return self._info(call, text(options_of(descriptor), "queue"))
        except Exception as error:
            raise problem(error) from None

    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        """The columns in which each queue is read. It raises nothing, since Flight would show where."""
        return flight.SchemaResult(columns_of_queues())

    def _info(self, call: Call, name: str) -> flight.FlightInfo:
        queue = call.queue("read", name)
        rows = queue.ready + queue.delayed + queue.outstanding + queue.history
        ticket = json.dumps({"queue": name}) if name.startswith("{") else name
        return flight.FlightInfo(
            columns_of_queues(), flight.FlightDescriptor.for_path(name.encode()),
            [flight.FlightEndpoint(ticket.encode(), [])], rows, -1)
