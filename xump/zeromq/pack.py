"""A queue of requests that a pack of workers shares: the part that all brokers have in common.

    requests -- one queue, in the order of arrival
        selector of worker 1   deliver, 1 credit
        selector of worker 2   deliver, 1 credit    …

A worker is a selector with one credit: it holds one request, and its reply pays for it. Among the workers that have credit the
engine serves the one that was served longest ago. This is a Wolfpack whose wolves have no queues of their own, because what is
handed to them is sent at once. When a worker dies its selector is deleted, and its request returns to its old place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xump import StoreFull, always, deliver
from xump_ext.zeromq.packing import unpack

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector
    from xump_ext.engine.delivery import Delivery


class PackWorker:
    """A worker as its broker sees it: it waits for a request, or has one."""

    __slots__ = ("client", "delivery", "identity", "kind", "pack", "selector")

    def __init__(self, identity: bytes, pack: Pack, selector: Selector) -> None:
        self.identity = identity
        """Under which the broker's socket knows it."""
        self.pack = pack
        """The pack that it belongs to."""
        self.selector = selector
        """Its selector, which has one credit."""
        self.delivery: Delivery | None = None
        """The request that it has; None: it waits for one."""
        self.client = b""
        """The client that asked."""
        self.kind = 0
        """The number that was packed with the request: how its client speaks."""

    def take(self, delivery: Delivery) -> list[bytes]:
        """Give it a request; returns the frames of its body."""
        self.delivery = delivery
        self.kind, frames = unpack(delivery.body)
        self.client = frames[0]
        return frames[1:]

    def settle(self) -> None:
        """Its request is answered: ack it."""
        delivery, self.delivery = self.delivery, None
        assert delivery is not None
        delivery.ack()


class Pack:
    """A queue of requests, and its workers.

    Args:
        engine: The engine that the queue is in.
        queue: The queue.
        destination: Under which name the engine hands out the requests of this broker.
    """

    def __init__(self, engine: Engine, queue: Queue, destination: str) -> None:
        self.engine = engine
        """The engine that the queue is in."""
        self.queue = queue
        """The requests: those that wait, and those that workers have."""
        self.workers = 0
        """How many workers there are."""
        self._destination = destination

    def join(self, identity: bytes) -> PackWorker:
        """A worker comes."""
        selector = self.engine.create_selector(self.queue, when=always, do=deliver(self._destination), credit=1)
        self.workers += 1
        return PackWorker(identity, self, selector)

    def leave(self, worker: PackWorker, *, redispatch: bool = True) -> None:
        """A worker goes. Its request returns to its old place, or, without `redispatch`, goes to the dead letters."""
        self.workers -= 1
        delivery, worker.delivery = worker.delivery, None
        worker.selector.disable()               # so that its request is not offered to it again
        if delivery is not None and redispatch:
            delivery.nack()                     # counts towards the delivery limit; deleting the selector alone does not
        elif delivery is not None:
            try:
                delivery.reject("worker died")
            except StoreFull:                   # there is no room for its dead letter: another worker gets it
                delivery.nack()
        worker.selector.delete(recall=False)    # a reply of Titanic's that has no room keeps its request

    @property
    def idle(self) -> bool:
        """Whether there are neither workers nor requests."""
        return not self.workers and not self.queue.ready and not self.queue.outstanding and not self.queue.delayed
