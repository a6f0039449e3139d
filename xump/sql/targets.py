"""What a relay sends to: an engine, a broker, or an object of yours."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

from xump import Engine, Message, Queue
from xump.errors import Closed, QueueFull, StoreFailed, StoreFull, XumpError
from xump.sql.outcomes import Down, Outcome, Pressed, Refused, Row, Target, by_halves, expires_ns
from xump.sql.payload import unpack, unpack_many

logger = logging.getLogger("xump.sql")


def _message(row: Row, headers: dict[str, Any]) -> Message:
    props = unpack(row.props)
    return Message(row.address, row.body, headers, reply_to=row.reply_to, message_id=row.message_id,
                   correlation_id=props.get("correlation_id"), priority=props.get("priority", 0), expires=expires_ns(row, props))


def store_name(queue: Queue) -> str:
    """The name of its store."""
    return queue.store if isinstance(queue.store, str) else queue.store.name


class EngineTarget:
    """An engine in this process: the rows of one store in one transaction, then on the disk."""

    atomic = True
    """A transaction sends all rows or none."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._warned: set[str] = set()

    def send(self, rows: Sequence[Row]) -> list[Outcome]:
        """Send the rows; those of different stores in transactions of their own."""
        groups = self._groups(rows)
        held: set[tuple[str, str]] = set()
        each = [by_halves(self._send_all, group, held) for group in groups]
        try:
            self._engine.sync()
        except (StoreFailed, Closed) as error:
            raise Down(str(error)) from error
        if len(groups) == 1:
            return each[0]
        outcomes = {row.id: outcome for group, found in zip(groups, each, strict=True)
                    for row, outcome in zip(group, found, strict=True)}
        return [outcomes[row.id] for row in rows]

    def _groups(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Rows by store, in an order in which each key's rows stay in theirs: a key that changes the store begins new groups."""
        stores = {queue: self._store_of(queue) for queue in {row.queue for row in rows}}
        if len(set(stores.values())) == 1:
            return [list(rows)]
        made: list[list[Row]] = []
        groups: dict[str, list[Row]] = {}
        store_of_key: dict[str, str] = {}
        for row in rows:
            store = stores[row.queue]
            if row.key is not None and store_of_key.get(row.key, store) != store:
                made += groups.values()
                groups, store_of_key = {}, {}
            if row.key is not None:
                store_of_key[row.key] = store
            groups.setdefault(store, []).append(row)
        return [*made, *groups.values()]

    def _store_of(self, queue: str) -> str:
        known = self._engine.queues.get(queue)
        return "" if known is None else store_name(known)

    def _send_all(self, rows: list[Row]) -> None:
        try:
            headers = unpack_many(row.headers for row in rows)
            queues = {row.queue for row in rows}
            if len(queues) > 1 or any(row.at is not None for row in rows):
                with self._engine.transaction() as tx:
                    for row, values in zip(rows, headers, strict=True):
                        tx.publish(row.queue, _message(row, values), at=None if row.at is None else row.at * 1000)
                return
            # All of one call are in one group on the disk, too, and it costs a fraction.
            self._engine.publish_many(queues.pop(), [
                (row.address, row.body, values, row.reply_to, row.message_id) if row.props is None else _message(row, values)
                for row, values in zip(rows, headers, strict=True)])
        except (QueueFull, StoreFull) as error:
            raise Pressed(str(error)) from error
        except (Closed, StoreFailed) as error:
            raise Down(str(error)) from error
        except (XumpError, TypeError, ValueError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    def warn(self, rows: Sequence[Row], lease: float) -> None:
        """Log once a queue what lets copies in twice, or loses them."""
        for name in sorted({row.queue for row in rows} - self._warned):
            self._warned.add(name)
            queue = self._engine.queues.get(name)
            if queue is None:
                continue
            if queue.dedup is None or queue.dedup < 10 * lease:
                logger.warning("queue %r recognises copies for %s seconds; after a crash a relay sends again for some %g "
                               "seconds: create the queue with dedup=%g or more", name, queue.dedup or 0, lease, 10 * lease)
            kind = self._engine.stores[store_name(queue)]
            if kind.type == "ram" or getattr(kind, "durability", None) == "none":
                logger.warning("queue %r is in a store that does not survive a crash, and the relay deletes what it has sent: "
                               "create the queue in a durable store", name)

    def close(self) -> None:
        """The engine stays open: it is yours."""


def target_of(given: Any) -> Target:
    """A target from an `Engine`, a URL, or a `Target`.

    Raises:
        TypeError, ValueError: It is none of them.
    """
    if isinstance(given, Engine):
        return EngineTarget(given)
    if isinstance(given, str):
        scheme = given.partition("://")[0]
        if scheme in ("amqp", "amqps"):
            from xump.sql.amqp import AmqpTarget

            return AmqpTarget(given)
        if scheme in ("http", "https"):
            from xump.sql.http import HttpTarget

            return HttpTarget(given)
        raise ValueError(f"the URL of a target begins with amqp://, amqps://, http:// or https://, got {given!r}")
    if callable(getattr(given, "send", None)):
        return cast("Target", given)
    raise TypeError(f"a target is an xump.Engine, a URL, or an object with send(rows), got {type(given).__name__}")
