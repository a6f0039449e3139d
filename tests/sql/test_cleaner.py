"""The cleaner, and the fences that make it safe: workers that died, that hang, and that come back."""

import pytest

from tests.sql.conftest import count
from tests.sql.test_tasks import rows
from xump.sql import Tasks
from xump.sql.claims import Claims


@pytest.fixture
def tasks(database):
    return Tasks(database)


def claim(database, tasks, worker="gone"):
    """What a worker has that died after its claim: rows of which nobody knows."""
    claims = Claims(tasks.tables, worker, ["default"], 60_000_000, False)
    with database.begin() as connection:
        return claims.turn(connection, [], 10)[1]


def leases_over(database, made):
    with database.begin() as connection:
        connection.execute(made.task.update().where(made.task.c.start_time.is_not(None)).values(lease_until=0))


def test_t9_claimed_then_died(database, tasks, made):
    seen = []

    @tasks.task(retry_delay=0)
    def note():
        seen.append(1)

    with database.begin() as connection:
        note.enqueue(connection)
    [row] = claim(database, tasks)
    assert tasks.worker().drain() == 0
    assert tasks.cleaner().step()["retried"] == 0       # the lease holds
    leases_over(database, made)
    assert tasks.cleaner().step()["retried"] == 1
    assert tasks.worker().drain() == 1
    assert (seen, row.attempts, count(database, made.task)) == ([1], 1, 0)


def test_t13_hung_handler(database, tasks, made):
    """The lease is over while the handler runs; another worker runs the task; the late finish is refused."""
    runs = []

    @tasks.task(retry_delay=0)
    def hangs():
        runs.append(1)
        if len(runs) == 1:
            leases_over(database, made)
            assert tasks.cleaner().step()["retried"] == 1
            assert other.drain() == 1
            with database.begin() as connection:
                hangs.enqueue(connection)       # its own finish must not touch this one

    other = tasks.worker()
    with database.begin() as connection:
        hangs.enqueue(connection)
    first = tasks.worker()
    assert (first.drain(), first.lost, len(runs)) == (1, 1, 3)
    assert count(database, made.task) == 0


def test_a_late_failure_and_a_late_transaction_write_nothing(database, tasks, made):
    @tasks.task(retry_delay=1000, max_attempts=9)
    def fails():
        steal()
        raise KeyError("late")

    @tasks.task(transaction=True, retry_delay=1000)
    def within(connection):
        raise AssertionError("it must not run")

    def steal():
        leases_over(database, made)
        tasks.cleaner().step()

    with database.begin() as connection:
        fails.enqueue(connection)
    worker = tasks.worker()
    worker.drain()
    assert (worker.lost, worker.failed) == (1, 0)
    [[error]] = rows(database, made.task, made.task.c.error)
    assert error.startswith("its worker")
    with database.begin() as connection:
        connection.execute(made.task.delete())
        within.enqueue(connection)
    start = worker._work

    def late(job):
        steal()
        start(job)

    worker._work = late
    worker.drain()
    assert worker.lost == 2


def test_t17_on_crash_dead(database, made):
    tasks = Tasks(database, dead_queue="dead")

    @tasks.task(on_crash="dead")
    def once():
        raise AssertionError("it must not run")

    with database.begin() as connection:
        once.enqueue(connection)
    claim(database, tasks)
    leases_over(database, made)
    assert tasks.cleaner().step()["dead"] == 1
    assert tasks.cleaner().step()["dead"] == 0
    assert (tasks.worker().drain(), count(database, made.outbox), count(database, made.done)) == (0, 1, 1)


def test_a_task_that_kills_its_workers_is_dead_at_last(database, tasks, made):
    @tasks.task(max_attempts=2, retry_delay=0)
    def kills():
        raise AssertionError("it must not run")

    with database.begin() as connection:
        kills.enqueue(connection)
    for outcome in ("retried", "dead"):
        assert len(claim(database, tasks)) == 1
        leases_over(database, made)
        assert tasks.cleaner().step()[outcome] == 1
    assert count(database, made.task) == 0


def test_compensation(database, tasks, made):
    seen = []

    @tasks.task(on_crash="undo")
    def work(number): ...

    @tasks.task()
    def undo(number):
        seen.append(number)

    with database.begin() as connection:
        work.enqueue(connection, 7)
    claim(database, tasks)
    leases_over(database, made)
    assert tasks.cleaner().step()["compensated"] == 1
    assert tasks.cleaner().step()["compensated"] == 0
    assert (tasks.worker().drain(), seen) == (1, [7])
    assert [outcome for outcome, in rows(database, made.done, made.done.c.outcome)] == ["compensated"]


def test_a_crashed_task_whose_key_waits_again_is_merged(database, tasks, made):
    @tasks.task(retry_delay=0)
    def note(): ...

    with database.begin() as connection:
        tasks.enqueue(connection, "note", key="k")
    claim(database, tasks)
    with database.begin() as connection:
        tasks.enqueue(connection, "note", key="k")
    leases_over(database, made)
    assert tasks.cleaner().step()["merged"] == 1
    assert tasks.worker().drain() == 1


def test_a_worker_that_vanished_loses_its_leases_after_a_grace(database, tasks, made):
    @tasks.task()
    def note(): ...

    with database.begin() as connection:
        note.enqueue(connection)
        connection.execute(made.worker.insert().values(id="gone", host="h", pid=1, started=0, seen=0))
    [row] = claim(database, tasks)
    before = rows(database, made.task, made.task.c.lease_until)[0][0]
    assert tasks.cleaner().step()["vanished"] == 1
    after = rows(database, made.task, made.task.c.lease_until)[0][0]
    assert after < before
    assert (tasks.cleaner().step()["vanished"], row.attempts) == (0, 1)


def test_overlooked_tasks_wake_workers(database, tasks, made):
    import threading

    @tasks.task()
    def note(): ...

    with database.begin() as connection:
        note.enqueue(connection)
    woken = threading.Event()
    leave = tasks.wake.join(woken)
    tasks.cleaner(interval=1000).step()
    assert not woken.is_set()
    with database.begin() as connection:
        connection.execute(made.task.update().values(due=0))
    tasks.cleaner(interval=1000).step()
    assert woken.is_set()
    leave()


def test_leases_are_renewed_of_what_runs_and_is_not_past_its_timeout(database, tasks, made):
    leases = []

    @tasks.task(lease=1000)
    def note():
        leases_over(database, made)
        worker._beat()
        leases.append(rows(database, made.task, made.task.c.lease_until)[0][0])

    @tasks.task(lease=1000, timeout=0)
    def hangs():
        leases_over(database, made)
        worker._beat()
        leases.append(rows(database, made.task, made.task.c.lease_until)[0][0])

    with database.begin() as connection:
        note.enqueue(connection)
        hangs.enqueue(connection)
    worker = tasks.worker()
    worker.drain()
    assert leases[0] > 0
    assert leases[1] == 0
