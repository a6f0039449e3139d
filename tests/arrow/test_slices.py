"""`browse_slice` and `id_marks`: what servers read a queue by, for somebody far away."""

import random

import pyarrow
import pytest

import xump
from xump_ext.arrow.browse import browse_slice, id_marks
from xump_ext.match.filter import Filter

LARGE = 1 << 40


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        yield engine
        engine.check()


def slices(engine, queue, start=1, last=0, *, filter=None, reverse=False, rows=LARGE, size=LARGE, looks=LARGE):
    """The ids of each slice, until there is no next one."""
    found = []
    while start is not None:
        columns, start = browse_slice(engine, queue, start, last, None, filter, reverse, rows, size, looks, None)
        found.append(pyarrow.record_batch(columns).column("id").to_pylist())
    return found


@pytest.fixture
def queue(engine):
    queue = engine.create_queue("jobs")
    engine.publish_many("jobs", [("x", bytes(10), {"n": n}) for n in range(1, 1001)])
    for id in (3, 500, 999):
        queue.delete(id)
    return queue


@pytest.mark.parametrize("first, last, reverse, expected", [
    (1, 0, False, range(1, 1001)), (2, 5, False, range(2, 6)), (600, 600, False, [600]), (3, 3, False, []), (1001, 0, False, []),
    (1000, 0, True, range(1000, 0, -1)), (7, 2, True, range(7, 1, -1)), (500, 499, True, [499])])
@pytest.mark.parametrize("bounds", [{}, {"rows": 7}, {"size": 45}, {"looks": 1}, {"rows": 300, "size": 1, "looks": 300}], ids=str)
def test_slices_are_the_whole(engine, queue, first, last, reverse, expected, bounds):
    found = slices(engine, queue, first, last, reverse=reverse, **bounds)
    assert [id for ids in found for id in ids] == [id for id in expected if id not in (3, 500, 999)]


def test_each_bound_ends_a_slice(engine, queue):
    row = pyarrow.record_batch(browse_slice(engine, queue, 1, 1, None, None, False, 1, 1, 1, None)[0])
    assert row.num_rows == 1
    assert {len(ids) for ids in slices(engine, queue, rows=7)[:-1]} == {7}
    assert {len(ids) for ids in slices(engine, queue, size=1)} <= {0, 1}
    assert len(slices(engine, queue, size=45)[0]) in (2, 3)
    nothing = Filter(xump.filters.compile("n > 5000")[1])
    assert slices(engine, queue, filter=nothing, looks=1) == [[], [], [], []]


def test_headers_are_texts_in_a_map(engine):
    queue = engine.create_queue("jobs")
    values = {"i": -5, "f": 0.25, "t": True, "s": "ä", "b": "ö".encode(), "x": b"\xff\x01"}
    queue.publish("", b"", values)
    queue.publish("")
    table = pyarrow.record_batch(browse_slice(engine, queue, 1, 0, None, None, False, 9, LARGE, LARGE, None)[0])
    assert table.schema.field("headers").type == pyarrow.map_(pyarrow.string(), pyarrow.string())
    assert [dict(row) for row in table.column("headers").to_pylist()] == [
        {"i": "-5", "f": "0.25", "t": "true", "s": "ä", "b": "ö", "x": "ff01"}, {}]
    table.validate(full=True)


def test_headers_that_are_named_keep_their_types(engine):
    """A field for each header and type that is there, whatever other messages have."""
    queue = engine.create_queue("jobs")
    for value in (1 << 62, 0.5, True, False, "ä", b"\xff", -1, "", b""):
        queue.publish("", b"", {"no": 1, "a": value, "\0": value, "t": value})
    queue.publish("", b"", {"t": 3, "a": 5, "b" * 100: 1})
    queue.publish("")
    table = pyarrow.record_batch(browse_slice(
        engine, queue, 1, 0, None, None, False, LARGE, LARGE, LARGE, {"a": False, "none": False, "t": True, "\0": False})[0])
    table.validate(full=True)
    headers = table.column("headers")
    fields = [(int(field.name), field.type, headers.field(number).to_pylist()) for number, field in enumerate(headers.type)]
    assert len(fields) == 5 + 2 + 5
    for place, kind, values in fields:
        if place != 2:
            expected = {pyarrow.int64(): {0: 1 << 62, 6: -1, 9: 5}, pyarrow.float64(): {1: 0.5},
                        pyarrow.bool_(): {2: True, 3: False},
                        pyarrow.string(): {4: "ä", 7: ""}, pyarrow.binary(): {5: b"\xff", 8: b""}}[kind]
            expected = {row: value for row, value in expected.items() if place == 0 or row != 9}
        elif kind == pyarrow.string():
            expected = {0: str(1 << 62), 1: "0.5", 2: "true", 3: "false", 4: "ä", 6: "-1", 7: "", 9: "3"}
        else:
            expected = {5: b"\xff", 8: b""}
        assert {row: value for row, value in enumerate(values) if value is not None} == expected
    nothing = browse_slice(engine, queue, 1, 0, None, None, False, LARGE, LARGE, LARGE, {"none": False})[0]
    assert pyarrow.record_batch(nothing).schema.field("headers").type == pyarrow.null()


def test_named_headers_of_many_messages(engine):
    """More names than are compared by position, in any order, and far more headers than are wanted."""
    queue, chance = engine.create_queue("jobs"), random.Random(7)
    expected = []
    for _ in range(200):
        headers = {f"h{n}": chance.choice([n, float(n), str(n), n.to_bytes(2), n % 2 == 0])
                   for n in chance.sample(range(150), chance.randint(0, 150))}
        queue.publish("", b"", headers)
        expected.append({name: value for name, value in headers.items() if int(name[1:]) % 3 == 0})
    wanted = [f"h{n}" for n in range(0, 150, 3)]
    table = pyarrow.record_batch(browse_slice(
        engine, queue, 1, 0, None, None, False, LARGE, LARGE, LARGE, dict.fromkeys(wanted, False))[0])
    found = [{} for _ in expected]
    for number, field in enumerate(table.schema.field("headers").type):
        for row, value in enumerate(table.column("headers").field(number).to_pylist()):
            if value is not None:
                assert found[row].setdefault(wanted[int(field.name)], value) is value
    assert [[(name, type(value), value) for name, value in sorted(row.items())] for row in found] == [
        [(name, type(value), value) for name, value in sorted(row.items())] for row in expected]


@pytest.mark.parametrize("first, last, every, count, marks", [
    (1, 1000, 1000, 997, [1]), (1, 1000, 500, 997, [1, 503]), (1, 5, 1, 4, [1, 2, 4, 5]), (3, 3, 1, 0, []),
    (999, 2000, 1, 1, [1000]),
    (5, 4, 1, 0, [])])
def test_marks(engine, queue, first, last, every, count, marks):
    assert id_marks(engine, queue, first, last, every) == (count, marks)


def test_marks_of_many_pages(engine):
    queue = engine.create_queue("jobs")
    engine.publish_many("jobs", [("x",)] * 20_000)
    assert id_marks(engine, queue, 1, 20_000, 8192) == (20_000, [1, 8193, 16_385])


def test_of_no_queue(engine, queue):
    engine.delete_queue("jobs")
    with pytest.raises(xump.QueueNotFound):
        browse_slice(engine, queue, 1, 0, None, None, False, 9, 9, 9, None)
    with pytest.raises(xump.QueueNotFound):
        id_marks(engine, queue, 1, 5, 1)


@pytest.mark.parametrize("names", [
    ["id"], ["body"], ["headers", "state"], ["address", "at", "priority"], ["queue", "destination", "reply_to", "message_id"],
    ["correlation_id", "expires", "redelivered"]])
@pytest.mark.parametrize("named_headers", [{"n": False}, {"n": True}, None])
def test_columns_that_are_wanted_are_as_in_the_whole(engine, names, named_headers):
    queue = engine.create_queue("jobs")
    for n in range(5):
        queue.publish("a" * n, b"b" * n, {"n": n}, reply_to="r" * n, message_id=f"m{n}", correlation_id="c", ttl=9 + n,
                      priority=n, delay=n)
    whole, some = (pyarrow.record_batch(browse_slice(
        engine, queue, 1, 0, None, None, False, 9, LARGE, LARGE, named_headers, *columns)[0]) for columns in ((), (names,)))
    assert some.num_rows == 5 and some.schema.names == whole.schema.names
    assert some.select(names) == whole.select(names)
