"""`browse_batch`: what `browse` sees, as Arrow columns; and batches that are published again."""

import datetime

import duckdb
import polars
import pyarrow
import pytest

import xump
from xump import Message, always, deliver

SECOND = 1_000_000_000


@pytest.fixture
def engine(clock):
    with xump.Engine(clock=clock) as engine:
        yield engine
        engine.check()


def rows_of(batch):
    """The rows of a batch; moments as nanoseconds."""
    table = pyarrow.record_batch(batch)
    rows = table.to_pylist()
    for name in ("timestamp", "expires", "at"):
        if name in table.schema.names:
            for row, moment in zip(rows, table[name].cast(pyarrow.int64()).to_pylist(), strict=True):
                row[name] = moment
    return rows


def of_all_states(engine, clock):
    """A queue with a message in each state, ids 1 to 6: history, taken, offered, waiting, delayed, delayed by a nack."""
    queue = engine.create_queue("q", history_limit=None)
    worker = engine.create_selector("q", when=always, do=deliver("d"), credit=2)
    queue.publish("done", b"1", {"n": 1})
    engine.take(1)[0].ack()
    queue.publish("taken", b"2", reply_to="r", message_id="m", correlation_id="c", priority=7)
    engine.take(1)
    queue.publish("offered")
    queue.publish("waiting", expires=clock.now + 50 * SECOND)
    queue.publish("delayed", delay=30, ttl=5)
    queue.publish("again")
    worker.grant(2)
    engine.take(3, "d")[2].nack(delay=20)
    assert worker.outstanding == 3
    return queue


def test_what_came_back_says_so(engine, clock):
    queue = of_all_states(engine, clock)
    assert [row["redelivered"] for row in rows_of(queue.browse_batch())] == [False] * 5 + [True]
    engine.publish_batch("q", queue.browse_batch(start=6))
    assert [row["redelivered"] for row in rows_of(queue.browse_batch(start=7))] == [False]      # another message


def test_every_state_has_its_row(engine, clock):
    queue = of_all_states(engine, clock)
    began = clock.now
    before = engine.stats()
    rows = rows_of(queue.browse_batch())
    assert engine.stats() == before
    assert [(row["id"], row["address"], row["state"], row["at"], row["expires"]) for row in rows] == [
        (1, "done", "history", None, None), (2, "taken", "outstanding", None, None), (3, "offered", "outstanding", None, None),
        (4, "waiting", "outstanding", None, began + 50 * SECOND),
        (5, "delayed", "delayed", began + 30 * SECOND, began + 35 * SECOND), (6, "again", "delayed", began + 20 * SECOND, None)]
    assert {name: rows[1][name] for name in ("queue", "body", "headers", "reply_to", "message_id", "correlation_id", "priority",
                                             "timestamp", "destination", "delivery_count")} == {
        "queue": "q", "body": b"2", "headers": {"n": None}, "reply_to": "r", "message_id": "m", "correlation_id": "c",
        "priority": 7, "timestamp": began, "destination": None, "delivery_count": 1}
    assert rows[0]["headers"] == {"n": 1} and rows[0]["priority"] == 0


def test_the_state_is_that_of_browse(engine, clock):
    queue = of_all_states(engine, clock)
    for state in ("ready", "delayed", "outstanding", "history"):
        ids = [message.id for message in queue.browse(state=state)]
        assert [row["id"] for row in rows_of(queue.browse_batch(state=state))] == ids
        assert [row["id"] for row in rows_of(queue.browse_batch()) if row["state"] == state] == ids


ARGUMENTS = [
    {}, {"start": 300}, {"start": "current"}, {"reverse": True}, {"reverse": True, "start": 700}, {"limit": 0}, {"limit": 1},
    {"limit": 257}, {"limit": 700, "reverse": True}, {"where": "n >= 400 AND n < 800"}, {"where": "n = 900", "limit": 1},
    {"where": {"n": [3, 500]}}, {"where": lambda message: message.headers["n"] % 300 == 7},
    {"where": lambda message: message.headers["n"] % 2 == 1, "limit": 300, "reverse": True},
    {"where": lambda message: 1 // (message.id - 5)}, {"start": datetime.datetime(1970, 1, 1, 0, 16, 45, tzinfo=datetime.UTC)},
    {"state": "ready", "start": 5},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=range(len(ARGUMENTS)))
@pytest.mark.parametrize("make", ["rows", "columns"])
def test_the_same_messages_as_browse(engine, clock, arguments, make):
    queue = engine.create_queue("q")
    rows = [(f"a.{n % 3}", b"%d" % n, {"n": n}) for n in range(1000)]
    for at in range(0, 1000, 100):
        clock.tick()
        if make == "rows":
            engine.publish_many("q", rows[at:at + 100])
        else:
            engine.publish_batch("q", pyarrow.table({
                "address": [row[0] for row in rows[at:at + 100]], "body": [row[1] for row in rows[at:at + 100]],
                "headers": [row[2] for row in rows[at:at + 100]]}))
    for id in range(100, 130):
        queue.delete(id)
    for batch in (queue.browse_batch(**arguments), engine.browse_batch("q", **arguments)):
        expected = [(message.id, message.address, message.body, dict(message.headers), message.timestamp)
                    for message in queue.browse(**arguments)]
        assert len(batch) == len(expected)
        assert [(row["id"], row["address"], row["body"], row["headers"], row["timestamp"]) for row in rows_of(batch)] == expected


def test_it_is_read_by_other_libraries_and_outlives_what_it_shows(engine):
    queue = engine.create_queue("q")
    queue.publish("a", b"x" * 1000, {"n": 1})
    batch = queue.browse_batch()
    engine.delete_queue("q")
    assert polars.DataFrame(batch)["state"].to_list() == ["ready"]
    shown = pyarrow.table(batch)
    assert shown.num_rows == 1
    assert duckdb.sql("SELECT address, state, headers.n FROM shown").fetchall() == [("a", "ready", 1)]
    assert pyarrow.table(batch).column("body").to_pylist() == [b"x" * 1000]


@pytest.mark.parametrize(("arguments", "error"), [
    ({"state": "unknown"}, ValueError), ({"state": []}, ValueError), ({"limit": -1}, ValueError), ({"limit": "1"}, TypeError),
    ({"reverse": 1}, TypeError), ({"start": "end"}, ValueError), ({"start": -1}, ValueError),
    ({"where": "a b"}, xump.InvalidFilter),
    ({"where": 1}, TypeError), ({"limit": 2**70}, ValueError)])
def test_bad_arguments_are_those_of_browse(engine, arguments, error):
    queue = engine.create_queue("q")
    for call in (queue.browse_batch, queue.browse, lambda **given: engine.browse_batch("q", **given)):
        with pytest.raises(error):
            call(**arguments)


def test_of_no_queue(engine):
    queue = engine.create_queue("q")
    queue.publish()
    engine.delete_queue("q")
    with pytest.raises(xump.QueueNotFound, match="'q'"):
        queue.browse_batch()
    with pytest.raises(xump.QueueNotFound, match="'q'"):
        engine.browse_batch("q")


# ---- published again

def seen(queue):
    return [(message.address, message.body, dict(message.headers), message.reply_to, message.message_id, message.correlation_id,
             message.expires, message.priority) for message in queue.browse()]


RARE = [Message("a", b"1", {"n": 1}, reply_to="r", message_id="m", correlation_id="c", expires=10**18, priority=255),
        Message("b", b"2"), Message("c", correlation_id="c2"), Message("d", expires=10**18 + 1), Message("e", priority=1)]


@pytest.mark.parametrize("through", [pyarrow.table, polars.DataFrame, lambda batch: batch], ids=["pyarrow", "polars", "itself"])
@pytest.mark.parametrize("way", ["taken", "looked at"])
def test_all_that_a_message_says_comes_through(engine, through, way):
    queue, other = engine.create_queue("q"), engine.create_queue("p")
    engine.publish_many("q", RARE)
    if way == "taken":
        engine.create_selector("q", when=always, do=deliver("d"), credit=9)
        batch = engine.take_batch(9)
    else:
        batch = queue.browse_batch()
    assert engine.publish_batch("p", through(batch)) == range(1, 6)
    assert seen(other) == seen(queue)


def test_delays_come_through(engine, clock):
    of_all_states(engine, clock)
    copy = engine.create_queue("copy")
    engine.publish_batch("copy", engine.browse_batch("q", state="delayed"))
    assert [(row["address"], row["state"], row["at"]) for row in rows_of(copy.browse_batch())] == [
        ("delayed", "delayed", clock.now + 30 * SECOND), ("again", "delayed", clock.now + 20 * SECOND)]
    clock.tick(20)
    engine.tick()
    assert (copy.ready, copy.delayed) == (1, 1)


@pytest.mark.parametrize(("columns", "says"), [
    ({"priority": pyarrow.array([0, None], pyarrow.uint8())}, False), ({"expires": pyarrow.nulls(2)}, False),
    ({"at": pyarrow.array([None, None], pyarrow.timestamp("ns", "UTC"))}, False),
    ({"expires": pyarrow.array([None, None], pyarrow.int64())}, False), ({"priority": [0, 1]}, True),
    ({"expires": pyarrow.array([None, 10**18], pyarrow.timestamp("ns", "UTC"))}, True)])
@pytest.mark.usefixtures("own_pool")
def test_columns_that_say_nothing_cost_nothing(engine, columns, says):
    """Rows that wait unrouted stay in their columns, as without these: none of them becomes a message."""
    queue = engine.create_queue("q")
    before = pyarrow.total_allocated_bytes()
    assert engine.publish_batch("q", pyarrow.table({"address": ["a", "b"], **columns})) == range(1, 3)
    assert (pyarrow.total_allocated_bytes() > before) is not says, "what was exported is held as long as the rows are in it"
    assert [message.address for message in queue.browse()] == ["a", "b"]
