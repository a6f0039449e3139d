"""The inbox: a message whose effect in the database happens once, although the message comes twice.

Theory: the row of a message is unique by a digest of its source and id. The first one to insert it has the message; a copy waits
for the first one's transaction, and has it if that is rolled back. So the effect and the row are committed together, or not at
all, and what comes after that is a copy. The ack comes last: what is lost before it comes again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import BigInteger, Connection, Transaction, bindparam, cast, delete, func, null, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session

from xump import Delivery
from xump.errors import StaleDelivery
from xump.sql.errors import ConfigurationError, MissingId
from xump.sql.hosts import ThreadHost
from xump.sql.moments import Now, micros, remember
from xump.sql.payload import digest, key_column, pack, text_column, unpack
from xump.sql.processor import Processor
from xump.sql.schema import usable
from xump.sql.tables import Tables, tables as made_tables
from xump.sql.transactions import begun, in_own, own, refuse

logger = logging.getLogger("xump.sql")
RETAIN = 604_800.0
"""A week: what is replayed later is taken as new."""
CHUNK = 5_000
FIELDS = ("digest", "source", "message_id", "key", "address", "body", "headers", "reply_to", "correlation_id")


class Inbox:
    """Messages that have an effect once.

    Args:
        tables: Which tables; None: those of `tables()`.
        retain: For how many seconds a message that is done is remembered.
        order: `"key"`: `process` handles messages of one key one after the other, in the order in which they were stored.
        key: A function of a delivery that gives its key; None: its `group`.
        id_of: A function of a delivery that gives its id; None: its `message_id`.
        on_dead: `"block"`: the key of a dead message waits. `"skip"`: the key goes on.

    >>> from sqlalchemy import create_engine, text
    >>> import xump
    >>> from xump.sql import Inbox, configure_sqlite, init
    >>> database = configure_sqlite(create_engine("sqlite://"))
    >>> init(database)
    >>> with database.begin() as connection:
    ...     done = connection.execute(text("CREATE TABLE paid (amount int)"))
    >>> def pay(connection, message):
    ...     connection.execute(text("INSERT INTO paid VALUES (:amount)"), {"amount": int(message.body)})
    >>> inbox = Inbox()
    >>> with xump.Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     numbers = [jobs.publish("pay", b"5", message_id="payment 1") for _ in range(2)]
    ...     selector = engine.create_selector("jobs", when=xump.always, do=xump.deliver("worker"), credit=2)
    ...     [inbox.handle(database, delivery, pay) for delivery in engine.take(2, "worker")]
    [True, False]
    """

    def __init__(
        self, *, tables: Tables | None = None, retain: float = RETAIN, order: str | None = None,
        key: Callable[[Any], str | None] | None = None, id_of: Callable[[Any], str] | None = None, on_dead: str = "block",
    ) -> None:
        if order not in ("key", None):
            raise ValueError(f'order must be "key" or None, got {order!r}')
        if on_dead not in ("block", "skip"):
            raise ValueError(f'on_dead must be "block" or "skip", got {on_dead!r}')
        self.tables = tables or made_tables()
        """Its tables."""
        self.order = order
        """Which order it keeps."""
        self.on_dead = on_dead
        """How the key of a dead message goes on."""
        self._retain, self._key, self._id_of = micros(retain, "retain"), key, id_of
        self._inserts: dict[tuple[str, bool], Any] = {}
        self._warned: set[str] = set()

    # ---- one message, in the user's transaction

    @contextmanager
    def once(
        self, connection: Connection | Session, delivery: Any = None, *, source: str | None = None, message_id: str | None = None
    ) -> Iterator[bool]:
        """Mark a message as done in the transaction of `connection`, and say whether it was not before.

        Args:
            connection: Yours; you commit.
            delivery: The message; or instead of it
            source, message_id: whose id this is, and the id: of an HTTP request, say.

        Yields:
            Whether it is fresh: False for a copy. A block cannot skip itself: `if fresh:`.

        Raises:
            MissingId: The message has no id.
            TransactionAborted: A statement in the block failed, its error was swallowed, and the commit would be a rollback. Or
                the block has ended the transaction: a rollback there takes the mark along.

        It neither commits nor acks. Right is: ack outermost, after the commit.

            with delivery, database.begin() as connection, inbox.once(connection, delivery) as fresh:
                if fresh:
                    ...
        """
        fresh, began = self._mark(connection, delivery, source, message_id)
        yield fresh
        refuse(began)

    def _mark(
        self, connection: Connection | Session, delivery: Any, source: str | None, message_id: str | None,
    ) -> tuple[bool, Transaction]:
        """Returns whether it is fresh, and the transaction that says so once it is committed."""
        core = usable(connection, self.tables)
        if delivery is not None:
            row = self._row(delivery)
        elif source is None or message_id is None:
            raise MissingId("once needs a delivery, or source and message_id")
        else:
            row = self._named(source, message_id)
        remember(core)
        fresh = core.execute(self._insert(core.dialect.name, done=True), row).rowcount == 1
        return fresh, begun(core)

    def handle(self, engine: Any, delivery: Any, handler: Callable[[Connection, Any], Any]) -> bool:
        """Handle a message once, and ack it: the handler runs in the transaction that marks the message as done.

        Args:
            engine: The database.
            delivery: The message; it is acked after the commit, and given back if anything raises.
            handler: Called as `handler(connection, message)`.

        Returns:
            Whether it was fresh; False for a copy, which is acked without the handler.

        Raises:
            MissingId: The message has no id. It goes back to its queue.
            TransactionAborted: The handler swallowed the error of a statement, or ended the transaction. The message goes back to
                its queue.
        """
        return self._handle(ThreadHost(engine), delivery, handler)

    def _handle(self, host: Any, delivery: Any, handler: Callable[..., Any]) -> bool:
        engine = own(host.engine, self.tables)

        def _work(connection: Connection) -> bool:
            with self.once(connection, delivery) as fresh:
                if fresh:
                    host.handle(handler, connection, delivery.message)
            return fresh

        with delivery:
            return in_own(engine, _work)

    # ---- store first, process later

    def receive(self, engine: Any, deliveries: Any) -> int:
        """Store messages, commit, and ack them, new or not.

        Args:
            engine: The database.
            deliveries: A delivery, or an iterable of them.

        Returns:
            How many were new.

        Raises:
            MissingId: One has no id; none is stored, and all go back to their queue.
            TypeError, ValueError: A text of one has a NUL, which a column cannot hold, or its key is no text; likewise.

        Cost: one transaction.
        """
        given = [deliveries] if isinstance(deliveries, Delivery) else list(deliveries)
        try:
            rows = [self._row(one, whole=True) for one in given]
            if self.order is None:
                # Two transactions with the same messages do not wait for each other then. With an order they may, for which the
                # database ends one, and it is tried again: ids must be in the order of the deliveries.
                rows.sort(key=lambda row: bytes(row["digest"]))

            def _work(connection: Connection) -> int:
                core = usable(connection, self.tables)
                statement = self._insert(core.dialect.name, done=False)
                return sum(core.execute(statement, row).rowcount for row in rows)

            new = in_own(own(engine, self.tables), _work) if rows else 0
        except BaseException:
            for one in given:
                with suppress(StaleDelivery):       # the engine has it back already
                    one.nack()
            raise
        for one in given:
            try:
                one.ack()
            except StaleDelivery:
                logger.info("message %r was taken back before it was acked: it comes again, as a copy", one.message.message_id)
        return new

    def process(
        self, handler: Callable[[Connection, Any], Any], *, engine: Any, workers: int = 1, batch: int = 10, lease: float = 60.0,
        poll: float = 1.0, max_attempts: int = 5, retry_delay: float | tuple[float, ...] = (1, 10, 60),
    ) -> Processor:
        """Make a processor of stored messages.

        Args:
            handler: Called as `handler(connection, message)`, in the transaction that marks the message as done.
            engine: The database.
            workers: How many threads.
            batch: How many messages are claimed at once.
            lease: For how many seconds a claim is its own; `run` renews it each third.
            poll: After how many seconds it looks again.
            max_attempts: After how many attempts a message is dead.
            retry_delay: Seconds until the next attempt, one after the other.

        Returns:
            The processor; call `run()` in a thread of its own, or `step()` yourself.
        """
        return Processor(self, handler, ThreadHost(engine), workers=workers, batch=batch, lease=lease, poll=poll,
                         max_attempts=max_attempts, retry_delay=retry_delay)

    # ---- rows

    def _row(self, delivery: Any, whole: bool = False) -> dict[str, Any]:
        message = delivery.message
        name = self._id_of(delivery) if self._id_of else message.message_id
        if not name:
            raise MissingId(f"message {message.id} of queue {delivery.queue.name!r} has no message_id, so a copy of it could not "
                            "be recognised: publish with message_id=, or give the inbox id_of=")
        self._warn(delivery.queue)
        row = self._named(delivery.queue.name, name)
        key = self._key(delivery) if self._key else delivery.group
        row |= {"address": text_column(message.address, "address"), "key": None if key is None else key_column(key)}
        if whole:
            row |= {"body": message.body, "headers": pack(dict(message.headers))}
            row |= {name: value and text_column(value, name) for name, value in (
                ("reply_to", message.reply_to), ("correlation_id", message.correlation_id))}
        return row

    def _warn(self, queue: Any) -> None:
        """Log once a queue that a copy may come from it when the message is forgotten."""
        if queue.name in self._warned:
            return
        self._warned.add(queue.name)
        span = max(getattr(queue, "ttl", None) or 0.0, _retries(queue))
        if span > self._retain / 1e6:
            logger.warning("messages of queue %r may come again for %g seconds, and the inbox remembers them for %g: give it "
                           "retain=%g or more", queue.name, span, self._retain / 1e6, span)

    def _named(self, source: str, message_id: str) -> dict[str, Any]:
        if not isinstance(message_id, str) or not isinstance(source, str):
            raise TypeError(f"source and message_id must be str, got {type(source).__name__} and {type(message_id).__name__}")
        found = digest(source, message_id)
        # The digest tells messages apart. These two are for people to read.
        shown = {"source": text_column(source, "source"), "message_id": text_column(message_id, "message_id")}
        return {**dict.fromkeys(FIELDS), **shown, "digest": found, "address": ""}

    def _insert(self, dialect: str, done: bool) -> Any:
        known = self._inserts.get((dialect, done))
        if known is not None:
            return known
        table = self.tables.inbox
        values: dict[str, Any] = {name: bindparam(name, type_=table.c[name].type) for name in FIELDS}
        values |= {"received": Now(), "retry_at": Now(), "done_at": Now() if done else null()}
        if dialect == "postgresql":
            made: Any = postgresql.insert(table).values(**values).on_conflict_do_nothing(index_elements=["digest"])
        elif dialect == "sqlite":
            made = sqlite.insert(table).values(**values).on_conflict_do_nothing(index_elements=["digest"])
        elif dialect in ("mysql", "mariadb"):
            made = mysql.insert(table).values(**values).prefix_with("IGNORE")
        else:
            raise ConfigurationError(f"the inbox is for PostgreSQL, SQLite, MySQL and MariaDB, not {dialect}")
        self._inserts[dialect, done] = made = made.inline().execution_options(preserve_rowcount=True)
        return made

    # ---- looking after it

    def stats(self, connection: Connection | Session) -> dict[str, Any]:
        """How much is in the inbox: `waiting`, `dead`, `oldest_seconds`. Cost: O(waiting rows), by index."""
        core, table = usable(connection, self.tables), self.tables.inbox
        waiting, oldest, now = core.execute(
            select(func.count(table.c.id), func.min(table.c.received), cast(Now(), BigInteger))
            .where(table.c.done_at.is_(None), table.c.dead_at.is_(None))).one()
        dead = core.execute(select(func.count()).where(table.c.dead_at.is_not(None))).scalar_one()
        return {"waiting": waiting, "dead": dead, "oldest_seconds": 0.0 if oldest is None else max(0, now - oldest) / 1e6}

    def dead(self, connection: Connection | Session, limit: int = 100) -> list[dict[str, Any]]:
        """The messages whose handler failed each time, with their `error`."""
        table = self.tables.inbox
        found = usable(connection, self.tables).execute(
            select(table).where(table.c.dead_at.is_not(None)).order_by(table.c.id).limit(limit))
        return [{**row, "headers": unpack(row["headers"])} for row in found.mappings()]

    def revive(self, connection: Connection | Session, ids: Iterable[int]) -> int:
        """Have dead messages processed again, from the first attempt on. Returns how many."""
        table = self.tables.inbox
        return int(usable(connection, self.tables).execute(
            update(table).where(table.c.id.in_(list(ids)), table.c.dead_at.is_not(None))
            .values(dead_at=null(), attempts=0, retry_at=Now(), lease_until=null(), error=null())).rowcount)

    def drop(self, connection: Connection | Session, ids: Iterable[int]) -> int:
        """Give dead messages up: they count as done, so that a copy is not taken as new. Returns how many."""
        table = self.tables.inbox
        return int(usable(connection, self.tables).execute(
            update(table).where(table.c.id.in_(list(ids)), table.c.dead_at.is_not(None))
            .values(dead_at=null(), done_at=Now(), body=null(), headers=null())).rowcount)

    def purge(self, engine: Any) -> int:
        """Forget the messages that were done more than `retain` ago, 5,000 a transaction. Returns how many."""
        table, total = self.tables.inbox, 0
        old = (select(table.c.id).where(table.c.done_at < Now() - self._retain).order_by(table.c.done_at).limit(CHUNK)
               .with_for_update(skip_locked=True))

        def _work(connection: Connection) -> int:
            ids = list(connection.execute(old).scalars())
            return connection.execute(delete(table).where(table.c.id.in_(ids))).rowcount if ids else 0

        while True:
            gone = in_own(own(engine, self.tables), _work)
            total += gone
            if gone < CHUNK:
                return total


def _retries(queue: Any) -> float:
    """For how many seconds a queue delivers a message again, as far as it has a limit."""
    given, limit = getattr(queue, "retry_delay", None), getattr(queue, "delivery_limit", None)
    if given is None or limit is None:
        return 0.0
    each = list(given) if isinstance(given, (list, tuple)) else [given]
    return float(sum(each[:limit - 1]) + each[-1] * max(0, limit - 1 - len(each)))
