"""Reads frames from the receive buffer of a connection: frequent ones as rows, the rest as channel and payload."""

from typing import Self, final

NEED: int
METHOD: int
ERROR: int
CHANNEL_ERROR: int
ROWS: int
KIND_PUBLISH: int
KIND_ACK: int
KIND_NACK: int
KIND_REJECT: int

def erlang_binary(octets: bytes) -> str:
    """Octets as RabbitMQ prints them in its texts."""

@final
class Publish:
    """A row of basic.publish and its content, as Python sees it."""

    @property
    def channel(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def exchange(self) -> bytes: ...
    @property
    def key(self) -> bytes: ...
    @property
    def properties(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> bytes | None: ...
    @property
    def expiration(self) -> bytes | None: ...
    @property
    def user_id(self) -> bytes | None: ...
    @property
    def reply_to(self) -> bytes | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def delivery_mode(self) -> int: ...
    @property
    def has_copies(self) -> bool: ...

@final
class Settle:
    """A row of basic.ack, basic.nack or basic.reject, as Python sees it."""

    @property
    def channel(self) -> int: ...
    @property
    def kind(self) -> int: ...
    @property
    def tag(self) -> int: ...
    @property
    def multiple(self) -> bool: ...
    @property
    def requeue(self) -> bool: ...

@final
class Decoder:
    """The frames of one connection."""

    @property
    def bytes_in_flight(self) -> int: ...
    @property
    def bytes_promised(self) -> int: ...
    @property
    def frames(self) -> int: ...
    @property
    def channel(self) -> int: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def code(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def method(self) -> int: ...
    def __new__(cls, *, body_bytes_max: int = ..., bytes_in_flight_max: int = ..., rows_max: int = ...) -> Self: ...
    def tune(self, frame_max: int) -> None:
        """Both sides agreed on this size of a frame, at least 4096."""
    def open(self, channel: int) -> None:
        """From now on there are rows of this channel."""
    def closing(self, channel: int) -> None:
        """We have closed it: what comes is dropped, until the other side has answered."""
    def closed(self, channel: int) -> None:
        """Both sides have closed it."""
    def feed(self, data: bytes | bytearray | memoryview, size: int) -> None:
        """Give the first bytes of `data`, which must stay as they are until `next` has returned NEED and `clear` ran."""
    def next(self) -> int:
        """Read on. Returns METHOD, ERROR, CHANNEL_ERROR, ROWS, or NEED when all is read."""
    def rest(self) -> bytes:
        """Take out what was fed and is not read yet, to feed it again later."""
    def rows(self) -> list[Publish | Settle]:
        """The rows since the last `clear`, in their order."""
    def row(self, number: int) -> Publish | Settle:
        """One row."""
    def runs(self) -> list[tuple[int, bool, int, int]]:
        """The rows as runs of one channel that are all publishes, or all something else: (channel, whether they are publishes,
        where the run begins, where it ends)."""
    def clear(self) -> None:
        """Forget the rows; their memory is used again."""
    def trim(self) -> None:
        """Give back the memory that a burst has left: for a connection on which nothing comes. Call it between reads."""
    @property
    def room(self) -> int:
        """Bytes that are kept for rows and for a frame that is cut, in use or not."""
    def __len__(self) -> int: ...
