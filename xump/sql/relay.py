"""The relay: leases slots, reads their rows, sends them, and deletes them in a statement that holds only while the leases do.

No lock is held while the network is waited for. A relay that dies, or that sleeps past its lease, sends nothing that another one
will not send, too: rows come twice then, and never out of order for the first time.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    and_,
    any_,
    bindparam,
    cast,
    delete,
    func,
    null,
    select,
    update,
)

from xump.sql.ahead import Ahead, Behind
from xump.sql.claims import JUST_MICROS, JUST_SECONDS
from xump.sql.direct import is_direct, numbers, quoted
from xump.sql.errors import SchemaMismatch
from xump.sql.hosts import Host
from xump.sql.moments import POSTGRESQL, Now, delay_after, delays, micros
from xump.sql.outcomes import Down, Later, Pressed, Refused, Row, Untried
from xump.sql.parking import release_keys
from xump.sql.payload import error_column, new_id, told
from xump.sql.reading import Reader
from xump.sql.slots import Slots
from xump.sql.targets import target_of
from xump.sql.transactions import AWAY, in_own, own

if TYPE_CHECKING:
    from xump.sql.outbox import Outbox

logger = logging.getLogger("xump.sql")
JITTER = 0.2
# If the server crashes and forgets it, the rows are sent again, as after any crash: that needs no wait for a disk.
FORGET = """
DELETE FROM {outbox} WHERE id = ANY(CAST(%(ids)s AS bigint[]))
    AND slot IN (SELECT slot FROM {slot} WHERE owner = %(owner)s AND until > {now} FOR SHARE)
    AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'"""


def jittered(seconds: float) -> float:
    """So that relays and workers that were started together do not look together."""
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)


class LeaseOver(Exception):
    """The rows that were sent could not be deleted: another relay may have its slot."""


class Relay:
    """Sends what is in an outbox. Made by `Outbox.relay`."""

    def __init__(
        self, outbox: Outbox, target: Any, host: Host, *, batch: int, poll: float, lease: float, max_attempts: int,
        retry_delay: float | tuple[float, ...], on_dead: str,
    ) -> None:
        for name, value in (("batch", batch), ("max_attempts", max_attempts)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an int from 1 on, got {value!r}")
        if on_dead not in ("block", "skip"):
            raise ValueError(f'on_dead must be "block" or "skip", got {on_dead!r}')
        if micros(lease, "lease") == 0 or micros(poll, "poll") == 0:
            raise ValueError(f"lease and poll must be more than 0 seconds, got {lease!r} and {poll!r}")
        self._target, self._host, self._outbox = target_of(target), host, outbox
        self._tables, self._engine = outbox.tables, own(host.engine, outbox.tables)
        self._batch, self._poll, self._lease = batch, poll, lease
        self._max_attempts, self._retry, self._on_dead = max_attempts, delays(retry_delay, "retry_delay"), on_dead
        self._slots = Slots(outbox.tables, new_id(), micros(lease, "lease"))
        self._reader = Reader(outbox.tables, batch)
        self._shared_at = -lease
        # A key that is released must not be seen in between: what is read beside full queues is read in several statements.
        self._still = self._engine if host.engine.dialect.name == "sqlite" else (
            self._engine.execution_options(isolation_level="REPEATABLE READ"))
        self._full: dict[str, tuple[float, str]] = {}   # queues that are left out, until when, and why
        self._idle = False          # whether the last round had nothing to do
        self._stopped = False
        self._set_back = False      # whether rows were parked since it paused
        self._event: Any = None
        self._ahead: Ahead | None = None
        self._behind: Behind | None = None
        self._forget = FORGET.format(outbox=quoted(self._tables.outbox), slot=quoted(self._tables.slot), now=POSTGRESQL)
        self._statements: dict[str, Any] = {}
        self.sent = 0
        """How many rows it has sent and deleted."""
        self.lost = 0
        """How many it has sent, but could not delete, since its lease was over: they are sent again."""
        self.pressed: str | None = None
        """Why rows wait that should be sent: what the last round heard, or the queue that has no room; None: none does."""

    def run(self) -> None:
        """Send until `stop()`. A step that the database or the target cannot do now is tried again each `poll`."""
        with self._working() as event:
            while not self._stopped:
                event.clear()
                try:
                    self._try_again(time.monotonic())
                    self._rounds()
                except AWAY:
                    logger.exception("the relay cannot reach the database; it tries again")
                    self._idle, self._shared_at = True, -self._lease
                if not self._stopped and self._idle:
                    self._host.wait(event, self._pause())
            try:
                self._catch_up()
            except (*AWAY, LeaseOver):
                logger.exception("the relay could not delete what it has sent: it is sent again")

    def _pause(self) -> float:
        """For how long it waits: for its poll, or until a row or a queue is to be tried again, if that is sooner."""
        now = time.monotonic()
        wait = min([jittered(self._poll), *(max(0.0, until - now) for until, _ in self._full.values())])
        set_back, self._set_back = self._set_back, False
        if self._reader.parked or set_back:
            table = self._tables.outbox
            soonest = (select(func.min(table.c.retry_at) - cast(Now(), BigInteger))
                       .where(table.c.retry_at > Now() - JUST_MICROS, table.c.dead_at.is_(None)))
            try:
                micros_left = in_own(self._engine, lambda connection: connection.execute(soonest).scalar())
            except AWAY:
                return wait             # the next round says so
            if micros_left is not None:
                wait = min(wait, max(JUST_SECONDS, micros_left / 1e6))
        return wait

    def drain(self) -> int:
        """Send until nothing is left that can be sent now. Returns how many rows were sent and deleted.

        A queue that has no room is tried once.

        Raises:
            DBAPIError: The database cannot be reached.
        """
        before = self.sent
        with self._working():
            self._try_again()
            self._idle = False
            while not self._idle:
                self._rounds()
        return self.sent - before

    def stop(self) -> None:
        """Have `run` return after the batch that it is at."""
        self._stopped = True
        if self._event is not None:
            self._event.set()

    @contextmanager
    def _working(self) -> Iterator[Any]:
        """Leases are renewed, wake-ups come, and what goes to psycopg has its connections."""
        self._event = event = self._host.event()
        leave = self._outbox.wake.join(event)
        renewing = self._host.every(self._lease / 3, self._renew)
        if is_direct(self._host.engine):
            self._ahead, self._behind = Ahead(self._host.engine, self._reader), Behind(self._host.engine)
        try:
            yield event
        finally:
            renewing()
            leave()
            if self._ahead is not None and self._behind is not None:
                self._ahead.close()
                self._behind.close()
                self._ahead = self._behind = None
            self._leave()

    def step(self) -> int:
        """One round: share the slots if it is time, read, send, delete. Returns how many rows were sent and deleted.

        If a queue has no room, another round goes on with the rows for other queues. `run` and `drain` do the same, and there a
        batch may be deleted while the next one is sent.
        """
        self._try_again()
        return self._rounds()

    def _rounds(self) -> int:
        """A round, and another one without the queues that have turned out to be full."""
        sent = 0
        while True:
            known = len(self._full)
            sent += self._guarded_round()
            if len(self._full) == known:
                return sent

    def _try_again(self, now: float = math.inf) -> None:
        """Try queues again that were full, if it is time. All is read from the front then: their rows come first."""
        over = [queue for queue, (until, _) in self._full.items() if until <= now]
        for queue in over:
            del self._full[queue]
        if over:
            self._begin()

    def _guarded_round(self) -> int:
        self._idle = True
        try:
            return self._round()
        except LeaseOver:
            self._begin()
            self._shared_at = -self._lease      # what it has now is looked at before it sends more
            self._idle = False
            return 0
        except BaseException:
            self._begin()               # whether they were deleted is not known
            raise

    def _round(self) -> int:
        if time.monotonic() - self._shared_at > self._lease / 3:
            started = time.monotonic()
            if self._ahead is not None:
                self._ahead.drop()      # of slots that may be another relay's from now on
            self._catch_up()
            in_own(self._engine, self._slots.share)
            self._shared_at = started
            self._begin(self._slots.mine)
        if not self._slots.mine:
            return 0
        rows = self._read()
        if not rows:
            self._catch_up()
            self.pressed = self._why_full()
            return 0
        warn = getattr(self._target, "warn", None)
        if warn is not None:
            warn(rows, self._lease)
        if self._ahead is not None and not self._full:
            self._ahead.go_on()
        try:
            outcomes = self._host.call(self._target.send, rows)
        except Down as error:
            if self.pressed is None:
                logger.warning("the target cannot be reached, and %d rows wait: %s", len(rows), told(error))
            self.pressed = told(error)
            self._catch_up()
            self._begin()
            return 0
        pressed = [(row, outcome) for row, outcome in zip(rows, outcomes, strict=True) if isinstance(outcome, Pressed)]
        self.pressed = told(pressed[0][1]) if pressed else self._why_full()
        deleted = self._settle_all(rows, outcomes)
        if deleted:
            self._idle = False
        until = time.monotonic() + self._poll
        self._full |= {row.queue: (until, told(outcome)) for row, outcome in pressed if not isinstance(outcome, Untried)}
        if deleted < len(rows):
            self._begin()               # what is left comes first
        return deleted

    def _read(self) -> list[Row]:
        if not self._reader.has(self._slots.mine):
            self._begin(self._slots.mine)
        if self._full:
            self._catch_up()
            return in_own(self._still, partial(self._reader.read, full=sorted(self._full)))
        if self._ahead is not None:
            rows = self._ahead.taken()
            if rows:
                return rows
            self._catch_up()
            begun = self._ahead.read()
            if begun is not None:
                return begun
        return in_own(self._engine, self._reader.read)

    def _why_full(self) -> str | None:
        return next((why for _, why in self._full.values()), None)

    def _begin(self, slots: Sequence[int] | None = None) -> None:
        if self._ahead is not None:
            self._ahead.drop()
        self._reader.begin(slots)

    def _renew(self) -> None:
        try:
            in_own(self._engine, self._slots.renew)
        except AWAY:
            logger.exception("the relay could not renew its leases")

    def _leave(self) -> None:
        close = getattr(self._target, "close", None)
        if close is not None:
            close()
        self._shared_at = -self._lease          # if it goes on, it shares first
        try:
            in_own(self._engine, self._slots.leave)
        except SchemaMismatch:
            pass                                # there are no slots; what has run says so
        except AWAY:
            logger.exception("the relay could not let go of its slots: others take them when the lease is over")

    # ---- settling

    def _settle_all(self, rows: Sequence[Row], outcomes: Sequence[Any]) -> int:
        """Returns how many rows were deleted, or are being deleted."""
        if self._behind is None or self._reader.parked or outcomes.count(None) < len(rows):
            self._catch_up()
            deleted = in_own(self._engine, lambda connection: self._settle(connection, rows, outcomes))
            self._count(outcomes.count(None), deleted)
            return deleted
        before = self._behind.ended()
        self._behind.begin(len(rows), self._forget, {"ids": numbers([row.id for row in rows]), "owner": self._slots.owner})
        if not self._count(*before):
            self._catch_up()
            raise LeaseOver
        return len(rows)

    def _catch_up(self) -> None:
        """Wait until what was sent before is deleted.

        Raises:
            LeaseOver: It was not.
        """
        if self._behind is not None and not self._count(*self._behind.ended()):
            raise LeaseOver

    def _count(self, sent: int, deleted: int) -> bool:
        self.sent += deleted
        if deleted < sent:
            self.lost += sent - deleted
            logger.warning("the lease was over before %d rows were deleted: they are sent again", sent - deleted)
        return deleted == sent

    def _settle(self, connection: Connection, rows: Sequence[Row], outcomes: Sequence[Any]) -> int:
        sent = [row for row, outcome in zip(rows, outcomes, strict=True) if outcome is None]
        deleted = 0
        released = {row.key for row in sent if row.parked and row.key is not None}
        if connection.dialect.name == "postgresql" and len(sent) == len(rows) and not released:
            # If the server crashes and forgets it, the rows are sent again, as after any crash: that needs no wait for a disk.
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
        if sent:
            deleted = connection.execute(*self._delete(connection.dialect.name, [row.id for row in sent])).rowcount
            release_keys(connection, self._tables, released)
        for row, outcome in zip(rows, outcomes, strict=True):
            if isinstance(outcome, Refused):
                self._refused(connection, row, told(outcome))
            elif isinstance(outcome, Later):
                self._later(connection, row)
        return deleted

    def _held(self) -> Any:
        slot = self._tables.slot
        return (select(slot.c.slot).where(slot.c.owner == self._slots.owner, slot.c.until > Now())
                .with_for_update(read=True))

    def _delete(self, dialect: str, ids: list[int]) -> tuple[Any, dict[str, Any]]:
        table = self._tables.outbox
        name = f"delete {dialect}"
        if name not in self._statements:
            if dialect == "postgresql":
                chosen = table.c.id == any_(bindparam("ids", type_=ARRAY(BigInteger)))
            else:
                chosen = table.c.id.in_(bindparam("ids", expanding=True))
            self._statements[name] = delete(table).where(chosen, table.c.slot.in_(self._held()))
        return self._statements[name], {"ids": ids}

    def _refused(self, connection: Connection, row: Row, error: str) -> None:
        attempts = row.attempts + 1
        dead = attempts >= self._max_attempts
        skip, error = self._on_dead == "skip" or row.key is None, error_column(error)
        values: dict[str, Any] = {"attempts": attempts, "error": error}
        if dead:
            values |= {"dead_at": Now(), "retry_at": null(), "parked": not skip}
        else:
            values |= {"retry_at": Now() + delay_after(self._retry, attempts), "parked": True}
        if not self._change(connection, row, values):
            return
        logger.warning("row %d of the outbox cannot be sent, attempt %d%s: %s", row.id, attempts, ", it is dead" if dead else "",
                       error)
        if dead and skip:
            release_keys(connection, self._tables, set() if row.key is None else {row.key})
        else:
            self._park(connection, row)

    def _later(self, connection: Connection, row: Row) -> None:
        """A row that is not due, for a target that cannot delay it."""
        if self._change(connection, row, {"retry_at": row.at, "parked": True}):
            self._park(connection, row)

    def _change(self, connection: Connection, row: Row, values: dict[str, Any]) -> bool:
        """Whether it was changed. It is not if another relay has its slot."""
        table = self._tables.outbox
        self._set_back = True
        ours = and_(table.c.id == row.id, table.c.attempts == row.attempts, table.c.slot.in_(self._held()))
        if not connection.execute(update(table).where(ours).values(**values)).rowcount:
            return False
        self._idle = False
        return True

    def _park(self, connection: Connection, row: Row) -> None:
        """Have the key of a row wait behind it."""
        table = self._tables.outbox
        if row.key is not None:
            connection.execute(update(table).where(table.c.key == row.key, table.c.dead_at.is_(None)).values(parked=True))
