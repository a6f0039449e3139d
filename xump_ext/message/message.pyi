"""The objects `Message` and `Headers` that Python sees."""

import datetime
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self, TypeAlias, TypedDict, TypeVar, Unpack, final, overload

_HeaderValue: TypeAlias = bool | int | float | str | bytes
_Body: TypeAlias = bytes | bytearray | memoryview
_Default = TypeVar("_Default")

address_bytes_max: int
body_bytes_max: int
CHANGEABLE: tuple[str, ...]

class _Changes(TypedDict, total=False):
    address: str
    body: _Body
    headers: Mapping[str, _HeaderValue] | None
    reply_to: str | None
    message_id: str | None
    correlation_id: str | None
    expires: datetime.datetime | int | None
    priority: int
    annex: tuple[int, _Body] | None

@final
class Headers(Mapping[str, Any]):
    """The headers of a message: a read-only mapping of str to bool, int, float, str or bytes, in the order of publishing.

    Cost: a look-up compares the name with each header before it. A value is made anew at every access.
    """

    def __new__(cls) -> Self: ...
    def __getitem__(self, name: str, /) -> Any: ...
    @overload
    def get(self, name: str, default: None = None) -> Any | None:
        """The value of the header `name`, or `default` if there is none."""
    @overload
    def get(self, name: str, default: _Default) -> Any | _Default: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def keys(self) -> KeysView[str]:
        """The names of the headers, as `dict.keys` gives them."""
    def values(self) -> ValuesView[Any]:
        """The values of the headers, as `dict.values` gives them."""
    def items(self) -> ItemsView[str, Any]:
        """The names and values of the headers, as `dict.items` gives them."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__ = None  # type: ignore[assignment]
    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]: ...

@final
class Message:
    """An immutable message: an address, a body and headers.

    Args:
        address: The text that the message is routed by (a routing key), at most 65,534 bytes of UTF-8.
        body: Up to 64 MiB of bytes; a bytearray or memoryview is copied.
        headers: Values by name: bool, int (64 bits, signed), float, str or bytes; together at most 1 MiB.
        reply_to: The address for answers.
        message_id: Your own name for the message.
        correlation_id: The `message_id` of the message that this one answers, or what else joins the two.
        expires: When the message expires (from then on it is not delivered): an aware datetime, or POSIX nanoseconds.
        priority: 0 to 255; queues with a priority take higher ones first.
        annex: (kind, bytes): bytes that travel with the message, and which only the reader of that kind understands
            (`register_annex`); at most 1 MiB. Without `headers`, the message has those that the reader yields.

    Raises:
        TypeError, ValueError: An argument is wrong.

    `id`, `timestamp` and `hops` come from the queue that the message was read from; in a new message they are 0.

    Cost: one allocation, and a copy of the headers.

    >>> from xump import Message
    >>> Message("jobs", b"...", {"size": 700}).headers["size"]
    700
    """

    def __init__(
        self,
        address: str = "",
        body: _Body = b"",
        headers: Mapping[str, _HeaderValue] | None = None,
        *,
        reply_to: str | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        expires: datetime.datetime | int | None = None,
        priority: int = 0,
        annex: tuple[int, _Body] | None = None,
    ) -> None: ...
    @property
    def address(self) -> str:
        """The text that the message is usually routed by (a routing key), often words separated by dots."""
    @property
    def body(self) -> bytes:
        """The payload: bytes, which Xump does not look into."""
    @property
    def headers(self) -> Headers:
        """The headers: a read-only mapping of names to bool, int, float, str or bytes."""
    @property
    def reply_to(self) -> str | None:
        """The address for answers, or None."""
    @property
    def message_id(self) -> str | None:
        """The sender's own name for the message, or None; queues with `dedup`, and requests, know it by that."""
    @property
    def correlation_id(self) -> str | None:
        """Joins the message with another one: in an answer, the `message_id` of the question. None: it has none."""
    @property
    def expires(self) -> int | None:
        """When the message expires, in POSIX nanoseconds of the engine's clock: from then on it is not delivered. None: it does
        not expire by itself.
        """
    @property
    def priority(self) -> int:
        """0 to 255: queues with a priority take higher ones first; 0 is the default."""
    @property
    def annex(self) -> tuple[int, bytes] | None:
        """(kind, bytes) of the message's annex, or None. Its headers are in `headers`, if there is a reader of that kind."""
    @property
    def destination(self) -> str | None:
        """The destination that `deliver(destination, queue)` stamped on the message; None until then."""
    @property
    def id(self) -> int:
        """The number that its queue gave it: 1, 2, 3 ... in each queue; 0 before it entered one."""
    @property
    def timestamp(self) -> int:
        """When it entered its queue: POSIX nanoseconds of the engine's clock, never less than its predecessor's there."""
    @property
    def hops(self) -> int:
        """How many COPY, MOVE and BOUNCE steps led here; past the engine's hop_limit a message is dead-lettered."""
    def replace(self, **changes: Unpack[_Changes]) -> Message:
        """Return a new message in which some values are others; its id is 0.

        Args:
            changes: The new values, by name: `address`, `body`, `headers`, `reply_to`, `message_id`, `correlation_id`, `expires`,
                `priority`, `annex`.

        Raises:
            TypeError, ValueError: A value is wrong, or cannot be replaced.

        Cost: that of a new message.

        >>> from xump import Message
        >>> Message("a", b"x").replace(address="b").address
        'b'
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

def _check_alone(
    body: object,
    headers: object,
    reply_to: object,
    message_id: object,
    correlation_id: object,
    expires: object,
    priority: object,
) -> None: ...
def _rebuild(
    address: str,
    body: bytes,
    headers: Mapping[str, Any],
    reply_to: str | None,
    message_id: str | None,
    destination: str | None,
    id: int,
    timestamp: int,
    hops: int,
    correlation_id: str | None,
    expires: int | None,
    priority: int,
    annex: tuple[int, bytes] | None = None,
) -> Message: ...
