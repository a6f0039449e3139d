"""Titanic (RFC 9): requests and replies that are on the disk, for clients that go away and come back for the answer.

    titanic.request SERVICE BODY…       200 UUID            the request is on the disk, and will be done
                                        500                 it is not: the store is full, it is too long, or the service cannot be
    titanic.reply UUID                  200 BODY…           here is the reply, which stays
                                        300                 there is none yet
                                        400                 no such request: it was closed, is over its time, or never was
                                        500                 the service's rule has given it up, or the reply is too long
    titanic.close UUID                  200                 request and reply are gone

Two queues in one store on disk:

    titanic/requests -- MOVE to the queue of the service, in RAM, and from there to a worker
    titanic/replies -- each ends when it is closed, or after `keep` seconds

A request stays in its durable queue while it is moved on, until it is acked. The ack and the reply are one transaction: after a
crash there is the request, which is dispatched again, or the reply. Nothing is said to a client before it is true on the disk:
answers wait in `_unsaid` until the store's thread has said that what was done before is durable. One call-back is out at a time:
what comes meanwhile is for the next, and so for the next write to the disk.

A reply for which the store has no room waits in RAM, and the request with it, so that the work is not done twice. It is tried
again once an interval, and when a client has closed something. Its worker gets no other request until then: nothing pays for it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xump import always, field, move_to
from xump.credit import CREDIT_MAX
from xump.errors import StoreFull
from xump.zeromq.frames import ACCEPTED, PENDING, REFUSED, TITANIC, UNKNOWN
from xump.zeromq.limits import REPLIES_KEPT_SECONDS, REQUEST_BYTES_MAX
from xump_ext.zeromq.packing import pack, unpack

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.store_types import Store
    from xump.zeromq.pack import PackWorker
    from xump_ext.engine.delivery import Delivery

Send = Callable[[Sequence[bytes]], object]

UUIDS = 256
SERVICES = (b"titanic.request", b"titanic.reply", b"titanic.close")


class Titanic:
    """The three services, as a part of a Majordomo broker.

    Args:
        engine: The engine of the broker.
        store: Where requests and replies are kept: a store on disk, best a ring.
        prepare: Makes the queue of a service if there is none, and returns its name; None if there may be no more services.
        send: Is called with the frames of a message for a client, its identity first.
        wake: Is called from the store's thread when `pump` has something to do.
        prefix: The beginning of the names of the queues of services.
        keep: Seconds that a reply is kept if nobody closes it.
    """

    def __init__(
        self, engine: Engine, store: str | Store, prepare: Callable[[bytes], str | None], send: Send,
        wake: Callable[[], object], *, prefix: str = "mdp/", keep: float = REPLIES_KEPT_SECONDS,
    ) -> None:
        self._engine, self._prepare, self._send, self._wake = engine, prepare, send, wake
        with engine.building():
            self.requests = engine.create_queue("titanic/requests", store=store, unmatched="keep")
            """The requests that have no reply."""
            self.replies = engine.create_queue("titanic/replies", store=store, unmatched="keep", ttl=keep)
            """The replies that are not closed."""
            engine.create_selector(
                self.requests, name="titanic", when=always, do=move_to(field("address")), credit=CREDIT_MAX)
            self._pending = {_uuid(message.message_id): message.id for message in self.requests.browse()}
            self._replied = {_uuid(message.message_id): message.id for message in self.replies.browse()}
            for address in sorted({message.address for message in self.requests.browse()}):
                if prepare(address[len(prefix):].encode("latin-1")) != address:
                    raise ValueError(
                        f"the store has a request for the queue {address!r}, which this broker cannot make: its queues begin "
                        f"with {prefix!r}, and there are at most so many services as `xump.zeromq.limits` says")
        self._uuids: list[bytes] = []
        self._asked = False                         # the store, to tell when what was done is on the disk
        self._at_work: dict[bytes, PackWorker] = {}
        self._closed: set[bytes] = set()            # while a worker has it: its request is gone
        self._unkept: dict[bytes, tuple[Delivery | None, bytes]] = {}     # replies that have no room; None: it was given up
        self._unsaid: list[tuple[bytes, ...]] = []
        self._true: deque[tuple[list[tuple[bytes, ...]], list[bytes], BaseException | None]] = deque()
        self._new: list[bytes] = []                 # replies that are not on the disk yet
        self._hidden: set[bytes] = set()            # those, until they are

    # ---- what clients ask

    def ask(self, client: bytes, head: Sequence[bytes], name: bytes, body: Sequence[bytes]) -> None:
        """A client asks one of the services. `head`: the frames that begin the reply."""
        if name == b"titanic.request":
            self._request((client, *head), body)
        elif name == b"titanic.close":
            self._close(body[0])
            self._unsaid.append((client, *head, ACCEPTED))
        else:
            self._send([client, *head, *self._reply(body[0])])

    def _request(self, head: tuple[bytes, ...], body: Sequence[bytes]) -> None:
        queue = self._prepare(body[0]) if len(body) > 1 else None
        if queue is None:
            self._send([*head, REFUSED])
            return
        uuid = self._uuids.pop() if self._uuids else self._draw()
        packed = pack(TITANIC.number, [uuid, *body[1:]])
        if len(packed) > REQUEST_BYTES_MAX:
            self._send([*head, REFUSED])
            return
        try:
            self._pending[uuid] = self._engine.publish(self.requests, queue, packed, message_id=uuid.decode())
        except StoreFull:
            self._send([*head, REFUSED])
            return
        self._unsaid.append((*head, ACCEPTED, uuid))

    def _draw(self) -> bytes:
        """A new UUID. They are drawn many at a time: a call to the system gives up the GIL, and waits for it again."""
        drawn = os.urandom(16 * UUIDS).hex().encode()
        self._uuids = [drawn[at : at + 32] for at in range(0, len(drawn), 32)]
        return self._uuids.pop()

    def _reply(self, uuid: bytes) -> list[bytes]:
        if uuid in self._unkept and uuid not in self._pending:
            return [REFUSED]
        number = self._replied.get(uuid)
        if number is None or uuid in self._hidden:
            return [PENDING if uuid in self._pending or uuid in self._hidden else UNKNOWN]
        message = self.replies.fetch(number)
        if message is None:
            return [UNKNOWN]
        gone, frames = unpack(message.body)
        return [REFUSED] if gone else [ACCEPTED, *frames]

    def _close(self, uuid: bytes) -> None:
        if uuid in self._closed:
            return
        if uuid in self._at_work:
            self._closed.add(uuid)
            self._at_work[uuid].selector.disable()  # it is not free before it has replied; the reply is thrown away
            self.requests.delete(self._pending.pop(uuid))
        elif uuid in self._unkept:
            delivery, _ = self._unkept.pop(uuid)
            if delivery is not None:
                delivery.ack()
                del self._pending[uuid]
        elif uuid in self._pending:
            self.requests.delete(self._pending.pop(uuid))
        elif uuid in self._replied:
            self._hidden.discard(uuid)
            self.replies.delete(self._replied.pop(uuid))
        self._keep_unkept()                         # there is room now

    # ---- what becomes of requests

    def handed(self, worker: PackWorker) -> None:
        """A worker has got a request."""
        self._at_work[worker.client] = worker

    def done(self, worker: PackWorker, body: Sequence[bytes]) -> None:
        """A worker has replied."""
        uuid = worker.client
        del self._at_work[uuid]
        if uuid in self._closed:
            self._closed.discard(uuid)
            worker.delivery = None
            worker.selector.enable()
            return
        delivery, worker.delivery = worker.delivery, None
        reply = pack(0, body)
        self._keep(uuid, delivery, reply if len(reply) <= REQUEST_BYTES_MAX else pack(1, ()))

    def _keep(self, uuid: bytes, delivery: Delivery | None, reply: bytes) -> None:
        """Ack the request and keep its reply, both or neither. Without room both wait."""
        try:
            with self._engine.transaction() as tx:
                if delivery is not None:
                    tx.ack(delivery)
                tx.publish(self.replies, "", reply, message_id=uuid.decode())
        except StoreFull:
            self._unkept[uuid] = delivery, reply
            return
        self._unkept.pop(uuid, None)
        self._pending.pop(uuid, None)
        self._replied_now(uuid, tx.ids[-1])

    def _keep_unkept(self) -> None:
        """Try again to keep what had no room. Cost: O(the replies that wait)."""
        for uuid, (delivery, reply) in list(self._unkept.items()):
            self._keep(uuid, delivery, reply)

    def leaves(self, worker: PackWorker) -> None:
        """A worker that has a request goes."""
        del self._at_work[worker.client]
        if worker.client in self._closed:
            self._closed.discard(worker.client)
            worker.delivery = None

    def left(self, uuid: bytes) -> None:
        """The worker of a request has gone; the request is in its queue again, or was given up."""
        if uuid in self._pending and self.requests.fetch(self._pending[uuid]) is None:
            del self._pending[uuid]
            self._keep(uuid, None, pack(1, ()))

    def _replied_now(self, uuid: bytes, number: int) -> None:
        self._replied[uuid] = number
        self._hidden.add(uuid)
        self._new.append(uuid)

    # ---- what is on the disk

    def pump(self) -> None:
        """Say to clients what has become true, and ask the store to tell of what is new.

        Raises:
            StoreFailed: The store has failed. Close the engine, and open the store anew.
        """
        while self._true:
            said, shown, error = self._true.popleft()
            self._asked = False
            if error is not None:
                raise error
            self._hidden.difference_update(shown)
            for frames in said:
                self._send(frames)
        if (self._unsaid or self._new) and not self._asked:
            self._asked = True
            said, shown = self._unsaid, self._new
            self._unsaid, self._new = [], []
            self._engine.when_durable(lambda error: self._is_true(said, shown, error))

    def _is_true(self, said: list[tuple[bytes, ...]], shown: list[bytes], error: BaseException | None) -> None:
        self._true.append((said, shown, error))
        self._wake()

    def sweep(self) -> None:
        """Keep what had no room; forget the replies that ended with their time: the ids that are kept begin later.

        Cost: O(those).
        """
        self._keep_unkept()
        oldest = next(self.replies.browse(limit=1), None)
        while self._replied:
            uuid = next(iter(self._replied))
            if oldest is not None and self._replied[uuid] >= oldest.id:
                break
            del self._replied[uuid]

    def check(self) -> None:
        """Verify that what is known is what is in the queues."""
        for known, queue in ((self._pending, self.requests), (self._replied, self.replies)):
            kept = {_uuid(message.message_id): message.id for message in queue.browse()}
            if kept.items() - known.items():
                raise AssertionError(f"{queue.name} has messages {sorted(kept.values())}, known are {sorted(known.values())}")
        if self._at_work.keys() - self._pending.keys() != self._closed:
            raise AssertionError("workers have requests that are neither pending nor closed, or a closed one is with no worker")

    def is_closed(self, worker: PackWorker) -> bool:
        """Whether the request that the worker has is gone."""
        return self._at_work.get(worker.client) is worker and worker.client in self._closed


def _uuid(message_id: str | None) -> bytes:
    return (message_id or "").encode()
