"""Reading by id over Flight, and taking."""

import json
import itertools
import re
from datetime import datetime, timedelta, UTC

import pyarrow as pa
import pytest
from pyarrow import flight

from xump import Engine, always, copy_to, deliver, field
from xump.broker import Broker, Client
from xump.errors import InvalidFilter, QueueNotFound, StaleDelivery
from tests.broker.flight.conftest import until


@pytest.fixture
def jobs(engine):
    jobs = engine.create_queue("jobs")
    engine.publish_many("jobs", [(f"a{n}", b"%d" % n, {"n": n, "even": n % 2 == 0}) for n in range(1, 11)])
    return jobs


def ids(reader):
    return reader.read_all().column("id").to_pylist()


@pytest.mark.parametrize("options, expected", [
    ({}, range(1, 11)), ({"start": 4}, range(4, 11)), ({"start": 4, "end": 6}, [4, 5, 6]), ({"end": 2}, [1, 2]),
    ({"where": "n >= 8"}, [8, 9, 10]), ({"where": {"even": True}, "start": 5}, [6, 8, 10]), ({"start": 11}, []),
    ({"end": 0}, []), ({"start": 0, "end": 1}, [1]), ({"reverse": True, "end": 0}, []),
    ({"reverse": True, "end": 9, "start": 7}, [9, 8, 7]), ({"reverse": True}, range(10, 0, -1)), ({"state": "history"}, []),
    ({"state": "ready", "start": "head"}, range(2, 11)), ({"state": "outstanding"}, [1]), ({"start": "current"}, [])])
def test_ranges_filters_and_states(engine, jobs, client, options, expected):
    engine.create_selector("jobs", when=always, do=deliver("x"), start="current")
    assert ids(client.browse("jobs", **options)) == list(expected)


def test_times(engine, client):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    engine.create_queue("jobs", history_limit=None)
    engine.publish("jobs", "now")
    assert ids(client.browse("jobs", start=now)) == [1]
    assert ids(client.browse("jobs", start=datetime.now(UTC) + timedelta(days=1))) == []


@pytest.mark.parametrize("value, kind", [
    (1e300, "float32"), (-70_000.0, "float16"), (0.5, "int64"), (300, "int8"), ("x", "int64"), (2**53 + 1, "float64")])
@pytest.mark.parametrize("columns", [None, ["headers"]])
def test_a_header_that_does_not_fit_is_named(engine, client, value, kind, columns):
    engine.create_queue("jobs")
    for headers in ({}, {"x": "1" if value == "x" else type(value)(1)}, {"x": value}):
        engine.publish("jobs", headers=headers)
    with pytest.raises(ValueError, match=re.escape(f"header 'x' of message 3 is {value!r}, which does not fit into")):
        client.browse("jobs", columns=columns, headers={"x": kind}).read_all()
    reader = client.browse("jobs", columns=columns, headers={"x": kind}, end=2)
    assert [row["headers"] for row in reader.read_all().to_pylist()] == [{"x": None}, {"x": 1}]


def test_the_header_of_a_message_depends_on_no_other_message(engine, client):
    """A struct that is made of a whole slice makes texts of ints that stand beside texts, and floats of ints beside floats."""
    engine.create_queue("jobs")
    values = [1 << 60 | 1, 2.0, "3", True, b"4", 0.5, None]
    kinds = ["int64", "double", "string", "binary", "bool", "int8"]
    for value in values:
        engine.publish("jobs", headers={} if value is None else {"x": value})

    def read(kind, first, last):
        try:
            return client.browse("jobs", start=first, end=last, headers={"x": kind}).read_all()["headers"].to_pylist()
        except ValueError as error:
            return [str(error).split("(")[0]]
    for kind in kinds:
        alone = [read(kind, id, id)[0] for id in range(1, len(values) + 1)]
        fitting = [id for id, found in enumerate(alone, 1) if isinstance(found, dict)]
        assert fitting[-1] == len(values)
        for first, last in itertools.combinations(range(1, len(values) + 1), 2):
            together = alone[first - 1:last]
            errors = [found for found in together if not isinstance(found, dict)]
            assert read(kind, first, last) == (errors[:1] or together)
    assert client.browse("jobs", headers={"x": "string"}, end=4).read_all()["headers"].to_pylist() == [
        {"x": str(1 << 60 | 1)}, {"x": "2.0"}, {"x": "3"}, {"x": "true"}]


def test_infinity_is_infinite_in_every_type(engine, client):
    engine.create_queue("jobs")
    engine.publish("jobs", headers={"x": float("inf")})
    assert client.browse("jobs", headers={"x": "float32"}).read_all()["headers"].to_pylist() == [{"x": float("inf")}]


def test_a_plan_has_so_many_parts_also_where_ids_are_far_apart(engine, client):
    queue = engine.create_queue("jobs")
    engine.publish_batch("jobs", pa.table({"body": [b""] * 20_000}))
    queue.purge(upto=19_990)
    engine.publish_batch("jobs", pa.table({"body": [b""] * 20_000}))
    queue.purge(upto=39_700)
    plan = client.plan("jobs", 10)
    sizes = [sum(first <= id <= last for id in range(39_701, 40_001)) for first, last in plan.parts]
    assert (plan.rows, sizes) == (300, [30] * 10)


def test_from_one_time_on_and_before_another(tmp_path):
    clock = [1_000]
    with (Engine(clock=lambda: clock[0]) as engine, Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker,
          Client(broker.flight.url) as client):
        engine.create_queue("jobs")
        for moment in (1_000_000, 2_000_000, 3_000_000):
            clock[0] = moment
            assert client.clock() == moment
            engine.publish("jobs", str(moment))

        def at(microseconds):
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)

        for start, end, expected in ((2_000, None, [2, 3]), (None, 2_000, [1]), (1_001, 3_000, [2]), (None, 1_000, []),
                                     (None, 9_000, [1, 2, 3]), (3_001, None, [])):
            for reverse in (False, True):
                assert ids(client.browse("jobs", start=start and at(start), end=end and at(end), reverse=reverse)) == (
                    expected[::-1] if reverse else expected)


def test_columns_and_types_are_the_same_in_all_batches(engine, client):
    engine.create_queue("jobs")
    engine.publish_many("jobs", [("plain",)] * 3000 + [("h", b"", {"n": 1, "b": b"\xff\x00", "t": True, "f": 0.5})])
    reader = client.browse("jobs", columns=["id", "headers"])
    assert reader.schema == pa.schema([("id", pa.uint64()), ("headers", pa.map_(pa.string(), pa.string()))])
    table = reader.read_all()
    assert table.num_rows == 3001
    assert dict(table.column("headers")[3000].as_py()) == {"n": "1", "b": "ff00", "t": "true", "f": "0.5"}


def test_headers_with_types(engine, jobs, client):
    engine.publish("jobs", "none")
    table = client.browse("jobs", start=9, headers={"n": "int64", "missing": "string"}).read_all()
    assert table.column("headers").to_pylist() == [
        {"n": 9, "missing": None}, {"n": 10, "missing": None}, {"n": None, "missing": None}]
    engine.publish("jobs", "wrong", b"", {"n": "text"})
    with pytest.raises(ValueError, match="text"):
        client.browse("jobs", headers={"n": "int64"}).read_all()


def test_what_is_read_can_be_published_again(engine, jobs, client):
    engine.create_queue("copy")
    client.publish("copy", client.browse("jobs"))
    assert [(m.address, m.body, m.headers["n"]) for m in engine.queues["copy"].browse(limit=2)] == [
        ("a1", b"1", "1"), ("a2", b"2", "2")]


def test_a_slice_is_bounded(engine, client):
    engine.create_queue("jobs")
    engine.publish_many("jobs", [("large", bytes(400_000))] * 10 + [("small",)] * 5000)
    sizes = [batch.num_rows for batch in client.browse("jobs")]
    assert sum(sizes) == 5010
    assert sizes[:3] == [3, 3, 3]
    assert max(sizes) <= 2048


def test_a_slice_with_many_columns_has_fewer_rows(engine, client):
    engine.create_queue("jobs")
    engine.publish_many("jobs", [("x", b"")] * 3000)
    narrow, wide = client.browse("jobs"), client.browse("jobs", headers=dict.fromkeys(map(str, range(1000)), "int64"))
    assert next(narrow).num_rows == 2048
    assert next(wide).num_rows == 128 * 1024 // 1013
    assert wide.read_all().num_rows == 3000 - 128 * 1024 // 1013


def test_nothing_above_what_is_durable_is_shown(engine, tmp_path, client):
    engine.create_store("disk", "ring", path=str(tmp_path / "store"), durability="group", group_ms=60_000.0)
    jobs = engine.create_queue("jobs", store="disk")
    jobs.publish("first")
    engine.sync()
    jobs.publish("second")
    seen = ids(client.browse("jobs"))
    assert seen == list(range(1, jobs.durable_id + 1)) or seen == [1]
    engine.sync()
    assert ids(client.browse("jobs")) == [1, 2]


def test_a_reader_that_stops_leaves_nothing(engine, flying, client):
    engine.create_queue("jobs")
    engine.publish_many("jobs", [("x", bytes(1000))] * 50_000)
    reader = client.browse("jobs")
    reader.read_next_batch()
    del reader
    until(lambda: not (len(flying.flight.calls)))
    assert engine.queues["jobs"].ready == 50_000


@pytest.mark.parametrize("options, error, said", [
    ({"where": "n >"}, InvalidFilter, "end of the filter|n >"), ({"state": "gone"}, ValueError, "state='gone'"),
    ({"columns": ["nothing"]}, ValueError, "nothing"), ({"columns": ["id", "id"]}, ValueError, "give each name once"),
    ({"headers": dict.fromkeys(map(str, range(1001)), "int64")}, ValueError, "headers has 1001 names, allowed are 1000"),
    ({"headers": {"n": "strange"}}, ValueError, "strange"),
    ({"start": -1}, ValueError, "-1 is no place")])
def test_wrong_options(jobs, client, options, error, said):
    with pytest.raises(error, match=said):
        client.browse("jobs", **options).read_all()


def test_no_queue(client):
    with pytest.raises(QueueNotFound):
        client.browse("jobs").read_all()


@pytest.mark.parametrize("more, said", [
    ({"reverse": 1}, "reverse=1"), ({"columns": "id"}, "columns='id'"), ({"columns": [1]}, "columns=[1]"),
    ({"columns": []}, "expected a list of one or more"),
    ({"columns": 5}, "more of id"), ({"headers": {"n": 5}}, "a type is a text"), ({"start": {"ns": 10 ** 30}}, "is no place"),
    ({"start": {"ns": 1, "x": 1}}, "no place"),
    ({"colour": "red"}, "a ticket has `queue` and perhaps"), ({"take": {"queue": 5}, "session": "s"}, "expected a destination"),
    ({"take": {"queue": "jobs", "x": 1}, "session": "s"}, "expected a destination"), ({"take": "x"}, "`session`"),
    ({"take": "x", "session": "s", "timeout": float("nan")}, "timeout=nan"),
    ({"take": "x", "session": "s", "credit": 0}, "credit=0")])
def test_tickets_that_are_wrong(jobs, flying, more, said):
    ticket = {**({} if "take" in more else {"queue": "jobs"}), **more}
    with pytest.raises(flight.FlightServerError) as raised:
        flight.connect(flying.flight.url).do_get(flight.Ticket(json.dumps(ticket).encode())).read_all()
    found = json.loads(raised.value.extra_info)
    assert said in found["text"] and found["error"] == "ValueError"
    assert jobs.ready == 10


def test_any_client_of_flight_may_read(engine, jobs, flying):
    client = flight.connect(flying.flight.url)
    [info] = client.list_flights()
    assert (info.descriptor.path, info.total_records) == ([b"jobs"], 10)
    assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 10
    assert client.get_flight_info(info.descriptor).schema == info.schema == client.get_schema(info.descriptor).schema


def test_a_ticket_leads_to_its_queue_whatever_its_name(engine, flying):
    engine.create_queue("{x").publish("a")
    client = flight.connect(flying.flight.url)
    [info] = client.list_flights()
    assert client.do_get(info.endpoints[0].ticket).read_all().column("address").to_pylist() == ["a"]
    assert info.schema == client.do_get(info.endpoints[0].ticket).schema
    with pytest.raises(flight.FlightServerError, match="queue=5: expected a text"):
        client.get_flight_info(flight.FlightDescriptor.for_command(b'{"queue": 5}'))


def test_a_plan_has_parts_of_the_same_size(engine, client):
    jobs = engine.create_queue("jobs")
    engine.publish_many("jobs", [("x",)] * 10_000)
    for id in range(1, 5001):
        if id % 100:
            jobs.delete(id)
    plan = client.plan("jobs", 4)
    assert plan.incarnation == jobs.incarnation
    assert plan.rows == 5050
    assert plan.parts[0][0] == 1
    assert plan.parts[-1][1] == 10_000
    assert all(before[1] + 1 == after[0] for before, after in zip(plan.parts, plan.parts[1:], strict=False))
    sizes = [client.browse("jobs", start=first, end=last, columns=["id"]).read_all().num_rows for first, last in plan.parts]
    assert sum(sizes) == 5050
    assert max(sizes) - min(sizes) <= 5050 // 4 // 16
    assert client.plan("jobs", 3, start=9_999).parts == [(9_999, 9_999), (10_000, 10_000)]
    assert client.plan("jobs", 3, start=10_001).parts == []


def test_offsets(engine, durable, client):
    jobs = engine.create_queue("jobs", store=durable, history_limit=None)
    client.publish("jobs", pa.table({"address": ["a", "b", "c"]}))
    jobs.delete(1)
    engine.create_selector("jobs", when=always, do=deliver("x"))
    found = client.offsets("jobs")
    assert found == (jobs.incarnation, 2, 3, 3, 3, False, 1)
    assert found.readable_id == 3


def test_what_a_writer_wants_to_know(engine, durable, client):
    engine.create_queue("jobs", store=durable)
    engine.create_queue("fast")
    engine.create_queue("through", transit=True)
    assert [client.target(name) for name in ("jobs", "fast", "through")] == [
        (False, True, False, durable), (False, False, False, "ram"), (True, False, False, "ram")]


def test_a_writer_hears_of_durable_queues_in_other_stores_behind_its_own(engine, durable, client):
    for name, store in (("jobs", durable), ("beside", durable), ("fast", "ram"), ("behind", "ram")):
        engine.create_queue(name, store=store)
    engine.create_selector("jobs", when=always, do=copy_to("beside"))
    engine.create_selector("jobs", when=always, do=copy_to(field("reply_to")))
    engine.create_selector("fast", when=always, do=copy_to("behind"))
    engine.create_selector("behind", when=always, do=copy_to("fast"))
    assert [client.target(name).durable_elsewhere for name in ("jobs", "fast")] == [False, False]
    engine.create_selector("behind", when=always, do=copy_to("jobs"))
    assert [client.target(name).durable_elsewhere for name in ("jobs", "fast", "behind")] == [False, True, True]


def test_taking_with_credit(engine, jobs, client):
    with client.take("jobs", credit=4) as taken:
        first = next(taken.batches)
        assert first.column("id").to_pylist() == [1, 2, 3, 4]
        assert jobs.outstanding == 4
        assert taken.ack(first.slice(0, 2)) == 2
        assert next(taken.batches).column("id").to_pylist() == [5, 6]
        assert taken.nack([5, 6]) == 2
        assert next(taken.batches).column("id").to_pylist() == [5, 6]
        with pytest.raises(StaleDelivery, match="1 of 2 messages"):
            taken.ack([3, 1])
        assert taken.ack(pa.array([3, 4, 5], pa.uint64())) == 3
    until(lambda: (jobs.outstanding, len(engine.selectors)) == (0, 0))
    assert jobs.ready == 5
    with pytest.raises(StaleDelivery, match="has ended|no stream takes"):
        taken.ack([6])


def test_taking_from_a_destination_ends_after_its_timeout(engine, jobs, client):
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=100)
    with client.take("worker", destination=True, timeout=0.1) as taken:
        for batch in taken:
            taken.ack(batch)
    assert (jobs.ready, jobs.outstanding) == (0, 0)


def test_the_queue_of_a_taker_is_deleted(engine, jobs, client):
    with client.take("jobs", credit=100) as taken:
        assert next(taken.batches).num_rows == 10
        engine.delete_queue("jobs")
        assert next(taken.batches, None) is None
