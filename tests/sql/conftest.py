"""Databases for the tests: a file of SQLite, and a PostgreSQL that a process of tests shares, with a database for each test."""

import time

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, create_engine, event, func, select, text
from sqlalchemy.pool import NullPool

from tests.sql import postgres
from xump.sql import configure_sqlite, init, tables
from xump.sql.tables import SLOTS, VERSION

BUSINESS = Table("business", MetaData(), Column("id", Integer, primary_key=True), Column("what", Text))


@pytest.fixture(scope="session")
def server():
    if not postgres.is_installed():
        pytest.skip("PostgreSQL is not installed: these tests are left out (apt-get install postgresql)")
    with postgres.running() as server:
        engine = create_engine(server.url())
        init(engine)
        BUSINESS.metadata.create_all(engine)
        engine.dispose()
        yield server


@pytest.fixture
def postgres_url(server):
    """One database for all tests, emptied for each, and its ids begin anew. What an earlier test left open is cut."""
    made = tables()
    engine = create_engine(server.url(), poolclass=NullPool)
    emptied = [table for table in (*made.all(), BUSINESS) if table is not made.version]
    with engine.begin() as connection:
        connection.execute(text(f"SELECT pg_terminate_backend(pid) {postgres.CLIENTS}"))
        connection.exec_driver_sql("; ".join(f"DELETE FROM {table.name}" for table in emptied))     # faster than TRUNCATE
        connection.execute(text("SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence"))
        connection.execute(made.slot.insert(), [{"slot": slot} for slot in range(SLOTS)])
        connection.execute(made.version.update().values(version=VERSION))
    return server.url()


@pytest.fixture
def sqlite_url(tmp_path):
    url = f"sqlite:///{tmp_path}/test.db"
    engine = engine_of(url)
    init(engine)
    BUSINESS.metadata.create_all(engine)
    engine.dispose()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")


@pytest.fixture
def database(url):
    engine = engine_of(url)
    yield engine
    engine.dispose()


def engine_of(url, **options):
    return set_up(create_engine(url, **options))


def set_up(engine):
    """An engine as users have it, but that SQLite waits for no disk, as the tests' PostgreSQL does not: the disk of a shared
    machine has stood still for two minutes, in which leases end."""
    if engine.dialect.name == "sqlite":
        configure_sqlite(engine)
        event.listen(getattr(engine, "sync_engine", engine), "connect", _waits_for_no_disk)
    return engine


def _waits_for_no_disk(raw, record):
    raw.cursor().execute("PRAGMA synchronous=OFF")


def count(database, table, *conditions):
    with database.connect() as connection:
        return connection.execute(select(func.count()).select_from(table).where(*conditions)).scalar_one()


def until(condition, seconds=60):
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be so"
        time.sleep(0.01)


def business(connection, what="changed"):
    connection.execute(BUSINESS.insert().values(what=what))


@pytest.fixture
def made():
    return tables()
