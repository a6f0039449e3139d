"""Reading an outbox: each slot goes on behind its own last row while there is more, and begins again when there is not.

Theory: rows that were sent and deleted stay in the index while somebody's snapshot could see them, so a reader that has much to
send goes on behind what it had. It does so slot by slot. One mark for all of them would lose the order of a key: a slot with many
rows is read in part while the others are read to their ends, whose ids are behind rows of it that are still to be sent.

A row that becomes visible late, with an id below the mark, is read when the slot begins again: at once when it has no more rows,
else after `STREAM_SECONDS`. That turns the order of no key whose writers exclude each other. It would turn that of a key that was
parked and is released, so while rows are parked every read begins at the front.

Rows for queues that are full are left out, so that they do not fill each batch, and so are rows of their keys behind them. They
lie below the marks then, so every slot begins again when a queue may have room.

`go_on` reads behind rows that are still there, since they are just being sent. So it begins no slot again: one that has no more
rows is read on behind its last one, too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    SmallInteger,
    Table,
    Text,
    any_,
    bindparam,
    case,
    exists,
    false,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.engine import make_url

from xump.sql.direct import Direct, numbers
from xump.sql.moments import Now
from xump.sql.tables import Tables

EACH_MIN = 64
"""How many rows a slot is asked for at least: with many slots that are all but empty, one read is enough."""
STREAM_SECONDS = 1.0
"""For how long at most a slot is read on: a row that became visible late waits so long."""
FRONT, LAST = 0, (1 << 63) - 1
BY_ID = itemgetter(0)
DIALECT = make_url("postgresql+psycopg://").get_dialect()()


class Waiting(NamedTuple):
    """A row of the outbox, as a target gets it."""

    id: int
    """Its place in the order."""
    slot: int
    """The share of the outbox that its key is in."""
    queue: str
    """The queue, or the exchange, that it is for."""
    address: str
    """The text that it is routed by."""
    key: str | None
    """Rows of one key are sent in order."""
    body: bytes
    """The body."""
    headers: bytes | None
    """As `xump.sql.payload.unpack` reads them."""
    reply_to: str | None
    """The address for answers."""
    message_id: str
    """Its name."""
    props: bytes | None
    """`correlation_id`, `priority`, `ttl`; as the headers."""
    at: int | None
    """When it may be taken from its queue, in microseconds; None: at once."""
    created: int
    """When it was published, in microseconds."""
    attempts: int
    """How often it was refused."""
    parked: bool
    """Whether its key waits behind it."""
    now: int | None
    """When it was read, by the database's clock; None if it has neither `at` nor `props`."""
    blocked: bool = False
    """It came while its key was parked."""


COLUMNS = Waiting._fields[:-2]


class Place:
    """How far a slot has been read."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        """The share of the outbox."""
        self.begin()

    def begin(self) -> None:
        """Read it from the front next time."""
        self.after, self.ended, self.begun = FRONT, False, time.monotonic()

    def is_old(self) -> bool:
        """Whether it has been read on for long enough."""
        return time.monotonic() - self.begun > STREAM_SECONDS


class Reader:
    """The rows that one relay reads of the slots that it has."""

    def __init__(self, made: Tables, batch: int) -> None:
        self._table, self._batch = made.outbox, batch
        self._places: list[Place] = []
        self._statements: dict[Any, Any] = {}
        self.parked = False
        """Whether the last read saw parked rows."""
        self.more = False
        """Whether a slot had more rows than were read."""

    def begin(self, slots: Iterable[int] | None = None) -> None:
        """Read every slot from the front next time; `slots`: these are ours from now on."""
        if slots is None:
            slots = [place.slot for place in self._places]
        self._places = [Place(slot) for slot in slots]
        self.more = False

    def has(self, slots: Sequence[int]) -> bool:
        """Whether it reads just these."""
        return [place.slot for place in self._places] == list(slots)

    def read(self, connection: Connection, full: Sequence[str] = ()) -> list[Any]:
        """Up to a batch of rows, in order of id; of no slot a row behind one that was not read.

        Args:
            connection: Its transaction sees one moment, if any queue is full.
            full: Rows for these queues are left out, and rows of their keys behind them.
        """
        self._begin_over(bool(connection.execute(self._known("parked", self._any_parked)).scalar()))
        if full:
            return self._beside(connection, list(full))
        if not self.parked:
            return self._rounds(connection)
        # One statement, which sees one moment: a key may be released at any time.
        rows, self.more = self._ask(connection, self._places, -(-self._batch // max(1, len(self._places)))), False
        return sorted(self._without_blocked(connection, rows) + self._due(connection), key=BY_ID)[:self._batch]

    def _beside(self, connection: Connection, full: list[str]) -> list[Any]:
        while True:
            rows = self._unheld(connection, self._without_blocked(connection, self._rounds(connection, full)), full)
            if rows or not self.more:
                break
        if self.parked:
            rows += self._unheld(connection, self._due(connection, full), full)
        return sorted(rows, key=BY_ID)[:self._batch]

    def _unheld(self, connection: Connection, rows: list[Any], full: list[str]) -> list[Any]:
        """Those that are not behind a row of their key for a full queue. Cost: O(rows that wait for these queues)."""
        table, keys = self._table, sorted({row.key for row in rows if row.key is not None})
        if not keys:
            return rows
        among = (table.c.key == any_(bindparam("keys", type_=ARRAY(Text))) if connection.dialect.name == "postgresql"
                 else table.c.key.in_(bindparam("keys", expanding=True)))
        found = connection.execute(
            select(table.c.key, func.min(table.c.id)).group_by(table.c.key)
            .where(among, table.c.queue.in_(full), table.c.slot.in_([place.slot for place in self._places]),
                   not_(table.c.parked), table.c.dead_at.is_(None)), {"keys": keys})
        first: dict[str, int] = {key: number for key, number in found}      # noqa: C416 rows are no tuples for mypy
        return [row for row in rows if row.key is None or row.id < first.get(row.key, LAST)]

    def stream(self, direct: Direct) -> list[Any] | None:
        """The same where no row is parked, each statement for itself. None: some are, and `read` must see to them."""
        self._begin_over(self._sees_parked(direct))
        return None if self.parked else self._rounds(direct)

    def go_on(self, direct: Direct) -> list[Any]:
        """The rows behind the last batch, which is still there. None, if that must be settled first."""
        if any(place.is_old() for place in self._places):
            return []
        if self._sees_parked(direct):
            self.parked = True
            return []
        return self._rounds(direct)

    def _begin_over(self, parked: bool) -> None:
        for place in self._places:
            if parked or self.parked or place.ended or place.is_old():
                place.begin()
        self.parked = parked

    def _rounds(self, connection: Connection | Direct, full: Sequence[str] = ()) -> list[Any]:
        """Ask all for an equal share, and then those that gave all of it for the rest: with one key, it is in one slot."""
        rows: list[Any] = []
        asked = self._places
        while asked and (room := self._batch - len(rows)) > 0:
            each = max(min(EACH_MIN, room), -(-room // len(asked)))
            found = sorted(self._ask(connection, asked, each, full), key=BY_ID)
            taken, left = found[:room], {row.slot for row in found[room:]}
            came, last = Counter([row.slot for row in found]), {row.slot: row.id for row in taken}
            rows += taken
            for place in asked:
                place.after = last.get(place.slot, place.after)
                place.ended = came[place.slot] < each and place.slot not in left
            asked = [place for place in asked if not place.ended]
        self.more = bool(asked)
        return sorted(rows, key=BY_ID)

    def _ask(
        self, connection: Connection | Direct, places: Sequence[Place], each: int, full: Sequence[str] = (),
    ) -> list[Any]:
        parked = self.parked
        slots, after = [place.slot for place in places], [place.after for place in places]
        if isinstance(connection, Direct):
            statement = self._known("stream", lambda: _text(self._lateral(False)))
            found = connection.run(statement, {"slots": numbers(slots), "after": numbers(after), "each": each})
            return list(map(Waiting._make, found))
        if connection.dialect.name == "postgresql":
            statement = self._known(("lateral", parked, bool(full)), lambda: self._lateral(parked, bool(full)))
            return list(connection.execute(statement, {"slots": slots, "after": after, "each": each, **_given(full)}))
        statement = self._known((len(places), parked, bool(full)), lambda: self._union(len(places), parked, bool(full)))
        parameters: dict[str, Any] = {"each": each, **_given(full)}
        for number, place in enumerate(places):
            parameters |= {f"slot{number}": place.slot, f"after{number}": place.after}
        return list(connection.execute(statement, parameters))

    def _without_blocked(self, connection: Connection, rows: list[Any]) -> list[Any]:
        blocked = {row.key for row in rows if row.blocked}
        if blocked:
            connection.execute(update(self._table).where(self._table.c.key.in_(blocked), self._table.c.dead_at.is_(None))
                               .values(parked=true()))
        return [row for row in rows if not row.blocked]

    def _due(self, connection: Connection, full: Sequence[str] = ()) -> list[Any]:
        table = self._table
        return list(connection.execute(
            select(*_columns(table), false().label("blocked"))
            .where(table.c.retry_at <= Now(), table.c.dead_at.is_(None), table.c.slot.in_([each.slot for each in self._places]),
                   table.c.queue.not_in(full))
            .order_by(table.c.id).limit(self._batch)))

    # ---- statements, each made once

    def _known(self, name: Any, make: Any) -> Any:
        if name not in self._statements:
            self._statements[name] = make()
        return self._statements[name]

    def _sees_parked(self, direct: Direct) -> bool:
        return bool(direct.run(self._known("parked text", lambda: _text(self._any_parked())), {})[0][0])

    def _any_parked(self) -> Any:
        return select(exists().where(self._table.c.parked))

    def _waiting(self, parked: bool, full: bool) -> Any:
        table = self._table
        other = table.alias("other")
        # Nothing is blocked while nothing is parked: only this relay parks rows of its slots.
        blocked = exists().where(other.c.key == table.c.key, other.c.parked) if parked else false()
        where = [not_(table.c.parked), table.c.dead_at.is_(None)]
        if full:
            where.append(table.c.queue.not_in(bindparam("full", expanding=True)))
        return (select(*_columns(table), blocked.label("blocked")).where(*where).order_by(table.c.id).limit(bindparam("each")))

    def _lateral(self, parked: bool, full: bool = False) -> Any:
        """PostgreSQL walks the index of each slot, and sorts nothing.

        Ranges of (slot, id) leave no choice of another index: with `slot = ...` it may walk that of the ids, past all other
        slots.
        """
        table = self._table
        places = (func.unnest(bindparam("slots", type_=ARRAY(SmallInteger)), bindparam("after", type_=ARRAY(BigInteger)))
                  .table_valued("slot", "after", name="place").render_derived(name="place"))
        at, slot, last = tuple_(table.c.slot, table.c.id), places.c.slot, literal_column(str(LAST), BigInteger)
        each = (self._waiting(parked, full).where(at > tuple_(slot, places.c.after), at < tuple_(slot, last))
                .order_by(None).order_by(table.c.slot, table.c.id).lateral("each"))
        return select(each).select_from(places.join(each, true()))

    def _union(self, count: int, parked: bool, full: bool) -> Any:
        table = self._table
        each = [self._waiting(parked, full)
                .where(table.c.slot == bindparam(f"slot{number}"), table.c.id > bindparam(f"after{number}"))
                for number in range(count)]
        return union_all(*(select(one.subquery()) for one in each))


def _columns(table: Table) -> list[Any]:
    timed = or_(table.c.at.is_not(None), table.c.props.is_not(None))
    return [*(table.c[name] for name in COLUMNS), case((timed, Now())).label("now")]


def _given(full: Sequence[str]) -> dict[str, Any]:
    return {"full": list(full)} if full else {}


def _text(statement: Any) -> str:
    """As psycopg takes it."""
    return str(statement.compile(dialect=DIALECT))
