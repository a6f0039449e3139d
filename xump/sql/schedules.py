"""Tasks that come again and again, at times that cron's five fields say.

The next time of each task is a row; any worker or cleaner that knows the schedule looks at it and enqueues the task, in the
transaction that writes down the next time. So each time counts once, however many look, and none of them leads. The time is the
database's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from sqlalchemy import BigInteger, Connection, cast, insert, select, update
from sqlalchemy.exc import IntegrityError

from xump.sql.moments import Now
from xump.sql.payload import text_column

if TYPE_CHECKING:
    from xump.sql.tasks import Tasks

MISSED = ("once", "all", "skip")
LATE_MICROS = 60_000_000
"""With `missed="skip"`, a time that is over by more than this is not made up for."""
AT_ONCE = 1000
"""With `missed="all"`, how many are made up for in one transaction."""
NAME_CHARS_MAX = 200
YEARS = 9
"""For how long a time is looked for: 29 February may be eight years away."""

FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NAMES = {3: {name: number for number, name in enumerate(MONTHS, 1)}, 4: {name: number for number, name in enumerate(DAYS)}}
SHORT = {"@yearly": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@hourly": "0 * * * *"}


class Cron:
    """Times by cron's five fields: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday).

    Args:
        fields: Each `*`, numbers, ranges `1-5`, steps `*/15` or `0-30/10`, or several of these with commas; months and days of
            the week also by their first three letters. Or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. If both days are
            restricted, either will do.
        zone: Whose clock, such as `"Europe/Berlin"`. An hour that comes twice there counts once; a time that is left out comes an
            hour later.

    Raises:
        ValueError: They are wrong, or there is no such time.

    >>> Cron("30 8 * * mon-fri").after(datetime(2026, 1, 2, 9, 0, tzinfo=UTC)).isoformat()
    '2026-01-05T08:30:00+00:00'
    """

    def __init__(self, fields: str, zone: str = "UTC") -> None:
        if not isinstance(fields, str):
            raise TypeError(f"cron must be a str, got {type(fields).__name__}")
        _each = SHORT.get(fields.strip(), fields).lower().split()
        if len(_each) != len(FIELDS):
            raise ValueError("cron must have five fields (minute, hour, day of the month, month, day of the week), got "
                             f"{fields!r}")
        self.text = fields.strip() if zone == "UTC" else f"{fields.strip()} {zone}"
        """As it is written beside what is due."""
        self._zone = _zone_of(zone)
        self._minutes, self._hours, self._days, self._months, _week = (
            _numbers(number, field, fields) for number, field in enumerate(_each))
        self._weekdays = {number % 7 for number in _week}
        self._either = not _each[2].startswith("*") and not _each[4].startswith("*")
        self.after(datetime(2000, 1, 1, tzinfo=UTC))

    def after(self, moment: datetime) -> datetime:
        """The first time after a moment, in UTC. Cost: the days in between."""
        local = moment.astimezone(self._zone).replace(tzinfo=None, second=0, microsecond=0)
        until = local + timedelta(days=366 * YEARS)
        while local < until:
            local += timedelta(minutes=1)
            if not self._is_day(local):
                local = local.replace(hour=0, minute=0) + timedelta(days=1) - timedelta(minutes=1)
            elif local.hour not in self._hours:
                local = local.replace(minute=0) + timedelta(hours=1) - timedelta(minutes=1)
            elif local.minute in self._minutes:
                found = local.replace(tzinfo=self._zone).astimezone(UTC)
                if found > moment:
                    return found
        raise ValueError(f"cron {self.text!r} has no time in {YEARS} years: look at the day and the month")

    def _is_day(self, local: datetime) -> bool:
        if local.month not in self._months:
            return False
        day, weekday = local.day in self._days, local.isoweekday() % 7 in self._weekdays
        return day or weekday if self._either else day and weekday


def _zone_of(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError, TypeError) as error:     # ZoneInfoNotFoundError is a KeyError
        raise ValueError(f'zone must be a time zone such as "Europe/Berlin", got {name!r}') from error


def _numbers(which: int, field: str, fields: str) -> set[int]:
    name, least, most = FIELDS[which]
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            low = least if span == "*" else _number(which, first)
            high = most if span == "*" or (step and not dash) else _number(which, last if dash else first)
            every = int(step) if "/" in part else 1
        except ValueError:
            low = high = every = -1
        if not least <= low <= high <= most or every < 1:
            raise ValueError(f"the {name} must be {least} to {most}, such as {least}, {least}-{most}, or */2; got {part!r} in "
                             f"{fields!r}")
        found.update(range(low, high + 1, every))
    return found


def _number(which: int, given: str) -> int:
    named = NAMES.get(which, {}).get(given)
    return int(given) if named is None else named


@dataclass(frozen=True)
class Schedule:
    """When a task comes."""

    name: str
    """Its name in the table."""
    cron: Cron
    """The times."""
    task: str
    """Which task."""
    payload: Any
    """With which arguments."""
    missed: str
    """How times at which nobody looked are treated."""


def schedule_of(name: str, cron: str, task: str, payload: Any, missed: str, zone: str) -> Schedule:
    """A schedule from what a user gave.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """
    if not 1 <= len(text_column(name, "name")) <= NAME_CHARS_MAX:
        raise ValueError(f"name must have 1 to {NAME_CHARS_MAX} characters, got {name[:50]!r}")
    if missed not in MISSED:
        raise ValueError(f'missed must be "once", "all" or "skip", got {missed!r}')
    return Schedule(name, Cron(cron, zone), text_column(task, "task"), payload, missed)


class Schedules:
    """Looks what is due. A worker and a cleaner have one each."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._written: set[str] = set()
        self._writing: set[str] = set()

    def committed(self) -> None:
        """The transaction of the last `fire` was committed, and so are the rows that it wrote."""
        self._written |= self._writing

    def fire(self, connection: Connection) -> int:
        """Enqueue what is due of the schedules that are known here; `committed()` comes next. Returns how many tasks."""
        known = self._tasks.schedules
        if not known:
            return 0
        table = self._tasks.tables.schedule
        missing = [each for name, each in known.items() if name not in self._written]
        self._writing = set()
        if missing:
            self._write(connection, missing)
        due = connection.execute(
            select(table, cast(Now(), BigInteger).label("now")).where(table.c.name.in_(list(known)), table.c.next_at <= Now())
            .order_by(table.c.name).with_for_update(skip_locked=True)).all()
        # A program that was started later knows other times than this one: it looks after them.
        return sum(self._one(connection, known[row.name], row) for row in due if row.cron == known[row.name].cron.text)

    def _write(self, connection: Connection, missing: Iterable[Schedule]) -> None:
        """The rows of these, once a program. A schedule with other times than before begins anew."""
        table = self._tasks.tables.schedule
        now = connection.execute(select(cast(Now(), BigInteger))).scalar_one()
        for each in missing:
            values = {"cron": each.cron.text, "next_at": _micros(each.cron.after(_moment(now)))}
            found = connection.execute(select(table.c.cron).where(table.c.name == each.name)).scalar()
            if found is None:
                try:
                    with connection.begin_nested():
                        connection.execute(insert(table).values(name=each.name, **values))
                except IntegrityError:          # another one was as quick
                    continue
            elif found != each.cron.text:
                connection.execute(update(table).where(table.c.name == each.name).values(**values))
            self._writing.add(each.name)

    def _one(self, connection: Connection, schedule: Schedule, row: Any) -> int:
        times = [row.next_at]
        following = _micros(schedule.cron.after(_moment(row.now)))
        if schedule.missed == "all":
            while len(times) < AT_ONCE and (then := _micros(schedule.cron.after(_moment(times[-1])))) <= row.now:
                times.append(then)
            following = _micros(schedule.cron.after(_moment(times[-1])))
        elif schedule.missed == "skip" and row.now - row.next_at > LATE_MICROS:
            times = []
        # While one waits, a further one of "once" or "skip" is the same: nothing piles up while no worker runs.
        key = None if schedule.missed == "all" else f"schedule {schedule.name}"
        ids = [self._tasks.enqueue(connection, schedule.task, schedule.payload, key=key, at=_moment(then)) for then in times]
        table = self._tasks.tables.schedule
        connection.execute(update(table).where(table.c.name == schedule.name).values(
            next_at=following, last_id=ids[-1] if ids else row.last_id))
        return len(ids)


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros // 1_000_000, UTC) + timedelta(microseconds=micros % 1_000_000)


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
