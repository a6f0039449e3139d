"""Looking at a transaction before its commit, and transactions of our own.

After an error that was swallowed, PostgreSQL answers COMMIT with a ROLLBACK, and neither driver nor SQLAlchemy raises. After a
rollback in the middle, a new transaction has begun, whose commit says nothing about the one before. Code that acknowledges on the
ground of a commit must look first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Transaction, text
from sqlalchemy.exc import DBAPIError, TimeoutError as PoolTimeout

from xump.sql.errors import TransactionAborted
from xump.sql.moments import remember
from xump.sql.schema import require_configured, seen
from xump.sql.tables import Tables

Result = TypeVar("Result")

ISOLATION = {"postgresql": "READ COMMITTED", "mysql": "READ COMMITTED", "mariadb": "READ COMMITTED"}
IN_ERROR = 3        # what libpq calls PQTRANS_INERROR
AGAIN = {"40001", "40P01"}
AWAY = (DBAPIError, PoolTimeout)
"""The errors that a loop meets if the database is away, or all connections of the pool are taken: it tries again."""
TRIES_MAX = 20
PAUSE = 0.005


def own(engine: Engine, made: Tables | None = None) -> Engine:
    """The engine for our own transactions: READ COMMITTED, since SKIP LOCKED under SERIALIZABLE fails more often than it claims.

    Args:
        engine: The database.
        made: The tables that these transactions are about: they are looked for in the first one.

    Raises:
        ConfigurationError: It is for SQLite, and is not set up.
    """
    require_configured(engine)
    level = ISOLATION.get(engine.dialect.name)
    return engine.execution_options(xump_tables=made, **({"isolation_level": level} if level else {}))


def in_own(engine: Engine, work: Callable[[Connection], Result]) -> Result:
    """Do `work` in a transaction of our own; again, if the database could not serialize it or ended a deadlock.

    Raises:
        SchemaMismatch: The tables that `own` was given are not there, or of another version.
    """
    tries = 0
    made: Tables | None = engine.get_execution_options().get("xump_tables")
    while True:
        try:
            with engine.begin() as connection:
                if made is not None:
                    seen(connection, made)
                before = _changes(connection)
                result = work(connection)
                if _changes(connection) != before:
                    remember(connection)
                return result
        except DBAPIError as error:
            tries += 1
            if sqlstate(error) not in AGAIN or tries >= TRIES_MAX:
                raise
            time.sleep(PAUSE * tries)


def _changes(connection: Connection) -> int:
    """How many rows this connection to SQLite has changed so far."""
    if connection.dialect.name != "sqlite":
        return 0
    return int(connection.exec_driver_sql("SELECT total_changes()").scalar_one())


def sqlstate(error: DBAPIError) -> str | None:
    """The five characters by which PostgreSQL names an error."""
    found = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return found if isinstance(found, str) else None


def begun(connection: Connection) -> Transaction:
    """The transaction, or the savepoint, that a statement now is in: what `refuse` looks at when it is to be committed."""
    innermost = connection.get_nested_transaction() or connection.get_transaction()
    assert innermost is not None        # a statement was run
    return innermost


def refuse(began: Transaction) -> None:
    """Raise if a commit would not commit what was written in this transaction.

    Raises:
        TransactionAborted: A statement failed in it and the error went no further, or it has ended already.
    """
    if not began.is_active:
        raise TransactionAborted("the transaction was rolled back, committed or closed before its end, so what is committed now "
                                 "is not what was done in it. Leave both to the end, or roll back to a savepoint: "
                                 "with connection.begin_nested()")
    connection = began.connection
    if connection.dialect.name != "postgresql":
        return
    info: Any = getattr(connection.connection.dbapi_connection, "info", None)
    status = getattr(info, "transaction_status", None)
    if status is None:
        try:
            connection.execute(text("SELECT 1"))
        except DBAPIError as error:
            if sqlstate(error) == "25P02":
                raise _aborted() from error
            raise
    elif status == IN_ERROR:
        raise _aborted()


def _aborted() -> TransactionAborted:
    return TransactionAborted("a statement failed in this transaction and its error was swallowed; the database would answer the "
                              "commit with a rollback. Let the error out, or run that statement in connection.begin_nested()")


def oldest_snapshot(connection: Connection) -> float:
    """For how many seconds the oldest transaction of a PostgreSQL is open: till it ends, dead rows stay and claims get slower.

    One that is prepared, and perhaps forgotten, counts, too.
    """
    if connection.dialect.name != "postgresql":
        return 0.0
    found = connection.execute(text(
        "SELECT coalesce(extract(epoch FROM clock_timestamp() - least("
        "(SELECT min(xact_start) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), "
        "(SELECT min(prepared) FROM pg_prepared_xacts))), 0)")).scalar_one()
    seconds = float(found)
    return seconds if math.isfinite(seconds) else 0.0
