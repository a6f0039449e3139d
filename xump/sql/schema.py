"""Creating the tables, telling whether they are the right ones, and SQLite set up so that its transactions hold."""

from __future__ import annotations

import weakref
from typing import Any

from sqlalchemy import Connection, Engine, event, func, insert, inspect, select
from sqlalchemy.orm import Session

from xump.sql.errors import ConfigurationError, SchemaMismatch
from xump.sql.moments import REMEMBER_FIRST
from xump.sql.tables import SLOTS, VERSION, Tables, tables

BUSY_TIMEOUT_MS = 30_000
VERSION_NAME = "tables"
CREATING = int.from_bytes(b"xumpinit")
"""The lock of PostgreSQL under which tables are created."""

_configured: weakref.WeakSet[Any] = weakref.WeakSet()
"""The dialects of engines that `configure_sqlite` has set up: an engine shares its own with those of its `execution_options`."""
_checked: weakref.WeakKeyDictionary[Any, set[tuple[str | None, str]]] = weakref.WeakKeyDictionary()


def init(engine: Engine | Connection, tables_: Tables | None = None) -> None:
    """Create the tables that are missing.

    Args:
        engine: The database; or a connection, whose transaction they are created in (in a migration, for instance).
        tables_: Which tables; None: those of `tables()`.

    Raises:
        SchemaMismatch: There are tables of another version; nothing has changed.
    """
    made = tables_ or tables()
    if isinstance(engine, Connection):
        _create(engine, made)
        return
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="READ COMMITTED")     # to see what was created while it waited
    with engine.begin() as connection:
        _create(connection, made)


def _create(connection: Connection, made: Tables) -> None:
    if connection.dialect.name == "postgresql":
        # Several programs may start at once: CREATE TABLE IF NOT EXISTS fails while another transaction creates it.
        connection.execute(select(func.pg_advisory_xact_lock(CREATING)))
    if inspect(connection).has_table(made.version.name, schema=made.version.schema):
        _compare(connection, made)
    made.metadata.create_all(connection, tables=made.all())
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(REMEMBER_FIRST)
    known = set(connection.execute(select(made.slot.c.slot)).scalars())
    missing = [{"slot": slot} for slot in range(SLOTS) if slot not in known]
    if missing:
        connection.execute(insert(made.slot), missing)
    if connection.execute(select(made.version.c.version)).first() is None:
        connection.execute(insert(made.version).values(name=VERSION_NAME, version=VERSION))


def check(engine: Engine | Connection, tables_: Tables | None = None) -> None:
    """Tell whether the tables are there, and of this version.

    Raises:
        SchemaMismatch: They are not; the message names both versions.
    """
    made = tables_ or tables()
    if isinstance(engine, Connection):
        _compare(engine, made)
        return
    with engine.connect() as connection:
        _compare(connection, made)


def _compare(connection: Connection, made: Tables) -> None:
    table = made.version
    if not inspect(connection).has_table(table.name, schema=table.schema):
        raise SchemaMismatch(f"there is no table {table.fullname}: create the tables with xump.sql.init(engine), or on the "
                             "command line: xump sql init URL")
    found = connection.execute(select(table.c.version).where(table.c.name == VERSION_NAME)).scalar()
    if found != VERSION:
        raise SchemaMismatch(f"the tables {table.fullname} ... are of version {found}, and this program knows version {VERSION}: "
                             "install the Xump that they were made with, or migrate them")


def configure_sqlite(engine: Any) -> Any:
    """Set an engine for SQLite up: transactions begin with BEGIN IMMEDIATE, in WAL mode, and wait 30 s for another writer.

    Args:
        engine: An `Engine` or `AsyncEngine`, before its first connection.

    Returns:
        The engine.

    Raises:
        ConfigurationError: It is not for SQLite.

    As SQLAlchemy and the driver come, a savepoint that is opened first is committed although the transaction around it rolls
    back, and a transaction that reads and then writes fails at once while another one writes.
    """
    sync = getattr(engine, "sync_engine", engine)
    if sync.dialect.name != "sqlite":
        raise ConfigurationError(f"configure_sqlite is for SQLite, and this engine is for {sync.dialect.name}: leave it as it is")
    if sync.dialect in _configured:
        return engine
    event.listen(sync, "connect", _on_connect)
    event.listen(sync, "begin", _on_begin)
    _configured.add(sync.dialect)
    return engine


def _on_connect(raw: Any, record: Any) -> None:
    raw.isolation_level = None
    cursor = raw.cursor()
    for pragma in ("journal_mode=WAL", f"busy_timeout={BUSY_TIMEOUT_MS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def require_configured(engine: Any) -> None:
    """For connections of our own.

    Raises:
        ConfigurationError: It is an engine for SQLite that `configure_sqlite` has not set up.
    """
    if engine.dialect.name == "sqlite" and engine.dialect not in _configured:
        raise ConfigurationError("SQLite must be set up for this: call xump.sql.configure_sqlite(engine) after create_engine")


def usable(connection: Connection | Session, made: Tables) -> Connection:
    """The connection of a user, looked at.

    Raises:
        ConfigurationError: A savepoint of SQLite is open that would be committed on its own.
        SchemaMismatch: The tables are not there, or of another version; looked for once a program.
    """
    core = connection.connection() if isinstance(connection, Session) else connection
    if not isinstance(core, Connection):
        raise TypeError(f"expected a Connection or Session of SQLAlchemy, got {type(connection).__name__}")
    if core.dialect.name == "sqlite" and core.in_nested_transaction() and core.dialect not in _configured:
        raise ConfigurationError("SQLite would commit this savepoint although the transaction around it rolls back: call "
                                 "xump.sql.configure_sqlite(engine) after create_engine")
    seen(core, made)
    return core


def seen(connection: Connection, made: Tables) -> None:
    """Look for the tables, once a program.

    Raises:
        SchemaMismatch: They are not there, or of another version.
    """
    known = _checked.setdefault(connection.engine.pool, set())
    name = (made.version.schema, made.version.name)
    if name not in known:
        _compare(connection, made)
        known.add(name)
