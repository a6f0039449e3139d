"""The outcome of a publish, as `publish_many(…, outcomes=True)` tells it."""

import enum
from typing import NamedTuple


class OutcomeFlag(enum.IntFlag):
    """The events on a message's way, as bits of `Outcome.flags`.

    - `DUPLICATE`: the queue has its `message_id` already (`dedup`), so it entered nothing.
    - `UNROUTABLE`: a queue on the way had no selector for it, or for a copy of it.
    - `DEAD_LETTERED`: it, or a copy of it, went to a dead letter queue.
    - `DROPPED`: it, or a copy of it, was dropped, and counted where that was.
    - `NO_QUEUE`: no queue has the name that it was published to.
    - `STORE_FULL`: the store of the queue that it was published to has no room for it.
    - `STORE_FAILED`: that store has failed, or is being closed.

    The bits are those of the compiled core (`state/constants.pxd`).
    """

    DUPLICATE = 1
    """The queue has its `message_id` already (`dedup`): it entered nothing."""
    UNROUTABLE = 2
    """A queue on the way had no selector for it, or for a copy of it."""
    DEAD_LETTERED = 4
    """It, or a copy of it, went to a dead letter queue."""
    DROPPED = 8
    """It, or a copy of it, was dropped, and counted where that was."""
    NO_QUEUE = 16
    """No queue has the name that it was published to."""
    STORE_FULL = 32
    """The store of the queue that it was published to has no room for it."""
    STORE_FAILED = 64
    """That store has failed, or is being closed."""


class Outcome(NamedTuple):
    """The outcome of one message when the call that published it had run the graph.

    - `id`: the id that the queue issued, or that of the message of which this is a duplicate; 0: it has none there.
    - `copies`: how many queues took it, by the publish or by COPY. Dead letters do not count. 0: no queue has it.
    - `refused`: how many queues were full and refused it, or a copy of it, at most 255.
    - `flags`: what else happened on the way, an `OutcomeFlag`.

    >>> Outcome(id=1, copies=1, refused=0, flags=OutcomeFlag(0))
    Outcome(id=1, copies=1, refused=0, flags=<OutcomeFlag: 0>)
    """

    id: int
    """The id that the queue issued, or that the first one has of which this is a duplicate; 0: it has none there."""
    copies: int
    """How many queues took it, by the publish or by COPY; where it then was unroutable does not count, nor do dead letters. A
    MOVE from one of these queues to another leaves it one copy. 0: nobody has it (AMQP: `mandatory`)."""
    refused: int
    """How many queues were full and refused it, or a copy of it, at most 255 (AMQP: `basic.nack`)."""
    flags: OutcomeFlag
    """The other events on the way."""

