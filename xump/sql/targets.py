"""The targets of a relay: an engine, a broker, or an object of yours."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, cast

from xump import Engine, Message, Queue
from xump.errors import Closed, ForkedError, QueueFull, StoreFailed, StoreFull, XumpError
from xump.sql.outcomes import Down, Outcome, Pressed, Refused, Row, Target, by_halves, delay_of, ttl_of, until_down
from xump.sql.payload import unpack, unpack_many

logger = logging.getLogger("xump.sql")
OTHERS_SECONDS = 5.0
"""So long a store that is well is waited for after another one has failed. It writes each few milliseconds."""
LOOK_SECONDS = 0.01


def _message(row: Row, headers: dict[str, Any], props: dict[str, Any]) -> Message:
    return Message(row.address, row.body, headers, reply_to=row.reply_to, message_id=row.message_id,
                   correlation_id=props.get("correlation_id"), priority=props.get("priority", 0))


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
        self._entered: dict[str, int] = {}

    def send(self, rows: Sequence[Row]) -> list[Outcome]:
        """Send the rows; those of different stores in transactions of their own."""
        groups = self._groups(rows)
        held: set[tuple[str, str]] = set()
        self._entered.clear()
        each = until_down(groups, lambda group: by_halves(self._send_all, group, held))
        try:
            self._engine.sync()
        except StoreFailed as error:
            # It may be a store that these rows are not for: what is on its disk is not to be sent again and again.
            lost = self._not_durable()
            if self._entered and lost.issuperset(self._entered):
                raise Down(str(error)) from error
            each = [[Pressed(str(error)) if outcome is None and row.queue in lost else outcome
                     for row, outcome in zip(group, found, strict=True)] for group, found in zip(groups, each, strict=True)]
        except Closed as error:
            raise Down(str(error)) from error
        if len(groups) == 1:
            return each[0]
        outcomes = {row.id: outcome for group, found in zip(groups, each, strict=True)
                    for row, outcome in zip(group, found, strict=True)}
        return [outcomes[row.id] for row in rows]

    def _not_durable(self) -> set[str]:
        """The queues of this batch that have messages which are not on the disk, and will not be soon."""
        until = time.monotonic() + OTHERS_SECONDS
        while True:
            there = {name: self._engine.queues.get(name) for name in self._entered}
            waiting = {name for name, queue in there.items() if queue is not None and queue.durable_id < self._entered[name]}
            well = {name for name in waiting if self._engine.stores[store_name(cast("Queue", there[name]))].error is None}
            if not well or time.monotonic() >= until:
                return waiting
            time.sleep(LOOK_SECONDS)

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
            props = [{} if row.props is None else unpack(row.props) for row in rows]
            queues = {row.queue for row in rows}
            if len(queues) > 1 or any(row.at is not None for row in rows) or any("ttl" in each for each in props):
                with self._engine.transaction() as tx:
                    for row, values, each in zip(rows, headers, props, strict=True):
                        tx.publish(row.queue, _message(row, values, each), delay=delay_of(row), ttl=ttl_of(row, each))
                for row, number in zip(rows, tx.ids, strict=True):
                    self._entered[row.queue] = max(number, self._entered.get(row.queue, 0))
                return
            # All of one call are in one group on the disk, too, and it costs a fraction.
            [queue] = queues
            numbers = self._engine.publish_many(queue, [
                _message(row, values, each) if each else (row.address, row.body, values, row.reply_to, row.message_id)
                for row, values, each in zip(rows, headers, props, strict=True)])
            if numbers:
                self._entered[queue] = numbers[-1]
        except (QueueFull, StoreFull, StoreFailed) as error:       # other queues, and other stores, go on
            raise Pressed(str(error)) from error
        except (Closed, ForkedError) as error:
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
                logger.warning("queue %r is in a store that does not survive a crash, and the relay deletes the messages "
                               "that it has sent: create the queue in a durable store", name)

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
