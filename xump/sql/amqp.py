"""A broker as the target of a relay, over AMQP 0-9-1 with pika: transactions for Xump, confirms with `mandatory` for others.

Without `mandatory`, a broker confirms what it could route nowhere, and the row would be lost.
"""

from __future__ import annotations

import logging
import math
import struct
import threading
from collections.abc import Sequence
from typing import Any

from xump.sql.connections import end
from xump.sql.errors import ConfigurationError
from xump.sql.outcomes import Down, Later, Outcome, Pressed, Refused, Row, Untried, by_halves, delay_of, ttl_of
from xump.sql.payload import unpack

logger = logging.getLogger("xump.sql")
REFUSED = {311, 313, 403, 404, 405, 406, 530, 540}
"""Codes that will be the same tomorrow: too large, nobody there, not allowed, no such exchange, locked, precondition failed."""
UNROUTABLE = {312, 313}
MALFORMED = {501, 502, 505}
"""Codes with which a broker ends a connection for what a row made of it."""
NO_ROOM = "no room"
"""The words of Xump's broker, also with 406, when the disk is full: that will be otherwise tomorrow."""
PERSISTENT = 2
SHORT_BYTES_MAX = 255
SHORT = ("queue", "address", "message_id", "reply_to")
"""The longest text of which AMQP has the length in one byte."""
CHAR_BYTES_MAX = 4
KINDS = {bool: ">c?", int: ">cq", float: ">cd"}
TAGS = {bool: b"t", int: b"l", float: b"d", str: b"S", bytes: b"x", type(None): b"V"}
"""How AMQP marks the types that headers have."""


class AmqpTarget:
    """A broker. A row without an address goes to the queue of its name, one with an address to that exchange."""

    def __init__(self, url: str, transactions: bool | None = None) -> None:
        try:
            import pika
        except ImportError as error:
            raise ConfigurationError("a relay over AMQP needs pika, which is not installed: pip install pika") from error
        self._pika, self._parameters = pika, pika.URLParameters(url)
        self._connection: Any = None
        self._channel: Any = None
        self._returned: dict[tuple[str, str, str], Outcome] = {}
        self._properties = _properties_of(pika.BasicProperties)
        # What pika raises for a value that AMQP does not have. Of its assertions some are about what it was given.
        self._unencodable = (TypeError, ValueError, AssertionError, OverflowError, struct.error,
                             pika.exceptions.ShortStringTooLong, pika.exceptions.UnsupportedAMQPFieldException)
        self._transactions = transactions
        self.atomic = bool(transactions)
        """Whether rows are sent in transactions; known when the broker has told what it is."""
        self._lock = threading.Lock()

    def send(self, rows: Sequence[Row]) -> list[Outcome]:
        """Send the rows: in one transaction, or one by one with their confirms."""
        with self._lock:
            try:
                self._look_alive()
                self._open()
            except (self._pika.exceptions.AMQPError, OSError) as error:
                raise self._gone(error) from error
            later = _later(rows)
            now = [row for row in rows if row.id not in later] if later else rows
            sent = by_halves(self._send_all, now) if self.atomic and now else self._send_each(now)
            if not later:
                return sent
            outcomes = later | {row.id: outcome for row, outcome in zip(now, sent, strict=True)}
            return [outcomes[row.id] for row in rows]

    def _look_alive(self) -> None:
        """A broker ends a connection that was idle, since nobody answered its heartbeats: nothing is lost with it."""
        if self._connection is not None:
            try:
                self._connection.process_data_events(0)
            except (self._pika.exceptions.AMQPError, OSError):
                self._abandon()

    def _gone(self, error: Exception) -> Refused | Down:
        """Why a connection has ended: mostly because the broker went away, and else because it got what it cannot read."""
        self._abandon()
        said = f"{type(error).__name__}: {error}"
        return Refused(said) if getattr(error, "reply_code", 0) in MALFORMED else Down(said)

    def _open(self) -> None:
        if self._connection is not None and self._connection.is_closed:
            self._abandon()
        if self._connection is None:
            self._connection = self._pika.BlockingConnection(self._parameters)
            if self._transactions is None:
                product = self._connection._impl.server_properties.get("product")
                self.atomic = product in ("Xump", b"Xump")
        if self._channel is None or self._channel.is_closed:
            self._channel = self._connection.channel()
            if self.atomic:
                self._channel.tx_select()
                self._channel.add_on_return_callback(self._on_return)
            else:
                self._channel.confirm_delivery()

    def _on_return(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        said = f"{method.reply_code} {method.reply_text}"
        outcome = Refused(f"the broker can route it nowhere: {said}") if method.reply_code in UNROUTABLE else Pressed(said)
        self._returned[method.exchange, method.routing_key, properties.message_id] = outcome

    @staticmethod
    def _check(row: Row) -> None:
        """Raise `Refused` for what pika would find too late, with half of the message on its way."""
        given = {name: getattr(row, name) for name in SHORT}
        given["correlation_id"] = row.props and unpack(row.props).get("correlation_id")
        for name, value in given.items():
            if value and len(value) * CHAR_BYTES_MAX > SHORT_BYTES_MAX:
                size = len(value.encode())
                if size > SHORT_BYTES_MAX:
                    raise Refused(f"{name} has {size} bytes, and AMQP takes up to {SHORT_BYTES_MAX}: {value[:50]!r}...")

    def _publish(self, row: Row) -> None:
        props = unpack(row.props)
        headers = unpack(row.headers)
        ttl = ttl_of(row, props)
        expiration = None if ttl is None else str(math.ceil(ttl * 1000))
        exchange, key = _way(row)
        properties = self._properties(
            message_id=row.message_id, correlation_id=props.get("correlation_id"), reply_to=row.reply_to, headers=headers or None,
            priority=props.get("priority"), expiration=expiration, delivery_mode=PERSISTENT)
        frame_max = self._connection._impl.params.frame_max
        if row.headers is not None and frame_max and CHAR_BYTES_MAX * len(row.headers) > frame_max:
            size = len(self._pika.frame.Header(1, 0, properties).marshal())
            if size > frame_max:            # the broker would end the connection, with all that is on its way
                raise Refused(f"the headers take {size} bytes, and this broker takes frames of {frame_max}")
        self._channel.basic_publish(exchange, key, bytes(row.body), properties, mandatory=True)

    def _send_all(self, rows: list[Row]) -> dict[int, Outcome]:
        for row in rows:
            self._check(row)
        try:
            self._open()
            self._returned.clear()
            self._look(rows)
            for row in rows:
                self._publish(row)
            self._channel.tx_commit()
            self._connection.process_data_events(0)     # what was returned before the ok: pika only notes it
        except self._pika.exceptions.ChannelClosed as error:
            raise self._read(error) from error
        except (Refused, *self._unencodable) as error:
            self._channel.close()           # with what it had sent of the transaction
            raise _refused(error) from error
        except (self._pika.exceptions.AMQPError, OSError) as error:
            raise self._gone(error) from error
        # What an exchange can route nowhere, or a queue has no room for, is known when the transaction is committed: the other
        # rows are there.
        return {row.id: self._returned.get((*_way(row), row.message_id)) for row in rows} if self._returned else {}

    def _look(self, rows: list[Row]) -> None:
        """Refuse rows for queues that are not there, before they are in a transaction with others."""
        channel = self._connection.channel()
        try:
            for queue in dict.fromkeys(row.queue for row in rows if not row.address):
                channel.queue_declare(queue, passive=True)
        except self._pika.exceptions.ChannelClosed as error:
            raise self._read(error) from error
        finally:
            if channel.is_open:
                channel.close()

    def _send_each(self, rows: Sequence[Row]) -> list[Outcome]:
        errors = self._pika.exceptions
        outcomes: list[Outcome] = []
        held: set[str] = set()
        for row in rows:
            if row.key in held:
                outcomes.append(Untried("it waits behind another row of its key"))
                continue
            outcome: Outcome = None
            try:
                self._check(row)
                self._open()
                self._publish(row)          # returns when it is confirmed
            except errors.UnroutableError:
                outcome = Refused("the broker can route it nowhere")
            except errors.NackError:
                outcome = Pressed("the broker refused it")
            except errors.ChannelClosed as error:
                outcome = self._read(error)
            except (Refused, *self._unencodable) as error:
                outcome = _refused(error)
                if self._channel is not None and self._channel.is_open:
                    self._channel.close()
            except (errors.AMQPError, OSError) as error:
                gone = self._gone(error)
                if isinstance(gone, Down):
                    # What was confirmed before is there; of this one and the others nothing is known.
                    logger.warning("the broker went away: %s", error)
                    return outcomes + [Untried(str(gone))] * (len(rows) - len(outcomes))
                outcome = gone
            outcomes.append(outcome)
            if outcome is not None and row.key is not None:
                held.add(row.key)
        return outcomes

    def _read(self, error: Any) -> Refused | Pressed:
        code, said = getattr(error, "reply_code", 0), getattr(error, "reply_text", str(error))
        return Refused(f"{code} {said}") if code in REFUSED and NO_ROOM not in said else Pressed(f"{code} {said}")

    def _abandon(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            end(connection)

    def warn(self, rows: Sequence[Row], lease: float) -> None:
        """A broker does not tell what its queues recognise."""

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._abandon()


def _properties_of(base: Any) -> Any:
    """Properties of a message whose headers may have floats, which pika does not encode."""
    class Properties(base):       # type: ignore[misc]
        def encode(self) -> list[bytes]:
            headers: Any = self.__dict__["headers"]
            self.headers = headers and {}
            pieces: list[bytes] = super().encode()
            self.headers = headers
            if headers:
                table = b"".join(_field(name, value) for name, value in headers.items())
                pieces[1] = struct.pack(">I", len(table)) + table       # behind the flags
            return pieces

    return Properties


def _field(name: str, value: Any) -> bytes:
    key = name.encode()
    if len(key) > SHORT_BYTES_MAX:
        raise ValueError(f"the name of a header has {len(key)} bytes, and AMQP takes up to {SHORT_BYTES_MAX}: {name[:50]!r}...")
    tag = TAGS[type(value)]
    if isinstance(value, (str, bytes)):
        encoded = value.encode() if isinstance(value, str) else value
        content = tag + struct.pack(">I", len(encoded)) + encoded
    else:
        content = tag if value is None else struct.pack(KINDS[type(value)], tag, value)
    return bytes([len(key)]) + key + content


def _later(rows: Sequence[Row]) -> dict[int, Outcome]:
    """Rows that are not due, which AMQP cannot say, and those of their keys behind them."""
    outcomes: dict[int, Outcome] = {}
    held: set[str] = set()
    for row in rows:
        if row.key in held:
            outcomes[row.id] = Untried("it waits behind a row of its key that is not due")
        elif row.at is not None and delay_of(row) is not None:
            outcomes[row.id] = Later()
            held |= set() if row.key is None else {row.key}
    return outcomes


def _way(row: Row) -> tuple[str, str]:
    """Exchange and routing key."""
    return (row.queue, row.address) if row.address else ("", row.queue)


def _refused(error: Exception) -> Refused:
    return error if isinstance(error, Refused) else Refused(f"{type(error).__name__}: {error}")
