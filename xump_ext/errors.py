"""Every error that Xump raises: one tree, in one file.

Each class derives from `XumpError` and from the built-in that a Python programmer expects, so that `except KeyError`
and `except queue.Full` work. A message names the offending value and what was allowed. A call that raises has changed
nothing. "Full" and "no credit" inside a graph are not errors but values: they never surface here.
"""

import queue


class XumpError(Exception):
    """The root of the tree; never raised itself."""

    def __str__(self) -> str:
        # KeyError's own __str__ shows the repr of the message, quotes and all.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class NotFound(XumpError, KeyError):
    """A name or number that belongs to nothing in this engine."""


class QueueNotFound(NotFound):
    """No queue has that name."""


class StoreNotFound(NotFound):
    """No store, or no type of store, has that name."""


class SelectorNotFound(NotFound):
    """No selector has that number."""


class QueueFull(XumpError, queue.Full):
    """A queue is at its limit and nothing can take what came beyond it."""


class StoreFull(XumpError, OSError):
    """A store is at its `max_bytes`, or the disk is full."""


class Conflict(XumpError, ValueError):
    """Something of that name exists with other properties, or two things exclude each other."""


class PositionError(XumpError, ValueError):
    """Text that cannot be read; `position` is the offset in characters where reading stopped."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class InvalidPattern(PositionError):
    """A pattern that its match operator does not accept, or an operator that does not exist."""


class InvalidFilter(PositionError):
    """A filter that is not in the selector syntax, too long or too deep."""


class StaleDelivery(XumpError, ValueError):
    """The delivery was acked, nacked or rejected before, paid for, or taken back by the engine."""


class TransactionError(XumpError, RuntimeError):
    """A transaction that has ended, or whose durable effects lie in more than one store."""


class Closed(XumpError, RuntimeError):
    """The engine or the store was closed."""


class Reentrant(XumpError, RuntimeError):
    """The engine was called from inside a filter, a match operator or a clock."""


class StoreLocked(XumpError, OSError):
    """Another process owns the store."""


class StoreFailed(XumpError, OSError):
    """A write or an fsync failed: what the store holds in memory is no longer sure to be on disk."""


class StoreCorrupt(XumpError, OSError):
    """The store's files are damaged, or are not a store."""


class ForkedError(XumpError, RuntimeError):
    """The engine belongs to the parent process."""


class InvariantError(XumpError, AssertionError):
    """A law of the engine does not hold: a defect in Xump."""


def no_queue(name: str) -> QueueNotFound:
    """For a message to a queue that does not exist."""
    return QueueNotFound(f"no queue {name!r}; make it with create_queue, or an engine with a dead letter queue, which takes such "
                         "messages while it exists and has room: Engine(dead_letter=...)")


def no_pickle(thing: object) -> TypeError:
    """For an engine, or a part of it, that somebody wants to copy or to send away."""
    return TypeError(f"{type(thing).__name__} objects cannot be pickled or copied: an engine and all that is in it live in one "
                     "process; messages, conditions, actions and engine.topology() can")


def _show_public_names() -> None:
    """Programs find these classes in `xump.errors`, so that is what tracebacks say."""
    for value in globals().values():
        if isinstance(value, type) and issubclass(value, XumpError):
            value.__module__ = "xump.errors"


_show_public_names()
