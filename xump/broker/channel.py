"""A channel: its consumers, what was sent to them and not settled, confirms, transactions.

Publishes, acks, nacks and rejects come as rows of the codec, a batch for each read of the socket. Everything else is
a method, and is carried out by the modules `exchange_methods`, `queue_methods` and `basic_methods`.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from pamqp import commands

from xump._arguments import COUNT_MAX
from xump.broker.channel_transaction import ChannelTransaction
from xump.broker.consumers import Consumer
from xump.broker.envelope import annex, envelope_of, join, split, with_header
from xump.broker.errors import ProtocolError, locked, precondition, refused
from xump.broker.incoming import Incoming, Outcome
from xump.broker.method_answers import Answers
from xump.broker.methods import encode
from xump.broker.queue_arguments import EXPIRES_MS_MAX
from xump.broker.queues import REPLY_TO
from xump.broker.settling import Settling, unknown_tag
from xump.broker.tables import TYPE_NAMES, Typed, decode_table, encode_table
from xump.errors import StaleDelivery
from xump_ext.amqp.decoder import KIND_NACK, Decoder, Publish, Settle
from xump_ext.amqp.outgoing import Unacked

if TYPE_CHECKING:
    from xump.broker.connection import Connection
    from xump.broker.queues import BrokerQueue
    from xump.window import Window
    from xump_ext.engine.delivery import Delivery

MANDATORY, IMMEDIATE = 1, 2
REPLY_TO_BYTES = REPLY_TO.encode()
KEY_BYTES_MAX = 65_534
"""Of a routing key in CC or BCC: of an address in the engine."""
NUMBER = re.compile(rb"[+-]?[0-9]+")


class Channel:
    """An open channel of a connection."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        """Its connection."""
        self.vhost = connection.vhost
        """The virtual host of its connection."""
        self.number = number
        """Its number in its connection."""
        self.open = True
        """Whether it is open."""
        self.consumers: dict[str, Consumer] = {}
        """Its consumers by tag."""
        self.unacked = Unacked(self.vhost.engine)
        """Messages that were sent and not settled, by tag."""
        self.settling = Settling(self)
        """Its acks, nacks and rejects."""
        self.last_queue = ""
        """The queue that was declared last here, which an empty name means."""
        self.prefetch = 0
        """Of consumers that come from now on."""
        self.window = 0
        """Of all consumers here together; 0: any number."""
        self._window: Window | None = None
        self.confirming = False
        """Whether confirm.select came."""
        self.last_publish = 0
        """How many messages were published since confirm.select."""
        self.unconfirmed = 0
        """How many of them wait to be durable."""
        self._unconfirmed: deque[tuple[int, list[int]]] = deque()      # last tag of a batch that is being written, and nacks
        self.transactional = False
        """Whether tx.select came."""
        self.transaction = ChannelTransaction(self)
        """The calls that wait for tx.commit."""
        self.answers = Answers(self)
        """To methods, if one waits for a disk."""
        self.reply_queue: BrokerQueue | None = None
        """Where replies to what is published here come: direct reply-to."""

    # ---- answers to methods

    def answer(self, payload: bytes, *, durable: bool = False) -> None:
        """Answer a method, after all before; if `durable`, once what it has done is on disk."""
        self.answers.add(lambda: self.connection.send(self.number, payload), durable=durable)

    # ---- delivering

    def window_for(self, consumer: Consumer) -> Window | None:
        """The window that its consumers share, which is there once one needs it."""
        if self._window is None and not consumer.no_ack:
            self._window = self.vhost.engine.create_window(self.window or COUNT_MAX)
        return self._window

    def resize(self, count: int) -> None:
        """So many messages its consumers may have unacknowledged together; 0: any number."""
        self.window = count
        if self._window is not None:
            self._window.resize(count or COUNT_MAX)

    def got(self, delivery: Delivery, no_ack: bool, left: int, says_count: bool) -> None:
        """Send a message that basic.get has taken. `says_count`: with a header that says how often it came before."""
        try:
            message, redelivered = delivery.message, delivery.redelivered
            envelope = envelope_of(message)
            if says_count:
                envelope.properties = with_header(
                    envelope.properties, "x-delivery-count", Typed("l", delivery.delivery_count - 1))
        except BaseException:
            with suppress(StaleDelivery):
                delivery.nack()
            raise
        if no_ack:
            with suppress(StaleDelivery):       # its queue was deleted while the answer waited
                delivery.ack()
            tag = self.unacked.next_tag()
        else:
            tag = self.unacked.keep(delivery, self.connection.broker.loop.time())
        self.connection.output.get_ok(
            self.number, tag, redelivered, envelope.exchange, envelope.key, left, envelope.properties, message.body)

    # ---- publishing

    def publish(self, decoder: Decoder, at: int, end: int) -> None:
        """Publish what came in one read: rows `at` to `end` of the decoder."""
        inlet, exchanges = self.vhost.inlet, self.vhost.exchanges_for(self.connection.user)
        while at < end:
            plain = at if self.transactional else inlet.plain_until(decoder, at, end, exchanges)
            if plain > at:
                done = inlet.publish(decoder, at, plain, exchanges)
                if done is None:            # another thread builds: what comes now waits in its queue
                    self._publish_rare([cast("Publish", decoder.row(number)) for number in range(at, plain)])
                else:
                    self._published_plain(decoder, at, plain - at, *done)
                at = plain
            rare = end if self.transactional else inlet.rare_until(decoder, at, end, exchanges)
            if rare > at:
                self._publish_rare([cast("Publish", decoder.row(number)) for number in range(at, rare)])
                at = rare

    def _published_plain(
        self, decoder: Decoder, at: int, count: int, refused: list[int], returned: list[int], full: bool, logged: bool
    ) -> None:
        for place in returned:
            row = cast("Publish", decoder.row(at + place))
            self.connection.output.returned(self.number, 312, b"NO_ROUTE", row.exchange, row.key, row.properties, row.body)
        if self.confirming:
            self._confirm(count, refused, logged)
        elif full:
            raise precondition("the store has no room for this message")

    def _publish_rare(self, rows: list[Publish]) -> None:
        messages: list[tuple[Incoming, int]] = []
        try:
            for row in rows:
                message = self._incoming(row)
                if self.transactional:
                    self.transaction.publish(message, row.bits & MANDATORY != 0)
                else:
                    messages.append((message, row.bits))
        finally:
            if messages:                # what came before an error counts
                self._publish(messages)

    def _publish(self, messages: list[tuple[Incoming, int]]) -> None:
        outcomes = self.vhost.publish([message for message, _bits in messages])
        for (message, bits), outcome in zip(messages, outcomes, strict=True):
            if outcome.queues == 0 and bits & MANDATORY:
                self._return(message, outcome)
        if self.confirming:
            refused = [place for place, outcome in enumerate(outcomes) if outcome.refused]
            self._confirm(len(outcomes), refused, any(outcome.durable for outcome in outcomes))
        elif any(outcome.full_store for outcome in outcomes):
            raise precondition("the store has no room for this message")

    def _incoming(self, row: Publish) -> Incoming:
        """Check a message as it comes."""
        name = decoded(row.exchange)
        key = decoded(row.key)
        self.connection.check("write", "exchange", name or "amq.default")
        exchange = self.vhost.exchange(name)
        if exchange.internal:
            raise refused(f"cannot publish to internal exchange '{name}' in vhost '{self.vhost.name}'")
        if row.bits & IMMEDIATE:
            raise ProtocolError(540, "immediate=true")
        properties = row.properties
        user = self.connection.user.name
        if row.user_id is not None and decoded(row.user_id) != user and not self.connection.user.impersonates:
            raise precondition(f"user_id property set to '{decoded(row.user_id)}' but authenticated user was '{user}'")
        if row.reply_to == REPLY_TO_BYTES:
            properties = self._with_reply_queue(properties)
        keys: tuple[str, ...] = (key,)
        if row.has_copies:
            keys, properties = copied(key, properties)
        travels = annex(row.exchange, properties, tuple(more.encode() for more in keys[1:]))
        return Incoming(
            exchange, keys, travels, properties, row.body, priority=max(row.priority, 0),
            expiration_ms=None if row.expiration is None else _expiration(row.expiration))

    def _with_reply_queue(self, properties: bytes) -> bytes:
        """A client that answers finds the queue of the consumer of replies here."""
        if self.reply_queue is None:
            raise precondition("fast reply consumer does not exist")
        given = split(properties)
        name = self.reply_queue.name.encode()
        given["reply_to"] = bytes([len(name)]) + name
        return join(given)

    def _return(self, message: Incoming, outcome: Outcome) -> None:
        code, text = (506, b"RESOURCE_ERROR - no room") if outcome.refused else (312, b"NO_ROUTE")
        self.connection.output.returned(
            self.number, code, text, message.exchange.name.encode(), message.keys[0].encode(), message.properties,
            message.body)

    # ---- confirms

    def _confirm(self, count: int, refused: list[int], durable: bool) -> None:
        """Confirm so many messages, of which some were refused; once they are on disk, if they go there."""
        first = self.last_publish + 1
        self.last_publish += count
        nacks = [first + place for place in refused]
        if not durable and not self._unconfirmed and not self.answers:
            self._write_confirms(first, self.last_publish, nacks)
            return
        batch = self.last_publish, nacks
        self._unconfirmed.append(batch)
        self.unconfirmed += count
        self.vhost.when_durable(lambda error: self._durable(batch, first, error))

    def _durable(self, batch: tuple[int, list[int]], first: int, error: BaseException | None) -> None:
        if not self.open:
            return
        self._unconfirmed.remove(batch)
        last, nacks = batch
        self.unconfirmed -= last - first + 1
        if error is not None:
            self._write_confirms(first, last, list(range(first, last + 1)))
            self.connection.flush()
            self.connection.fail(ProtocolError(541, f"a store failed: {error}"))
            return
        self._write_confirms(first, last, nacks)
        self.connection.flush()

    def _write_confirms(self, first: int, last: int, nacks: list[int]) -> None:
        """Confirm tags from first to last, all before first being confirmed: as few frames as there are runs."""
        output, broker = self.connection.output, self.connection.broker
        broker.refused += len(nacks)
        broker.confirmed += last - first + 1 - len(nacks)
        for nack in nacks:
            if first < nack:
                output.ack(self.number, nack - 1, nack - 1 > first)
            output.nack(self.number, nack, False)
            first = nack + 1
        if first <= last:
            output.ack(self.number, last, last > first)

    # ---- settling

    def settle(self, decoder: Decoder, at: int, end: int) -> None:
        """Carry out what was acked, nacked and rejected in one read: rows `at` to `end` of the decoder."""
        if not self.transactional:
            self.settling.settle(decoder, at, end)
            return
        for number in range(at, end):
            self._settle_at_commit(cast("Settle", decoder.row(number)))

    def _settle_at_commit(self, row: Settle) -> None:
        """A tag that is unknown, or settled in this transaction, is refused now."""
        if row.multiple:
            tags = [tag for tag in self.unacked.tags(row.tag) if not self.transaction.settles(tag)]
            if row.tag and (not tags or row.tag > self.unacked.last_tag):
                raise unknown_tag(row)
        elif self.transaction.settles(row.tag) or not self.unacked.knows(row.tag, False):
            raise unknown_tag(row)
        else:
            tags = [row.tag]
        self.transaction.settle(tags, row.kind, row.requeue)

    def recover(self) -> None:
        """Everything that is not settled goes back to its queue; what a transaction settles stays with it."""
        self.unacked.settle_all([
            (KIND_NACK, tag, False, True) for tag in self.unacked.tags(0) if not self.transaction.settles(tag)])

    def commit(self, ok: bytes) -> None:
        """Do what was gathered since tx.select, and answer with `ok` when it is durable. Raises `StoreFull` if a store has no
        room: then nothing was done."""
        with_publishes = len(self.transaction) != 0
        returned, durable = self.transaction.commit()
        for message, outcome in returned:
            self._return(message, outcome)
        if with_publishes and self.connection.broker.memory.look():
            self.connection.block()
        self.answer(ok, durable=durable)

    # ---- consumers and the end

    def remove(self, consumer: Consumer) -> None:
        """The client has cancelled it."""
        self.consumers.pop(consumer.tag, None)
        self.vhost.remove_consumer(consumer)
        if consumer.queue is self.reply_queue:
            self.reply_queue = None

    def consumer_cancelled(self, consumer: Consumer) -> None:
        """Its queue has gone."""
        self.consumers.pop(consumer.tag, None)
        if self.open and self.connection.capable("consumer_cancel_notify"):
            self.answer(encode(commands.Basic.Cancel, consumer_tag=consumer.tag, nowait=True))

    def queue(self, name: str) -> BrokerQueue:
        """The queue of this name, or the one that was declared last; refused if another connection has it exclusively."""
        if not name:
            if not self.last_queue:
                raise ProtocolError(404, "no previously declared queue")
            name = self.last_queue
        queue = self.vhost.queue(name)
        self.check_owner(queue)
        return queue

    def check_owner(self, queue: BrokerQueue) -> None:
        """Refuse a queue that another connection has exclusively."""
        if queue.owner is not None and queue.owner is not self.connection:
            raise locked(queue.what)

    def close(self, *, by_client: bool = False) -> None:
        """Its consumers go, and what was not settled returns to its queues. `by_client`: its client closes it."""
        self.open = False
        consumers = list(self.consumers.values())
        self.consumers.clear()
        self.transaction.rollback()
        if self.vhost.engine.closed:
            return
        with self.vhost.engine.building():          # what one gives back is not for another one that goes, too
            for consumer in consumers:
                self.vhost.remove_consumer(consumer, recall=True)
            self.unacked.settle_all([(KIND_NACK, 0, True, True)])
            self.answers.close(by_client)
        if self._window is not None:
            self._window.delete()


def decoded(octets: bytes) -> str:
    """A name or routing key, which must be UTF-8 here."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise ProtocolError(502, "exchange names, routing keys and user ids must be UTF-8") from None


def _expiration(octets: bytes) -> int:
    shown_text, number = octets.decode(errors="replace"), NUMBER.match(octets)
    milliseconds = 0
    if number is None:
        wrong = "no_integer"
    elif number.end() < len(octets):
        wrong = f"{{leftover_string,\"{shown_text[number.end():]}\"}}"
    else:
        milliseconds = int(octets)
        wrong = f"{{value_negative,{milliseconds}}}" if milliseconds < 0 else (
            f"{{value_too_large,{milliseconds}}}" if milliseconds > EXPIRES_MS_MAX else "")
    if wrong:
        raise precondition(f"invalid expiration '{shown_text}': {wrong}")
    return milliseconds


def copied(key: str, properties: bytes) -> tuple[tuple[str, ...], bytes]:
    """The routing keys that CC and BCC add, and the properties without BCC."""
    given = split(properties)
    headers = decode_table(given["headers"][4:])
    keys = [key]
    for name in ("CC", "BCC"):
        typed = headers.get(name)
        if typed is None:
            continue
        if typed.kind != "A":
            raise precondition(f'invalid message: {{unacceptable_type_in_header,"{name}",{TYPE_NAMES[typed.kind]}}}')
        for item in typed.value:
            if item.kind != "S":
                continue                    # RabbitMQ does not look at it, nor do dead letters
            if len(item.value) > KEY_BYTES_MAX:
                raise precondition(f"a routing key in {name} has {len(item.value)} bytes, allowed are {KEY_BYTES_MAX}")
            keys.append(decoded(item.value))
    if "BCC" in headers:
        del headers["BCC"]
        given["headers"] = encode_table(headers)
        properties = join(given)
    return tuple(keys), properties
