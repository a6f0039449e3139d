"""A poll costs the same however many rows there are that it is not about: counted in pages, not timed.

`python -m benchmarks.sql_flat` is the same with ten million rows.
"""

import pytest
from sqlalchemy import text

from benchmarks import sql_flat
from tests.sql.conftest import engine_of

ROWS = 5_000
PAGES_MAX = 64
"""An index a slot, or a lane and priority, has two or three. The rows are in some hundred."""


@pytest.fixture
def database(postgres_url):
    database = engine_of(postgres_url)
    sql_flat.analyzed(database)
    yield database
    database.dispose()


@pytest.mark.parametrize(("what", "name"), [
    ("done messages", "processor"), ("done tasks", "worker"), ("parked rows", "relay"),
    ("parked rows", "relay, with parked rows"),
    ("future tasks", "worker"), ("tasks of another lane", "worker")])
def test_rows_that_a_poll_is_not_about_cost_it_nothing(database, made, what, name):
    sql_flat.filled(database, what, ROWS)
    with database.connect() as connection:
        poll = sql_flat.polls(made, database)[name]
        assert connection.exec_driver_sql(*poll).all() == []
        connection.rollback()
        assert sql_flat.pages(connection, poll) <= PAGES_MAX


def test_a_relay_behind_an_open_reader(database, made):
    """Rows that were sent cannot be removed while a reader is open that could see them: only a read from the front meets them."""
    front, behind = sql_flat.behind_an_open_reader(database, made, ROWS)
    assert behind <= PAGES_MAX < front


def test_pages_are_counted(database):
    """The measure itself: a walk over all rows is seen."""
    sql_flat.filled(database, "done messages", ROWS)
    with database.connect() as connection:
        connection.execute(text("SET enable_indexscan = off"))
        connection.execute(text("SET enable_indexonlyscan = off"))
        connection.execute(text("SET enable_bitmapscan = off"))
        connection.commit()
        assert sql_flat.pages(connection, ("SELECT * FROM xump_inbox WHERE done_at IS NULL", {})) > PAGES_MAX
