"""The database's clock as an expression: microseconds since 1970, never the clock of a host.

It is a scalar subquery, so that PostgreSQL reads its clock once a statement and can look the result up in an index.
`clock_timestamp()` goes on within a transaction; `now()` stands still.

SQLite has no clock of its own, only that of its machine, which may be set back. So whoever writes remembers the time in the same
transaction, and it is never less than what is remembered. `sqlite_sequence`, where SQLite remembers ids that it has issued, is a
place that each of our databases has, one for all prefixes, and that no migration takes for a table of the user's.
"""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import BigInteger, Connection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement

POSTGRESQL = "(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
SQLITE_CLOCK = "xump_clock"
SQLITE = (
    "(SELECT max(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, "
    f"coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{SQLITE_CLOCK}'), 0)))")
REMEMBER = f"UPDATE sqlite_sequence SET seq = {SQLITE} WHERE name = '{SQLITE_CLOCK}'"
REMEMBER_FIRST = (f"INSERT INTO sqlite_sequence (name, seq) SELECT '{SQLITE_CLOCK}', 0 "
                  f"WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '{SQLITE_CLOCK}')")
MYSQL = "(SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))"

SECONDS_MAX = 1e9
"""Some 30 years: a longer time is a mistake, or means for ever, which None says."""


class Now(ColumnElement[int]):
    """The time by the database's clock."""

    inherit_cache = True
    """It has no state: statements with it can be cached."""
    _traverse_internals: Any = []       # noqa: RUF012 without it, SQLAlchemy compiles each statement anew, each time
    type = BigInteger()
    """Microseconds."""


@compiles(Now)
def _standard(element: Now, compiler: Any, **options: Any) -> str:
    return POSTGRESQL


@compiles(Now, "sqlite")
def _sqlite(element: Now, compiler: Any, **options: Any) -> str:
    return SQLITE


@compiles(Now, "mysql")
@compiles(Now, "mariadb")
def _mysql(element: Now, compiler: Any, **options: Any) -> str:
    return MYSQL


def remember(connection: Connection) -> None:
    """In a transaction that writes: SQLite's time will not be less than now."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(REMEMBER)


def micros(seconds: float, name: str) -> int:
    """A time in seconds as the tables have it.

    Raises:
        ValueError: It is negative, no number, or above `SECONDS_MAX`.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, got {type(seconds).__name__}")
    if not math.isfinite(seconds) or not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"{name} must be 0 to {SECONDS_MAX:.0f} seconds, got {seconds!r}")
    return round(seconds * 1_000_000)


def delays(given: float | tuple[float, ...] | list[float], name: str) -> tuple[int, ...]:
    """Delays of one attempt after the other; the last one goes for all that follow."""
    each = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not each:
        raise ValueError(f"{name} must have at least one delay, got {given!r}")
    return tuple(micros(one, name) for one in each)


def delay_after(each: tuple[int, ...], attempts: int) -> int:
    """The delay after so many attempts."""
    return each[min(attempts, len(each)) - 1]
