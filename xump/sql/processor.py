"""Processing stored messages: claimed and counted in a transaction of its own, handled in the one that marks them as done."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Connection, cast, exists, func, null, or_, select, tuple_, update
from sqlalchemy.exc import DBAPIError

from xump import Message
from xump.sql.claims import JUST_MICROS, JUST_SECONDS
from xump.sql.hosts import Host
from xump.sql.moments import Now, delay_after, delays, micros
from xump.sql.payload import error_column, told, unpack
from xump.sql.relay import jittered
from xump.sql.transactions import AWAY, begun, in_own, own, refuse

if TYPE_CHECKING:
    from xump.sql.inbox import Inbox

logger = logging.getLogger("xump.sql")
PURGE_SECONDS = 60.0


class Processor:
    """Handles what is in an inbox. Made by `Inbox.process`."""

    def __init__(
        self, inbox: Inbox, handler: Callable[..., Any], host: Host, *, workers: int, batch: int, lease: float, poll: float,
        max_attempts: int, retry_delay: float | tuple[float, ...],
    ) -> None:
        for name, value in (("workers", workers), ("batch", batch), ("max_attempts", max_attempts)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an int from 1 on, got {value!r}")
        if micros(lease, "lease") == 0 or micros(poll, "poll") == 0:
            raise ValueError(f"lease and poll must be more than 0 seconds, got {lease!r} and {poll!r}")
        self._inbox, self._handler, self._host, self._engine = inbox, handler, host, own(host.engine, inbox.tables)
        self._workers, self._lease, self._poll = workers, micros(lease, "lease"), poll
        self._max_attempts, self._retry = max_attempts, delays(retry_delay, "retry_delay")
        # With one attempt, a message that kills its process would take those that were claimed with it along.
        self._together = batch if max_attempts > 1 else 1
        self._stopped = False
        self._event: Any = None
        self._ending = False                # one of the loops has ended: all do
        self._held: set[tuple[int, int]] = set()    # the ids and attempts of what is claimed
        self._lock = threading.Lock()
        self.handled = 0
        """How many messages it has handled."""

    def run(self) -> None:
        """Handle messages until `stop()`, in as many threads as `workers` says. Old rows are deleted each minute.

        An exception that ends one of the threads ends all of them, and is raised.
        """
        self._event, self._ending = self._host.event(), False
        renewing = self._host.every(self._lease / 3e6, self._renew)
        purging = self._host.every(PURGE_SECONDS, self._purge)
        try:
            self._host.together(self._workers, self._loop)
        finally:
            purging()
            renewing()

    def _loop(self) -> None:
        try:
            while not (self._stopped or self._ending):
                wait = jittered(self._poll)
                try:
                    found = self.step()
                    if not found:
                        wait = min(wait, self._due_in())
                except AWAY:
                    logger.exception("the processor cannot reach the database; it tries again")
                    found = 0
                if not found:
                    self._host.wait(self._event, wait)
        finally:
            self._ending = True
            self._event.set()

    def stop(self) -> None:
        """Have `run` return after the messages that it is at."""
        self._stopped = True
        if self._event is not None:
            self._event.set()

    def step(self) -> int:
        """Claim a batch and handle it. Returns how many messages were claimed."""
        rows = in_own(self._engine, self._claim)
        # With the attempts: a row that failed may be claimed by another worker of ours before it is taken off here.
        held = [(row.id, row.attempts) for row in rows]
        with self._lock:
            self._held.update(held)
        try:
            for row, one in zip(rows, held, strict=True):
                self._attempt(row)
                with self._lock:
                    self._held.discard(one)
        finally:
            with self._lock:
                self._held.difference_update(held)
        return len(rows)

    def _attempt(self, row: Any) -> None:
        try:
            in_own(self._engine, partial(self._one, row))
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            self._failed(row, error)
        except Exception as error:
            self._failed(row, error)

    def _renew(self) -> None:
        """Renew the leases of what is claimed. A row that is locked is being handled: no claim takes it, whatever its lease."""
        table = self._inbox.tables.inbox
        with self._lock:
            held = sorted(self._held)
        if not held:
            return
        ours = tuple_(table.c.id, table.c.attempts).in_(held) & table.c.done_at.is_(None)

        def _work(connection: Connection) -> None:
            ids = list(connection.execute(select(table.c.id).where(ours).with_for_update(skip_locked=True)).scalars())
            if ids:
                connection.execute(update(table).where(table.c.id.in_(ids)).values(lease_until=Now() + self._lease))

        try:
            in_own(self._engine, _work)
        except AWAY:
            logger.exception("the processor could not renew its leases")

    def _claim(self, connection: Connection) -> list[Any]:
        table = self._inbox.tables.inbox
        ids = self._choose(connection)
        if not ids:
            return []
        claimed = connection.execute(
            update(table).where(table.c.id.in_(ids)).values(attempts=table.c.attempts + 1, lease_until=Now() + self._lease)
            .returning(table)).all()
        return sorted(claimed, key=lambda row: row.id)

    def _choose(self, connection: Connection) -> list[int]:
        """The ids of what is claimed: a batch, or one alone whose claim was over, since it may have killed its process.

        Others that were in the same batch are claimed alone, too. So what kills is dead after its attempts, and takes none along.
        """
        while rows := list(connection.execute(self._chosen())):
            crashed = next((row for row in rows if row.lease_until is not None), None)
            if crashed is None:
                return [row.id for row in rows]
            if crashed.attempts < self._max_attempts:
                return [crashed.id]
            said = f"its process ended, or hung, in attempt {crashed.attempts}"
            self._write_failure(connection, crashed, said, dead=True)
        return []

    def _chosen(self) -> Any:
        """The rows that may be claimed, locked."""
        table = self._inbox.tables.inbox
        chosen = (select(table.c.id, table.c.attempts, table.c.lease_until).where(
            table.c.done_at.is_(None), table.c.dead_at.is_(None), table.c.retry_at <= Now(),
            or_(table.c.lease_until.is_(None), table.c.lease_until <= Now())))
        if self._inbox.order == "key":
            other = table.alias()
            earlier = [other.c.key == table.c.key, other.c.id < table.c.id, other.c.done_at.is_(None)]
            if self._inbox.on_dead == "skip":
                earlier.append(other.c.dead_at.is_(None))
            chosen = chosen.where(~exists().where(*earlier))
        return chosen.order_by(table.c.retry_at, table.c.id).limit(self._together).with_for_update(skip_locked=True, of=table)

    def _one(self, row: Any, connection: Connection) -> None:
        table = self._inbox.tables.inbox
        mine = (table.c.id == row.id) & (table.c.attempts == row.attempts) & table.c.done_at.is_(None)
        if connection.execute(select(table.c.id).where(mine).with_for_update()).first() is None:
            logger.warning("the lease of message %d of the inbox was over before it was its turn", row.id)
            return
        message = Message(row.address, bytes(row.body), unpack(row.headers), reply_to=row.reply_to, message_id=row.message_id,
                          correlation_id=row.correlation_id)
        began = begun(connection)
        self._host.handle(self._handler, connection, message)
        refuse(began)
        connection.execute(update(table).where(table.c.id == row.id)
                           .values(done_at=Now(), body=null(), headers=null(), lease_until=null()))
        self.handled += 1

    def _failed(self, row: Any, error: BaseException) -> None:
        said, dead = f"{type(error).__name__}: {told(error)}", row.attempts >= self._max_attempts
        in_own(self._engine, lambda connection: self._write_failure(connection, row, said, dead))

    def _write_failure(self, connection: Connection, row: Any, error: str, dead: bool) -> None:
        table = self._inbox.tables.inbox
        said = error_column(error)
        logger.warning("message %d of the inbox failed, attempt %d%s: %s", row.id, row.attempts, ", it is dead" if dead else "",
                       said)
        values = {"error": said, "lease_until": null(), "dead_at": Now() if dead else null(),
                  "retry_at": Now() + delay_after(self._retry, row.attempts)}
        ours = (table.c.id == row.id) & (table.c.attempts == row.attempts) & table.c.done_at.is_(None)
        connection.execute(update(table).where(ours).values(**values))

    def _due_in(self) -> float:
        """In how many seconds the next attempt is due; infinity if none is."""
        table = self._inbox.tables.inbox
        soonest = (select(func.min(table.c.retry_at) - cast(Now(), BigInteger))
                   .where(table.c.done_at.is_(None), table.c.dead_at.is_(None), table.c.lease_until.is_(None),
                          table.c.retry_at > Now() - JUST_MICROS))
        found = in_own(self._engine, lambda connection: connection.execute(soonest).scalar())
        return math.inf if found is None else max(JUST_SECONDS, found / 1e6)

    def _purge(self) -> None:
        """Forget what was done long ago."""
        try:
            self._inbox.purge(self._host.engine)
        except AWAY:
            logger.exception("the processor could not delete what is old; it tries again")
