"""What a database does to its clients: it restarts, cuts connections, cannot serialize, ends deadlocks.

Nothing is lost, nothing comes twice where once is promised, and what is the user's to retry reaches the user as it is.
"""

import tempfile
import threading
import time

import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

import xump
from tests.sql import postgres
from tests.sql.conftest import BUSINESS, business, count, engine_of
from tests.sql.tap import Tap
from xump.sql import ConfigurationError, Inbox, Outbox, Tasks, Wake, init
from xump.sql.moments import Now
from xump.sql.transactions import TRIES_MAX, in_own, own, sqlstate

WAIT = 60


def until(condition):
    """Wait for it, generously."""
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        engine.create_queue("orders", dedup=3600)
        engine.create_selector("orders", when=xump.always, do=xump.deliver("worker"), credit=100)
        yield engine
        engine.check()


def effect(connection, message):
    business(connection, message.message_id)


# ---- a server that restarts

@pytest.fixture
def own_server():
    """One that may be stopped, on a socket of the file system: a port could be taken meanwhile."""
    if not postgres.is_installed():
        pytest.skip("PostgreSQL is not installed: these tests are left out (apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="xump-postgres-", dir="/tmp") as folder:
        server = postgres.Server(folder, fsync=False, has_port=False)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_x1_server_restart(own_server, engine, made, mode):
    """Relay, processor and worker go on by themselves; each message and task is done once in the database."""
    database = create_engine(own_server.url())
    init(database)
    BUSINESS.metadata.create_all(database)
    outbox, inbox, tasks = Outbox(), Inbox(), Tasks(database)

    @tasks.task(transaction=True)
    def note(connection, what):
        business(connection, what)

    loops = [outbox.relay(engine, engine=database, poll=0.05), inbox.process(effect, engine=database, poll=0.05),
             tasks.worker(poll=0.05)]
    threads = [threading.Thread(target=loop.run) for loop in loops]
    for thread in threads:
        thread.start()

    def written(number):
        """The user's transactions fail while the server is away; the user tries again."""
        try:
            with database.begin() as connection, inbox.once(connection, source="test", message_id=f"{number}") as fresh:
                if fresh:
                    outbox.publish(connection, "orders", message_id=f"message {number}")
                    note.enqueue(connection, f"task {number}")
        except DBAPIError:
            return False
        return True

    def received():
        found = engine.take(10, "worker")
        try:
            inbox.receive(database, found)
        except DBAPIError:
            return
    try:
        for number in range(3):
            until(lambda number=number: written(number))
            if number < 2:
                own_server.stop(mode)
                own_server.start()
        until(lambda: received() or count_of(database, BUSINESS) == 6)
    finally:
        for loop in loops:
            loop.stop()
        for thread in threads:
            thread.join()
    with database.connect() as connection:
        done = sorted(connection.execute(text("SELECT what FROM business")).scalars())
    assert done == [f"{what} {number}" for what in ("message", "task") for number in range(3)]
    assert (count(database, made.outbox), count(database, made.task)) == (0, 0)
    database.dispose()


def count_of(database, table):
    """The same as `count`, for a server that has just come back: None while old connections fail."""
    try:
        return count(database, table)
    except DBAPIError:
        return None


def test_x1_a_worker_that_begins_while_the_server_is_away(own_server, made, monkeypatch, caplog):
    """It says with its first beat that it is there, and does what waits."""
    monkeypatch.setattr("xump.sql.worker.BEAT_SECONDS", 0.05)
    database = create_engine(own_server.url())
    init(database)
    BUSINESS.metadata.create_all(database)
    tasks = Tasks(database)

    @tasks.task()
    def note(what):
        with database.begin() as connection:
            business(connection, what)

    with database.begin() as connection:
        note.enqueue(connection, "done")
    database.dispose()
    own_server.stop("fast")
    worker = tasks.worker(poll=0.05)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        until(lambda: "it says so with its next beat" in caplog.text)
        own_server.start()
        until(lambda: worker.finished == 1 and count_of(database, made.worker) == 1)
    finally:
        worker.stop()
        thread.join()
    assert count_of(database, BUSINESS) == 1 and count_of(database, made.worker) == 0
    database.dispose()


# ---- a connection that is cut while it commits

COMMIT = {"arrived": {"answer": b"COMMIT\0"}, "did_not_arrive": {"request": b"COMMIT\0"}}
"""As PostgreSQL's protocol has it: the tag of the answer, the text of the request."""


@pytest.fixture
def tap(server, postgres_url):
    tap = Tap(server.port)
    yield tap
    tap.close()


@pytest.fixture
def cut(tap, postgres_url):
    """An engine whose connections go through the tap."""
    database = create_engine(make_url(postgres_url).set(port=tap.port))
    yield database
    database.dispose()


@pytest.fixture
def whole(postgres_url):
    database = engine_of(postgres_url)
    yield database
    database.dispose()


@pytest.mark.parametrize("commit", COMMIT)
def test_x2_cut_during_commit_of_the_user(tap, cut, whole, engine, made, commit):
    """The user does not know. The request comes again with its id: done once, sent once."""
    outbox, inbox = Outbox(), Inbox()

    def request():
        with cut.begin() as connection, inbox.once(connection, source="http", message_id="request 1") as fresh:
            if fresh:
                business(connection)
                outbox.publish(connection, "orders", message_id="order 1")
        return fresh

    with cut.connect() as connection:           # what is looked at once a program is looked at
        outbox.stats(connection)
    tap.arm(**COMMIT[commit])
    with pytest.raises(DBAPIError):
        request()
    assert tap.cut.is_set()
    there = 1 if commit == "arrived" else 0
    until(lambda: count(whole, BUSINESS) == there)      # the server notices a client that is gone
    assert count(whole, made.outbox) == there
    assert request() == (not there)
    outbox.relay(engine, engine=whole).step()
    assert (count(whole, BUSINESS), count(whole, made.outbox), engine.queues["orders"].outstanding) == (1, 0, 1)


@pytest.mark.parametrize("commit", COMMIT)
def test_x2_cut_during_commit_of_a_relay(tap, cut, whole, engine, made, commit):
    outbox = Outbox()
    with whole.begin() as connection:
        for number in range(3):
            outbox.publish(connection, "orders", body=b"%d" % number, key="k")
    relay = outbox.relay(engine, engine=cut)
    settle = relay._settle

    def armed(*arguments):
        tap.arm(**COMMIT[commit])
        return settle(*arguments)

    relay._settle = armed
    with pytest.raises(DBAPIError):
        relay.step()
    assert tap.cut.is_set()
    relay._settle = settle
    until(lambda: count(whole, made.outbox) == (0 if commit == "arrived" else 3))
    while relay.step():
        pass
    assert count(whole, made.outbox) == 0
    assert [delivery.body for delivery in engine.take(9, "worker")] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("how", ["handle", "receive"])
@pytest.mark.parametrize("commit", COMMIT)
def test_x2_cut_during_commit_of_an_inbox(tap, cut, whole, engine, made, commit, how):
    inbox = Inbox()
    with cut.connect() as connection:
        inbox.stats(connection)
    engine.publish("orders", "a", message_id="1")

    def work():
        [delivery] = engine.take(1, "worker")
        if how == "handle":
            return inbox.handle(cut, delivery, effect)
        return inbox.receive(cut, delivery)

    tap.arm(**COMMIT[commit])
    with pytest.raises(DBAPIError):
        work()
    assert tap.cut.is_set()
    until(lambda: count(whole, made.inbox) == (1 if commit == "arrived" else 0))
    assert work() == (commit == "did_not_arrive")
    inbox.process(effect, engine=whole).step()
    assert (count(whole, BUSINESS), count(whole, made.inbox), engine.queues["orders"].outstanding) == (1, 1, 0)


@pytest.mark.parametrize("commit", COMMIT)
def test_x2_cut_during_commit_of_a_processor(tap, cut, whole, engine, made, commit):
    inbox = Inbox()
    engine.publish("orders", "a", message_id="1")
    inbox.receive(whole, engine.take(1, "worker"))

    def armed(connection, message):
        effect(connection, message)
        tap.arm(**COMMIT[commit])

    with pytest.raises(DBAPIError):
        inbox.process(armed, engine=cut).step()
    assert tap.cut.is_set()
    until(lambda: count(whole, BUSINESS) == (1 if commit == "arrived" else 0))
    with whole.begin() as connection:
        connection.execute(made.inbox.update().values(lease_until=0, retry_at=0))
    inbox.process(effect, engine=whole).step()
    assert (count(whole, BUSINESS), count(whole, made.inbox, made.inbox.c.done_at.is_not(None))) == (1, 1)


# ---- what cannot be serialized, and deadlocks

def test_x3_40001(postgres_url, engine, made):
    """The user's own failure reaches the user as it is, and leaves nothing; the second try does."""
    database = create_engine(postgres_url, isolation_level="SERIALIZABLE")
    outbox, inbox = Outbox(), Inbox()
    with database.begin() as connection:
        business(connection, "0")

    def change(one, other):
        one.execute(text("UPDATE business SET what = what || '1'"))
        outbox.publish(one, "orders", message_id="once")
        if other is not None:
            other.commit()

    with database.connect() as winner, database.connect() as loser:
        loser.execute(text("SELECT * FROM business")).all()         # its snapshot
        winner.execute(text("UPDATE business SET what = 'w'"))
        winner.commit()
        with pytest.raises(DBAPIError) as caught:
            change(loser, None)
        assert sqlstate(caught.value) == "40001"
        loser.rollback()
        assert count(database, made.outbox) == 0
        change(loser, loser)
    relay = outbox.relay(engine, engine=database)
    assert relay.step() == 1
    # Two transactions with one message id: the second one waits for the first, and cannot be serialized.
    with database.connect() as first, database.connect() as second:
        with inbox.once(first, source="s", message_id="1") as fresh:
            assert fresh
        second.execute(text("SELECT * FROM business")).all()
        first.commit()
        with pytest.raises(DBAPIError) as caught, inbox.once(second, source="s", message_id="1"):
            pass
        assert sqlstate(caught.value) == "40001"
        second.rollback()
        with inbox.once(second, source="s", message_id="1") as fresh:
            assert not fresh
    database.dispose()


def test_x3_40001_in_transactions_of_our_own(postgres_url, engine, made):
    """They are READ COMMITTED, whatever the engine says: several relays and processors share without failures."""
    database = create_engine(postgres_url, isolation_level="SERIALIZABLE")
    outbox, inbox = Outbox(), Inbox()
    with database.begin() as connection:
        outbox.publish_many(connection, [{"queue": "orders", "message_id": f"{number}"} for number in range(40)])
    loops = [outbox.relay(engine, engine=database, poll=0.02) for _ in range(2)]
    loops += [inbox.process(effect, engine=database, poll=0.02, batch=3) for _ in range(3)]
    threads = [threading.Thread(target=loop.run) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        stored = 0
        while stored < 40:
            stored += inbox.receive(database, engine.take(5, "worker", timeout=WAIT))
        until(lambda: count(database, BUSINESS) == 40)
    finally:
        for loop in loops:
            loop.stop()
        for thread in threads:
            thread.join()
    assert count(database, made.inbox, made.inbox.c.done_at.is_not(None), made.inbox.c.attempts == 1) == 40
    assert count(database, made.outbox) == 0
    database.dispose()


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_what_the_database_could_not_do_is_done_again_by_us_and_not_for_ever(postgres_url, monkeypatch, state):
    monkeypatch.setattr("xump.sql.transactions.PAUSE", 0)
    database = own(engine_of(postgres_url))
    tries = []

    def work(connection):
        tries.append(1)
        business(connection)
        if len(tries) < 3 or fails_for_ever:
            connection.execute(text(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$"))

    fails_for_ever = False
    in_own(database, work)
    assert (len(tries), count(database, BUSINESS)) == (3, 1)
    fails_for_ever = True
    with pytest.raises(DBAPIError) as caught:
        in_own(database, work)
    assert (sqlstate(caught.value), len(tries), count(database, BUSINESS)) == (state, 3 + TRIES_MAX, 1)
    database.dispose()


def test_x4_40P01(postgres_url, engine, made):
    """Two transactions that lock two keys crosswise: one is ended, its rows with it; it tries again."""
    database = engine_of(postgres_url)
    outbox = Outbox()
    both = threading.Barrier(2)
    states = []

    def write(one, other):
        def publish(waits):
            with database.begin() as connection:
                outbox.publish(connection, "orders", body=one.encode(), key=one, lock=True)
                if waits:
                    both.wait(WAIT)
                outbox.publish(connection, "orders", body=one.encode(), key=other, lock=True)

        try:
            publish(True)
        except DBAPIError as error:
            states.append(sqlstate(error))
            publish(False)

    threads = [threading.Thread(target=write, args=keys) for keys in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states == ["40P01"]
    assert count(database, made.outbox) == 4
    assert outbox.relay(engine, engine=database).step() == 4
    database.dispose()


def test_many_rows_lock_their_keys_in_one_order(postgres_url, made):
    database = engine_of(postgres_url)
    outbox = Outbox()
    failed = []

    def write(keys):
        try:
            for _ in range(10):
                with database.begin() as connection:
                    outbox.publish_many(connection, [{"queue": "orders", "key": key, "lock": True} for key in keys])
        except DBAPIError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(keys,)) for keys in ("abcdef", "fedcba", "dabecf")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failed, count(database, made.outbox)) == ([], 180)
    database.dispose()


# ---- two-phase commits

def test_x8_two_phase(postgres_url, engine, made):
    """What is prepared is not sent, and holds nothing else up; when it is committed it is sent."""
    database = create_engine(postgres_url)
    outbox, tasks = Outbox(), Tasks(database)
    ran = []
    tasks.task("note")(ran.append)
    relay = outbox.relay(engine, engine=database)
    with database.connect() as connection:
        transaction = connection.begin_twophase()       # rolled back if the block ends before its commit
        business(connection)
        outbox.publish(connection, "orders", body=b"prepared", key="k", lock=True)
        tasks.enqueue(connection, "note", "prepared")
        transaction.prepare()
        with database.begin() as other:
            outbox.publish(other, "orders", body=b"later", key="other")
            tasks.enqueue(other, "note", "later")
        assert (relay.step(), relay.step(), tasks.worker().drain(), ran) == (1, 0, 1, ["later"])
        transaction.commit()
    assert (relay.step(), tasks.worker().drain(), ran) == (1, 1, ["later", "prepared"])
    assert [delivery.body for delivery in engine.take(9, "worker")] == [b"later", b"prepared"]
    assert count(database, BUSINESS) == 1
    database.dispose()


def test_x8_two_phase_with_a_notice_inside_is_refused(postgres_url, made):
    database = create_engine(postgres_url)
    outbox = Outbox(wake=Wake.notify_in_transaction(database))
    with database.connect() as connection:
        transaction = connection.begin_twophase()
        with pytest.raises(ConfigurationError, match=r"use Wake\.notify\(engine\)"):
            outbox.publish(connection, "orders")
        transaction.rollback()
    assert count(database, made.outbox) == 0
    database.dispose()


# ---- clocks

@pytest.mark.parametrize("days", [-1, 1])
def test_x9_host_clock_off_by_a_day(database, url, engine, made, monkeypatch, days):
    """Leases, retries and what is due go by the database's clock. (The host is that of the relay, processor and worker.)"""
    outbox, inbox, tasks = Outbox(), Inbox(), Tasks(database)
    ran = []
    tasks.task("note")(ran.append)
    with database.begin() as connection:
        outbox.publish(connection, "orders", message_id="1")
        tasks.enqueue(connection, "note", "now")
        tasks.enqueue(connection, "note", "in an hour", delay=3600)
    first = outbox.relay(engine, engine=database, lease=3600)
    other = outbox.relay(engine, engine=database, lease=3600)
    assert first.step() == 1
    inbox.receive(database, engine.take(1, "worker"))

    def fails(connection, message):
        raise KeyError("broken")

    assert inbox.process(fails, engine=database, retry_delay=3600).step() == 1
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + days * 86_400)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + days * 86_400 * 10**9)
    with database.begin() as connection:
        outbox.publish(connection, "orders", message_id="2")
    assert other.step() == 0                                    # the lease of the first one is not over
    assert first.step() == 1
    assert inbox.process(effect, engine=database).step() == 0   # the retry is in an hour
    assert (tasks.worker().drain(), ran, tasks.cleaner().step()["retried"]) == (1, ["now"], 0)
    with database.connect() as connection:
        assert 0 <= outbox.stats(connection)["oldest_seconds"] < 3600
        assert tasks.stats(connection)["delayed"] == 1
    first._leave()
    assert other.step() == 0
    assert len(other._slots.mine) in (0, 16)


def test_x9_the_clock_of_sqlite_is_set_back_by_a_day(sqlite_url, made):
    """What was written last remembers the time: what is due stays due, and nothing that is new is in the past."""
    database = engine_of(sqlite_url)
    tasks, inbox, ran, clock = Tasks(database), Inbox(), [], text("SELECT seq FROM sqlite_sequence WHERE name = 'xump_clock'")
    tasks.task("note")(ran.append)
    with database.begin() as connection:
        machine = connection.execute(select(Now())).scalar_one()
        later = machine + 86_400_000_000
        connection.execute(text("UPDATE sqlite_sequence SET seq = :later WHERE name = 'xump_clock'"), {"later": later})
    with database.begin() as connection:
        tasks.enqueue(connection, "note", 1)
        tasks.enqueue_many(connection, [{"name": "note", "payload": 2}])
        assert connection.execute(select(made.task.c.due)).scalars().all() == [later, later]
    assert (tasks.worker().drain(), ran) == (2, [1, 2])
    with database.begin() as connection:
        connection.execute(text("UPDATE sqlite_sequence SET seq = 0 WHERE name = 'xump_clock'"))
    for write in (lambda connection: tasks.enqueue(connection, "note", 3),
                  lambda connection: Outbox().publish(connection, "orders"),
                  lambda connection: inbox._mark(connection, None, "s", "1")):
        with database.begin() as connection:
            connection.execute(text("UPDATE sqlite_sequence SET seq = 0 WHERE name = 'xump_clock'"))
            write(connection)
            assert connection.execute(clock).scalar_one() >= machine
    with database.begin() as connection:
        connection.execute(text("UPDATE sqlite_sequence SET seq = 0 WHERE name = 'xump_clock'"))
    assert tasks.worker().drain() == 1
    with database.connect() as connection:
        assert connection.execute(clock).scalar_one() >= machine
    database.dispose()
