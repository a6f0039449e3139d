"""Leases: each task has its own, nobody is held up who renews them, and what is not known here is left to who knows it."""

import threading

import pytest
from sqlalchemy import create_engine, event, select
from sqlalchemy.pool import QueuePool

from tests.sql.conftest import BUSINESS, business, count, engine_of, until
from tests.sql.test_cleaner import claim, leases_over
from tests.sql.test_tasks import rows
from xump.sql import Tasks
from xump.sql.claims import Claims
from xump.sql.direct import PLANS
from xump.sql.hosts import ThreadHost
from xump.sql.moments import Now


@pytest.fixture
def tasks(database):
    return Tasks(database)


@pytest.fixture
def postgres(postgres_url):
    """A lock that is waited for is an error here, and no test that hangs."""
    database = create_engine(postgres_url, connect_args={"options": "-c lock_timeout=3000"})
    yield database
    database.dispose()


def now(database):
    with database.connect() as connection:
        return connection.execute(select(Now())).scalar_one()


def test_each_task_has_its_own_lease(database, tasks, made):
    tasks.task("short", lease=5)(print)
    tasks.task("long", lease=5000)(print)
    with database.begin() as connection:
        for name in ("short", "long", "unknown"):
            tasks.enqueue(connection, name)
    claims = Claims(made, "w", ["default"], 60_000_000, False, {spec.name: spec.lease for spec in tasks.specs.values()})
    claimed, times = [], [now(database)]
    for _ in ("claimed", "renewed"):
        with database.begin() as connection:
            if claimed:
                claims.renew(connection, claimed)
            else:
                claimed = claims.turn(connection, [], 10)[1]
        times.append(now(database))
        assert all(times[0] <= start <= times[1] for start, in rows(database, made.task, made.task.c.start_time))
        leases = dict(rows(database, made.task, made.task.c.name, made.task.c.lease_until))
        begun = {leases.pop(name) - seconds * 1_000_000 for name, seconds in [("short", 5), ("long", 5000), ("unknown", 60)]}
        assert (len(begun), leases) == (1, {})
        assert times[-2] <= begun.pop() <= times[-1]
        leases_over(database, made)


def test_a_task_in_its_own_transaction_holds_nobody_up(postgres, made):
    """While it runs, leases are renewed, its own and those of others, and cleaners go by."""
    tasks, leases = Tasks(postgres), []

    @tasks.task(transaction=True, lease=1000)
    def slow(connection):
        business(connection)
        leases_over(postgres, made)
        worker._beat()
        leases.extend(lease for lease, in rows(postgres, made.task, made.task.c.lease_until))
        leases_over(postgres, made)
        with postgres.begin() as other:
            other.execute(made.worker.update().values(seen=0))
        counts.append(tasks.cleaner().step())

    counts = []
    with postgres.begin() as connection:
        slow.enqueue(connection)
    worker = tasks.worker()
    worker.drain()
    assert leases[0] > 0
    assert (counts[0]["retried"], counts[0]["vanished"]) == (1, 1)
    assert (worker.lost, count(postgres, BUSINESS)) == (1, 0)       # another one will have that effect


def test_of_two_that_run_one_task_in_its_transaction_one_has_its_effect(postgres, made):
    tasks, runs = Tasks(postgres), []

    @tasks.task(transaction=True, retry_delay=0)
    def pay(connection):
        business(connection)
        runs.append(1)
        if len(runs) == 1:
            leases_over(postgres, made)
            assert tasks.cleaner().step()["retried"] == 1
            assert other.drain() == 1

    other, first = tasks.worker(), tasks.worker()
    with postgres.begin() as connection:
        pay.enqueue(connection)
    assert (first.drain(), first.lost, len(runs), count(postgres, BUSINESS)) == (0, 1, 2, 1)


def test_a_late_end_leaves_no_trace(postgres, made):
    """Its lease is over, and a cleaner comes between the two statements of its end: it waits, or finds the task gone."""
    tasks, counts = Tasks(postgres), []

    @tasks.task(max_attempts=1)
    def fails():
        leases_over(postgres, made)
        raise KeyError("broken")

    @event.listens_for(postgres, "after_cursor_execute")
    def between(connection, cursor, statement, *rest):
        if statement.startswith("INSERT INTO xump_task_done") and not counts:
            counts.append(None)
            tasks.specs["fails"] = tasks.specs["fails"].__class__(**{**vars(tasks.specs["fails"]), "max_attempts": 9})
            counts.append(tasks.cleaner().step()["retried"])

    with postgres.begin() as connection:
        fails.enqueue(connection)
    worker = tasks.worker()
    worker.drain()
    assert counts == [None, 0]
    assert (count(postgres, made.task), count(postgres, made.done), worker.lost) == (0, 1, 0)


def test_a_cleaner_leaves_alone_what_it_does_not_know(database, made, caplog):
    """Whether such a task may run again is not known here: it may be one that runs at most once."""
    there, here = Tasks(database), Tasks(database)
    there.task("once", max_attempts=1)(print)
    with database.begin() as connection:
        there.enqueue(connection, "once")
    claim(database, there)
    leases_over(database, made)
    for _ in range(2):
        assert set(here.cleaner().step().values()) == {0}
    assert "the tasks once have ended, and no cleaner has seen to them" in caplog.text
    assert there.cleaner().step()["dead"] == 1


def test_compensation_gets_the_arguments_as_they_are_written(database, tasks, made):
    """Also if nobody here can read them: one such task does not hold up all others."""
    tasks.task("work", on_crash="undo")(print)
    tasks.task("undo")(print)
    with database.begin() as connection:
        tasks.enqueue(connection, "work", 7, priority=3)
        connection.execute(made.task.update().values(payload=b"\xff", codec="mine"))
    claim(database, tasks)
    leases_over(database, made)
    assert tasks.cleaner().step()["compensated"] == 1
    assert rows(database, made.task, made.task.c.name, made.task.c.payload, made.task.c.codec, made.task.c.priority) == [
        ("undo", b"\xff", "mine", 3)]


def test_the_lane_of_a_task_that_is_not_known_here(database, tasks, made):
    @tasks.task("mail", lane="mails", max_attempts=1)
    def mail():
        raise KeyError("broken")

    elsewhere = Tasks(database)
    with database.begin() as connection:
        elsewhere.enqueue(connection, "mail", lane="mails")
        elsewhere.enqueue_many(connection, [{"name": "mail", "lane": "mails"}, {"name": "mail"}])
        with pytest.raises(ValueError, match="lane must have 1 to 200"):
            elsewhere.enqueue(connection, "mail", lane="")
    assert [lane for lane, in rows(database, made.task, made.task.c.lane)] == ["mails", "mails", "default"]
    tasks.worker().drain()
    with database.begin() as connection:
        assert len(elsewhere.revive(connection, [row["id"] for row in elsewhere.dead(connection)])) == 2
    assert [lane for lane, in rows(database, made.task, made.task.c.lane)] == ["default", "mails", "mails"]


def test_what_was_merged_or_compensated_goes_after_a_week(database, tasks, made):
    outcomes = ["merged", "compensated", "done", "dead"]
    with database.begin() as connection:
        for number, outcome in enumerate(outcomes * 2):
            connection.execute(made.done.insert().values(
                id=number + 1, lane="default", name="n", payload=b"", attempts=1, outcome=outcome,
                finish_time=0 if number < 4 else 1 << 60))
    tasks.cleaner().step()
    left = [outcome for outcome, in rows(database, made.done, made.done.c.outcome)]
    assert left == ["done", "dead", *outcomes]          # another program may keep what is done


def test_a_worker_looks_when_the_next_task_is_due(database, tasks):
    """Its poll is far away, and nobody wakes it."""
    ran = []
    tasks.task("note")(ran.append)
    with database.begin() as connection:
        tasks.enqueue(connection, "note", 1, delay=0.3, priority=4)
        tasks.enqueue(connection, "note", 2, delay=1000)
    worker = tasks.worker(poll=1000, concurrency=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        until(lambda: worker.finished == 1)
    finally:
        worker.stop()
        thread.join()
    assert ran == [1]


def test_a_worker_goes_on_when_all_connections_were_taken(postgres_url, made, caplog):
    database = create_engine(postgres_url, poolclass=QueuePool, pool_size=2, max_overflow=0, pool_timeout=0.01)
    tasks, ran = Tasks(database), []

    @tasks.task()
    def note(number):
        ran.append(number)
        if number == 1:
            taken.extend(database.connect() for _ in range(2))
            worker._beat()
            worker._direct.close()          # it will connect anew

    taken = []
    with database.begin() as connection:
        note.enqueue(connection, 1)
    worker = tasks.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        until(lambda: "cannot reach the database" in caplog.text)
        assert "could not renew its leases" in caplog.text
        for connection in taken:
            connection.close()
        until(lambda: worker.finished == 1)
    finally:
        worker.stop()
        thread.join()
    assert ran == [1]
    database.dispose()


def test_what_renews_goes_on_whatever_was_wrong_once(caplog):
    called = []

    def fails_once():
        called.append(1)
        if len(called) == 1:
            raise KeyError("broken")

    end = ThreadHost(engine_of("sqlite://")).every(0.01, fails_once)
    until(lambda: len(called) > 1)
    end()
    assert "broken" in caplog.text


def test_the_next_time_is_found_by_the_index(postgres_url, made):
    database = engine_of(postgres_url)
    claims = Claims(made, "w", ["default"], 1, False)
    with database.begin() as connection:
        assert claims.due_in(connection) == float("inf")
        connection.exec_driver_sql(
            "INSERT INTO xump_task (lane, name, payload, codec, due, priority, created) SELECT 'default', 'n', '', 'json', "
            "(extract(epoch FROM clock_timestamp()) + n) * 1000000, 0, 0 FROM generate_series(100, 3000) AS n")
        assert 90 < claims.due_in(connection) <= 100
        # As a worker's connection plans, whatever is known of the table; and as others do, when PostgreSQL knows what is in it.
        for settings in (PLANS, "RESET ALL; ANALYZE xump_task"):
            connection.exec_driver_sql(settings)
            plan = "\n".join(connection.exec_driver_sql("EXPLAIN " + claims.due_statement, claims._constant).scalars())
            assert "xump_task_ready" in plan
        assert connection.execute(select(made.task.c.id)).first()
    database.dispose()
