"""The errors that Xump raises, in one tree.

Each class derives from `XumpError` and from the built-in class that a Python programmer expects, so `except KeyError` and
`except queue.Full` work. A message names the offending value and the allowed ones. A call that raises has changed nothing.
"Full" and "no credit" inside a graph are values, not errors, and never reach the program.
"""

import queue
import reprlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self


class XumpError(Exception):
    """The root of the tree; it is never raised itself."""

    def __str__(self) -> str:
        # KeyError's own __str__ shows the repr of the message, quotes and all.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class NotFound(XumpError, KeyError):
    """There is nothing of that name or number in this engine."""

    _text: Callable[[], str] | None

    @classmethod
    def told_later(cls, text: Callable[[], str]) -> Self:
        """An error whose text is made when it is read: it may cost a look at all names, and most such errors are caught."""
        error = cls()
        error._text = text
        return error

    def _tell(self) -> None:
        text = vars(self).get("_text")
        if text is not None:
            self.args = (text(),)

    @property
    def args(self) -> tuple[Any, ...]:
        """The text of the error, which is put together when it is asked for first."""
        self._tell()
        return super().args

    @args.setter
    def args(self, args: tuple[Any, ...]) -> None:
        vars(self).pop("_text", None)
        BaseException.args.__set__(self, args)      # type: ignore[attr-defined]

    def __repr__(self) -> str:
        self._tell()
        return super().__repr__()

    def __reduce__(self) -> str | tuple[Any, ...]:
        self._tell()
        return super().__reduce__()


class QueueNotFound(NotFound):
    """No queue has that name."""


class StoreNotFound(NotFound):
    """No store, or no type of store, has that name."""


class SelectorNotFound(NotFound):
    """No selector has that number."""


class WindowNotFound(NotFound):
    """No window has that name."""


class RewriterNotFound(NotFound):
    """No rewriter of dead letters is registered under that name in this process."""


class QueueFull(XumpError, queue.Full):
    """A queue is at its limit, and neither an overflow selector nor a dead letter queue can take the message."""


class StoreFull(XumpError, OSError):
    """A store is at its `max_bytes`, or the disk is full."""


class Conflict(XumpError, ValueError):
    """Something of that name exists with other properties, or two things exclude each other."""


class PositionError(XumpError, ValueError):
    """A text that cannot be parsed; `position` is the offset, in characters, at which parsing stopped."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self._position = position

    @property
    def position(self) -> int:
        """The offset in the text, in characters, at which parsing stopped."""
        return self._position


class InvalidPattern(PositionError):
    """A pattern that its match operator does not accept, or an operator that does not exist."""


class InvalidFilter(PositionError):
    """A filter that is not in the selector syntax, too long or too deep."""


class StaleDelivery(XumpError, ValueError):
    """The delivery was acked, nacked, rejected or paid for before, or the engine has taken it back."""


class RequestTimeout(XumpError, TimeoutError):
    """No reply to a request came in time."""


class SyncTimeout(XumpError, TimeoutError):
    """Not everything was on the disk in time; nothing is lost by that."""


class TransactionError(XumpError, RuntimeError):
    """The transaction has ended, or its durable effects lie in more than one store."""


class Closed(XumpError, RuntimeError):
    """The engine or the store was closed."""


class Reentrant(XumpError, RuntimeError):
    """The engine was called from inside a filter, a match operator or a clock."""


class StoreLocked(XumpError, OSError):
    """Another process owns the store."""


class StoreFailed(XumpError, OSError):
    """The system refused a call for a store: a write or an fsync, so that changes held in memory may be missing on disk; or one
    that opening the store needs."""


class StoreCorrupt(XumpError, OSError):
    """The store's files are damaged, or are not a store."""


class ForkedError(XumpError, RuntimeError):
    """The engine belongs to the parent process."""


class InvariantError(XumpError, AssertionError):
    """A law of the engine does not hold: a defect in Xump."""


def no_queue(name: str) -> QueueNotFound:
    """The error for a message to a queue that does not exist."""
    return QueueNotFound(f"no queue {name!r}: create it, or give the engine a dead letter queue for such messages, "
                         "Engine(dead_letter=NAME)")


def no_rewriter(name: str) -> RewriterNotFound:
    """The error for a rewriter that is not registered."""
    return RewriterNotFound(f"no rewriter {name!r} is registered: call xump.register_rewriter({name!r}, ...) first, and "
                            "before you open a store with a queue that has it")


def no_pickle(thing: object) -> TypeError:
    """The error for copying or pickling an engine or a part of it."""
    return TypeError(f"{type(thing).__name__} objects cannot be pickled or copied: an engine and all that is in it live in one "
                     "process; messages, conditions, actions and engine.topology() can")


def iterator_of(things: Iterable[Any], wanted: str) -> Iterator[Any]:
    """An iterator of an argument; `wanted` says in the TypeError which argument it is, and of what."""
    try:
        return iter(things)
    except TypeError:
        given = "NoneType" if things is None else f"{type(things).__name__} {reprlib.repr(things)}"
        raise TypeError(f"{wanted}, got {given}") from None


def _show_public_names() -> None:
    """Makes tracebacks say `xump.errors`, where programs find these classes."""
    for value in globals().values():
        if isinstance(value, type) and issubclass(value, XumpError):
            value.__module__ = "xump.errors"


_show_public_names()
