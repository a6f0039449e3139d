"""Queues of a reopened store that wait for a broker: their dead letters go to its exchanges, which are not there before it has
read them. If such a queue were released sooner, what has expired meanwhile would be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xump.errors import QueueNotFound

if TYPE_CHECKING:
    from xump.queue import Queue

BROKER_QUEUE = "amqp.queue"
"""The name in the map of a queue under which a broker keeps what it knows of it."""
EXCHANGES = "amq.x/"
"""The queue of an exchange has a name that begins with it."""


class Awaiting:
    """The queues of an engine that wait for a broker."""

    def __init__(self) -> None:
        self.queues: list[Queue] = []
        """They are held, or have been deleted meanwhile."""
        self._of_broker: set[Queue] = set()     # those of them that a broker declared
        self._was_read = False

    def kept(self, held: list[Queue]) -> list[Queue]:
        """A store was opened, whose queues are held. Keeps those that wait for a broker; returns the others."""
        others = []
        for queue in held:
            try:
                needs = (queue.dead_letter or "").startswith(EXCHANGES)
                declared = needs and BROKER_QUEUE in queue.meta
            except QueueNotFound:           # another thread deleted it just now
                continue
            if declared or (needs and not self._was_read):
                self.queues.append(queue)
                self._of_broker.update([queue] if declared else [])
            else:
                others.append(queue)
        return others

    def forget(self, queue: Queue) -> None:
        """Your program holds or releases the queue itself, so it waits for no broker."""
        if queue in self.queues:
            self.queues = [other for other in self.queues if other is not queue]

    def read(self, store: str) -> list[Queue]:
        """A broker has read its exchanges, of this store: returns the queues that wait no more. Those go on waiting that a broker
        declared in another store, where their exchanges lie."""
        self._was_read = True
        done = [queue for queue in self.queues if queue.store.name == store or queue not in self._of_broker]
        self.queues = [queue for queue in self.queues if queue not in done]
        self._of_broker.intersection_update(self.queues)
        return done
