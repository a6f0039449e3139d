"""Tasks within transactions: a task is there if, and only if, the transaction that enqueued it was committed.

Theory: the table is the list of what is to be done, and all that wakes workers is a hint. A worker claims a task in a transaction
of its own, before the task's code runs: the attempt is counted, a lease begins. It finishes the task in another one, which holds
only while the attempt is its own. So a task runs at least once; with `max_attempts=1` at most once; with `transaction=True` its
effects in the database happen exactly once, since the task ends in the transaction that it was given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Engine, bindparam, case, cast, delete, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from xump.sql.claims import PRIORITY_MAX
from xump.sql.cleaner import Cleaner
from xump.sql.codecs import Codec, call_of, codec_of
from xump.sql.errors import ConfigurationError
from xump.sql.hosts import ThreadHost
from xump.sql.moments import Now, delays, micros, remember
from xump.sql.outbox import Outbox
from xump.sql.payload import digest, lane_column, text_column
from xump.sql.scaler import Scaler
from xump.sql.schedules import Schedule, schedule_of
from xump.sql.schema import usable
from xump.sql.tables import Tables, tables as made_tables
from xump.sql.transactions import oldest_snapshot
from xump.sql.wake import Wake
from xump.sql.worker import Worker

FIELDS = ("lane", "name", "payload", "codec", "ukey", "ukey_digest", "priority", "parent")


@dataclass(frozen=True)
class Spec:
    """How a task is run."""

    name: str
    """Its name in the table."""
    function: Callable[..., Any]
    """Its code."""
    lane: str = "default"
    """Which workers run it."""
    max_attempts: int = 5
    """After how many attempts it is dead."""
    retry_delay: tuple[int, ...] = (1_000_000, 10_000_000, 60_000_000)
    """Microseconds until the next attempt."""
    lease: int = 60_000_000
    """For how many microseconds a claim holds."""
    timeout: int = 3_600_000_000
    """After how many microseconds its lease is not renewed any more."""
    on_crash: str = "retry"
    """The cleaner's choice: retry, dead, or the name of a task that compensates."""
    transaction: bool = False
    """Whether it runs in the transaction that ends it."""


class Tasks:
    """Tasks in the user's transaction, and the workers that run them.

    Args:
        engine: The database of the workers.
        tables: Which tables; None: those of `tables()`.
        wake: How a commit wakes workers; None: those of this process that wait on this object.
        keep: For how many seconds tasks that are done are kept; None: not at all. Dead ones stay until you drop them.
        codec: How arguments are written: `"json"`, or an object with `name`, `dumps` and `loads`.
        dead_queue: The queue that is told of dead tasks, through the outbox; None: none.

    >>> from sqlalchemy import create_engine
    >>> from xump.sql import Tasks, configure_sqlite, init
    >>> database = configure_sqlite(create_engine("sqlite://"))
    >>> init(database)
    >>> tasks = Tasks(database)
    >>> @tasks.task()
    ... def greet(name):
    ...     print("Hello,", name)
    >>> with database.begin() as connection:
    ...     number = greet.enqueue(connection, "Ada")
    >>> tasks.worker().drain()
    Hello, Ada
    1
    """

    def __init__(
        self, engine: Engine, *, tables: Tables | None = None, wake: Wake | None = None, keep: float | None = None,
        codec: str | Codec = "json", dead_queue: str | None = None,
    ) -> None:
        self.engine = engine
        """The database of the workers."""
        self.tables = tables or made_tables()
        """Its tables."""
        self.wake = wake or Wake.local()
        """How workers are woken."""
        self.codec = codec_of(codec)
        """How arguments are written."""
        self.keep = None if keep is None else micros(keep, "keep")
        """For how many microseconds tasks that are done are kept."""
        self.dead_queue = None if dead_queue is None else text_column(dead_queue, "dead_queue")
        """The queue that is told of dead tasks."""
        self.outbox = Outbox(tables=self.tables)
        """The outbox that notices of dead tasks go through."""
        self.specs: dict[str, Spec] = {}
        """The tasks by name."""
        self.schedules: dict[str, Schedule] = {}
        """The schedules, by name."""
        _table = self.tables.task
        _values: dict[str, Any] = {name: bindparam(name, type_=_table.c[name].type) for name in FIELDS}
        _due = case((bindparam("at", type_=BigInteger).is_not(None), bindparam("at", type_=BigInteger)),
                    else_=cast(Now(), BigInteger) + bindparam("delay", type_=BigInteger))
        self._plain = insert(_table).values(**_values, due=cast(Now(), BigInteger), created=Now()).returning(_table.c.id)
        _all = {**_values, "due": _due, "created": Now()}
        self._timed_values = _all
        self._timed = insert(_table).values(**_all).returning(_table.c.id)
        self._unique: dict[str, Any] = {}
        for _dialect, _insert in (("postgresql", postgresql.insert), ("sqlite", sqlite.insert)):
            _one: Any = _insert(_table).values(**_all)
            # DO NOTHING would lose an update: the waiting task may run before this transaction commits, and nothing after.
            self._unique[_dialect] = _one.on_conflict_do_update(
                index_elements=["ukey_digest"], index_where=_table.c.start_time.is_(None), set_={"due": _one.excluded.due},
                where=_one.excluded.due < _table.c.due).returning(_table.c.id)

    # ---- tasks and enqueueing

    def task(
        self, name: str | None = None, *, lane: str = "default", max_attempts: int = 5,
        retry_delay: float | tuple[float, ...] = (1, 10, 60), lease: float = 60.0, timeout: float = 3600.0,
        on_crash: str = "retry", transaction: bool = False,
    ) -> Callable[[Callable[..., Any]], Task]:
        """Make a function a task.

        Args:
            name: Its name in the table; None: the function's.
            lane: Workers take lanes.
            max_attempts: After how many attempts it is dead.
            retry_delay: Seconds until the next attempt, one after the other.
            lease: For how many seconds a claim holds; renewed each third while the task runs.
            timeout: After how many seconds it is not renewed any more: the code hangs, and another worker may run the task.
            on_crash: How a task whose worker died goes on: `"retry"`, `"dead"`, or the name of a task that compensates, which
                is enqueued with the same arguments.
            transaction: The function gets a connection first, and the task ends in its transaction.

        Raises:
            TypeError, ValueError: An argument is wrong, or there is another task of this name.
        """
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
            raise ValueError(f"max_attempts must be an int from 1 on, got {max_attempts!r}")
        if micros(lease, "lease") == 0:
            raise ValueError(f"lease must be more than 0 seconds, got {lease!r}")
        if not text_column(on_crash, "on_crash"):
            raise ValueError('on_crash must be "retry", "dead" or the name of a task, got \'\'')
        if not isinstance(transaction, bool):
            raise TypeError(f"transaction must be a bool, got {transaction!r}")

        def _made(function: Callable[..., Any]) -> Task:
            spec = Spec(text_column(name or function.__name__, "name"), function, lane_column(lane), max_attempts,
                        delays(retry_delay, "retry_delay"), micros(lease, "lease"), micros(timeout, "timeout"),
                        on_crash, transaction)
            if spec.name in self.specs:
                raise ValueError(f"there is a task {spec.name!r} already: give this one a name of its own, task(name=...)")
            self.specs[spec.name] = spec
            return Task(self, spec)

        return _made

    def enqueue(
        self, connection: Connection | Session, name: str, payload: Any = None, *, key: str | None = None,
        delay: float | None = None, at: datetime | None = None, priority: int = 0, lane: str | None = None,
    ) -> int:
        """Enqueue a task in the transaction of `connection`.

        Args:
            connection: Yours; you commit.
            name: The task. It need not be known here; say its lane then.
            payload: A list: its arguments; a dict: those with names; anything else: its only one.
            key: While a task of this name and key waits, there is no second one: the earlier `due` counts. A task that has
                started is no longer waiting.
            delay, at: After how many seconds, or when, it is due.
            priority: 0 to 9; higher ones first.
            lane: Which workers take it; None: its own, or `"default"` if it is not known here.

        Returns:
            The id of the task; of the one that waits, with a key that waits already.

        Raises:
            TypeError, ValueError: An argument is wrong; nothing has changed.

        With a key, a second transaction waits for the first one that has enqueued it. Cost: one INSERT.
        """
        row = self._row(name, call_of(payload), key, delay, at, priority, lane)
        return self._write(usable(connection, self.tables), connection, row)

    def _write(self, core: Connection, connection: Connection | Session, row: dict[str, Any]) -> int:
        remember(core)
        if row["ukey_digest"] is None:
            timed = bool(row["delay"]) or row["at"] is not None
            number = core.execute(self._timed if timed else self._plain, row).scalar_one()
        else:
            number = self._enqueue_unique(core, row)
        self.wake.written(connection)
        return int(number)

    def _enqueue_unique(self, core: Connection, row: dict[str, Any]) -> int:
        statement = self._unique.get(core.dialect.name)
        if statement is None:
            raise ConfigurationError(f"unique keys are for PostgreSQL and SQLite, not {core.dialect.name}: leave key= out")
        table = self.tables.task
        number = core.execute(statement, row).scalar()
        if number is None:              # it waits, and is due no later: locked now, and not changed
            number = core.execute(select(table.c.id).where(
                table.c.ukey_digest == row["ukey_digest"], table.c.start_time.is_(None))).scalar_one()
        return int(number)

    def enqueue_many(self, connection: Connection | Session, rows: Iterable[Mapping[str, Any]]) -> list[int]:
        """Enqueue many: mappings with the names of the arguments of `enqueue`. Returns the ids, in order.

        Keys are locked in one order. Cost: one round trip for some hundred tasks without keys; one a task with a key.
        """
        core = usable(connection, self.tables)
        given = [{"payload": None, "key": None, "delay": None, "at": None, "priority": 0, "lane": None, **row} for row in rows]
        made = [self._row(one["name"], call_of(one["payload"]), one["key"], one["delay"], one["at"], one["priority"], one["lane"])
                for one in given]
        remember(core)
        ids: dict[int, int] = {}
        plain = [number for number, row in enumerate(made) if row["ukey_digest"] is None]
        if plain:
            ordered = insert(self.tables.task).returning(self.tables.task.c.id, sort_by_parameter_order=True)
            values = self._timed_values
            found = core.execute(ordered.values(**values), [made[number] for number in plain]).scalars()
            ids.update(zip(plain, found, strict=True))
        keyed = [number for number, row in enumerate(made) if row["ukey_digest"] is not None]
        for number in sorted(keyed, key=lambda number: bytes(made[number]["ukey_digest"])):
            ids[number] = self._enqueue_unique(core, made[number])
        self.wake.written(connection)
        return [ids[number] for number in range(len(made))]

    def _row(
        self, name: str, call: list[Any], key: str | None, delay: float | None, at: datetime | None, priority: int,
        lane: str | None,
    ) -> dict[str, Any]:
        if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority must be an int from 0 to {PRIORITY_MAX}, got {priority!r}")
        if delay is not None and at is not None:
            raise ValueError("give delay or at, not both")
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise ValueError(f"at must be a datetime with a time zone, got {at!r}")
        text_column(name, "name")
        return {
            "lane": self._lane_of(name) if lane is None else lane_column(lane), "name": name,
            "payload": self.codec.dumps(call), "codec": self.codec.name,
            "ukey": None if key is None else text_column(key, "key"),
            "ukey_digest": None if key is None else digest(name, key), "priority": priority, "parent": None,
            "delay": 0 if delay is None else micros(delay, "delay"), "at": None if at is None else round(at.timestamp() * 1e6),
        }

    def _lane_of(self, name: str) -> str:
        spec = self.specs.get(name)
        return spec.lane if spec else "default"

    def _compensate(self, connection: Connection, name: str, row: Any) -> None:
        """Enqueue the task that compensates another one, with its arguments as they are written."""
        self._write(connection, connection, {
            "lane": self._lane_of(name), "name": name, "payload": bytes(row.payload), "codec": row.codec, "ukey": None,
            "ukey_digest": None, "priority": row.priority, "parent": row.id, "delay": 0, "at": None})

    def cancel(self, connection: Connection | Session, id: int) -> bool:
        """Take back a task that waits, in your transaction. Returns False if it has started, or is not there."""
        table = self.tables.task
        gone = usable(connection, self.tables).execute(delete(table).where(table.c.id == id, table.c.start_time.is_(None)))
        return bool(gone.rowcount)

    def schedule(
        self, name: str, cron: str, task: str, payload: Any = None, *, missed: str = "once", zone: str = "UTC",
    ) -> None:
        """Have a task come again and again. Say it beside your tasks, in each program; each time counts once.

        Args:
            name: Its name in the table. With another `cron` it begins anew.
            cron: Five fields: minute, hour, day of the month, month, day of the week; or `@hourly`, `@daily` and the like.
            task, payload: As for `enqueue`.
            missed: Of times at which no worker or cleaner ran: `"once"`, the task comes once for all of them; `"all"`, once for
                each; `"skip"`, not, if they are more than a minute ago. With `"once"` and `"skip"` it does not come while the one
                before waits.
            zone: Whose clock, such as `"Europe/Berlin"`.

        Raises:
            TypeError, ValueError: An argument is wrong, or there is a schedule of this name.

        Workers look every two seconds, cleaners at each step.
        """
        made = schedule_of(name, cron, task, payload, missed, zone)
        self.codec.dumps(call_of(payload))
        if name in self.schedules:
            raise ValueError(f"there is a schedule {name!r} already: give this one a name of its own")
        self.schedules[name] = made

    @contextmanager
    def waking(self) -> Iterator[None]:
        """Wake workers when the block has ended without an exception; for Core connections, put the commit into it."""
        with self.wake.waking():
            yield

    # ---- who runs them

    def worker(
        self, *, concurrency: int = 1, prefetch: int = 0, lanes: Iterable[str] | None = None, poll: float = 1.0,
        retry_time: float = 0.2, giveup_time: float = 5.0,
    ) -> Worker:
        """Make a worker, which runs tasks in threads. Any number of them may run, in any number of processes.

        With one place, and no `prefetch`, tasks run in the thread that calls `run` or `drain`.

        Args:
            concurrency: How many tasks run at once.
            prefetch: How many more are claimed, and wait for a free thread.
            lanes: Which; None: those of the tasks that are known here.
            poll: After how many seconds it looks, if nothing woke it.
            retry_time, giveup_time: After a wake-up that led to nothing, how often it looks, and for how long: a notice may come
                before the commit that it is about.

        Returns:
            The worker; call `run()` in a thread of its own, or `drain()`.
        """
        return Worker(self, ThreadHost(self.engine), concurrency=concurrency, prefetch=prefetch, lanes=lanes, poll=poll,
                      retry_time=retry_time, giveup_time=giveup_time)

    def cleaner(self, *, interval: float = 60.0) -> Cleaner:
        """Make a cleaner, which sees to tasks that were overlooked or whose worker died. Any number of them may run."""
        return Cleaner(self, ThreadHost(self.engine), interval)

    def scaler(
        self, command: str | Iterable[str], *, minimum: int = 1, maximum: int, drain: float = 60.0, interval: float = 5.0,
    ) -> Scaler:
        """Make a scaler, which starts and ends processes of workers as the load asks. Of several, one decides.

        Args:
            command: The command that starts a worker: a list of words, or a text that is split as a shell does.
            minimum, maximum: How many workers there are at least and at most.
            drain: For how many seconds a worker that is to end may go on with what it runs; then it is killed.
            interval: After how many seconds it looks again.

        Raises:
            TypeError, ValueError: An argument is wrong.
        """
        return Scaler(self, ThreadHost(self.engine), command, minimum, maximum, drain, interval)

    # ---- looking after them

    def stats(self, connection: Connection | Session) -> dict[str, Any]:
        """`ready`, `delayed`, `running`, `dead`, `oldest_seconds`, `oldest_snapshot_seconds`. Cost: O(waiting), by index."""
        core, task, done = usable(connection, self.tables), self.tables.task, self.tables.done
        due = case((task.c.due <= Now(), 1))
        ready, waiting, oldest, now = core.execute(
            select(func.count(due), func.count(task.c.id), func.min(task.c.due), cast(Now(), BigInteger))
            .where(task.c.start_time.is_(None))).one()
        running = core.execute(select(func.count()).where(task.c.start_time.is_not(None))).scalar_one()
        dead = core.execute(select(func.count()).where(done.c.outcome == "dead")).scalar_one()
        return {"ready": ready, "delayed": waiting - ready, "running": running, "dead": dead,
                "oldest_seconds": 0.0 if oldest is None else max(0, now - oldest) / 1e6,
                "oldest_snapshot_seconds": oldest_snapshot(core)}

    def dead(self, connection: Connection | Session, limit: int = 100) -> list[dict[str, Any]]:
        """The tasks that are dead, with their `error`."""
        done = self.tables.done
        found = usable(connection, self.tables).execute(
            select(done).where(done.c.outcome == "dead").order_by(done.c.id).limit(limit))
        return [dict(row) for row in found.mappings()]

    def revive(self, connection: Connection | Session, ids: Iterable[int]) -> list[int]:
        """Enqueue dead tasks again, from the first attempt on. Returns their new ids.

        While a task with the key of a dead one waits, it stands for both: its id is returned, and the dead one's arguments are
        forgotten.
        """
        done, core = self.tables.done, usable(connection, self.tables)
        rows = core.execute(delete(done).where(done.c.id.in_(list(ids)), done.c.outcome == "dead").returning(done)).all()
        return [self._write(core, connection, self._row(row.name, self.codec.loads(bytes(row.payload)), row.ukey, None, None,
                                                        row.priority, row.lane)) for row in rows]

    def drop(self, connection: Connection | Session, ids: Iterable[int]) -> int:
        """Forget dead tasks. Returns how many."""
        done = self.tables.done
        return int(usable(connection, self.tables).execute(
            delete(done).where(done.c.id.in_(list(ids)), done.c.outcome == "dead")).rowcount)


class Task:
    """A function that is a task. Call it, and it runs here and now; `enqueue` it, and a worker runs it."""

    def __init__(self, tasks: Tasks, spec: Spec) -> None:
        self._tasks = tasks
        self.spec = spec
        """How it is run."""
        functools.update_wrapper(self, spec.function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.spec.function(*arguments, **named)

    def enqueue(self, connection: Connection | Session, *arguments: Any, **named: Any) -> int:
        """Enqueue it in the transaction of `connection`, with these arguments. Returns the id.

        For a key, a delay or a priority there is `Tasks.enqueue`.
        """
        row = self._tasks._row(self.spec.name, [list(arguments), named], None, None, None, 0, None)
        return self._tasks._write(usable(connection, self._tasks.tables), connection, row)
