"""Queues that drop their oldest messages when they are full, and publishers that wait for room (section 9: bounds)."""

from tests.model import letters, publishing, told
from tests.model.entries import READY
from tests.model.order import rank
from tests.model.room import counted, is_below_limit
from tests.model.values import name_of
from xump.errors import QueueFull, XumpError


def surplus_of(engine, queue):
    """The entry that the queue has to drop now, or None."""
    held = counted(queue)
    if queue.when_full == "refuse" or queue.reopened or not held:
        return None
    if queue.when_full == "drop_to_fit":
        found = [] if is_within_limits(queue, held) else held
    else:
        found = [] if is_below_limit(engine, queue, leaving=held[-1]) else held[:-1]
    return min((e for e in found if e.state in READY), key=lambda e: (-rank(e)[0], e.id), default=None)


def is_within_limits(queue, held):
    size = sum(len(e.message.body) for e in held)
    return (queue.limit is None or len(held) <= queue.limit) and (queue.limit_bytes is None or size <= queue.limit_bytes)


def drop_surplus(engine):
    """Whether there was any: of the first queue that has, all; or until a dead letter comes to the queue itself, which is routed
    first."""
    for queue in engine.queues.values():
        if surplus_of(engine, queue) is not None:
            next_id = queue.next_id
            while queue.next_id == next_id and (entry := surplus_of(engine, queue)) is not None:
                letters.dead_letter(engine, entry, "overflow")
            return True
    return False


class Publisher:
    """Somebody who waits for room: `id` is None as long as that lasts; `error`: why it will not enter."""

    def __init__(self, queue, message, terms):
        self.queue, self.message, self.terms = queue, message, terms
        self.id = self.error = None


def let_in(engine):
    """Whether one of the publishers that wait could enter, or cannot any more. Nobody passes another one of the same queue."""
    refused = []
    for publisher in engine.publishers:
        if name_of(publisher.queue) in refused:
            continue
        try:
            with told.let_in(engine, publisher.message):
                publisher.id = publishing.publish(engine, publisher.queue, publisher.message, publisher.terms)
        except QueueFull:
            refused.append(name_of(publisher.queue))
            continue
        except (XumpError, ValueError) as error:
            publisher.error = error
        engine.publishers.remove(publisher)
        return True
    return False
