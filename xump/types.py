"""Types of the arguments of the public API, for annotations in your own code."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    from xump.actions import Field
    from xump.queue import Queue
    from xump_ext.infinite import Infinite
    from xump_ext.message.message import Message

HeaderValue: TypeAlias = bool | int | float | str | bytes
"""The value of a header; an int has at most 64 bits, signed."""

Headers: TypeAlias = Mapping[str, HeaderValue]
"""The headers of a message, by name."""

Body: TypeAlias = bytes | bytearray | memoryview
"""The body of a message. It is copied, unless it is `bytes`."""

Credit: TypeAlias = "int | Infinite"
"""The credit (prefetch window) of a selector: a number of messages, or `xump.INFINITE`."""

Target: TypeAlias = "str | Queue | Field"
"""The queue that an action puts messages into: its name, a `Queue`, or `field(...)` if the message names it."""

Destination: TypeAlias = "str | Field"
"""The destination (consumer name) of a delivery: its name, or `field(...)` if the message names it."""

Destinations: TypeAlias = "str | Sequence[str] | AbstractSet[str] | None"
"""The destinations (consumer names) to take from: one, several, or None for all."""

BrowseStart: TypeAlias = Literal["head", "current"] | int | datetime.datetime
"""Where `Queue.browse` starts: an int is the id of a message, a datetime must have a time zone."""

SelectorStart: TypeAlias = Literal["current", "tail", "head"] | int | datetime.datetime
"""Where a copying selector starts: an int is the id of a message, a datetime must have a time zone."""

State: TypeAlias = Literal["ready", "delayed", "outstanding", "history"]
"""The state of a message in its queue: not taken yet, not due yet, taken and not settled (unacknowledged), or processed and
kept."""

Moment: TypeAlias = datetime.datetime | int
"""A moment: a datetime, which must have a time zone, or POSIX nanoseconds."""

WhenFull: TypeAlias = Literal["refuse", "drop_oldest", "drop_to_fit"]
"""How a publish into a full queue ends: it raises, or it enters, and the queue drops its oldest messages."""

Unmatched: TypeAlias = Literal["drop", "keep"]
"""How a queue treats a message that no selector matches: it is dropped (or dead-lettered), or waits."""

FilterFunction: TypeAlias = "Callable[[Message], bool]"
"""A filter as a Python function of the message."""

FilterSource: TypeAlias = "str | Mapping[str, HeaderValue | Sequence[HeaderValue] | AbstractSet[HeaderValue]] | FilterFunction"
"""A filter for `where`: text in the JMS selector syntax, a dict of headers and the values that they must have, or a function."""

Operator: TypeAlias = Literal["eq", "prefix", "topic"] | str
"""The name of a match operator: a built-in one, or one that was registered."""

MatchField: TypeAlias = Literal["address", "reply_to"] | str
"""The field that `match` compares: one of these, or `"headers.NAME"`."""

TargetField: TypeAlias = Literal["address", "reply_to", "destination"] | str
"""The field that names a target or destination: one of these, or `"headers.NAME"`."""


class EngineStats(TypedDict):
    """The counters and gauges of an engine, under `"engine"` of `Engine.stats()`. docs/stats.md explains every key."""

    entered: int
    """Entries into queues."""
    held_messages: int
    """Messages in all queues."""
    deliverable: int
    """Messages offered to your program and not taken."""
    no_queue: int
    """Messages that were published to a queue that does not exist."""


class QueueStats(TypedDict):
    """The counters and gauges of a queue, under `"queues"` of `Engine.stats()`. docs/stats.md explains every key."""

    entered: int
    """Messages that entered."""
    ready: int
    """Messages that wait."""
    outstanding: int
    """Messages that selectors, or your program by `get`, have taken and that are not settled."""
    offered: int
    """Messages that your program can take, and has not taken yet."""
    history: int
    """Processed messages that the queue keeps."""
    settled: int
    """Processed messages that are gone."""
    deleted: int
    """Messages that were deleted."""
    dropped: dict[str, int]
    """Messages that were dropped, by reason."""
    dead_lettered: dict[str, int]
    """Messages that were dead-lettered, by reason."""
    delayed: int
    """Messages that are not due yet."""
    duplicates: int
    """Publishes that entered nothing, because their message had been published before."""
    late: int
    """Replies for which no request waited any more."""
    held: bool
    """Whether the queue is held."""
    meta_bytes: int
    """Bytes in its map."""
    entering: int
    """Messages that the queue has adopted and that have still to enter."""


class SelectorStats(TypedDict):
    """The counters and gauges of a selector, under `"selectors"` of `Engine.stats()`. docs/stats.md explains every key."""

    name: str | None
    """The name of the selector."""
    source: str
    """The name of its queue."""
    enabled: bool
    """Whether it takes and copies."""
    credit: Credit
    """Its credit (prefetch window)."""
    available: Credit
    """The credit that is left."""
    outstanding: int
    """Messages that it has taken and that are not settled."""
    offered: int
    """Messages that it delivers, and that your program has not taken yet."""
    rank: int
    """Its rank."""
    ahead: int | None
    """How many messages it may offer that your program has not taken yet."""
    window: str | None
    """The name of the window that it shares, or None."""
    blocked: bool
    """Whether it waits for room in its target, or for credit of the window that it shares."""
    served: int
    """Messages that it has taken."""
    copied: int
    """Copies that it has made."""
    dropped: int
    """Copies that were dropped."""
    paid: int
    """Messages that were acked or settled downstream."""
    returned: int
    """Messages that came back."""
    errors: int
    """Errors that its condition raised."""


class WindowStats(TypedDict):
    """The gauges of a window that selectors share."""

    credit: int
    """How many messages its selectors together may have outstanding."""
    available: int
    """Credit that is left."""
    outstanding: int
    """Messages that its selectors have taken and that are not settled."""
    selectors: int
    """How many selectors share it."""


class Stats(TypedDict):
    """The answer of `Engine.stats()`."""

    engine: EngineStats
    """Of the engine."""
    queues: dict[str, QueueStats]
    """Of each queue, by its name."""
    selectors: dict[int, SelectorStats]
    """Of each selector, by its id."""
    windows: dict[str, WindowStats]
    """Of each window that selectors share, by its name."""


class ArrowStream(Protocol):
    """Data with the Arrow PyCapsule interface for streams: a table of pyarrow, a DataFrame of Polars, a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a PyCapsule named `arrow_array_stream`."""


class ArrowArray(Protocol):
    """Data with the Arrow PyCapsule interface for arrays: a record batch of pyarrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return two PyCapsules, named `arrow_schema` and `arrow_array`."""


ArrowData: TypeAlias = ArrowStream | ArrowArray
"""Columns as `Engine.publish_batch` accepts them: anything with the Arrow PyCapsule interface."""
