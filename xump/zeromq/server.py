"""Servers: the one loop of a broker, with sockets under its machine.

One thread, one loop: wait for a message or a moment; read what there is, up to a batch; hand out requests; do what is due. `stop`
and `wake` may be called from any thread: they send an empty message through `inproc`, to the socket that the loop waits on.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import zmq

from xump.engine import Engine
from xump.errors import StoreLocked
from xump.zeromq.binary_star import BinaryStar
from xump.zeromq.limits import BATCH, LATE_BATCHES, LATE_SECONDS, WAIT_MS_MAX
from xump.zeromq.majordomo.machine import PREFIX, Majordomo
from xump.zeromq.messages import Messages, messages
from xump.zeromq.pair import Pair, Paired
from xump.zeromq.paranoid_pirate import ParanoidPirate
from xump.zeromq.simple_pirate import NAME, SimplePirate
from xump.zeromq.sockets import Keys, bind

_numbers = itertools.count(1)
_serving: weakref.WeakKeyDictionary[Engine, weakref.WeakValueDictionary[str, Server]] = weakref.WeakKeyDictionary()
"""The servers of an engine that are not closed, by the name that their requests wait under."""

Handler = Callable[[list[bytes], float], None]
"""Gets the frames of a message, and the moment."""


class Machine(Protocol):
    """The part of a machine that a loop needs."""

    admits: Callable[[], bool] | None
    """Says whether a request of a client is let in; None: each is."""

    def pump(self, now: float) -> None:
        """Hand out requests."""

    def due(self) -> float | None:
        """When `tick` has something to do."""

    def tick(self, now: float) -> None:
        """Do what is due."""


class Server:
    """Runs a machine over its sockets. Its constructor binds; `run` serves until `stop`; `close` closes the sockets."""

    def __init__(self, context: zmq.Context[Any] | None, clock: Callable[[], float], engine: Engine | None) -> None:
        self._context: zmq.Context[Any] = context or zmq.Context.instance()
        self._clock = clock
        self._sockets: list[zmq.Socket[bytes]] = []
        self._handlers: list[tuple[zmq.Socket[bytes], Messages, Handler]] = []
        self._endpoints: list[str] = []
        self._stopping = False
        self._bell_name = f"inproc://xump-stop-{next(_numbers)}"
        self._bell: zmq.Socket[bytes] | None = None
        self._bell_identity = os.urandom(16)
        self._ringing = threading.Lock()
        self._rung = False
        self._waits_ms = -1
        self.engine = Engine() if engine is None else engine
        """Where the requests wait."""
        self.star: BinaryStar | None = None
        """The state of a server that is one of a pair."""
        self._machine: Machine | Paired
        self._is_prefixed = False               # whether the queues of its services begin with its name

    def _take_name(self, option: str, name: str) -> None:
        """Two servers with one name would hand out each other's requests, to workers and clients that the other one knows.

        Raises:
            ValueError: A server of this engine that is not closed has it.
        """
        servers = _serving.setdefault(self.engine, weakref.WeakValueDictionary())
        for other, server in servers.items():
            # A prefix begins the names of services that clients choose.
            if name == other or (server._is_prefixed and name.startswith(other)) or (
                    option == "prefix" and other.startswith(name)):
                raise ValueError(f"{option} is {name!r}, under which requests of another server of this engine wait, which has "
                                 f"{other!r}: close that one first, or give this one another {option}=, or an engine of its own")
        self._is_prefixed = option == "prefix"
        servers[name] = self

    def _open(self, endpoint: str, keys: Keys | None, public: bool, identity: bytes | None = None) -> zmq.Socket[bytes]:
        with self._closing():
            socket = bind(self._context, zmq.ROUTER, endpoint, keys, public=public, identity=identity)
        # A peer that comes again under its identity, while its old connection is not known to be dead, is let in.
        socket.router_handover = True
        self._endpoints.append(bytes(socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode())
        if self._bell is None:
            socket.bind(self._bell_name)
            self._bell = self._context.socket(zmq.DEALER)
            self._bell.linger = 0
            self._bell.routing_id = self._bell_identity
            self._bell.connect(self._bell_name)
        self._sockets.append(socket)
        return socket

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Close what is open if the block raises: there will be no object to call `close` of."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _serve(self, machine: Machine, handlers: Mapping[zmq.Socket[bytes], Handler], pair: Pair | None) -> None:
        self._machine = machine
        self._handlers = [(socket, messages(socket), handler) for socket, handler in handlers.items()]
        if pair is not None:
            with self._closing():
                paired = Paired(machine, pair, self._context, self._clock, self._activate)
            self._sockets += paired.sockets
            self.star = paired.star
            machine.admits = lambda: paired.star.admits(self._clock())
            self._machine = paired
            self._handlers.append((paired.heard, messages(paired.heard), paired.from_peer))

    def _activate(self) -> bool:
        """The server is about to become the active one of its pair; returns whether it can."""
        return True

    @property
    def endpoints(self) -> list[str]:
        """Where the sockets are bound, with the ports that were chosen if `:*` was asked for."""
        return list(self._endpoints)

    def run(self) -> None:
        """Serve until `stop` is called."""
        machine, clock = self._machine, self._clock
        poller = zmq.Poller()
        for socket, _, _ in self._handlers:
            poller.register(socket, zmq.POLLIN)
        looked = clock()
        while not self._stopping:
            now = clock()
            due = machine.due()
            if due is not None and now >= due:
                if now - max(due, looked) > LATE_SECONDS:       # what became due since it looked is not late
                    self._read_all(now)
                machine.tick(now)
                machine.pump(now)
                looked = now
                continue
            timeout = None if due is None else max(1, int((due - now) * 1000) + 1)
            if len(self._handlers) == 1:
                self._serve_one(*self._handlers[0], timeout)
            else:
                ready = dict(poller.poll(timeout))
                for socket, incoming, handler in self._handlers:
                    if socket in ready:
                        self._read(incoming, handler, clock())
            self._before_pump()
            looked = clock()
            machine.pump(looked)

    def _before_pump(self) -> None:
        """Do what threads of the server have left to do."""

    def _serve_one(self, socket: zmq.Socket[bytes], incoming: Messages, handler: Handler, timeout: int | None) -> None:
        """One socket needs no poll: a receive that waits is cheaper."""
        if timeout is None:
            timeout = WAIT_MS_MAX
        if not timeout / 2 <= self._waits_ms <= timeout:        # to wake too early does no harm, to set it has its cost
            self._waits_ms = socket.rcvtimeo = timeout
        frames = incoming.receive(wait=True)
        if frames is not None:
            now = self._clock()
            if len(frames) != 2 or not self._is_bell(frames):
                handler(frames, now)
            self._read(incoming, handler, now)

    def _read_all(self, now: float) -> None:
        """The server stood still: it hears what its peers have said meanwhile, before it takes them for dead. Those who never
        stop do not hold it up for ever."""
        for _, incoming, handler in self._handlers:
            for _ in range(LATE_BATCHES):
                if not self._read(incoming, handler, now):
                    break

    def _read(self, incoming: Messages, handler: Handler, now: float) -> bool:
        """Read a batch; returns whether there may be more."""
        for _ in range(BATCH):
            frames = incoming.receive()
            if frames is None:
                return False
            if len(frames) != 2 or not self._is_bell(frames):
                handler(frames, now)
        return True

    def _is_bell(self, frames: list[bytes]) -> bool:
        if frames[0] != self._bell_identity:
            return False
        self._rung = False              # before the loop looks at what it was rung for
        return True

    def stop(self) -> None:
        """End `run`, from any thread. Calling it twice does nothing more."""
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """Let `run` look at once whether there is something to do, from any thread."""
        with self._ringing:
            if self._bell is not None and not self._rung:
                self._rung = True
                self._bell.send(b"")

    def close(self) -> None:
        """Close the sockets. The engine stays open: it may be yours. If it was made for this server, close it first."""
        with self._ringing:             # first: a bell whose ROUTER is closed would wait for another one when it is rung
            if self._bell is not None:
                self._bell.close()
            self._bell = None
        for socket in self._sockets:
            socket.close()
        self._sockets, self._handlers = [], []
        servers = _serving.setdefault(self.engine, weakref.WeakValueDictionary())
        for name in [name for name, server in servers.items() if server is self]:
            del servers[name]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class MajordomoBroker(Server):
    """A Majordomo broker on one socket, for clients and workers of MDP 0.1 and 0.2.

    Args:
        endpoint: Where to bind: `tcp://127.0.0.1:5555`; port `*` is a free one.
        engine: Where the requests wait; None: an engine of its own, in RAM.
        keys: CURVE keys; without them only this machine may come, unless `public`.
        public: Let other machines in without keys.
        context: The context of the program; None: the global one.
        clock: Seconds, for heartbeats. The engine's clock says when requests expire.
        titanic: The path of a ring store, which is created if there is none: the broker has Titanic's services. None: it has not.
        pair: The server is one of a pair, and Titanic's store is opened by the active one; None: it is alone.
        options: As for `Majordomo`: `heartbeat`, `liveness`, `rule`, `rules`, `prefix`.

    Raises:
        ValueError: Other machines could come, and there are no keys; or an option is wrong; or another server of the engine that
            is not closed has the same prefix.
        zmq.ZMQError: The endpoint is wrong, or in use.
    """

    def __init__(
        self, endpoint: str, *, engine: Engine | None = None, keys: Keys | None = None, public: bool = False,
        context: zmq.Context[Any] | None = None, clock: Callable[[], float] = time.monotonic, titanic: str | None = None,
        pair: Pair | None = None, **options: Any,
    ) -> None:
        super().__init__(context, clock, engine)
        self._take_name("prefix", options.get("prefix", PREFIX))
        _socket = self._open(endpoint, keys, public)
        with self._closing():
            self.machine = Majordomo(self.engine, messages(_socket).send, **options)
            """The protocol, and the services."""
            self._titanic = titanic
            if pair is None:
                self._activate()
        self._serve(self.machine, {_socket: self.machine.handle}, pair)

    def _activate(self) -> bool:
        """Open Titanic's store. One that another server has is not opened, and so this one does not become active."""
        if self._titanic is None:
            return True
        try:
            store = self.engine.create_store("titanic", "ring", path=self._titanic)
        except StoreLocked:
            if self.star is None:
                raise
            return False
        self.machine.open_titanic(store, self.wake)
        return True

    def run(self) -> None:
        """Serve until `stop` is called, and tell the workers that the broker goes."""
        super().run()
        self.machine.shut()


class PirateBroker(Server):
    """A Pirate queue: clients at one endpoint, workers at the other.

    Args:
        frontend, backend: Where to bind for clients, and for workers.
        paranoid: Whether workers speak PPP, with heartbeats; else they are REQ sockets that say READY.
        engine, keys, public, context, clock, pair: As for `MajordomoBroker`.
        options: As for `ParanoidPirate` or `SimplePirate`.

    Raises:
        ValueError: As for `MajordomoBroker`; it has a name instead of a prefix.
    """

    def __init__(
        self, frontend: str, backend: str, *, paranoid: bool = True, engine: Engine | None = None, keys: Keys | None = None,
        public: bool = False, context: zmq.Context[Any] | None = None, clock: Callable[[], float] = time.monotonic,
        pair: Pair | None = None, **options: Any,
    ) -> None:
        super().__init__(context, clock, engine)
        self._take_name("name", options.get("name", NAME))
        _clients = self._open(frontend, keys, public)
        _workers = self._open(backend, keys, public)
        _kind = ParanoidPirate if paranoid else SimplePirate
        with self._closing():
            _workers.router_mandatory = not paranoid        # a REQ worker has no heartbeats: that its connection is gone says it
            self.machine: SimplePirate = _kind(self.engine, messages(_clients).send, messages(_workers).send, **options)
            """The protocol, and the workers."""
        _handlers = {_clients: self.machine.from_client, _workers: self.machine.from_worker}
        self._serve(self.machine, _handlers, pair)
