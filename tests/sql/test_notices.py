"""Notices to workers, lost, late, early and doubled: each task runs exactly once. And claims that are cut in the middle."""

import os
import signal
import threading

import pytest
from sqlalchemy import event, text

from tests.sql.conftest import count, engine_of, until
from tests.sql.deaths import after, before, die, killed
from tests.sql.test_tasks import rows
from xump.sql import Tasks

FAR = 1000.0        # seconds: what a test would wait for if it worked by polling


class Running:
    """A worker in a thread; `looked` is set by each of its turns, `ran` has what its tasks noted."""

    def __init__(self, tasks, **options):
        self.looked, self.ran, self.worker = threading.Event(), [], tasks.worker(**options)
        turn = self.worker._turn

        def noted(places, free):
            result = turn(places, free)
            self.looked.set()
            return result

        self.worker._turn = noted
        self.thread = threading.Thread(target=self.worker.run)

    def __enter__(self):
        self.thread.start()
        assert self.looked.wait(60)
        return self

    def __exit__(self, *raised):
        self.worker.stop()
        self.thread.join()

    def look(self):
        """Wait for a turn that began after this call."""
        for _ in range(2):
            self.looked.clear()
            self.worker._tasks.wake.signal()
            assert self.looked.wait(60)


@pytest.fixture
def tasks(database):
    return Tasks(database)


@pytest.fixture
def ran(tasks):
    found = []
    tasks.task("note", retry_delay=0)(found.append)
    return found


def enqueue(database, tasks, *numbers):
    with database.begin() as connection:
        return [tasks.enqueue(connection, "note", number) for number in numbers]


def test_t1_rollback_after_notify(database, tasks, ran):
    with Running(tasks, poll=FAR, giveup_time=0) as running:
        with database.connect() as connection:
            tasks.enqueue(connection, "note", 1)
            if database.dialect.name == "postgresql":
                running.look()          # SQLite has one writer: there a turn waits for the rollback
            connection.rollback()
        running.look()
        assert ran == []
        enqueue(database, tasks, 2)     # the worker is free at once
        running.look()
        until(lambda: running.worker.finished == 1)
    assert ran == [2]


def test_t2_notify_before_commit(database, tasks, ran):
    """The worker looks again each `retry_time`, although its poll is far away."""
    with Running(tasks, poll=FAR, retry_time=0.01, giveup_time=FAR) as running:
        running.look()
        enqueue(database, tasks, 1)
        until(lambda: running.worker.finished == 1)
    assert ran == [1]


def test_t3_notify_lost(database, tasks, ran):
    with Running(tasks, poll=0.01) as running:
        enqueue(database, tasks, 1)     # a Core connection does not tell of its commit
        until(lambda: running.worker.finished == 1)
    assert ran == [1]


def test_t4_notify_doubled(database, tasks, ran):
    with Running(tasks, poll=FAR, retry_time=0.01, giveup_time=FAR) as running:
        enqueue(database, tasks, 1)
        for _ in range(3):
            running.look()
        until(lambda: running.worker.finished == 1)
        running.look()
    assert (ran, running.worker.finished) == ([1], 1)


def test_t5_giveup_then_commit(database, tasks, ran, made):
    """The worker has given up when the commit comes, and nobody tells it: the cleaner does."""
    with Running(tasks, poll=FAR, giveup_time=0) as running:
        running.look()
        enqueue(database, tasks, 1)
        with database.begin() as connection:
            connection.execute(made.task.update().values(due=0))        # as if two intervals had gone by
        tasks.cleaner(interval=FAR).step()
        until(lambda: running.worker.finished == 1)
    assert ran == [1]


def test_t6_two_workers_one_id(database, tasks, ran):
    workers, together = [tasks.worker() for _ in range(2)], threading.Barrier(2)
    for number in range(5):
        enqueue(database, tasks, number)

        def drain(worker):
            together.wait(60)
            worker.drain()

        threads = [threading.Thread(target=drain, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ran == [0, 1, 2, 3, 4]
    assert sum(worker.finished for worker in workers) == 5


# ---- a worker is killed in the middle of its claim

def claim_in_child(url):
    tasks = Tasks(engine_of(url))
    tasks.task("note")(print)
    tasks.worker().drain()


def once(url, made, tasks, ran):
    """Nothing was claimed, and it runs once."""
    database = engine_of(url)
    assert [tuple(row) for row in rows(database, made.task, made.task.c.attempts, made.task.c.start_time)] == [(0, None)]
    assert tasks.worker().drain() == 1
    assert (ran, count(database, made.task)) == ([1], 0)
    database.dispose()


@pytest.mark.parametrize("point", ["t7_after_select_before_update", "t8_after_update_before_commit"])
def test_killed_while_it_claims_on_sqlite(sqlite_url, made, point):
    tasks, found = Tasks(engine_of(sqlite_url)), []
    tasks.task("note")(found.append)
    enqueue(tasks.engine, tasks, 1)
    tasks.engine.dispose()

    def work():
        database = engine_of(sqlite_url)
        child = Tasks(database)
        child.task("note")(print)
        worker = child.worker()

        def turn(places, free):
            if point.startswith("t8"):
                event.listen(database, "commit", die)       # called before the commit
            else:
                event.listen(database, "before_cursor_execute", on_update)
            return whole(places, free)

        whole, worker._turn = worker._turn, turn
        worker.drain()

    def on_update(connection, cursor, statement, *rest):
        if statement.startswith("UPDATE xump_task"):
            die()

    killed(sqlite_url, work)
    once(sqlite_url, made, tasks, found)
    tasks.engine.dispose()


@pytest.mark.parametrize(("point", "moment"), [("t7_after_select_before_update", "BEFORE"),
                                               ("t8_after_update_before_commit", "AFTER")])
def test_killed_while_it_claims_on_postgresql(postgres_url, made, point, moment):
    """The claim is one statement. A trigger holds it up before or after the row changes, while its worker is killed."""
    database = engine_of(postgres_url)
    tasks, found = Tasks(database), []
    tasks.task("note")(found.append)
    enqueue(database, tasks, 1)
    with database.begin() as connection:
        connection.exec_driver_sql("CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS "
                                   "$$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$")
        connection.exec_driver_sql(f"CREATE TRIGGER held {moment} UPDATE ON xump_task FOR EACH ROW EXECUTE FUNCTION held()")
    try:
        with database.connect() as holding:
            holding.execute(text("SELECT pg_advisory_lock(7)"))
            holding.commit()
            database.pool.dispose()     # idle connections are not to be shared with the child
            child = os.fork()
            if child == 0:
                try:
                    claim_in_child(postgres_url)
                finally:
                    os._exit(3)
            waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            until(lambda: holding.execute(waiting).scalar_one() == 1)
            # The row is locked, and nobody waits for it. Once the server sees that its client is gone, it is free: not here.
            assert tasks.worker().drain() == 0
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            until(lambda: holding.execute(waiting).scalar_one() == 0)       # the server has seen that its client is gone
            holding.execute(text("SELECT pg_advisory_unlock(7)"))
            holding.commit()
    finally:
        with database.begin() as connection:
            connection.exec_driver_sql("DROP FUNCTION held() CASCADE")
    once(postgres_url, made, tasks, found)
    database.dispose()


# ---- cleaners

def crashed(database, tasks, made, number, name="note"):
    """Tasks that were claimed, and whose leases are over."""
    with database.begin() as connection:
        for one in range(number):
            tasks.enqueue(connection, name, one)
        connection.execute(made.task.update().values(start_time=1, lease_until=0, attempts=1, worker="gone"))


def test_t14_cleaner_died_between_reset_and_wake(url, database, tasks, ran, made):
    crashed(database, tasks, made, 1)
    database.dispose()

    def work():
        child = Tasks(engine_of(url))
        child.task("note", retry_delay=0)(print)
        before(child.wake, "signal")
        child.cleaner().step()

    killed(url, work)
    cleaner = tasks.cleaner(interval=FAR)
    assert cleaner.step()["retried"] == 0
    with Running(tasks, poll=FAR, giveup_time=0) as running:
        until(lambda: running.worker.finished == 1)
    assert (ran, count(database, made.task)) == ([0], 0)


def test_t15_two_cleaners(database, tasks, ran, made):
    tasks.task("work", on_crash="note")(print)
    tasks.task("lost", on_crash="dead")(print)
    for name in ("note", "work", "lost"):
        crashed(database, tasks, made, 30, name)
    together, counts = threading.Barrier(2), []

    def clean():
        together.wait(60)
        counts.append(tasks.cleaner().step())

    threads = [threading.Thread(target=clean) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: sum(each[name] for each in counts) for name in counts[0]} == {
        "retried": 30, "merged": 0, "compensated": 30, "dead": 30, "vanished": 0, "scheduled": 0}
    assert count(database, made.done, made.done.c.outcome == "dead") == 30
    assert tasks.worker(concurrency=4).drain() == 60
    assert sorted(ran) == sorted([*range(30)] * 2)


@pytest.mark.parametrize("point", ["after_end", "after_enqueue"])
def test_t16_compensation_died_between(url, database, tasks, ran, made, point):
    tasks.task("work", on_crash="note")(print)
    crashed(database, tasks, made, 1, "work")
    database.dispose()

    def work():
        child = Tasks(engine_of(url))
        child.task("work", on_crash="note")(print)
        (before if point == "after_end" else after)(child, "_compensate")
        child.cleaner().step()

    killed(url, work)
    assert rows(database, made.task, made.task.c.name) == [("work",)]
    assert count(database, made.done) == 0
    assert [tasks.cleaner().step()["compensated"] for _ in range(2)] == [1, 0]
    assert (tasks.worker().drain(), ran) == (1, [0])
    assert [outcome for outcome, in rows(database, made.done, made.done.c.outcome)] == ["compensated"]


def test_x7_key_enqueued_while_claimed(database, made):
    """A task that has started absorbs nothing: what changed after its start is seen by a run of its own."""
    tasks, seen, state = Tasks(database), [], ["old"]

    @tasks.task("note")
    def note(order):
        seen.append(state[0])
        if state[0] == "old":
            state[0] = "new"
            with database.begin() as connection:
                ids.append(tasks.enqueue(connection, "note", [17], key="17"))
                assert tasks.enqueue(connection, "note", [17], key="17") == ids[1]      # this one waits: it absorbs

    with database.begin() as connection:
        ids = [tasks.enqueue(connection, "note", [17], key="17")]
    assert (tasks.worker().drain(), seen) == (2, ["old", "new"])
    assert ids[0] != ids[1]
    assert count(database, made.task) == 0
