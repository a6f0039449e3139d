"""Queues of a reopened store that wait for a broker: their dead letters go to its exchanges, which are not there before it has
read them. If such a queue were released sooner, what has expired meanwhile would be lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from xump.errors import QueueNotFound

if TYPE_CHECKING:
    from xump.queue import Queue

BROKER_QUEUE = "amqp.queue"
"""The name in the map of a queue under which a broker keeps what it knows of it."""
EXCHANGES = "amq.x/"
"""The queue of an exchange has a name that begins with it."""


class AwaitingBroker:
    """The queues of an engine that wait for a broker."""

    def __init__(self) -> None:
        self.queues: list[Queue] = []
        """They are held, or have been deleted meanwhile."""
        self._declared_by_broker: set[Queue] = set()
        self._were_read = False         # the exchanges of some store
        self._lock = threading.Lock()

    def keep_waiting(self, held: list[Queue]) -> list[Queue]:
        """A store was opened, whose queues are held. Keeps those that wait for a broker; returns the others."""
        others = []
        for queue in held:
            try:
                needs = (queue.dead_letter or "").startswith(EXCHANGES)
                declared = needs and BROKER_QUEUE in queue.meta
            except QueueNotFound:           # another thread deleted it just now
                continue
            with self._lock:
                if declared or (needs and not self._were_read):
                    self.queues.append(queue)
                    self._declared_by_broker.update([queue] if declared else [])
                else:
                    others.append(queue)
        return others

    def forget(self, queue: Queue) -> None:
        """Your program holds or releases the queue itself, so it waits for no broker."""
        if self.queues:
            self._keep(lambda other: other is not queue)

    def exchanges_read(self, store: str) -> list[Queue]:
        """A broker has read its exchanges, of this store: returns the queues that wait no more. Those go on waiting that a broker
        declared in another store, where their exchanges lie."""
        self._were_read = True
        return self._keep(lambda queue: queue.store.name != store and queue in self._declared_by_broker)

    def _keep(self, waits: Callable[[Queue], bool]) -> list[Queue]:
        """Returns those that do not wait any more."""
        with self._lock:
            done = [queue for queue in self.queues if not waits(queue)]
            self.queues = [queue for queue in self.queues if queue not in done]
            self._declared_by_broker.intersection_update(self.queues)
        return done
