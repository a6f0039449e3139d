"""The transaction of a channel (tx): what is published and settled, until it is committed or rolled back.

A commit is one transaction of the engine, so a crash leaves all of it or nothing. Two things the engine refuses in a transaction,
and RabbitMQ does in one: a message for a queue that takes no more (`reject-publish`) is left out, and returned if it was
mandatory; and queues may be in several stores. Such a commit is done message by message, and the acks come last: what a crash
leaves undone comes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xump.broker.errors import precondition
from xump.broker.incoming import Incoming, Outcome
from xump.broker.settling import Row
from xump.errors import QueueFull, QueueNotFound, StaleDelivery, TransactionError
from xump_ext.amqp.decoder import KIND_ACK

if TYPE_CHECKING:
    from xump.broker.channel import Channel
    from xump.transaction import Transaction
    from xump_ext.engine.delivery import Delivery

PUBLISH_BYTES, ACK_BYTES = 1024, 192
"""Bytes that a publish takes beside its body and properties, and an ack, at most."""


class ChannelTransaction:
    """The calls that a channel has gathered since tx.select, or since the last commit or rollback."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._published: list[tuple[Incoming, bool]] = []
        self._settled: dict[int, tuple[int, bool]] = {}     # by tag: kind, and whether it is requeued
        self._bytes = 0                                     # of both

    def __len__(self) -> int:
        """How many messages it publishes."""
        return len(self._published)

    def publish(self, message: Incoming, mandatory: bool) -> None:
        """A message to publish. Raises `ProtocolError` 406 if the transaction becomes too large."""
        self._hold(len(message.body) + len(message.properties) + PUBLISH_BYTES)
        self._published.append((message, mandatory))

    def settle(self, tags: list[int], kind: int, requeue: bool) -> None:
        """Tags to settle. Raises `ProtocolError` 406 if the transaction becomes too large."""
        self._hold(len(tags) * ACK_BYTES)
        self._settled.update(dict.fromkeys(tags, (kind, requeue)))

    def settles(self, tag: int) -> bool:
        """Whether it settles this tag."""
        return tag in self._settled

    def _hold(self, count: int) -> None:
        """So many bytes more are in the transaction. If they are too many, the channel ends, and the transaction with it."""
        most, memory = self._channel.connection.limits.transaction_bytes_max, self._channel.connection.broker.memory
        if self._bytes + count > most:
            raise precondition(f"the transaction has more than {most} bytes (Limits.transaction_bytes_max): commit more often")
        if not memory.hold(count):
            raise precondition(f"transactions that are not committed have {memory.uncommitted} bytes, a "
                               "quarter of the broker's bound (Limits.memory_bytes): commit more often")
        self._bytes += count

    def rollback(self) -> None:
        """Forget what was gathered."""
        self._published, self._settled = [], {}
        self._channel.connection.broker.memory.release(self._bytes)
        self._bytes = 0

    def commit(self) -> tuple[list[tuple[Incoming, Outcome]], bool]:
        """Do what was gathered.

        Returns:
            The mandatory messages that no queue was for, or that one had no room for, with their outcomes; and whether something
            durable was done.

        Raises:
            StoreFull: A store has no room. Nothing has changed, and the transaction is as it was.
            ProtocolError: 406, if that happened to a commit that is done message by message.
        """
        try:
            outcomes = self._at_once()
        except (QueueFull, TransactionError):
            outcomes = self._one_by_one()
        returned = [(message, outcome) for (message, mandatory), outcome in zip(self._published, outcomes, strict=True)
                    if mandatory and (outcome.queues == 0 or outcome.refused)]
        durable = bool(self._settled) or any(outcome.durable for outcome in outcomes)
        self.rollback()
        return returned, durable

    def _at_once(self) -> list[Outcome]:
        channel = self._channel
        while True:
            lent: list[tuple[int, Delivery]] = []
            try:
                outcomes, entering = channel.vhost.prepared([message for message, _mandatory in self._published])
                lent = channel.unacked.lend([*self._settled])
                with channel.vhost.engine.transaction() as tx:
                    for queue, content, delay, ttl in entering:
                        tx.publish(queue, content, delay=delay, ttl=ttl)
                    for tag, delivery in lent:
                        _answer(tx, delivery, *self._settled[tag])
            except (QueueNotFound, StaleDelivery):      # another thread deleted a queue just now
                continue
            finally:
                channel.unacked.take_back(lent)
            self._forget_settled()
            return outcomes

    def _one_by_one(self) -> list[Outcome]:
        outcomes = self._channel.vhost.publish([message for message, _mandatory in self._published])
        if any(outcome.full_store for outcome in outcomes):
            raise precondition("the store has no room for this transaction")
        self._forget_settled()
        return outcomes

    def _forget_settled(self) -> None:
        """The tags are settled; and so are their messages, if they are not yet."""
        self._channel.settling.settle_rows([Row(kind, tag, False, requeue) for tag, (kind, requeue) in self._settled.items()])


def _answer(tx: Transaction, delivery: Delivery, kind: int, requeue: bool) -> None:
    if kind == KIND_ACK:
        tx.ack(delivery)
    elif requeue:
        tx.nack(delivery)
    else:
        tx.reject(delivery)
