"""Rows are replayed in the order and the rhythm of a column of times, once each, and a replay that ends leaves nothing behind.

Nothing here measures time: what is due in an hour is looked at, and what is due at once is waited for.
"""

import io
import threading
import time

import pyarrow
import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import numbers, rows
from xump import Engine
from xump.broker import Broker, Client, hash_password, read_users
from xump.errors import QueueNotFound
from xump.spark import progress, replay, replaying
from xump.spark.progress import Bar
from xump.spark.replaying import PREFIX, Progress

HOUR = 3600


@pytest.fixture
def parts(spark):
    """A sorted frame has two partitions, however small it is."""
    name = "spark.sql.adaptive.coalescePartitions.enabled"
    spark.conf.set(name, "false")
    yield
    spark.conf.unset(name)


@pytest.fixture
def left(served):
    """What replays have left."""
    return lambda: [name for name in served.engine.queues if name.startswith((PREFIX, "xump.staging/"))]


def timed(spark, count, time="timestamp_seconds(1700000000 + {n})"):
    """Rows that are not in the order of their times: `n` is their place in it."""
    n = f"(headers.n * 7) % {count}"
    return rows(spark, count, partitions=4).selectExpr(
        "address", "body", f"named_struct('n', {n}) AS headers", f"{time.replace('{n}', f'({n})')} AS event_time")


def test_late_rows_come_once_in_the_order_of_time(spark, served, parts, left):
    told = []
    done = replay(timed(spark, 2000), served.url, "q", speed=1e9, lead=0, progress=told.append)
    assert (done.rows, done.late, done.stopped) == (2000, 2000, False)
    assert done.worst_seconds > 0
    assert numbers(served.queue) == list(range(2000))
    assert told[-1] == Progress(2000, 2000, 2000, 2000, done.worst_seconds)
    assert left() == []


def test_the_driver_renews_a_lease_without_which_nothing_of_a_replay_stays(spark, served, left, monkeypatch):
    """So a driver that is killed leaves nothing."""
    renewed = []
    lease = Client.lease
    monkeypatch.setattr(Client, "lease", lambda self, *given: renewed.append(given) or lease(self, *given))
    monkeypatch.setattr(replaying, "LEASE_SECONDS", 1)

    def killed(progress):
        if len(renewed) > 2:
            [name] = left()
            assert set(renewed) == {(name, 1)}
            served.broker.flight.look_after(time.monotonic() + 60)
            assert left() == []

    with pytest.raises(RuntimeError, match="the queue of the replay"):
        replay(timed(spark, 20), served.url, "q", speed=1, lead=HOUR, progress=killed)
    assert left() == []


def test_as_fast_as_it_goes(spark, served, left):
    assert replay(timed(spark, 500), served.url, "q", speed=None) == (500, 0, 0.0, False)
    assert numbers(served.queue) == list(range(500))
    assert left() == []


def test_nothing_is_replayed(spark, served, left):
    assert replay(timed(spark, 5).where("false"), served.url, "q") == (0, 0, 0.0, False)
    assert (numbers(served.queue), left()) == ([], [])


def stopped_at(condition, **options):
    """Options of a replay that stops when it has come so far."""
    stop = threading.Event()

    def tell(progress):
        if condition(progress):
            stop.set()

    return {"stop": stop, "progress": tell, **options}


@pytest.mark.parametrize(("time", "step"), [
    ("timestamp_seconds(1700000000 + {n})", 1), ("timestampadd(SECOND, {n}, timestamp_ntz'2023-03-26 01:30:00')", 1),
    ("date_add(date'2023-03-20', cast({n} AS int))", 86_400)], ids=["timestamp", "timestamp_ntz", "date"])
def test_the_rhythm_is_that_of_the_column(spark, served, parts, left, time, step):
    """Half an hour past one is followed by an hour that central Europe does not have."""
    due = []

    def all_sent(progress):
        if progress.sent < progress.rows:
            return False
        [queue] = [queue for name, queue in served.engine.queues.items() if name.startswith(PREFIX)]
        due.extend(pyarrow.record_batch(queue.browse_batch(state="delayed")).column("at").cast("int64").to_pylist())
        return True

    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        done = replay(timed(spark, 20, time), served.url, "q", speed=step * 0.5,
                      **stopped_at(all_sent, lead=HOUR, ahead=2 * HOUR))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert done == (0, 0, 0.0, True)
    assert [one - due[0] for one in due] == [2 * n * 10**9 for n in range(20)]
    assert (numbers(served.queue), left()) == ([], [])


def test_what_is_due_later_is_sent_later(spark, served, left):
    """Two hours are sent in slices of an hour, the second one in an hour."""
    sent = []

    def noted(progress):
        sent.append(progress.sent)
        return progress.sent

    hours = timed(spark, 20, "timestamp_seconds(360 * {n})")
    assert replay(hours, served.url, "q", speed=1, **stopped_at(noted, lead=HOUR, ahead=HOUR)).rows == 0
    assert set(sent) <= {0, 10}
    assert left() == []


def test_a_replay_that_is_stopped_leaves_what_was_due(spark, served, left):
    years = timed(spark, 20, "timestamp_micros({n} + if({n} < 10, 0, 1000000000000000))")
    done = replay(years, served.url, "q", speed=1, **stopped_at(lambda progress: progress.published == 10, lead=0, ahead=1e10))
    assert (done.rows, done.stopped) == (10, True)
    assert (numbers(served.queue), left()) == (list(range(10)), [])


def test_a_full_target_is_waited_for(spark, served, left):
    full = served.engine.create_queue("full", store="disk", limit=3)
    taken = []

    def tell(progress):
        if full.ready == 3:
            taken.extend(numbers(full))
            full.purge()

    done = replay(timed(spark, 10), served.url, "full", speed=1e9, lead=0, progress=tell)
    assert (done.rows, done.stopped) == (10, False)
    assert taken + numbers(full) == list(range(10))
    assert left() == []


# ---- what goes wrong on the way

def test_a_partition_that_fails_ends_the_replay(spark, served, left):
    wrong = timed(spark, 10).selectExpr("address", "if(headers.n = 7, null, body) AS body", "headers", "event_time")
    with pytest.raises(PySparkException, match="body is null in row . of partition ."):
        replay(wrong, served.url, "q", lead=0)
    assert (numbers(served.queue), left()) == ([], [])


def test_a_queue_that_is_gone_ends_the_replay(spark, served, left):
    def tell(progress):
        for name in left():
            served.engine.delete_queue(name)

    with pytest.raises(RuntimeError, match=r"the queue of the replay, 'xump.replay/.*', is gone.* 0 of 10 rows were published"):
        replay(timed(spark, 10), served.url, "q", lead=HOUR, progress=tell)
    assert (numbers(served.queue), left()) == ([], [])


def test_a_target_that_is_not_there(spark, served, left):
    with pytest.raises(QueueNotFound, match="no queue 'nowhere'"):
        replay(timed(spark, 10), served.url, "nowhere")
    assert left() == []


# ---- wrong arguments

def test_a_row_without_time_is_an_error_before_anything_is_sent(spark, served, left):
    with pytest.raises(ValueError, match="column event_time is null in 2 of 10 rows.* Nothing was sent"):
        replay(timed(spark, 10, "if({n} < 2, null, timestamp_seconds({n}))"), served.url, "q")
    assert (numbers(served.queue), left()) == ([], [])


@pytest.mark.parametrize(("given", "said"), [
    ({"speed": 0}, "speed=0: expected a number above 0"), ({"speed": float("nan")}, "speed=nan"), ({"speed": True}, "speed=True"),
    ({"speed": "60"}, "speed='60'"), ({"lead": -1}, "lead=-1: expected seconds, from 0 on"),
    ({"ahead": float("inf")}, "ahead=inf: expected seconds, from 1 on"), ({"ahead": 0.5}, "ahead=0.5"),
    ({"timestamp": "time"}, "timestamp='time': there is no such column; there are address, body, headers, event_time"),
    ({"timestamp": "body"}, "column body is of type string; allowed: timestamp, timestamp_ntz, date"),
    ({"delivery": "at-least-once"}, "option delivery says nothing to a replay"),
    ({"txnAppId": "app"}, "option txnAppId says nothing to a replay"), ({"colour": "red"}, "unknown option 'colour'"),
    ({"selector": "x = 1"}, "option selector is for reading"), ({"address": "a"}, "give one of them")], ids=str)
def test_what_is_wrong_is_said_before_anything_is_done(spark, served, left, given, said):
    with pytest.raises((ValueError, TypeError)) as caught:
        replay(timed(spark, 2), served.url, "q", **given)
    assert said in str(caught.value)
    assert (numbers(served.queue), left()) == ([], [])


def test_columns_that_a_replay_does_not_take(spark, served):
    with pytest.raises(ValueError, match="column at is there"):
        replay(timed(spark, 2).selectExpr("*", "event_time AS at"), served.url, "q")
    with pytest.raises(ValueError, match="column expires is there"):
        replay(timed(spark, 2).selectExpr("*", "event_time AS expires"), served.url, "q")
    with pytest.raises(ValueError, match="unknown column 'more'"):
        replay(timed(spark, 2).selectExpr("*", "1 AS more"), served.url, "q")


def test_the_column_of_times_may_be_called_at(spark, served, left):
    assert replay(timed(spark, 50).withColumnRenamed("event_time", "at"), served.url, "q", "at", speed=1e9).rows == 50
    assert (numbers(served.queue), left()) == (list(range(50)), [])


def test_the_column_of_times_may_have_a_dot(spark, served):
    assert replay(timed(spark, 50).withColumnRenamed("event_time", "my.time"), served.url, "q", "my.time", speed=1e9).rows == 50
    assert numbers(served.queue) == list(range(50))


USERS = """
[users.anna]
password = "{password}"
[users.anna.vhosts."/"]
configure = "^xump.replay/"
write = "^(xump.replay/.*|q)$"
read = "^xump.replay/"
"""


def test_a_replay_lies_in_the_store_of_a_target_that_its_user_may_only_write_to(tmp_path):
    (tmp_path / "users.toml").write_text(USERS.format(password=hash_password("secret", 2)))
    with Engine() as engine, Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0",
                                    users=read_users(tmp_path / "users.toml")[0]) as broker:
        engine.create_store("disk", "ring", path=f"{tmp_path}/disk.xump")
        engine.create_queue("q", store="disk")
        given = replaying._options(broker.flight.url, "q", {"user": "anna", "password": "secret"})
        made = replaying._Replay(None, 0, given, {}, 0, 1, threading.Event(), False)
        with given.client as client:
            made._client = client
            made._create()
        assert engine.queues[made._queue].store.name == "disk"


# ---- the bar

def test_the_bar_is_for_terminals_only():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    plain, terminal = io.StringIO(), Terminal()
    for file in (plain, terminal):
        for published in (5, 10):
            Bar(file).show(Progress(10, 10, published, 0, 0.0))
    assert plain.getvalue() == ""
    assert terminal.getvalue() == (
        "\r[###############               ] 5 of 10 published, 5 wait for their time"
        "\r[##############################] 10 of 10 published, 0 wait for their time\n")
    assert "3 came late, by up to 1.5 s" in progress.text(Progress(10, 10, 5, 3, 1.5))
