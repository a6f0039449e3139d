"""A broker as the target of a relay, over AMQP 0-9-1 with pika: transactions for Xump, confirms with `mandatory` for others.

Without `mandatory`, a broker confirms what it could route nowhere, and the row would be lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from xump.sql.errors import ConfigurationError
from xump.sql.outcomes import Down, Outcome, Pressed, Refused, Row, by_halves
from xump.sql.payload import unpack

logger = logging.getLogger("xump.sql")
REFUSED = {403, 404, 406, 530}
"""Codes that will be the same tomorrow: not allowed, no such exchange, precondition failed."""
PERSISTENT = 2


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
        self._returned: list[tuple[str, str]] = []
        self._transactions = transactions
        self.atomic = bool(transactions)
        """Whether rows are sent in transactions; known when the broker has told what it is."""
        self._lock = threading.Lock()

    def send(self, rows: Sequence[Row]) -> list[Outcome]:
        """Send the rows: in one transaction, or one by one with their confirms."""
        errors = self._pika.exceptions
        with self._lock:
            try:
                self._open()
                if self.atomic:
                    return by_halves(self._send_all, rows)
                return self._send_each(rows)
            except (errors.AMQPConnectionError, OSError) as error:
                self._abandon()
                raise Down(f"{type(error).__name__}: {error}") from error

    def _open(self) -> None:
        if self._connection is None or self._connection.is_closed:
            self._connection = self._pika.BlockingConnection(self._parameters)
            self._channel = None
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
        self._returned.append((properties.message_id, method.reply_text))

    def _publish(self, row: Row) -> None:
        props = unpack(row.props)
        headers = unpack(row.headers)
        expiration = None if props.get("ttl") is None else str(props["ttl"] // 1000)
        if row.at is not None:
            headers["x-delay"] = max(0, (row.at - row.created) // 1000)
        exchange, key = (row.queue, row.address) if row.address else ("", row.queue)
        properties = self._pika.BasicProperties(
            message_id=row.message_id, correlation_id=props.get("correlation_id"), reply_to=row.reply_to, headers=headers or None,
            priority=props.get("priority"), expiration=expiration, delivery_mode=PERSISTENT)
        self._channel.basic_publish(exchange, key, bytes(row.body), properties, mandatory=True)

    def _send_all(self, rows: list[Row]) -> dict[int, Outcome]:
        self._open()
        self._returned.clear()
        self._look(rows)
        try:
            for row in rows:
                self._publish(row)
            self._channel.tx_commit()
        except self._pika.exceptions.ChannelClosed as error:
            raise self._read(error) from error
        except (TypeError, ValueError, AssertionError, self._pika.exceptions.UnsupportedAMQPFieldException) as error:
            self._channel.close()           # with what it had sent of the transaction
            raise Refused(f"{type(error).__name__}: {error}") from error
        # What an exchange can route nowhere is known when the transaction is committed: the other rows are there.
        returned = dict(self._returned)
        return {row.id: Refused(f"the broker can route it nowhere: {returned[row.message_id]}") for row in rows
                if row.message_id in returned}

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
                outcomes.append(Pressed("it waits behind another row of its key"))
                continue
            outcome: Outcome = None
            try:
                self._open()
                self._publish(row)          # returns when it is confirmed
            except errors.UnroutableError:
                outcome = Refused("the broker can route it nowhere")
            except errors.NackError:
                outcome = Pressed("the broker refused it")
            except errors.ChannelClosed as error:
                outcome = self._read(error)
            except (errors.AMQPConnectionError, OSError) as error:
                # What was confirmed before is there; of this one and the others nothing is known.
                self._abandon()
                logger.warning("the broker went away: %s", error)
                outcomes += [Pressed(f"{type(error).__name__}: {error}")] * (len(rows) - len(outcomes))
                return outcomes
            except (TypeError, ValueError, AssertionError, errors.UnsupportedAMQPFieldException) as error:
                self._channel.close()
                outcome = Refused(f"{type(error).__name__}: {error}")
            outcomes.append(outcome)
            if outcome is not None and row.key is not None:
                held.add(row.key)
        return outcomes

    def _read(self, error: Any) -> Refused | Pressed:
        code, said = getattr(error, "reply_code", 0), getattr(error, "reply_text", str(error))
        return Refused(f"{code} {said}") if code in REFUSED else Pressed(f"{code} {said}")

    def _abandon(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.is_open:
            connection.close()

    def warn(self, rows: Sequence[Row], lease: float) -> None:
        """A broker does not tell what its queues recognise."""

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._abandon()
