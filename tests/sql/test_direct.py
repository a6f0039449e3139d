"""What a worker does by psycopg itself: a connection of its own, again after it was cut, under READ COMMITTED whatever is set."""

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from tests.sql.conftest import count
from tests.sql.postgres import CLIENTS
from xump.sql import Tasks
from xump.sql.claims import Claims
from xump.sql.direct import Direct, is_direct, numbers, texts

ARRAYS = "SELECT CAST(%(numbers)s AS bigint[]), CAST(%(texts)s AS text[]), pg_backend_pid()"
AWKWARD = ["", "a b", 'quote " quote', "back\\slash", "{,}", "NULL", "ä'%s"]


@pytest.fixture
def database(postgres_url):
    engine = create_engine(postgres_url, pool_size=1, max_overflow=0, pool_timeout=30)
    yield engine
    engine.dispose()


@pytest.fixture
def direct(database):
    made = Direct(database)
    yield made
    made.close()


def enqueued(database, tasks, number, **options):
    with database.begin() as connection:
        return tasks.enqueue_many(connection, [{"name": "note", **options} for _ in range(number)])


def test_arrays_are_what_postgresql_reads(direct):
    found = direct.run(ARRAYS, {"numbers": numbers([1, -2]), "texts": texts(AWKWARD)})
    assert found[0][:2] == ([1, -2], AWKWARD)


def test_its_connection_is_not_one_of_the_pool_and_is_made_anew_when_cut(database, direct):
    given = {"numbers": numbers([]), "texts": texts([])}
    first = direct.run(ARRAYS, given)[0][2]
    with database.begin() as connection:        # the only one that the pool has
        assert connection.execute(text("SELECT pg_terminate_backend(:pid, 30000)"), {"pid": first}).scalar()
    with pytest.raises(Exception, match="terminating connection|closed") as raised:
        direct.run(ARRAYS, given)
    assert raised.type.__module__.startswith("sqlalchemy")
    assert direct.run(ARRAYS, given)[0][2] != first


def test_a_connection_that_cannot_be_prepared_is_closed(database, direct, monkeypatch):
    given = {"numbers": numbers([]), "texts": texts([])}
    opened, raw = [], database.raw_connection

    def raw_connection():
        made = raw()
        opened.append(made.driver_connection)
        return made

    monkeypatch.setattr(database, "raw_connection", raw_connection)
    with monkeypatch.context() as broken:
        broken.setattr("xump.sql.direct.PLANS", "SET what_is_not = 1")
        with pytest.raises(DBAPIError, match="what_is_not"):
            direct.run(ARRAYS, given)
    assert opened[0].closed
    assert direct.run(ARRAYS, given)[0][2] == opened[1].info.backend_pid


def test_a_worker_goes_on_when_its_connection_was_cut(database, made, caplog):
    tasks, ran = Tasks(database), []

    @tasks.task()
    def note(cut=False):
        ran.append(cut)
        if cut:
            with database.begin() as connection:
                connection.execute(text(f"SELECT pg_terminate_backend(pid, 30000) {CLIENTS}"))

    with database.begin() as connection:
        note.enqueue(connection, cut=True)
        note.enqueue(connection)
    worker = tasks.worker(poll=0.01)
    assert (worker.drain(), ran) == (2, [True, False])
    assert "cannot reach the database" in caplog.text
    assert count(database, made.task) == 0


def test_read_committed_whatever_the_default_is(postgres_url):
    engine = create_engine(postgres_url, connect_args={"options": "-c default_transaction_isolation=serializable"})
    direct = Direct(engine)
    assert [direct.run("SELECT current_setting('transaction_isolation')", {}) for _ in range(2)] == [[("read committed",)]] * 2
    direct.close()
    tasks, ran = Tasks(engine), []
    tasks.task("note")(lambda: ran.append(1))
    enqueued(engine, tasks, 3)
    assert (tasks.worker().drain(), len(ran)) == (3, 3)
    engine.dispose()


def test_which_engines_are_direct(database, sqlite_url):
    assert is_direct(database)
    assert not is_direct(create_engine(sqlite_url))


def test_a_claim_begins_behind_what_it_had_and_finds_what_came_late(database, made):
    tasks = Tasks(database)
    claims = Claims(made, "w", ["default"], 60_000_000, False)
    direct = Direct(database)
    ids = enqueued(database, tasks, 4)
    first = claims.turn(direct, [], 2)[1]
    assert [row.id for row in first] == ids[:2]
    assert claims._since == {("default", 0): first[1].due}
    [late] = enqueued(database, tasks, 1)
    with database.begin() as connection:        # as if it had been committed late
        connection.execute(made.task.update().where(made.task.c.id == late).values(due=1))
    mine, rows = claims.turn(direct, first, 2)
    assert (mine, [row.id for row in rows]) == (set(ids[:2]), ids[2:])
    mine, rows = claims.turn(direct, rows, 2)
    assert ([row.id for row in rows], claims._since) == ([late], {})
    direct.close()


def test_late_ones_wait_for_ten_seconds_at_most(database, made):
    tasks = Tasks(database)
    claims = Claims(made, "w", ["default"], 60_000_000, False)
    direct = Direct(database)
    enqueued(database, tasks, 3)
    assert len(claims.turn(direct, [], 1)[1]) == 1
    [late] = enqueued(database, tasks, 1)
    with database.begin() as connection:
        connection.execute(made.task.update().where(made.task.c.id == late).values(due=1))
    claims._since_dropped -= 11
    assert [row.id for row in claims.turn(direct, [], 1)[1]] == [late]
    direct.close()


def plan_of(direct, like, arguments):
    """Of a statement that was prepared on this connection."""
    connection = direct._connection
    [(name, custom)] = connection.execute(
        "SELECT name, custom_plans FROM pg_prepared_statements WHERE statement LIKE %s", (like,)).fetchall()
    assert custom == 0
    given = ", ".join("NULL" if one is None else f"'{one}'" for one in arguments)
    return "\n".join(row for [row] in connection.execute(f"EXPLAIN EXECUTE {name}({given})").fetchall())


def test_what_was_planned_for_an_empty_table_is_planned_well_and_once(database, made, direct):
    """A plan for no rows would read all of them when there are many."""
    with database.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("VACUUM (ANALYZE) xump_task"))
    tasks = Tasks(database)
    claims = Claims(made, "w", ["default"], 60_000_000, False)
    assert claims.turn(direct, [], 2) == (set(), [])
    assert claims.due_in(direct) == float("inf")
    ids = enqueued(database, tasks, 4)
    first = claims.turn(direct, [], 2)[1]
    assert claims.turn(direct, first, 1)[0] == set(ids[:2])
    plan = plan_of(direct, "%finished AS%", [None] * 10)
    assert "Seq Scan" not in plan
    due = plan_of(direct, "%min(found.due)%", [None] * 2)
    assert ("Seq Scan" in due, due.count("xump_task_ready")) == (False, 1)
    assert (plan.count("xump_task_pkey"), plan.count("xump_task_ready"), plan.count("Index Cond: (id = ANY")) == (2, 1, 2)


def test_a_finish_is_refused_of_what_is_not_ones_own(database, made, direct):
    tasks = Tasks(database)
    claims, others = (Claims(made, worker, ["default"], 60_000_000, True) for worker in ("w", "other"))
    enqueued(database, tasks, 3)
    [mine, old, back] = claims.turn(direct, [], 3)[1]
    with database.begin() as connection:
        connection.execute(made.task.update().where(made.task.c.id == old.id).values(attempts=2))
        connection.execute(made.task.update().where(made.task.c.id == back.id).values(start_time=None, worker=None))
    assert others.turn(direct, [mine], 0)[0] == set()
    assert claims.turn(direct, [old, mine, back], 0)[0] == {mine.id}
    assert count(database, made.done) == 1
