"""Types of the arguments of the public API, for annotations in your own code."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

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

BrowseStart: TypeAlias = Literal["head", "current"] | int | datetime.datetime
"""Where `Queue.browse` starts: an int is the id of a message, a datetime must have a time zone."""

SelectorStart: TypeAlias = Literal["current", "tail", "head"] | int | datetime.datetime
"""Where a copying selector starts: an int is the id of a message, a datetime must have a time zone."""

State: TypeAlias = Literal["ready", "outstanding", "history"]
"""The state of a message in its queue: not taken yet, taken and not settled (unacknowledged), or processed and kept."""

FilterFunction: TypeAlias = "Callable[[Message], bool]"
"""A filter as a Python function of the message."""

FilterSource: TypeAlias = "str | Mapping[str, HeaderValue | Sequence[HeaderValue] | AbstractSet[HeaderValue]] | FilterFunction"
"""What `where` accepts: text in the JMS selector syntax, a dict of headers and the values that they must have, or a function."""

Operator: TypeAlias = Literal["eq", "prefix", "topic"] | str
"""The name of a match operator: a built-in one, or one that was registered."""

MatchField: TypeAlias = Literal["address", "reply_to"] | str
"""The field that `match` compares: one of these, or `"headers.NAME"`."""

TargetField: TypeAlias = Literal["address", "reply_to", "destination"] | str
"""The field that names a target or destination: one of these, or `"headers.NAME"`."""


class ArrowStream(Protocol):
    """Data with the Arrow PyCapsule interface for streams: a table of pyarrow, a DataFrame of Polars, a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a PyCapsule named `arrow_array_stream`."""


class ArrowArray(Protocol):
    """Data with the Arrow PyCapsule interface for arrays: a record batch of pyarrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return two PyCapsules, named `arrow_schema` and `arrow_array`."""


ArrowData: TypeAlias = ArrowStream | ArrowArray
"""What `Engine.publish_batch` accepts: anything with the Arrow PyCapsule interface."""
