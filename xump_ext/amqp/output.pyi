"""Writes frames into the output buffer of a connection."""

from typing import Self, final

@final
class Output:
    """The frames that a connection has to write."""

    def __new__(cls, frame_max: int = 4096) -> Self: ...
    def __len__(self) -> int: ...
    def tune(self, frame_max: int) -> None:
        """Both sides agreed on this size of a frame, at least 4096."""
    def take(self) -> list[bytes | memoryview]:
        """The frames since the last call, as bytes and views that follow each other."""
    def trim(self) -> None:
        """Give back the memory that a burst has left: for a connection on which nothing happens."""
    @property
    def room(self) -> int:
        """Bytes that are kept for frames, in use or not."""
    def method(self, channel: int, payload: bytes) -> None:
        """A method frame: class, method, and arguments as they are encoded."""
    def heartbeat(self) -> None:
        """A heartbeat."""
    def ack(self, channel: int, tag: int, multiple: bool) -> None:
        """basic.ack: a confirm."""
    def nack(self, channel: int, tag: int, multiple: bool) -> None:
        """basic.nack: a confirm that says no."""
    def deliver(
        self, channel: int, consumer: bytes, tag: int, redelivered: bool, exchange: bytes, key: bytes, properties: bytes,
        body: bytes,
    ) -> None:
        """basic.deliver with its content."""
    def get_ok(
        self, channel: int, tag: int, redelivered: bool, exchange: bytes, key: bytes, message_count: int, properties: bytes,
        body: bytes,
    ) -> None:
        """basic.get-ok with its content."""
    def returned(
        self, channel: int, code: int, text: bytes, exchange: bytes, key: bytes, properties: bytes, body: bytes
    ) -> None:
        """basic.return with its content."""
