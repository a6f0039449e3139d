"""What goes wrong around the three, one row a fault: it is tried again, or has a clear error; nothing is lost, or comes twice.

Each side writes one row in a transaction of the user's, and tells what came of all rows that it wrote. What is told here in short
has tests of its own: x1 to x11, the kills, and the cut connections.
"""

import logging
import random
import string
import threading
import time
from contextlib import nullcontext, suppress

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import NullPool

import xump
from tests.sql.conftest import BUSINESS, business, count, engine_of
from tests.sql.postgres import CLIENTS
from xump.sql import ConfigurationError, Inbox, Outbox, Refused, SchemaMismatch, Tasks, TransactionAborted
from xump.sql.tables import VERSION
from xump.sql.transactions import sqlstate

DAY = 86_400
LONG = "".join(random.Random(7).choices(string.ascii_letters + "\N{GRINNING FACE}é", k=10_000))
"""No index of PostgreSQL takes it, however it is compressed."""


class OutboxSide:
    def __init__(self, database):
        self.database, self.outbox, self.engine = database, Outbox(), xump.Engine()
        self.engine.create_queue("orders", dedup=3600)

    def write(self, connection, name="1", inside=None):
        self.outbox.publish(connection, "orders", body=b"\0", key=name, message_id=name)
        if inside:
            inside()

    def effects(self):
        self.outbox.relay(self.engine, engine=self.database).drain()
        return self.engine.queues["orders"].ready

    def close(self):
        self.engine.close()


class InboxSide:
    def __init__(self, database):
        self.database, self.inbox = database, Inbox()

    def write(self, connection, name="1", inside=None):
        with self.inbox.once(connection, source="s", message_id=name) as fresh:
            if fresh:
                business(connection, "effect")
            if inside:
                inside()

    def effects(self):
        self.inbox.process(print, engine=self.database).step()      # its own connections meet what is wrong, too
        return count(self.database, BUSINESS, BUSINESS.c.what == "effect")

    def close(self): ...


class TasksSide:
    def __init__(self, database):
        self.tasks, self.ran = Tasks(database), []
        self.tasks.task("note")(self.ran.append)

    def write(self, connection, name="1", inside=None):
        self.tasks.enqueue(connection, "note", 1, key=name)
        if inside:
            inside()

    def effects(self):
        self.tasks.worker().drain()
        self.tasks.cleaner().step()
        return len(self.ran)

    def close(self): ...


SIDES = {"outbox": OutboxSide, "inbox": InboxSide, "tasks": TasksSide}


def written(side, database, name="1", **options):
    with database.begin() as connection:
        side.write(connection, name, **options)


def a_transaction_rolled_back_after_notification(side, database, url):
    wake = getattr(getattr(side, "outbox", None) or getattr(side, "tasks", None), "wake", None)
    with database.connect() as connection:
        side.write(connection)
        if wake is not None:
            wake.signal()
        connection.rollback()
    assert side.effects() == 0


def an_error_swallowed_before_the_commit(side, database, url):
    """PostgreSQL rolls all back, and the inbox says so; SQLite has undone the one statement. Never one without the other."""
    def swallows():
        with suppress(IntegrityError):
            connection.execute(BUSINESS.insert().values(id=7))

    told = database.dialect.name == "postgresql" and isinstance(side, InboxSide)
    with pytest.raises(TransactionAborted, match="swallowed") if told else nullcontext():
        with database.begin() as connection:
            connection.execute(BUSINESS.insert().values(id=7))
            side.write(connection, inside=swallows)
    assert side.effects() == count(database, BUSINESS, BUSINESS.c.id == 7) == (database.dialect.name == "sqlite")


def a_savepoint_first(side, database, url):
    plain = create_engine(url)
    with plain.connect() as connection, connection.begin() as outer:
        with connection.begin_nested():
            if database.dialect.name == "sqlite":
                with pytest.raises(ConfigurationError, match="configure_sqlite"):
                    side.write(connection)
            else:
                side.write(connection)
        outer.rollback()
    plain.dispose()
    with database.connect() as connection, connection.begin() as outer:
        with connection.begin_nested():
            side.write(connection)
        outer.rollback()
    assert side.effects() == 0


def two_phase_commit(side, database, url):
    """Nothing while it is prepared; then what became of it."""
    for name, commits in (("1", True), ("2", False)):
        with database.connect() as connection:
            transaction = connection.begin_twophase()
            side.write(connection, name)
            transaction.prepare()
            assert side.effects() == (0 if commits else 1)
            if commits:
                transaction.commit()
            else:
                transaction.rollback()
    assert side.effects() == 1


def a_target_that_is_not_there(side, database, url):
    """A queue, or a task that no worker knows: it waits with its error, and others go on."""
    with database.begin() as connection:
        if isinstance(side, OutboxSide):
            side.outbox.publish(connection, "nowhere", key=LONG)
            side.outbox.publish(connection, "nowhere", key=LONG)
        else:
            side.tasks.enqueue(connection, "unknown", key=LONG)
        side.write(connection, "2")
    assert side.effects() == 1
    with database.connect() as connection:
        stats = (side.outbox if isinstance(side, OutboxSide) else side.tasks).stats(connection)
    assert stats.get("parked", 0) + stats.get("delayed", 0) == (2 if isinstance(side, OutboxSide) else 1)


def a_clock_a_day_off(side, database, url):
    for days in (1, -1):
        with pytest.MonkeyPatch.context() as patch:
            now, now_ns = time.time, time.time_ns
            patch.setattr(time, "time", lambda now=now, days=days: now() + days * DAY)
            patch.setattr(time, "time_ns", lambda now_ns=now_ns, days=days: now_ns() + days * DAY * 10**9)
            written(side, database, f"{days}")
            # One clock of the host's was wrong at the writing, and is right at the reading, and the other way round.
            if days < 0:
                assert side.effects() == 2
    written(side, database, "right")
    assert side.effects() == 3


def an_id_of_ten_thousand_characters(side, database, url):
    for _ in range(2):
        written(side, database, LONG)
    written(side, database, LONG[:-1] + "x")
    assert side.effects() == 2


def nul_and_bytes(side, database, url):
    """Bodies have them; what is a text in the tables does not."""
    for wrong in ("a\0b", "\ud800", b"bytes"):
        with pytest.raises((TypeError, ValueError), match="NUL|Unicode|UTF-8|must be (a )?str"), database.begin() as connection:
            side.write(connection, wrong)
    assert side.effects() == 0
    written(side, database)
    assert side.effects() == 1


def tables_of_another_version(side, database, url):
    """Whoever looks for the first time refuses them: writers, and loops with connections of their own."""
    written(side, database)
    with database.begin() as connection:
        connection.execute(text("UPDATE xump_version SET version = 99"))
    other = engine_of(url)
    of_old = type(side)(other)
    for call in (lambda: written(of_old, other, "2"), of_old.effects):
        with pytest.raises(SchemaMismatch, match=f"of version 99, and this program knows version {VERSION}"):
            call()
    of_old.close()
    other.dispose()
    with database.begin() as connection:
        connection.execute(text(f"UPDATE xump_version SET version = {VERSION}"))
    assert side.effects() == 1


def a_database_that_goes_away(side, database, url):
    """In the transaction, and between two: the first is the user's, who tries again; in the second, connections are made anew."""
    with pytest.raises(DBAPIError), database.connect() as connection:
        side.write(connection)
        _end_connections(url)
        connection.commit()
    assert _again(side.effects) == 0
    written(side, database)
    _end_connections(url)
    assert _again(side.effects) == 1


def _end_connections(url):
    with engine_of(url, poolclass=NullPool).begin() as connection:
        connection.execute(text(f"SELECT pg_terminate_backend(pid, 30000) {CLIENTS}"))


def _again(work):
    try:
        return work()
    except DBAPIError:          # the pool had connections that were cut: all of them are dropped now
        return work()


def a_serialization_failure(side, database, url):
    """It comes to the user unchanged; nothing of that transaction is there."""
    serializable = database.execution_options(isolation_level="SERIALIZABLE")
    written(side, database, "0")
    with serializable.connect() as one, serializable.connect() as other:
        for number, connection in enumerate((one, other), 1):
            count_ = connection.execute(text("SELECT count(*) FROM business WHERE what = 'skew'")).scalar_one()
            business(connection, "skew")
            assert count_ == 0
            side.write(connection, f"{number}")
        one.commit()
        with pytest.raises(DBAPIError) as raised:
            other.commit()
    assert sqlstate(raised.value) == "40001"
    written(side, database, "2")
    assert side.effects() == 3


def a_deadlock(side, database, url):
    with database.begin() as connection:
        connection.execute(BUSINESS.insert(), [{"id": -1}, {"id": -2}])
    locked, failed = threading.Barrier(2), []

    def work(first, second):
        lock = "UPDATE business SET what = 'x' WHERE id = :id"
        tries = 0
        while True:
            try:
                with database.begin() as connection:
                    connection.execute(text(lock), {"id": first})
                    side.write(connection, f"{first}")
                    if not tries:
                        locked.wait(60)
                    connection.execute(text(lock), {"id": second})
                return
            except DBAPIError as error:
                failed.append(sqlstate(error))
                tries += 1

    threads = [threading.Thread(target=work, args=pair) for pair in ((-1, -2), (-2, -1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(failed) == {"40P01"}         # who tries again may be quicker than who was waited for
    assert side.effects() == 2


BOTH, POSTGRESQL = ("sqlite", "postgresql"), ("postgresql",)
ALL, SOME = tuple(SIDES), ("outbox", "tasks")
BAD_INPUT = [       # what is wrong; where; for whom
    (a_transaction_rolled_back_after_notification, BOTH, ALL),
    (an_error_swallowed_before_the_commit, BOTH, ALL),
    (a_savepoint_first, BOTH, ALL),
    (two_phase_commit, POSTGRESQL, ALL),
    (a_target_that_is_not_there, BOTH, SOME),
    (a_clock_a_day_off, BOTH, ALL),
    (an_id_of_ten_thousand_characters, BOTH, ALL),
    (nul_and_bytes, BOTH, ALL),
    (tables_of_another_version, BOTH, ALL),
    (a_database_that_goes_away, POSTGRESQL, ALL),
    (a_serialization_failure, POSTGRESQL, ALL),
    (a_deadlock, POSTGRESQL, ALL),
]
ROWS = [pytest.param(fault, kind, side, id=f"{fault.__name__}-{kind}-{side}")
        for fault, kinds, sides in BAD_INPUT for kind in kinds for side in sides]


@pytest.mark.parametrize(("fault", "kind", "side"), ROWS)
def test_bad_input(request, fault, kind, side):
    url = request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url")
    database = engine_of(url)
    one = SIDES[side](database)
    try:
        fault(one, database, url)
        written(one, database, "all is well again")
        before = one.effects()
        written(one, database, "and again")
        assert one.effects() == before + 1
    finally:
        one.close()
        database.dispose()


class Nasty(Exception):
    def __str__(self):
        raise KeyError("no text")


@pytest.mark.parametrize(("error", "expected"), [
    (OSError("no file a\udcff\0"), "no file a\\udcff?"), (Nasty(), "its text cannot be had: str() raises KeyError")],
    ids=["surrogate", "no text"])
@pytest.mark.parametrize("what", ["task", "message", "row"])
def test_an_error_that_no_column_holds_ends_no_loop(database, made, monkeypatch, what, error, expected):
    monkeypatch.setattr(logging.getLogger("xump.sql"), "disabled", True)    # pytest-xdist cannot send such a text

    def fails(*arguments):
        raise error

    if what == "task":
        tasks = Tasks(database, dead_queue="dead")
        tasks.task("fails", max_attempts=1)(fails)
        with database.begin() as connection:
            tasks.enqueue(connection, "fails")
        assert tasks.worker().drain() == 0
        dead = tasks.dead
    elif what == "message":
        inbox = Inbox()
        with xump.Engine() as engine:
            engine.create_queue("jobs")
            engine.create_selector("jobs", when=xump.always, do=xump.deliver("worker"), credit=1)
            engine.publish("jobs", message_id="1")
            inbox.receive(database, engine.take(1, "worker"))
        assert inbox.process(fails, engine=database, max_attempts=1).step() == 1
        dead = inbox.dead
    else:
        outbox = Outbox()

        class Refuses:
            atomic = False

            def send(self, rows):
                refused = Refused(str(error) if isinstance(error, OSError) else error)
                return [refused] * len(rows)

        with database.begin() as connection:
            outbox.publish(connection, "jobs")
        assert outbox.relay(Refuses(), engine=database, max_attempts=1).step() == 0
        dead = outbox.dead
    with database.connect() as connection:
        assert expected in dead(connection)[0]["error"]
