"""The death of a message: what is told to a rewriter of dead letters."""

from typing import NamedTuple


class Death(NamedTuple):
    """Why and where a message became a dead letter, as a rewriter gets it (`xump.register_rewriter`).

    - `reason`: `"rejected"`, `"expired"`, `"overflow"`, `"delivery-limit"`, `"unroutable"` or `"hops"`.
    - `queue`: the queue in which it died, or that refused it.
    - `dead_letter`: the queue that the dead letter goes to.
    - `argument`: the text that the queue gave beside the rewriter's name; empty: none.
    - `detail`: the text that was given to `reject`, or None.
    - `time`: when, in POSIX nanoseconds of the engine's clock.
    >>> Death("rejected", "jobs", "dead", "", "no such customer", 0).reason
    'rejected'
    """

    reason: str
    """`"rejected"`, `"expired"`, `"overflow"`, `"delivery-limit"`, `"unroutable"` or `"hops"`."""
    queue: str
    """The queue in which it died, or that refused it."""
    dead_letter: str
    """The queue that the dead letter goes to."""
    argument: str
    """The argument that the queue gave beside the rewriter's name; empty: none."""
    detail: str | None
    """The text that was given to `reject`."""
    time: int
    """When: POSIX nanoseconds of the engine's clock."""
