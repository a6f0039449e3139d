"""One statement again and again, by psycopg itself: what a worker does for each task.

SQLAlchemy's execution is most of the CPU that a worker's turn costs. So the worker takes one connection out of the engine's pool,
with whatever that does to new connections, and runs its statement there, prepared. Arrays go as texts, which costs less than to
have them looked through. Everything else, and every other driver, goes through SQLAlchemy.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from xump.sql.transactions import AGAIN, PAUSE, TRIES_MAX, sqlstate


def is_direct(engine: Engine) -> bool:
    """Whether statements for this engine can go to psycopg."""
    dialect = engine.dialect
    return dialect.name == "postgresql" and dialect.driver == "psycopg" and not dialect.is_async


class Direct:
    """A connection that runs one statement, each time in a transaction of its own under READ COMMITTED. For one thread.

    Args:
        engine: For PostgreSQL with psycopg.
        statement: With psycopg's own placeholders, by name.
    """

    def __init__(self, engine: Engine, statement: str) -> None:
        self._engine, self._statement = engine, statement
        self._connection: Any = None
        self._commits = False

    def run(self, parameters: dict[str, Any]) -> list[Any]:
        """Run it; again, if the database could not serialize it or ended a deadlock. Returns the rows as tuples.

        Raises:
            DBAPIError: As SQLAlchemy would. The next call connects anew.
        """
        import psycopg

        tries = 0
        while True:
            try:
                return self._once(parameters)
            except psycopg.Error as error:
                self.close()
                raised = DBAPIError(self._statement, None, error)
            except BaseException:
                self.close()        # in the middle of a statement, for all that is known
                raise
            tries += 1
            if sqlstate(raised) not in AGAIN or tries >= TRIES_MAX:
                raise raised
            time.sleep(PAUSE * tries)

    def _once(self, parameters: dict[str, Any]) -> list[Any]:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._opened()
        rows: list[Any] = connection.execute(self._statement, parameters, prepare=True).fetchall()
        if self._commits:
            connection.commit()
        return rows

    def _opened(self) -> Any:
        from psycopg import IsolationLevel

        pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        pooled.detach()         # the pool may be as small as the user's own threads need
        connection.autocommit = True        # one round trip: the statement is its own transaction
        [level] = connection.execute("SHOW default_transaction_isolation").fetchone()
        self._commits = level != "read committed"
        if self._commits:
            connection.autocommit = False
            connection.isolation_level = IsolationLevel.READ_COMMITTED
        return connection

    def close(self) -> None:
        """Close the connection, if one is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):       # it is given up, whatever state it is in
                connection.close()


def numbers(values: Iterable[int]) -> str:
    """An array of numbers, as PostgreSQL reads it.

    >>> numbers([1, 2])
    '{1,2}'
    """
    return "{" + ",".join(map(str, values)) + "}"


def texts(values: Iterable[str]) -> str:
    r"""An array of texts, as PostgreSQL reads it.

    >>> texts(["a", 'b"'])
    '{"a","b\\""}'
    """
    return "{" + ",".join('"' + value.replace("\\", r"\\").replace('"', r"\"") + '"' for value in values) + "}"
