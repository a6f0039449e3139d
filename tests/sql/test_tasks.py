"""Tasks without faults: enqueued, claimed by lane and priority, finished, retried, dead, cancelled, kept, cleaned."""

import datetime
import threading

import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import xump
from tests.sql.conftest import BUSINESS, business, count
from xump.sql import Tasks, configure_sqlite, init, tables
from xump.sql.claims import Claims, end, give_back
from xump.sql.dead import bury


@pytest.fixture
def tasks(database):
    return Tasks(database)


@pytest.fixture
def ran(tasks):
    """What ran, and two tasks that note it."""
    found = []

    @tasks.task()
    def note(*arguments, **named):
        found.append((*arguments, *named.items()))

    @tasks.task(max_attempts=3, retry_delay=0)
    def fail(*arguments):
        found.append(arguments)
        raise KeyError("\0broken")

    return found


def rows(database, table, *columns):
    with database.connect() as connection:
        return connection.execute(table.select().with_only_columns(*columns).order_by(table.c.id)).all()


def test_what_is_committed_runs_once_and_what_is_rolled_back_does_not(database, tasks, ran, made):
    note = tasks.specs["note"]
    with database.begin() as connection:
        first = tasks.enqueue(connection, "note", ["a", 1])
        second = tasks.enqueue(connection, "note", {"b": None})
        tasks.enqueue(connection, "note", "one")
        assert first < second
    with database.connect() as connection:
        tasks.enqueue(connection, "note", ["rolled back"])
        connection.rollback()
    with Session(database) as session, session.begin():
        tasks.enqueue(session, "note")
    assert tasks.worker().drain() == 4
    assert ran == [("a", 1), (("b", None),), ("one",), ()]
    assert (tasks.worker().drain(), count(database, made.task), count(database, made.done)) == (0, 0, 0)
    assert count(database, made.worker) == 0
    assert note.lane == "default"


def test_a_function_that_is_a_task_can_be_called_and_enqueued(database, tasks):
    seen = []

    @tasks.task("mail.send", lane="mails")
    def send(to, *, subject):
        """Sends."""
        seen.append((to, subject))
        return "sent"

    assert send("a", subject="b") == "sent"
    assert send.__doc__ == "Sends."
    with database.begin() as connection:
        send.enqueue(connection, "c", subject="d")
    assert tasks.worker(lanes=["other"]).drain() == 0
    assert tasks.worker(concurrency=3, prefetch=2).drain() == 1
    assert seen == [("a", "b"), ("c", "d")]


def test_urgent_ones_first_then_those_that_were_due_first(database, tasks, ran):
    with database.begin() as connection:
        ids = tasks.enqueue_many(connection, [
            {"name": "note", "payload": number, "priority": priority, "key": key}
            for number, priority, key in [(1, 0, None), (2, 9, "k"), (3, 5, None), (4, 9, None), (5, 0, "j")]])
        tasks.enqueue(connection, "note", 6, delay=3600)
        tasks.enqueue(connection, "note", 7, at=datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC))
        tasks.enqueue(connection, "note", 8, at=datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC))
        assert tasks.stats(connection)["delayed"] == 2
    assert len(set(ids)) == 5
    assert tasks.worker().drain() == 6
    numbers = [arguments[0] for arguments in ran]
    assert (set(numbers[:2]), numbers[2:4], set(numbers[4:])) == ({2, 4}, [3, 7], {1, 5})


def test_a_key_waits_once_and_the_earlier_due_counts(database, tasks, ran, made):
    with database.begin() as connection:
        first = tasks.enqueue(connection, "note", 1, key="k", delay=3600)
        assert tasks.enqueue(connection, "note", 2, key="k", delay=7200) == first
        assert tasks.enqueue(connection, "note", 3, key="other", delay=3600) != first
        assert tasks.enqueue(connection, "fail", 4, key="k", delay=3600) != first
    assert tasks.worker().drain() == 0
    with database.begin() as connection:
        assert tasks.enqueue(connection, "note", 5, key="k") == first
    assert tasks.worker().drain() == 1
    assert ran == [(1,)]
    with database.begin() as connection:
        assert tasks.enqueue(connection, "note", 6, key="k") != first


def test_a_task_that_fails_is_tried_again_and_is_dead_at_last(database, tasks, ran, made, caplog):
    with database.begin() as connection:
        tasks.enqueue(connection, "fail", 1, priority=7)
    worker = tasks.worker(poll=0.01)
    assert worker.drain() == 0
    assert (worker.failed, ran) == (3, [(1,)] * 3)
    assert "broken" in caplog.text
    with database.begin() as connection:
        [dead] = tasks.dead(connection)
        assert (dead["name"], dead["attempts"], tasks.stats(connection)["dead"]) == ("fail", 3, 1)
        assert "broken" in dead["error"]
        [again] = tasks.revive(connection, [dead["id"]])
        assert again != dead["id"]
        assert connection.execute(select(made.task.c.priority)).scalar_one() == 7
    worker.drain()
    assert len(ran) == 6
    with database.begin() as connection:
        assert tasks.drop(connection, [row["id"] for row in tasks.dead(connection)]) == 1
        assert tasks.dead(connection) == []


def test_a_dead_task_is_told_of_through_the_outbox(database, made):
    tasks = Tasks(database, dead_queue="dead tasks")

    @tasks.task(max_attempts=1)
    def fail():
        raise KeyError("broken")

    with database.begin() as connection:
        fail.enqueue(connection)
    tasks.worker().drain()
    [(queue, body)] = rows(database, made.outbox, made.outbox.c.queue, made.outbox.c.body)
    assert queue == "dead tasks"
    assert b"broken" in body


def test_notices_of_tasks_of_two_tables_are_no_copies_of_each_other(database):
    """Each table begins its ids at 1, and one queue is told of both."""
    outboxes = []
    for prefix in ("first_", "second_"):
        made = tables(prefix=prefix)
        made.metadata.drop_all(database)
        init(database, made)
        tasks = Tasks(database, tables=made, dead_queue="dead")
        with database.begin() as connection:
            assert tasks.enqueue(connection, "fail", lane="x") == 1
            [row] = connection.execute(made.task.update().values(start_time=1, attempts=1).returning(made.task)).all()
            assert bury(connection, tasks, row, "broken")
        outboxes.append(tasks.outbox)
    with xump.Engine() as engine:
        dead = engine.create_queue("dead", dedup=3600)
        assert [outbox.relay(engine, engine=database).drain() for outbox in outboxes] == [1, 1]
        assert dead.ready == 2
    for prefix in ("first_", "second_"):
        tables(prefix=prefix).metadata.drop_all(database)


def test_draining_says_that_the_database_is_away():
    database = create_engine("sqlite:////nowhere/at/all.db")
    tasks = Tasks(configure_sqlite(database))
    with pytest.raises(OperationalError):
        tasks.worker().drain()


def test_a_task_in_its_own_transaction(database, tasks, made):
    @tasks.task(transaction=True, max_attempts=2, retry_delay=0)
    def pay(connection, what, fails=False):
        business(connection, what)
        if fails:
            raise KeyError("broken")

    with database.begin() as connection:
        pay.enqueue(connection, "a")
        pay.enqueue(connection, "b", fails=True)
    worker = tasks.worker()
    assert (worker.drain(), worker.failed) == (1, 2)
    assert count(database, BUSINESS) == 1


def test_cancelled_only_while_it_waits(database, tasks, ran):
    with database.begin() as connection:
        number = tasks.enqueue(connection, "note")
        assert tasks.cancel(connection, number)
        assert not tasks.cancel(connection, number)
        other = tasks.enqueue(connection, "note")
    seen = []

    @tasks.task()
    def cancels():
        with database.begin() as connection:
            seen.append(tasks.cancel(connection, own))

    with database.begin() as connection:
        own = cancels.enqueue(connection)
    assert tasks.worker().drain() == 2
    assert (seen, len(ran), other > number) == ([False], 1, True)


def test_an_interrupt_ends_the_worker_and_is_no_failure_of_the_task(database, tasks, made):
    @tasks.task()
    def interrupted():
        raise KeyboardInterrupt

    @tasks.task(max_attempts=1)
    def leaves():
        raise SystemExit

    with database.begin() as connection:
        leaves.enqueue(connection)
        interrupted.enqueue(connection)
    worker = tasks.worker()
    with pytest.raises(KeyboardInterrupt):
        worker.drain()
    assert (worker.failed, count(database, made.worker)) == (1, 0)
    assert rows(database, made.task, made.task.c.name, made.task.c.attempts) == [("interrupted", 1)]     # till its lease is over


def test_kept_for_a_while(database, made):
    tasks = Tasks(database, keep=100)

    @tasks.task()
    def note():
        pass

    @tasks.task(transaction=True)
    def within(connection):
        pass

    with database.begin() as connection:
        note.enqueue(connection)
        within.enqueue(connection)
    assert tasks.worker().drain() == 2
    assert [outcome for outcome, in rows(database, made.done, made.done.c.outcome)] == ["done", "done"]
    tasks.cleaner().step()
    assert count(database, made.done) == 2
    with database.begin() as connection:
        connection.execute(made.done.update().values(finish_time=0))
    tasks.cleaner().step()
    assert count(database, made.done) == 0


def test_a_task_that_is_not_known_here_waits_for_a_worker_that_knows_it(database, tasks, made, caplog):
    with database.begin() as connection:
        tasks.enqueue(connection, "elsewhere")
    for _ in range(8):                  # however long that is: this program may be the older one
        tasks.worker().drain()
        assert count(database, made.task, made.task.c.start_time.is_(None)) == 1
        with database.begin() as connection:
            connection.execute(made.task.update().values(due=0))
    assert "no task 'elsewhere' is known here" in caplog.text
    ran, knows = [], Tasks(database)
    knows.task("elsewhere")(lambda: ran.append(1))
    assert (knows.worker().drain(), ran) == (1, [1])


def test_what_is_wrong_is_refused_and_writes_nothing(database, tasks, ran, made):
    for arguments, said in [({"name": 1}, "name must be a str"), ({"key": "a\0"}, "NUL"), ({"priority": 10}, "priority must be"),
                            ({"delay": -1}, "delay must be"), ({"payload": object()}, "not JSON serializable"),
                            ({"at": datetime.datetime(2001, 1, 1)}, "time zone"),
                            ({"at": datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC), "delay": 1}, "not both")]:
        with database.begin() as connection, pytest.raises((TypeError, ValueError), match=said):
            tasks.enqueue(connection, **{"name": "note", **arguments})
    assert count(database, made.task) == 0
    for options, said in [({"max_attempts": 0}, "max_attempts"), ({"lease": 0}, "lease must"), ({"name": "note"}, "already"),
                          ({"lane": "x" * 201}, "lane must have 1 to 200"), ({"lane": ""}, "lane must have")]:
        with pytest.raises(ValueError, match=said):
            tasks.task(**options)(len)
    for options, said in [({"concurrency": 0}, "concurrency must"), ({"prefetch": -1}, "prefetch must"),
                          ({"poll": -1}, "poll must"), ({"lanes": "a"}, "lanes must be a list"),
                          ({"poll": 0}, "poll must be more than 0"), ({"lanes": []}, "lanes must have at least one"),
                          ({"lanes": [""]}, "lane must have 1 to"), ({"lanes": [5]}, "lane must be a str")]:
        with pytest.raises((TypeError, ValueError), match=said):
            tasks.worker(**options)
    with pytest.raises(ValueError, match="dead_queue must not contain NUL"):
        Tasks(database, dead_queue="a\0")
    for call in (lambda: Tasks(database, codec="xml"), lambda: tasks.cleaner(interval=0)):
        with pytest.raises(ValueError, match="must be"):
            call()


def test_a_worker_runs_wakes_by_a_commit_and_ends(database, tasks):
    done = threading.Event()

    @tasks.task()
    def note():
        done.set()

    worker = tasks.worker(poll=1000, concurrency=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        for _ in range(3):
            with Session(database) as session, session.begin():
                note.enqueue(session)
            assert done.wait(30)
            done.clear()
        with tasks.waking(), database.begin() as connection:
            note.enqueue(connection)
        assert done.wait(30)
    finally:
        worker.stop()
        thread.join()
    assert worker.finished == 4


def test_a_retry_whose_key_waits_again_is_merged(database, tasks, made):
    @tasks.task(max_attempts=5, retry_delay=1000)
    def again():
        with database.begin() as connection:
            tasks.enqueue(connection, "again", key="k", delay=1000)
        raise KeyError("broken")

    with database.begin() as connection:
        tasks.enqueue(connection, "again", key="k")
    tasks.worker().drain()
    assert [row for row, in rows(database, made.task, made.task.c.attempts)] == [1]
    assert [row for row, in rows(database, made.done, made.done.c.outcome)] == ["merged"]


def test_the_claim_walks_the_index(postgres_url, made):
    from tests.sql.conftest import engine_of
    from xump.sql.claims import Claims

    database = engine_of(postgres_url)
    with database.begin() as connection:
        connection.execute(text(
            "INSERT INTO xump_task (lane, name, payload, codec, due, priority, created) "
            "SELECT 'other', 'n', '', 'json', 0, 0, 0 FROM generate_series(1, 3000)"))
        connection.execute(text("ANALYZE xump_task"))
        claims = Claims(made, "w", ["default"], 1, False)
        compiled = claims._turn.params(
            **claims._constant, ids="{}", attempts="{}", since="{" + ",".join(["0"] * 10) + "}", places=1).compile(database)
        plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN {compiled}", compiled.params).scalars())
        connection.rollback()
    assert "xump_task_ready" in plan
    assert "Sort" not in plan.partition("xump_task_ready")[0].rpartition("Nested Loop")[2]
    database.dispose()


def test_statements_are_compiled_once(database, tasks):
    assert tasks._plain._generate_cache_key() is not None
    assert tasks._unique["sqlite"]._generate_cache_key() is not None
    assert tasks.outbox._insert._generate_cache_key() is not None


@pytest.mark.parametrize("key", [None, "k"])
def test_a_worker_that_does_not_know_a_task_uses_up_none_of_its_attempts(database, made, key):
    old, new, ran = Tasks(database), Tasks(database), []

    @new.task(max_attempts=2, retry_delay=0)
    def fresh():
        ran.append("fresh")
        if len(ran) == 1:
            raise OSError("not yet")

    def due_now():
        with database.begin() as connection:
            connection.execute(made.task.update().values(due=0))

    with database.begin() as connection:
        new.enqueue(connection, "fresh", key=key)
    for _ in range(3):
        assert old.worker().drain() == 0
        due_now()
    assert (new.worker().drain(), ran, rows(database, made.done, made.done.c.id)) == (1, ["fresh"] * 2, [])


def test_a_number_of_attempts_that_comes_again_is_no_ones_but_its_workers(database, tasks, made):
    """A worker whose answer was lost when it gave a task back does so again: another one runs it by then."""
    with database.begin() as connection:
        tasks.enqueue(connection, "note")
    first, second = (Claims(made, name, ["default"], 10**9, keep=False) for name in ("first", "second"))
    with database.begin() as connection:
        [stale] = first.turn(connection, [], 1)[1]
        assert give_back(connection, made, stale, 0, "unknown here", tried=False) == "retried"
        [row] = second.turn(connection, [], 1)[1]
        assert (stale.id, stale.attempts) == (row.id, row.attempts)
        before = connection.execute(made.task.select()).one()
        assert give_back(connection, made, stale, 0, "again", tried=False) is None
        assert not end(connection, made, stale, None)
        assert first.turn(connection, [stale], 0) == (set(), [])
        first.renew(connection, [stale])
        assert connection.execute(made.task.select()).one() == before
        assert second.turn(connection, [row], 0) == ({row.id}, [])


@pytest.mark.parametrize(("options", "said"), [
    ({"on_crash": ""}, "on_crash must be"), ({"transaction": "no"}, "transaction must be a bool")])
def test_what_no_task_can_be_is_refused(tasks, options, said):
    with pytest.raises((TypeError, ValueError), match=said):
        tasks.task(**options)
