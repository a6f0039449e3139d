"""Deliveries: from the engine into the output buffer of a connection, and what becomes of them, by their delivery tags."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from xump_ext.amqp.decoder import Decoder
from xump_ext.amqp.output import Output
from xump_ext.engine.delivery import Delivery
from xump_ext.engine.outlet import Outlet
from xump_ext.message.message import Message

class Unacked:
    """Messages that a channel has sent and the client has not settled, by delivery tag."""

    def __new__(cls, engine: Any) -> Self: ...
    def __len__(self) -> int: ...
    @property
    def last_tag(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def reached(self) -> int: ...
    def next_tag(self) -> int:
        """The next delivery tag, of something that is settled already."""
    def keep(self, delivery: Delivery, now: float) -> int:
        """Give a delivery, which was taken by hand, the next tag. The book has it from then on."""
    def oldest(self) -> int | None:
        """When the oldest message was sent that is not settled, by the clock of the loop; None: there is none."""
    def settle(self, decoder: Decoder, first: int, end: int) -> int | None:
        """Carry out rows of a decoder, in one call of the engine: acks, nacks and rejects.

        Returns:
            The place of the first row that names an unknown tag, or None. Those before it are carried out.
        """
    def knows(self, tag: int, multiple: bool) -> bool:
        """Whether there is something that ack, nack or reject with these arguments may settle."""
    def tags(self, upto: int) -> list[int]:
        """The tags that are not settled, in order, up to this one; 0: all."""
    def lend(self, tags: list[int]) -> list[tuple[int, Delivery]]:
        """Deliveries of these tags, for a transaction, without the messages; `take_back` ends that. Tags of a deleted queue are
        left out.

        Returns:
            (tag, delivery) each.
        """
    def take_back(self, lent: list[tuple[int, Delivery]]) -> None:
        """The transaction has ended: the book has again what `lend` gave, settled or not."""
    def settle_all(self, rows: Sequence[tuple[int, int, bool, bool]]) -> tuple[int, int, bool, bool] | None:
        """The same for rows that were kept: (kind, tag, multiple, requeue) each. The first one that is unknown, or None."""

class Subscription:
    """A consumer, as deliveries to it need it."""

    def __new__(cls, channel: int, tag: bytes, no_ack: bool, counts: bool, unacked: Unacked) -> Self: ...

class Outgoing:
    """The deliveries of a connection.

    `others(message, delivery_count)` gives exchange, properties of a message that did not come by AMQP, or with a header
    `x-delivery-count` if the count is not 0.
    """

    def __new__(cls, outlet: Outlet, output: Output, others: Callable[[Message, int], tuple[bytes, bytes]]) -> Self: ...
    @property
    def outlet(self) -> Outlet: ...
    def add(self, destination: str, subscription: Subscription) -> None:
        """A consumer, and the destination to which its selector delivers."""
    def remove(self, destination: str) -> None:
        """The consumer has gone."""
    def close(self) -> None:
        """Nothing more is written."""
    def drain(self, bytes_max: int, now: float) -> bool:
        """Write what is offered, until the buffer has `bytes_max` bytes.

        Returns:
            Whether there may be more.
        """
