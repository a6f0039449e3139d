"""The Majordomo broker, as a machine without sockets: frames and moments go in, frames come out.

A service is a queue and the pack of its workers. A request enters the queue of its service, which is made by the first request or
the first worker, and ends when it has neither. The commands that a worker may send depend on whether it is known and whether it
has a request:

                  READY       PARTIAL, FINAL  malformed ones  HEARTBEAT   DISCONNECT          REQUEST     silence
    unknown       joins       sent away       dropped         sent away   -                   sent away   -
    waiting       sent away   sent away       sent away       alive       leaves              sent away   forgotten
    busy          sent away   reply           sent away       alive       leaves, redispatch  sent away   forgotten, redispatch

"Sent away" is a DISCONNECT, and the broker forgets the worker; it opens a new socket and says READY again. A request whose worker
goes, in whatever way, returns to its place in the queue, unless the service's rule says that it must not be done twice. Malformed
messages are dropped and counted. A worker that sends one is invalid, as the RFCs have it, and must begin anew: one whose reply is
malformed takes its request for done, and would be busy for ever. To one that is gone nothing is sent; if it is there after all,
it is sent away when it speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xump.engine import Engine
from xump.errors import QueueFull
from xump.queue import Queue
from xump.store_types import Store
from xump.zeromq.frames import (
    BODY_FRAMES_MAX,
    CLIENTS,
    FRAMES_MAX,
    MDPC0X,
    MDPC01,
    MDPC02,
    MDPW0X,
    MDPW01,
    MDPW02,
    OK,
    TITANIC,
    WORKERS,
    ClientDialect,
    Command,
    WorkerDialect,
)
from xump.zeromq.limits import (
    HEARTBEAT_SECONDS,
    LIVENESS,
    PARTIALS_BYTES_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_TTL_SECONDS,
    SERVICE_BYTES_MAX,
    SERVICES_MAX,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    WORKERS_MAX,
)
from xump.zeromq.liveness import Liveness
from xump.zeromq.majordomo import mmi, titanic
from xump.zeromq.pack import Pack, PackWorker
from xump_ext.zeromq.packing import pack

_FINAL, _PARTIAL = Command.FINAL, Command.PARTIAL       # a member of an enum costs a call, which each reply would make


@dataclass(frozen=True, slots=True)
class ServiceRule:
    """How the requests of a service are treated."""

    redispatch: bool = True
    """Whether a request goes to another worker when its worker is gone. With False it goes to the dead letters, for work that
    must not be done twice."""
    delivery_limit: int | None = None
    """After so many workers that went with it, a request goes to the dead letters. None: no limit."""
    dead_letter: str | None = None
    """The queue for them; it must exist. None: they are dropped, and counted."""
    request_ttl: float | None = REQUEST_TTL_SECONDS
    """Seconds that a request waits for a worker. None: for ever."""

    def __post_init__(self) -> None:
        if self.request_ttl is not None and not 0 <= self.request_ttl < float("inf"):
            raise ValueError(f"request_ttl is {self.request_ttl} seconds, and must be 0 or more, or None: for ever")
        if self.delivery_limit is not None and self.delivery_limit < 1:
            raise ValueError(f"delivery_limit is {self.delivery_limit}, and must be 1 or more, or None: no limit")


class Service(Pack):
    """A service: its queue of requests, and its workers."""

    def __init__(self, engine: Engine, queue: Queue, destination: str, name: bytes, rule: ServiceRule) -> None:
        super().__init__(engine, queue, destination)
        self.name = name
        """Its name, as peers say it."""
        self.ttl = rule.request_ttl
        """Seconds that a request waits for a worker. It is said with each, and not to the queue: those of Titanic wait on."""
        self.rule = rule
        """How its requests are treated."""
        self.replies = {
            dialect.number: (
                () if dialect.partial is None else dialect.reply(dialect.partial, name), dialect.reply(dialect.final, name))
            for dialect in (*CLIENTS, TITANIC)}
        """Of each dialect of clients: the frames before the body of a part, none if it takes no parts; and of the last reply."""


class _Worker(PackWorker):
    __slots__ = ("dialect", "has_begun", "parts", "parts_bytes", "request")

    dialect: WorkerDialect
    request: tuple[bytes, ...]
    parts: list[bytes]
    parts_bytes: int
    has_begun: bool             # the client has a part of the reply


PREFIX = "mdp/"
"""Of the names of the queues of services, unless another one is given."""


class Majordomo:
    """The broker.

    Args:
        engine: Where the requests wait.
        send: Is called with the frames of a message for a peer, its identity first.
        heartbeat: Seconds between heartbeats.
        liveness: After so many intervals of silence a worker is gone.
        rule: How to treat the requests of services that are not in `rules`.
        rules: How to treat the requests of some services, by name.
        prefix: The beginning of the names of the queues of services.

    Raises:
        ValueError: The heartbeat or the liveness is wrong, or the queue for dead letters does not exist.
    """

    def __init__(
        self, engine: Engine, send: Callable[[Sequence[bytes]], object], *, heartbeat: float = HEARTBEAT_SECONDS,
        liveness: int = LIVENESS, rule: ServiceRule | None = None, rules: Mapping[bytes, ServiceRule] | None = None,
        prefix: str = PREFIX,
    ) -> None:
        self.engine = engine
        """Where the requests wait."""
        self._send = send
        self._alive = Liveness(heartbeat, liveness)
        self._rule = rule or ServiceRule()
        self._rules = dict(rules or {})
        for known in (self._rule, *self._rules.values()):           # now, and not when the first request comes
            if known.dead_letter is not None and known.dead_letter not in engine.queues:
                raise ValueError(f"the queue {known.dead_letter!r} for dead letters does not exist: create it before the broker")
        self._prefix = prefix
        self._destination = f"zeromq/{prefix}"
        self.services: dict[bytes, Service] = {}
        """The services that have a worker or a request, by name."""
        self.dropped = 0
        """Malformed messages, and requests for which there was no room."""
        self._workers: dict[bytes, _Worker] = {}
        self._by_selector: dict[int, _Worker] = {}
        self._next_sweep = float("-inf")            # at once, when the first service is there
        self.admits: Callable[[], bool] | None = None
        """Says whether a request of a client is let in; None: each is. A server of a pair that is not active lets none in."""
        self.refused = 0
        """Requests that were not let in."""
        self._replies: list[list[bytes]] = []       # for `pump`
        self._titanic: titanic.Titanic | None = None
        self._reserved: tuple[bytes, ...] = mmi.RESERVED
        self._heads: dict[tuple[bytes, bytes], Callable[[Sequence[bytes], float], None]] = {
            (b"", MDPC01): self._client_01, (b"", MDPC02): self._client_02_req, (b"", MDPW01): self._worker_01,
            (b"", MDPW02): self._worker_02_leading, (b"", MDPC0X): self._client_0x, (b"", MDPW0X): self._worker_0x,
        }

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    # ---- what comes in

    def handle(self, frames: Sequence[bytes], now: float) -> None:
        """A message came, the identity of its sender first. It may be anything."""
        if not 3 <= len(frames) <= FRAMES_MAX:
            self._malformed(frames[0])
        elif handler := self._heads.get((frames[1], frames[2])):
            handler(frames, now)
        elif frames[1] == MDPC02:
            self._client_02(frames, 2, CLIENTS[1])
        elif frames[1] == MDPW02:
            self._worker(frames, 2, WORKERS[1], now)
        else:
            self._malformed(frames[0])

    def _malformed(self, identity: bytes) -> None:
        """Drop a message. If its sender is a worker, it must begin anew."""
        self.dropped += 1
        worker = self._workers.get(identity)
        if worker is not None:
            self._send_away(identity, worker.dialect)

    def _client_01(self, frames: Sequence[bytes], now: float) -> None:
        self._client_without_commands(frames, CLIENTS[0])

    def _client_0x(self, frames: Sequence[bytes], now: float) -> None:
        self._client_without_commands(frames, CLIENTS[4])

    def _client_without_commands(self, frames: Sequence[bytes], dialect: ClientDialect) -> None:
        if len(frames) < 5:                 # identity, empty, header, service, body
            self._malformed(frames[0])
        else:
            self._request(frames[0], frames[3], frames[4:], dialect)

    def _client_02_req(self, frames: Sequence[bytes], now: float) -> None:
        self._client_02(frames, 3, CLIENTS[3] if len(frames) > 3 and frames[3] == CLIENTS[3].request else CLIENTS[2])

    def _client_02(self, frames: Sequence[bytes], at: int, dialect: ClientDialect) -> None:
        if len(frames) < at + 3 or frames[at] != dialect.request:
            self._malformed(frames[0])
        else:
            self._request(frames[0], frames[at + 1], frames[at + 2:], dialect)

    def _worker_01(self, frames: Sequence[bytes], now: float) -> None:
        self._worker(frames, 3, WORKERS[0], now)

    def _worker_02_leading(self, frames: Sequence[bytes], now: float) -> None:
        self._worker(frames, 3, WORKERS[2], now)

    def _worker_0x(self, frames: Sequence[bytes], now: float) -> None:
        self._worker(frames, 3, WORKERS[3], now)

    def _request(self, client: bytes, name: bytes, body: Sequence[bytes], dialect: ClientDialect) -> None:
        if self.admits is not None and not self.admits():
            self.refused += 1
            return
        if name.startswith(self._reserved):
            self._answer(client, name, body, dialect.reply(dialect.final, name))
            return
        service = self.services.get(name) or self._named(name)
        if service is None:
            if 0 < len(name) <= SERVICE_BYTES_MAX:
                self.dropped += 1           # there are too many services
            else:
                self._malformed(client)
            return
        packed = pack(dialect.number, [client, *body])
        if len(packed) > REQUEST_BYTES_MAX:
            self.dropped += 1
            return
        try:
            self.engine.publish(service.queue, "", packed, ttl=service.ttl)
        except QueueFull:
            self.dropped += 1

    def _answer(self, client: bytes, name: bytes, body: Sequence[bytes], head: tuple[bytes, ...]) -> None:
        """Answer a request for a service of the broker's own."""
        if self._titanic is not None and name in titanic.SERVICES:
            self._titanic.ask(client, head, name, body)
        elif self._titanic is not None and name == b"mmi.service" and body[0] in titanic.SERVICES:
            self._send([client, *head, OK])
        else:
            self._send([client, *head, *mmi.answer(self.services, name, body)])

    def open_titanic(self, store: str | Store, wake: Callable[[], object] = lambda: None, **options: Any) -> titanic.Titanic:
        """Have Titanic's services, and dispatch what is in its store.

        Args:
            store: A store on disk, of this machine's engine.
            wake: Is called from the store's thread when `pump` has something to do.
            options: As for `Titanic`: `keep`.
        """
        self._reserved = (*mmi.RESERVED, *titanic.SERVICES)
        self._titanic = titanic.Titanic(self.engine, store, self._service_queue, self._send, wake, prefix=self._prefix, **options)
        return self._titanic

    def _service_queue(self, name: bytes) -> str | None:
        if name.startswith(self._reserved):
            return None
        service = self.services.get(name) or self._named(name)
        return None if service is None else service.queue.name

    def _named(self, name: bytes) -> Service | None:
        """A new service, which a client has named; None: the name is wrong, or there are too many. Workers may bring others: they
        are bounded themselves."""
        if not 0 < len(name) <= SERVICE_BYTES_MAX or len(self.services) >= SERVICES_MAX:
            return None
        return self._new_service(name)

    def _new_service(self, name: bytes) -> Service:
        rule = self._rules.get(name, self._rule)
        # Latin-1 has a character for each byte, so that names differ as their bytes do.
        queue = self.engine.create_queue(
            self._prefix + name.decode("latin-1"), unmatched="keep", limit=WAITING_MAX, limit_bytes=WAITING_BYTES_MAX,
            dead_letter=rule.dead_letter, delivery_limit=rule.delivery_limit)
        service = self.services[name] = Service(self.engine, queue, self._destination, name, rule)
        return service

    # ---- workers

    def _worker(self, frames: Sequence[bytes], at: int, dialect: WorkerDialect, now: float) -> None:
        command = dialect.commands.get(frames[at]) if len(frames) > at else None
        rest = len(frames) - at - 1
        if command is _FINAL or command is _PARTIAL:
            if rest < 3 or frames[at + 2]:              # address, empty, body
                self._malformed(frames[0])
            else:
                self._replied(frames[0], dialect, command is _FINAL, frames[at + 1], frames[at + 3:], now)
        elif command is Command.READY:
            if rest != 1 or not 0 < len(frames[at + 1]) <= SERVICE_BYTES_MAX:
                self._malformed(frames[0])
            else:
                self._ready(frames[0], dialect, frames[at + 1], now)
        elif command is Command.HEARTBEAT and not rest:
            if self._known(frames[0], dialect):
                self._alive.heard(frames[0], now)
        elif command is Command.DISCONNECT and not rest:
            if frames[0] in self._workers:
                self._forget(frames[0])
        elif command is Command.REQUEST and rest >= 3 and not frames[at + 2]:
            self._send_away(frames[0], dialect)         # valid, and unexpected in every state: only brokers send it
        else:
            self._malformed(frames[0])

    def _known(self, identity: bytes, dialect: WorkerDialect) -> _Worker | None:
        """The worker, if it is known and speaks as it did. Else it is sent away."""
        worker = self._workers.get(identity)
        if worker is not None and worker.dialect is dialect:
            return worker
        self._send_away(identity, dialect)
        return None

    def _send_away(self, identity: bytes, dialect: WorkerDialect) -> None:
        if identity in self._workers:
            self._forget(identity)
        self._send([identity, *dialect.command(Command.DISCONNECT)])

    def _ready(self, identity: bytes, dialect: WorkerDialect, name: bytes, now: float) -> None:
        service = None
        if identity not in self._workers and not name.startswith(self._reserved) and len(self._workers) < WORKERS_MAX:
            service = self.services.get(name) or self._new_service(name)
        if service is None:
            self._send_away(identity, dialect)
            return
        selector = service.join(identity).selector
        worker = self._workers[identity] = self._by_selector[selector.id] = _Worker(identity, service, selector)
        worker.dialect, worker.parts, worker.parts_bytes, worker.has_begun = dialect, [], 0, False
        worker.request = (identity, *dialect.command(Command.REQUEST))
        self._alive.add(identity, now)

    def _replied(
        self, identity: bytes, dialect: WorkerDialect, final: bool, client: bytes, body: Sequence[bytes], now: float,
    ) -> None:
        worker = self._workers.get(identity)
        if worker is None or worker.dialect is not dialect or worker.delivery is None or worker.client != client:
            self._send_away(identity, dialect)          # nobody asked it for this
            return
        self._alive.heard(identity, now)
        service = worker.pack
        assert isinstance(service, Service)
        part_head, final_head = service.replies[worker.kind]
        if not final and part_head:
            worker.has_begun = True
            self._send([client, *part_head, *body])
            return
        if not final or worker.parts:
            worker.parts += body
            worker.parts_bytes += sum(map(len, body))
            if worker.parts_bytes > PARTIALS_BYTES_MAX or len(worker.parts) > BODY_FRAMES_MAX:
                self._send_away(identity, dialect)
                return
        if not final:
            return
        if worker.parts:
            body = worker.parts
        if worker.kind == TITANIC.number:
            assert self._titanic is not None
            self._titanic.done(worker, body)
            return
        worker.settle()
        self._replies.append([client, *final_head, *body])

    def _forget(self, identity: bytes) -> None:
        worker = self._workers.pop(identity)
        del self._by_selector[worker.selector.id]
        self._alive.remove(identity)
        service = worker.pack
        assert isinstance(service, Service)
        of_titanic = self._titanic if worker.delivery is not None and worker.kind == TITANIC.number else None
        if of_titanic is not None:
            of_titanic.leaves(worker)
        # The parts of another worker would follow those that the client has, so it asks once more.
        service.leave(worker, redispatch=service.rule.redispatch and not worker.has_begun)
        if of_titanic is not None:
            of_titanic.left(worker.client)

    # ---- what goes out

    def pump(self, now: float) -> None:
        """Hand out the requests for which there is a worker, then the replies that came: a worker with nothing to do costs more
        than a client that waits a little longer. Cost: O(requests and replies that are handed out)."""
        for delivery in self.engine.deliveries(self._destination):
            worker = self._by_selector[delivery.selector.id]
            body = worker.take(delivery)
            worker.parts, worker.parts_bytes, worker.has_begun = [], 0, False
            self._send([*worker.request, worker.client, b"", *body])
            self._alive.told(worker.identity, now)
            if worker.kind == TITANIC.number and self._titanic is not None:
                self._titanic.handed(worker)
        if self._titanic is not None:
            self._titanic.pump()
        for reply in self._replies:
            self._send(reply)
        self._replies.clear()

    def due(self) -> float | None:
        """When `tick` has something to do; None: there are neither workers nor requests."""
        beats = self._alive.due()
        sweep = self._next_sweep if self.services else None
        if beats is None:
            return sweep
        return beats if sweep is None else min(beats, sweep)

    def tick(self, now: float) -> None:
        """Forget the workers that are gone, send heartbeats to the others, and end the services that have neither workers nor
        requests.

        Cost: O(workers that are due); once an interval O(services).
        """
        self.engine.tick()
        for identity in self._alive.expired(now):
            self._forget(identity)
        for identity in self._alive.silent(now):
            self._send([identity, *self._workers[identity].dialect.command(Command.HEARTBEAT)])
        if now >= self._next_sweep:
            self._next_sweep = now + self._alive.interval
            for service in [service for service in self.services.values() if service.idle]:
                del self.services[service.name]
                self.engine.delete_queue(service.queue)
            if self._titanic is not None:
                self._titanic.sweep()

    def shut(self) -> None:
        """Tell all workers that the broker goes. Requests that wait stay in their queues."""
        for identity in list(self._workers):
            self._send_away(identity, self._workers[identity].dialect)

    def check(self) -> None:
        """Verify that the machine, its services, its heartbeats and the engine agree."""
        self.engine.check()
        self._alive.check()
        if len(self._alive) != len(self._workers) or len(self._by_selector) != len(self._workers):
            raise AssertionError(
                f"there are {len(self._workers)} workers, {len(self._alive)} heartbeats and {len(self._by_selector)} selectors")
        if self._titanic is not None:
            self._titanic.check()
        for service in self.services.values():
            workers = [worker for worker in self._workers.values() if worker.pack is service]
            if service.workers != len(workers):
                raise AssertionError(f"service {service.name!r} counts {service.workers} workers, and has {len(workers)}")
            busy = sum(worker.delivery is not None and not (self._titanic is not None and self._titanic.is_closed(worker))
                       for worker in workers)
            if service.queue.outstanding < busy:
                raise AssertionError(f"{busy} workers of {service.name!r} are busy, with {service.queue.outstanding} requests")
