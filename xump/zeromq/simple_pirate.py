"""Simple Pirate: a queue between REQ clients and REQ workers, the worker that was served longest ago first.

A worker says READY, one frame 01, and each reply says that it is ready again. There are no heartbeats, so a worker that dies
keeps its request, and its client asks again; what it asks goes to another worker. The queue forgets a worker

- whose connection is gone when a request is to be sent to it: the request goes to the next one;
- whose identity comes back with a new READY: what it had goes to the next one;
- that has had a request for `reply_limit` seconds: what it had is dropped, since its client has given up. If its reply comes
  after all, nobody gets it, and it counts as READY.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xump.engine import Engine
from xump.errors import QueueFull
from xump.zeromq.frames import FRAMES_MAX, PIRATE_READY
from xump.zeromq.limits import REPLY_LIMIT_SECONDS, REQUEST_BYTES_MAX, WAITING_BYTES_MAX, WAITING_MAX, WORKERS_MAX
from xump.zeromq.pack import Pack, PackWorker
from xump_ext.zeromq.packing import pack

Send = Callable[[Sequence[bytes]], object]


def stack_of(frames: list[bytes]) -> int:
    """How many frames the stack of addresses has, the empty one at its end counted; 0: there is none, or nothing behind it."""
    for at, frame in enumerate(frames, start=1):
        if not frame:
            return at if at < len(frames) else 0
    return 0


class _Worker(PackWorker):
    __slots__ = ("stack",)

    stack: list[bytes]
    """Of the request that it has: the addresses, and the empty frame at their end. Its reply begins with the same."""


NAME = "pirates"
"""Of the queue of requests, unless another one is given."""


class SimplePirate:
    """The queue of the Simple Pirate, as a machine without sockets.

    Args:
        engine: Where the requests wait.
        to_client: Is called with the frames of a message for a client, its identity first.
        to_worker: The same for a worker. It returns False if the worker's connection is gone.
        name: The name of the queue of requests; it is created if it does not exist.
        request_ttl: Seconds after which a request that no worker has taken is dropped; None: never.
        reply_limit: Seconds after which a worker that has not replied is forgotten.
    """

    def __init__(
        self, engine: Engine, to_client: Send, to_worker: Send, *, name: str = NAME, request_ttl: float | None = None,
        reply_limit: float = REPLY_LIMIT_SECONDS,
    ) -> None:
        if not reply_limit > 0:
            raise ValueError(f"the limit of a reply is {reply_limit} seconds, and must be more than 0")
        self.engine = engine
        """Where the requests wait."""
        self._to_client = to_client
        self._to_worker = to_worker
        self._destination = f"zeromq/{name}"
        _queue = engine.create_queue(name, unmatched="keep", ttl=request_ttl, limit=WAITING_MAX, limit_bytes=WAITING_BYTES_MAX)
        self.pack = Pack(engine, _queue, self._destination)
        """The requests and the workers."""
        self.admits: Callable[[], bool] | None = None
        """Says whether a request of a client is let in; None: each is. A server of a pair that is not active lets none in."""
        self.refused = 0
        """Requests that were not let in."""
        self.dropped = 0
        """Malformed messages, and requests for which there was no room."""
        self._workers: dict[bytes, _Worker] = {}
        self._by_selector: dict[int, _Worker] = {}
        self._reply_limit = reply_limit
        self._busy: dict[bytes, float] = {}         # since when, in this order

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    def from_client(self, frames: list[bytes], now: float) -> None:
        """A message came from a client: IDENTITY ADDRESS… "" BODY…"""
        stack = stack_of(frames) if len(frames) <= FRAMES_MAX else 0
        if stack < 2:
            self.dropped += 1
            return
        if self.admits is not None and not self.admits():
            self.refused += 1
            return
        packed = pack(stack, frames)
        if len(packed) > REQUEST_BYTES_MAX:
            self.dropped += 1
            return
        try:
            self.engine.publish(self.pack.queue, "", packed)
        except QueueFull:
            self.dropped += 1

    def from_worker(self, frames: list[bytes], now: float) -> None:
        """A message came from a worker: IDENTITY "" READY, or IDENTITY "" ADDRESS… "" BODY…"""
        if len(frames) == 3 and not frames[1] and frames[2] == PIRATE_READY:
            if frames[0] in self._workers:
                self._forget(frames[0])
            self._join(frames[0])
        elif 5 <= len(frames) <= FRAMES_MAX and not frames[1] and stack_of(frames[2:]) > 1:
            if not self._replied(frames[0], frames[2:]):
                self.dropped += 1
                if frames[0] not in self._workers:
                    self._join(frames[0])
        else:
            self.dropped += 1

    def pump(self, now: float) -> None:
        """Hand out the requests for which there is a worker."""
        while self._hand_out(now):
            pass

    def _hand_out(self, now: float) -> bool:
        """Returns whether a worker was gone, so that its request is there again."""
        gone = False
        for delivery in self.engine.deliveries(self._destination):
            worker = self._by_selector[delivery.selector.id]
            rest = worker.take(delivery)
            worker.stack = [worker.client, *rest[: worker.kind - 1]]
            if self._to_worker([worker.identity, *self._envelope, worker.client, *rest]) is False:
                self._forget(worker.identity)
                gone = True
            else:
                self._handed(worker, now)
        return gone

    def due(self) -> float | None:
        """When `tick` has something to do; None: never."""
        oldest = next(iter(self._busy.values()), None)
        return None if oldest is None else oldest + self._reply_limit

    def tick(self, now: float) -> None:
        """Forget the workers that have not replied for too long."""
        self.engine.tick()
        for identity, since in list(self._busy.items()):
            if since + self._reply_limit > now:
                break
            self._forget(identity, redispatch=False)
            self.dropped += 1

    _envelope: tuple[bytes, ...] = (b"",)

    def _join(self, identity: bytes) -> None:
        if len(self._workers) >= WORKERS_MAX:
            self.dropped += 1
            return
        selector = self.pack.join(identity).selector
        self._workers[identity] = self._by_selector[selector.id] = _Worker(identity, self.pack, selector)

    def _forget(self, identity: bytes, *, redispatch: bool = True) -> None:
        worker = self._workers.pop(identity)
        del self._by_selector[worker.selector.id]
        self._busy.pop(identity, None)
        self.pack.leave(worker, redispatch=redispatch)

    def _replied(self, identity: bytes, reply: list[bytes]) -> bool:
        """A worker says ADDRESS… "" BODY…; returns whether somebody asked it for that."""
        worker = self._workers.get(identity)
        if worker is None or worker.delivery is None:
            return False
        stack = worker.stack
        if len(reply) <= len(stack) or reply[: len(stack)] != stack:
            return False
        self._busy.pop(identity, None)
        worker.settle()
        self._to_client(reply)
        return True

    def _handed(self, worker: PackWorker, now: float) -> None:
        """A request was sent to a worker."""
        self._busy[worker.identity] = now

    def check(self) -> None:
        """Verify that the machine, its pack and the engine agree."""
        self.engine.check()
        if {worker.selector.id for worker in self._workers.values()} != self._by_selector.keys():
            raise AssertionError("a worker is not known by its selector")
        if self.pack.workers != len(self._workers):
            raise AssertionError(f"the pack has {self.pack.workers} workers, the queue knows {len(self._workers)}")
        if not self._busy.keys() <= self._workers.keys():
            raise AssertionError("a worker is busy that the queue does not know")
