"""The same statements again and again, by psycopg itself: those of a worker for each task, and of a relay for each batch.

SQLAlchemy's execution is most of the CPU that a worker's turn costs. So the worker takes one connection out of the engine's pool,
with whatever that does to new connections, and runs its statement there, prepared. Arrays go as texts, which costs less than to
have them looked through. Everything else, and every other driver, goes through SQLAlchemy.

To plan a turn takes PostgreSQL twice as long as to run it, and it would do so each time. So it plans once. A plan made while a
table was empty must be good with a million rows, too: only ways by an index that gives the order are left to choose from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from xump.sql.transactions import AGAIN, PAUSE, TRIES_MAX, sqlstate

PLANS = """SELECT set_config('plan_cache_mode', 'force_generic_plan', false), set_config(name, 'off', false) FROM
unnest(ARRAY['enable_seqscan', 'enable_bitmapscan', 'enable_sort', 'jit']) AS name"""
"""`jit`, since what is off is not forbidden, but said to cost so much that compiling it would look worth while."""


def is_direct(engine: Engine) -> bool:
    """Whether statements for this engine can go to psycopg."""
    dialect = engine.dialect
    return (dialect.name == "postgresql" and dialect.driver == "psycopg" and not dialect.is_async
            and "schema_translate_map" not in engine.get_execution_options())


class Direct:
    """A connection that runs statements, each in a transaction of its own under READ COMMITTED. For one thread.

    Args:
        engine: For PostgreSQL with psycopg.
        binary: Whether rows come in binary, which is faster for many of them.
    """

    def __init__(self, engine: Engine, *, binary: bool = False) -> None:
        self._engine, self._binary = engine, binary
        self._connection: Any = None
        self._commits = False

    def run(self, statement: str, parameters: dict[str, Any]) -> list[Any]:
        """Run a statement that returns rows; again, if the database could not serialize it or ended a deadlock.

        Args:
            statement: With psycopg's own placeholders, by name.
            parameters: By these names.

        Returns:
            The rows as tuples.

        Raises:
            DBAPIError: As SQLAlchemy would. The next call connects anew.
        """
        rows: list[Any] = self._run(statement, parameters, lambda cursor: cursor.fetchall())
        return rows

    def change(self, statement: str, parameters: dict[str, Any]) -> int:
        """Run a statement that changes rows, and returns none, likewise. Returns how many it changed."""
        return int(self._run(statement, parameters, lambda cursor: cursor.rowcount))

    def _run(self, statement: str, parameters: dict[str, Any], result: Callable[[Any], Any]) -> Any:
        import psycopg

        tries = 0
        while True:
            try:
                return self._once(statement, parameters, result)
            except psycopg.Error as error:
                self.close()
                raised = DBAPIError(statement, None, error)
            except BaseException:
                self.close()        # in the middle of a statement, for all that is known
                raise
            tries += 1
            if sqlstate(raised) not in AGAIN or tries >= TRIES_MAX:
                raise raised
            time.sleep(PAUSE * tries)

    def _once(self, statement: str, parameters: dict[str, Any], result: Callable[[Any], Any]) -> Any:
        if self._connection is None:
            self._open()
        connection = self._connection
        found = result(connection.execute(statement, parameters, prepare=True, binary=self._binary))
        if self._commits:
            connection.commit()
        return found

    def _open(self) -> None:
        from psycopg import IsolationLevel

        pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        self._connection = connection       # at once: whatever fails below closes it
        pooled.detach()         # the pool may be as small as the user's own threads need
        connection.autocommit = True        # one round trip: the statement is its own transaction
        connection.execute(PLANS)
        [level] = connection.execute("SHOW default_transaction_isolation").fetchone()
        self._commits = level != "read committed"
        if self._commits:
            connection.autocommit = False
            connection.isolation_level = IsolationLevel.READ_COMMITTED

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


def quoted(table: Any) -> str:
    """The name of a table, as SQL has it."""
    return f'"{table.schema}"."{table.name}"' if table.schema else f'"{table.name}"'
