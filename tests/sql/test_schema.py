"""The tables: created once, looked at once, refused when they are of another version."""

import threading

import pytest
from sqlalchemy import MetaData, create_engine, inspect, text

from tests.sql.conftest import engine_of, until
from xump.sql import ConfigurationError, Outbox, SchemaMismatch, check, configure_sqlite, init, tables
from xump.sql.tables import VERSION


def test_init_twice_is_init_once(database, made):
    init(database)
    check(database)
    with database.connect() as connection:
        assert connection.execute(made.slot.select()).rowcount in (16, -1)
        assert len(connection.execute(made.version.select()).all()) == 1


def test_tables_that_are_not_there_and_of_another_version(tmp_path, database, made):
    empty = configure_sqlite(create_engine("sqlite://"))
    with pytest.raises(SchemaMismatch, match="xump sql init"):
        check(empty)
    with empty.begin() as connection, pytest.raises(SchemaMismatch, match="there is no table xump_version"):
        Outbox().publish(connection, "orders")
    with database.begin() as connection:
        connection.execute(made.version.update().values(version=99))
    for call in (check, init):
        with pytest.raises(SchemaMismatch, match=f"of version 99, and this program knows version {VERSION}"):
            call(database)
    with database.begin() as connection, pytest.raises(SchemaMismatch):
        Outbox().publish(connection, "orders")


def test_a_prefix_and_a_schema(postgres_url):
    database = engine_of(postgres_url)
    other = tables(schema="other", prefix="x_")
    with database.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS other CASCADE"))
        connection.execute(text("CREATE SCHEMA other"))
        init(connection, other)
        check(connection, other)
        Outbox(tables=other).publish(connection, "orders")
    assert set(
        inspect(database).get_table_names(schema="other")) == {table.name for table in other.all()}
    database.dispose()


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "SERIALIZABLE"])
def test_two_programs_that_begin_at_once_create_the_tables_once(postgres_url, isolation):
    database = engine_of(postgres_url, isolation_level=isolation)
    with database.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS at_once CASCADE"))
        connection.execute(text("CREATE SCHEMA at_once"))
    made, failed = tables(schema="at_once"), []

    def second():
        try:
            init(database, made)
        except Exception as error:
            failed.append(error)

    waits = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
    with database.connect() as connection:
        init(connection, made)
        beginning = threading.Thread(target=second)
        beginning.start()
        with database.connect().execution_options(isolation_level="AUTOCOMMIT") as looking:
            until(lambda: looking.execute(waits).scalar_one() == 1)
        connection.commit()
    beginning.join()
    assert failed == []
    check(database, made)
    with database.begin() as connection:
        connection.execute(text("DROP SCHEMA at_once CASCADE"))
    database.dispose()


def test_the_metadata_of_the_user_has_each_table_once():
    mine = MetaData()
    assert tables(metadata=mine).outbox is tables(metadata=mine).outbox
    for wrong in ("", "Upper_", "1_", "a-b", "x" * 32, 1):
        with pytest.raises(ValueError, match="prefix must be"):
            tables(prefix=wrong)


def test_only_sqlite_is_configured(postgres_url):
    database = create_engine(postgres_url)
    with pytest.raises(ConfigurationError, match="this engine is for postgresql"):
        configure_sqlite(database)
    sqlite = create_engine("sqlite://")
    assert configure_sqlite(configure_sqlite(sqlite)) is sqlite
