"""Acks, nacks and rejects of a channel, in the order in which they came.

A reject may need room in a store for its dead letter. Then it waits until the store has made room, and with it all that comes on
this channel after it. If the store can make none, the channel ends: its messages return to their queues, and none is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from xump._aio_wait import soon
from xump.broker.errors import ProtocolError, precondition
from xump.errors import StoreFull
from xump_ext.amqp.decoder import KIND_ACK, KIND_NACK, KIND_REJECT, Decoder, Settle

if TYPE_CHECKING:
    from xump.broker.channel import Channel

METHOD_OF = {KIND_ACK: 60 << 16 | 80, KIND_NACK: 60 << 16 | 120, KIND_REJECT: 60 << 16 | 90}


class Row(NamedTuple):
    """A row of the decoder that was kept."""

    kind: int
    """`KIND_ACK`, `KIND_NACK` or `KIND_REJECT`."""
    tag: int
    """The delivery tag."""
    multiple: bool
    """Whether all tags up to this one are meant; 0: all."""
    requeue: bool
    """Whether the messages return to their queues."""


class Settling:
    """The acks, nacks and rejects of a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._left: list[Row] = []

    @property
    def waits(self) -> bool:
        """Whether something waits for room."""
        return bool(self._left)

    def settle(self, decoder: Decoder, at: int, end: int) -> None:
        """Carry out rows `at` to `end` of the decoder."""
        unacked = self._channel.unacked
        if self._left:
            self._left += _kept(decoder, at, end)
            return
        try:
            unknown = unacked.settle(decoder, at, end)
        except StoreFull as error:
            self._keep(_kept(decoder, unacked.reached, end), error)
        else:
            if unknown is not None:
                raise unknown_tag(cast("Settle", decoder.row(unknown)))

    def go_on(self) -> None:
        """Carry out what waits, as far as there is room now."""
        rows, self._left = self._left, []
        if rows and self._channel.open:
            self.settle_rows(rows)

    def settle_rows(self, rows: list[Row]) -> None:
        """The same for rows that were kept. Nothing else waits."""
        unacked = self._channel.unacked
        try:
            unknown = unacked.settle_all(rows)
        except StoreFull as error:
            self._keep(rows[unacked.reached:], error)
        else:
            if unknown is not None:
                raise unknown_tag(cast("Row", unknown))

    def _keep(self, rows: list[Row], error: StoreFull) -> None:
        """Go on with these rows when the stores have made room."""
        engine, connection = self._channel.vhost.engine, self._channel.connection
        if not engine.pressed:
            raise precondition(str(error)) from error
        self._left = rows
        engine.when_relieved(lambda _error: soon(connection.broker.loop, connection.carry_out, self._channel, self.go_on))


def _kept(decoder: Decoder, at: int, end: int) -> list[Row]:
    rows = [cast("Settle", decoder.row(number)) for number in range(at, end)]
    return [Row(row.kind, row.tag, row.multiple, row.requeue) for row in rows]


def unknown_tag(row: Settle | Row) -> ProtocolError:
    """The error for a tag that is not known, or settled."""
    return ProtocolError(406, f"unknown delivery tag {row.tag}", METHOD_OF[row.kind])
