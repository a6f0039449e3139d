"""The outbox: messages that are sent if, and only if, the transaction that wrote them is committed.

Theory: an id is drawn before the commit, so ids become visible out of order, and what remembers "the last id seen" loses
messages. Here rows leave by DELETE, and whatever is there is to be sent. Rows of a key are sent in order of id, which is the
order of the commits where writers of the key exclude each other: by a row that they lock before they publish, or by `lock=True`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, cast, delete, func, insert, literal, not_, null, select, update
from sqlalchemy.orm import Session

from xump import Message
from xump.sql.errors import ConfigurationError
from xump.sql.hosts import ThreadHost
from xump.sql.moments import Now, micros, remember
from xump.sql.parking import release_keys
from xump.sql.payload import digest, key_column, new_id, pack, slot_of, text_column, unpack
from xump.sql.relay import Relay
from xump.sql.schema import usable
from xump.sql.tables import Tables, tables as made_tables
from xump.sql.transactions import oldest_snapshot
from xump.sql.wake import Wake

ORDERS = ("key", "all", None)
ALL = "\x01all"
"""The key that `order="all"` locks; no key of a user's, since keys are compared by a digest of their own."""
KEY_OF_ALL = "all"
FIELDS = ("slot", "queue", "address", "key", "body", "headers", "reply_to", "message_id", "props")
PRIORITY_MAX = 255


class Outbox:
    """Messages in the user's transaction, for relays to send.

    Args:
        tables: Which tables; None: those of `tables()`.
        order: Which rows are sent in order of id: `"key"`, those of one key; `"all"`, all, with one writer at a time; None: none.
        wake: How a commit wakes relays; None: those of this process that wait on this object.

    A message is sent at least once. It enters a queue with `dedup` exactly once, within that queue's window.

    >>> from sqlalchemy import create_engine
    >>> import xump
    >>> from xump.sql import Outbox, configure_sqlite, init
    >>> database = configure_sqlite(create_engine("sqlite://"))
    >>> init(database)
    >>> outbox = Outbox()
    >>> with database.begin() as connection:
    ...     number = outbox.publish(connection, "orders", "order.new", b"{}", message_id="order 1")
    >>> with xump.Engine() as engine:
    ...     orders = engine.create_queue("orders", dedup=3600)
    ...     outbox.relay(engine, engine=database).step(), orders.ready
    (1, 1)
    """

    def __init__(self, *, tables: Tables | None = None, order: str | None = "key", wake: Wake | None = None) -> None:
        if order not in ORDERS:
            raise ValueError(f'order must be "key", "all" or None, got {order!r}')
        self.tables = tables or made_tables()
        """Its tables."""
        self.order = order
        """Which order it keeps."""
        self.wake = wake or Wake.local()
        """How relays are woken."""
        _table = self.tables.outbox
        _fields = {name: bindparam(name, type_=_table.c[name].type) for name in FIELDS}
        _delayed = {"at": cast(Now(), BigInteger) + bindparam("delay", type_=BigInteger)}
        # The two statements that are run again and again, made once.
        self._insert = insert(_table).values(**_fields, created=Now()).inline()
        self._insert_delayed = insert(_table).values(**_fields, created=Now(), **_delayed).inline()

    def publish(
        self, connection: Connection | Session, queue: str, address: str = "", body: bytes = b"",
        headers: Mapping[str, Any] | None = None, *, key: str | None = None, lock: bool = False, message_id: str | None = None,
        reply_to: str | None = None, correlation_id: str | None = None, delay: float | None = None, ttl: float | None = None,
        priority: int = 0,
    ) -> str:
        """Write a message into the outbox, in the transaction of `connection`.

        Args:
            connection: Yours; you commit. `publish` neither begins nor ends anything. A Session is flushed before.
            queue: The queue, or the exchange, that it is for.
            address: The text that it is routed by.
            body: Bytes.
            headers: Values by name: bool, int (64 bits, signed), float, str or bytes; together at most 1 MiB.
            key: Messages of one key are sent in order. Of more than 200 characters the beginning and a digest are kept. With
                `order="all"` all have one key.
            lock: Have writers of this key wait for each other until their commits (PostgreSQL).
            message_id: Its name; None: a UUID. A queue with `dedup` recognises copies by it.
            reply_to, correlation_id, priority: As for `Engine.publish`.
            delay: After how many seconds it may be taken from its queue, counted from now.
            ttl: After how many seconds it expires, counted from now.

        Returns:
            The message id.

        Raises:
            TypeError, ValueError: An argument is wrong, or longer than a message can have it; nothing has changed.
            SchemaMismatch: The tables are not there, or of another version.
            ConfigurationError: A savepoint of SQLite is open that would be committed on its own.

        Errors of the database come to you unchanged. Cost: one INSERT; with `lock`, a wait for other writers of the key.
        """
        row = self._row(queue, address, body, headers, key, message_id, reply_to, correlation_id, delay, ttl, priority)
        self._write(self._flushed(connection), [row], {key} if lock else set())
        self.wake.written(connection)
        return str(row["message_id"])

    def publish_many(self, connection: Connection | Session, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """Write many messages: mappings with the names of the arguments of `publish`.

        Returns:
            The message ids, in order.

        Raises:
            TypeError, ValueError: A row is wrong; nothing has changed.

        Locks are taken in one order, so that two transactions that lock the same keys do not wait for each other for ever.
        Cost: one round trip for some hundred rows.
        """
        made, locked = [], set()
        for given in rows:
            fields = {"address": "", "body": b"", "headers": None, "key": None, "message_id": None, "reply_to": None,
                      "correlation_id": None, "delay": None, "ttl": None, "priority": 0, **given}
            if fields.pop("lock", False):
                locked.add(fields["key"])
            made.append(self._row(**fields))
        if made:
            self._write(self._flushed(connection), made, locked)
            self.wake.written(connection)
        return [str(row["message_id"]) for row in made]

    def _flushed(self, connection: Connection | Session) -> Connection:
        """The connection, flushed: a session may hold back the change by which the writers of a key exclude each other."""
        if isinstance(connection, Session):
            connection.flush()
        return usable(connection, self.tables)

    def _row(
        self, queue: str, address: str, body: bytes, headers: Mapping[str, Any] | None, key: str | None, message_id: str | None,
        reply_to: str | None, correlation_id: str | None, delay: float | None, ttl: float | None, priority: int,
    ) -> dict[str, Any]:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise TypeError(f"body must be bytes, got {type(body).__name__}")
        if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority must be an int from 0 to {PRIORITY_MAX}, got {priority!r}")
        # What no engine takes is refused here, and not when you have committed it.
        Message(address, body, headers, reply_to=reply_to, message_id=message_id, correlation_id=correlation_id)
        props = {"correlation_id": None if correlation_id is None else text_column(correlation_id, "correlation_id"),
                 "priority": priority or None, "ttl": None if ttl is None else micros(ttl, "ttl")}
        if key is not None:
            key = key_column(key)
        if self.order == "all":
            key = KEY_OF_ALL        # whatever holds one row back holds back all behind it
        return {
            "slot": 0 if self.order == "all" else slot_of(key), "queue": text_column(queue, "queue"),
            "address": text_column(address, "address"), "key": key, "body": bytes(body), "headers": pack(headers),
            "reply_to": None if reply_to is None else text_column(reply_to, "reply_to"),
            "message_id": new_id() if message_id is None else text_column(message_id, "message_id"),
            "props": pack({name: value for name, value in props.items() if value is not None}),
            "delay": None if delay is None else micros(delay, "delay"),
        }

    def _write(self, connection: Connection, rows: list[dict[str, Any]], locked: set[str | None]) -> None:
        if None in locked:
            raise ValueError("lock=True needs a key: writers of one key wait for each other")
        if self.order == "all":
            locked = {ALL}
        if locked and connection.dialect.name == "postgresql":
            # Before the ids are drawn: the id is then later than those of all commits that this one waited for.
            for number in sorted(int.from_bytes(digest("outbox", key or "")[:8], "big", signed=True) for key in locked):
                connection.execute(select(func.pg_advisory_xact_lock(literal(number, BigInteger))))
        elif locked and connection.dialect.name != "sqlite":        # SQLite has one writer
            raise ConfigurationError(f"lock=True and order='all' are for PostgreSQL and SQLite, not {connection.dialect.name}: "
                                     "lock a row of your own before you publish")
        remember(connection)
        at_once = [row for row in rows if row["delay"] is None]
        if len(at_once) == len(rows):
            connection.execute(self._insert, rows if len(rows) > 1 else rows[0])
            return
        for row in rows:                # one by one: ids are in the order of the rows
            connection.execute(self._insert if row["delay"] is None else self._insert_delayed, row)

    @contextmanager
    def waking(self, connection: Connection | Session | None = None) -> Iterator[None]:
        """Wake relays when the block has ended without an exception. A Core connection does not tell of its commit: put it here.

        >>> from xump.sql import Outbox
        >>> with Outbox().waking():
        ...     pass    # publish, and connection.commit()
        """
        with self.wake.waking():
            yield

    def relay(
        self, target: Any, *, engine: Any, batch: int = 2000, poll: float = 1.0, lease: float = 30.0, max_attempts: int = 5,
        retry_delay: float | tuple[float, ...] = (1, 5, 30), on_dead: str = "block",
    ) -> Relay:
        """Make a relay, which sends what is in the outbox. Any number of them may run.

        Args:
            target: An `xump.Engine`, the URL of a broker (`amqp://`, `http://`), or a `Target`.
            engine: The database.
            batch: How many rows are sent at once.
            poll: After how many seconds it looks again, if nothing woke it.
            lease: For how many seconds its share of the keys is its own; renewed each third.
            max_attempts: After how many attempts a row that cannot be sent is dead.
            retry_delay: Seconds until the next attempt, one after the other.
            on_dead: `"block"`: the key of a dead row waits until you revive or drop it. `"skip"`: the key goes on.

        Returns:
            The relay; call `run()` in a thread of its own, or `step()` yourself.
        """
        return Relay(self, target, ThreadHost(engine), batch=batch, poll=poll, lease=lease, max_attempts=max_attempts,
                     retry_delay=retry_delay, on_dead=on_dead)

    # ---- looking after it

    def stats(self, connection: Connection | Session) -> dict[str, Any]:
        """How much is in the outbox: `waiting`, `parked`, `dead`, `oldest_seconds`, and `oldest_snapshot_seconds` of PostgreSQL.

        The oldest is the oldest of those that wait and those that are parked. Cost: O(both), by index; sent rows are not there.
        """
        core, table = usable(connection, self.tables), self.tables.outbox
        numbers = select(func.count(), func.min(table.c.created)).where(table.c.dead_at.is_(None))
        count, oldest = core.execute(numbers.where(not_(table.c.parked))).one()
        parked, oldest_parked = core.execute(numbers.where(table.c.parked)).one()
        oldest = min((one for one in (oldest, oldest_parked) if one is not None), default=None)
        dead = core.execute(select(func.count()).where(table.c.dead_at.is_not(None))).scalar_one()
        now = core.execute(select(Now())).scalar_one()
        return {"waiting": count, "parked": parked, "dead": dead,
                "oldest_seconds": 0.0 if oldest is None else max(0, now - oldest) / 1e6,
                "oldest_snapshot_seconds": oldest_snapshot(core)}

    def dead(self, connection: Connection | Session, limit: int = 100) -> list[dict[str, Any]]:
        """The rows that could not be sent, with their `error`."""
        table = self.tables.outbox
        found = usable(connection, self.tables).execute(
            select(table).where(table.c.dead_at.is_not(None)).order_by(table.c.id).limit(limit))
        return [{**row, "headers": unpack(row["headers"]), "props": unpack(row["props"])} for row in found.mappings()]

    def revive(self, connection: Connection | Session, ids: Iterable[int]) -> int:
        """Have dead rows sent again, from the first attempt on, and their keys with them. Returns how many."""
        table, core, wanted = self.tables.outbox, usable(connection, self.tables), list(ids)
        revived = core.execute(
            update(table).where(table.c.id.in_(wanted), table.c.dead_at.is_not(None))
            .values(dead_at=null(), retry_at=null(), attempts=0, error=null(), parked=False)
            .returning(table.c.id, table.c.key)).all()
        release_keys(core, self.tables, {key for _, key in revived if key is not None})
        self.wake.written(connection)
        return len(revived)

    def drop(self, connection: Connection | Session, ids: Iterable[int]) -> int:
        """Delete dead rows, and let their keys go on. Returns how many."""
        table, core, wanted = self.tables.outbox, usable(connection, self.tables), list(ids)
        gone = core.execute(delete(table).where(table.c.id.in_(wanted), table.c.dead_at.is_not(None))
                            .returning(table.c.id, table.c.key)).all()
        release_keys(core, self.tables, {key for _, key in gone if key is not None})
        self.wake.written(connection)
        return len(gone)

