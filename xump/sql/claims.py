"""The statements of tasks: claiming, finishing, giving back, ending. Each holds only while the task is the worker's own.

A claim counts the attempt, so that number and the worker's name are a fence: a worker that was away too long, whose task another
one has, changes nothing. The name must be there, since a task that was not tried is given back with the number that it had. The
claim walks (lane, priority) pairs, each a range of the index that ends at now: neither future tasks nor those of other lanes cost
anything. `id = ANY(ARRAY(...))` has the subquery run once; `id IN (...)` may run it for each row. A row that runs here has this
worker's name; to ask for that, and not for `start_time`, leaves one index to finish by: of the ids.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Integer,
    LargeBinary,
    Text,
    case,
    cast,
    delete,
    insert,
    literal,
    null,
    or_,
    select,
    text,
    tuple_,
    update,
)

from xump.sql.direct import Direct, numbers, quoted, texts
from xump.sql.moments import POSTGRESQL, Now
from xump.sql.payload import error_column
from xump.sql.tables import Tables

PRIORITY_MAX = 9
SINCE_SECONDS = 10.0
"""For how long at most a claim passes over what is due earlier than what it had: what was committed late waits so long."""
SINCE_EVER = -1 << 62
CLAIMED = ("id", "lane", "name", "payload", "codec", "ukey_digest", "attempts", "priority", "due")
KEPT = ("id", "lane", "name", "payload", "ukey", "priority", "start_time", "attempts", "worker")

TURN = """
WITH finished AS (
    DELETE FROM {task} WHERE id = ANY(CAST({ids} AS bigint[])) AND worker = {worker}
        AND attempts = (CAST({attempts} AS integer[]))[array_position(CAST({ids} AS bigint[]), id)]
    RETURNING *
){kept}, claimed AS (
    UPDATE {task} SET start_time = {now}, worker = {worker}, attempts = attempts + 1, lease_until = {now} + coalesce(
        (CAST({leases} AS bigint[]))[array_position(CAST({names} AS text[]), name)], CAST({lease} AS bigint))
    WHERE id = ANY(ARRAY(
        SELECT found.id FROM
            unnest(CAST({lanes} AS text[]), CAST({priorities} AS smallint[]), CAST({since} AS bigint[]))
            AS pair(lane, priority, since), LATERAL (
            SELECT id FROM {task} AS waiting
            WHERE waiting.lane = pair.lane AND waiting.priority = pair.priority AND waiting.start_time IS NULL
                AND waiting.due BETWEEN pair.since AND {now}
            ORDER BY due, id LIMIT CAST({places} AS integer) FOR UPDATE SKIP LOCKED
        ) AS found LIMIT CAST({places} AS integer)))
    RETURNING {claimed_fields}
)
SELECT true AS was_mine, id, NULL AS lane, NULL AS name, NULL::bytea AS payload, NULL AS codec, NULL::bytea AS ukey_digest,
    attempts, 0 AS priority, 0 AS due FROM finished
UNION ALL SELECT false, {claimed_fields} FROM claimed"""
PARAMETERS = ("ids", "attempts", "lanes", "priorities", "since", "lease", "names", "leases", "places", "worker")
JUST_MICROS = 1_000_000
"""Rows that became due since the claim are not forgotten; rows that another one has locked are looked for again for so long."""
JUST_SECONDS = 0.05
DUE = """
SELECT min(found.due) - {now} FROM unnest(CAST({lanes} AS text[]), CAST({priorities} AS smallint[])) AS pair(lane, priority),
LATERAL (
    SELECT due FROM {task} AS waiting
    WHERE waiting.lane = pair.lane AND waiting.priority = pair.priority AND waiting.start_time IS NULL
        AND waiting.due > {now} - {just}
    ORDER BY due LIMIT 1
) AS found"""
KEEP = """, kept AS (
    INSERT INTO {done} ({kept_fields}, finish_time, outcome) SELECT {kept_fields}, {now}, 'done' FROM finished
)"""


class Claimed(NamedTuple):
    """A task as a claim returns it."""

    id: int
    """Its id."""
    lane: str
    """Which workers run it."""
    name: str
    """Which task it is."""
    payload: bytes
    """Its arguments."""
    codec: str
    """How they are written."""
    ukey_digest: bytes | None
    """Of its key, if it has one."""
    attempts: int
    """With this one: what changes the row must know it."""
    priority: int
    """0 to 9."""
    due: int
    """When it was due, in microseconds since 1970."""
    worker: str | None
    """The worker that has it."""


class Claims:
    """The statements of one worker on the table of tasks."""

    def __init__(
        self, made: Tables, worker: str, lanes: Sequence[str], lease: int, keep: bool, leases: Mapping[str, int] | None = None,
    ) -> None:
        self._tables, self._worker, self._lanes, self._keep = made, worker, list(lanes), keep
        _leases = dict(leases or {})
        # Each task has its own; those that are not known here have the other one.
        self._lease_of: Any = case(_leases, value=made.task.c.name, else_=lease) if _leases else lease
        self._pairs = [(lane, priority) for priority in range(PRIORITY_MAX, -1, -1) for lane in self._lanes]
        self._constant = {"lanes": texts(lane for lane, _ in self._pairs), "lease": lease, "worker": worker,
                          "names": texts(_leases), "leases": numbers(_leases.values()),
                          "priorities": numbers(priority for _, priority in self._pairs)}
        # Rows that are done stay in the index while somebody's snapshot could see them: a claim begins behind those it had.
        self._since: dict[tuple[str, int], int] = {}
        self._since_dropped = time.monotonic()
        _names = {"task": quoted(made.task), "done": quoted(made.done), "now": POSTGRESQL,
                  "claimed_fields": ", ".join(CLAIMED), "kept_fields": ", ".join(KEPT)}
        _kept = KEEP.format(**_names) if keep else ""
        self.statement = TURN.format(kept=_kept, **_names, **{name: f"%({name})s" for name in PARAMETERS})
        """A turn on PostgreSQL, as psycopg takes it."""
        self.due_statement = DUE.format(**_names, just=JUST_MICROS, lanes="%(lanes)s", priorities="%(priorities)s")
        """The next time at which a task is due, likewise."""
        _due = DUE.format(**_names, just=JUST_MICROS, lanes=":lanes", priorities=":priorities")
        self._due = text(_due).columns(wait=BigInteger)
        self._turn = text(TURN.format(kept=_kept, **_names, **{name: f":{name}" for name in PARAMETERS}).replace(
            "::bytea", "\\:\\:bytea")).columns(
            was_mine=Boolean, id=BigInteger, lane=Text, name=Text, payload=LargeBinary, codec=Text, ukey_digest=LargeBinary,
            attempts=Integer, priority=Integer, due=BigInteger)

    def turn(self, connection: Connection | Direct, ended: Sequence[Any], places: int) -> tuple[set[int], list[Any]]:
        """Finish what ended, and claim for the free places: one statement, on PostgreSQL.

        Returns:
            The ids of `ended` that were still ours, and the rows that are ours now, the most urgent first.
        """
        if isinstance(connection, Connection) and connection.dialect.name != "postgresql":
            mine = self._finish(connection, ended)
            return mine, self._claim(connection, places) if places else []
        if time.monotonic() - self._since_dropped > SINCE_SECONDS:
            self._forget()
        mine, claimed = self._run(connection, ended, places)
        if len(claimed) < places and self._since:
            self._forget()          # there may be some that were committed late, or came back
            claimed += self._run(connection, (), places - len(claimed))[1]
        elif claimed and len(claimed) == places:
            for row in claimed:
                self._since[row.lane, row.priority] = max(row.due, self._since.get((row.lane, row.priority), 0))
        claimed.sort(key=_urgency)
        return mine, claimed

    def _forget(self) -> None:
        self._since.clear()
        self._since_dropped = time.monotonic()

    def _run(self, connection: Connection | Direct, ended: Sequence[Any], places: int) -> tuple[set[int], list[Any]]:
        parameters = {**self._constant, "ids": numbers(row.id for row in ended), "places": places,
                      "attempts": numbers(row.attempts for row in ended),
                      "since": numbers(self._since.get(pair, SINCE_EVER) for pair in self._pairs)}
        if isinstance(connection, Connection):
            rows: Any = connection.execute(self._turn, parameters)
        else:
            rows = connection.run(self.statement, parameters)
        mine, claimed = set(), []
        for was_mine, *fields in rows:
            if was_mine:
                mine.add(fields[0])
            else:
                claimed.append(Claimed._make([*fields, self._worker]))
        return mine, claimed

    def due_in(self, connection: Connection | Direct) -> float:
        """In how many seconds to look for the task that is due next; infinity if there is none. Cost: by index, a row a pair."""
        if not isinstance(connection, Connection):
            found = connection.run(self.due_statement, {name: self._constant[name] for name in ("lanes", "priorities")})[0][0]
        elif connection.dialect.name == "postgresql":
            found = connection.execute(self._due, {name: self._constant[name] for name in ("lanes", "priorities")}).scalar()
        else:
            task = self._tables.task
            waiting = select(task.c.due).where(task.c.start_time.is_(None), task.c.due > Now() - JUST_MICROS)
            each = [waiting.where(task.c.lane == lane, task.c.priority == priority).order_by(task.c.due).limit(1)
                    for lane, priority in self._pairs]
            waits = [due for one in each if (due := connection.execute(one).scalar()) is not None]
            found = min(waits) - connection.execute(select(cast(Now(), BigInteger))).scalar_one() if waits else None
        return math.inf if found is None else max(JUST_SECONDS, found / 1e6)

    def _finish(self, connection: Connection, ended: Sequence[Any]) -> set[int]:
        return {row.id for row in ended if end(connection, self._tables, row, "done" if self._keep else None)}

    def _claim(self, connection: Connection, places: int) -> list[Any]:
        task = self._tables.task
        ids: list[int] = []
        for priority in range(PRIORITY_MAX, -1, -1):        # ranges of the index, as above
            if len(ids) == places:
                break
            ids += connection.execute(
                select(task.c.id).where(task.c.lane.in_(self._lanes), task.c.priority == priority, task.c.start_time.is_(None),
                                        task.c.due <= Now())
                .order_by(task.c.due, task.c.id).limit(places - len(ids)).with_for_update(skip_locked=True)).scalars()
        if not ids:
            return []
        claimed = connection.execute(
            update(task).where(task.c.id.in_(ids)).values(
                start_time=Now(), lease_until=Now() + self._lease_of, worker=self._worker, attempts=task.c.attempts + 1)
            .returning(*(task.c[name] for name in CLAIMED))).all()
        return sorted((Claimed._make([*row, self._worker]) for row in claimed), key=_urgency)

    def renew(self, connection: Connection, running: Sequence[Any]) -> None:
        """Renew the leases of these rows, as far as they are ours."""
        task = self._tables.task
        if running:
            # In one order: two statements that renew and claim cannot wait for each other for ever.
            pairs = sorted((row.id, row.attempts) for row in running)
            connection.execute(update(task).where(
                tuple_(task.c.id, task.c.attempts).in_(pairs), task.c.worker == self._worker)
                .values(lease_until=Now() + self._lease_of))


def _urgency(row: Any) -> tuple[int, int, int]:
    return -row.priority, row.due, row.id


def _mine(task: Any, row: Any) -> Any:
    ours = (task.c.id == row.id) & (task.c.attempts == row.attempts) & (task.c.worker == row.worker)
    return ours & task.c.start_time.is_not(None)


def is_mine(connection: Connection, made: Tables, row: Any, *, lock: bool = False) -> bool:
    """Whether nobody else has it; locked, nobody will until the end of this transaction."""
    found = select(made.task.c.id).where(_mine(made.task, row))
    return connection.execute(found.with_for_update() if lock else found).first() is not None


def end(connection: Connection, made: Tables, row: Any, outcome: str | None, error: str | None = None) -> bool:
    """Take a task off the table; with an outcome it is kept among those that are done. Returns whether it was ours."""
    task, done = made.task, made.done
    if outcome is not None:
        if not is_mine(connection, made, row, lock=True):       # or it could be kept here, and be given back at once elsewhere
            return False
        columns = [task.c[name] for name in KEPT]
        said = literal(error_column(error)) if error else null()
        found = select(*columns, Now(), literal(outcome), said).where(_mine(task, row))
        connection.execute(insert(done).from_select([*KEPT, "finish_time", "outcome", "error"], found))
    return bool(connection.execute(delete(task).where(_mine(task, row))).rowcount)


def give_back(
    connection: Connection, made: Tables, row: Any, delay: int, error: str | None, *, tried: bool = True,
) -> str | None:
    """Have a task run again. If its key waits again meanwhile, it is merged into the one that waits, which has its attempts then.

    Args:
        connection: A transaction.
        made: The tables.
        row: The task.
        delay: After how many microseconds it is due.
        error: The reason, as text.
        tried: Whether it was: if not, the attempt does not count.

    Returns:
        `"retried"` or `"merged"`; None: it was not ours any more.
    """
    task, attempts = made.task, row.attempts if tried else row.attempts - 1
    if row.ukey_digest is not None:
        waiting = connection.execute(select(task.c.id).where(task.c.ukey_digest == row.ukey_digest, task.c.start_time.is_(None))
                                     .with_for_update()).scalar()
        if waiting is not None:
            if not end(connection, made, row, "merged", error):
                return None
            connection.execute(update(task).where(task.c.id == waiting).values(attempts=attempts))
            return "merged"
    said = None if error is None else error_column(error)
    changed = connection.execute(update(task).where(_mine(task, row)).values(
        start_time=null(), lease_until=null(), worker=null(), due=Now() + delay, attempts=attempts, error=said))
    return "retried" if changed.rowcount else None


def crashed(connection: Connection, made: Tables, names: Sequence[str], most: int) -> list[Any]:
    """Tasks of these names whose lease is over, locked until the end of this transaction; not those that another cleaner has."""
    task = made.task
    over = (select(*(task.c[name] for name in (*CLAIMED, "ukey", "worker")))
            .where(task.c.start_time.is_not(None), or_(task.c.lease_until <= Now(), task.c.lease_until.is_(None)),
                   task.c.name.in_(names))
            .order_by(task.c.lease_until).limit(most).with_for_update(skip_locked=True))
    return list(connection.execute(over))
